"""How long a broker takes to load a partition of ``__consumer_offsets``, before and after it was cleaned.

    python -m benchmarks.coordinator_load [--commits 1000000] [--keys 1000] [--segment-bytes 104857600]

The commits are written into the partition's files while the broker is stopped, a batch each, as its coordinator writes
them. Then it is started: it loads them and its cleaner cleans them. It is started once more, and loads what is left:
the newest of each key, and the segment that is written to, which no cleaning touches. Times are those that it logs.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

import confluent_kafka

from benchmarks import machine
from holdfast.groups.offset_records import encode_offset, encode_offset_key
from holdfast.groups.types import OffsetAndMetadata
from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.record import Record, encode_batch
from holdfast.storage import checkpoints
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.upkeep import STATE_SEGMENT_BYTES
from holdfast.testing import Cluster, wait_for

OFFSETS = TopicPartition("__consumer_offsets", 0)
PARTITIONS = 10
"""Of each group, with a committed offset each."""
NOW_MS = 1_790_000_000_000
PIECE = 2000
LIMIT_S = 600.0
LOADED = re.compile(r"__consumer_offsets-0 is read: (\d+) bytes in ([\d.]+) s")


def main() -> None:
    """Run it, and print a table."""
    parser = argparse.ArgumentParser(prog="benchmarks.coordinator_load", description=__doc__.split("\n")[0])
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--segment-bytes", type=int, default=100 << 20, help="offsets.topic.segment.bytes")
    options = parser.parse_args()
    print(f"{machine.headline()}\n")
    print("commits | keys | segment MB | MB, loads in s | cleaned: MB, loads in s", flush=True)
    before, after = measured(options.commits, options.keys, options.segment_bytes)
    segment = options.segment_bytes / (1 << 20)
    print(f"{options.commits:,} | {options.keys:,} | {segment:.0f} | {before} | {after}")


def measured(commits: int, keys: int, segment_bytes: int) -> tuple[str, str]:
    """Both loadings: megabytes and seconds."""
    settings = {
        "offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1", "log.cleaner.backoff.ms": "100",
        "offsets.topic.segment.bytes": str(segment_bytes),
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as scratch:
        data = Path(scratch)
        with Cluster(brokers=1, log_dirs=1, data_dir=data, settings=settings) as cluster:
            committed(cluster.bootstrap, keys - 1, keys)
            cluster.stop()
            folder = cluster.log_dir(1, 1)
            write(folder, commits, keys, segment_bytes)
            seen = len(loadings(data))
            cluster.start()
            assert committed(cluster.bootstrap, keys - 1, keys) == commits - 1
            before = loadings(data)[seen]
            most = min(segment_bytes, STATE_SEGMENT_BYTES) + 1000 * keys
            wait_for(lambda: size_of(folder) < most, "the partition is cleaned", timeout_s=LIMIT_S)
            cluster.stop()
            seen = len(loadings(data))
            cluster.start()
            assert committed(cluster.bootstrap, keys - 1, keys) == commits - 1
            return before, loadings(data)[seen]


def write(folder: Path, commits: int, keys: int, segment_bytes: int) -> None:
    """Commits of the keys in turn into the partition of a stopped broker."""
    directory = LogDir(str(folder), OsFiles(), InlineQueue())
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=segment_bytes)
    log = Log.open(directory, OFFSETS, None, config, clean_shutdown=True, now_ms=NOW_MS)
    log.assign_epoch(log.view.last_epoch or 0)
    first = log.view.end_offset
    for start in range(0, commits, PIECE):
        numbers = range(start, min(start + PIECE, commits))
        batches = bytearray(b"".join(commit(n, keys) for n in numbers))
        log.append_as_leader(batches, log.view.last_epoch or 0, NOW_MS, trusted=True)
    assert log.view.end_offset == first + commits
    log.close(clean=True)
    for name in (checkpoints.RECOVERY_POINT, checkpoints.HIGH_WATERMARK):
        offsets = checkpoints.decode_offsets((folder / name).read_bytes())
        offsets[OFFSETS] = log.view.end_offset
        (folder / name).write_bytes(checkpoints.encode_offsets(offsets.items()))


def commit(number: int, keys: int) -> bytearray:
    """The batch of one commit."""
    group, partition = divmod(number % keys, PARTITIONS)
    key = encode_offset_key(f"group-of-some-length-{group}", TopicPartition("topic", partition))
    value = encode_offset(OffsetAndMetadata(number, 1, "", NOW_MS))
    return encode_batch([Record(0, NOW_MS, key, value)], base_sequence=0)


def committed(bootstrap: str, key: int, keys: int) -> int:
    """The offset of one of the keys, as a client hears it."""
    group, partition = divmod(key % keys, PARTITIONS)
    name = f"group-of-some-length-{group}"
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": name, "log_level": 0})
    [found] = consumer.committed([confluent_kafka.TopicPartition("topic", partition)], LIMIT_S)
    consumer.close()
    return found.offset


def loadings(data: Path) -> list[str]:
    """What the broker has logged of them until now."""
    text = "\n".join(path.read_text(errors="replace") for path in sorted(data.glob("*.log")))
    return [f"{int(size) / 1e6:.1f}, {seconds}" for size, seconds in LOADED.findall(text)]


def size_of(folder: Path) -> int:
    """Bytes of the partition's batches."""
    while True:
        try:
            return sum(path.stat().st_size for path in (folder / str(OFFSETS)).glob("*.log"))
        except FileNotFoundError:  # one was replaced meanwhile
            continue


if __name__ == "__main__":
    main()
