"""What is left of a plan once the table has been asked. Pure.

A plan comes from a checkpoint, which may be lost, old, cut short, or cut differently than the batches that landed. The
table knows better: what it has is taken out of the plan, and what would leave a hole is refused by name.
"""

from collections.abc import Iterable
from dataclasses import replace

from holdfast.lake.data_files import FileRange
from holdfast.lake.errors import HoleError
from holdfast.lake.position import Position, place


def trimmed(position: Position, planned: Iterable[FileRange]) -> tuple[FileRange, ...]:
    """The parts of the planned ranges that the table does not have, in order of topic, partition and offset.

    HoleError, naming topic, id, partition and the missing offsets, where a plan begins beyond the table's end, or is of
    another topic id than the table: nothing is ever skipped because a plan skips it. A partition that the table has
    nothing of begins where the plan does. Ranges may be cut anywhere, and overlap.
    """
    left: list[FileRange] = []
    ends: dict[tuple[str, int], int] = {}
    for each in sorted(planned, key=lambda one: (one.topic, one.partition, one.start, one.end)):
        where = place(each.topic, each.topic_id, each.partition)
        known = position.topics.get(each.topic)
        if known is not None and None not in (known.topic_id, each.topic_id) and known.topic_id != each.topic_id:
            raise HoleError(
                f"{where}: the table is at topic id {known.topic_id}: the topic was made again, and what was left "
                "of the old one is lost"
            )
        last = ends.get((each.topic, each.partition))
        if last is None and known is not None and each.partition in known.partitions:
            last = known.partitions[each.partition].offset
        if last is not None and each.start > last:
            raise HoleError(f"{where}: offsets {last} to {each.start} are missing: the plan begins at {each.start}")
        start = each.start if last is None else max(each.start, last)
        if start < each.end:
            left.append(replace(each, start=start))
        ends[each.topic, each.partition] = max(each.end, start)
    return tuple(left)
