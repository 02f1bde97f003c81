"""ZooKeeper's tree: what single nodes say, errors that name them, and atoms that are too large for one multi."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any
from uuid import UUID

import pytest

from holdfast.metadata import znode_notices as notices
from holdfast.metadata import znode_paths as paths
from holdfast.metadata import znode_tree
from holdfast.metadata import znode_values as values
from holdfast.metadata.image import BrokerImage, ClusterImage, PartitionImage
from holdfast.metadata.records import (
    UNASSIGNED_DIRECTORY,
    ConfigRecord,
    ControllerClaimRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from holdfast.metadata.znode_tree import StateNodes, TreeNode, image_of, read_tree
from holdfast.metadata.znode_writes import DeleteNode, Multi, cut, weight
from holdfast.metadata.znodes import TreeWriter, log_end, registration
from holdfast.model.errors import MetadataError
from holdfast.model.listeners import Endpoint, Endpoints, SecurityProtocol
from holdfast.model.types import TopicPartition
from tests.checks.memory_tree import MemoryTree

T = UUID("99091b8f-fa53-4f8a-87a6-2d0cc5af7203")
LIMIT = 900_000
CLAIM = ControllerClaimRecord(controller_epoch=3, broker_id=1, host="h", port=1)
START, _ = ClusterImage.empty("c").apply([CLAIM], 0)


def partition(number: int, topic_id: UUID = T) -> PartitionRecord:
    return PartitionRecord(
        partition=number, topic_id=topic_id, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1,
        directories=(UNASSIGNED_DIRECTORY,) * 3, created=5,
    )  # fmt: skip


def topic(name: str, count: int, topic_id: UUID = T) -> list[MetadataRecord]:
    return [TopicRecord(name=name, topic_id=topic_id), *(partition(number, topic_id) for number in range(count))]


def tree_of(image: ClusterImage) -> MemoryTree:
    tree = MemoryTree.with_base()
    for multi in TreeWriter().snapshot(image, LIMIT):
        tree.write(multi.writes)
    return tree


def multis(before: ClusterImage, records: list[MetadataRecord], limit: int = LIMIT) -> list[Multi]:
    after, _ = before.apply(records, before.next_offset)
    return list(TreeWriter().writes(before, after, records, limit))


# -- single nodes ----------------------------------------------------------------------------------------------


def test_a_registration_has_all_listeners_and_what_old_clients_look_for() -> None:
    endpoints = Endpoints.of(
        (
            Endpoint(name="BROKERS", host="::1", port=9093, security_protocol=SecurityProtocol.SSL),
            Endpoint(name="CLIENTS", host="h", port=9092),
        ),
        "BROKERS",
    )
    node = values.BrokerIdsNode(
        endpoints=endpoints, timestamp_ms=17, rack="r", features=(("f", 1, 2),), incarnation_id=UUID(int=5)
    )
    _, written = registration(7, node)
    assert written.path == "/brokers/ids/7"
    assert json.loads(written.data) == {
        "version": 5, "host": "h", "port": 9092, "jmx_port": -1, "timestamp": "17", "rack": "r",
        "endpoints": ["BROKERS://[::1]:9093", "CLIENTS://h:9092"],
        "listener_security_protocol_map": {"BROKERS": "SSL", "CLIENTS": "PLAINTEXT"},
        "features": {"f": {"min_version": 1, "max_version": 2}},
        "holdfast": {"incarnation": "AAAAAAAAAAAAAAAAAAAABQ", "inter_broker": "BROKERS", "control_plane": "BROKERS"},
    }  # fmt: skip
    assert values.read_broker_node(written.path, written.data) == node


def test_K112_90_the_text_of_the_notification_is_exact() -> None:
    node = notices.log_dir_event(notices.LogDirEvent(broker_id=1))
    assert (node.path, node.data) == (
        "/log_dir_event_notification/log_dir_event_", b'{"version":1,"broker":1,"event":1}'
    )  # fmt: skip
    assert node.sequence and not node.ephemeral
    assert notices.read_log_dir_event(node.path, node.data) == notices.LogDirEvent(broker_id=1, event=1)


def test_what_a_controller_says_is_read_by_kafkas_readers_and_by_ours() -> None:
    node = values.ControllerNode(broker_id=2, timestamp_ms=5, address=("h", 9093), epoch=8)
    assert values.read_controller_node(paths.CONTROLLER, values.controller_node(node)) == node
    node = replace(node, listener="WITHIN", security_protocol=SecurityProtocol.SASL_SSL)
    assert values.read_controller_node(paths.CONTROLLER, values.controller_node(node)) == node
    with pytest.raises(MetadataError, match="security_protocol"):
        values.read_controller_node(paths.CONTROLLER, values.controller_node(node).replace(b"SASL_SSL", b"SMOKE"))
    kafka = b'{"version":2,"brokerid":1,"timestamp":"1795226935023","kraftControllerEpoch":-1}'
    assert values.read_controller_node(paths.CONTROLLER, kafka) == values.ControllerNode(
        broker_id=1, timestamp_ms=1795226935023
    )


def test_requests_of_tools_read_as_they_were_written() -> None:
    wanted = {TopicPartition("a", 1): (1, 2), TopicPartition("b", 0): (3,)}
    assert notices.read_reassignment("/p", notices.reassignment(wanted)) == wanted
    assert notices.read_preferred_election("/p", notices.preferred_election(wanted)) == tuple(wanted)
    assert notices.read_isr_change("/p", notices.isr_change(wanted).data) == tuple(wanted)


def test_old_changes_of_configurations_go() -> None:
    names = [f"config_change_{number:010d}" for number in (12, 3, 7)]
    assert notices.surplus_changes({paths.CONFIG_CHANGES: [*names, "other"]}, keep=2) == [
        DeleteNode(path=f"{paths.CONFIG_CHANGES}/{names[1]}")
    ]
    assert notices.surplus_changes({paths.CONFIG_CHANGES: names}, keep=3) == []


def test_features_of_the_older_version_are_read() -> None:
    data = b'{"features":{"f":{"min_version_level":1,"max_version_level":4}},"version":1,"status":1}'
    assert values.read_features_node(paths.FEATURE, data) == {"f": 4}
    assert values.read_features_node(paths.FEATURE, b'{"features":{},"version":1,"status":0}') == {}


def test_features_are_written_as_kafka_3_9_writes_them() -> None:
    """kafka.zk.FeatureZNode of 3.9.1 has written and read these texts, and has refused the one of the next test."""
    data = b'{"features":{"transaction.version":{"max_version_level":2}},"version":2,"status":1}'
    assert values.features_node({"transaction.version": 2}) == data
    assert values.read_features_node(paths.FEATURE, data) == {"transaction.version": 2}
    assert values.features_node({}) == b'{"features":{},"version":2,"status":1}'
    lowest_too = b'{"features":{"f":{"min_version_level":1,"max_version_level":2}},"version":2,"status":1}'
    assert values.read_features_node(paths.FEATURE, lowest_too) == {"f": 2}


def test_features_as_holdfast_wrote_them_before_are_read() -> None:
    data = b'{"features":{"transaction.version":2,"f":1},"version":2,"status":1}'
    assert values.read_features_node(paths.FEATURE, data) == {"f": 1, "transaction.version": 2}


@pytest.mark.parametrize("level", [b"0", b"true", b'"2"', b"{}", b'{"max_version_level":0}', b"40000", b"null"])
def test_a_level_that_is_none_is_refused_by_its_node(level: bytes) -> None:
    with pytest.raises(MetadataError, match=r"^znode /feature: features\.f.* expected "):
        values.read_features_node(paths.FEATURE, b'{"features":{"f":' + level + b'},"version":2,"status":1}')


STATE = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
TOPIC = values.TopicNode(topic_id=T, replicas=((1,),), adding={}, removing={})


def read_state(path: str, data: bytes) -> object:
    return values.read_state_node(path, data, 0, TOPIC, 0)


@pytest.mark.parametrize(
    ("read", "data", "expected"),
    [
        (values.read_topic_node, b"{", "is no JSON: expected an object"),
        (values.read_topic_node, b"\xff", "is no JSON: expected an object"),
        (values.read_topic_node, b"[" * 100_000, "is no JSON: expected an object"),
        (values.read_topic_node, b"[1]", "expected a JSON object"),
        (values.read_topic_node, b'{"partitions":{"0":[1]}}', "topic_id is missing: expected an id"),
        (values.read_topic_node, b'{"partitions":{"0":[1],"2":[1]}}', "partitions.1 is missing: expected an array"),
        (values.read_topic_node, b'{"partitions":{"0":["1"]}}', "partitions.0 is ['1']: expected an array"),
        (values.read_topic_node, b'{"partitions":{"0":[-1]}}', "partitions.0 is [-1]: expected an array of broker ids"),
        (
            values.read_topic_node,
            b'{"partitions":{"0":[1]},"topic_id":"mQkbj_pTfKHpM0jxaD9yA","adding_replicas":{}}',
            "topic_id is 'mQkbj_pTfKHpM0jxaD9yA': expected an id, 22 characters of base64",
        ),
        (
            values.read_topic_node,
            b'{"partitions":{"0":[1]},"topic_id":"mQkbIj_pTfKHpM0jxaD9yA","adding_replicas":{"1":[2]}}',
            "adding_replicas is {'1': [2]}: expected partitions from 0 to 0 alone",
        ),
        (read_state, STATE.replace(b"[1]", b"1"), "isr is 1: expected an array of broker ids"),
        (read_state, STATE.replace(b'"leader":1', b'"leader":-2'), "leader is -2: expected a number from -1 to"),
        (read_state, STATE.replace(b'"leader":1', b'"leader":true'), "leader is True: expected a number"),
        (read_state, STATE.replace(b'"leader_epoch":0', b'"leader_epoch":1e9'), "leader_epoch is 1000000000.0"),
        (read_state, STATE[:-1] + b',"leader_recovery_state":2}', "leader_recovery_state is 2: expected 0 or 1"),
        (read_state, STATE[:-1] + b',"holdfast":{"elr":"x"}}', "holdfast.elr is 'x': expected an array"),
        (values.read_config_node, b'{"config":{"a":1}}', "config is {'a': 1}: expected an object of strings"),
        (values.read_producer_ids_node, b'{"block_end":999}', "block_end is 999: expected a number in a string"),
        (values.read_producer_ids_node, b'{"block_end":"9223372036854775807"}', "block_end is '9223372036854775807'"),
        (values.read_controller_epoch_node, b"1x", "'1x': expected a number"),
        (values.read_broker_node, b"{}", "listener_security_protocol_map is missing: expected an object of strings"),
        (
            values.read_broker_node,
            b'{"listener_security_protocol_map":{"A":"PLAIN"},"endpoints":["A://h:1"],"timestamp":"1"}',
            "listener_security_protocol_map is {'A': 'PLAIN'}: expected a security protocol of A",
        ),
        (
            values.read_broker_node,
            b'{"listener_security_protocol_map":{"A":"SSL"},"endpoints":["A://h:99999"],"timestamp":"1"}',
            "endpoints is ['A://h:99999']: expected NAME://HOST:PORT of each",
        ),
        (
            values.read_broker_node,
            b'{"listener_security_protocol_map":{},"endpoints":[],"timestamp":"1"}',
            "listeners of no number",
        ),
        (notices.read_reassignment, b'{"partitions":[{"topic":"t","partition":0}]}', "partitions[0].replicas is"),
        (notices.read_log_dir_event, b"not json", "is no JSON"),
    ],
)  # fmt: skip
def test_a_node_that_says_something_else_is_an_error_that_names_it(
    read: Callable[[str, bytes], Any], data: bytes, expected: str
) -> None:
    with pytest.raises(MetadataError) as raised:
        read("/some/node", data)
    assert str(raised.value).startswith("znode /some/node: ")
    assert expected in str(raised.value)
    assert len(str(raised.value)) < 300


def test_a_broken_tree_names_the_node_and_a_missing_state_is_an_error() -> None:
    tree = tree_of(START.apply(topic("t", 2), START.next_offset)[0])
    path = paths.state("t", 1)
    tree.nodes[path] = TreeNode(data=b"{}")
    with pytest.raises(MetadataError, match=r"^znode /brokers/topics/t/partitions/1/state: isr is missing"):
        read_tree(tree.asked())
    del tree.nodes[path]
    with pytest.raises(MetadataError, match=r"^znode /brokers/topics/t/partitions/1/state: is missing: expected a"):
        read_tree(tree.asked())


def test_what_has_no_node_is_refused() -> None:
    record = ConfigRecord(resource_type=2, resource_name="none", name="k", value="v")
    with pytest.raises(MetadataError, match=r"^znode /config/topics/none: belongs to no topic: expected a topic none"):
        multis(START, [record])


def test_a_configuration_that_kafka_has_no_node_for_is_below_ours() -> None:
    """Groups, or which broker a host has: whatever the name is."""
    for kind, name in ((32, "a/b"), (100, "host 1%"), (100, ""), (4, "x/y"), (100, "ä")):
        path = paths.config(kind, name)
        assert path.startswith("/holdfast/configs/") and path.count("/") == 3 and path.isascii()
        assert paths.config_resource(path) == (kind, name)
    tree, image, writer = tree_of(START), START, TreeWriter()
    for value in ("v", "w", None):
        record = ConfigRecord(resource_type=32, resource_name="a/b", name="k", value=value)
        after, _ = image.apply([record], image.next_offset)
        for multi in writer.writes(image, after, [record], LIMIT):
            assert [write.path for write in multi.writes] == ["/holdfast/configs/32:a%2Fb", paths.METADATA_LOG]
            tree.write(multi.writes)
        image = after
        assert image_of(tree.asked(), "c") == image
    assert "/holdfast/configs/32:a%2Fb" not in tree.nodes
    other = {f"/holdfast/configs/{name}": TreeNode(data=b"{") for name in ("x", "1:%zz", "01:a", "4:1", "2:t")}
    assert image_of({**tree.asked(), **other}, "c") == image, "these are none of them"


def test_every_field_of_an_image_has_its_place() -> None:
    """A field that is added has to be added to the nodes, too; tests/property/test_znodes.py then shows it."""
    names = {kind: [field.name for field in fields(kind)] for kind in (ClusterImage, BrokerImage, PartitionImage)}
    assert names == {
        ClusterImage: ["cluster_id", "brokers", "topics", "topic_names", "configs", "features", "acls", "users",
                           "quotas", "next_producer_id", "controller_id", "controller_epoch", "offset"],
        BrokerImage: ["id", "epoch", "incarnation_id", "endpoints", "rack", "fenced", "in_controlled_shutdown",
                      "log_dirs", "cordoned", "features"],
        PartitionImage: ["replicas", "isr", "leader", "leader_epoch", "partition_epoch", "adding", "removing",
                         "directories", "elr", "last_known_elr", "recovery_state", "created"],
    }  # fmt: skip


# -- commits ---------------------------------------------------------------------------------------------------


def test_a_partitions_epoch_is_its_nodes_version_where_none_is_written() -> None:
    record = values.read_state_node("/p", STATE, 7, TOPIC, 0)
    assert record.partition_epoch == 7
    image, _ = START.apply(topic("t", 1), START.next_offset)
    tree = tree_of(image)
    change = PartitionChangeRecord(partition=0, topic_id=T, leader=None)
    for multi in multis(image, [change, change]):
        tree.write(multi.writes)
    assert tree.nodes[paths.state("t", 0)].version == 1, "two changes, one write"
    found = image_of(tree.asked(), "c").partition("t", 0)
    assert found is not None and found.partition_epoch == 2


def test_state_nodes_that_say_the_same_are_read_once_and_are_each_partitions_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever else the record depends on makes it another text: where the replicas are, the node's version."""
    ours = json.dumps(
        json.loads(STATE)
        | {"holdfast": {"partition_epoch": 3, "created": 9, "elr": [2], "directories": ["AAAAAAAAAAAAAAAAAAAABw"] * 2}}
    ).encode()
    first = values.TopicNode(topic_id=T, replicas=((1, 2), (1, 2), (2, 1)), adding={1: (2,)}, removing={})
    second = values.TopicNode(topic_id=UUID(int=99), replicas=((1, 2),), adding={}, removing={})
    asked = [
        (data, version, topic, number)
        for data in (STATE, ours)
        for version in (0, 7)
        for topic, number in ((first, 0), (first, 1), (first, 2), (second, 0))
    ]
    expected = [values.read_state_node("/p", *each) for each in asked]
    reads: list[object] = []
    monkeypatch.setattr(values, "read_state_node", _counting(values.read_state_node, reads))
    states = StateNodes()
    assert [states.read("/p", *each) for each in asked] == expected
    assert len(reads) == 12, "the fourth says what the first says, of another topic"
    assert [states.read("/p", *each) for each in asked] == expected
    assert len(reads) == 12
    monkeypatch.setattr(znode_tree, "MAX_ALIKE", 1)
    assert [states.read("/p", *each) for each in asked] == expected, "what is kept has a limit"


