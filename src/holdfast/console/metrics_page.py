"""Prometheus' text of a snapshot: topics and groups in the names of kafka_exporter, lag in seconds in ours. Pure.

Made of the last snapshot alone, so that a topic or a group that is gone has no series. There are ``MOST_SERIES`` at
most: sums by topic and group first, then half of the room for partitions of groups and half for those of topics, what
one leaves goes to the other. What does not fit is left out by whole topics and groups, the last by name first, and
counted. The page is compressed while it is made, since it may be long.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from holdfast.client.views import PartitionMetadata, TopicView
from holdfast.console.snapshot import GroupPositions, Snapshot
from holdfast.model.types import Offset, TopicPartition

MOST_SERIES: Final = 100_000
GZIP: Final = 31
"""zlib's word for the form that HTTP calls gzip."""
LINES_AT_ONCE: Final = 1_000
PIECE_BYTES: Final = 64 << 10
T = TypeVar("T")

OfPartition = Callable[[Snapshot, TopicPartition, PartitionMetadata], "int | None"]
OfPosition = Callable[["GroupPosition"], "float | None"]


class GroupPosition(NamedTuple):
    """Where a group stands in one partition; None what is not known."""

    tp: TopicPartition
    offset: Offset
    end: Offset | None
    lag_s: float | None

    @property
    def lag(self) -> int | None:
        return None if self.end is None else max(0, self.end - self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsAbout:
    """What is told of the console itself. ``took_s``: of the look that the page is made of."""

    software: str
    took_s: float
    most_series: int = MOST_SERIES


LagOf = Callable[[TopicPartition, Offset], "float | None"]
"""Lag in seconds of a group at an offset."""


def packed_page(snapshot: Snapshot, lag_of: LagOf, about: MetricsAbout) -> bytes:
    """The page, compressed for ``Content-Encoding: gzip``."""
    packer = zlib.compressobj(level=1, wbits=GZIP)
    parts: list[bytes] = []
    lines: list[str] = []
    for line in metrics_lines(snapshot, lag_of, about):
        lines.append(line)
        if len(lines) == LINES_AT_ONCE:
            parts.append(packer.compress("".join(lines).encode()))
            lines.clear()
    parts.append(packer.compress("".join(lines).encode()))
    parts.append(packer.flush())
    return b"".join(parts)


def plain_pieces(packed: bytes) -> Iterator[bytes]:
    """The page for who takes nothing compressed, 64 KiB at a time: as a whole it is fifteen times what is kept."""
    unpacker = zlib.decompressobj(wbits=GZIP)
    while not unpacker.eof:
        piece, packed = unpacker.decompress(packed, PIECE_BYTES), unpacker.unconsumed_tail
        if piece:  # an empty one would be the end of an answer in pieces
            yield piece
        elif not packed:
            raise ValueError("the end of the page of metrics is missing")


def metrics_lines(snapshot: Snapshot, lag_of: LagOf, about: MetricsAbout) -> Iterator[str]:
    """Lines with their ends. Of a cluster that cannot be reached nothing but that: what it was is no news."""
    reached = snapshot.trouble is None
    yield from _one("holdfast_console_cluster_reached", "1 while the cluster answers this console.", int(reached))
    yield from _one("holdfast_console_look_seconds", "How long the last look at the cluster took.", about.took_s)
    label = f'{{version="{escaped(about.software)}"}}'
    yield from _family("holdfast_console_build_info", "The version of this console.", [f"{label} 1"])
    if reached:
        yield from _cluster_lines(snapshot)
        yield from _chosen_lines(snapshot, lag_of, about.most_series)


def escaped(value: str) -> str:
    """A label's value."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _cluster_lines(snapshot: Snapshot) -> Iterator[str]:
    brokers = [node for broker, node in sorted(snapshot.view.brokers.items()) if broker in snapshot.alive]
    yield from _one("kafka_brokers", "Brokers that are alive.", len(brokers))
    yield from _family(
        "kafka_broker_info",
        "1 for each broker that is alive.",
        [f'{{address="{escaped(node.address)}",id="{node.broker_id}"}} 1' for node in brokers],
    )


# -- what there is room for ----------------------------------------------------------------------------------------


class _Room:
    """Series that may yet be made, and how many were left out."""

    def __init__(self, most: int) -> None:
        self.left = most
        self.left_out = {"groups": 0, "topics": 0}

    def choose(self, kind: str, things: Iterable[T], cost: Callable[[T], int], most: int | None = None) -> list[T]:
        """As many of the first things as there is room for, in ``most`` series at most; the others are counted."""
        room = self.left if most is None else min(most, self.left)
        chosen: list[T] = []
        full = False
        for thing in things:
            series = cost(thing)
            full = full or series > room
            if full:
                self.left_out[kind] += series
            else:
                chosen.append(thing)
                room -= series
                self.left -= series
        return chosen


def _chosen_lines(snapshot: Snapshot, lag_of: LagOf, most: int) -> Iterator[str]:
    room = _Room(most)
    known = sorted({group.group_id for group in snapshot.groups} & snapshot.positions.keys())
    counts = {name: _counts(snapshot, snapshot.positions[name]) for name in known}

    def of_sums(name: str) -> int:
        return (snapshot.positions[name].members is not None) + len(_GROUP_SUMS) * counts[name][0]

    named = room.choose("groups", known, of_sums)
    topics = room.choose("topics", (topic for _, topic in sorted(snapshot.view.topics.items())), lambda topic: 1)

    def of_group(name: str) -> int:
        return len(_GROUP_FAMILIES) * counts[name][1]

    def of_topic(topic: TopicView) -> int:
        return len(_PARTITION_FAMILIES) * len(topic.partitions)

    wanted_by_topics = sum(map(of_topic, topics))
    detailed_groups = room.choose("groups", named, of_group, max(room.left // 2, room.left - wanted_by_topics))
    detailed_topics = room.choose("topics", topics, of_topic)
    yield from _topic_lines(snapshot, topics, detailed_topics)
    yield from _group_lines(snapshot, named, detailed_groups, lag_of)
    yield from _family(
        "holdfast_console_series_left_out",
        f"Series that would have been more than {most}, of whole groups and topics.",
        [f'{{of="{kind}"}} {count}' for kind, count in room.left_out.items()],
    )
    told = [snapshot.taken_ms - snapshot.positions[name].told_ms for name in named]
    yield from _one(
        "holdfast_console_oldest_offsets_seconds",
        "How long ago the offsets were asked for of the group that was not asked for longest.",
        max(told, default=0) / 1000,
    )


# -- topics --------------------------------------------------------------------------------------------------------


_PARTITION_FAMILIES: Final[tuple[tuple[str, str, OfPartition], ...]] = (
    (
        "kafka_topic_partition_current_offset",
        "The end of a partition's log.",
        lambda now, tp, p: now.ends.get(tp),
    ),
    ("kafka_topic_partition_oldest_offset", "Where it begins.", lambda now, tp, p: now.starts.get(tp)),
    ("kafka_topic_partition_leader", "The broker that leads it; none while nobody does.", lambda now, tp, p: p.leader),
    (
        "kafka_topic_partition_leader_is_preferred",
        "1 where it is led by its first replica.",
        lambda now, tp, p: int(p.leader is not None and p.replicas[:1] == (p.leader,)),
    ),
    ("kafka_topic_partition_replicas", "Its replicas.", lambda now, tp, p: len(p.replicas)),
    ("kafka_topic_partition_in_sync_replica", "Those in sync.", lambda now, tp, p: len(p.isr)),
    (
        "kafka_topic_partition_under_replicated_partition",
        "1 where a replica is not in sync.",
        lambda now, tp, p: int(len(p.isr) < len(p.replicas)),
    ),
)


def _topic_lines(snapshot: Snapshot, topics: list[TopicView], detailed: list[TopicView]) -> Iterator[str]:
    yield from _family(
        "kafka_topic_partitions",
        "Partitions of a topic.",
        (f'{{topic="{escaped(topic.name)}"}} {len(topic.partitions)}' for topic in topics),
    )
    rows = [
        (f'{{partition="{p.partition}",topic="{name}"}}', TopicPartition(topic.name, p.partition), p)
        for topic in detailed
        for name in [escaped(topic.name)]
        for p in topic.partitions
    ]
    for family, meaning, of in _PARTITION_FAMILIES:
        yield from _family(
            family,
            meaning,
            (f"{label} {value}" for label, tp, p in rows if (value := of(snapshot, tp, p)) is not None),
        )


# -- groups --------------------------------------------------------------------------------------------------------

_GROUP_FAMILIES: Final[tuple[tuple[str, str, OfPosition], ...]] = (
    ("kafka_consumergroup_current_offset", "What a group has committed in a partition.", lambda at: at.offset),
    ("kafka_consumergroup_lag", "Records from there to the end of the log.", lambda at: at.lag),
    (
        "holdfast_consumergroup_lag_seconds",
        "How old the record is that the group reads next, 0 at the end of the log; at least so old, where that was "
        "written before this console looked.",
        lambda at: at.lag_s,
    ),
)


def _sum_of(positions: list[GroupPosition], of: OfPosition) -> float | None:
    known = [value for at in positions if (value := of(at)) is not None]
    return sum(known) if known else None


def _max_of(positions: list[GroupPosition], of: OfPosition) -> float | None:
    return max((value for at in positions if (value := of(at)) is not None), default=None)


_GROUP_SUMS: Final[tuple[tuple[str, str, Callable[[list[GroupPosition]], float | None]], ...]] = (
    (
        "kafka_consumergroup_current_offset_sum",
        "What it has committed, over the partitions of a topic.",
        lambda all_: _sum_of(all_, lambda at: at.offset),
    ),
    (
        "kafka_consumergroup_lag_sum",
        "Its lag in records, over the partitions of a topic.",
        lambda all_: _sum_of(all_, lambda at: at.lag),
    ),
    (
        "holdfast_consumergroup_lag_max_seconds",
        "Its lag in seconds in the partition of a topic that is furthest behind.",
        lambda all_: _max_of(all_, lambda at: at.lag_s),
    ),
)


def _positions(snapshot: Snapshot, at: GroupPositions, lag_of: LagOf) -> dict[str, list[GroupPosition]]:
    """By topic, of partitions that there still are."""
    found: dict[str, list[GroupPosition]] = {}
    for tp, committed in at.offsets.items():
        if snapshot.partition(tp) is not None:
            end, lag_s = snapshot.ends.get(tp), lag_of(tp, committed.offset)
            found.setdefault(tp.topic, []).append(GroupPosition(tp, committed.offset, end, lag_s))
    return found


def _counts(snapshot: Snapshot, at: GroupPositions) -> tuple[int, int]:
    """Topics and partitions of a group that there still are."""
    there = [tp.topic for tp in at.offsets if snapshot.partition(tp) is not None]
    return len(set(there)), len(there)


def _group_lines(snapshot: Snapshot, named: list[str], detailed: list[str], lag_of: LagOf) -> Iterator[str]:
    """Positions are made of a few groups at a time: there may be very many."""
    yield from _family(
        "kafka_consumergroup_members",
        "Members of a group.",
        (
            f'{{consumergroup="{escaped(name)}"}} {members}'
            for name in named
            if (members := snapshot.positions[name].members) is not None
        ),
    )
    sums = [
        (f'{{consumergroup="{escaped(name)}",topic="{escaped(topic)}"}}', [of(all_) for _, _, of in _GROUP_SUMS])
        for name in named
        for topic, all_ in _positions(snapshot, snapshot.positions[name], lag_of).items()
    ]
    for n, (family, meaning, _) in enumerate(_GROUP_SUMS):
        yield from _family(
            family, meaning, (f"{label} {_number(value)}" for label, of in sums if (value := of[n]) is not None)
        )
    del sums
    rows = [
        (f'{{consumergroup="{group}",partition="{at.tp.partition}",topic="{topic}"}}', at)
        for name in detailed
        for group in [escaped(name)]
        for topic_name, positions in _positions(snapshot, snapshot.positions[name], lag_of).items()
        for topic in [escaped(topic_name)]
        for at in positions
    ]
    for family, meaning, of in _GROUP_FAMILIES:
        yield from _family(
            family, meaning, (f"{label} {_number(value)}" for label, at in rows if (value := of(at)) is not None)
        )


# -- lines ---------------------------------------------------------------------------------------------------------


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}"


def _one(name: str, meaning: str, value: float) -> Iterator[str]:
    return _family(name, meaning, [f" {_number(value)}"])


def _family(name: str, meaning: str, series: Iterable[str]) -> Iterator[str]:
    yield f"# HELP {name} {meaning}\n# TYPE {name} gauge\n"
    for each in series:
        yield f"{name}{each}\n"
