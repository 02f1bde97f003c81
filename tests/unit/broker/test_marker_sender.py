"""Markers on their way: to whom, again after what, and when a decision is carried out everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from holdfast.broker import marker_sender
from holdfast.broker.marker_sender import BrokerMarkers
from holdfast.broker.metadata_cache import LiveBroker, MetadataCache, PartitionInfo
from holdfast.client.outgoing import Outgoing
from holdfast.model.errors import (
    HoldfastError,
    InvalidProducerEpochError,
    NotLeaderOrFollowerError,
    TransactionCoordinatorFencedError,
)
from holdfast.model.listeners import Endpoints
from holdfast.model.types import TopicPartition
from holdfast.transactions.types import Ending, Producer
from tests.unit.broker.conftest import Listener, until

A, B, C = (TopicPartition("t", i) for i in range(3))


class Brokers:
    """Listening ports in place of the brokers 1, 2, 3: what they were asked, and what they answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[tuple[int, bool, int, list[TopicPartition]]]]] = []
        self.answers: dict[TopicPartition, list[HoldfastError]] = {}
        self.holds: set[int] = set()
        self.listeners = {broker_id: Listener() for broker_id in (1, 2, 3)}
        for broker_id, listener in self.listeners.items():
            listener.reply = partial(self._asked, broker_id)
        self.metadata = MetadataCache()
        for broker_id, listener in self.listeners.items():
            self.metadata.brokers[broker_id] = LiveBroker(broker_id, Endpoints.one("127.0.0.1", listener.port), None)
        self.lead({A: 1, B: 1, C: 2})

    def _asked(self, broker_id: int, request: Any) -> dict[str, Any] | None:
        markers = [
            (int(m.producer_id), m.transaction_result, int(m.coordinator_epoch),
             [TopicPartition(t.name, int(i)) for t in m.topics for i in t.partition_indexes])
            for m in request.markers
        ]  # fmt: skip
        self.asked.append((broker_id, markers))
        return None if broker_id in self.holds else {"markers": [self._answer(m) for m in markers]}

    def _answer(self, marker: Any) -> dict[str, Any]:
        partitions = []
        for tp in marker[3]:
            errors = self.answers.get(tp, [])
            partitions.append({"partition_index": tp.partition, "error_code": errors.pop(0) if errors else None})
        return {"producer_id": marker[0], "topics": [{"name": "t", "partitions": partitions}]}

    def release(self, broker_id: int) -> None:
        """What it did not answer is answered now: all is well."""
        self.holds.discard(broker_id)
        waiting, self.listeners[broker_id].unanswered = self.listeners[broker_id].unanswered, []
        for exchange, (_, markers) in zip(waiting, [a for a in self.asked if a[0] == broker_id], strict=False):
            Listener.answer(exchange, {"markers": [self._answer(m) for m in markers]})

    def lead(self, leaders: dict[TopicPartition, int | None]) -> None:
        """As the metadata has it from now on."""
        for tp, leader in leaders.items():
            info = PartitionInfo(leader=leader, leader_epoch=0, isr=(), replicas=(), offline=())
            self.metadata.topics.setdefault("t", {})[tp.partition] = info


def checked(check: Callable[[BrokerMarkers, Brokers], Any]) -> None:
    """Run ``check`` with a sender and the brokers that it sends to. A and B are led by broker 1, C by 2."""

    async def run() -> None:
        brokers = Brokers()
        broker: Any = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            broker_id=9,
            metadata=brokers.metadata,
            told_epoch=1,
            outgoing=Outgoing(),
        )
        sender = BrokerMarkers(broker)
        try:
            await check(sender, brokers)
        finally:
            sender.close()
            for listener in brokers.listeners.values():
                listener.close()

    asyncio.run(run())


def ending(*partitions: TopicPartition, producer_id: int = 7) -> Ending:
    return Ending(
        transactional_id=f"tx{producer_id}", producer=Producer(producer_id, 3), commit=True, coordinator_epoch=5,
        version=2, left=set(partitions),
    )  # fmt: skip


def test_every_leader_gets_its_partitions_and_the_end_is_told_once() -> None:
    async def check(sender: BrokerMarkers, brokers: Brokers) -> None:
        ended: list[str] = []
        one = ending(A, B, C)
        sender.send(one, lambda: ended.append("tx"))
        await until(lambda: bool(ended))
        assert sorted(brokers.asked) == [(1, [(7, True, 5, [A, B])]), (2, [(7, True, 5, [C])])]
        assert (ended, one.left) == (["tx"], set())

    checked(check)


def test_what_passes_is_tried_again_at_whoever_leads_then() -> None:
    async def check(sender: BrokerMarkers, brokers: Brokers) -> None:
        ended: list[str] = []
        brokers.answers[C] = [NotLeaderOrFollowerError(), TransactionCoordinatorFencedError()]
        brokers.listeners[1].close()
        sender.send(ending(A, C), lambda: ended.append("tx"))
        await until(lambda: len(brokers.asked) >= 1)
        brokers.lead({A: 2, C: 3})
        await until(lambda: bool(ended))
        assert {broker for broker, _ in brokers.asked[1:]} == {2, 3}

    checked(check)


def test_a_partition_that_has_gone_on_needs_no_marker() -> None:
    async def check(sender: BrokerMarkers, brokers: Brokers) -> None:
        ended: list[str] = []
        brokers.answers[A] = [InvalidProducerEpochError()]
        sender.send(ending(A), lambda: ended.append("tx"))
        await until(lambda: bool(ended))
        assert len(brokers.asked) == 1

    checked(check)


def test_a_leader_is_waited_for_and_a_deleted_partition_is_not() -> None:
    async def check(sender: BrokerMarkers, brokers: Brokers) -> None:
        ended: list[str] = []
        brokers.lead({A: None})
        one = ending(A, TopicPartition("t", 9))
        sender.send(one, lambda: ended.append("tx"))
        await until(lambda: one.left == {A})
        assert (ended, brokers.asked) == ([], [])
        brokers.lead({A: 1})
        await until(lambda: bool(ended))

    checked(check)


def test_what_is_over_is_sent_no_more_and_told_to_nobody() -> None:
    async def check(sender: BrokerMarkers, brokers: Brokers) -> None:
        ended: list[str] = []
        brokers.holds.add(1)
        old = ending(A)
        sender.send(old, lambda: ended.append("old"))
        await until(lambda: bool(brokers.asked))
        old.is_over = True
        brokers.release(1)
        sender.send(ending(B, producer_id=8), lambda: ended.append("new"))
        await until(lambda: bool(ended))
        assert ended == ["new"]

    checked(check)


def test_a_request_that_waits_holds_up_no_other_and_what_gathers_goes_together() -> None:
    async def check(sender: BrokerMarkers, brokers: Brokers) -> None:
        ended: list[int] = []
        brokers.holds.add(1)
        for number in range(marker_sender.SLOTS):
            sender.send(ending(A, producer_id=number), lambda number=number: ended.append(number))  # type: ignore[misc]
            await until(lambda number=number: len(brokers.asked) == number + 1)  # type: ignore[misc]
        for number in (20, 21, 22):
            sender.send(ending(A, producer_id=number), lambda number=number: ended.append(number))  # type: ignore[misc]
        brokers.release(1)
        await until(lambda: len(ended) == marker_sender.SLOTS + 3)
        assert [producer_id for producer_id, *_ in brokers.asked[marker_sender.SLOTS][1]] == [20, 21, 22]

    checked(check)
