"""The audit as a Spark job: replicas made by hand, and those of a real cluster, sound and damaged."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from click.testing import CliRunner

from holdfast.cli.main import main
from holdfast.client.blocking import BlockingClient
from holdfast.client.views import NewTopic
from holdfast.model.types import TopicPartition
from holdfast.records.batch import HEADER_SIZE, stamp
from holdfast.records.record import Record, encode_batch
from holdfast.spark import audit
from holdfast.spark.audit import AuditedState, AuditError, AuditResult, PartitionAudit, ProblemKind
from holdfast.spark.audit_compare import Comparer
from holdfast.spark.audit_plan import PartitionPlan, ReplicaPlan, cut, list_segments
from holdfast.spark.audit_verdict import MAX_PROBLEMS, judge, windows_of
from holdfast.testing import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NOW_MS = time.time_ns() // 1_000_000
"""Records of some fixed time in the past would be retention's."""
PER_BATCH = 5


def batch_of(base_offset: int, count: int = PER_BATCH, text: bytes = b"value") -> bytearray:
    batch = encode_batch([Record(i, NOW_MS, None, text + b" %d" % (base_offset + i)) for i in range(count)])
    stamp(batch, 0, base_offset, 0)
    return batch


# -- replicas made by hand -------------------------------------------------------------------------------------


def written(folder: Path, *batches: bytearray) -> Path:
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.log").write_bytes(b"".join(batches))
    return folder


def plan_of(number: int, high_watermark: int, *folders: Path, compacted: bool = False) -> PartitionPlan:
    tp = TopicPartition("made", number)
    replicas = tuple(
        ReplicaPlan(
            tp=tp,
            broker=slot + 1,
            slot=slot,
            in_sync=True,
            high_watermark=high_watermark,
            compacted=compacted,
            directory=str(folder.parent),
            segments=list_segments(str(folder)),
        )
        for slot, folder in enumerate(folders)
    )
    return PartitionPlan(
        tp=tp,
        leader=1,
        log_start_offset=0,
        high_watermark=high_watermark,
        compacted=compacted,
        replicas=replicas,
    )


def compared(spark: Any, *plans: PartitionPlan) -> list[PartitionAudit]:
    with Comparer(spark, cut(plans, parallelism=2)) as comparer:
        reports = comparer.read()
        found = comparer.compare(plans, {plan.tp: windows_of(plan, reports) for plan in plans})
    return [judge(plan, reports, found[plan.tp]) for plan in plans]


def test_replicas_beside_each_other(spark: Any, tmp_path: Path) -> None:
    whole = [batch_of(n) for n in range(0, 50, PER_BATCH)]
    other = [batch_of(n, text=b"OTHER" if n == 20 else b"value") for n in range(0, 50, PER_BATCH)]
    split = [*whole[:4], batch_of(20, 2), batch_of(22, 3), *whole[5:]]
    foreign = [batch_of(n, text=b"OTHER") for n in range(0, 50, PER_BATCH)]
    cleaned = [whole[0], *whole[2:]]
    folder = {
        name: written(tmp_path / name / "made-0", *batches)
        for name, batches in {"w": whole, "o": other, "s": split, "f": foreign, "c": cleaned}.items()
    }
    shorter = written(tmp_path / "short" / "made-0", *whole, batch_of(50)[:-1])
    longer = written(tmp_path / "long" / "made-0", *whole, batch_of(50), batch_of(55))
    many = [batch_of(n, 1) for n in range(50)]
    many_others = [batch_of(n, 1, b"OTHER") for n in range(50)]

    equal, one, apart, none, compacted, touched, tail, all_different = compared(
        spark,
        plan_of(0, 50, folder["w"], folder["w"], folder["w"]),
        plan_of(1, 50, folder["w"], folder["o"], folder["w"]),
        plan_of(2, 50, folder["s"], folder["w"], folder["w"]),
        plan_of(3, 50, folder["w"], folder["f"]),
        plan_of(4, 50, folder["w"], folder["c"], compacted=True),
        plan_of(5, 50, folder["w"], folder["o"], compacted=True),
        plan_of(6, 50, shorter, longer),
        plan_of(7, 50, written(tmp_path / "m" / "made-7", *many), written(tmp_path / "n" / "made-7", *many_others)),
    )
    assert (equal.problems, equal.batches, equal.records) == ((), 10, 50)
    assert equal.bytes == sum(map(len, whole))
    assert [(p.kind, p.brokers, p.offset) for p in one.problems] == [(ProblemKind.DIFFERENT, (2,), 20)]
    assert [(p.kind, p.brokers, p.offset) for p in apart.problems] == [
        (ProblemKind.DIFFERENT, (1,), 20),
        (ProblemKind.DIFFERENT, (1,), 22),
    ]
    assert [(p.brokers, p.offset) for p in none.problems] == [((1, 2), n) for n in range(0, 50, PER_BATCH)]
    assert compacted.ok
    assert [r.gaps for r in compacted.replicas] == [0, 1]
    assert [(p.kind, p.offset) for p in touched.problems] == [(ProblemKind.DIFFERENT, 20)]
    assert (tail.problems, tail.records) == ((), 50)
    assert (len(all_different.problems), all_different.more_problems) == (MAX_PROBLEMS, 50 - MAX_PROBLEMS)


