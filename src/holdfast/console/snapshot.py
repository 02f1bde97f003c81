"""What a console knows of a cluster at one moment, as values that never change.

Owns the words of pages. Views of the client are taken over as they are. What a broker last told of its directories
stays when it tells nothing any more, and says since when.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from holdfast.client.views import (
    ClusterMetadata,
    CommittedOffset,
    DisksView,
    DiskView,
    GroupListing,
    PartitionMetadata,
    ReassignmentView,
)
from holdfast.model.types import BrokerId, Offset, TimestampMs, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldDisks:
    """What a broker told of its directories at ``told_ms``, and why it tells nothing now (``error``).

    ``is_kafka``: it is none of Holdfast's and has no words for state, reason, probe and moves.
    """

    disks: DisksView
    told_ms: TimestampMs
    error: str | None = None
    is_kafka: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPositions:
    """What a group had committed at ``told_ms``, and how many members it had; None where nobody told."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    told_ms: TimestampMs
    members: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One moment of a cluster.

    ``number`` counts the snapshots of this console. ``alive``: the brokers that the controller counts on. ``ends``: the
    end of each log that has a leader; ``starts``: where it begins, if that was ever asked for. ``positions``: of
    groups, the newest that was asked for. ``trouble``: why what is here is old; None where it is not.
    """

    number: int
    taken_ms: TimestampMs
    view: ClusterMetadata
    alive: frozenset[BrokerId]
    disks: Mapping[BrokerId, ToldDisks] = field(default_factory=dict)
    reassignments: Mapping[TopicPartition, ReassignmentView] = field(default_factory=dict)
    min_isr: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    starts: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    groups: tuple[GroupListing, ...] = ()
    positions: Mapping[str, GroupPositions] = field(default_factory=dict)
    trouble: str | None = None

    @property
    def brokers(self) -> list[BrokerId]:
        """All that are known of: alive, or with replicas, or seen earlier."""
        return sorted({*self.alive, *self.view.brokers, *self.disks})

    def disk(self, broker: BrokerId, path: str) -> DiskView | None:
        """A directory by its path, as the broker spells it."""
        told = self.disks.get(broker)
        return None if told is None else next((d for d in told.disks.disks if d.path == path), None)

    def is_kafka(self, broker: BrokerId) -> bool:
        """Whether it is known to be none of Holdfast's."""
        told = self.disks.get(broker)
        return told is not None and told.is_kafka

    @property
    def is_all_kafka(self) -> bool:
        """Whether no broker that is alive is Holdfast's: what only Holdfast has is not offered then."""
        return bool(self.alive) and all(map(self.is_kafka, self.alive))

    def partition(self, tp: TopicPartition) -> PartitionMetadata | None:
        topic = self.view.topics.get(tp.topic)
        return None if topic is None else topic.partition(tp.partition)

    def says_the_same(self, other: "Snapshot") -> bool:
        """Whether a page of either shows the same, times of asking aside."""
        return _without_times(self) == _without_times(other)


def _without_times(snapshot: Snapshot) -> Snapshot:
    return replace(
        snapshot,
        number=0,
        taken_ms=0,
        disks={broker: replace(told, told_ms=0) for broker, told in snapshot.disks.items()},
        positions={group: replace(at, told_ms=0) for group, at in snapshot.positions.items()},
    )


def lag_of(snapshot: Snapshot, positions: GroupPositions) -> int | None:
    """Records that a group has not read yet, over the partitions whose ends are known; None if none is."""
    known = [
        max(0, snapshot.ends[tp] - at.offset) for tp, at in positions.offsets.items() if tp in snapshot.ends
    ]  # fmt: skip
    return sum(known) if known else None


def topics_of_groups(snapshot: Snapshot) -> dict[str, list[str]]:
    """Topic -> the groups that have offsets in it."""
    found: dict[str, list[str]] = {}
    for group, at in sorted(snapshot.positions.items()):
        for topic in {tp.topic for tp in at.offsets}:
            found.setdefault(topic, []).append(group)
    return found
