"""``python -m benchmarks.compaction``: how fast a log is cleaned, and what that does to who writes meanwhile.

A log of 10 million records of 100,000 keys, chosen by chance, is filled while its policy is ``delete``; then that
becomes ``compact``, and the time until nothing but the newest of each key is left is taken, but for the active segment.
Bytes are those of the segments that are read. A writer sends a record every 2 ms to another partition of the same disk
before and meanwhile. Turns of the broker's event loop are measured by the CPU of its own thread. Beside it, in the same
run, Apache Kafka with ``--kafka``.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from benchmarks import loop_turns, machine
from benchmarks.failover import Writer
from benchmarks.system import HOLDFAST, KAFKA, Kind
from holdfast.testing import Cluster, wait_for

KEYS = 100_000
SEGMENT_BYTES = 256 << 20
TOPIC, OTHER = "changes", "other"
BEFORE_S = 5.0
LIMIT_S = 1800.0
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.5",
}
SIZES = {"100 B": 100, "1 KiB": 1024}


def main() -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.compaction", description=__doc__.split("\n")[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--size", choices=tuple(SIZES), action="append", help="of a record (both)")
    parser.add_argument("--codec", choices=("none", "lz4"), action="append", help="of the producer (both)")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka as well")
    parser.add_argument("--quick", action="store_true", help="a million records of 100 B, plain: indicative only")
    options = parser.parse_args()
    records = 1_000_000 if options.quick else options.records
    sizes = options.size or (["100 B"] if options.quick else list(SIZES))
    codecs = options.codec or (["none"] if options.quick else ["none", "lz4"])
    print(f"{machine.headline()}\n")
    print(
        "system | record | codec | MB read | MB left | s | MB/s | records/s | CPU s | p99 before, during (ms) | "
        "longest turn before, during (ms)"
    )
    for size in sizes:
        for codec in codecs:
            for kind in (HOLDFAST, KAFKA) if options.kafka else (HOLDFAST,):
                print(f"{kind.name} | {size} | {codec} | {measured(kind, records, SIZES[size], codec)}", flush=True)
    return 0


def measured(kind: Kind, records: int, size: int, codec: str) -> str:
    """One row of the table."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as scratch:
        segment = min(SEGMENT_BYTES, max(4 << 20, records * size // 10))
        settings = {**SETTINGS, "log.segment.bytes": str(segment)}
        cluster = Cluster(
            brokers=1, log_dirs=1, data_dir=Path(scratch), up=kind.up, ready_timeout_s=120, settings=settings
        )
        turns = Path(scratch) / "turns"
        with loop_turns.noted(turns), cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
            for future in admin.create_topics([NewTopic(TOPIC, 1, 1), NewTopic(OTHER, 1, 1)]).values():
                future.result(60)
            cluster.wait_in_sync([TOPIC, OTHER])
            fill(cluster.bootstrap, records, size, codec)
            folder = Path(scratch) / "broker-1" / "log-dir-1" / f"{TOPIC}-0"
            bases = sorted(folder.glob("*.log"))
            whole = sum(path.stat().st_size for path in bases[:-1])
            with Writer(cluster.bootstrap, OTHER, 0) as writer:
                time.sleep(BEFORE_S)
                cpu_s, began_s = machine.tree_cpu_s(), time.perf_counter()
                compact(admin)
                left = wait_clean(folder, int(bases[-1].stem))
                took_s = time.perf_counter() - began_s
                cpu_s = machine.tree_cpu_s() - cpu_s
            times = ((began_s - BEFORE_S, began_s), (began_s, began_s + took_s))
            before, during = (p99_ms(writer, *each) for each in times)
            longest = [loop_turns.longest_ms(turns, *each) for each in times]
    return (
        f"{whole / 1e6:,.0f} | {left / 1e6:,.1f} | {took_s:.1f} | {whole / 1e6 / took_s:.1f} | "
        f"{records / took_s:,.0f} | {cpu_s:.1f} | {before:.1f}, {during:.1f} | "
        + ("{:.1f}, {:.1f}".format(*longest) if kind is HOLDFAST else "")
    )


def fill(bootstrap: str, records: int, size: int, codec: str) -> None:
    """Records of that size, key and value; values do not compress much."""
    rng = random.Random(1)
    pieces = [rng.randbytes(size // 2).hex().encode()[: size - 10] for _ in range(1000)]
    failed: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.size": 65_536,
            "queue.buffering.max.messages": 500_000,
            "log_level": 0,
        }
    )
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, pieces[number % 1000], b"key-%06d" % rng.randrange(KEYS), partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        if not number & 0xFFF:
            producer.poll(0)
    assert producer.flush(300) == 0
    assert not failed


def compact(admin: AdminClient) -> None:
    """The policy of the topic becomes compact."""
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[change])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def wait_clean(folder: Path, active: int) -> int:
    """Until the log before the segment ``active`` is clean, by the file that says so; the bytes that are left of it."""
    told = folder.parent / "cleaner-offset-checkpoint"

    def done() -> bool:
        if not told.exists():
            return False
        lines = [line.split() for line in told.read_text().splitlines()]
        return any(line[:2] == [TOPIC, "0"] and int(line[2]) >= active for line in lines if len(line) == 3)

    wait_for(done, "the log is cleaned", timeout_s=LIMIT_S)
    return sum(path.stat().st_size for path in folder.glob("*.log") if int(path.stem) < active)


def p99_ms(writer: Writer, start_s: float, end_s: float) -> float:
    """Of the records that were sent in that time."""
    took = sorted(
        (moment - sent) * 1000
        for (moment, _), sent in zip(writer.acked, writer.sent, strict=True)
        if start_s <= sent < end_s
    )
    return took[int(len(took) * 0.99)] if took else float("nan")


if __name__ == "__main__":
    raise SystemExit(main())