# -- a real cluster --------------------------------------------------------------------------------------------


@pytest.fixture
def filled(cluster: Cluster, topic: str) -> Iterator[str]:
    """A topic of two partitions with three replicas and 100 records in each."""
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name=topic, partitions=2, replication_factor=3))
        for partition in range(2):
            for _ in range(20):
                client.produce(topic, partition, encode_batch([Record(i, NOW_MS, None, b"v") for i in range(5)]))
        yield topic
        client.delete_topics([topic])


def follower(result: AuditResult, partition: int) -> tuple[int, Path]:
    """A broker that does not lead, and the segment of its replica."""
    found = result.partitions[partition]
    replica = next(r for r in found.replicas if r.broker != found.leader)
    assert replica.directory is not None
    return replica.broker, Path(replica.directory, str(found.tp), "00000000000000000000.log")


def test_a_sound_cluster_and_a_damaged_follower(cluster: Cluster, filled: str, spark: Any) -> None:
    told: list[tuple[int, int]] = []
    result = audit.run(cluster.bootstrap, [filled], spark=spark, progress=lambda done, of: told.append((done, of)))
    assert result.differences == ()
    assert result.ok
    assert (len(result.partitions), result.replicas, result.batches, result.records) == (2, 6, 40, 200)
    assert all((p.compared_from, p.compared_to, p.high_watermark) == (0, 100, 100) for p in result.partitions)
    assert all(r.state is AuditedState.COMPARED for p in result.partitions for r in p.replicas)
    assert result.bytes_read == 3 * result.bytes
    assert (told[0][0], told[-1][0]) == (0, told[-1][1])

    broker, path = follower(result, 1)
    sound = path.read_bytes()
    size = len(sound) // 20
    at = 7 * size + HEADER_SIZE
    damaged = bytearray(sound)
    damaged[at] ^= 1
    try:
        overwrite(path, bytes(damaged))
        result = audit.run(cluster.bootstrap, [filled], spark=spark)
        assert not result.ok
        assert result.partitions[0].ok
        assert {(p.tp, p.brokers, p.offset, p.kind) for p in result.problems} == {
            (TopicPartition(filled, 1), (broker,), 35, ProblemKind.CORRUPT),
            (TopicPartition(filled, 1), (broker,), 35, ProblemKind.DIFFERENT),
        }
        assert result.differences[0].startswith(f"{filled}-1 on broker {broker} at offset 35: ")
    finally:
        overwrite(path, sound)
    try:
        overwrite(path, sound[: 15 * size + 9])
        result = audit.run(cluster.bootstrap, [filled], spark=spark)
        assert [(p.kind, p.brokers, p.offset) for p in result.problems] == [
            (ProblemKind.MISSING, (broker,), None),
            (ProblemKind.MISSING, (broker,), 75),
        ]
    finally:
        overwrite(path, sound)
    assert audit.run(cluster.bootstrap, [filled], spark=spark).ok


def overwrite(path: Path, data: bytes) -> None:
    """In place: the broker has the file open."""
    with open(path, "r+b") as file:
        file.write(data)
        file.truncate()


def test_a_topic_that_grows_while_it_is_audited(cluster: Cluster, filled: str, spark: Any) -> None:
    ended = threading.Event()

    def produce() -> None:
        with BlockingClient(cluster.bootstrap) as client:
            while not ended.is_set():
                client.produce(filled, 0, encode_batch([Record(0, NOW_MS, None, b"more" * 100)]))

    writer = threading.Thread(target=produce)
    writer.start()
    try:
        results = [audit.run(cluster.bootstrap, [filled], spark=spark) for _ in range(3)]
    finally:
        ended.set()
        writer.join()
    for result in results:
        assert result.differences == ()
        grown = result.partitions[0]
        assert grown.records == grown.high_watermark
    assert results[0].records < results[1].records < results[2].records


