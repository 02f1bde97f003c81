"""Printed lines against what Apache Kafka 4.3.0 printed: parse its output into views, render them again."""

import base64
import json
import pathlib
import re
from typing import Any
from uuid import UUID

import pytest

from holdfast.cli.group_lines import list_lines, member_lines, offset_lines, state_lines
from holdfast.cli.groups import delete_lines
from holdfast.cli.topic_lines import Filter, base64_id, describe_lines
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
from holdfast.model.group_errors import GroupIdNotFoundError, NonEmptyGroupError
from holdfast.model.types import TopicPartition

GOLDEN = pathlib.Path(__file__).parents[2] / "golden/cli/4.3.0"


def recorded(file: str, *wanted: str) -> list[dict[str, Any]]:
    """Recordings whose arguments after the bootstrap server are ``wanted``."""
    return [r for r in json.loads((GOLDEN / file).read_text()) if r["command"][3:] == list(wanted)]


def columns(line: str) -> dict[str, str]:
    return dict(part.split(": ", 1) for part in line.strip("\t").split("\t"))


def ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def parse_topics(text: str) -> tuple[list[TopicView], dict[str, list[ConfigValue]]]:
    topics: dict[str, TopicView] = {}
    configs: dict[str, list[ConfigValue]] = {}
    for line in text.splitlines():
        c = columns(line)
        name = c["Topic"]
        if not line.startswith("\t"):
            raw = base64.urlsafe_b64decode(c["TopicId"] + "==")
            topics[name] = TopicView(name=name, topic_id=UUID(bytes=raw), internal=False, partitions=())
            pairs = (pair.split("=") for pair in c["Configs"].split(","))
            configs[name] = [
                ConfigValue(name=k, value=v, source="DYNAMIC_TOPIC_CONFIG", read_only=False, sensitive=False)
                for k, v in pairs
            ]
            continue
        partition = PartitionMetadata(
            partition=int(c["Partition"]),
            leader=int(c["Leader"]),
            leader_epoch=0,
            replicas=ids(c["Replicas"]),
            isr=ids(c["Isr"]),
            offline=(),
        )
        before = topics[name]
        topics[name] = TopicView(
            name=name, topic_id=before.topic_id, internal=False, partitions=(*before.partitions, partition)
        )
    return list(topics.values()), configs


def render(topics: list[TopicView], configs: Any, chosen: Filter, live: tuple[int, ...] = (1, 2, 3)) -> str:
    return "".join(f"{line}\n" for line in describe_lines(topics, configs, live, chosen))


def without_offline(text: str) -> str:
    return re.sub(r"\tOffline: [\d,]*", "", text)


@pytest.mark.parametrize("record", recorded("kafka-topics.json", "--describe"))
def test_describe_prints_kafkas_lines(record: dict[str, Any]) -> None:
    topics, configs = parse_topics(record["stdout"])
    assert without_offline(render(topics, configs, Filter())) == record["stdout"]


def test_filters_print_what_kafkas_do() -> None:
    # The recordings of filters were made after t1 had got a partition more and d.ot was gone.
    everything = recorded("kafka-topics.json", "--describe", "--topic", "t.*")[0]["stdout"]
    topics, configs = parse_topics(everything + UNDER_SCORE)
    for option, chosen in {
        "--under-replicated-partitions": Filter(under_replicated=True),
        "--unavailable-partitions": Filter(unavailable=True),
        "--under-min-isr-partitions": Filter(under_min_isr=True),
        "--at-min-isr-partitions": Filter(at_min_isr=True),
        "--topics-with-overrides": Filter(with_overrides=True),
    }.items():
        expected = recorded("kafka-topics.json", "--describe", option)[0]["stdout"]
        assert without_offline(render(topics, configs, chosen)) == expected, option


UNDER_SCORE = (
    "Topic: under_score\tTopicId: Sr9IUmzJT_yDLulVfC67qA\tPartitionCount: 1\tReplicationFactor: 1\t"
    "Configs: min.insync.replicas=1\n"
    "\tTopic: under_score\tPartition: 0\tLeader: 3\tReplicas: 3\tIsr: 3\tElr: \tLastKnownElr: \n"
)


