"""What ``--json`` prints of topics and groups: the keys, and absence as null."""

import json
from uuid import UUID

from click.testing import CliRunner

from holdfast.cli import main as entry
from holdfast.cli.documents import (
    GroupDocument,
    described_groups_document,
    described_topics_document,
    groups_document,
    topics_document,
)
from holdfast.cli.topic_lines import Filter
from holdfast.client.views import (
    BrokerNode,
    CommittedOffset,
    ConfigValue,
    GroupListing,
    GroupMember,
    GroupView,
    PartitionMetadata,
    TopicView,
)
from holdfast.model.types import TopicPartition

NOBODY = ["--bootstrap-server", "127.0.0.1:1"]


def topic(name: str, *leaders: int | None) -> TopicView:
    partitions = tuple(
        PartitionMetadata(
            partition=n, leader=leader, leader_epoch=4, replicas=(1, 2), isr=(1,) if leader else (), offline=(2,)
        )
        for n, leader in enumerate(leaders)
    )
    return TopicView(name=name, topic_id=UUID(int=1), internal=False, partitions=partitions)


def config(name: str, source: str) -> ConfigValue:
    return ConfigValue(name=name, value="1", source=source, read_only=False, sensitive=False)


CONFIGS = {
    "a": [config("retention.ms", "DYNAMIC_TOPIC_CONFIG"), config("min.insync.replicas", "DEFAULT_CONFIG")],
    "b": [config("min.insync.replicas", "DEFAULT_CONFIG")],
}
A = {
    "name": "a",
    "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
    "internal": False,
    "replication_factor": 2,
}
P0 = {"partition": 0, "leader": 1, "leader_epoch": 4, "replicas": [1, 2], "isr": [1], "offline": [2]}
P1 = {"partition": 1, "leader": None, "leader_epoch": 4, "replicas": [1, 2], "isr": [], "offline": [2]}


def test_topics_are_listed() -> None:
    assert json.loads(topics_document([topic("a", 1, None)])) == {"topics": [{**A, "partition_count": 2}]}
    assert json.loads(topics_document([])) == {"topics": []}


def test_topics_are_described_and_filtered() -> None:
    both = [topic("b", 1), topic("a", 1, None)]
    a = {**A, "configs": {"retention.ms": "1"}, "partitions": [P0, P1]}
    b = {**A, "name": "b", "configs": {}, "partitions": [P0]}

    def described(chosen: Filter) -> object:
        return json.loads(described_topics_document(both, CONFIGS, (1, 2), chosen))["topics"]

    assert described(Filter()) == [a, b]
    assert described(Filter(with_overrides=True)) == [a]
    assert described(Filter(unavailable=True)) == [{**a, "partitions": [P1]}]


def test_groups_are_listed() -> None:
    listed = [GroupListing(group_id="g", protocol_type="", state="Empty")]
    assert json.loads(groups_document(listed)) == {"groups": [{"group": "g", "state": "Empty", "protocol_type": None}]}


def test_groups_are_described_with_what_is_known() -> None:
    t0, t1, t2 = (TopicPartition("t", n) for n in range(3))
    member = GroupMember(member_id="m", instance_id=None, client_id="c", host="/h", assignment=(t1, t0))
    view = GroupView(
        group_id="g",
        state="Stable",
        protocol_type="consumer",
        protocol="range",
        members=(member,),
        coordinator=BrokerNode(broker_id=1, host="h", port=9),
    )
    committed = {t0: CommittedOffset(offset=3), t2: CommittedOffset(offset=4)}
    group = GroupDocument(view=view, committed=committed, ends={t0: 10, t1: 5})
    document = json.loads(described_groups_document([group], {"a": "no such group"}))
    keys = ("partition", "current_offset", "log_end_offset", "lag", "member_id")
    assert document == {
        "groups": [
            {"group": "a", "error": "no such group"},
            {
                "group": "g",
                "state": "Stable",
                "protocol_type": "consumer",
                "protocol": "range",
                "coordinator": {"broker": 1, "host": "h", "port": 9},
                "members": [
                    {
                        "member_id": "m",
                        "instance_id": None,
                        "client_id": "c",
                        "host": "/h",
                        "assignment": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}],
                    }
                ],
                "offsets": [
                    {"topic": "t"} | dict(zip(keys, values, strict=True))
                    for values in ((0, 3, 10, 7, "m"), (1, None, 5, None, "m"), (2, 4, None, None, None))
                ],
            },
        ]
    }


def test_standard_output_is_json_or_empty() -> None:
    for noun, verb in (("topics", "list"), ("topics", "describe"), ("groups", "list")):
        result = CliRunner().invoke(entry.main, [noun, verb, "--json", *NOBODY], prog_name="holdfast")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith(f"holdfast {noun}: no broker can be reached: ")
    for args in (["--json"], ["g", "--json", "--members"]):
        result = CliRunner().invoke(entry.main, ["groups", "describe", *args, *NOBODY], prog_name="holdfast")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("holdfast groups: ")
        assert len(result.stderr.splitlines()) == 1
