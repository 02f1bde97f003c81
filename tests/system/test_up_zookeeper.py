"""``holdfast up --store``: a cluster whose metadata is in a real ZooKeeper server, its own or one that runs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.testing import Cluster, wait_for
from holdfast.testing.processes import lives
from holdfast.testing.zookeeper import ZooKeeperServer
from tests.zookeeper.test_server import client

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

QUICK = {"zookeeper.session.timeout.ms": "4000"}


def create(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, 3, 3)], request_timeout=30).values():
        future.result(30)


def write(cluster: Cluster, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    failed = []
    for value in values:
        producer.produce(topic, str(value), on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0 and not failed


def read(cluster: Cluster, topic: str, count: int) -> list[int]:
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[int] = []

    def more() -> bool:
        for message in consumer.consume(100, 0.2):
            assert message.error() is None
            found.append(int(message.value()))
        return len(found) >= count

    try:
        wait_for(more, f"{count} records of {topic}", timeout_s=60)
    finally:
        consumer.close()
    return sorted(found)


def server_of(cluster: Cluster) -> int:
    return int((cluster.data_dir / "zookeeper" / "server.pid").read_text())


def test_a_cluster_with_a_server_of_its_own(tmp_path: Path) -> None:
    """Its brokers are in /brokers/ids, a stop ends all of it, and a start has everything again. Without the server
    what is served goes on; it is asked for by SIGUSR1."""
    cluster = Cluster(data_dir=tmp_path, store="zookeeper", settings=QUICK, ready_timeout_s=120)
    with cluster:
        create(cluster, "kept")
        write(cluster, "kept", range(100))
        server = server_of(cluster)
        with client(f"127.0.0.1:{cluster.port + 400}") as zk:
            assert sorted(zk.get_children("/brokers/ids")) == ["1", "2", "3"]
            assert zk.get_children("/brokers/topics") == ["kept"]
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: "the ZooKeeper server has ended" in cluster.log_tail(), "the news")
        write(cluster, "kept", range(100, 200))
        os.kill(cluster.pid, signal.SIGUSR1)
        wait_for(lambda: server_of(cluster) != server, "the server", timeout_s=60)
        wait_for(lambda: cluster.describe().controller_id is not None, "a controller", timeout_s=60)
        create(cluster, "later")
        cluster.stop()
        assert not lives(server_of(cluster))
        cluster.start()
        assert cluster.describe().topics >= {"kept", "later"}
        assert read(cluster, "kept", 200) == list(range(200))


def test_when_up_is_killed_all_of_it_ends(tmp_path: Path) -> None:
    """The brokers stop by themselves, and have the server for as long as that takes."""
    with Cluster(data_dir=tmp_path, store="zookeeper", settings=QUICK, ready_timeout_s=120) as cluster:
        create(cluster, "kept")
        write(cluster, "kept", range(100))
        pids = [*cluster.pids().values()]
        os.kill(cluster.pid, signal.SIGKILL)
        wait_for(lambda: not any(map(lives, pids)), "the end of the brokers", timeout_s=30)
        wait_for(lambda: not lives(server_of(cluster)), "the end of the server", timeout_s=30)
        cluster.start()
        assert read(cluster, "kept", 100) == list(range(100))


def test_a_cluster_on_an_ensemble_that_runs(tmp_path: Path) -> None:
    """Below its chroot; nothing is started or ended that is not ours."""
    with ZooKeeperServer(tmp_path / "zk") as server:
        store = f"{server.connect}/holdfast"
        with Cluster(data_dir=tmp_path / "data", store=store, settings=QUICK, ready_timeout_s=120) as cluster:
            create(cluster, "there")
            with client(server.connect) as zk:
                assert zk.get_children("/holdfast/brokers/topics") == ["there"]
            assert not (tmp_path / "data" / "zookeeper").exists()
        assert server.mode == "standalone"
