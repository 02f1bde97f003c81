"""What a dump says, how it is read again, and how two are compared."""

from __future__ import annotations

from dataclasses import fields
from uuid import UUID

import pytest

from holdfast.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from holdfast.metadata.listing import (
    HEADER,
    difference_lines,
    differences,
    listing,
    parse,
    to_json,
    to_json_difference,
    to_text,
)
from holdfast.metadata.moved import Moved, decode, encode
from holdfast.metadata.records import (
    AccessControlEntryRecord,
    ConfigRecord,
    ControllerClaimRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from holdfast.model.errors import ConfigError, MetadataError
from holdfast.model.listeners import Endpoint
from holdfast.security.acls import AclBinding, AclEntry, ResourcePattern
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind

T, DIR = UUID(int=7), UUID(int=9)
ACL = AclBinding(
    ResourcePattern(ResourceKind.TOPIC, "a b", PatternKind.PREFIXED),
    AclEntry("User:a=", "*", Operation.DESCRIBE_CONFIGS, Permission.DENY),
)
RECORDS: tuple[MetadataRecord, ...] = (
    FeatureLevelRecord(name="metadata version", level=7),
    RegisterBrokerRecord(
        broker_id=10, incarnation_id=UUID(int=1), broker_epoch=3, endpoints=(Endpoint(name="A", host="::1", port=9),),
        rack="row 1", fenced=False, log_dirs=(DIR,), cordoned=(DIR,), features=(("transaction.version", 0, 2),),
    ),
    RegisterBrokerRecord(
        broker_id=9, incarnation_id=UUID(int=2), broker_epoch=4, endpoints=(Endpoint(name="A", host="h", port=8),)
    ),
    TopicRecord(name="t", topic_id=T),
    PartitionRecord(
        partition=0, topic_id=T, replicas=(9, 10), isr=(9,), leader=9, leader_epoch=2, partition_epoch=5, created=4,
    ),
    ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
    ConfigRecord(resource_type=4, resource_name="", name="a: b", value="two\nlines = ä"),
    ConfigRecord(resource_type=101, resource_name="", name="", value=""),
    AccessControlEntryRecord(id=ACL.id(), acl=ACL),
    ProducerIdsRecord(broker_id=9, broker_epoch=4, next_producer_id=5000),
    ControllerClaimRecord(controller_epoch=3, broker_id=9, host="h", port=8),
)  # fmt: skip
IMAGE = ClusterImage.empty("A" * 22).apply(RECORDS, 0)[0]
TEXT = f"""{HEADER}
cluster: id=AAAAAAAAAAAAAAAAAAAAAA
log: end_offset=11
controller: id=9 epoch=3
producer-ids: next=5000
feature metadata%20version: level=7
broker 9: epoch=4 incarnation=00000000-0000-0000-0000-000000000002 fenced=true draining=false rack=- log_dirs=- \
cordoned=- features=- listeners=A inter_broker=A control_plane=A
listener 9 A: at=A://h:8 protocol=PLAINTEXT
broker 10: epoch=3 incarnation=00000000-0000-0000-0000-000000000001 fenced=false draining=false rack='row%201' \
log_dirs={DIR} cordoned={DIR} features=transaction.version:0-2 listeners=A inter_broker=A control_plane=A
listener 10 A: at=A://[::1]:9 protocol=PLAINTEXT
topic t: id={T}
partition t 0: replicas=9,10 isr=9 leader=9 leader_epoch=2 partition_epoch=5 adding=- removing=- elr=- \
last_known_elr=- recovery=recovered created=4 directories=-
config topic t retention.ms: value=1
config broker <default> a%3A%20b: value=two%0Alines%20=%20%C3%A4
config 101 <default> '': value=
acl Topic PREFIXED a%20b User:a= * DescribeConfigs: permission=Deny
"""


def test_a_dump_has_one_thing_a_line_in_the_order_of_their_numbers() -> None:
    assert to_text(listing(IMAGE)) == TEXT


def test_every_field_of_an_image_is_in_its_listing() -> None:
    """A field that is added is missing in dumps, and in the check of a migration, until it is added there too."""
    names = {kind: {field.name for field in fields(kind)} for kind in (ClusterImage, BrokerImage, PartitionImage)}
    assert names[ClusterImage] == {
        "cluster_id", "brokers", "topics", "topic_names", "configs", "features", "acls", "users", "quotas",
        "next_producer_id", "controller_id", "controller_epoch", "offset",
    }  # fmt: skip
    assert names[BrokerImage] == {
        "id", "epoch", "incarnation_id", "endpoints", "rack", "fenced", "in_controlled_shutdown", "log_dirs",
        "cordoned", "features",
    }  # fmt: skip
    assert names[PartitionImage] == {
        "replicas", "isr", "leader", "leader_epoch", "partition_epoch", "adding", "removing", "directories", "elr",
        "last_known_elr", "recovery_state", "created",
    }  # fmt: skip
    assert {field.name for field in fields(TopicImage)} == {"name", "topic_id", "partitions"}


@pytest.mark.parametrize("form", [to_text, to_json])
def test_both_forms_read_as_what_was_written(form: object) -> None:
    assert callable(form)
    assert parse("file", form(listing(IMAGE))) == listing(IMAGE)


def test_what_differs_is_named_with_both_sides() -> None:
    other, _ = IMAGE.apply(
        [
            PartitionChangeRecord(partition=0, topic_id=T, isr=(9, 10), leader=10),
            ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None),
            ConfigRecord(resource_type=2, resource_name="t", name="x", value="y"),
        ],
        11,
    )
    found = differences(listing(IMAGE), listing(other))
    assert [line for each in found for line in difference_lines(each)] == [
        "! log: end_offset is 11 < > 14",
        "! partition t 0: isr is 9 < > 9,10",
        "! partition t 0: leader is 9 < > 10",
        "! partition t 0: leader_epoch is 2 < > 3",
        "! partition t 0: partition_epoch is 5 < > 6",
        "< config topic t retention.ms: value=1",
        "> config topic t x: value=y",
    ]
    assert '"config topic t x": [\n   null,' in to_json_difference(found)
    assert differences(listing(IMAGE), listing(IMAGE)) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1 is ''"),
        ("# holdfast metadata, version 2\n", "version 2': expected '# holdfast metadata, version 1'"),
        (f"{HEADER}\nlog end_offset=1\n", "line 2 is 'log end_offset=1': expected NAME"),
        (f"{HEADER}\nlog: end_offset\n", "line 2: 'end_offset': expected FIELD=VALUE"),
        (f"{HEADER}\nlog: a=1\nlog: a=1\n", "line 3 .* each name once"),
        ("{", "is no JSON"),
        ('{"version": 2, "metadata": {}}', "dump --json"),
        ('{"version": 1, "metadata": {"log": {"a": 1}}}', "dump --json"),
        ('{"version": 1}', "dump --json"),
    ],
)
def test_what_is_no_dump_is_refused_with_its_place(text: str, why: str) -> None:
    with pytest.raises(MetadataError, match=f"^FILE.*{why}"):
        parse("FILE", text)


def test_a_mark_reads_as_it_was_written_and_a_broker_that_meets_it_says_where_the_metadata_is() -> None:
    for is_whole, words in ((True, "was left"), (False, "holds no whole metadata")):
        mark = Moved(to="the ZooKeeper store h:1/a", by="1", is_whole=is_whole)
        assert decode("/x", encode(mark)) == mark
        error = mark.refusal("HERE")
        assert isinstance(error, ConfigError)
        assert str(error).startswith(f"HERE {words}") and "the ZooKeeper store h:1/a" in str(error)


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b'{"to": "x"}', b'{"to": "x", "by": "y", "whole": 1}'])
def test_what_is_no_mark_is_an_error_with_its_place(data: bytes) -> None:
    with pytest.raises(MetadataError, match=r"^/holdfast/moved: .*expected where the metadata was moved"):
        decode("/holdfast/moved", data)
