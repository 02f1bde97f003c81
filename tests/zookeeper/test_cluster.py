"""Three brokers on a real ZooKeeper server: what they keep, and who is what, while some of them die."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import confluent_kafka
import pytest

from holdfast.client.connection import BrokerConnection
from holdfast.testing import wait_for
from tests.system.test_between_brokers import LATER, STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH, order
from tests.zookeeper.brokers import TIMEOUT_S, Brokers
from tests.zookeeper.cluster_nodes import ClusterNodes
from tests.zookeeper.late_requests import Creation, said_in
from tests.zookeeper.reigns import check_reigns
from tests.zookeeper.server import ZooKeeperServer
from tests.zookeeper.transaction_log import below, read

pytestmark = pytest.mark.system


@pytest.fixture
def run(tmp_path: Path, cluster_nodes: ClusterNodes) -> Iterator[Callable[..., Brokers]]:
    """Starts brokers, which end with the test."""
    made: list[Brokers] = []

    def start(**options: object) -> Brokers:
        made.append(Brokers(tmp_path, cluster_nodes, **options))  # type: ignore[arg-type]
        return made[-1].__enter__()

    yield start
    for brokers in made:
        brokers.__exit__(None, None, None)


def test_what_was_acknowledged_is_there_after_controller_and_leader_were_killed(
    run: Callable[..., Brokers], topic: str
) -> None:
    brokers = run()
    brokers.create(topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    brokers.produce(topic, 0, 200, 3)
    first = brokers.controller
    brokers.kill(first)
    second = brokers.wait_controller(first)
    brokers.produce(topic, 200, 200, 3)
    brokers.start(first)
    brokers.wait_in_sync([topic])
    leader = brokers.describe([topic]).partitions[topic, 0].leader
    assert leader is not None
    brokers.kill(leader)
    brokers.produce(topic, 400, 200, 3)
    brokers.start(leader)
    brokers.wait_in_sync([topic])
    for broker in brokers.ids:  # all at once
        brokers.kill(broker)
    brokers.start()
    brokers.wait_in_sync([topic])
    for partition in range(3):
        assert brokers.consume(topic, partition) == list(range(600))
    assert second != first


def test_H_08_a_controller_that_was_frozen_past_its_session_changes_nothing_when_it_thaws(
    run: Callable[..., Brokers], topic: str
) -> None:
    """It wakes with a dead broker to fence and a topic to make, in an epoch that is over."""
    brokers = run()
    brokers.create(topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    brokers.produce(topic, 0, 100, 3)
    old = brokers.controller
    epoch = int(brokers.nodes.json("/holdfast/metadata_log")["controller_epoch"])
    late = Creation(brokers.ports[old], f"{topic}-late")
    os.kill(brokers.pid(old), signal.SIGSTOP)
    late.ask()
    new = brokers.wait_controller(old)
    [other] = {*brokers.ids} - {old, new}
    brokers.kill(other)
    # The last one in sync leads everything, by the new controller's word.
    wait_for(
        lambda: all(p.leader == new for p in brokers.describe([topic], broker=new).partitions.values()), "its leaders"
    )
    wait_for(lambda: brokers.nodes.says("/holdfast/brokers/" + str(other), "fenced"), "the other one is fenced")
    before = {path: brokers.nodes.node(path) for path in states(topic)}
    os.kill(brokers.pid(old), signal.SIGCONT)
    # Of whichever it hears first: that its session is over, or an order of the other one.
    ends = (f"controller epoch {epoch} is over", f"controller epoch {epoch} ends")
    wait_for(lambda: any(text in brokers.log(old, 1 << 20) for text in ends), "the end of the old one")
    wait_for(lambda: old in brokers.describe([], broker=new).brokers, "the old one as a broker")
    log_node = brokers.nodes.json("/holdfast/metadata_log")
    assert log_node["controller_epoch"] == epoch + 1 and log_node["controller"] == new
    for path, node in before.items():  # what has changed since is that the old one is in sync again
        now = brokers.nodes.json(path)
        assert node is not None
        assert (now["leader"], now["controller_epoch"]) == (new, epoch + 1)
        assert now["leader_epoch"] == json.loads(node.data)["leader_epoch"]
    # What it was asked for the new one decides: its own decision was refused with the check of its epoch.
    assert late.answer() == 0
    made = UUID(bytes=base64.urlsafe_b64decode(brokers.nodes.says(f"/brokers/topics/{late.topic}", "topic_id") + "=="))
    assert late.topic_id == made
    log = below(brokers.nodes.chroot, read(brokers.nodes.server.folder / "data"))
    assert check_reigns(log, by_hand=frozenset({brokers.nodes.reader.session_id}))[-2:] == [epoch, epoch + 1]
    for each in (new, old):  # all that it could have said had it not heard of its end first
        said = orders(brokers, each, *said_in(epoch, topic))
        assert [int(answer.error_code) for answer in said] == [STALE_CONTROLLER_EPOCH] * 3
    view = brokers.describe([topic], broker=new)
    assert {partition.leader for partition in view.partitions.values()} == {new}
    brokers.start(other)
    brokers.wait_in_sync([topic])
    brokers.produce(topic, 100, 100, 3)
    for partition in range(3):
        assert brokers.consume(topic, partition) == list(range(200))


def test_H_08_a_controller_that_is_cut_off_from_the_ensemble_alone_is_replaced_and_gives_up(
    run: Callable[..., Brokers], topic: str
) -> None:
    """It cannot know that its session is over; that another one gives orders says so. It keeps what it has, follows,
    and is back when its way to the ensemble is."""
    brokers = run(by_links=True)
    brokers.create(topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    brokers.produce(topic, 0, 100, 3)
    old = brokers.controller
    brokers.links[old].cut()
    new = brokers.wait_controller(old)
    wait_for(lambda: "gives orders" in brokers.log(old, 1 << 20), "the end of the old reign")
    wait_for(lambda: all(p.leader != old for p in brokers.describe([topic], broker=new).partitions.values()), "leaders")
    brokers.produce(topic, 100, 100, 3)
    brokers.links[old].mend()
    wait_for(lambda: brokers.nodes.names("/brokers/ids") == ["1", "2", "3"], "its node")
    brokers.wait_in_sync([topic])
    assert brokers.controller == new
    brokers.produce(topic, 200, 100, 3)
    for partition in range(3):
        assert brokers.consume(topic, partition) == list(range(300))


def test_H_09_H_10_a_broker_that_starts_again_within_its_old_session_is_another_incarnation(
    run: Callable[..., Brokers], topic: str
) -> None:
    """Its node has another czxid and the broker another epoch, and orders of the epoch before are refused (77). From
    its registration on it takes no longer than where there are no sessions."""
    brokers = run(settings={"zookeeper.session.timeout.ms": "10000"})
    brokers.create(topic, [[1, 2, 3]])
    brokers.produce(topic, 0, 10)
    for broker in (brokers.controller, next(b for b in brokers.ids if b != brokers.controller)):
        node, epoch = brokers.nodes.node(f"/brokers/ids/{broker}"), brokers.epoch(broker)
        brokers.kill(broker)
        brokers.begin(broker)
        wait_for(lambda b=broker: f"broker {b} serves" in brokers.new_log(b), "it serves", timeout_s=30)  # type: ignore[misc]
        assert lines_apart(brokers.new_log(broker), "ZooKeeper session 0x", f"broker {broker} serves") < 2
        now = wait_for(lambda b=broker: brokers.nodes.node(f"/brokers/ids/{b}"), "its node")  # type: ignore[misc]
        assert node is not None and now.stat.czxid > node.stat.czxid
        assert now.stat.ephemeral_owner != node.stat.ephemeral_owner
        assert brokers.epoch(broker) > epoch
        late = order(topic, controller_epoch=LATER, broker_epoch=epoch)
        assert [int(answer.error_code) for answer in orders(brokers, broker, late)] == [STALE_BROKER_EPOCH]
    brokers.wait_in_sync([topic])
    brokers.produce(topic, 10, 10)
    assert brokers.consume(topic) == list(range(20))


def states(topic: str) -> list[str]:
    return [f"/brokers/topics/{topic}/partitions/{number}/state" for number in range(3)]


def orders(brokers: Brokers, broker: int, *requests: Any) -> list[Any]:
    """What a broker answers to what only a controller says."""

    async def say() -> list[Any]:
        connection = BrokerConnection("127.0.0.1", brokers.ports[broker], "stranger")
        await connection.open(20)
        try:
            return [await connection.request(request, timeout_s=20) for request in requests]
        finally:
            connection.close()

    return asyncio.run(say())


def lines_apart(log: str, first: str, last: str) -> float:
    """Seconds between two lines of a log."""

    def at(text: str) -> datetime.datetime:
        line = next(line for line in log.splitlines() if text in line)
        return datetime.datetime.fromisoformat(line[1:24])

    return (at(last) - at(first)).total_seconds()


def test_brokers_serve_what_they_lead_while_the_ensemble_is_away(tmp_path: Path, topic: str) -> None:
    """Killed for longer than any session lasts, and frozen: nobody who writes or reads notices. When it is back it
    decides what had to wait. One that was killed gives sessions all their time again, so leaders are who they were."""
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        nodes = ClusterNodes(server, "/away")
        with Brokers(tmp_path, nodes) as brokers:
            brokers.create(topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
            leaders = {at: p.leader for at, p in brokers.describe([topic]).partitions.items()}
            writer, written = brokers.producer(), 100
            brokers.produce(topic, 0, 100, 3, writer)  # a new one asks the controller who it is
            reader = confluent_kafka.Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "readers"})
            place = confluent_kafka.TopicPartition(topic, 0)
            reader.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 50)], asynchronous=False)
            for go, come in (
                (server.kill, server.start),
                (lambda: server.signal(signal.SIGSTOP), lambda: server.signal(signal.SIGCONT)),
            ):
                go()
                began = time.monotonic()
                while time.monotonic() - began < 12:
                    brokers.produce(topic, written, 100, 3, writer)
                    written += 100
                    assert brokers.consume(topic)[-1] == written - 1
                # Longer than any session: the coordinator knows by its followers that it is one still.
                assert reader.committed([place], timeout=TIMEOUT_S)[0].offset == 50
                come()
                wait_for(lambda at=written: brokers.has(f"{topic}-{at}", [[3, 2, 1]]), "a new topic")  # type: ignore[misc]
                brokers.wait_in_sync([topic, f"{topic}-{written}"])
                if come == server.start:
                    assert {at: p.leader for at, p in brokers.describe([topic]).partitions.items()} == leaders
            reader.close()
            brokers.produce(topic, written, 100, 3)
            for partition in range(3):
                assert brokers.consume(topic, partition) == list(range(written + 100))
        nodes.close()