def _counting(of: Callable[..., Any], calls: list[object]) -> Callable[..., Any]:
    def counted(*arguments: object) -> Any:
        calls.append(arguments)
        return of(*arguments)

    return counted


def test_a_topics_assignment_is_written_once_in_each_multi() -> None:
    image, _ = START.apply(topic("t", 2000), START.next_offset)
    moves = [PartitionChangeRecord(partition=n, topic_id=T, replicas=(1, 2, 3, 4), adding=(4,)) for n in range(2000)]
    made = multis(image, moves, limit=200_000)
    counts = [sum(write.path == paths.topic("t") for write in multi.writes) for multi in made]
    assert counts == [1] * len(made) and len(made) > 3
    assert all(sum(map(weight, multi.writes)) <= 200_000 for multi in made)


@pytest.mark.parametrize("limit", [60_000, 200_000])
def test_a_topic_too_large_for_one_multi_comes_whole_or_not_at_all(limit: int) -> None:
    """Also more partitions of one, and one that goes: the tree says one or the other after each multi, and whoever
    loads it can go on, though the repairs are cut short, too."""
    small = topic("small", 1, UUID(int=4))
    image, _ = START.apply(small, START.next_offset)
    tree = tree_of(image)
    for step in (
        topic("large", 500), [partition(number) for number in range(500, 900)], [RemoveTopicRecord(topic_id=T)],
    ):  # fmt: skip
        after, _ = image.apply(step, image.next_offset)
        found = []
        made = multis(image, step, limit)
        assert len(made) > 2
        for multi in made:
            assert sum(map(weight, multi.writes)) <= limit
            tree.write(multi.writes)
            found.append(image_of(tree.asked(), "c"))
            goes_on(tree.copy(), found[-1], limit)
        assert found[-1] == after and set(found_offsets(found)) <= {image.offset, after.offset}
        assert all(one in (image, after) for one in found)
        image = after


