"""What brokers say to each other is taken where only brokers can speak, and every listener is told of itself alone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.broker.entity import build
from holdfast.client.connection import BrokerConnection
from holdfast.model.config import read_properties
from holdfast.model.errors import NetworkError
from holdfast.protocol import interbroker
from holdfast.protocol.apis import ApiKey, request_type
from holdfast.records.batch import iter_headers
from holdfast.testing import Cluster, free_port, wait_for
from holdfast.testing.view import ask as ask_metadata
from tests.chaos.brokers import Brokers
from tests.chaos.network import CLIENTS
from tests.system.test_returning_brokers import create, produce

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("brokers of its own")]

TIMEOUT_S = 120.0
HIGHEST_EPOCH = 2**31 - 1


def say(address: tuple[str, int], request: Any) -> Any:
    """The answer; None when the connection was closed instead."""

    async def run() -> Any:
        connection = BrokerConnection(*address, "stranger")
        await connection.open(TIMEOUT_S)
        try:
            return await connection.request(request, timeout_s=TIMEOUT_S)
        except NetworkError:
            return None
        finally:
            connection.close()

    return asyncio.run(run())


def usurped(broker_epoch: int = 2**62) -> Any:
    """An empty order of a controller that is later than all others: after it every order of the real one is stale."""
    return build(
        interbroker.LeaderAndIsrRequest,
        {
            "controller_id": 9, "controller_epoch": HIGHEST_EPOCH, "broker_epoch": broker_epoch, "topic_states": [],
            "live_leaders": [],
        },
    )  # fmt: skip


def test_forged_orders_by_the_listener_of_clients_change_nothing(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    """They stopped a cluster for good: no topic that was created later had a leader."""
    cluster = own_cluster()
    for address in cluster.addresses():
        assert say(address, usurped()) is None
    create(cluster, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    assert len(produce(cluster, topic, 3, 10)) == 30
    assert {p.leader for p in cluster.describe([topic]).partitions.values()} == {1, 2, 3}
    for broker in (1, 2, 3):
        log = (cluster.data_dir / f"broker-{broker}.log").read_text()
        assert "API key 4 is not taken on listener PLAINTEXT" in log


def follower_fetch(topic: str, replica: int, offset: int, version: int) -> Any:
    """ "I have all before ``offset``", in a follower's name."""
    partition = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": offset, "log_start_offset": 0,
        "partition_max_bytes": 1 << 20,
    }  # fmt: skip
    values = {
        "replica_id": replica, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_id": 0,
        "session_epoch": -1, "topics": [{"topic": topic, "partitions": [partition]}], "forgotten_topics_data": [],
    }  # fmt: skip
    return build(request_type(ApiKey.FETCH, version), values)


