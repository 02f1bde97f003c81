"""The nodes of a cluster on a real ZooKeeper server, beside those of Apache Kafka 3.9.1 (tests/golden/znodes)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.coordination.zookeeper_client import Check, Create, Put
from holdfast.metadata.znode_acls import BASE
from holdfast.testing import wait_for
from tests.contracts.test_metadata_store import Reign
from tests.zookeeper.brokers import Brokers
from tests.zookeeper.cluster_nodes import ClusterNodes
from tests.zookeeper.test_election import candidate, presence

pytestmark = pytest.mark.system

GOLDEN = Path(__file__).parent.parent / "golden" / "znodes"
OURS, HOSTS = "/holdfast", "/brokers/hosts"


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def kafkas(operations: list[dict[str, Any]]) -> list[Any]:
    return [(each["op"], each["path"], each.get("ephemeral", False)) for each in operations]


def ours(operation: object) -> tuple[str, str, bool]:
    match operation:
        case Create():
            return "create", operation.path, operation.ephemeral
        case Put():
            return "setData", operation.path, False
        case Check():
            return "check", operation.path, False
    raise AssertionError(operation)


def test_R_28_the_first_broker_makes_kafkas_nodes_in_kafkas_order(cluster_nodes: ClusterNodes) -> None:
    """What is written at once with what is the same too. Beside it, ours write nodes below /holdfast."""
    store = cluster_nodes.store()
    store.cluster_id()
    store.enter(presence(1))
    wait_for(lambda: cluster_nodes.node("/brokers/ids/1"), "its node")
    Reign(store, candidate(1))
    recorded = [
        kafkas(each["ops"]) if each["op"] == "multi" else kafkas([each])
        for each in golden("a_00_first_broker_starts")["zookeeper_transactions"]
        if each["op"] != "createSession" and not each.get("failed")
    ]
    written = [
        [ours(operation) for operation in operations if not is_ours_alone(operation.path)]
        for operations in cluster_nodes.clients[0].written
    ]
    assert [each for each in written if each not in ([], [("check", "/controller_epoch", False)])] == recorded


def is_ours_alone(path: str) -> bool:
    """Kafka makes the parents of its access control lists when its authorizer starts; the recorded one had none."""
    return path.startswith((OURS, HOSTS)) or path in BASE


def shape(value: Any) -> Any:
    """Types instead of values; what Kafka has no keys for is not looked at."""
    if isinstance(value, dict):
        return {key: shape(member) for key, member in value.items() if key != "holdfast"}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def said(data: str | None) -> Any:
    return json.loads(data) if data else data or None


def differences(nodes: ClusterNodes, tree: dict[str, Any], same: tuple[str, ...]) -> Iterator[str]:
    """How ours differ from the recorded ones: missing, of another kind, another shape; other values below ``same``."""
    for path, recorded in tree.items():
        node = nodes.node(path)
        if node is None:
            yield f"{path} is missing"
            continue
        wanted, found = said(recorded["data"]), said(node.data.decode())
        if path == "/feature":  # 3.9.1 has none in force where ZooKeeper keeps them
            wanted["features"] = {"transaction.version": {"max_version_level": 2}}
        if (node.stat.ephemeral_owner != 0) != recorded["ephemeral"]:
            yield f"{path}: ephemeral is {not recorded['ephemeral']}"
        if shape(found) != shape(wanted):
            yield f"{path}: {found}, recorded {wanted}"
        if path.startswith(same) and isinstance(wanted, dict):
            for key in wanted.keys() - {"topic_id"}:
                if found[key] != wanted[key]:
                    yield f"{path}: {key} is {found[key]}, recorded {wanted[key]}"


def test_R_02_R_28_a_cluster_and_its_topics_are_in_kafkas_nodes(cluster_nodes: ClusterNodes, tmp_path: Path) -> None:
    """Brokers that live, assignments, states and configurations, each with the keys and types that Kafka's tools read.
    What is not there with Kafka is below /holdfast, or below a key of that name."""
    with Brokers(tmp_path, cluster_nodes) as brokers:
        wait_for(lambda: cluster_nodes.names("/brokers/ids") == ["1", "2", "3"], "the brokers' nodes")
        fresh = golden("tree_01_fresh_three_brokers")
        assert list(differences(cluster_nodes, fresh, ())) == []
        brokers.create("golden", [[1, 2, 3], [2, 3, 1], [3, 1, 2]],
                       **{"min.insync.replicas": "2", "retention.ms": "3600000"})  # fmt: skip
        brokers.create("plain", [[2, 3], [3, 1]])
        assert list(differences(cluster_nodes, golden("tree_02_topics"), ("/brokers/topics/", "/config/"))) == []
        assert set(cluster_nodes.names("/")) - {path[1:] for path in fresh if path.count("/") == 1} == {
            OURS[1:], *(path[1:] for path in BASE if path.count("/") == 1)
        }  # fmt: skip
        assert cluster_nodes.json("/brokers/ids/2")["port"] == brokers.ports[2]
        for number, replicas in enumerate([[1, 2, 3], [2, 3, 1], [3, 1, 2]]):
            state = cluster_nodes.json(f"/brokers/topics/golden/partitions/{number}/state")
            assert brokers.describe(["golden"]).partitions["golden", number].leader == state["leader"] == replicas[0]