def found_offsets(images: list[ClusterImage]) -> list[int | None]:
    return [image.offset for image in images]


def goes_on(tree: MemoryTree, image: ClusterImage, limit: int) -> None:
    for piece in list(cut(read_tree(tree.asked()).repairs, limit))[:2]:
        tree.write(piece)
        assert image_of(tree.asked(), "c") == image
    for piece in cut(read_tree(tree.asked()).repairs, limit):
        tree.write(piece)
    assert not read_tree(tree.asked()).repairs
    assert image_of(tree.asked(), "c") == image
    if "large" not in image.topics:
        again = topic("large", 3, UUID(int=9))
        for multi in multis(image, again):
            tree.write(multi.writes)
        assert image_of(tree.asked(), "c") == image.apply(again, image.next_offset)[0]


def test_a_node_that_is_too_large_is_refused_by_its_name() -> None:
    with pytest.raises(MetadataError, match=r"^znode /brokers/topics/t: has \d+ bytes: expected \d+ at most, by jute"):
        multis(START, topic("t", 4000), limit=50_000)
    value = ConfigRecord(resource_type=4, resource_name="", name="k", value="v" * 60_000)
    with pytest.raises(MetadataError, match=r"^znode /config/brokers/<default>: has \d+ bytes: expected"):
        multis(START, [value], limit=50_000)


