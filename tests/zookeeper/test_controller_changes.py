"""A controller that dies with something half known: bad directories, replicas that are new, a reassignment."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.blocking import BlockingClient
from holdfast.client.reassignments import alter_reassignments, list_reassignments
from holdfast.coordination.zookeeper_client import Create
from holdfast.model.types import TopicPartition
from holdfast.testing import wait_for
from tests.zookeeper.brokers import Brokers
from tests.zookeeper.cluster_nodes import ClusterNodes

pytestmark = pytest.mark.system

TIMEOUT_S = 120.0
EVENTS = "/log_dir_event_notification"
SETTINGS = {"log.dir.probe.interval.ms": "100", "zookeeper.session.timeout.ms": "15000"}


@pytest.fixture
def brokers(tmp_path: Path, cluster_nodes: ClusterNodes) -> Iterator[Brokers]:
    with Brokers(tmp_path, cluster_nodes, settings={**SETTINGS, "broker.session.timeout.ms": "15000"}) as made:
        yield made


def break_dir(brokers: Brokers, broker: int, which: int = 1) -> set[str]:
    """Its log directory is one no more. The partitions that it had, each as TOPIC-N."""
    path = brokers.folder / f"broker-{broker}" / f"log-dir-{which}"
    had = {each.name for each in path.iterdir() if each.is_dir() and each.name[-1].isdigit()}
    path.rename(path.with_name("gone"))
    path.write_text("not a directory")
    return had


def offline(brokers: Brokers, topic: str, by: int) -> dict[int, tuple[int, ...]]:
    """Partition -> offline replicas, by the metadata of one broker."""
    view = brokers.describe([topic], broker=by)
    return {number: partition.offline for (_, number), partition in sorted(view.partitions.items())}


def others(brokers: Brokers, *without: int) -> list[int]:
    return [broker for broker in brokers.ids if broker not in without]


def test_K112_60_K112_62_a_new_controller_finds_out_what_is_offline(brokers: Brokers, topic: str) -> None:
    """From the answers of the broker alone: no node says it, and a notification that was left is nothing new."""
    brokers.create(topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2], [2, 1, 3], [3, 2, 1]])
    brokers.produce(topic, 0, 10, 6)
    first = brokers.controller
    bad, witness = others(brokers, first)
    had = break_dir(brokers, bad)
    expected = {n: (bad,) if f"{topic}-{n}" in had else () for n in range(6)}
    assert 0 < len([n for n in expected if expected[n]]) < 6, "one of two directories"
    wait_for(lambda: offline(brokers, topic, witness) == expected, "the bad directory", timeout_s=TIMEOUT_S)
    wait_for(lambda: brokers.nodes.names(EVENTS) == [], "the removal of the notification")
    brokers.kill(first)
    left = Create(path=f"{EVENTS}/log_dir_event_", data=b'{"version":1,"broker":%d,"event":1}' % bad, sequence=True)
    [made] = brokers.nodes.reader.write([left]).result(15)
    second = brokers.wait_controller(first)
    wait_for(lambda: brokers.nodes.node(made.path) is None, "the removal of what was left")
    brokers.start(first)
    for broker in brokers.ids:
        wait_for(lambda b=broker: offline(brokers, topic, b) == expected, "the same", timeout_s=TIMEOUT_S)  # type: ignore[misc]
    wait_for(
        lambda: all(
            p.leader not in (None, bad) and set(p.isr) == {1, 2, 3} - set(expected[n])
            for (_, n), p in brokers.describe([topic], broker=second).partitions.items()
            if expected[n]
        ),
        "leaders elsewhere, and the others in sync",
        timeout_s=TIMEOUT_S,
    )
    brokers.produce(topic, 10, 10, 6)
    assert [brokers.consume(topic, n) for n in range(6)] == [list(range(20))] * 6


def test_K112_61_a_replica_that_was_new_when_its_controller_died_is_still_made(brokers: Brokers, topic: str) -> None:
    """Its broker has a bad directory, so it makes what is new and nothing else (H-20). It heard nothing of the topic
    before the controller died."""
    brokers.create(f"{topic}-before", [[1, 2, 3]] * 4)
    first = brokers.controller
    bad, other = others(brokers, first)
    had = break_dir(brokers, bad)
    wait_for(
        lambda: [n for n, found in offline(brokers, f"{topic}-before", other).items() if found == (bad,)]
        == sorted(int(name[-1]) for name in had),
        "the bad directory", timeout_s=TIMEOUT_S,
    )  # fmt: skip
    os.kill(brokers.pid(bad), signal.SIGSTOP)
    creating = threading.Thread(target=brokers.has, args=(topic, [[other, bad, first]]))
    creating.start()
    path = f"/brokers/topics/{topic}/partitions/0/state"
    wait_for(lambda: brokers.nodes.node(path) is not None, "the topic")
    assert bad in brokers.nodes.json(path)["isr"]
    brokers.kill(first)
    second = brokers.wait_controller(first)
    os.kill(brokers.pid(bad), signal.SIGCONT)
    folder = brokers.folder / f"broker-{bad}" / "log-dir-2" / f"{topic}-0"
    wait_for(folder.exists, "its replica", timeout_s=TIMEOUT_S)
    creating.join(TIMEOUT_S)
    brokers.start(first)
    wait_for(
        lambda: set(brokers.describe([topic], broker=second).partitions[topic, 0].isr) == {1, 2, 3},
        "all in sync", timeout_s=TIMEOUT_S,
    )  # fmt: skip
    brokers.produce(topic, 0, 10)
    assert brokers.consume(topic) == list(range(10))


def test_H_30_R_43_a_reassignment_is_cancelled_by_another_controller_than_the_one_that_began_it(
    brokers: Brokers, topic: str
) -> None:
    """Null replicas in the middle of it: the nodes are as they were, and so is who has it."""
    first = brokers.controller
    target, stays = others(brokers, first)
    brokers.create(topic, [[stays, first]], **{"min.insync.replicas": "1"})
    brokers.produce(topic, 0, 10)
    tp, node = TopicPartition(topic, 0), f"/brokers/topics/{topic}"
    before = brokers.nodes.json(node)
    os.kill(brokers.pid(target), signal.SIGSTOP)  # so that it cannot be over

    def ask(replicas: tuple[int, ...] | None) -> None:
        with BlockingClient(f"127.0.0.1:{brokers.ports[stays]}") as client:
            assert client.run(alter_reassignments(client.aio, {tp: replicas})) == {tp: None}

    ask((stays, target))
    under_way = brokers.nodes.json(node)
    assert under_way["adding_replicas"] == {"0": [target]} and under_way["removing_replicas"] == {"0": [first]}
    brokers.kill(first)
    assert brokers.wait_controller(first) == stays
    ask(None)
    assert brokers.nodes.json(node) == before
    os.kill(brokers.pid(target), signal.SIGCONT)
    brokers.start(first)
    wait_for(
        lambda: set(brokers.describe([topic], broker=stays).partitions[topic, 0].isr) == {stays, first},
        "who had it before", timeout_s=TIMEOUT_S,
    )  # fmt: skip
    with BlockingClient(brokers.bootstrap) as client:
        assert client.run(list_reassignments(client.aio)) == {}
    home = brokers.folder / f"broker-{target}"
    wait_for(lambda: not list(home.glob(f"log-dir-*/{topic}-0")), "nothing of it at the target", timeout_s=TIMEOUT_S)
    brokers.produce(topic, 10, 10)
    assert brokers.consume(topic) == list(range(20))
