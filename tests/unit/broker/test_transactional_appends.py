"""Batches of transactions on their way into a real log, and a coordinator that says what the test lets it say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from holdfast.broker.metadata_cache import LiveBroker, MetadataCache, PartitionInfo
from holdfast.broker.transactional_appends import NOT_ADDED, TransactionalAppends, TxnBatch
from holdfast.broker.txn_verification import MAX_TRANSACTIONS, PartitionClaim, TxnVerification
from holdfast.client.outgoing import Outgoing
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import HoldfastError
from holdfast.model.internal_topics import TRANSACTIONS_TOPIC
from holdfast.model.listeners import Endpoints
from holdfast.model.types import TopicPartition
from holdfast.protocol.error_codes import code_of
from holdfast.records.batch import parse_header
from holdfast.records.markers import EndMarker, encode_marker
from holdfast.records.record import Record, encode_batch
from holdfast.replication.types import AppendTerms, ProduceResult
from tests.unit.broker.conftest import Listener, Values, until
from tests.unit.replication.conftest import TP, Cluster

PID = 5
PASSES = [13, 14, 15, 16]
"""NETWORK_EXCEPTION, and what coordinators say that do not know."""


class Coordinator(Listener):
    """``codes``: what is said of each partition, in turn; the last one for ever. ``holds``: nothing is said yet."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = [0]
        self.holds = False
        self.reply = self._say

    def _say(self, request: Any) -> Values | None:
        return None if self.holds else self.values(request)

    def values(self, request: Any) -> Values:
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return {
            "results_by_transaction": [
                {
                    "transactional_id": t.transactional_id,
                    "topic_results": [
                        {
                            "name": topic.name,
                            "results_by_partition": [
                                {"partition_index": i, "partition_error_code": ErrorCode(code)}
                                for i in topic.partitions
                            ],
                        }
                        for topic in t.topics
                    ],
                }
                for t in request.transactions
            ]
        }

    def say(self) -> None:
        """What was held back."""
        self.holds = False
        waiting, self.unanswered = self.unanswered, []
        for exchange, request in zip(waiting, self.requests[-len(waiting) :], strict=True):
            self.answer(exchange, self.values(request))


class Place:
    """A broker with one partition that it leads, and the coordinator of all transactions."""

    def __init__(self, path: Path, properties: dict[str, str]) -> None:
        self.coordinator = Coordinator()
        self.cluster = Cluster(path, 1)
        self.cluster.create(1)
        self.replicas = self.cluster[1].replicas
        self.broker_id = 1
        self.outgoing = Outgoing()
        self.config = BrokerConfig.parse({"node.id": "1", "log.dirs": str(path / "d")} | properties)
        self.metadata = MetadataCache()
        self.metadata.brokers[9] = LiveBroker(9, Endpoints.one("127.0.0.1", self.coordinator.port), None)
        info = PartitionInfo(leader=9, leader_epoch=0, isr=(9,), replicas=(9,), offline=())
        self.metadata.topics[TRANSACTIONS_TOPIC] = {0: info}
        self.txn_verification = TxnVerification(self)
        self.appends = TransactionalAppends(self)
        self.results: list[tuple[int, ProduceResult]] = []

    def now_ms(self) -> int:
        return self.cluster.now_ms

    def produce(
        self, sequence: int, *, version: int = 11, epoch: int = 0, pid: int = PID, coordinated_in: int | None = None
    ) -> None:
        data = encode_batch(
            [Record(0, self.cluster.now_ms, None, b"v")], producer_id=pid, producer_epoch=epoch,
            base_sequence=sequence, transactional=True,
        )  # fmt: skip
        self.appends.append(
            TxnBatch(
                TP, memoryview(data), parse_header(data), "tx", version, -1, 1000,
                lambda result: self.results.append((sequence, result)), coordinated_in,
            )
        )  # fmt: skip

    def end(self, *, is_commit: bool = True, epoch: int = 0) -> None:
        self.appends.ended(TP, PID)
        marker = encode_marker(PID, epoch, EndMarker(is_commit, 0), self.cluster.now_ms)
        [result] = self.cluster[1].produce(data=marker, terms=AppendTerms(trusted=True))
        assert result.error is None

    @property
    def said(self) -> list[tuple[int, int]]:
        """(sequence, code) of what was answered."""
        return [(sequence, code_of(result.error)) for sequence, result in self.results]

    @property
    def asked(self) -> int:
        return len(self.coordinator.requests)


