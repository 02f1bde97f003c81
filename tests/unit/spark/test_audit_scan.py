"""One replica's segment files as the audit reads them: what is wrong, where, and what is none of its business."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.batch import HEADER_SIZE, stamp
from holdfast.records.record import Record, encode_batch
from holdfast.spark.audit_plan import list_segments
from holdfast.spark.audit_scan import MAX_FLAWS, MAX_RUNS, BatchRow, SegmentFile, SegmentReport, SegmentScan
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir

NOW_MS = 1_700_000_000_000
PER_BATCH, BATCHES, PER_SEGMENT = 3, 10, 4
END = PER_BATCH * BATCHES


def batch_of(base_offset: int, count: int = PER_BATCH, text: bytes = b"value", epoch: int = 0) -> bytearray:
    """A batch as it stands in a log."""
    records = [Record(i, NOW_MS, b"key", text + b" %08d" % (base_offset + i)) for i in range(count)]
    batch = encode_batch(records)
    stamp(batch, 0, base_offset, epoch)
    return batch


SIZE = len(batch_of(0))


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    """The directory of a replica of 10 batches of 3 records in 3 segments of 4, 4 and 2."""
    directory = LogDir(str(tmp_path), OsFiles(), InlineQueue())
    directory.open(node_id=1, cluster_id="cluster", new_id=lambda: UUID(int=1), now_ms=NOW_MS)
    config = LogConfig(segment_bytes=SIZE * PER_SEGMENT)
    log = Log.open(directory, TopicPartition("t", 0), UUID(int=7), config, clean_shutdown=True, now_ms=NOW_MS)
    for number in range(BATCHES):
        batch = batch_of(number * PER_BATCH)
        stamp(batch, 0, 0, -1)  # as a producer sends it
        log.append_as_leader(batch, 0, NOW_MS)
    log.close(clean=True)
    directory.close()
    return tmp_path / "t-0"


def scan(
    replica: Path, high_watermark: int = END, *, compacted: bool = False, block_bytes: int = 1 << 20
) -> tuple[list[BatchRow], list[SegmentReport]]:
    rows, reports = [], []
    for segment in list_segments(str(replica)):
        one = SegmentScan(segment, high_watermark, compacted=compacted, block_bytes=block_bytes)
        rows += list(one)
        reports.append(one.report)
    return rows, reports


def flaws(reports: list[SegmentReport]) -> list[tuple[str, int]]:
    return [(flaw.kind, flaw.offset) for report in reports for flaw in report.flaws]


def runs(reports: list[SegmentReport]) -> list[tuple[int, int]]:
    return [run for report in reports for run in report.runs]


def segment(replica: Path, number: int) -> Path:
    return sorted(replica.glob("*.log"))[number]


def put(path: Path, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int) -> None:
    put(path, at, bytes([path.read_bytes()[at] ^ 0x40]))


def write_batches(path: Path, *batches: bytearray) -> None:
    path.write_bytes(b"".join(batches))


def test_a_sound_replica(replica: Path) -> None:
    rows, reports = scan(replica)
    assert [(row.base_offset, row.last_offset) for row in rows] == [(n * 3, n * 3 + 2) for n in range(BATCHES)]
    assert {(row.records, row.bytes, row.crc_ok) for row in rows} == {(3, SIZE, True)}
    assert len({row.digest for row in rows}) == BATCHES
    assert runs(reports) == [(0, 12), (12, 24), (24, 30)]
    assert [(r.batches, r.records, r.bytes, r.end_offset) for r in reports] == [
        (4, 12, 4 * SIZE, 12),
        (4, 12, 4 * SIZE, 24),
        (2, 6, 2 * SIZE, 30),
    ]
    assert flaws(reports) == []


@pytest.mark.parametrize("block_bytes", [HEADER_SIZE, SIZE - 1, SIZE, SIZE + 1, 3 * SIZE])
def test_the_block_size_changes_nothing(replica: Path, block_bytes: int) -> None:
    assert scan(replica, block_bytes=block_bytes) == scan(replica)


def test_what_is_beyond_the_high_watermark_is_not_looked_at(replica: Path) -> None:
    flip(segment(replica, 2), SIZE + HEADER_SIZE)
    rows, reports = scan(replica, END - PER_BATCH)
    assert len(rows) == BATCHES - 1
    assert flaws(reports) == []
    assert reports[-1].end_offset == END - PER_BATCH


def test_a_torn_tail_beyond_the_high_watermark_is_no_flaw(replica: Path) -> None:
    with open(segment(replica, 2), "ab") as file:
        file.write(batch_of(END)[:-5])
    rows, reports = scan(replica, END)
    assert len(rows) == BATCHES
    assert flaws(reports) == []
    assert reports[-1].torn_bytes == 0


def test_a_batch_that_comes_while_the_file_is_read_does_not_count(replica: Path) -> None:
    one = SegmentScan(list_segments(str(replica))[-1], END, block_bytes=HEADER_SIZE)
    reading = iter(one)
    next(reading)
    with open(segment(replica, 2), "ab") as file:
        file.write(batch_of(END))
    assert [row.base_offset for row in reading] == [27]
    assert (one.report.end_offset, one.report.flaws) == (END, [])


@pytest.mark.parametrize("number", range(PER_SEGMENT))
@pytest.mark.parametrize("at", [HEADER_SIZE, SIZE - 1, 21, 23, 40, 57])
def test_a_flipped_byte_under_the_crc_is_named_and_the_rest_is_read(replica: Path, number: int, at: int) -> None:
    sound, _ = scan(replica)
    flip(segment(replica, 1), number * SIZE + at)
    rows, reports = scan(replica)
    offset = 12 + number * PER_BATCH
    assert flaws(reports) == [("corrupt", offset)]
    bad = next(row for row in rows if row.base_offset == offset)
    assert not bad.crc_ok
    assert [row.base_offset for row in rows if row.digest not in {r.digest for r in sound}] == [offset]
    assert len(rows) == BATCHES
    assert runs(reports) == [(0, 12), (12, 24), (24, 30)]


def test_the_last_batch_below_the_high_watermark_may_be_the_bad_one(replica: Path) -> None:
    flip(segment(replica, 2), SIZE + HEADER_SIZE)
    _, reports = scan(replica)
    assert (flaws(reports), reports[-1].end_offset) == ([("corrupt", 27)], END)
    with open(segment(replica, 2), "ab") as file:
        file.write(batch_of(END))
    _, reports = scan(replica)
    assert (flaws(reports), reports[-1].end_offset) == ([("corrupt", 27)], END)


@pytest.mark.parametrize("value", [0, 1, 3])
def test_no_batch_where_one_should_be(replica: Path, value: int) -> None:
    put(segment(replica, 1), SIZE + 16, bytes([value]))  # its magic
    rows, reports = scan(replica)
    assert flaws(reports) == [("corrupt", 15)]
    assert "00000000000000000012.log" in reports[1].flaws[0].what
    assert f"byte {SIZE}" in reports[1].flaws[0].what
    assert "offsets 15 to 23 could not be read" in reports[1].flaws[0].what
    assert runs(reports) == [(0, 12), (12, 15), (24, 30)]
    assert len(rows) == BATCHES - 3


def test_a_length_that_no_file_can_hold_takes_no_memory(replica: Path) -> None:
    put(segment(replica, 1), SIZE + 8, (2**31 - 1).to_bytes(4, "big"))
    _, reports = scan(replica)
    assert flaws(reports) == [("gap", 15)]
    assert f"{3 * SIZE} bytes of half a batch" in reports[1].flaws[0].what


def test_a_flipped_epoch_changes_the_digest_and_a_falling_one_is_told(replica: Path) -> None:
    sound, _ = scan(replica)
    put(segment(replica, 0), 12, (9).to_bytes(4, "big"))
    rows, reports = scan(replica)
    assert rows[0].digest != sound[0].digest
    assert rows[0].crc_ok
    assert flaws(reports) == [("order", 3), ("order", 6), ("order", 9)]


def test_a_dropped_batch(replica: Path) -> None:
    write_batches(segment(replica, 1), batch_of(12), batch_of(18), batch_of(21))
    _, reports = scan(replica)
    assert flaws(reports) == [("gap", 15)]
    assert "offsets 15 to 17 are in no batch" in reports[1].flaws[0].what
    assert runs(reports) == [(0, 12), (12, 15), (18, 24), (24, 30)]


def test_a_truncated_segment_in_the_middle(replica: Path) -> None:
    os.truncate(segment(replica, 1), 2 * SIZE + 10)
    _, reports = scan(replica)
    assert flaws(reports) == [("gap", 18)]
    assert "and 10 bytes of half a batch" in reports[1].flaws[0].what
    assert runs(reports) == [(0, 12), (12, 18), (24, 30)]


def test_a_truncated_tail_is_the_verdicts_business(replica: Path) -> None:
    os.truncate(segment(replica, 2), SIZE + HEADER_SIZE + 1)
    _, reports = scan(replica)
    assert flaws(reports) == []
    assert (reports[-1].end_offset, reports[-1].torn_bytes) == (27, HEADER_SIZE + 1)


def test_a_missing_segment_is_a_gap(replica: Path) -> None:
    segment(replica, 1).unlink()
    _, reports = scan(replica)
    assert flaws(reports) == [("gap", 12)]
    assert runs(reports) == [(0, 12), (24, 30)]


def test_an_extra_batch(replica: Path) -> None:
    write_batches(segment(replica, 1), batch_of(12), batch_of(12), batch_of(15), batch_of(18), batch_of(21))
    rows, reports = scan(replica)
    assert flaws(reports) == [("order", 12)]
    assert len(rows) == BATCHES + 1
    assert runs(reports) == [(0, 12), (12, 24), (24, 30)]


def test_an_extra_batch_at_the_end_of_a_segment(replica: Path) -> None:
    write_batches(segment(replica, 1), *(batch_of(n) for n in (12, 15, 18, 21, 24)))
    _, reports = scan(replica)
    assert flaws(reports) == [("order", 24)]


@pytest.mark.parametrize("wrong", [13, 10, 2, 29, 10**15, -5])
def test_a_wrong_base_offset_does_not_hide_what_follows(replica: Path, wrong: int) -> None:
    batch = batch_of(15)
    stamp(batch, 0, wrong, 0)
    put(segment(replica, 1), SIZE, batch)
    _, reports = scan(replica)
    assert reports[1].flaws[0].offset in (wrong, 15)
    assert reports[1].end_offset == 24
    assert runs(reports)[0] == (0, 12)
    assert runs(reports)[-1] == (24, 30)


def test_a_batch_before_its_segment(replica: Path) -> None:
    write_batches(segment(replica, 2), batch_of(21), batch_of(24), batch_of(27))
    _, reports = scan(replica)
    assert flaws(reports) == [("order", 21)]
    assert "before its segment" in reports[2].flaws[0].what


def test_a_compacted_topic_may_have_holes_but_no_disorder(replica: Path) -> None:
    write_batches(segment(replica, 0), batch_of(3), batch_of(9))
    write_batches(segment(replica, 1), batch_of(15))
    _, reports = scan(replica, compacted=True)
    assert flaws(reports) == []
    assert [r.gaps for r in reports] == [2, 2, 0]
    assert runs(reports) == [(0, 12), (12, 24), (24, 30)]
    write_batches(segment(replica, 1), batch_of(15), batch_of(12))
    _, reports = scan(replica, compacted=True)
    assert flaws(reports) == [("order", 12)]


def test_half_a_batch_in_the_middle_of_a_compacted_topic_is_wrong(replica: Path) -> None:
    os.truncate(segment(replica, 1), 2 * SIZE + 10)
    _, reports = scan(replica, compacted=True)
    assert flaws(reports) == [("gap", 18)]


def test_a_file_that_retention_took_meanwhile_is_said_to_be_gone(replica: Path) -> None:
    listed = list_segments(str(replica))
    segment(replica, 0).unlink()
    one = SegmentScan(listed[0], END)
    assert list(one) == []
    assert one.report.gone
    assert one.report.flaws == []


def test_a_file_that_the_disk_refuses_is_a_flaw(replica: Path) -> None:
    """A directory cannot be read as a file: the same path as EIO."""
    path = segment(replica, 1)
    path.unlink()
    path.mkdir()
    _, reports = scan(replica)
    assert flaws(reports) == [("unreadable", 12)]
    assert "offsets 12 to 23 could not be read" in reports[1].flaws[0].what


def test_flaws_are_bounded_and_counted(tmp_path: Path) -> None:
    batches = [batch_of(n, 1) for n in range(MAX_FLAWS + 15)]
    for batch in batches:
        batch[-1] ^= 1
    path = tmp_path / "00000000000000000000.log"
    write_batches(path, *batches)
    _, (report,) = scan(tmp_path, len(batches))
    assert (len(report.flaws), report.more_flaws) == (MAX_FLAWS, 15)


def test_a_log_of_holes_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    write_batches(path, *(batch_of(n * 2, 1) for n in range(MAX_RUNS * 3)))
    _, (report,) = scan(tmp_path, MAX_RUNS * 6)
    assert len(report.runs) <= MAX_RUNS + 1
    assert report.end_offset < MAX_RUNS * 3


def test_a_segment_above_the_high_watermark_is_not_opened(tmp_path: Path) -> None:
    nowhere = SegmentFile(path=str(tmp_path / "none.log"), base_offset=5, next_base=None, size=1)
    one = SegmentScan(nowhere, 5)
    assert list(one) == []
    assert (one.report.end_offset, one.report.gone) == (5, False)


def test_a_batch_over_the_high_watermark_ends_the_replica_before_it(replica: Path) -> None:
    _, reports = scan(replica, END - 1)
    assert (reports[-1].end_offset, flaws(reports)) == (27, [])


def test_a_report_survives_json(replica: Path) -> None:
    flip(segment(replica, 1), HEADER_SIZE)
    _, reports = scan(replica)
    assert [SegmentReport.from_json(report.to_json()) for report in reports] == reports
