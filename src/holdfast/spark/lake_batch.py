"""The driver's part of a batch of the lake: hand out tasks, and commit what they wrote together with the position.

Owns the order of things: what is lost is noted, what is new is decided upon, then the bad records' table is committed,
then the table. Each is refused unless it ends where the batch begins, so a batch that was cut off between the two is
finished by the one that comes next.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.lake.data_files import Attempt, FileRange, attempt_of
from holdfast.lake.errors import ConflictError
from holdfast.lake.evolution import evolve
from holdfast.lake.planning import Joined, without
from holdfast.lake.position import LandedRange, Position, advanced, place
from holdfast.lake.side import SidePlan, land_both, plan_side, side_batch, side_location
from holdfast.lake.table import Batch, Table, now_ms
from holdfast.model.types import TopicPartition
from holdfast.records.typed.decoding import UnknownField
from holdfast.records.typed.schema_error import SchemaError
from holdfast.spark.lake_plan import BatchPlan, joined_plan
from holdfast.spark.lake_values import NewFields, Values
from holdfast.spark.lake_write import LandTask, LostOffsets, Steps, TaskFiles, joined_unknown, land_task
from holdfast.spark.options import ReadOptions
from holdfast.spark.ranges import Range, tasks_of
from holdfast.spark.shared_path import SharedPathCheck
from holdfast.spark.topics import DataLossError, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES: Final = 20
"""How often a batch is begun again because the log has lost some of it meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedBatch:
    """What one batch brought to the table."""

    rows: int
    bad: int
    position: Position
    unknown: Mapping[str, UnknownField]
    """Fields that there is no column for: what was in them is not in the table, unless in the column for the rest."""


