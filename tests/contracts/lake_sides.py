"""Batches with bad records for a table and its side table, and a writer of both that is killed at a named step.

Every third record is bad, or what ``bad`` says. Run in a process of its own by test_lake_side.py.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa

from holdfast.lake.data_files import FileRange, attempt_of, name_of, write_file
from holdfast.lake.opening import make_table, open_table
from holdfast.lake.position import LandedRange, Position, advanced
from holdfast.lake.side import land_both, plan_side, side_batch, side_location
from holdfast.lake.table import Batch, Table, now_ms
from tests.contracts.lake_killed import killed_inside
from tests.contracts.lake_tables import FORMATS, SCHEMA, TOPIC, TOPIC_ID, opened, rows

SIDE_SCHEMA = pa.schema([("_topic", pa.string()), ("_kafka_partition", pa.int32()), ("_offset", pa.int64())])
KILLS = [
    *(("side committed", format) for format in FORMATS),
    ("side inside", "parquet"),
    ("inside", "parquet"),
    ("committed", "parquet"),
]

Bad = Callable[[int], bool]


def third(offset: int) -> bool:
    return offset % 3 == 0


def side_made(folder: Path, format: str) -> Table:
    return make_table(side_location(str(folder / "table")), format, SIDE_SCHEMA)


def side_opened(folder: Path, format: str) -> Table:
    found = open_table(side_location(str(folder / "table")), format)
    assert found is not None
    return found


def both(
    main: Table,
    side: Table,
    before: Position,
    start: int,
    end: int,
    *,
    bad: Bad = third,
    topic_id: UUID = TOPIC_ID,
    noted: Position | None = None,
) -> tuple[Batch, Batch | None]:
    """Makes the records ``start <= offset < end`` of partition 0 and writes the files of both tables."""
    reading = FileRange(topic=TOPIC, topic_id=topic_id, partition=0, start=start, end=end)
    attempt = attempt_of(now_ms())
    plan = plan_side(side, before, [reading])
    is_bad = np.array([bad(offset) for offset in range(start, end)], bool)
    good = rows(0, start, end).filter(pa.array(~is_bad))
    offsets = np.arange(start, end)[is_bad]
    lacking = offsets[plan.lacks(TOPIC, 0, offsets)]
    path = name_of((reading,), attempt, 0)
    write_file(main.store, path, SCHEMA, [good], ranges=(reading,))
    bad_files = ()
    if len(lacking):
        columns = [pa.array([TOPIC] * len(lacking)), pa.array([0] * len(lacking), pa.int32()), pa.array(lacking)]
        write_file(
            side.store, path, SIDE_SCHEMA, [pa.RecordBatch.from_arrays(columns, schema=SIDE_SCHEMA)], ranges=(reading,)
        )
        bad_files = (path,)
    landed = LandedRange(
        topic=TOPIC, topic_id=topic_id, partition=0, start=start, end=end, epoch=1, rows=good.num_rows, bad=len(offsets)
    )
    aside = LandedRange(topic=TOPIC, topic_id=topic_id, partition=0, start=start, end=end, epoch=1, rows=len(lacking))
    after = advanced(noted or before, [landed], attempt=str(attempt))
    batch = Batch(attempt=attempt, before=before, after=after, files=(path,))
    return batch, side_batch(plan, attempt, [aside], bad_files)


def write_both(folder: Path, format: str, at: str, size: int, batches: int) -> None:
    """``batches`` batches of ``size`` records; at the step ``NAME@BATCH`` kills itself as kill -9 does."""
    main, side = opened(folder, format), side_opened(folder, format)

    now = [""]

    def reached(name: str, batch: int) -> None:
        now[0] = name
        if f"{name}@{batch}" == at:
            os.kill(os.getpid(), signal.SIGKILL)

    for each in range(batches):
        main.refresh()
        before = main.position()
        start = before.topics[TOPIC].partitions[0].offset if before.topics else 0
        batch, bad = both(main, side, before, start, start + size)
        # Inside whichever of the two commits is under way.
        with killed_inside(main, lambda: reached(now[0].replace("commit", "inside"), each)):  # noqa: B023
            land_both(main, batch, side, bad, on_step=lambda name: reached(name, each))  # noqa: B023