def trouble(**changes: Any) -> list[TopicView]:
    values: dict[str, Any] = {
        "partition": 0,
        "leader": 2,
        "leader_epoch": 5,
        "replicas": (1, 2, 3),
        "isr": (2, 3),
        "offline": (1,),
    }
    partition = PartitionMetadata(**(values | changes))
    return [TopicView(name="t", topic_id=None, internal=False, partitions=(partition,))]


def test_K112_52_offline_replicas_have_a_column() -> None:
    assert "Isr: 2,3\tOffline: 1" in render(trouble(), {}, Filter())


def test_a_partition_without_a_leader_says_so() -> None:
    assert "\tLeader: none\t" in render(trouble(leader=None), {}, Filter(unavailable=True))


def test_filters_find_trouble() -> None:
    assert render(trouble(), {}, Filter(under_replicated=True)).startswith("\tTopic: t\tPartition: 0")
    assert render(trouble(), {}, Filter(unavailable=True)) == ""
    assert render(trouble(), {}, Filter(unavailable=True), live=(1, 3)) != ""
    min_isr = {"t": [ConfigValue(name="min.insync.replicas", value="3", source="x", read_only=False, sensitive=False)]}
    assert render(trouble(), min_isr, Filter(under_min_isr=True)) != ""
    assert render(trouble(), min_isr, Filter(at_min_isr=True)) == ""


def test_an_absent_topic_id_prints_as_nothing() -> None:
    assert base64_id(None) == ""


# -- groups --------------------------------------------------------------------------------------------------

MEMBER = GroupMember(
    member_id="golden-client-cfe0d2fd-0a73-4586-aa63-2a37d43b9782",
    instance_id=None,
    client_id="golden-client",
    host="/127.0.0.1",
    assignment=(TopicPartition("t2", 0), TopicPartition("t2", 1)),
)


def group(*members: GroupMember, state: str = "Stable") -> GroupView:
    return GroupView(
        group_id="cg",
        state=state,
        protocol_type="consumer",
        protocol="range",
        members=members,
        coordinator=BrokerNode(broker_id=3, host="127.0.0.1", port=22193),
    )


COMMITTED = {TopicPartition("t2", 1): CommittedOffset(offset=50)}
ENDS = {TopicPartition("t2", 0): 400, TopicPartition("t2", 1): 400}


def stdout(*wanted: str, nth: int = 0) -> str:
    text = recorded("kafka-consumer-groups.json", *wanted)[nth]["stdout"]
    assert isinstance(text, str)
    return text


def printed(lines: Any) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_groups_are_listed_as_kafka_lists_them() -> None:
    listing = [GroupListing(group_id="cg", protocol_type="consumer", state="Stable")]
    assert printed(list_lines(listing, state=False)) == stdout("--list")
    assert printed(list_lines(listing, state=True)) == stdout("--list", "--state")


def test_offsets_of_an_active_group() -> None:
    assert printed(offset_lines(group(MEMBER), COMMITTED, ENDS)) == stdout("--describe", "--group", "cg")


def test_offsets_of_a_group_without_members() -> None:
    expected = stdout("--describe", "--group", "cg", nth=1)
    assert printed(offset_lines(group(state="Empty"), COMMITTED, ENDS)) == expected


def test_an_end_that_is_not_known_leaves_the_lag_open() -> None:
    last = list(offset_lines(group(state="Empty"), COMMITTED, {}))[-1]
    assert last.split() == ["cg", "t2", "1", "50", "-", "-", "-", "-", "-"]


def test_members_and_what_they_read() -> None:
    expected = stdout("--describe", "--group", "cg", "--members", "--verbose")
    assert printed(member_lines(group(MEMBER), verbose=True)) == expected
    assert "t2:0,1" not in printed(member_lines(group(MEMBER), verbose=False))


def test_state_of_a_group() -> None:
    assert printed(state_lines(group(MEMBER))) == stdout("--describe", "--group", "cg", "--state")


def test_deletions_are_told_as_kafka_tells_them() -> None:
    active, missing, done = (
        stdout("--delete", "--group", "cg"),
        stdout("--delete", "--group", "nogroup"),
        stdout("--delete", "--group", "cg", nth=1),
    )
    assert printed(delete_lines(["cg"], {"cg": NonEmptyGroupError()})) == active
    assert printed(delete_lines(["nogroup"], {"nogroup": GroupIdNotFoundError()})) == missing
    assert printed(delete_lines(["cg"], {})) == done
