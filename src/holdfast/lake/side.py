"""Two tables of one topic: the rows, and beside it the records that could not be made rows of.

Two tables are not committed at one moment. Where a batch begins is said by the main table alone; the side table is
committed first, fenced by its own position, and may so be ahead of the main one by a batch that was cut off between the
two. The batch that comes next, cut anywhere, asks the side table which records it has beyond the main table's end, and
adds those that it has not:

    side table committed   ->   killed   ->   next batch: reads what is there, adds what is not   ->   both committed

So no bad record is lost, also if the next attempt takes other records for bad (another schema): it adds those. What the
first one took for bad stays in the side table. Where the side table lags, nothing in between was bad.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from holdfast.lake.columns import OFFSET, PARTITIONS, TOPIC
from holdfast.lake.data_files import Attempt, FileRange, attempt_in, ranges_in
from holdfast.lake.errors import PositionMovedError, TableError
from holdfast.lake.position import MOST_GAPS, End, Gap, LandedRange, Position, advanced, difference, restarted
from holdfast.lake.table import MOST_AGE_MS, Batch, Clock, Steps, Table, land, now_ms
from holdfast.model.types import Offset

ANEW: Final = "the topic was made again"
CUT: Final = "the log was cut (unclean leader election)"

Place = tuple[str, int]
"""Topic and partition."""
Offsets = NDArray[np.int64]


def side_location(location: str) -> str:
    """Where the side table of a table is: beside it, as a table within another one's folder is its orphan to some."""
    return f"{location.rstrip('/')}_bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class SidePlan:
    """What the side table has of a batch that is to be read. Plain values, for the processes that read."""

    before: Position
    """Of the side table; the default where there is none yet."""
    noted: Position
    """The same, with topics that were made again and logs that were cut since."""
    known: Mapping[Place, Offsets] = field(default_factory=dict)
    """Records of the batch that are in the side table already, sorted; 8 bytes each, one cut-off batch at most."""

    def lacks(self, topic: str, partition: int, offsets: Offsets) -> NDArray[np.bool_]:
        """Which of these bad records are to be written into the side table."""
        known = self.known.get((topic, partition))
        return np.ones(len(offsets), np.bool_) if known is None else ~np.isin(offsets, known)


def plan_side(side: Table | None, main: Position, ranges: Iterable[FileRange]) -> SidePlan:
    """Asks the side table, as it is now, about the ranges of a batch. ``main`` is the main table's position.

    A range that begins before the main table's end is of a log that was cut since: what the side table has of it from
    there on are other records. TableError if the side table does not say where its rows come from.
    """
    if side is None:
        return SidePlan(before=Position(), noted=Position())
    side.refresh()
    before = noted = side.position()
    beyond: dict[Place, FileRange] = {}
    for each in ranges:
        topic = noted.topics.get(each.topic)
        if topic is None:
            continue
        if each.topic_id is not None and topic.topic_id not in (None, each.topic_id):
            noted = restarted(noted, each.topic, each.topic_id, ANEW)
            continue
        end = topic.partitions.get(each.partition)
        if end is None or end.offset <= each.start:
            continue
        note = _cut_note(main, each, end)
        if note is None or any(_same(note, gap) for gap in before.gaps):
            beyond[each.topic, each.partition] = each
        else:
            noted = _cut(noted, note, each.start)
    return SidePlan(before=before, noted=noted, known=_known(side, before, beyond) if beyond else {})


def side_batch(plan: SidePlan, attempt: Attempt, landed: Iterable[LandedRange], files: Sequence[str]) -> Batch | None:
    """What brings the bad records into the side table; None if it has all of them.

    ``landed`` are the ranges that were read, each with the rows that were written into ``files``. HoleError as with
    ``advanced``.
    """
    if not files and plan.noted == plan.before:
        return None
    ours = []
    for each in landed:
        topic = plan.noted.topics.get(each.topic)
        end = topic.partitions.get(each.partition) if topic is not None else None
        start = each.start if end is None else end.offset
        ours.append(replace(each, start=start, end=max(start, each.end), bad=0))
    after = advanced(plan.noted, ours, attempt=str(attempt))
    return Batch(attempt=attempt, before=plan.before, after=after, files=tuple(files))


