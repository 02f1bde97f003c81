"""What a batch lands, once the table has been asked. Pure.

A plan comes from a checkpoint, which may be lost, old, cut short, or cut differently than the batches that landed. The
table knows better: each partition is gone on with where the table ends, and a plan only says how far. What that leaves
out of a log that is another one now is refused by name, or written into the position.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from holdfast.lake.data_files import FileRange
from holdfast.lake.errors import HoleError
from holdfast.lake.position import Gap, Position, cut_back, place, restarted, with_gap
from holdfast.model.types import Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A plan that joins on to the table."""

    before: Position
    """The table's, with what is lost noted in it: ``advanced`` goes on from here. Equal to it if nothing is."""
    ranges: tuple[FileRange, ...]
    """What is to be read; each begins where ``before`` ends. In order of topic and partition."""


def joined(
    position: Position,
    planned: Iterable[FileRange],
    *,
    cut: Mapping[tuple[str, int], Offset] | None = None,
    lose: bool = False,
) -> Joined:
    """Planned ranges, one of each partition, as the table has them go on.

    A range begins where the table ends, be that before its planned start (a checkpoint that is ahead of a table which
    was restored) or after it (one that is old); where the table has nothing of the partition it begins as planned.
    ``cut`` says to which offset the log of a partition was cut since the table landed it. A topic that was made again,
    or a cut log: HoleError with topic, id, partition and offsets, or with ``lose`` a note in the position.
    """
    cut = cut or {}
    before, ranges, seen = position, [], set()
    for each in sorted(planned, key=lambda one: (one.topic, one.partition)):
        where = place(each.topic, each.topic_id, each.partition)
        if (each.topic, each.partition) in seen:
            raise ValueError(f"{where} is planned twice")
        seen.add((each.topic, each.partition))
        known = before.topics.get(each.topic)
        if known is not None and each.topic_id is not None and known.topic_id not in (None, each.topic_id):
            if not lose:
                raise HoleError(
                    f"{where}: the table is at topic id {known.topic_id}: the topic was made again, and what was left "
                    "of the old one is lost"
                )
            before = restarted(before, each.topic, each.topic_id, "the topic was made again")
            known = before.topics[each.topic]
        end = known.partitions.get(each.partition) if known is not None else None
        to = cut.get((each.topic, each.partition))
        if end is not None and to is not None and to < end.offset:
            if not lose:
                raise HoleError(
                    f"{where}: the table ends at {end.offset} (leader epoch {end.epoch}), and the log was cut to {to} "
                    f"since, by an unclean leader election: offsets {to} to {end.offset} are other records now"
                )
            before = cut_back(before, each.topic, each.partition, to, "the log was cut (unclean leader election)")
            end = before.topics[each.topic].partitions[each.partition]
        start = each.start if end is None else end.offset
        if start < each.end:
            ranges.append(replace(each, start=start))
    return Joined(before=before, ranges=tuple(ranges))


def without(plan: Joined, lost: FileRange, reason: str) -> Joined:
    """The plan without offsets that are gone, which are the first ones of one of its ranges, and a note of them.

    HoleError where they are not, so that no offset is ever left out that nobody has told of.
    """
    ranges = []
    found = False
    for each in plan.ranges:
        if (each.topic, each.partition) != (lost.topic, lost.partition):
            ranges.append(each)
            continue
        if lost.start != each.start or not lost.start < lost.end <= each.end:
            where = place(lost.topic, lost.topic_id, lost.partition)
            raise HoleError(f"{where}: {lost.start} to {lost.end} is lost, the batch is {each.start} to {each.end}")
        found = True
        if lost.end < each.end:
            ranges.append(replace(each, start=lost.end))
    if not found:
        raise HoleError(f"{place(lost.topic, lost.topic_id, lost.partition)} is not in the batch")
    gap = Gap(
        topic=lost.topic,
        topic_id=lost.topic_id,
        partition=lost.partition,
        start=lost.start,
        end=lost.end,
        reason=reason,
    )
    return Joined(before=with_gap(plan.before, gap), ranges=tuple(ranges))
