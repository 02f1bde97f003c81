"""``python -m benchmarks.background_work``: what loading groups and deleting partitions do to appends of the same disk.

Two rounds, each with a writer that sends so many MB/s to one partition (acks=1, records of 10 kB) and notes how long
each record took, for some seconds before and then during the background work, on the same disk in the same run:

* coordinator: one ``__consumer_offsets`` partition has some million commits, one batch each (they are written to the
  replicas' logs while the cluster is down); its leader is killed (kill -9), and the other broker, whose disk the writer
  uses, loads the groups. Told is also how long the groups were not served.
* deletion: a partition of so many GB is written, brought to the disk and deleted.

It prints tables; exit code 1 when a p99 is above the limit, a directory was called degraded, or the groups were served
too late.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from uuid import UUID

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import machine
from benchmarks.failover import LIMIT_S
from holdfast.groups.offset_records import encode_offset, encode_offset_key
from holdfast.groups.types import OffsetAndMetadata
from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.record import Record, encode_batch
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.testing import Cluster, wait_for

OFFSETS = TopicPartition("__consumer_offsets", 0)
TOPIC, GROUPS, PARTITIONS = "orders", 20, 100
RECORD_BYTES = 10_000
BIG_RECORD_BYTES = 512 << 10
LIMIT_MS = 20.0
SERVED_S = 15.0
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "log.segment.delete.delay.ms": "1000",
}
_OFFSET = Struct(">q")
Sample = tuple[float, float]
"""When a record was sent (monotonic clock) and how many ms its acknowledgement took."""


def main() -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.background_work", description=__doc__.split("\n")[0])
    parser.add_argument("--commits", type=int, default=5_000_000, help="in the partition of the groups (5,000,000)")
    parser.add_argument("--gigabytes", type=float, default=20.0, help="of the partition that is deleted (20)")
    parser.add_argument("--mbps", type=float, default=20.0, help="that the writer sends, in MB/s (20)")
    parser.add_argument("--seconds", type=float, default=15.0, help="measured before the work begins (15)")
    parser.add_argument("--only", choices=("coordinator", "deletion"))
    parser.add_argument("--write", nargs=3, metavar=("BOOTSTRAP", "TOPIC", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        bootstrap, topic, path = options.write
        return write(bootstrap, topic, path, options.mbps)
    print(f"{machine.headline()}\n")
    good = True
    if options.only != "deletion":
        good = coordinator(options.commits, options.mbps, options.seconds) and good
    if options.only != "coordinator":
        good = deletion(options.gigabytes, options.mbps, options.seconds) and good
    return 0 if good else 1


# -- the coordinator -----------------------------------------------------------------------------------------------


def coordinator(commits: int, mbps: float, seconds: float) -> bool:
    """Kill the leader of a large partition of group offsets."""
    with Cluster(brokers=2, log_dirs=1, settings=SETTINGS) as cluster:
        create(cluster, NewTopic(TOPIC, PARTITIONS, 2))
        commit_something(cluster)
        cluster.wait_in_sync()
        cluster.stop()
        for broker in (1, 2):
            size = add_commits(cluster.log_dir(broker, 1), commits)
        cluster.start()
        cluster.wait_in_sync()
        served(cluster.bootstrap, commits)
        dying = cluster.describe([OFFSETS.topic]).partitions[OFFSETS.topic, 0].leader
        other = 3 - dying
        create(cluster, NewTopic("load", replica_assignment=[[other]], num_partitions=1))
        with writer(cluster, "load", mbps) as samples:
            began = time.monotonic()
            time.sleep(seconds)
            killed = time.monotonic()
            cluster.kill(dying)
            served(address(cluster, other), commits)
            ended = time.monotonic()
            time.sleep(seconds)
        cluster.stop()
        said = (cluster.data_dir / f"broker-{other}.log").read_text()
    took = [line for line in said.splitlines() if "groups of" in line]
    print(f"a coordinator with {commits:,} commits ({size / 1e6:.0f} MB) dies; {mbps:g} MB/s to the other one's disk")
    good = table(samples, before=(began, killed), during=(killed, ended), after=(ended, ended + seconds))
    print(
        f"groups served again after {ended - killed:.1f} s; {took[-1].partition('] ')[2] if took else 'no word of it'}"
    )
    print(f"directories called degraded: {said.count('is degraded')}\n")
    return good and ended - killed < SERVED_S and "is degraded" not in said


def commit_something(cluster: Cluster) -> None:
    """So that there is a partition of group offsets."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "first", "log_level": 0})
    try:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    finally:
        consumer.close()


