"""A cluster as a description: brokers, topics, groups. Values; nothing here answers anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

GROUPS_TOPICS = 4
"""Topics that a group of a generated cluster reads."""
FIRST_END = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTopic:
    """``partitions``: the replicas of each, the leader first; all are in sync. ``records``: how many each has, without
    its first ``trimmed``."""

    name: str
    partitions: tuple[tuple[int, ...], ...]
    records: int = 0
    trimmed: int = 0
    min_isr: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """``committed``: (topic, partition) -> offset. One with ``members`` is stable, another one empty."""

    name: str
    coordinator: int
    committed: Mapping[tuple[str, int], int]
    members: int = 0

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedCluster:
    """``log_dirs``: so many on each broker, replica by replica in turn. ``grows``: records a second in each log."""

    brokers: tuple[int, ...]
    topics: tuple[DescribedTopic, ...] = ()
    groups: tuple[DescribedGroup, ...] = ()
    log_dirs: int = 2
    controller: int = 1
    grows: float = 0.0
    cluster_id: str = "answering"
    by_name: Mapping[str, DescribedTopic] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {topic.name: topic for topic in self.topics})

    @property
    def partitions(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics)


def generated(
    *, brokers: int, topics: int, partitions: int, groups: int, copies: int, grows: float = 0.0
) -> DescribedCluster:
    """Topics share the partitions evenly; a group reads a few neighbouring topics, and is half way through each."""
    ids = tuple(range(1, brokers + 1))
    each, more = divmod(partitions, topics)
    made = tuple(
        DescribedTopic(
            name=f"team-{number % 97:02}.orders.{number:05}",
            partitions=tuple(
                tuple(ids[(number + p + copy) % brokers] for copy in range(copies))
                for p in range(each + (number < more))
            ),
            records=FIRST_END + number % 100,
        )
        for number in range(topics)
    )
    return DescribedCluster(
        brokers=ids,
        topics=made,
        groups=tuple(
            DescribedGroup(
                name=f"service-{number % 89:02}.reader.{number:05}",
                coordinator=ids[number % brokers],
                committed={
                    (topic.name, p): topic.records // 2
                    for k in range(GROUPS_TOPICS)
                    for topic in [made[(number * GROUPS_TOPICS + k) % topics]]
                    for p in range(len(topic.partitions))
                },
                members=number % 3,
            )
            for number in range(groups)
        ),
        grows=grows,
    )
