"""A broker dies while records are written with acks=all: a ledger tells what must be there afterwards,
and where.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.testing import Cluster, ClusterView, wait_for

pytestmark = [pytest.mark.system, pytest.mark.either_store]

PARTITIONS = 6
TIMEOUT_S = 60
EAGER = {
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "log_level": 0,
}


class Ledger(threading.Thread):
    """Writes numbered records to every partition until told to stop and remembers where each acked one
    went.
    """

    def __init__(self, bootstrap: str, topic: str, **settings: object) -> None:
        super().__init__(daemon=True)
        self.topic = topic
        self.acked: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """Partition -> (offset, number), in order of the acks."""
        self.failed: list[str] = []
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2, **EAGER, **settings}
        )
        self._over = threading.Event()

    @property
    def count(self) -> int:
        return sum(map(len, self.acked.values()))

    def run(self) -> None:
        number = 0
        while not self._over.is_set():
            for partition in range(PARTITIONS):
                self._producer.produce(
                    self.topic, b"%d" % number, partition=partition, on_delivery=self._reporter(partition, number)
                )
            number += 1
            self._producer.poll(0.002)

    def _reporter(self, partition: int, number: int) -> Callable[[object, object], None]:
        def report(error: object, message: object) -> None:
            if error is not None:
                self.failed.append(str(error))
            else:
                self.acked[partition].append((message.offset(), number))  # type: ignore[attr-defined]

        return report

    def finish(self) -> None:
        self._over.set()
        self.join(TIMEOUT_S)
        assert self._producer.flush(TIMEOUT_S) == 0
        assert self.failed == []


@contextmanager
def ledger(cluster: Cluster, topic: str, **settings: object) -> Iterator[Ledger]:
    """A ledger that has some acks already; it is finished at the end."""
    writer = Ledger(cluster.bootstrap, topic, **settings)
    writer.start()
    try:
        wait_for(lambda: writer.count > 1000, "the first 1000 acks", timeout_s=TIMEOUT_S)
        yield writer
    finally:
        writer.finish()


def create(cluster: Cluster, topic: str) -> ClusterView:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result(TIMEOUT_S)
    return cluster.wait_in_sync([topic])


def read_all(cluster: Cluster, topic: str) -> dict[int, list[tuple[int, int]]]:
    """Partition -> (offset, number) of every record, in offset order."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**settings, "log_level": 0})
    try:
        places = [confluent_kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)]
        ends = {place.partition: consumer.get_watermark_offsets(place, TIMEOUT_S)[1] for place in places}
        consumer.assign(places)
        seen: dict[int, list[tuple[int, int]]] = defaultdict(list)
        left = sum(ends.values())
        while left:
            messages = consumer.consume(min(left, 10_000), TIMEOUT_S)
            assert messages, f"{left} records did not come"
            left -= len(messages)
            for message in messages:
                assert message.error() is None
                seen[message.partition()].append((message.offset(), int(message.value())))
        return seen
    finally:
        consumer.close()


def assert_kept(cluster: Cluster, writer: Ledger, *, exactly_once: bool) -> None:
    """Every acked record is where its ack said, and numbers only grow."""
    seen = read_all(cluster, writer.topic)
    for partition in range(PARTITIONS):
        there = dict(seen[partition])
        missing = [entry for entry in writer.acked[partition] if there.get(entry[0]) != entry[1]]
        assert missing == [], f"partition {partition}: acked records that are not at their offset"
        numbers = [number for _, number in seen[partition]]
        assert numbers == sorted(numbers), f"partition {partition}: out of order"
        if exactly_once:
            assert len(set(numbers)) == len(numbers), f"partition {partition}: written twice"


def victim(cluster: Cluster, which: str) -> int:
    view = cluster.describe()
    assert view.controller_id is not None
    others = sorted(set(view.brokers) - {view.controller_id})
    return {"controller": view.controller_id, "first other": others[0], "last other": others[-1]}[which]


@pytest.mark.parametrize("which", ["controller", "first other", "last other"])
def test_kill_9_of_a_broker_loses_no_acked_record(own_cluster: Callable[..., Cluster], topic: str, which: str) -> None:
    cluster = own_cluster()
    create(cluster, topic)
    killed = victim(cluster, which)
    with ledger(cluster, topic, **{"enable.idempotence": True}) as writer:
        cluster.kill(killed)
        before = writer.count
        wait_for(lambda: writer.count > before + 5000, "acks after the kill", timeout_s=TIMEOUT_S)
        cluster.revive()
        assert killed in {b for p in cluster.wait_in_sync([topic]).partitions.values() for b in p.isr}
        before = writer.count
        wait_for(lambda: writer.count > before + 1000, "acks after the return", timeout_s=TIMEOUT_S)
    assert_kept(cluster, writer, exactly_once=True)


def test_R_22_every_broker_in_turn_dies_and_nothing_acked_is_lost(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster()
    create(cluster, topic)
    with ledger(cluster, topic, **{"enable.idempotence": True}) as writer:
        for broker in range(1, cluster.brokers + 1):
            cluster.kill(broker)
            before = writer.count
            wait_for(
                lambda count=before: writer.count > count + 1000,  # type: ignore[misc]
                f"acks without broker {broker}",
                timeout_s=TIMEOUT_S,
            )
            cluster.revive()
            cluster.wait_in_sync([topic])
    assert_kept(cluster, writer, exactly_once=True)


def test_R_17_one_of_two_replicas_is_enough(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster(brokers=2)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 2)])[topic].result(TIMEOUT_S)
    cluster.wait_in_sync([topic])
    with ledger(cluster, topic, **{"enable.idempotence": True}) as writer:
        cluster.kill(victim(cluster, "controller"))
        before = writer.count
        wait_for(lambda: writer.count > before + 1000, "acks with one replica", timeout_s=TIMEOUT_S)
    cluster.revive()
    cluster.wait_in_sync([topic])
    assert_kept(cluster, writer, exactly_once=True)


def test_another_broker_becomes_controller_and_serves(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster()
    first = victim(cluster, "controller")
    cluster.kill(first)
    survivors = sorted(cluster.live())

    def agreed() -> int | None:
        seen = {cluster.describe(broker=broker).controller_id for broker in survivors}
        return seen.pop() if len(seen) == 1 and first not in seen else None

    assert wait_for(agreed, "a new controller", timeout_s=TIMEOUT_S) in survivors
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 4, 2)])[topic].result(TIMEOUT_S)
    view = cluster.describe([topic], broker=survivors[0])
    assert {b for p in view.partitions.values() for b in p.replicas} == set(survivors)


def test_everything_is_there_after_kill_9_of_all(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster()
    create(cluster, topic)
    with ledger(cluster, topic) as writer:
        pass
    cluster.kill_all()
    cluster.start()
    cluster.wait_in_sync([topic])
    assert_kept(cluster, writer, exactly_once=False)
