"""Topics and groups as JSON documents, for ``--json``: everything that the commands know, absence as null. Pure.

Keys are added to these documents and none is renamed or taken away. Lists are in order of names and numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.cli.topic_lines import Filter, base64_id, passing
from holdfast.client.views import CommittedOffset, ConfigValue, GroupListing, GroupView, PartitionMetadata, TopicView
from holdfast.model.types import BrokerId, Offset, TopicPartition

Json = dict[str, Any]


def topics_document(topics: Iterable[TopicView]) -> str:
    """Of ``topics list``."""
    found = [_topic(topic) | {"partition_count": len(topic.partitions)} for topic in topics]
    return json.dumps({"topics": found})


def described_topics_document(
    topics: Iterable[TopicView],
    configs: Mapping[str, Iterable[ConfigValue]],
    live: Iterable[BrokerId],
    chosen: Filter,
) -> str:
    """Of ``topics describe``: where partitions are chosen only these, and topics that have some of them."""
    alive = frozenset(live)
    found = []
    for topic in sorted(topics, key=lambda t: t.name):
        values = tuple(configs.get(topic.name, ()))
        set_ones = {c.name: c.value for c in sorted(values, key=lambda c: c.name) if c.source != "DEFAULT_CONFIG"}
        partitions = [_partition(p) for p in passing(topic, values, alive, chosen)]
        if (partitions or not chosen.of_partitions) and (set_ones or not chosen.with_overrides):
            found.append(_topic(topic) | {"configs": set_ones, "partitions": partitions})
    return json.dumps({"topics": found})


def _topic(topic: TopicView) -> Json:
    return {
        "name": topic.name,
        "topic_id": base64_id(topic.topic_id) or None,
        "internal": topic.internal,
        "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else None,
    }


def _partition(p: PartitionMetadata) -> Json:
    return {
        "partition": p.partition,
        "leader": p.leader,
        "leader_epoch": p.leader_epoch,
        "replicas": list(p.replicas),
        "isr": list(p.isr),
        "offline": list(p.offline),
    }


def groups_document(groups: Iterable[GroupListing]) -> str:
    """Of ``groups list``."""
    found = [{"group": g.group_id, "state": g.state, "protocol_type": g.protocol_type or None} for g in groups]
    return json.dumps({"groups": found})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDocument:
    """A group with its offsets and the ends of the logs that it reads, as far as they can be told."""

    view: GroupView
    committed: Mapping[TopicPartition, CommittedOffset]
    ends: Mapping[TopicPartition, Offset]


def described_groups_document(groups: Iterable[GroupDocument], failed: Mapping[str, str]) -> str:
    """Of ``groups describe``; a group that could not be described has ``error`` and nothing else."""
    found = [_group(each) for each in groups]
    found += [{"group": group, "error": why} for group, why in failed.items()]
    return json.dumps({"groups": sorted(found, key=lambda g: g["group"])})


def _group(group: GroupDocument) -> Json:
    view = group.view
    readers = {tp: m.member_id for m in view.members for tp in m.assignment}
    return {
        "group": view.group_id,
        "state": view.state,
        "protocol_type": view.protocol_type or None,
        "protocol": view.protocol or None,
        "coordinator": {
            "broker": view.coordinator.broker_id, "host": view.coordinator.host, "port": view.coordinator.port,
        },
        "members": [
            {
                "member_id": m.member_id, "instance_id": m.instance_id, "client_id": m.client_id, "host": m.host,
                "assignment": [{"topic": tp.topic, "partition": tp.partition} for tp in sorted(m.assignment)],
            }
            for m in sorted(view.members, key=lambda m: m.member_id)
        ],
        "offsets": [_offset(group, tp, readers.get(tp)) for tp in sorted({*readers, *group.committed})],
    }  # fmt: skip


def _offset(group: GroupDocument, tp: TopicPartition, member_id: str | None) -> Json:
    committed, end = group.committed.get(tp), group.ends.get(tp)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "current_offset": None if committed is None else committed.offset,
        "log_end_offset": end,
        "lag": None if committed is None or end is None else end - committed.offset,
        "member_id": member_id,
    }
