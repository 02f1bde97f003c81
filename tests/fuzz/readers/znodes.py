"""Readers of ZooKeeper's tree: one node of it, in a cluster's tree that is sound otherwise; and what tools ask."""

from functools import cache
from typing import Any
from uuid import UUID

from holdfast.model.errors import MetadataError
from tests.fuzz import samples
from tests.fuzz.reader import Reader, Run

_ID = UUID(int=77)
_NODES = (
    "/brokers/topics/t", "/brokers/topics/t/partitions/1/state", "/config/topics/t", "/config/brokers/1", "/feature",
    "/latest_producer_id_block", "/holdfast/brokers/1", "/holdfast/metadata_log", "/holdfast/unfinished",
    "/brokers/ids/1", "/controller", "/controller_epoch", "/kafka-acl/Topic/t",
    "/config/users/u", "/config/users/u/clients/c", "/holdfast/scram_secret",
)  # fmt: skip


@cache
def _tree() -> dict[str, Any]:
    """A cluster with a topic of two partitions that is being reassigned, as its store would have written it."""
    from holdfast.metadata import records as m
    from holdfast.metadata.image import ClusterImage
    from holdfast.metadata.znode_values import BrokerIdsNode, ControllerNode
    from holdfast.metadata.znodes import TreeWriter, claim, registration
    from holdfast.model.listeners import Endpoints
    from tests.checks.memory_tree import MemoryTree

    endpoints = Endpoints.one("localhost", 9092)
    made = [
        m.FeatureLevelRecord(name="f", level=2),
        m.RegisterBrokerRecord(
            broker_id=1, incarnation_id=_ID, broker_epoch=3, endpoints=endpoints.listeners, rack="r", log_dirs=(_ID,)
        ),
        m.TopicRecord(name="t", topic_id=_ID),
        *(
            m.PartitionRecord(
                partition=number, topic_id=_ID, replicas=(1, 2), isr=(1,), leader=1, elr=(2,), last_known_elr=(2,),
                adding=(2,), removing=(1,), directories=(_ID, _ID), recovery_state=m.RecoveryState.RECOVERING,
                created=5,
            )
            for number in range(2)
        ),
        m.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
        m.ConfigRecord(resource_type=4, resource_name="1", name="x", value="y"),
        m.AccessControlEntryRecord(id=samples.acl().id(), acl=samples.acl()),
        *samples.users(),
        m.ProducerIdsRecord(broker_id=1, broker_epoch=3, next_producer_id=1000),
        m.ControllerClaimRecord(controller_epoch=1, broker_id=1, host="h", port=1),
    ]  # fmt: skip
    tree = MemoryTree.with_base()
    tree.write(registration(1, BrokerIdsNode(endpoints=endpoints, timestamp_ms=1, features=(("f", 1, 2),))))
    tree.write(claim(ControllerNode(broker_id=1, timestamp_ms=1, address=("h", 1), epoch=1), 1, 0))
    for multi in TreeWriter().snapshot(ClusterImage.empty("c").apply(made, 20)[0], 1 << 20):
        tree.write(multi.writes)
    return tree.nodes


def _make_tree() -> Run:
    """The image of a tree: a typed error, or one that is written anew and read again as it was. Every second kind has
    the node in a tree of Kafka's, which has none of ours."""
    from holdfast.metadata.znode_tree import TreeNode, image_of
    from holdfast.metadata.znodes import TreeWriter
    from tests.checks.memory_tree import MemoryTree

    ours = _tree()
    kafkas = {path: node for path, node in ours.items() if not path.startswith("/holdfast")}

    def run(data: bytes) -> Any:
        kind = data[0] if data else 0
        path = _NODES[kind // 2 % len(_NODES)]
        tree = {**(kafkas if kind & 1 else ours), path: TreeNode(data=data[1:])}
        image = image_of(tree, "c")
        again = MemoryTree.with_base()
        for multi in TreeWriter().snapshot(image, 1 << 20):
            again.write(multi.writes)
        assert image_of(again.nodes, "c") == image
        return len(image.topics), len(image.brokers)

    return run


def _tree_corpus() -> list[bytes]:
    tree = _tree()
    found = [
        bytes((2 * kind + other,)) + tree[path].data
        for kind, path in enumerate(_NODES)
        for other in (0, 1)
        if path in tree
    ]
    found += [
        bytes((16,)) + b'{"version":1,"topic":"t","whole":true,"first":0,"end":2}',
        bytes((3,)) + b'{"controller_epoch":3,"leader":-1,"version":1,"leader_epoch":3,"isr":[2]}',
        bytes((9,)) + b'{"features":{"f":{"min_version_level":1,"max_version_level":4}},"version":1,"status":1}',
        bytes((6,)) + b'{"version":1,"config":{}}',
    ]
    return found


def _make_requests() -> Run:
    """What is understood is written and read again as the same."""
    from holdfast.metadata import znode_notices as notices

    def run(data: bytes) -> Any:
        match data[0] % 3 if data else 0:
            case 0:
                wanted = notices.read_reassignment("/p", data[1:])
                assert notices.read_reassignment("/p", notices.reassignment(wanted)) == wanted
            case 1:
                named = notices.read_preferred_election("/p", data[1:])
                assert notices.read_preferred_election("/p", notices.preferred_election(named)) == named
            case _:
                event = notices.read_log_dir_event("/p", data[1:])
                assert notices.read_log_dir_event("/p", notices.log_dir_event(event).data) == event
        return data[0] % 3

    return run


def _requests_corpus() -> list[bytes]:
    return [
        b'\0{"version":1,"partitions":[{"topic":"mv","partition":1,"replicas":[3,1]}]}',
        b'\1{"version":1,"partitions":[{"topic":"golden","partition":0}]}',
        b'\2{"version":1,"broker":1,"event":1}',
    ]


_TOKENS = (b"[", b"{", b'"', b"null", b"-1", b"2147483648", b"\\ud800", b"1e9", b'"holdfast":{', b'"0":[1]', b'":')

READERS = (
    Reader(
        name="znodes",
        reads="one node of ZooKeeper's tree, and the image that it is part of",
        make=_make_tree,
        corpus=_tree_corpus,
        refusals=(MetadataError,),
        kinds=2 * len(_NODES),
        tokens=_TOKENS,
        max_size=700,
        memory_base=512 << 10,
    ),
    Reader(
        name="znode-requests",
        reads="what tools and brokers ask through ZooKeeper's nodes",
        make=_make_requests,
        corpus=_requests_corpus,
        refusals=(MetadataError,),
        kinds=3,
        tokens=_TOKENS,
        max_size=300,
    ),
)
