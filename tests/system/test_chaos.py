"""Brokers are killed, stopped and restarted in an order drawn from a seed, under load that a ledger follows.

The seed is printed; HOLDFAST_CHAOS_SEED=n draws the same order again. What is checked is what must be so in any
order: nothing acked is lost, nothing is written twice, replicas are equal byte for byte, directories are those of
the metadata, and no broker met an error that it did not expect.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.testing import Cluster, wait_for
from holdfast.testing.view import ask

pytestmark = pytest.mark.system

PARTITIONS = 4
TIMEOUT_S = 60
CLIENT = {
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "log_level": 0,
}
SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500", "log.segment.bytes": "1048576"}


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get("HOLDFAST_CHAOS_SEED") or random.randrange(1 << 30))
    print(f"HOLDFAST_CHAOS_SEED={seed}")
    return random.Random(seed)


class Ledger(threading.Thread):
    """Writes numbered records to every partition, idempotently, and remembers where each acked one went."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.topic = topic
        self.acked: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        """Per partition: offset -> number."""
        self.failed: list[str] = []
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, **CLIENT}
        self._producer = confluent_kafka.Producer(settings)
        self._over = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._over.is_set():
            for partition in range(PARTITIONS):
                try:
                    value = b"%d:%0100d" % (number, number)
                    self._producer.produce(self.topic, value, partition=partition, on_delivery=self._report)
                except BufferError:
                    self._producer.poll(0.1)
                    break
            else:
                number += 1
            self._producer.poll(0.004)

    def _report(self, error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acked[message.partition()][message.offset()] = int(message.value().split(b":")[0])

    def wait_for_acks(self, what: str) -> None:
        """In every partition, of records that were sent from now on or a moment before."""
        before = [len(acked) for acked in self.acked]
        wait_for(
            lambda: all(len(a) > b + 20 for a, b in zip(self.acked, before, strict=True)),
            f"acks in every partition {what}",
            timeout_s=TIMEOUT_S,
        )

    def finish(self) -> None:
        self._over.set()
        self.join(TIMEOUT_S)
        assert self._producer.flush(TIMEOUT_S) == 0
        assert self.failed == []


class Faults:
    """What can happen to a cluster. Each returns when it is over and every broker runs again."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self.cluster = cluster
        self._rng = rng

    def controller(self) -> int:
        controller = self.cluster.describe([]).controller_id
        assert controller is not None
        return controller

    def other(self) -> int:
        return self._rng.choice(sorted({1, 2, 3} - {self.controller()}))

    def send(self, broker: int, number: signal.Signals) -> None:
        os.kill(self.cluster.pids()[broker], number)

    def end(self, *brokers: int, by: signal.Signals) -> None:
        """Signal them all, then wait until they are gone."""
        for broker in brokers:
            self.send(broker, by)
        gone = set(brokers)
        wait_for(lambda: not gone & self.cluster.live().keys(), f"the end of {brokers} by {by.name}", timeout_s=20)
        self.cluster.revive()

    def kill_controller(self) -> None:
        self.end(self.controller(), by=signal.SIGKILL)

    def kill_other(self) -> None:
        self.end(self.other(), by=signal.SIGKILL)

    def kill_two(self) -> None:
        self.end(*self._rng.sample((1, 2, 3), 2), by=signal.SIGKILL)

    def kill_all(self) -> None:
        self.end(1, 2, 3, by=signal.SIGKILL)

    def restart_controller(self) -> None:
        self.end(self.controller(), by=signal.SIGTERM)

    def restart_other(self) -> None:
        self.end(self.other(), by=signal.SIGTERM)

    def stop_other(self) -> None:
        """A leader that is silent for longer than its session, and then goes on as if nothing had been."""
        controller, broker = self.controller(), self.other()
        self.send(broker, signal.SIGSTOP)
        try:
            wait_for(
                lambda: broker not in self.cluster.describe([], broker=controller).brokers,
                f"broker {broker} to be missed",
                timeout_s=20,
            )
        finally:
            self.send(broker, signal.SIGCONT)

    def stop_controller(self) -> None:
        """Nobody else can be the controller while its process lives; the others wait for it."""
        controller, other = self.controller(), self.other()
        log = self.cluster.data_dir / f"broker-{other}.log"
        before = log.stat().st_size
        self.send(controller, signal.SIGSTOP)
        try:
            wait_for(
                lambda: "did not answer" in log.read_text(errors="replace")[before:],
                f"broker {other} to miss the controller",
                timeout_s=20,
            )
        finally:
            self.send(controller, signal.SIGCONT)


FAULTS: list[Callable[[Faults], None]] = [
    Faults.kill_controller,
    Faults.kill_other,
    Faults.kill_two,
    Faults.kill_all,
    Faults.restart_controller,
    Faults.restart_other,
    Faults.stop_other,
    Faults.stop_controller,
]


def assert_no_surprises(cluster: Cluster) -> None:
    """No broker met what it does not expect."""
    for broker in (1, 2, 3):
        text = (cluster.data_dir / f"broker-{broker}.log").read_text(errors="replace")
        found = re.search(r"(?m)^.*(Traceback|unexpected error|never retrieved| ERROR | CRITICAL )(?s:.{0,2000})", text)
        assert found is None, f"broker {broker}: {found and found[0]}"


def segments(cluster: Cluster, broker: int, name: str) -> bytes:
    return b"".join(f.read_bytes() for f in sorted(cluster.data_dir.glob(f"broker-{broker}/log-dir-*/{name}/*.log")))


def assert_kept(cluster: Cluster, ledger: Ledger) -> None:
    """Every acked record is where its ack said; every number is there once, in order; replicas are equal."""
    reading = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**reading, **CLIENT})
    for partition, acked in enumerate(ledger.acked):
        place = confluent_kafka.TopicPartition(ledger.topic, partition, 0)
        end = consumer.get_watermark_offsets(place, TIMEOUT_S)[1]
        consumer.assign([place])
        seen: list[int] = []
        while len(seen) < end:
            messages = consumer.consume(10_000, 1)
            for message in messages:
                assert message.error() is None
                assert message.offset() == len(seen), "offsets have gaps"
                seen.append(int(message.value().split(b":")[0]))
        lost = {offset: number for offset, number in acked.items() if offset >= end or seen[offset] != number}
        assert lost == {}, f"partition {partition}: acked and not there"
        assert seen == list(range(len(seen))), f"partition {partition}: not each number once, in order"

        def equal(name: str = f"{ledger.topic}-{partition}") -> bool:
            return len({segments(cluster, broker, name) for broker in (1, 2, 3)}) == 1

        wait_for(equal, f"equal replicas of partition {partition}", timeout_s=TIMEOUT_S)
    consumer.close()


def test_R_22_whatever_happens_to_brokers_nothing_acked_is_lost_or_written_twice(
    own_cluster: Callable[..., Cluster], topic: str, rng: random.Random
) -> None:
    cluster = own_cluster(settings=SETTINGS)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result(TIMEOUT_S)
    faults, ledger = Faults(cluster, rng), Ledger(cluster.bootstrap, topic)
    ledger.start()
    try:
        ledger.wait_for_acks("at first")
        for fault in rng.sample(FAULTS, len(FAULTS)):
            print(f"{time.strftime('%X')} {fault.__name__}")
            fault(faults)
            ledger.wait_for_acks(f"after {fault.__name__}")
            cluster.wait_in_sync([topic])
    finally:
        ledger.finish()
    cluster.wait_in_sync([topic])
    assert_kept(cluster, ledger)
    cluster.stop()
    assert_no_surprises(cluster)


def test_H_24_topics_come_and_go_while_brokers_do(
    own_cluster: Callable[..., Cluster], topic: str, rng: random.Random
) -> None:
    cluster = own_cluster(settings=SETTINGS)
    names = [f"{topic}-{i}" for i in range(3)]
    faults = Faults(cluster, rng)
    quick = [Faults.kill_controller, Faults.kill_other, Faults.kill_all, Faults.restart_other]
    for round_number, fault in enumerate(rng.sample(quick, len(quick))):
        print(f"{time.strftime('%X')} {fault.__name__}")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **CLIENT})
        for name in names:
            admin.create_topics([NewTopic(name, rng.choice((1, 3)), 3)])[name].result(TIMEOUT_S)
        # One is made again while a broker is away, one stays deleted.
        away = faults.other()
        cluster.kill(away)
        for name in names[:2]:
            admin.delete_topics([name])[name].result(TIMEOUT_S)
        admin.create_topics([NewTopic(names[0], 2, 2)])[names[0]].result(TIMEOUT_S)
        cluster.revive()
        fault(faults)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **CLIENT})
        cluster.wait_in_sync()
        assert cluster.describe().topics == {names[0], names[2]}, f"round {round_number}"
        assert_directories_are_those_of_the_metadata(cluster)
        for name in (names[0], names[2]):
            admin.delete_topics([name])[name].result(TIMEOUT_S)
        wait_for(lambda: not any(topics_of(cluster).values()), "no topics", timeout_s=TIMEOUT_S)
    assert_directories_are_those_of_the_metadata(cluster)
    cluster.stop()
    assert_no_surprises(cluster)


def topics_of(cluster: Cluster) -> dict[int, set[str]]:
    """What each broker knows."""
    return {broker: cluster.describe(broker=broker).topics for broker in (1, 2, 3)}


def assert_directories_are_those_of_the_metadata(cluster: Cluster) -> None:
    def same() -> bool:
        partitions = cluster.describe().partitions
        for broker in (1, 2, 3):
            wanted = {f"{t}-{p}" for (t, p), seen in partitions.items() if broker in seen.replicas}
            there = {f.name for f in cluster.data_dir.glob(f"broker-{broker}/log-dir-*/*") if f.is_dir()}
            if wanted != {name for name in there if not name.endswith("-delete")}:
                return False
        return True

    wait_for(same, "directories that are those of the metadata", timeout_s=TIMEOUT_S)


def test_a_broker_that_starts_answers_nothing_before_it_knows_everything(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    """A client that is told of no topics takes them for deleted."""
    cluster = own_cluster()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(TIMEOUT_S)
    for broker in (1, 2, 3):
        cluster.kill(broker)
        os.kill(cluster.pid, signal.SIGUSR1)
        host, port = cluster.addresses()[broker - 1]

        def first_answer(host: str = host, port: int = port) -> set[str] | None:
            try:
                return ask(host, port, None, timeout_s=TIMEOUT_S).topics
            except OSError:
                return None

        assert wait_for(first_answer, "an answer", timeout_s=TIMEOUT_S, interval_s=0.001) == {topic}
        cluster.wait_in_sync()


def test_H_21_a_broker_that_cannot_report_its_dead_disk_ends(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster(settings={"log.dir.probe.interval.ms": "100", "log.dir.failure.timeout.ms": "1500"})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 6, 3)])[topic].result(TIMEOUT_S)
    controller = cluster.describe([]).controller_id
    assert controller is not None
    told, silent = sorted({1, 2, 3} - {controller})

    def break_disk(broker: int) -> None:
        disk = cluster.data_dir / f"broker-{broker}" / "log-dir-2"
        disk.rename(disk.with_name("gone"))
        disk.write_text("not a directory")

    break_disk(told)
    offline = cluster.data_dir / f"broker-{told}.log"
    wait_for(
        lambda: any(told in seen.offline for seen in cluster.describe([topic], broker=controller).partitions.values()),
        "the dead disk in the metadata",
        timeout_s=TIMEOUT_S,
    )
    os.kill(cluster.pids()[controller], signal.SIGSTOP)
    try:
        break_disk(silent)
        wait_for(lambda: silent not in cluster.live(), f"the end of broker {silent}", timeout_s=TIMEOUT_S)
    finally:
        os.kill(cluster.pids()[controller], signal.SIGCONT)
    # Whoever could tell the controller goes on, with the disk that it has left.
    assert told in cluster.live()
    assert "could not be told" not in offline.read_text()
    assert "could not be told" in (cluster.data_dir / f"broker-{silent}.log").read_text()