def test_C_1_replicas_of_a_log_that_begins_within_a_batch_are_equal(
    own_cluster: Callable[..., Cluster], spark: Any
) -> None:
    """The one has the segments from before the start of the log still, the other was made from there on."""
    cluster = own_cluster(brokers=2)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name="begun", assignments={0: (1, 2)}))
        client.produce("begun", 0, batch_of(0))
        client.produce("begun", 0, batch_of(0))
        cluster.kill(2)
        shutil.rmtree(cluster.folder_of(2, "begun", 0))
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
        [deleted] = admin.delete_records([confluent_kafka.TopicPartition("begun", 0, PER_BATCH + 2)]).values()
        deleted.result(30)
    cluster.revive()
    cluster.wait_in_sync(["begun"], timeout_s=10)
    result = audit.run(cluster.bootstrap, ["begun"], spark=spark)
    assert result.differences == ()
    assert result.ok
    [begun] = result.partitions
    assert [r.state for r in begun.replicas] == [AuditedState.COMPARED, AuditedState.COMPARED]
    assert (begun.compared_from, begun.compared_to, begun.records) == (PER_BATCH, 2 * PER_BATCH, PER_BATCH)


def test_a_broker_that_is_down_is_named_and_not_compared(own_cluster: Callable[..., Cluster], spark: Any) -> None:
    cluster = own_cluster()
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name="three", partitions=1, replication_factor=3))
        client.create_topic(NewTopic(name="alone", assignments={0: (3,)}))
        client.produce("three", 0, batch_of(0))
        client.produce("alone", 0, batch_of(0))
    cluster.kill(3)
    result = audit.run(cluster.bootstrap, ["three"], spark=spark)
    assert result.ok
    assert [(place.broker, place.replicas) for place in result.not_compared] == [(3, 1)]
    assert "down" in result.not_compared[0].reason
    assert result.partitions[0].missing == (3,)
    assert (result.records, result.replicas) == (PER_BATCH, 2)
    alone = audit.run(cluster.bootstrap, ["alone"], spark=spark)
    assert [p.kind for p in alone.problems] == [ProblemKind.UNKNOWN]


def test_spark_D20_an_audit_that_compared_nothing_says_so_and_does_not_end_well(
    own_cluster: Callable[..., Cluster], spark: Any
) -> None:
    """As on a machine that has one of the brokers: a replica that is sound agrees with nobody."""
    cluster = own_cluster(brokers=2)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name="two", partitions=1, replication_factor=2))
        client.produce("two", 0, batch_of(0))
    command = ["audit", "--bootstrap-server", cluster.bootstrap, "--topic", "two"]
    assert audit.run(cluster.bootstrap, ["two"], spark=spark).ok
    cluster.kill(2)
    result = audit.run(cluster.bootstrap, ["two"], spark=spark)
    assert (result.ok, result.is_sound, result.compared_nothing, result.records) == (False, True, True, PER_BATCH)
    shown = CliRunner().invoke(main, command)
    assert (shown.exit_code, "compared with nothing" in shown.stdout) == (3, True), shown.output
    assert "agree" not in shown.stdout
    as_json = CliRunner().invoke(main, [*command, "--json"])
    verdict = json.loads(as_json.stdout.splitlines()[-1])
    assert (as_json.exit_code, verdict["ok"], verdict["compared_nothing"], verdict["problems"]) == (3, False, True, 0)


def test_a_topic_that_is_not_there(cluster: Cluster, spark: Any) -> None:
    with pytest.raises(AuditError, match="no-such-topic"):
        audit.run(cluster.bootstrap, ["no-such-topic"], spark=spark)


@pytest.mark.usefixtures("spark")
def test_the_command(cluster: Cluster, filled: str) -> None:
    command = ["audit", "--bootstrap-server", cluster.bootstrap, "--topic", filled]
    shown = CliRunner().invoke(main, command)
    assert shown.exit_code == 0, shown.output
    assert f"{filled}-1" in shown.stdout
    assert "200 records" in shown.stdout
    assert "replicas agree" in shown.stdout
    lines = [json.loads(line) for line in CliRunner().invoke(main, [*command, "--json"]).stdout.splitlines()]
    assert [(line["topic"], line["partition"], line["records"], line["ok"]) for line in lines[:-1]] == [
        (filled, 0, 100, True),
        (filled, 1, 100, True),
    ]
    assert (lines[-1]["ok"], lines[-1]["replicas"], lines[-1]["problems"]) == (True, 6, 0)
    missing = CliRunner().invoke(main, ["audit", "--bootstrap-server", cluster.bootstrap, "--topic", "none"])
    assert (missing.exit_code, "none" in missing.stderr) == (1, True)
