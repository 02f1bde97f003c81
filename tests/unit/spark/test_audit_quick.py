"""The audit without Spark: replicas made by hand, and what headers alone do not tell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.types import TopicPartition
from holdfast.records.batch import HEADER_SIZE, stamp
from holdfast.records.record import Record, encode_batch
from holdfast.spark.audit_plan import PartitionPlan, ReplicaPlan, list_segments
from holdfast.spark.audit_quick import HEADER_BLOCK, HeaderScan, compare
from holdfast.spark.audit_result import PartitionAudit, ProblemKind
from holdfast.spark.audit_scan import SegmentScan
from holdfast.spark.audit_verdict import MAX_PROBLEMS, judge

PER_BATCH = 5
TP = TopicPartition("made", 0)


def batch_of(base: int, text: bytes = b"value", count: int = PER_BATCH) -> bytearray:
    made = encode_batch([Record(i, 1_700_000_000_000, None, text + b" %d" % (base + i)) for i in range(count)])
    stamp(made, 0, base, 0)
    return made


def batches(count: int) -> list[bytearray]:
    return [batch_of(PER_BATCH * i) for i in range(count)]


def written(folder: Path, *made: bytearray, base: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{base:020d}.log").write_bytes(b"".join(made))
    return folder


def plan_of(high_watermark: int, *folders: Path, compacted: bool = False) -> PartitionPlan:
    replicas = tuple(
        ReplicaPlan(
            tp=TP, broker=slot + 1, slot=slot, in_sync=True, high_watermark=high_watermark, compacted=compacted,
            directory=str(folder.parent), segments=list_segments(str(folder)),
        )
        for slot, folder in enumerate(folders)
    )  # fmt: skip
    return PartitionPlan(
        tp=TP, leader=1, log_start_offset=0, high_watermark=high_watermark, compacted=compacted, replicas=replicas
    )


def audited(plan: PartitionPlan) -> PartitionAudit:
    reports, comparison = compare(plan)
    return judge(plan, {(plan.tp, broker): part for broker, part in reports.items()}, comparison)


def test_equal_replicas_are_equal_whatever_segments_they_have(tmp_path: Path) -> None:
    made = batches(10)
    one = written(tmp_path / "1", *made)
    two = written(tmp_path / "2", *made[:4])
    written(two, *made[4:], base=20)
    found = audited(plan_of(50, one, two))
    assert (found.ok, found.batches, found.records, found.bytes) == (True, 10, 50, sum(map(len, made)))
    assert (found.compared, found.compared_from, found.compared_to) == ((1, 2), 0, 50)


def test_a_batch_that_differs_is_told_with_whose_it_is(tmp_path: Path) -> None:
    made = batches(4)
    other = [*made[:2], batch_of(10, b"VALUE"), made[3]]
    folders = [written(tmp_path / name, *each) for name, each in (("1", made), ("2", made), ("3", other))]
    found = audited(plan_of(20, *folders))
    assert [(p.kind, p.offset, p.brokers) for p in found.problems] == [(ProblemKind.DIFFERENT, 10, (3,))]
    assert found.batches == 4


def test_differences_beyond_those_that_are_told_are_counted(tmp_path: Path) -> None:
    one = written(tmp_path / "1", *batches(30))
    two = written(tmp_path / "2", *(batch_of(PER_BATCH * i, b"other") for i in range(30)))
    found = audited(plan_of(150, one, two))
    assert (len(found.problems), found.more_problems) == (MAX_PROBLEMS, 30 - MAX_PROBLEMS)


def test_what_is_missing_at_the_beginning_at_the_end_and_between(tmp_path: Path) -> None:
    made = batches(6)
    one = written(tmp_path / "1", *made)
    two = written(tmp_path / "2", *made[2:4], base=10)
    found = audited(plan_of(30, one, two))
    assert [(p.kind, p.offset, p.brokers) for p in found.problems] == [(ProblemKind.MISSING, 20, (2,))]
    assert (found.compared_from, found.compared_to) == (10, 20)
    assert found.notes == ("broker 1 begins at offset 0; broker 2 begins at offset 10: compared where at least two "
                           "have the offsets",)  # fmt: skip
    hole = written(tmp_path / "3", *made[:2], *made[3:])
    found = audited(plan_of(30, one, hole))
    assert [(p.kind, p.offset) for p in found.problems] == [(ProblemKind.GAP, 10)]


def test_beyond_the_high_watermark_nothing_counts(tmp_path: Path) -> None:
    made = batches(4)
    one = written(tmp_path / "1", *made[:3], batch_of(15, b"x"), made[0][:30])
    two = written(tmp_path / "2", *made[:3], batch_of(15, b"y"))
    assert audited(plan_of(15, one, two)).ok
    assert not audited(plan_of(20, one, two)).ok


def test_compacted_replicas_may_lack_what_the_other_has(tmp_path: Path) -> None:
    made = batches(5)
    one = written(tmp_path / "1", *made[:2], *made[3:])
    two = written(tmp_path / "2", *made)
    assert audited(plan_of(25, one, two, compacted=True)).ok
    three = written(tmp_path / "3", *made[:2], batch_of(10, b"VALUE"), *made[3:])
    found = audited(plan_of(25, two, three, compacted=True))
    assert [(p.kind, p.offset) for p in found.problems] == [(ProblemKind.DIFFERENT, 10)]


def test_records_that_have_decayed_are_not_seen_and_the_whole_scan_sees_them(tmp_path: Path) -> None:
    """docs/audit.md says so."""
    made = batches(3)
    bad = bytearray(made[1])
    bad[HEADER_SIZE + 3] ^= 1
    one, two = written(tmp_path / "1", *made), written(tmp_path / "2", made[0], bad, made[2])
    assert audited(plan_of(15, one, two)).ok
    (segment,) = list_segments(str(two))
    assert [row.crc_ok for row in SegmentScan(segment, 15)] == [True, False, True]
    bad[20] ^= 1  # the CRC itself
    two = written(tmp_path / "2", made[0], bad, made[2])
    assert [(p.kind, p.offset) for p in audited(plan_of(15, one, two)).problems] == [(ProblemKind.DIFFERENT, 5)]


@pytest.mark.parametrize("size", [1, 100, HEADER_BLOCK - 200, HEADER_BLOCK, 3 * HEADER_BLOCK])
def test_headers_are_found_wherever_blocks_end(size: int, tmp_path: Path) -> None:
    made = [batch_of(i, bytes(size + i), 1) for i in range(50)]
    folder = written(tmp_path / "1", *made, made[0][:40])
    (segment,) = list_segments(str(folder))
    quick, whole = HeaderScan(segment, 60), SegmentScan(segment, 60)
    assert [row[:5] for row in quick] == [row[:5] for row in whole]
    assert quick.report == whole.report
    assert (quick.report.batches, quick.report.torn_bytes) == (50, 40)


def test_bytes_that_are_no_batch_are_told(tmp_path: Path) -> None:
    made = batches(3)
    one, two = written(tmp_path / "1", *made), written(tmp_path / "2", made[0], bytearray(200))
    found = audited(plan_of(15, one, two))
    assert [(p.kind, p.offset, p.brokers) for p in found.problems] == [(ProblemKind.CORRUPT, 5, (2,))]


def test_it_needs_nothing_of_spark() -> None:
    code = "import sys; import holdfast.spark.audit_quick; print([m for m in sys.modules if m.split('.')[0] in "
    code += "('pyspark', 'pyarrow', 'pandas', 'numpy')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
