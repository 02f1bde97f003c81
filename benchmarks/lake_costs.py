"""What a row of the lake costs, stage by stage, in one process without Spark: CPU of fetch, batches, values, file.

Each stage is run with all before it, and what it adds is its cost. What a job costs beyond the sum of them is Spark,
its processes, the plan and the commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from holdfast.lake.data_files import attempt_of
from holdfast.lake.position import Position
from holdfast.lake.side import SidePlan
from holdfast.lake.table import now_ms
from holdfast.records.columns import ColumnDecoder
from holdfast.spark.cluster_guide import ClusterGuide
from holdfast.spark.fetching import Fetched, RangeFetcher
from holdfast.spark.lake_values import PLACE, VALUE, Values
from holdfast.spark.lake_write import LandTask, land_task
from holdfast.spark.options import ReadOptions, parse_read
from holdfast.spark.ranges import Range
from holdfast.spark.topics import Topics

STAGES = ("fetched", "record batches decoded", "values decoded", "file written")


def ranges_of(options: ReadOptions) -> tuple[Range, ...]:
    topics = Topics(options)
    tps = topics.partitions()
    earliest, latest, leaders = topics.earliest(tps), topics.latest(tps), topics.leaders(tps)
    return tuple(Range(tp=tp, start=earliest[tp], end=latest[tp], leader=leaders.get(tp)) for tp in tps)


def costs(bootstrap: str, topic: str, values: Values, root: Path, passes: int = 3) -> dict[str, float]:
    """Microseconds of CPU a row that each stage adds: the best of the passes."""
    options = parse_read({"kafka.bootstrap.servers": bootstrap, "subscribe": topic}, streaming=False)
    ranges = ranges_of(options)
    rows = sum(each.size for each in ranges)
    best = dict.fromkeys(STAGES, float("inf"))
    for _ in range(passes):
        for stage in STAGES:
            began = time.process_time()
            if stage == STAGES[3]:
                land_task(_task(ranges, options, values, root / uuid4().hex))
            else:
                _run(stage, ranges, options, values)
            best[stage] = min(best[stage], (time.process_time() - began) / rows * 1e6)
    added = [best[stage] - (best[STAGES[n - 1]] if n else 0.0) for n, stage in enumerate(STAGES)]
    return dict(zip(STAGES, added, strict=True))


def _parts(ranges: tuple[Range, ...], options: ReadOptions) -> Iterator[Fetched]:
    yield from RangeFetcher(ranges, options, ClusterGuide(options))


def _run(stage: str, ranges: tuple[Range, ...], options: ReadOptions, values: Values) -> None:
    names = {PLACE[name][0] for name in values.schema().names if name in PLACE} | {VALUE}
    columns, typed = ColumnDecoder(tuple(sorted(names))), values.decoder()
    for part in _parts(ranges, options):
        if stage == STAGES[0]:
            continue
        for found in columns.decode(part.chunk, start=part.start, end=part.end, topic=part.tp.topic):
            if stage == STAGES[2]:
                typed.decode(found.arrays[VALUE])


def _task(ranges: tuple[Range, ...], options: ReadOptions, values: Values, folder: Path) -> LandTask:
    folder.mkdir(parents=True)
    side = SidePlan(before=Position(), noted=Position())
    known: dict[str, Any] = {"partitioning": None, "bad_location": f"{folder}_bad", "side": side}
    return LandTask(
        ranges=ranges, options=options, values=values, attempt=attempt_of(now_ms()), location=str(folder),
        schema=pa.schema(values.schema()), bad_schema=values.bad_schema(), **known,
    )  # fmt: skip