def test_forged_fetches_by_the_listener_of_clients_acknowledge_nothing(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    """One disk has the record, both followers are stopped; nobody but they may say that they have it."""
    cluster = own_cluster(
        settings={"min.insync.replicas": "2", "replica.lag.time.max.ms": "120000", "broker.session.timeout.ms": "60000"}
    )
    controller = cluster.describe([]).controller_id
    assert controller is not None
    leader = controller  # it lives on, and nobody is elected meanwhile
    followers = [broker for broker in (1, 2, 3) if broker != leader]
    create(cluster, topic, [[leader, *followers]])
    assert produce(cluster, topic, 1, 2) == [0, 1]
    address = cluster.addresses()[leader - 1]
    pids = cluster.pids()
    settings = {"bootstrap.servers": "{}:{}".format(*address), "acks": "all", "log_level": 0}
    reports: list[Any] = []
    producer = confluent_kafka.Producer(settings)
    producer.list_topics(topic, timeout=TIMEOUT_S)
    for broker in followers:
        os.kill(pids[broker], signal.SIGSTOP)
    try:
        producer.produce(topic, b"on one disk", b"k", 0, on_delivery=lambda error, message: reports.append(error))
        producer.poll(0)
        wait_for(
            lambda: end_of_log(cluster, leader, topic) == 3, "the record on the leader's disk", timeout_s=TIMEOUT_S
        )
        for version in (11, 4):
            for follower in followers:
                assert say(address, follower_fetch(topic, follower, 3, version)) is None
        assert producer.flush(2) == 1
        assert reports == []
    finally:
        for broker in followers:
            os.kill(pids[broker], signal.SIGCONT)
    assert producer.flush(TIMEOUT_S) == 0
    assert reports == [None]


def end_of_log(cluster: Cluster, broker: int, topic: str) -> int:
    """Where the replica's log ends, by its segment."""
    data = (cluster.folder_of(broker, topic, 0) / f"{0:020}.log").read_bytes()
    return max((header.next_offset for _, header in iter_headers(data)), default=0)


def test_clients_are_never_told_the_listener_of_brokers(cluster: Cluster) -> None:
    between = cluster.addresses_of_brokers()
    assert len({*between, *cluster.addresses()}) == 6
    for address in cluster.addresses():
        assert sorted(ask_metadata(*address, []).brokers.values()) == sorted(cluster.addresses())
    for address in between:
        assert sorted(ask_metadata(*address, []).brokers.values()) == sorted(between)
    assert not any(str(port) in cluster.bootstrap for _, port in between)


def test_a_data_directory_of_one_listener_is_taken_over_with_its_records(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster()
    create(cluster, topic, [[1, 2, 3]])
    assert produce(cluster, topic, 1, 5) == [0, 1, 2, 3, 4]
    cluster.stop()
    for path in cluster.data_dir.glob("broker-*.properties"):
        kept = {
            key: value.partition(",INTERNAL")[0]
            for key, value in read_properties(path.read_text()).items()
            if "listener." not in key
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in kept.items()))
    cluster.start()
    cluster.wait_in_sync([topic])
    assert produce(cluster, topic, 1, 1) == [5]
    assert len({*cluster.addresses_of_brokers(), *cluster.addresses()}) == 6


class Loopback:
    """Two neighbouring ports for each broker."""

    description = "loopback"

    def __init__(self, brokers: int) -> None:
        self._first = free_port(2 * brokers)

    def listener(self, broker: int, which: int = CLIENTS) -> tuple[str, int]:
        return "127.0.0.1", self._first + 2 * (broker - 1) + which

    advertised = listener

    def inside(self, broker: int) -> AbstractContextManager[None]:
        return nullcontext()

    def started(self, broker: int, pid: int) -> None: ...

    def cut(self, sender: int | None, receiver: int | None) -> None: ...

    def heal(self, sender: int | None, receiver: int | None) -> None: ...

    def close(self) -> None: ...


class Load:
    """A producer that writes without a pause, until the end of the block; every record must be acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0}
        self._topic = topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.offsets: list[int] = []
        self.errors: list[Any] = []

    def _report(self, error: Any, message: Any) -> None:
        if error is None:
            self.offsets.append(message.offset())
        else:
            self.errors.append(error)

    def _run(self) -> None:
        producer = confluent_kafka.Producer(self._settings)
        while not self._end.is_set():
            producer.produce(self._topic, b"v", b"k", 0, on_delivery=self._report)
            producer.poll(0.002)
        assert producer.flush(TIMEOUT_S) == 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(2 * TIMEOUT_S)

    def goes_on(self) -> None:
        """A hundred more are acknowledged."""
        wanted = len(self.offsets) + 100
        wait_for(lambda: len(self.offsets) >= wanted or self.errors, "more acknowledgements", timeout_s=TIMEOUT_S)


def test_brokers_get_a_listener_of_their_own_one_after_the_other_under_load(tmp_path: Path, topic: str) -> None:
    """The second bounce of an upgrade, as the first one only brings the code: at no time is there a broker that others
    do not reach, since each says itself where they do."""
    network = Loopback(3)
    settings = {"offsets.topic.replication.factor": "3", "min.insync.replicas": "2"}
    brokers = Brokers(tmp_path, network, count=3, settings=settings)
    after = {broker: (tmp_path / f"broker-{broker}.properties").read_text() for broker in brokers.ids}
    for broker in brokers.ids:
        before = {
            key: value.partition(",INTERNAL")[0]
            for key, value in read_properties(after[broker]).items()
            if "listener." not in key
        }
        (tmp_path / f"broker-{broker}.properties").write_text("".join(f"{k}={v}\n" for k, v in before.items()))
    try:
        for broker in brokers.ids:
            brokers.start(broker)
        wait_for(lambda: all_see(brokers, 3), "all brokers", timeout_s=TIMEOUT_S)
        assert say(network.listener(1), usurped(broker_epoch=0)) is not None, "today's only listener takes both"
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
        new = NewTopic(topic, 1, replica_assignment=[[1, 2, 3]])
        admin.create_topics([new])[topic].result(TIMEOUT_S)
        with Load(brokers.bootstrap, topic) as load:
            for broker in brokers.ids:
                load.goes_on()
                brokers.terminate(broker)
                wait_for(lambda b=broker: not brokers.runs(b), "its end", timeout_s=TIMEOUT_S)  # type: ignore[misc]
                (tmp_path / f"broker-{broker}.properties").write_text(after[broker])
                brokers.start(broker)
                wait_for(lambda: all_see(brokers, 3) and in_sync(brokers, topic), "it is back", timeout_s=TIMEOUT_S)
            load.goes_on()
        assert load.errors == []
        assert len(set(load.offsets)) == len(load.offsets), "each has a place of its own"
        for broker in brokers.ids:
            assert say(network.listener(broker), usurped()) is None
            view = ask_metadata(*network.listener(broker), [])
            assert sorted(view.brokers.values()) == [network.listener(b) for b in brokers.ids]
        assert "clients use PLAINTEXT too" in brokers.log(1).read_text()
        assert brokers.stop_all() == []
    finally:
        brokers.kill_all()


def all_see(brokers: Brokers, count: int) -> bool:
    views = [brokers.view(broker, []) for broker in brokers.ids]
    return all(view is not None and len(view.brokers) == count for view in views)


def in_sync(brokers: Brokers, topic: str) -> bool:
    views = [brokers.view(broker, [topic]) for broker in brokers.ids]
    return all(view is not None and view.partitions and not view.under_replicated for view in views)


def test_a_broker_does_not_take_brokers_from_other_machines_unless_it_is_told_to(tmp_path: Path) -> None:
    port = free_port()
    path = tmp_path / "broker.properties"
    path.write_text(
        f"node.id=1\nlisteners=PLAINTEXT://0.0.0.0:{port}\nadvertised.listeners=PLAINTEXT://127.0.0.1:{port}\n"
        f"log.dirs={tmp_path}/data\n"
    )
    command = [sys.executable, "-m", "holdfast.cli.main", "broker", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    assert "inter.broker.listener.name is not set, and PLAINTEXT://0.0.0.0:" in done.stderr
    assert not (tmp_path / "data").exists()