def test_a_configuration_that_is_emptied_keeps_its_node_as_in_kafka() -> None:
    tree, image = tree_of(START), START
    path = "/config/brokers/1"
    writer = TreeWriter(read_tree(tree.asked()).emptied)
    for value, kind in (("a", "CreateNode"), (None, "SetNode"), ("b", "SetNode"), (None, "SetNode")):
        record = ConfigRecord(resource_type=4, resource_name="1", name="k", value=value)
        after, _ = image.apply([record], image.next_offset)
        for multi in writer.writes(image, after, [record], LIMIT):
            assert [type(write).__name__ for write in multi.writes if write.path == path] == [kind]
            tree.write(multi.writes)
        image = after
        assert image_of(tree.asked(), "c") == image
    assert writer.emptied == read_tree(tree.asked()).emptied == {path}


# -- trees of Kafka's ------------------------------------------------------------------------------------------


def test_a_tree_of_kafkas_that_is_taken_over_gets_what_it_lacks() -> None:
    """The topic was being made when its controller died: its configuration is there, and one state of two."""
    tree = MemoryTree.with_base()
    broker = values.BrokerIdsNode(endpoints=Endpoints.one("h", 9092), timestamp_ms=1)
    tree.write(registration(1, broker))
    data = values.topic_node(START.apply(topic("t", 2), 1)[0].topics["t"])
    for path, value in (
        ("/brokers/topics/t", data), ("/brokers/topics/t/partitions", b""), ("/brokers/topics/t/partitions/0", b""),
        ("/brokers/topics/t/partitions/0/state", STATE), ("/config/topics/gone", b'{"version":1,"config":{"a":"b"}}'),
    ):  # fmt: skip
        tree.nodes[path] = TreeNode(data=value, czxid=4711, version=3)
    reading = read_tree(tree.asked())
    image = image_of(tree.asked(), "c")
    assert not reading.is_ours
    assert image.brokers[1].epoch == tree.nodes["/brokers/ids/1"].czxid and not image.brokers[1].fenced
    first, second = image.topics["t"].partitions[0], image.topics["t"].partitions[1]
    assert (first.leader, first.isr, first.partition_epoch) == (1, (1,), 3)
    assert (second.leader, second.isr, second.leader_epoch) == (None, (1, 2, 3), 0)
    assert image.next_offset > image.brokers[1].epoch
    tree.write(reading.repairs)
    assert paths.config(2, "gone") not in tree.nodes
    records = [CLAIM, PartitionChangeRecord(partition=1, topic_id=T, leader=1), RemoveTopicRecord(topic_id=T)]
    tree.write([log_end(image, image.next_offset)])
    for record in records:
        for multi in multis(image, [record]):
            tree.write(multi.writes)
        image, _ = image.apply([record], image.next_offset)
        assert image_of(tree.asked(), "c") == image
        assert read_tree(tree.asked()).is_ours and not read_tree(tree.asked()).repairs


def test_a_tree_of_ours_knows_brokers_by_our_nodes_alone() -> None:
    """A broker that has its ephemeral node and is not registered yet is no broker of the cluster."""
    endpoint = Endpoint(name="PLAINTEXT", host="h", port=1)
    record = RegisterBrokerRecord(broker_id=2, incarnation_id=T, broker_epoch=1, endpoints=(endpoint,), fenced=False)
    tree = tree_of(START.apply([record], START.next_offset)[0])
    tree.write(registration(1, values.BrokerIdsNode(endpoints=Endpoints.one("h", 9092), timestamp_ms=1)))
    assert set(image_of(tree.asked(), "c").brokers) == {2}