def add_commits(path: Path, commits: int) -> int:
    """Append so many commits to the replica of a broker that is stopped; how many bytes the log has."""
    directory = LogDir(str(path), OsFiles(), InlineQueue())
    config = LogConfig(segment_bytes=104_857_600)
    log = Log.open(directory, OFFSETS, None, config, clean_shutdown=True, now_ms=now_ms())
    block, starts = commit_block(log.view.last_epoch or 0)
    offset, end = log.view.end_offset, log.view.end_offset + commits
    while offset < end:
        if end - offset < len(starts):
            del block[starts[end - offset] :], starts[end - offset :]
        for start in starts:
            _OFFSET.pack_into(block, start, offset)
            offset += 1
        log.append_as_follower(block, now_ms())
    log.close(clean=True)
    return log.view.size


def commit_block(epoch: int) -> tuple[bytearray, list[int]]:
    """One commit of each group in each partition, a batch each, and where they begin. All say the same offset."""
    block, starts = bytearray(), []
    committed = encode_offset(OffsetAndMetadata(7, 0, "", now_ms(), None, UUID(int=5)))
    for group in range(GROUPS):
        for partition in range(PARTITIONS):
            key = encode_offset_key(f"consumers-of-orders-{group}", TopicPartition(TOPIC, partition))
            starts.append(len(block))
            block += encode_batch([Record(0, now_ms(), key, committed)], base_sequence=0, leader_epoch=epoch)
    return block, starts


