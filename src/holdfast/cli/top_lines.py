"""One frame of ``holdfast top``: the cluster, its brokers, its log directories, its busiest topics. Pure.

Rates come from the ends of logs at two looks. What is not known is a dash, and null in JSON.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.cli.columns import table_lines
from holdfast.client.health import Survey
from holdfast.client.views import BrokerNode, DiskView, PartitionMetadata
from holdfast.model.types import BrokerId, Offset, TopicPartition

UNKNOWN: Final = "-"
MOST_TOPICS: Final = 10
LEAST_TOPICS: Final = 3
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopLook:
    """What a cluster told at one moment. ``ends``: of partitions whose leaders told theirs; ``at_s`` on a clock of the
    process that only goes on, ``at_ms`` since 1970."""

    survey: Survey
    nodes: Mapping[BrokerId, BrokerNode]
    ends: Mapping[TopicPartition, Offset]
    at_s: float
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRates:
    """Records a second that were written between two looks; None where there is only one."""

    everything: float | None
    by_topic: Mapping[str, float]
    by_leader: Mapping[BrokerId, float]


def pace(look: TopLook, before: TopLook | None) -> TopRates:
    """Of partitions that both looks know. A log that was cut, or made again, counts as still."""
    seconds = 0.0 if before is None else look.at_s - before.at_s
    if before is None or seconds <= 0:
        return TopRates(everything=None, by_topic={}, by_leader={})
    by_topic: dict[str, float] = defaultdict(float)
    by_leader: dict[BrokerId, float] = defaultdict(float)
    for tp, end in look.ends.items():
        began = before.ends.get(tp)
        if began is None:
            continue
        rate = max(0, end - began) / seconds
        by_topic[tp.topic] += rate
        leader = look.survey.view.leader_of(tp)
        if leader is not None:
            by_leader[leader] += rate
    return TopRates(everything=sum(by_topic.values()), by_topic=by_topic, by_leader=by_leader)


@dataclass(slots=True)
class _Holding:
    """What a broker has of the partitions."""

    leads: int = 0
    replicas: int = 0
    behind: int = 0
    """Of its replicas, not in sync."""


def _partitions(survey: Survey) -> list[tuple[TopicPartition, PartitionMetadata]]:
    return [(TopicPartition(t.name, p.partition), p) for t in survey.view.topics.values() for p in t.partitions]


def _holdings(survey: Survey) -> dict[BrokerId, _Holding]:
    found: dict[BrokerId, _Holding] = defaultdict(_Holding)
    for _, partition in _partitions(survey):
        if partition.leader is not None:
            found[partition.leader].leads += 1
        for broker in partition.replicas:
            found[broker].replicas += 1
            found[broker].behind += broker not in partition.isr
    return found


def frame(look: TopLook, before: TopLook | None, *, width: int | None, height: int | None = None) -> list[str]:
    """The lines; with a ``height`` no more than these, at the cost of topics and then of directories that are well."""
    rates = pace(look, before)
    head = [*_head(look, rates), "", *_brokers(look, rates, width), ""]
    directories = _directories(look, width)
    left = None if height is None else height - len(head) - len(directories) - 2
    most = MOST_TOPICS if left is None else max(LEAST_TOPICS, min(MOST_TOPICS, left))
    lines = [*head, *directories, "", *_topics(look, rates, width, most)]
    return lines if height is None else lines[:height]


def _head(look: TopLook, rates: TopRates) -> list[str]:
    survey = look.survey
    parts = [p for _, p in _partitions(survey)]
    leaderless = sum(p.leader is None for p in parts)
    behind = sum(bool(set(p.replicas) - set(p.isr)) for p in parts)
    controller = survey.view.controller_id
    at = datetime.datetime.fromtimestamp(look.at_ms / 1000)
    return [
        f"{at:%H:%M:%S}  cluster {survey.view.cluster_id}  controller {UNKNOWN if controller is None else controller}  "
        f"{_rate(rates.everything)} records/s",
        f"{len(survey.alive)} brokers, {len(survey.view.topics)} topics, {len(parts)} partitions: {leaderless} without "
        f"leader, {behind} under-replicated",
    ]


def _brokers(look: TopLook, rates: TopRates, width: int | None) -> list[str]:
    holdings = _holdings(look.survey)
    rows = []
    for broker in sorted({*holdings, *look.survey.alive}):
        node, told = look.nodes.get(broker), look.survey.disks.get(broker)
        state = "gone" if broker not in look.survey.alive else "silent" if isinstance(told, str) else "up"
        held = holdings.get(broker, _Holding())
        rate = None if rates.everything is None else rates.by_leader.get(broker, 0.0)
        rows.append(
            (
                str(broker), state, str(held.leads), str(held.replicas), str(held.behind), _rate(rate),
                UNKNOWN if node is None else node.address,
            )
        )  # fmt: skip
    header = ("BROKER", "STATE", "LEADS", "REPLICAS", "BEHIND", "RECORDS/S", "ADDRESS")
    return list(table_lines(header, rows, width=width, folded=6, right=(0, 2, 3, 4, 5)))


def _directories(look: TopLook, width: int | None) -> list[str]:
    """Those that are not well come first, with their reason."""
    found = [(b, d) for b, told in sorted(look.survey.disks.items()) if not isinstance(told, str) for d in told]
    found.sort(key=lambda each: each[1].state == "online")
    rows = [
        (
            str(broker),
            disk.state + (" cordoned" if disk.cordoned else ""),
            UNKNOWN if disk.state == "offline" else _bytes(sum(r.size_bytes for r in disk.replicas)),
            _bytes(disk.usable_bytes),
            str(len(disk.replicas)),
            UNKNOWN if disk.probe_ms is None else f"{disk.probe_ms:.1f}",
            disk.path + _why(disk),
        )
        for broker, disk in found
    ]
    header = ("BROKER", "STATE", "REPLICAS'", "FREE", "REPLICAS", "PROBE MS", "DIRECTORY")
    return list(table_lines(header, rows, width=width, folded=6, right=(0, 2, 3, 4, 5)))


def _why(disk: DiskView) -> str:
    why = (disk.reason or "").removeprefix(f"log dir {disk.path}").lstrip(" :")  # the path is named already
    return f": {why}" if why and disk.state != "online" else ""


def _topics(look: TopLook, rates: TopRates, width: int | None, most: int) -> list[str]:
    """The busiest, then by name."""
    topics = sorted(look.survey.view.topics.values(), key=lambda t: (-rates.by_topic.get(t.name, 0.0), t.name))
    records: Counter[str] = Counter()
    for tp, end in look.ends.items():
        records[tp.topic] += end
    rows = [
        (
            _rate(None if rates.everything is None else rates.by_topic.get(topic.name, 0.0)),
            str(len(topic.partitions)),
            str(records[topic.name]) if topic.name in records else UNKNOWN,
            topic.name,
        )
        for topic in topics[:most]
    ]
    lines = list(
        table_lines(("RECORDS/S", "PARTITIONS", "ENDS", "TOPIC"), rows, width=width, folded=3, right=(0, 1, 2))
    )
    return [*lines, *([f"and {len(topics) - most} more topics"] if len(topics) > most else [])]


def _rate(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}" if value >= 10 or not value else f"{value:.1f}"


def _bytes(value: int | None) -> str:
    if value is None:
        return UNKNOWN
    size, unit = float(value), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{value} B"


def document(look: TopLook, before: TopLook | None) -> str:
    """The same as one JSON object on a line, with every topic."""
    rates, survey, holdings = pace(look, before), look.survey, _holdings(look.survey)
    known = rates.everything is not None
    found: dict[str, Any] = {
        "version": 1,
        "at_ms": look.at_ms,
        "cluster_id": survey.view.cluster_id,
        "controller": survey.view.controller_id,
        "records_per_s": rates.everything,
        "brokers": [
            {
                "id": broker,
                "address": node.address if (node := look.nodes.get(broker)) is not None else None,
                "alive": broker in survey.alive,
                "error": told if isinstance(told := survey.disks.get(broker), str) else None,
                "leads": holdings[broker].leads,
                "replicas": holdings[broker].replicas,
                "behind": holdings[broker].behind,
                "records_per_s": rates.by_leader.get(broker, 0.0) if known else None,
            }
            for broker in sorted({*holdings, *survey.alive})
        ],
        "directories": [
            {
                "broker": broker,
                "path": disk.path,
                "state": disk.state,
                "reason": disk.reason,
                "cordoned": disk.cordoned,
                "replicas": len(disk.replicas),
                "replica_bytes": sum(r.size_bytes for r in disk.replicas),
                "usable_bytes": disk.usable_bytes,
                "total_bytes": disk.total_bytes,
                "probe_ms": disk.probe_ms,
            }
            for broker, told in sorted(survey.disks.items())
            if not isinstance(told, str)
            for disk in told
        ],
        "topics": [
            {
                "name": topic.name,
                "partitions": len(topic.partitions),
                "leaderless": sum(p.leader is None for p in topic.partitions),
                "under_replicated": sum(bool(set(p.replicas) - set(p.isr)) for p in topic.partitions),
                "records_per_s": rates.by_topic.get(topic.name, 0.0) if known else None,
            }
            for topic in sorted(survey.view.topics.values(), key=lambda t: t.name)
        ],
    }
    return json.dumps(found, ensure_ascii=False)
