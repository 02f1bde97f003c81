"""What brokers owe each other when some of them die: topics that stay deleted, answers only from who knows, and the
end of one that cannot say that its disk is dead.

What they owe to clients under any faults is the business of tests/chaos and test_chaos_run.py. Where an order is
drawn, its seed is printed; HOLDFAST_CHAOS_SEED=n draws the same order again.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable

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

    def kill_all(self) -> None:
        self.end(1, 2, 3, by=signal.SIGKILL)

    def restart_other(self) -> None:
        self.end(self.other(), by=signal.SIGTERM)


def assert_no_surprises(cluster: Cluster) -> None:
    """No broker met what it does not expect."""
    for broker in (1, 2, 3):
        text = (cluster.data_dir / f"broker-{broker}.log").read_text(errors="replace")
        found = re.search(r"(?m)^.*(Traceback|unexpected error|never retrieved| ERROR | CRITICAL )(?s:.{0,2000})", text)
        assert found is None, f"broker {broker}: {found and found[0]}"


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


NOTES = "metadata-reigns"
"""In each log directory: which copies of the metadata are good."""


def assert_directories_are_those_of_the_metadata(cluster: Cluster) -> None:
    def same() -> bool:
        partitions = cluster.describe().partitions
        for broker in (1, 2, 3):
            wanted = {f"{t}-{p}" for (t, p), seen in partitions.items() if broker in seen.replicas}
            there = {f.name for f in cluster.data_dir.glob(f"broker-{broker}/log-dir-*/*") if f.is_dir()}
            if wanted != {name for name in there if not name.endswith("-delete") and name != NOTES}:
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