def served(bootstrap: str, commits: int) -> None:
    """Wait until all groups answer with their offsets."""
    wanted = [confluent_kafka.TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
    for group in range(min(GROUPS, -(-commits // PARTITIONS))):
        name = f"consumers-of-orders-{group}"
        settings = {"bootstrap.servers": bootstrap, "group.id": name, "log_level": 0, "reconnect.backoff.max.ms": 100}
        consumer = confluent_kafka.Consumer(settings)

        def has_them(consumer: confluent_kafka.Consumer = consumer) -> bool:
            try:
                found = consumer.committed(wanted, timeout=1.0)
            except confluent_kafka.KafkaException:
                return False
            return all(each.offset == 7 and each.error is None for each in found)

        try:
            wait_for(has_them, f"the offsets of {name}", timeout_s=120)
        finally:
            consumer.close()


# -- the deletion --------------------------------------------------------------------------------------------------


def deletion(gigabytes: float, mbps: float, seconds: float) -> bool:
    """Delete a large partition."""
    with Cluster(brokers=1, log_dirs=1, settings=SETTINGS | {"offsets.topic.replication.factor": "1"}) as cluster:
        create(cluster, NewTopic("load", 1, 1), NewTopic("big", 1, 1))
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        fill(cluster.bootstrap, "big", int(gigabytes * 1e9))
        os.sync()
        folder = cluster.folder_of(1, "big", 0)
        size = sum(each.stat().st_size for each in folder.glob("*.log"))
        with writer(cluster, "load", mbps) as samples:
            began = time.monotonic()
            time.sleep(seconds)
            deleted = time.monotonic()
            admin.delete_topics(["big"])["big"].result(LIMIT_S)
            wait_for(lambda: not list(folder.parent.glob("big-0*")), "the files to be gone", timeout_s=300)
            ended = time.monotonic()
            time.sleep(seconds)
        said = (cluster.data_dir / "broker-1.log").read_text()
    print(f"a partition of {size / 1e9:.1f} GB is deleted; {mbps:g} MB/s to the same disk")
    good = table(samples, before=(began, deleted), during=(deleted, ended), after=(ended, ended + seconds))
    print(f"the files were gone after {ended - deleted:.1f} s, of which 1 to 6 s are their delay")
    print(f"directories called degraded: {said.count('is degraded')}\n")
    return good and "is degraded" not in said


def fill(bootstrap: str, topic: str, size: int) -> None:
    """Write so many bytes as fast as they are taken."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "1", "message.max.bytes": 1_000_000})
    value, failed = os.urandom(BIG_RECORD_BYTES), []

    def told(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    for _ in range(-(-size // BIG_RECORD_BYTES)):
        while True:
            try:
                producer.produce(topic, value, partition=0, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    assert not failed, failed[0]


# -- the writer ----------------------------------------------------------------------------------------------------


@contextmanager
def writer(cluster: Cluster, topic: str, mbps: float) -> Iterator[list[Sample]]:
    """A process that writes meanwhile; its samples are there afterwards."""
    samples: list[Sample] = []
    path = cluster.data_dir / "samples.json"
    leader = cluster.describe([topic]).partitions[topic, 0].leader
    command = [sys.executable, "-m", "benchmarks.background_work", "--mbps", str(mbps)]
    command += ["--write", address(cluster, leader), topic, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        time.sleep(3.0)  # connected, and the first records are behind it
        yield samples
    finally:
        process.communicate(b"\n", timeout=LIMIT_S)
    samples += [(sent, took) for sent, took in json.loads(path.read_text())]


def write(bootstrap: str, topic: str, path: str, mbps: float) -> int:
    """In a process of its own: write until standard input says something."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 0})
    value, samples = os.urandom(RECORD_BYTES), []

    def told(sent: float) -> Callable[[object, object], None]:
        def done(error: object, _: object) -> None:
            assert error is None, error
            samples.append((sent, (time.monotonic() - sent) * 1000))

        return done

    os.set_blocking(0, False)
    next_s, interval_s = time.monotonic(), RECORD_BYTES / (mbps * 1e6)
    while not os_has_input():
        while next_s <= time.monotonic():
            producer.produce(topic, value, partition=0, on_delivery=told(time.monotonic()))
            next_s += interval_s
        producer.poll(0)
        time.sleep(max(0.0, min(0.0005, next_s - time.monotonic())))  # poll with less than a millisecond would spin
    producer.flush()
    Path(path).write_text(json.dumps(samples))
    return 0


def os_has_input() -> bool:
    try:
        os.read(0, 1)
    except BlockingIOError:
        return False
    return True


# -- what both need ------------------------------------------------------------------------------------------------


def create(cluster: Cluster, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for made in admin.create_topics(list(topics)).values():
        made.result(LIMIT_S)
    cluster.wait_in_sync([topic.topic for topic in topics])


def address(cluster: Cluster, broker: int) -> str:
    host, port = cluster.addresses()[broker - 1]
    return f"{host}:{port}"


def now_ms() -> int:
    return int(time.time() * 1000)


def table(samples: Iterable[Sample], **windows: tuple[float, float]) -> bool:
    """Print the latencies in each window; whether the p99 of all is below the limit."""
    every, good = sorted(samples), True
    print("\n| produce, ms | seconds | records | p50 | p90 | p99 | p99.9 | longest |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for name, (start, end) in windows.items():
        found = sorted(took for sent, took in every if start <= sent < end)
        if not found:
            print(f"| {name} | {end - start:.1f} | 0 | | | | | |")
            good = False
            continue
        spread = " | ".join(f"{found[int(len(found) * share)]:.1f}" for share in (0.5, 0.9, 0.99, 0.999))
        print(f"| {name} | {end - start:.1f} | {len(found):,} | {spread} | {found[-1]:.1f} |")
        good = good and (name != "during" or found[int(len(found) * 0.99)] < LIMIT_MS)
    print()
    start, end = windows["during"]
    found = pauses(sample for sample in every if start <= sample[0] < end)
    told = ", ".join(f"{longest:.0f} at {sent - start:.2f} s" for sent, longest in found)
    print(f"longer than {LIMIT_MS:.0f} ms, one after another: {told or 'none'}\n")
    return good


def pauses(samples: Iterable[Sample]) -> list[Sample]:
    """What took longer than the limit, as pauses: the record of each that took longest. Ordered samples."""
    found: list[Sample] = []
    last_s = 0.0
    for sent, took in samples:
        if took < LIMIT_MS:
            continue
        if found and sent - last_s < LIMIT_MS / 1000:
            found[-1] = max(found[-1], (sent, took), key=lambda sample: sample[1])
        else:
            found.append((sent, took))
        last_s = sent
    return found


if __name__ == "__main__":
    sys.exit(main())