def run(path: Path, check: Callable[[Place], Awaitable[None]], properties: dict[str, str] | None = None) -> None:
    async def main() -> None:
        place = Place(path, properties or {})
        await check(place)
        place.txn_verification.close()
        place.coordinator.close()

    asyncio.run(main())


def test_the_first_batch_is_asked_about_and_nothing_overtakes_it(tmp_path: Path) -> None:
    async def check(place: Place) -> None:
        place.coordinator.holds = True
        for sequence in range(3):
            place.produce(sequence)
        await until(lambda: place.asked == 1)
        assert place.said == []
        place.coordinator.say()
        await until(lambda: len(place.results) == 3)
        assert place.said == [(0, 0), (1, 0), (2, 0)]
        place.produce(3)  # its transaction is open here
        assert (place.said[3:], place.asked) == ([(3, 0)], 1)
        [transaction] = place.coordinator.requests[0].transactions
        assert (transaction.verify_only, transaction.producer_id, transaction.topics[0].partitions) == (True, PID, (0,))
        place.end()
        place.produce(4)
        await until(lambda: len(place.results) == 5)
        assert place.asked == 2, "another transaction"

    run(tmp_path, check)


def test_what_coordinators_write_has_no_sequences_and_is_of_their_leadership(tmp_path: Path) -> None:
    async def check(place: Place) -> None:
        epoch = place.replicas.leader_epoch(TP)
        for _ in range(3):
            place.produce(0, coordinated_in=epoch)
            await until(lambda: place.results)
            assert place.results.pop()[1].error is None
        assert place.replicas.partitions[TP].log.view.end_offset == 3, "none is taken for another"
        place.end()
        place.coordinator.holds = True
        place.produce(0, coordinated_in=epoch)
        await until(lambda: place.asked == 2)
        place.cluster.change(leader_epoch=7)
        place.cluster.broadcast()
        place.cluster.settle()
        place.coordinator.say()
        await until(lambda: place.results)
        assert place.said == [(0, 6)]
        assert place.asked == 3, "asked again, as another leader may have ended it"

    run(tmp_path, check)


def test_version_12_has_the_partition_added(tmp_path: Path) -> None:
    async def check(place: Place) -> None:
        place.produce(0, version=12)
        await until(lambda: place.results)
        assert (place.said, place.coordinator.requests[0].transactions[0].verify_only) == ([(0, 0)], False)
        place.produce(3, version=12, pid=77)
        await until(lambda: len(place.results) == 2)
        assert place.said[1] == (3, 45), "what came before is missing"

    run(tmp_path, check)


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [(9, 48, 48), (9, 120, 48), (11, 120, 120), (9, 90, 47), (12, 90, 47), (9, 47, 47), (9, 49, 49), (9, 51, 19),
     *((version, code, 19) for version in (9, 12) for code in PASSES)],
)  # fmt: skip
def test_what_a_coordinator_says_is_told_so_that_clients_understand_it(
    tmp_path: Path, version: int, code: int, told: int
) -> None:
    async def check(place: Place) -> None:
        place.coordinator.codes = [code]
        place.produce(0, version=version)
        await until(lambda: place.results)
        assert place.said == [(0, told)]
        if told == 48:
            assert place.results[0][1].error_message == NOT_ADDED

    run(tmp_path, check)


def test_what_was_behind_a_refused_batch_is_refused_until_that_comes_again(tmp_path: Path) -> None:
    """A partition that knows nothing of a producer takes any sequence."""

    async def check(place: Place) -> None:
        place.coordinator.codes = [15, 0]
        place.produce(0)
        place.produce(1)
        await until(lambda: len(place.results) == 2)
        place.produce(2)
        assert place.said == [(0, 19), (1, 19), (2, 19)]
        for sequence in range(3):
            place.produce(sequence)
        await until(lambda: len(place.results) == 6)
        assert place.said[3:] == [(0, 0), (1, 0), (2, 0)]

    run(tmp_path, check)


def test_a_batch_that_comes_again_when_its_transaction_is_over_holds_up_nobody(tmp_path: Path) -> None:
    """The simulation found it (seed 916900738): the next transaction was refused for a minute, then for good."""

    async def check(place: Place) -> None:
        for sequence in (0, 1):
            place.produce(sequence)
        await until(lambda: len(place.results) == 2)
        place.end()
        place.coordinator.codes = [51, 0]
        place.produce(1)
        await until(lambda: len(place.results) == 3)
        place.produce(2)
        await until(lambda: len(place.results) == 4)
        assert place.said == [(0, 0), (1, 0), (1, 19), (2, 0)]

    run(tmp_path, check)


