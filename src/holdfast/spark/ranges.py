"""Offsets and ranges of offsets as Spark plans them. Pure: no cluster, no Spark.

Owns the JSON form of offsets (that of Spark's Kafka source: {"topic":{"0":123}}), the split of a limit over
partitions, and how ranges become tasks.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from holdfast.model.types import LeaderEpoch, Offset, TopicPartition

OffsetJson: TypeAlias = dict[str, dict[str, Any]]
Positions: TypeAlias = dict[TopicPartition, Offset]

RECORDS_PER_TASK: Final = 4_000_000
"""A task reads no more than this, so that large reads spread over a cluster whose size the source cannot see."""
WORTH_A_TASK: Final = 20_000
"""Fewer records than this are not worth another task: one costs about as long as reading them."""


class Leader(NamedTuple):
    """Where the leader of a partition listens, and in which epoch it leads: a broker that leads in another one refuses
    a fetch (KIP-320)."""

    host: str
    port: int
    epoch: LeaderEpoch | None = None


class PartitionEnd(NamedTuple):
    """Where a log ends, and in which leader epoch."""

    offset: Offset
    epoch: LeaderEpoch | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets ``start <= offset < end`` of one partition, where its leader was seen, and of which topic it is: another
    one may have the name by the time that it is read."""

    tp: TopicPartition
    start: Offset
    end: Offset
    leader: Leader | None = None
    topic_id: UUID | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


def to_json(positions: Mapping[TopicPartition, Offset]) -> dict[str, dict[str, int]]:
    """Sorted, so that equal positions are equal text."""
    found: dict[str, dict[str, int]] = {}
    for tp in sorted(positions):
        found.setdefault(tp.topic, {})[str(tp.partition)] = positions[tp]
    return found


def from_json(text: Mapping[str, Mapping[str, Any]]) -> Positions:
    """The positions of a checkpoint; also of one that Spark's own source wrote. What else there is in it
    (stream_offsets.py) stands under a key that no topic can have."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in text.items()
        if not topic.startswith("@")
        for partition, offset in partitions.items()
    }


def limited(start: Positions, latest: Positions, limit: int) -> Positions:
    """As far as ``limit`` records go, shared out by how much each partition has waiting.

    Every partition with records gets one at least, if the limit has that many, so that none starves. ``start`` has
    every partition of ``latest``.
    """
    waiting = {tp: end - start[tp] for tp, end in latest.items() if end > start[tp]}
    if sum(waiting.values()) <= limit:
        return dict(latest)
    taken = dict.fromkeys(waiting, 1 if limit >= len(waiting) else 0)
    left = limit - sum(taken.values())
    rest = sum(waiting.values()) - sum(taken.values())
    shares = {tp: (count - taken[tp]) * left / rest for tp, count in waiting.items()}
    for tp, share in shares.items():
        taken[tp] += int(share)
    left = limit - sum(taken.values())
    for tp in sorted(shares, key=lambda each: (int(shares[each]) - shares[each], each)):
        if left > 0 and taken[tp] < waiting[tp]:
            taken[tp] += 1
            left -= 1
    return {tp: start[tp] + taken.get(tp, 0) for tp in latest}


def tasks_of(
    ranges: Iterable[Range],
    *,
    parallelism: int,
    min_partitions: int | None = None,
    max_records: int | None = None,
    ordered: bool = False,
) -> list[tuple[Range, ...]]:
    """The ranges, put together to tasks of about equal size, and cut for that unless they are to stay ``ordered``.

    About ``parallelism`` tasks, fewer for few records; more where more ranges are worth a task each, as it is not known
    how many executors there are. ``min_partitions`` asks for at least as many (as far as there are records, or ordered
    ranges), ``max_records`` bounds a task (of more than one range, if they are ordered).
    """
    wanted = sorted((each for each in ranges if each.size > 0), key=lambda each: each.tp)
    total = sum(each.size for each in wanted)
    if not total:
        return []
    count = max(min(parallelism, -(-total // WORTH_A_TASK)), sum(each.size >= WORTH_A_TASK for each in wanted))
    count = max(count, min_partitions or 0, -(-total // (max_records or RECORDS_PER_TASK)))
    if ordered:
        return _put_together(wanted, count, max_records or RECORDS_PER_TASK)
    return _cut(wanted, total, min(count, total))


def _cut(wanted: list[Range], total: int, count: int) -> list[tuple[Range, ...]]:
    """``count`` tasks of equal size."""
    tasks: list[list[Range]] = [[]]
    done = 0
    for each in wanted:
        start = each.start
        while start < each.end:
            room = total * len(tasks) // count - done
            if room <= 0:
                tasks.append([])
                continue
            end = min(each.end, start + room)
            tasks[-1].append(replace(each, start=start, end=end))
            done += end - start
            start = end
    return [tuple(task) for task in tasks if task]


def _put_together(wanted: list[Range], count: int, most: int) -> list[tuple[Range, ...]]:
    """At least ``count`` tasks of whole ranges, if there are so many, the largest range first to the smallest task."""
    loads = [(0, number) for number in range(min(count, len(wanted)))]
    tasks: list[list[Range]] = [[] for _ in loads]
    for each in sorted(wanted, key=lambda each: (-each.size, each.tp)):
        load, number = heapq.heappop(loads)
        if tasks[number] and load + each.size > most:
            heapq.heappush(loads, (load, number))
            load, number = 0, len(tasks)
            tasks.append([])
        tasks[number].append(each)
        heapq.heappush(loads, (load + each.size, number))
    return [tuple(sorted(task, key=lambda each: each.tp)) for task in tasks]
