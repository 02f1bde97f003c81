"""What an append to a log costs beyond the CRC and the write that nobody can save.

    python -m benchmarks.storage_append [--dir DIR] [--seconds 2]

In one process and one run: a raw pwrite, the CRC and a pwrite, and ``Log.append_as_leader``, of batches of 100 B
and of 1 MB; then reads at the end of the log, the memory of idle logs, and how long they take to create and load.
Files go to a temporary directory under --dir (the current one by default: name a real disk, not a tmpfs).
"""

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Callable
from uuid import UUID

from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.batch import crc_ok, parse_header
from holdfast.records.record import Record, encode_batch
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.log_manager import LogManager
from holdfast.storage.removal import Removals

NOW_MS = 1_700_000_000_000
IDLE_LOGS = 3330
FILE_LIMIT = 256 << 20


def batch_of(size: int) -> bytearray:
    """One record in a batch of ``size`` bytes or a few less."""
    overhead = len(encode_batch([Record(0, NOW_MS, None, b"x" * (size - 80))])) - (size - 80)
    return encode_batch([Record(0, NOW_MS, None, b"x" * (size - overhead))])


def per_call_us(work: Callable[[], object], seconds: float) -> float:
    """Microseconds of one call, the best of three rounds."""
    best = float("inf")
    for _ in range(3):
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds / 3:
            for _ in range(10):
                work()
            count += 10
        best = min(best, (time.perf_counter() - start) / count * 1e6)
    return best


def resident_kb() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def open_dir(path: str) -> LogDir:
    directory = LogDir(path, OsFiles(), InlineQueue())
    directory.open(node_id=1, cluster_id="bench", new_id=lambda: UUID(int=1), now_ms=NOW_MS)
    return directory


def appends(root: str, size: int, seconds: float) -> None:
    batch = batch_of(size)
    fd = os.open(f"{root}/raw", os.O_RDWR | os.O_CREAT)
    position = 0

    def raw() -> None:
        nonlocal position
        if position > FILE_LIMIT:  # new pages for all three: writing over old ones is cheaper
            os.ftruncate(fd, 0)
            position = 0
        os.pwrite(fd, batch, position)
        position += len(batch)

    header = parse_header(batch)

    def raw_and_crc() -> None:
        crc_ok(batch, 0, header)
        raw()

    directory = open_dir(f"{root}/dir-{size}")
    log = Log.open(
        directory,
        TopicPartition("bench", 0),
        UUID(int=2),
        LogConfig(segment_bytes=FILE_LIMIT, retention_bytes=1, file_delete_delay_ms=0),
        clean_shutdown=True,
        now_ms=NOW_MS,
    )

    def append() -> None:
        batch[:8] = bytes(8)  # a producer's base offset
        log.append_as_leader(batch, 0, NOW_MS)
        if log.has_rolled:
            log.delete_old_segments(NOW_MS, log.view.end_offset)
            Removals().add(directory, log.take_retired(NOW_MS))

    costs = [per_call_us(work, seconds) for work in (raw, raw_and_crc, append)]
    rates = [len(batch) / cost for cost in costs]
    print(
        f"{len(batch):>8} B   pwrite {costs[0]:8.1f} us {rates[0]:6.0f} MB/s   crc+pwrite {costs[1]:8.1f} us "
        f"{rates[1]:6.0f} MB/s   append {costs[2]:8.1f} us {rates[2]:6.0f} MB/s   "
        f"append - (crc+pwrite) {costs[2] - costs[1]:6.1f} us"
    )
    end = log.view.end_offset
    tail = per_call_us(lambda: log.read(end - 1, 1 << 20, end), seconds / 4)
    print(f"{'':>10}   read at the end {tail:.2f} us")
    log.close(clean=False)
    os.close(fd)
    os.unlink(f"{root}/raw")
    directory.files.rmtree(directory.path)
    directory.close()


def idle_logs(root: str) -> None:
    def manager() -> LogManager:
        dirs = [LogDir(f"{root}/idle-{i}", OsFiles(), InlineQueue()) for i in range(2)]
        logs = LogManager(dirs, node_id=1, cluster_id="bench", config_of=lambda topic: config)
        logs.start(NOW_MS, lambda error: None)
        return logs

    config = LogConfig()
    logs = manager()
    gc.collect()
    before = resident_kb()
    start = time.perf_counter()
    for i in range(IDLE_LOGS):
        logs.new.create(
            TopicPartition("bench", i), UUID(int=2), config, is_new=True, now_ms=NOW_MS, done=lambda log, error: None
        )
    created = time.perf_counter() - start
    memory = (resident_kb() - before) / IDLE_LOGS
    for log in list(logs.logs())[:1000]:
        log.append_as_leader(batch_of(100), 0, NOW_MS)
    timings = []
    for clean in (False, True):
        for directory in logs.dirs:
            directory.close()
        start = time.perf_counter()
        logs = manager()
        timings.append(time.perf_counter() - start)
        if not clean:
            start = time.perf_counter()
            logs.close(clean=True, broker_epoch=1, high_watermarks={}, done=lambda: None)
            closing = time.perf_counter() - start
    per_log = [t / IDLE_LOGS * 1e3 for t in (created, timings[0], closing, timings[1])]
    print(
        f"{IDLE_LOGS} logs: {memory:.1f} kB each; ms each: create {per_log[0]:.3f}, recover {per_log[1]:.3f}, "
        f"close {per_log[2]:.3f}, load {per_log[3]:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=".")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.dir) as root:
        for size in (100, 1_000_000):
            appends(root, size, arguments.seconds)
        idle_logs(root)


if __name__ == "__main__":
    main()