def land_both(
    main: Table,
    batch: Batch,
    side: Table | None,
    bad: Batch | None,
    *,
    clock: Clock = now_ms,
    most_age_ms: int = MOST_AGE_MS,
    on_step: Steps = lambda _step: None,
) -> Position:
    """Lands the bad records, then the rows; answers the main table's position. Raises what ``land`` does.

    After an error, or a kill, plan the batch anew by ``plan_side``: whatever was landed until then is found. Steps are
    those of ``land``, with "side " before those of the side table.
    """
    main.refresh()
    position = main.position()
    if position == batch.after:
        return position
    if position != batch.before:
        raise PositionMovedError(f"{main.store.location}: {difference(position, batch.before)}")
    if bad is not None:
        if side is None:
            raise TableError(f"{main.store.location}: there are bad records and no side table to land them in")
        land(side, bad, clock=clock, most_age_ms=most_age_ms, on_step=lambda step: on_step(f"side {step}"))
    return land(main, batch, clock=clock, most_age_ms=most_age_ms, on_step=on_step)


# -- what the side table has -------------------------------------------------------------------------------------


def _cut_note(main: Position, each: FileRange, end: End) -> Gap | None:
    """What is to be noted if the log was cut below the main table's end; names the commit that this was seen on."""
    ends = main.topics.get(each.topic)
    if ends is None or ends.topic_id != each.topic_id or each.partition not in ends.partitions:
        return None
    if ends.partitions[each.partition].offset <= each.start:
        return None
    return Gap(
        topic=each.topic,
        topic_id=each.topic_id,
        partition=each.partition,
        start=end.offset,
        end=end.offset,
        reason=f"{CUT}; the table was at commit {main.sequence}",
    )


def _same(note: Gap, gap: Gap) -> bool:
    """True if a batch that was cut off has noted this already."""
    return (note.topic, note.topic_id, note.partition, note.reason) == (
        gap.topic,
        gap.topic_id,
        gap.partition,
        gap.reason,
    )


def _cut(noted: Position, note: Gap, to: Offset) -> Position:
    """The side table's end of a partition moved back to where its log was cut."""
    topic = noted.topics[note.topic]
    partitions = {**topic.partitions, note.partition: replace(topic.partitions[note.partition], offset=to)}
    return replace(
        noted,
        topics={**noted.topics, note.topic: replace(topic, partitions=partitions)},
        gaps=(*noted.gaps, note)[-MOST_GAPS:],
    )


def _known(side: Table, position: Position, beyond: Mapping[Place, FileRange]) -> dict[Place, Offsets]:
    schema = side.schema()
    partition = next((name for name in PARTITIONS if name in schema.names), None)
    lacking = [name for name, found in ((PARTITIONS[0], partition), (OFFSET, OFFSET in schema.names)) if not found]
    if partition is None or lacking:
        raise TableError(f"{side.store.location}: a table of bad records has no column {' and no '.join(lacking)}")
    if TOPIC not in schema.names and len(position.topics) > 1:
        raise TableError(f"{side.store.location}: bad records of {len(position.topics)} topics and no column {TOPIC}")
    found: dict[Place, list[Offsets]] = {place: [] for place in beyond}
    for path in side.files():
        wanted = _wanted(side, position, path, beyond)
        if not wanted:
            continue
        for batch in side.read([path], schema):
            for place in wanted:
                found[place].append(_offsets(batch, partition, place, beyond[place].start))
    return {place: np.sort(np.concatenate(parts)) for place, parts in found.items() if parts}


def _wanted(side: Table, position: Position, path: str, beyond: Mapping[Place, FileRange]) -> list[Place]:
    """Partitions that the file may have records of beyond the main table's end.

    Once a topic was made again, or its log was cut, one offset has been two records, and only files of the newest
    commit count for it: after a second cut-off a record may be in the side table twice, and is not left out.
    """
    attempt = attempt_in(path)
    twice = {gap.topic for gap in position.gaps}
    newest = attempt is not None and str(attempt) == position.attempt
    places = [place for place in beyond if place[0] not in twice or newest]
    ranges = ranges_in(side.store, path) if attempt is not None and places else ()
    if not ranges:  # of another engine
        return places
    ends = {(each.topic, each.partition): 0 for each in ranges}
    for each in ranges:
        ends[each.topic, each.partition] = max(ends[each.topic, each.partition], each.end)
    return [place for place in places if ends.get(place, 0) > beyond[place].start]


def _offsets(batch: pa.RecordBatch, column: str, place: Place, start: Offset) -> Offsets:
    topic, partition = place
    chosen = pc.and_(pc.equal(batch.column(column), partition), pc.greater_equal(batch.column(OFFSET), start))
    if TOPIC in batch.schema.names:
        chosen = pc.and_(chosen, pc.equal(batch.column(TOPIC), topic))
    offsets: Offsets = batch.column(OFFSET).filter(chosen).to_numpy(zero_copy_only=False).astype(np.int64)
    return offsets
