"""Plans for replicas, and what is said of them, beside what Apache Kafka 4.3.0's tool printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli import main as entry
from holdfast.cli.reassign_lines import (
    PlanError,
    Replica,
    list_lines,
    move_lines,
    parse_brokers,
    parse_plan,
    parse_topics,
    plan_json,
    reassignment_lines,
    refuse_unknown_brokers,
    shrinking_line,
    started,
    throttled,
)
from holdfast.client.reassignments import ThrottledReplicas
from holdfast.client.views import ClusterMetadata, PartitionMetadata, ReassignmentView, TopicView
from holdfast.model.types import TopicPartition

RECORDED = Path(__file__).parents[2] / "golden" / "cli" / "4.3.0" / "kafka-reassign-partitions.json"
GOLDEN = json.loads(RECORDED.read_text())
T2 = TopicPartition("t2", 0)


def said(note: str) -> list[str]:
    """What Kafka's tool printed for the recorded command with this note, or with this plan."""
    found: str = next(c["stdout"] for c in GOLDEN if c.get("note") == note or note in c["command"])
    return found.splitlines()


def document(*partitions: dict[str, Any], **more: Any) -> str:
    return json.dumps({"version": 1, "partitions": partitions, **more})


def t2(*replicas: int, **more: Any) -> dict[str, Any]:
    return {"topic": "t2", "partition": 0, "replicas": replicas, **more}


@pytest.mark.parametrize(
    ("note", "text"),
    [
        ("log_dirs shorter than replicas", document(t2(3, 2, log_dirs=["any"]))),
        ("duplicate replica", document(t2(3, 3))),
        ("partition twice", document(t2(3, 2), t2(3, 2))),
        ("empty list", document()),
        ("version 2", document(t2(3, 2), version=2)),
        ("no partitions key", json.dumps({"version": 1})),
        ("empty replica list", document(t2())),
    ],
)
def test_K113_11_a_plan_that_cannot_be_is_refused_in_kafkas_words(note: str, text: str) -> None:
    with pytest.raises(PlanError) as refused:
        parse_plan(text)
    assert f"Error: {refused.value}" == said(note)[0]


@pytest.mark.parametrize("text", ["{a", "[]", document({"topic": "t2"}), document({**t2(1), "replicas": "x"})])
def test_what_is_no_plan_is_told(text: str) -> None:
    with pytest.raises(PlanError):
        parse_plan(text)


def test_a_plan_names_replicas_and_directories() -> None:
    plan = parse_plan(document(t2(3, 2, log_dirs=["/d1", "any"]), {"topic": "u", "partition": 7, "replicas": [1]}))
    assert plan.replicas == {T2: (3, 2), TopicPartition("u", 7): (1,)}
    assert plan.moves == {Replica(T2, 3): "/d1"}
    paths = {Replica(T2, 1): "/kafka/n1/d1", Replica(T2, 2): "/kafka/n2/d0"}
    assert plan_json({T2: (1, 2)}, paths) == said("plan.json")[2]


def test_topics_and_brokers_to_plan_for() -> None:
    assert parse_topics('{"version":1,"topics":[{"topic":"a"},{"topic":"b"}]}') == ["a", "b"]
    assert parse_brokers("3,1") == [3, 1]
    with pytest.raises(PlanError) as refused:
        parse_brokers("1,1")
    lines = next(c["stdout"] for c in GOLDEN if "1,1" in c["command"]).splitlines()
    assert f"Error: {refused.value}" == lines[0]
    for text in ("1,x", ""):
        with pytest.raises(PlanError):
            parse_brokers(text)
    for text in ('{"topics":[]}', '{"topics":[{}]}'):
        with pytest.raises(PlanError):
            parse_topics(text)


def view(*replicas: int) -> ClusterMetadata:
    partition = PartitionMetadata(partition=0, leader=1, leader_epoch=0, replicas=replicas, isr=replicas, offline=())
    topic = TopicView(name="t2", topic_id=None, internal=False, partitions=(partition,))
    return ClusterMetadata(cluster_id="c", controller_id=1, brokers={}, topics={"t2": topic})