def test_a_gap_that_stays_is_one(tmp_path: Path) -> None:
    async def check(place: Place) -> None:
        place.coordinator.codes = [15, 0]
        place.produce(0)
        await until(lambda: place.results)
        place.cluster.now_ms += 61_000
        place.produce(1)
        assert place.said[1:] == [(1, 45)]

    run(tmp_path, check)


def test_a_marker_between_question_and_append_has_it_asked_again(tmp_path: Path) -> None:
    """Else a batch of the transaction that is over would begin one that nobody ends (KIP-890)."""

    async def check(place: Place) -> None:
        place.coordinator.holds = True
        place.coordinator.codes = [0, 48]
        place.produce(0)
        await until(lambda: place.asked == 1)
        place.end(is_commit=False)
        place.coordinator.say()
        await until(lambda: place.results)
        assert (place.said, place.asked) == ([(0, 48)], 2)
        assert place.replicas.last_stable_offset(TP) == 1, "nothing is open"

    run(tmp_path, check)


def test_another_leader_may_have_ended_it_meanwhile(tmp_path: Path) -> None:
    async def check(place: Place) -> None:
        place.coordinator.holds = True
        place.coordinator.codes = [0, 48]
        place.produce(0)
        await until(lambda: place.asked == 1)
        place.cluster.change(leader_epoch=7)
        place.cluster.broadcast()
        place.cluster.settle()
        place.coordinator.say()
        await until(lambda: place.results)
        assert (place.said, place.asked) == ([(0, 48)], 2)

    run(tmp_path, check)


def test_while_markers_are_written_adding_is_tried_again(tmp_path: Path) -> None:
    async def check(place: Place) -> None:
        place.coordinator.codes = [51, 0]
        place.produce(0, version=12)
        await until(lambda: place.results)
        assert (place.said, place.asked) == ([(0, 0)], 2)
        place.end(epoch=0)
        place.coordinator.codes = [51]
        place.produce(1, version=12)
        await until(lambda: len(place.results) == 2)
        assert place.said[1] == (1, 51)
        assert place.asked > 3

    run(tmp_path, check)


def test_without_verification_only_version_12_asks(tmp_path: Path) -> None:
    async def check(place: Place) -> None:
        place.produce(0)
        assert (place.said, place.asked) == ([(0, 0)], 0)
        place.produce(0, version=12, pid=6)
        await until(lambda: place.asked == 1 and len(place.results) == 2)

    run(tmp_path, check, {"transaction.partition.verification.enable": "false"})


def test_a_coordinator_that_is_gone_or_not_known(tmp_path: Path) -> None:
    async def check(place: Place) -> None:
        place.coordinator.close()
        place.produce(0)
        await until(lambda: place.results)
        place.metadata.topics.clear()
        place.produce(0)
        await until(lambda: len(place.results) == 2)
        assert place.said == [(0, 19), (0, 19)]
        assert "coordinator" in (place.results[1][1].error_message or "")

    run(tmp_path, check)


def test_a_request_takes_many_claims_but_one_transaction_of_an_id(tmp_path: Path) -> None:
    async def check(place: Place) -> None:
        answers: list[HoldfastError | None] = []
        place.coordinator.holds = True
        ask = place.txn_verification.ask
        ask(PartitionClaim("first", 1, 0, TP, adds=False), answers.append)
        await until(lambda: place.asked == 1)
        for partition in range(3):
            ask(PartitionClaim("tx", PID, 0, TopicPartition("t", partition), adds=False), answers.append)
        ask(PartitionClaim("tx", PID, 1, TP, adds=False), answers.append)
        for number in range(MAX_TRANSACTIONS):
            ask(PartitionClaim(f"id {number}", number, 0, TP, adds=True), answers.append)
        place.coordinator.say()
        await until(lambda: len(answers) == MAX_TRANSACTIONS + 5)
        assert set(answers) == {None}
        assert [len(request.transactions) for request in place.coordinator.requests] == [1, MAX_TRANSACTIONS, 2]
        assert place.coordinator.requests[1].transactions[0].topics[0].partitions == (0, 1, 2)

    run(tmp_path, check)


def test_an_answer_that_leaves_a_partition_out(tmp_path: Path) -> None:
    async def check(place: Place) -> None:
        place.coordinator.reply = lambda request: {"results_by_transaction": []}
        place.produce(0)
        await until(lambda: place.results)
        place.coordinator.reply = lambda request: {"error_code": ErrorCode(31)}
        place.produce(0, pid=6)
        await until(lambda: len(place.results) == 2)
        assert place.said == [(0, -1), (0, 48)]

    run(tmp_path, check)
