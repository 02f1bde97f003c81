"""Log directories that fail, told through nodes of a real ZooKeeper server (KIP-112)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.coordination.zookeeper_client import Create
from holdfast.testing import wait_for
from tests.contracts.test_metadata_store import ONE, TWO, Reign
from tests.zookeeper.brokers import Brokers
from tests.zookeeper.cluster_nodes import ClusterNodes
from tests.zookeeper.test_election import presence
from tests.zookeeper.test_layout import golden

pytestmark = pytest.mark.system

EVENTS = "/log_dir_event_notification"


def leave(nodes: ClusterNodes, data: bytes) -> str:
    """A node as somebody else makes it; its name."""
    [made] = nodes.reader.write([Create(path=f"{EVENTS}/log_dir_event_", data=data, sequence=True)]).result(15)
    return made.path.rpartition("/")[2]


def test_K112_22_K112_90_a_failure_is_announced_by_a_sequential_node(cluster_nodes: ClusterNodes) -> None:
    """As Apache Kafka's broker 1 wrote it, to the byte."""
    store = cluster_nodes.store()
    store.cluster_id()
    store.enter(presence(1))
    store.log_dir_failed()
    [name] = wait_for(lambda: cluster_nodes.names(EVENTS), "the announcement")
    recorded = golden("b_01_log_dir_dies_on_broker_1")["zookeeper_transactions"][0]
    node = cluster_nodes.node(f"{EVENTS}/{name}")
    assert node is not None and f"{EVENTS}/{name}" == recorded["path"]
    assert (node.data.decode(), node.stat.ephemeral_owner != 0) == (recorded["data"], recorded["ephemeral"])
    assert json.loads(node.data) == {"version": 1, "broker": 1, "event": 1}


def test_K112_20_K112_23_the_controller_watches_and_removes_what_it_has_read(cluster_nodes: ClusterNodes) -> None:
    """Broken, of an unknown broker, of an unknown kind: each is removed. One that has resigned does not look."""
    store = cluster_nodes.store()
    reign = Reign(store, ONE)
    for data in (b'{"version":1,"broker":2,"event":1}', b"not json", b'{"version":1,"broker":99,"event":2}'):
        leave(cluster_nodes, data)
        wait_for(lambda: cluster_nodes.names(EVENTS) == [], "its removal", timeout_s=5)
    assert reign.heard.failed == [2, 99]
    checked = [each for each in cluster_nodes.clients[0].written if each[-1].path.startswith(EVENTS + "/")]
    assert [each[0].path for each in checked] == ["/controller_epoch"] * 3
    store.resign()
    name = leave(cluster_nodes, b'{"version":1,"broker":2,"event":1}')
    other = cluster_nodes.store()
    other.cluster_id()
    assert cluster_nodes.names(EVENTS) == [name]
    assert reign.heard.failed == [2, 99]


def test_K112_62_what_was_left_while_there_was_no_controller_is_read_by_the_next(cluster_nodes: ClusterNodes) -> None:
    store = cluster_nodes.store()
    store.cluster_id()
    for broker_id in (1, 2):
        leave(cluster_nodes, b'{"version":1,"broker":%d,"event":1}' % broker_id)
    reign = Reign(store, TWO)
    wait_for(lambda: cluster_nodes.names(EVENTS) == [], "their removal", timeout_s=5)
    wait_for(lambda: reign.heard.failed == [1, 2], "the news")


def test_K112_22_K112_23_a_directory_that_is_given_up_is_told_to_the_controller(
    cluster_nodes: ClusterNodes, tmp_path: Path, topic: str
) -> None:
    """By the broker that had it; its partitions are led elsewhere then."""
    with Brokers(tmp_path, cluster_nodes) as brokers:
        brokers.create(topic, [[2, 3, 1]] * 4)
        brokers.produce(topic, 0, 10, 4)
        folder = next((tmp_path / "broker-2" / "log-dir-1").glob(f"{topic}-[0-9]"))
        gone = {int(p.name.rpartition("-")[2]) for p in folder.parent.glob(f"{topic}-[0-9]")}
        subprocess.run(
            [
                sys.executable, "-m", "holdfast.cli.main", "log-dirs", "offline", str(folder.parent),
                "--broker", "2", "--bootstrap-server", brokers.bootstrap,
            ],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        controller = brokers.controller
        wait_for(lambda: "broker 2 says that a log directory has failed" in brokers.new_log(controller), "the news")
        wait_for(lambda: cluster_nodes.names(EVENTS) == [], "the removal")

        def moved() -> bool:
            partitions = brokers.describe([topic]).partitions
            return all((partitions[topic, n].leader == 2) is (n not in gone) for n in range(4))

        wait_for(moved, "leaders elsewhere")
        brokers.produce(topic, 10, 10, 4)