def test_K113_11_the_state_of_a_plan() -> None:
    plan = parse_plan(document(t2(3, 2)))
    running = {T2: ReassignmentView(replicas=(3, 2, 1), adding=(3,), removing=(1,))}
    assert reassignment_lines(plan, running, view(3, 2, 1)) == (said("--verify")[:2], False)
    assert reassignment_lines(plan, {}, view(3, 2)) == (
        ["Status of partition reassignment:", "Reassignment of partition t2-0 is completed."], True,
    )  # fmt: skip
    (_, line), over = reassignment_lines(plan, {}, view(1, 2))
    assert over
    assert line == "There is no active reassignment of partition t2-0, but replica set is 1,2 rather than 3,2."
    assert list_lines(running) == said("--list")
    assert list_lines({}) == ["No partition reassignments found."]
    assert started([T2]) == said("plan.json")[-1]
    assert started([T2, TopicPartition("t1", 1)]) == "Successfully started partition reassignments for t1-1,t2-0"


def test_K113_11_the_state_of_moves() -> None:
    replica = Replica(T2, 3)
    wanted, other = {replica: "/kafka/n3/d1"}, {replica: "/kafka/n3/d0"}
    assert move_lines(wanted, wanted, {}) == (["Reassignment of replica t2-0-3 completed successfully."], True)
    assert move_lines(wanted, other, wanted) == (["Reassignment of replica t2-0-3 is still in progress."], False)
    (line,), over = move_lines(wanted, other, {})
    assert over and line == said("verify against the other dir")[2]
    (line,), _ = move_lines(wanted, {}, {})
    assert line == (
        "Partition t2-0 is not found in any live log dir on broker 3. There is likely an offline log directory on the "
        "broker."
    )
    (line,), _ = move_lines(wanted, other, {replica: "/kafka/n3/d2"})
    assert line == "Partition t2-0 on broker 3 is being moved to log dir /kafka/n3/d2 instead of /kafka/n3/d1."


def test_a_plan_that_is_not_there_is_told() -> None:
    words = ["reassign", "execute", "--reassignment-json-file", "/nonexistent.json"]
    result = CliRunner().invoke(entry.main, words)
    assert (result.exit_code, result.stderr) == (
        1, "holdfast reassign: /nonexistent.json: No such file or directory\n",
    )  # fmt: skip
    result = CliRunner().invoke(entry.main, [*words, "--kafka-errors"])
    assert (result.exit_code, result.stderr) == (1, said("/nonexistent.json")[0] + "\n")


def test_B12_a_plan_that_lowers_the_replication_factor_says_so() -> None:
    u = TopicPartition("u", 1)
    now = {T2: (1, 2, 3), u: (1, 2)}
    assert shrinking_line({T2: (3, 2, 1), u: (2, 3)}, now) is None
    assert shrinking_line({T2: (3,), u: (2, 3, 1)}, now) == (
        "Warning: this plan lowers the replication factor, fewer replicas than now: t2-0 (3 to 1)"
    )


def test_operator_C6_a_broker_that_the_cluster_has_not_is_named() -> None:
    refuse_unknown_brokers([3, 1], [1, 2, 3])
    with pytest.raises(PlanError, match=r"^broker 9 does not exist: expected some of 1, 2, 3$"):
        refuse_unknown_brokers([1, 9, 8], [3, 2, 1])


def test_C_2_an_additional_plan_keeps_the_limit_of_what_is_under_way() -> None:
    """A topic's lists are set whole: a plan for one partition must not free those of another one."""
    moving, other = TopicPartition("t2", 1), TopicPartition("u", 3)
    running = {
        moving: ReassignmentView(replicas=(4, 5, 1), adding=(4, 5), removing=(1,)),
        other: ReassignmentView(replicas=(6, 7), adding=(6,), removing=(7,)),
    }
    topics, brokers = throttled({T2: (2, 3)}, {T2: (1, 2)}, running)
    assert topics == {"t2": ThrottledReplicas("0:1,0:2,1:1", "0:3,1:4,1:5"), "u": ThrottledReplicas("3:7", "3:6")}
    assert brokers == [1, 2, 3, 4, 5, 6, 7]


def test_C_2_the_limit_of_a_partition_that_is_sent_elsewhere_on_its_way() -> None:
    running = {T2: ReassignmentView(replicas=(3, 1, 2), adding=(3,), removing=(1,))}
    topics, brokers = throttled({T2: (4, 2)}, {T2: (3, 1, 2)}, running)
    assert topics == {"t2": ThrottledReplicas("0:1,0:2", "0:4")}
    assert brokers == [1, 2, 4]
