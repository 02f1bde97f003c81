"""The codes that Apache Kafka 4.3.0 answers topic requests with, and ours for the same requests in the same order."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from holdfast.controller import events
from holdfast.controller.controller import Controller
from holdfast.controller.settings import ControllerSettings
from holdfast.metadata.image import ClusterImage
from holdfast.model.listeners import Endpoints
from holdfast.protocol.error_codes import code_of

GOLDEN = Path(__file__).parents[2] / "golden" / "wire" / "4.3.0"


class Cluster:
    """Three brokers, as the recording's."""

    def __init__(self) -> None:
        self.controller = Controller(ClusterImage.empty("c"), ControllerSettings(), random.Random(7))
        self.ids: dict[str, UUID] = {}
        """Topic ids of the recording, by name."""
        for broker in (1, 2, 3):
            reply = self.ask(
                events.BrokerRegister(
                    broker_id=broker, incarnation_id=UUID(int=broker), endpoints=Endpoints.one("h", broker)
                )
            )
            self.ask(events.BrokerHeartbeat(broker_id=broker, broker_epoch=reply.broker_epoch))

    def ask(self, event: Any) -> Any:
        decision = self.controller.handle(event, 0)
        self.controller.replay(decision.records, self.controller.image.next_offset)
        return decision.reply

    def topic_id(self, recorded: str | None) -> UUID | None:
        """Our id of the topic that had the recorded id there."""
        if recorded is None:
            return None
        for name, theirs in self.ids.items():
            if theirs == UUID(recorded) and name in self.controller.image.topics:
                return self.controller.image.topics[name].topic_id
        return UUID(recorded)


def cases(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((GOLDEN / name).read_text())
    return [case for case in found if "response" in case]


def counts(value: int) -> int | None:
    return None if value == -1 else value


def create(cluster: Cluster, case: dict[str, Any]) -> list[tuple[str, int]]:
    request = case["request"]
    reply = cluster.ask(
        events.CreateTopics(
            topics=tuple(
                events.TopicToCreate(
                    name=t["name"],
                    partitions=counts(t["num_partitions"]),
                    replication_factor=counts(t["replication_factor"]),
                    assignments=tuple((a["partition_index"], tuple(a["broker_ids"])) for a in t["assignments"]),
                    configs=tuple((c["name"], c["value"]) for c in t["configs"]),
                )
                for t in request["topics"]
            ),
            validate_only=request["validate_only"],
        )
    )
    for t in case["response"]["topics"]:
        if t.get("topic_id"):
            cluster.ids[t["name"]] = UUID(t["topic_id"])
    return [(t.name, code_of(t.error)) for t in reply.topics]


def grow(cluster: Cluster, case: dict[str, Any]) -> list[tuple[str, int]]:
    request = case["request"]
    reply = cluster.ask(
        events.CreatePartitions(
            topics=tuple(
                events.MorePartitions(
                    name=t["name"],
                    count=t["count"],
                    assignments=None
                    if t["assignments"] is None
                    else tuple(tuple(a["broker_ids"]) for a in t["assignments"]),
                )
                for t in request["topics"]
            ),
            validate_only=request["validate_only"],
        )
    )
    return [(t.name, code_of(t.error)) for t in reply.topics]


def delete(cluster: Cluster, case: dict[str, Any]) -> list[tuple[str | None, int]]:
    request = case["request"]
    for t in case["response"]["responses"]:
        if t["name"] and t.get("topic_id"):
            cluster.ids[t["name"]] = UUID(t["topic_id"])
    meant = [(t["name"], cluster.topic_id(t["topic_id"])) for t in request.get("topics", ())]
    meant += [(name, None) for name in request.get("topic_names", ())]
    reply = cluster.ask(events.DeleteTopics(topics=tuple(meant)))
    return [(t.name, code_of(t.error)) for t in reply.topics]


def compare(
    cluster: Cluster, file: str, run: Callable[[Cluster, dict[str, Any]], Any], group: str, differs: dict[str, int]
) -> None:
    for case in cases(file):
        ours = run(cluster, case)
        theirs = [(t["name"], t["error_code"]["code"]) for t in case["response"][group]]
        if case["name"] in differs:
            assert {code for _, code in ours} == {differs[case["name"]]}, case["name"]
        else:
            assert sorted(ours, key=str) == sorted(theirs, key=str), case["name"]


def test_topics_are_created_grown_and_deleted_with_kafkas_codes() -> None:
    cluster = Cluster()
    compare(cluster, "create_topics.json", create, "topics", {})
    # 100000 partitions: there an internal error, here the limit that creation has too.
    compare(cluster, "create_partitions.json", grow, "results", {"huge": 44})
    compare(cluster, "delete_topics.json", delete, "responses", {})


def test_elections_have_kafkas_codes() -> None:
    cluster = Cluster()
    for case in cases("create_topics.json"):
        create(cluster, case)
    compared = 0
    for case in cases("reassign_elect.json"):
        request = case["request"]
        if "election_type" not in request or request["election_type"] > 1 or request["topic_partitions"] is None:
            continue
        wanted = tuple((t["topic"], p) for t in request["topic_partitions"] for p in t["partitions"])
        reply = cluster.ask(events.ElectLeaders(unclean=request["election_type"] == 1, partitions=wanted))
        ours = [(r.topic, r.partition, code_of(r.error)) for r in reply.partitions]
        theirs = [
            (t["topic"], p["partition_id"], p["error_code"]["code"])
            for t in case["response"]["replica_election_results"]
            for p in t["partition_result"]
        ]
        assert ours == theirs, case["name"]
        compared += 1
    assert compared >= 4


def test_reassignments_have_kafkas_codes() -> None:
    cluster = Cluster()
    for case in cases("create_topics.json"):
        create(cluster, case)
    compared = 0
    for case in cases("reassign_elect.json"):
        if case["api"] == "alter_partition_reassignments":
            wanted = tuple(
                events.Reassignment(
                    topic=t["name"],
                    partition=p["partition_index"],
                    replicas=None if p["replicas"] is None else tuple(p["replicas"]),
                )
                for t in case["request"]["topics"]
                for p in t["partitions"]
            )
            may = case["request"].get("allow_replication_factor_change", True)
            reply = cluster.ask(events.AlterReassignments(partitions=wanted, may_change_factor=may))
            ours = [(r.topic, r.partition, code_of(r.error)) for r in reply.partitions]
            theirs = [
                (t["name"], p["partition_index"], p["error_code"]["code"])
                for t in case["response"]["responses"]
                for p in t["partitions"]
            ]
            assert ours == theirs, case["name"]
            compared += 1
    assert compared == 9
