"""Transactions as Java and franz-go have them: the leader adds the partition, every end raises the epoch (KIP-890)."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import kio.schema.produce.v12.request as produce
import pytest
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32

from holdfast.records.record import Record, encode_batch
from holdfast.testing import Cluster, wait_for
from tests.system.on_disks import TIMEOUT_S, ask, create
from tests.system.test_transactions import read

pytestmark = pytest.mark.system
NONE, INVALID_EPOCH, INVALID_STATE, CONCURRENT, FENCED = 0, 47, 48, 51, 90
Producer = tuple[int, int]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers, one partition of ``__transaction_state``."""
    with Cluster(
        brokers=3, settings={"transaction.state.log.num.partitions": "1", "log.retention.ms": "-1"}
    ) as running:
        yield running


class Client:
    """What such a client asks, one request after another; 51 is asked again, as it would."""

    def __init__(self, cluster: Cluster, name: str, topic: str) -> None:
        self.cluster, self.name, self.topic = cluster, name, topic
        self.coordinator = 0
        self.sequence: dict[Producer, int] = {}
        wait_for(self._found, "a coordinator", timeout_s=TIMEOUT_S)

    def _found(self) -> bool:
        answer = ask(
            self.cluster, 1, "find_coordinator", 4, "FindCoordinator", key_type=i8(1), coordinator_keys=(self.name,)
        )
        self.coordinator = int(answer.coordinators[0].node_id)
        return self.coordinator > 0

    def _until_settled(self, once: Any) -> Any:
        kept: list[Any] = []

        def settled() -> bool:
            kept.append(once())
            return int(kept[-1].error_code) not in (CONCURRENT, 14, 16)

        wait_for(settled, "the transaction before it to be over", timeout_s=TIMEOUT_S)
        return kept[-1]

    def begin(self) -> Producer:
        answer = self._until_settled(
            lambda: ask(
                self.cluster, self.coordinator, "init_producer_id", 5, "InitProducerId",
                transactional_id=TransactionalId(self.name), transaction_timeout=datetime.timedelta(seconds=30),
                producer_id=ProducerId(-1), producer_epoch=i16(-1),
            )
        )  # fmt: skip
        assert int(answer.error_code) == NONE
        return int(answer.producer_id), int(answer.producer_epoch)

    def write(self, producer: Producer, value: str) -> int:
        sequence = self.sequence.get(producer, 0)
        batch = encode_batch(
            [Record(0, 1_700_000_000_000, None, value.encode())], producer_id=producer[0], producer_epoch=producer[1],
            base_sequence=sequence, transactional=True,
        )  # fmt: skip
        data = produce.PartitionProduceData(index=i32(0), records=bytes(batch))  # type: ignore[arg-type]
        topic = produce.TopicProduceData(name=TopicName(self.topic), partition_data=(data,))
        answer = ask(
            self.cluster, 1, "produce", 12, "Produce", transactional_id=TransactionalId(self.name), acks=i16(-1),
            timeout=datetime.timedelta(seconds=5), topic_data=(topic,),
        )  # fmt: skip
        code = int(answer.responses[0].partition_responses[0].error_code)
        self.sequence[producer] = sequence + (code == NONE)
        return code

    def end(self, producer: Producer, *, commit: bool) -> tuple[int, Producer]:
        answer = self._until_settled(
            lambda: ask(
                self.cluster, self.coordinator, "end_txn", 5, "EndTxn", transactional_id=TransactionalId(self.name),
                producer_id=ProducerId(producer[0]), producer_epoch=i16(producer[1]), committed=commit,
            )
        )  # fmt: skip
        return int(answer.error_code), (int(answer.producer_id), int(answer.producer_epoch))


def test_every_end_raises_the_epoch_and_a_retry_is_one_behind(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, [[1, 2, 3]])
    client = Client(cluster, f"{topic}-tx", topic)
    first = client.begin()
    assert client.write(first, "kept") == NONE
    error, second = client.end(first, commit=True)
    assert (error, second) == (NONE, (first[0], first[1] + 1))
    assert client.end(first, commit=True) == (NONE, second)
    assert client.end(first, commit=False) == (INVALID_STATE, (-1, -1))
    assert client.write(first, "late") == INVALID_EPOCH
    assert client.write(second, "lost") == NONE
    assert client.end(first, commit=True) == (FENCED, (-1, -1))
    error, third = client.end(second, commit=False)
    assert (error, third) == (NONE, (first[0], first[1] + 2))
    assert client.end(third, commit=True) == (INVALID_STATE, (-1, -1))
    assert client.end(third, commit=False) == (NONE, (first[0], first[1] + 3))
    assert read(cluster, topic, 1, 1) == ["kept"]


def test_a_new_instance_aborts_what_is_open_and_raises_the_epoch_twice_in_all(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, [[1, 2, 3]])
    client = Client(cluster, f"{topic}-tx", topic)
    old = client.begin()
    assert client.write(old, "lost") == NONE
    new = client.begin()
    assert new == (old[0], old[1] + 2)
    assert client.write(old, "late") == INVALID_EPOCH
    assert client.end(old, commit=True)[0] == FENCED
    assert client.write(new, "kept") == NONE
    assert client.end(new, commit=True)[0] == NONE
    assert read(cluster, topic, 1, 1) == ["kept"]