@dataclass(slots=True, kw_only=True)
class Lander:
    """Lands batches in one table, and what is bad of them in another one."""

    spark: "SparkSession"
    topics: Topics
    options: ReadOptions
    values: Values
    table: Table
    make_side: Callable[[], Table]
    """Makes the table of bad records; called when there are some and no table yet."""
    side: Table | None
    new_fields: NewFields
    newest_values: Callable[[], Values]
    """Asks the job's registry again for the schema that is read; called when there are fields that it has not."""
    shared: SharedPathCheck
    """That executors see the table's place."""
    lose: bool
    """Go on where the log has lost what was to be landed, with a note in the position."""
    on_step: Callable[[str], None] = lambda _step: None
    on_task_step: Steps | None = None

    def land(self, plan: BatchPlan) -> LandedBatch | None:
        """None if the table has all of it. HoleError, DataLossError, PositionMovedError and what ``land`` raises."""
        self.shared.check()
        table = self.table
        table.refresh()
        position = table.position()
        joined = joined_plan(position, plan, self.topics, self.options, lose=self.lose)
        for _ in range(TRIES):
            if not joined.ranges and joined.before == position:
                return None
            side = plan_side(self.side, position, joined.ranges)
            attempt = attempt_of(now_ms())
            written = _Written(joined=joined, plan=plan, attempt=attempt, tasks=self._run(joined, attempt, side))
            lost = next((each.lost for each in written.tasks if each.lost is not None), None)
            if lost is not None:
                joined = self._without(joined, lost)
            elif not self._has_grown(written):
                self.on_step("written")
                return self._commit(position, written, side)
        raise ConflictError(
            f"{table.store.location}: the log has lost some of the batch, or brought new fields, {TRIES} times while "
            "it was read"
        )

    # -- tasks -----------------------------------------------------------------------------------------------

    def _run(self, joined: Joined, attempt: Attempt, side: SidePlan) -> list[TaskFiles]:
        context = self.spark.sparkContext
        leaders = self.topics.leaders([_tp(each) for each in joined.ranges])
        ranges = [
            Range(tp=_tp(each), start=each.start, end=each.end, leader=leaders.get(_tp(each)), topic_id=each.topic_id)
            for each in joined.ranges
        ]
        self.on_step("planned")
        wanted = [
            LandTask(
                ranges=each,
                options=self.options,
                values=self.values,
                attempt=attempt,
                location=self.table.store.location,
                schema=self.table.schema(),
                partitioning=self.table.partitioning,
                bad_location=side_location(self.table.store.location),
                bad_schema=self.values.bad_schema(),
                side=side,
                on_step=self.on_task_step,
            )
            for each in tasks_of(ranges, parallelism=context.defaultParallelism)
        ]
        if not wanted:
            return []
        return list(context.parallelize(wanted, len(wanted)).map(land_task).collect())

    def _without(self, joined: Joined, lost: LostOffsets) -> Joined:
        """The batch without what the log lost since it was planned; DataLossError where that is to end the query."""
        [wanted] = [each for each in joined.ranges if _tp(each) == lost.tp]
        gone = replace(wanted, end=min(max(lost.log_start, wanted.start), wanted.end))
        short = replace(wanted, end=max(min(lost.log_end, wanted.end), wanted.start))
        if not self.lose:
            where = place(wanted.topic, wanted.topic_id, wanted.partition)
            first, last = (gone.start, gone.end) if gone.start < gone.end else (short.end, wanted.end)
            raise DataLossError(f"{where}: offsets {first} to {last} are missing in the log: {lost.text}")
        if gone.start < gone.end:
            return without(joined, gone, "retention, or a deletion of records")
        # What the log does not reach is landed with a later batch, or told then.
        ranges = tuple(short if each == wanted else each for each in joined.ranges)
        return replace(joined, ranges=tuple(each for each in ranges if each.start < each.end))

    def _has_grown(self, written: "_Written") -> bool:
        """True if the table has columns for the batch's new fields now, so that it is to be written anew."""
        unknown = written.unknown()
        if not unknown or self.new_fields in ("rest", "drop"):
            return False
        if self.new_fields == "fail":
            names = ", ".join(f"{name} {each.type} (of {each.rows} records)" for name, each in unknown.items())
            raise SchemaError(f"{self.table.store.location} has no column for {names}; nothing of the batch is landed")
        grown = self._with_columns_for(unknown)
        if grown is None:
            return False
        known = self.values.schema().names
        # That of the whole table, as a field may have the name of a column that the lake adds.
        fields = [each for each in grown.schema() if each.name not in known]
        evolve(self.table, fields, on_step=self.on_step)
        self.values = grown
        return True

    def _with_columns_for(self, unknown: Mapping[str, UnknownField]) -> Values | None:
        """None where there is nothing that a column could be added for. Of JSON by what the fields are, of other
        formats by the newest schema; SchemaError if that has none of them either."""
        if self.values.format == "json":
            fields = [pa.field(name, each.type) for name, each in unknown.items() if not each.nested]
            return replace(self.values, fields=pa.schema([*self.values.fields, *fields])) if fields else None
        known = set(self.values.fields.names)
        new = [name for name in unknown if name.partition(".")[0] not in known]
        if not new:  # within fields that have a column
            return None
        newest = self.newest_values()
        if set(newest.fields.names) <= known:
            raise SchemaError(
                f"{self.table.store.location} has no column for {', '.join(new)}, and neither has the schema that is "
                "read: give one that has, or let new fields be dropped; nothing of the batch is landed"
            )
        return newest

    # -- commits ---------------------------------------------------------------------------------------------

    def _commit(self, position: Position, written: "_Written", side: SidePlan) -> LandedBatch:
        joined, plan, attempt = written.joined, written.plan, written.attempt
        rows, bad, put_aside = written.count("rows"), written.count("bad"), written.count("bad_written")
        landed = [_landed(each, plan, rows.get(_tp(each), 0), bad.get(_tp(each), 0)) for each in joined.ranges]
        known = _partitions(joined.before) | {_tp(each) for each in joined.ranges}
        # The table learns of partitions that nothing is in yet.
        landed += [_landed(each, plan) for each in plan.ranges if each.start == each.end and _tp(each) not in known]
        after = advanced(joined.before, landed, attempt=str(attempt))
        batch = Batch(attempt=attempt, before=position, after=after, files=written.files)
        aside = [_landed(each, plan, put_aside.get(_tp(each), 0)) for each in joined.ranges]
        bad_batch = side_batch(side, attempt, aside, written.bad_files)
        if bad_batch is not None and self.side is None:
            self.side = self.make_side()
        land_both(self.table, batch, self.side, bad_batch, on_step=self.on_step)
        return LandedBatch(
            rows=after.rows - position.rows,
            bad=after.bad - position.bad,
            position=after,
            unknown=written.unknown(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """One attempt's files, and what they are of."""

    joined: Joined
    plan: BatchPlan
    attempt: Attempt
    tasks: Sequence[TaskFiles]

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(path for each in self.tasks for path in each.files)

    @property
    def bad_files(self) -> tuple[str, ...]:
        return tuple(path for each in self.tasks for path in each.bad_files)

    def count(self, name: str) -> dict[TopicPartition, int]:
        """``rows``, ``bad`` or ``bad_written``, by partition."""
        found: dict[TopicPartition, int] = {}
        for each in self.tasks:
            for tp, number in getattr(each, name).items():
                found[tp] = found.get(tp, 0) + number
        return found

    def unknown(self) -> dict[str, UnknownField]:
        found: dict[str, UnknownField] = {}
        for each in self.tasks:
            for name, one in each.unknown.items():
                found[name] = joined_unknown(found.get(name), one)
        return found


def _landed(each: FileRange, plan: BatchPlan, rows: int = 0, bad: int = 0) -> LandedRange:
    return LandedRange(
        topic=each.topic,
        topic_id=each.topic_id,
        partition=each.partition,
        start=each.start,
        end=each.end,
        epoch=plan.epochs.get(_tp(each)),
        rows=rows,
        bad=bad,
    )


def _partitions(position: Position) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for topic, each in position.topics.items() for number in each.partitions}


def _tp(each: FileRange) -> TopicPartition:
    return TopicPartition(each.topic, each.partition)
