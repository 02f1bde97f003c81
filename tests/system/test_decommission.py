"""A broker and a directory are emptied and taken away, under load, while topics are made and the controller is killed
(KIP-1066, K1066-16; Kafka's testDecommissionBroker and testDecommissionLogDir)."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from types import TracebackType

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.testing import Cluster, wait_for
from tests.system.on_disks import QUIET, TIMEOUT_S, Load, bytes_of, create, on_disk, wait_equal
from tests.system.test_cordon import cli, held, path

pytestmark = pytest.mark.system


class NewTopics:
    """Somebody makes topics all the time, one after the other; a context manager. ``made`` are those that there are.

    An admin client of librdkafka that has lost the controller, and is connected to another broker, asks that one
    nothing (decision 0004): it is told to after each failure, as its users have to.
    """

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.made: list[str] = []
        self.refused: list[str] = []
        self._prefix = prefix
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> NewTopics:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.1):
            name = f"{self._prefix}-{len(self.made)}"
            try:
                self._admin.create_topics([NewTopic(name, 2, 2)], request_timeout=5)[name].result(TIMEOUT_S)
            except confluent_kafka.KafkaException as e:
                if e.args[0].code() != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                    self.refused.append(e.args[0].str())
                    self._look_for_the_controller()
                    continue  # the controller was killed: once more
            self.made.append(name)

    def _look_for_the_controller(self) -> None:
        try:
            self._admin.list_topics(timeout=TIMEOUT_S)
        except confluent_kafka.KafkaException as e:
            self.refused.append(e.args[0].str())

    def more(self, count: int = 5) -> None:
        """Waits for some more."""
        before = len(self.made)
        try:
            wait_for(lambda: len(self.made) >= before + count, f"{count} more topics", timeout_s=TIMEOUT_S)
        except TimeoutError as e:
            raise AssertionError(f"{len(self.made)} of {before + count} topics; refused: {self.refused[-5:]}") from e


def kill_controller(cluster: Cluster, spare: int) -> None:
    """kill -9, and a start, of the controller, or of another broker where ``spare`` is it."""
    controller = cluster.describe().controller_id
    assert controller is not None
    cluster.kill(controller if controller != spare else 1 + spare % cluster.brokers)
    wait_for(lambda: cluster.describe().controller_id is not None, "a controller", timeout_s=TIMEOUT_S)


def plan_without(cluster: Cluster, broker: int, others: list[int]) -> str:
    """A plan by which the broker has nothing any more."""
    entries = []
    for i, ((topic, partition), seen) in enumerate(sorted(cluster.describe().partitions.items())):
        if broker in seen.replicas:
            free = [b for b in others if b not in seen.replicas]
            replicas = [free[i % len(free)] if b == broker else b for b in seen.replicas]
            entries.append({"topic": topic, "partition": partition, "replicas": replicas})
    file = cluster.data_dir / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": entries}))
    return str(file)


def equal(cluster: Cluster, topic: str, brokers: list[int]) -> bool:
    """Whether all replicas are in sync, on these brokers, and have the same bytes."""
    view = cluster.describe([topic], broker=brokers[0])
    if view.under_replicated or set(view.brokers) != set(brokers):
        return False
    return all(
        len({bytes_of(cluster, broker, topic, partition) for broker in seen.replicas}) == 1
        for (_, partition), seen in view.partitions.items()
    )


def test_K1066_16_a_broker_is_decommissioned_under_load(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster(brokers=4, settings={"min.insync.replicas": "2"})
    create(cluster, topic, [[1, 2, 3], [2, 3, 4], [3, 4, 1], [4, 1, 2]])
    first = cluster.describe().controller_id
    leaving = 4 if first != 4 else 3
    others = [b for b in (1, 2, 3, 4) if b != leaving]
    with Load(cluster, topic, range(4)) as load, NewTopics(cluster, f"{topic}-new") as new:
        new.more()
        cli(cluster, "log-dirs", "cordon", "--broker", str(leaving), "--all")
        before = len(new.made) + 1  # one may be under way
        new.more()
        load.progress(20)
        kill_controller(cluster, leaving)
        new.more()
        cluster.revive()
        plan = plan_without(cluster, leaving, others)
        cli(cluster, "reassign", "execute", "--reassignment-json-file", plan)
        kill_controller(cluster, leaving)
        load.progress(20)
        cluster.revive()
        words = ("reassign", "verify", "--reassignment-json-file", plan)
        wait_for(
            lambda: "still in progress" not in cli(cluster, *words), "the reassignment", timeout_s=60, interval_s=0.5
        )
        load.progress(20)
        wait_for(lambda: not any(on_disk(cluster, leaving, n) for n in (1, 2)), "an empty broker", timeout_s=TIMEOUT_S)
        new.more()
        refused = cli(cluster, "cluster", "unregister", "--id", str(leaving), code=1)
        assert f"Broker ID {leaving} at " in refused
        assert "is alive: expected one that was stopped" in refused
        os.kill(cluster.pids()[leaving], signal.SIGTERM)
        wait_for(lambda: leaving not in cluster.live(), "it to stop", timeout_s=TIMEOUT_S)
        asked = f"{cluster.addresses()[others[0] - 1][0]}:{cluster.addresses()[others[0] - 1][1]}"
        said = cli(cluster, "cluster", "unregister", "--id", str(leaving), at=asked)
        assert said == f"Broker {leaving} is no longer registered.\n"
        new.more()
        load.progress(20)
        late = new.made[before:]
        assert len(late) >= 15
        for name in late:
            assert leaving not in {b for p in range(2) for b in cluster.describe([name]).partitions[name, p].replicas}
        again = cli(cluster, "cluster", "unregister", "--id", str(leaving), at=asked, code=1)
        assert f"Broker ID {leaving} is not currently registered" in again
    wait_for(lambda: equal(cluster, topic, others), "equal replicas on the brokers that stay", timeout_s=TIMEOUT_S)


def test_K1066_16_a_directory_is_decommissioned_under_load(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster(brokers=3, settings={"min.insync.replicas": "2"})
    create(cluster, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]])
    going, staying = path(cluster, 1, 1), path(cluster, 1, 2)
    with Load(cluster, topic, range(4)) as load, NewTopics(cluster, f"{topic}-new") as new:
        new.more()
        cli(cluster, "log-dirs", "cordon", "--broker", "1", going)
        before = len(new.made) + 1
        new.more()
        kill_controller(cluster, 1)
        new.more()
        cluster.revive()
        cluster.wait_in_sync()
        cli(cluster, "log-dirs", "move", "--broker", "1", "--from", going, "--to", staying)
        load.progress(20)
        wait_for(lambda: not on_disk(cluster, 1, 1), "an empty directory", timeout_s=TIMEOUT_S)
        new.more()
        late = new.made[before:]
        assert sum(held(cluster, name)[1, 2] for name in late) > 0
        assert not on_disk(cluster, 1, 1)
        cli(cluster, "log-dirs", "remove", "--broker", "1", going)
        assert set(cluster.describe_log_dirs(1)) == {staying}
        new.more()
        load.progress(20)
    for partition in range(4):
        wait_equal(cluster, topic, partition)
