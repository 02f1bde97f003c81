"""``python -m benchmarks.recovery_points``: how long a start after kill -9 takes for one log of many small batches.

Writes batches of one record of 100 bytes to one segment, as an idempotent producer that sends at once does, and opens
the log as after a kill: checked from the segment's beginning, as it was before recovery points moved within segments,
and from such a point with as many batches behind it as there may be. The times are of one process, in turn.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from uuid import UUID

from benchmarks import machine
from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.record import Record, encode_batch
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.upkeep import UNCHECKED_BATCHES

TP = TopicPartition("t", 0)
CONFIG = LogConfig()
ROUNDS = 5


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.recovery_points", description=__doc__.split("\n")[0])
    parser.add_argument("--batches", type=int, default=300_000, help="in the segment (300,000)")
    options = parser.parse_args()
    print(machine.headline())
    with tempfile.TemporaryDirectory() as folder:
        directory = LogDir(folder, OsFiles(), InlineQueue())
        log = opened(directory, 0)
        fill(log, options.batches)
        point = log.begin_recovery_point()
        assert point is not None
        log.sync_recovery_point(point)
        log.take_recovery_point(point)
        fill(log, UNCHECKED_BATCHES)
        took: dict[str, list[float]] = {"from the beginning": [], "from a point": []}
        for _ in range(ROUNDS):
            took["from a point"].append(timed(directory, point.offset))
        for _ in range(ROUNDS):
            took["from the beginning"].append(timed(directory, 0))
        for what, seconds in took.items():
            print(f"{what:20} {statistics.median(seconds):8.3f} s   ({min(seconds):.3f} to {max(seconds):.3f})")
    return 0


def opened(directory: LogDir, recovery_point: int) -> Log:
    """The log as after a kill."""
    return Log.open(
        directory, TP, UUID(int=1), CONFIG, clean_shutdown=False, now_ms=0, recovery_point=recovery_point
    )  # fmt: skip


def timed(directory: LogDir, recovery_point: int) -> float:
    """Seconds to open it."""
    began_s = time.perf_counter()
    log = opened(directory, recovery_point)
    took_s = time.perf_counter() - began_s
    log.release()
    return took_s


def fill(log: Log, batches: int) -> None:
    """So many more, each with the next sequence."""
    sequence = log.view.end_offset
    value = b"x" * 100
    for number in range(batches):
        records = [Record(0, number, None, value)]
        batch = encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=sequence + number)
        log.append_as_leader(batch, 0, number)


if __name__ == "__main__":
    sys.exit(main())
