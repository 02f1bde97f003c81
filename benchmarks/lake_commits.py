"""What a commit costs as a table grows: many small ones, with upkeep in between, for each format. No Spark.

    python -m benchmarks.lake_commits --commits 20000

A commit is timed from the read of the position to its end; upkeep is not in it. Said are p50 and p99 of the first and
the last thousand, and the number of files in the table's directory.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import machine
from benchmarks.spark_read import say
from holdfast.lake.data_files import FileRange, attempt_of, name_of, write_file
from holdfast.lake.opening import make_table
from holdfast.lake.position import LandedRange, advanced
from holdfast.lake.table import Batch, Table, land, now_ms
from holdfast.lake.upkeep import maintain

ROWS = 100
SCHEMA = pa.schema([("_kafka_partition", pa.int32()), ("_offset", pa.int64()), ("name", pa.string())])


def commit(table: Table, number: int) -> None:
    start, attempt = number * ROWS, attempt_of(now_ms())
    table.refresh()
    before = table.position()
    place = {"topic": "t", "topic_id": None, "partition": 0, "start": start, "end": start + ROWS}
    ranges = (FileRange(**place),)
    offsets = np.arange(start, start + ROWS)
    rows = pa.record_batch([np.zeros(ROWS, np.int32), offsets, [f"n{each}" for each in range(ROWS)]], schema=SCHEMA)
    path = name_of(ranges, attempt, 0)
    write_file(table.store, path, SCHEMA, [rows], ranges=ranges)
    after = advanced(before, [LandedRange(**place, epoch=0, rows=ROWS)], attempt=str(attempt))
    land(table, Batch(attempt=attempt, before=before, after=after, files=(path,)))


def measure(form: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    table, times, worst = make_table(str(folder / "table"), form, SCHEMA), [], 0
    for number in range(args.commits):
        began = time.perf_counter()
        commit(table, number)
        times.append(time.perf_counter() - began)
        if (number + 1) % args.every == 0:
            # As many states are kept as a lake with a commit a second keeps.
            maintain(
                table, keep_ms=int(args.keep * sum(times[-200:]) / min(len(times), 200) * 1000), most_age_ms=60_000
            )
            worst = max(worst, sum(each.is_file() for each in folder.rglob("*")))
        if (number + 1) % 1000 == 0:
            say(f"{form}: {number + 1:,} commits, {times[-1] * 1000:.0f} ms, {worst:,} files at most")
    part = min(1000, len(times) // 4)
    numbers: dict[str, Any] = {"commits": args.commits, "files at most": worst}
    for name, some in (("first", times[:part]), ("last", times[-part:])):
        half, most = np.percentile(some, [50, 99]) * 1000
        numbers[f"{name} {part} p50 ms"], numbers[f"{name} {part} p99 ms"] = (
            round(float(half), 1),
            round(float(most), 1),
        )
    return numbers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", default="delta,iceberg,parquet")
    parser.add_argument("--commits", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=50, help="commits between two rounds of upkeep")
    parser.add_argument("--keep", type=int, default=600, help="states that are kept, about")
    args = parser.parse_args()
    print(json.dumps(machine.describe()))
    for form in args.format.split(","):
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            print(form, json.dumps(measure(form, args, Path(folder))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
