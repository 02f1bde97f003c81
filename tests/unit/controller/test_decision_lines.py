"""Every decision of the controller is one line, with an event and its fields; many of one kind are counted."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from holdfast.controller import events
from holdfast.controller.decision_lines import NAMED, PER_SECOND, DecisionLines
from holdfast.metadata.records import ResourceType
from holdfast.model.log_events import EventLine, LogEvent
from tests.unit.controller.test_elections import Cluster
from tests.unit.controller.test_reassignment import ask, reassign


def lines_of(cluster: Cluster, lines: DecisionLines | None = None, now_ms: int = 0) -> list[EventLine]:
    """Of the last decision."""
    assert cluster.delta is not None
    return (lines or DecisionLines()).of(cluster.delta, cluster.image, now_ms)


def names(found: list[EventLine]) -> list[str]:
    return [line.event.value.name for line in found]


def only(cluster: Cluster, event: LogEvent) -> EventLine:
    (found,) = [line for line in lines_of(cluster) if line.event is event]
    return found


def test_a_topic_is_made_grows_and_goes() -> None:
    cluster = Cluster(3)
    cluster.create("t", (1, 2), (2, 3), retention_ms="5")
    found = lines_of(cluster)
    assert names(found) == ["topic.created", "config.changed"]
    topic_id = str(cluster.image.topics["t"].topic_id)
    assert found[0].message == "topic t is there with 2 partitions"
    assert found[0].fields == {
        "topic": "t", "topic_id": topic_id, "partitions": 2, "replication_factor": 2, "leaderless": 0,
    }  # fmt: skip
    assert found[1].fields == {"resource": "topic", "name": "t", "changes": ("retention.ms=5",)}
    more = events.MorePartitions(name="t", count=3)
    assert cluster.ask(events.CreatePartitions(topics=(more,))).topics[0].error is None
    assert [(line.event, dict(line.fields)) for line in lines_of(cluster)] == [
        (LogEvent.TOPIC_PARTITIONS_ADDED, {"topic": "t", "partitions": 3, "added": 1})
    ]
    cluster.ask(events.DeleteTopics(topics=(("t", None),)))
    (line,) = lines_of(cluster)
    assert (line.event, line.fields) == (LogEvent.TOPIC_DELETED, {"topic": "t", "topic_id": topic_id, "partitions": 3})


def test_a_broker_comes_dies_and_comes_back() -> None:
    cluster = Cluster(0)
    incarnation = UUID(int=1)
    registers = events.BrokerRegister(
        broker_id=1, incarnation_id=incarnation, endpoints=Cluster(1).image.brokers[1].endpoints, rack="r",
        log_dirs=(UUID(int=8), UUID(int=9)),
    )  # fmt: skip
    epoch = cluster.ask(registers).broker_epoch
    line = only(cluster, LogEvent.BROKER_REGISTERED)
    assert (line.fields["broker"], line.fields["epoch"], line.fields["log_dirs"], line.fields["rack"]) == (
        1, epoch, 2, "r",
    )  # fmt: skip
    cluster.ask(events.BrokerHeartbeat(broker_id=1, broker_epoch=epoch))
    assert names(lines_of(cluster)) == ["broker.unfenced"]

    cluster = Cluster(3)
    cluster.create("t", (1, 2, 3), (2, 3, 1))
    cluster.create("single", (1,))
    cluster.die(1)
    found = lines_of(cluster)
    assert found[0].event is LogEvent.BROKER_FENCED and found[0].level == logging.WARNING
    assert found[0].fields == {"broker": 1, "leaders_moved": 1, "leaderless": 1, "isr_left": 2}
    assert "others lead 1 partitions of it, nobody leads 1, it left 2 ISRs" in found[0].message
    assert sorted(names(found[1:])) == ["isr.shrunk", "isr.shrunk", "leader.elected", "leader.lost"]
    elected, lost = only(cluster, LogEvent.LEADER_ELECTED), only(cluster, LogEvent.LEADER_LOST)
    p = cluster.partition("t")
    assert elected.fields == {
        "topic": "t", "partition": 0, "broker": 2, "before": 1, "epoch": p.leader_epoch, "clean": True,
    }  # fmt: skip
    assert (elected.level, lost.level) == (logging.INFO, logging.WARNING)
    assert (lost.fields["topic"], lost.fields["broker"], lost.fields["isr"]) == ("single", 1, (1,))
    cluster.start(1)
    assert "leader.elected" in names(lines_of(cluster)), "single is led again"
    cluster.isr("t", 2, 3, 1)
    assert only(cluster, LogEvent.ISR_EXPANDED).fields == {
        "topic": "t", "partition": 0, "broker": 1, "isr": cluster.partition("t").isr,
    }  # fmt: skip


def test_a_broker_that_is_told_to_stop_is_no_warning() -> None:
    cluster = Cluster(2)
    cluster.create("t", (1, 2))
    cluster.create("single", (1,))
    epoch = cluster.image.brokers[1].epoch
    said: list[EventLine] = []
    for want in ("want_shutdown", "want_fence"):
        cluster.ask(events.BrokerHeartbeat(broker_id=1, broker_epoch=epoch, **{want: True}))  # type: ignore[arg-type]
        said += lines_of(cluster)
    cluster.die(1)
    said += lines_of(cluster)
    assert names(said)[0] == "broker.shutting_down" and "broker.fenced" in names(said)
    assert {line.level for line in said} == {logging.INFO}


def test_an_election_of_one_that_lacks_records_is_a_warning() -> None:
    cluster = Cluster(2)
    cluster.create("t", (1, 2), unclean_leader_election_enable="true")
    cluster.isr("t", 1)
    assert names(lines_of(cluster)) == ["isr.shrunk"]
    cluster.die(1)
    line = only(cluster, LogEvent.LEADER_ELECTED)
    assert (line.fields["broker"], line.fields["clean"], line.level) == (2, False, logging.WARNING)
    assert "may lack acknowledged records" in line.message


def test_a_reassignment_begins_changes_ends_or_is_taken_back() -> None:
    cluster = Cluster(5)
    cluster.create("t", (1, 2, 3))
    reassign(cluster, 4, 5)
    started = only(cluster, LogEvent.REASSIGNMENT_STARTED)
    assert (started.fields["replicas"], started.fields["before"]) == ((4, 5), (1, 2, 3))
    reassign(cluster, 2, 4)
    assert only(cluster, LogEvent.REASSIGNMENT_STARTED).fields["replicas"] == (2, 4)
    cluster.isr("t", 1, 2, 3, 4)
    finished = only(cluster, LogEvent.REASSIGNMENT_FINISHED)
    assert (finished.fields["replicas"], finished.fields["before"]) == ((2, 4), (2, 1, 3))
    assert "isr.shrunk" not in names(lines_of(cluster)), "who was taken away is not ill"
    reassign(cluster, 5, 1)
    assert ask(cluster, "t", None) is None
    assert only(cluster, LogEvent.REASSIGNMENT_CANCELLED).fields["replicas"] == (2, 4)


def test_a_broker_that_leads_thousands_and_dies_leaves_a_few_lines() -> None:
    cluster = Cluster(3)
    cluster.create("t", *([(1, 2, 3)] * 3000))
    cluster.die(1)
    found = lines_of(cluster)
    assert found[0].fields == {"broker": 1, "leaders_moved": 3000, "leaderless": 0, "isr_left": 3000}
    elected = [line for line in found if line.event is LogEvent.LEADER_ELECTED]
    assert len(elected) == NAMED + 1 and [line.fields.get("partition") for line in elected[:2]] == [0, 1]
    assert dict(elected[-1].fields) == {"partitions": 3000 - NAMED, "broker": 2}
    assert elected[-1].message == f"leader.elected of {3000 - NAMED} more partitions, broker 2"
    assert len(found) == 1 + 2 * (NAMED + 1)


def test_many_decisions_in_a_second_are_counted_too() -> None:
    cluster, lines = Cluster(2), DecisionLines()
    cluster.create("t", (1, 2))
    named = counted = 0
    for now_ms in range(2 * PER_SECOND):
        cluster.isr("t", *((1,) if now_ms % 2 == 0 else (1, 2)))
        (line,) = lines_of(cluster, lines, now_ms)
        named, counted = named + ("partition" in line.fields), counted + (line.fields.get("partitions") == 1)
    assert (named, counted) == (PER_SECOND, PER_SECOND)
    cluster.isr("t", 1)
    assert "partition" in lines_of(cluster, lines, 1000)[0].fields, "another second"


def alter(cluster: Cluster, kind: ResourceType, name: str, **values: str | None) -> None:
    wanted: Any = tuple((key.replace("_", "."), value) for key, value in values.items())
    change = events.ConfigChange(resource_type=int(kind), resource_name=name, values=wanted)
    assert cluster.ask(events.AlterConfigs(changes=(change,))).resources[0].error is None


def test_configurations_are_told_and_passwords_are_not() -> None:
    cluster = Cluster(1)
    alter(cluster, ResourceType.BROKER, "", log_retention_ms="60000", background_threads="4")
    line = only(cluster, LogEvent.CONFIG_CHANGED)
    assert line.message.startswith("all brokers: background.threads=4, log.retention.ms=60000")
    alter(cluster, ResourceType.BROKER, "", log_retention_ms=None)
    assert only(cluster, LogEvent.CONFIG_CHANGED).fields["changes"] == ("log.retention.ms is not set any more",)


def test_what_is_given_out_is_told() -> None:
    cluster = Cluster(1)
    cluster.ask(events.AllocateProducerIds(broker_id=1, broker_epoch=cluster.image.brokers[1].epoch))
    assert only(cluster, LogEvent.PRODUCER_IDS_ALLOCATED).fields == {"first": 0, "count": 1000}


def test_a_directory_that_a_broker_loses_or_cordons_is_told() -> None:
    cluster = Cluster(1)
    epoch, ids = cluster.image.brokers[1].epoch, (UUID(int=8), UUID(int=9))
    cluster.ask(events.BrokerHeartbeat(broker_id=1, broker_epoch=epoch, log_dirs=ids, cordoned=()))
    cluster.ask(events.BrokerHeartbeat(broker_id=1, broker_epoch=epoch, log_dirs=ids[:1], cordoned=ids[:1]))
    line = only(cluster, LogEvent.BROKER_DIRS_CHANGED)
    assert line.fields == {"broker": 1, "log_dirs": 1, "gone": (str(ids[1]),), "back": (), "cordoned": 1}


def test_fields_are_those_that_the_list_has() -> None:
    cluster = Cluster(5)
    cluster.create("t", (1, 2, 3), retention_ms="5")
    seen = lines_of(cluster)
    reassign(cluster, 4, 5)
    seen += lines_of(cluster)
    cluster.die(1)
    seen += lines_of(cluster)
    for line in seen:
        assert set(line.fields) <= set(line.event.value.fields), line
