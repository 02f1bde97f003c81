"""Reads: whole batches, from pictures, without a disk where memory has it."""

import errno

import pytest

from holdfast.model.errors import CorruptRecordError, LogReadError, OffsetOutOfRangeError
from holdfast.records.batch import iter_headers
from holdfast.storage.log import ColdRead
from holdfast.storage.segment import Tail
from tests.removing import purge

NOW_MS = 1_700_000_000_000


def offsets(piece):
    return [] if piece is None else [h.base_offset for _, h in iter_headers(piece.read())]


@pytest.fixture(params=["tail", "index"])
def log(request, open_log, batch):
    """Ten batches of two records (offsets 0, 2, ...), found by the table of the tail or by the index."""
    log = open_log(index_interval_bytes=200)
    for i in range(10):
        log.append_as_leader(batch(b"x" * 30, b"%d" % i, timestamp=NOW_MS + i), 0, NOW_MS)
    if request.param == "index":
        log.view.segments[-1].tail = None
    return log


def test_mid_batch_offsets_return_the_whole_batch(log):
    for offset in range(20):
        piece = log.read(offset, 1, 20)
        assert offsets(piece) == [offset // 2 * 2]
        assert piece.base_offset == offset // 2 * 2
    assert log.read(20, 100, 20) is None


def test_max_bytes_gives_whole_batches_and_at_least_one(log):
    one = log.view.size // 10
    for count in range(1, 11):
        for extra in (0, 1, one - 1):
            piece = log.read(2, one * count + extra, 20)
            got = offsets(piece)
            assert got == list(range(2, 2 + 2 * len(got), 2))
            assert 1 <= len(got) <= max(1, count)
    assert offsets(log.read(2, one * 9, 20)) == list(range(2, 20, 2))
    assert log.read(2, one - 1, 20, min_one=False) is None
    assert offsets(log.read(2, one, 20, min_one=False)) == [2]


def test_limit_offset_ends_the_read(log):
    assert offsets(log.read(0, 2**20, 8)) == [0, 2, 4, 6]
    assert offsets(log.read(0, 2**20, 9)) == [0, 2, 4, 6]  # the batch over the limit is not whole
    assert log.read(4, 2**20, 5) is None
    assert log.read(4, 2**20, 4) is None
    assert log.read(6, 2**20, 3) is None
    assert offsets(log.read(0, 2**20, 999)) == list(range(0, 20, 2))


def test_out_of_range(log):
    for offset in (-1, 21):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 100, 20)
    log.delete_records_before(4)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(3, 100, 20)
    assert offsets(log.read(5, 1, 20)) == [4]


def test_reads_find_older_segments(open_log, batch, read_all):
    log = open_log(segment_bytes=300, index_interval_bytes=100)
    for _ in range(20):
        log.append_as_leader(batch(b"x" * 30), 0, NOW_MS)
    log.flush_rolled()
    assert len(log.view.segments) == 7
    for offset in range(20):
        piece = log.read(offset, 2**20, 20, blocking=True)
        assert offsets(piece)[0] == offset
        assert offsets(piece)[-1] == min(offset // 3 * 3 + 2, 19)  # one segment at a time
        assert offsets(log.read(offset, 2**20, 20)) == offsets(piece)  # warm now
        assert sum(s.is_open for s in log.view.segments) <= 3
    with pytest.raises(ColdRead):
        log.read(0, 100, 20)
    assert len(list(iter_headers(read_all(log)))) == 20


def test_a_cold_log_says_so(open_log, batch):
    log = open_log()
    log.append_as_leader(batch(b"a"), 0, NOW_MS)
    log.close(clean=True)
    log = open_log(clean=True)
    with pytest.raises(ColdRead):
        log.read(0, 100, 1)
    assert offsets(log.read(0, 100, 1, blocking=True)) == [0]
    assert offsets(log.read(0, 100, 1)) == [0]


def test_cold_pages_say_so(open_log, batch, monkeypatch):
    log = open_log()
    for _ in range(3):
        log.append_as_leader(batch(b"a"), 0, NOW_MS)
    segment = log.view.segments[-1]
    segment.tail = None
    monkeypatch.setattr(type(segment.handle()), "__getattr__", lambda self, name: lambda *a: None)
    with pytest.raises(ColdRead):
        log.read(1, 100, 3)


def test_a_picture_does_not_change_under_a_reader(open_log, batch):
    log = open_log(segment_bytes=300)
    for _ in range(4):
        log.append_as_leader(batch(b"x" * 60), 0, NOW_MS)
    before = log.view
    piece = log.read(2, 2**20, 4)
    log.append_as_leader(batch(b"x" * 30), 0, NOW_MS)
    assert (before.end_offset, len(before.segments)) == (4, 2)
    assert log.view.end_offset == 5
    log.delete_records_before(4)
    log.delete_old_segments(NOW_MS, 4)
    purge(log, NOW_MS + 10**9)
    assert [h.base_offset for _, h in iter_headers(piece.read())] == [2, 3]  # the file lives as long as the slice
    assert len(piece.read_nowait()) == len(piece)


def test_a_log_that_does_not_grow_gives_its_file_back_until_it_is_needed(open_log, batch):
    log = open_log()
    log.append_as_leader(batch(b"a"), 0, NOW_MS)
    active = log.view.segments[-1]
    piece = log.read(0, 2**20, 1)
    log.delete_old_segments(NOW_MS, 1)
    assert active.is_open, "it has grown since the last look"
    log.delete_old_segments(NOW_MS, 1)
    assert not active.is_open
    assert len(piece.read()) == len(piece), "who reads keeps the file"
    with pytest.raises(ColdRead):
        log.read(0, 2**20, 1)
    assert offsets(log.read(0, 2**20, 1, blocking=True)) == [0]
    log.delete_old_segments(NOW_MS, 1)
    log.append_as_leader(batch(b"b"), 0, NOW_MS)
    log.delete_old_segments(NOW_MS, 2)
    assert active.is_open
    assert offsets(log.read(0, 2**20, 2)) == [0, 1]
    log.flush()
    assert log.recovery_point == 2


def test_the_table_of_the_tail_stays_small(open_log, batch):
    log = open_log(index_interval_bytes=400)
    for _ in range(600):
        log.append_as_leader(batch(b"x"), 0, NOW_MS)
    tail = log.view.segments[-1].tail
    assert isinstance(tail, Tail)
    assert len(tail.positions) <= 256
    for offset in (0, 1, 5, 100, 300, 500, tail.first_offset - 1, tail.first_offset, 599):
        assert offsets(log.read(offset, 1, 600)) == [offset]
        assert offsets(log.read(offset, 2**20, 600))[-1] == 599
        assert offsets(log.read(0, 2**20, offset + 1))[-1] == offset
    assert offsets(log.read(10, 500, 600))[0] == 10


def test_gaps_of_compaction_are_stepped_over(open_log, batch):
    log = open_log(segment_bytes=150)
    for base in (0, 10, 20, 30):
        log.append_as_follower(batch(b"x" * 20, base_offset=base), NOW_MS)
    assert len(log.view.segments) == 4 or log.view.segments
    for offset, base in ((1, 10), (9, 10), (10, 10), (11, 20), (21, 30)):
        assert offsets(log.read(offset, 1, 31, blocking=True)) == [base]
    assert log.read(1, 100, 5, blocking=True) is None


def test_a_read_error_takes_the_dir_offline(open_log, batch, files):
    log = open_log()
    log.append_as_leader(batch(b"a"), 0, NOW_MS)
    piece = log.read(0, 100, 1)
    log.view.segments[-1].tail = None
    files.fail("preadv_nowait")
    files.fail_probes()
    with pytest.raises(LogReadError):
        log.read(0, 100, 1)
    assert not log.dir.is_online
    with pytest.raises(LogReadError):
        piece.read_nowait()
    with pytest.raises(LogReadError):
        piece.read()


def test_a_truncation_under_a_reader_is_a_cold_read(open_log, batch, monkeypatch):
    log = open_log()
    log.append_as_leader(batch(b"a"), 0, NOW_MS)

    def raced(*_args, **_keywords):
        raise IndexError

    monkeypatch.setattr(type(log.view.segments[-1]), "find", raced)
    with pytest.raises(ColdRead):
        log.read(0, 100, 1)


def test_garbage_in_a_segment_is_reported_not_followed(open_log, batch):
    log = open_log()
    for _ in range(3):
        log.append_as_leader(batch(b"a"), 0, NOW_MS)
    segment = log.view.segments[-1]
    segment.tail = None
    segment.handle().pwritev((b"\0" * 12,), 0)
    with pytest.raises(CorruptRecordError):
        log.read(2, 100, 3, blocking=True)
    with pytest.raises(CorruptRecordError):
        list(segment.headers(1, segment.size))


def test_offsets_by_time(open_log, batch):
    log = open_log(segment_bytes=400, index_interval_bytes=100)
    assert log.max_timestamp() is None
    assert log.offset_for_timestamp(0) is None
    times = [100, 200, 150, 400, 300, 300, 500, 450]
    for i, time in enumerate(times):
        log.append_as_leader(batch(b"x" * 30, b"y", timestamp=NOW_MS + time, step_ms=1), i // 4, NOW_MS)
    for wanted, offset in ((0, 0), (100, 0), (101, 1), (102, 2), (201, 3), (202, 6), (402, 12), (501, 13)):
        found = log.offset_for_timestamp(NOW_MS + wanted)
        assert found.offset == offset
        assert found.timestamp >= NOW_MS + wanted
        assert found.leader_epoch == offset // 8
    assert log.offset_for_timestamp(NOW_MS + 502) is None
    assert log.max_timestamp() == (NOW_MS + 501, 13, 1)
    log.delete_records_before(3)
    assert log.offset_for_timestamp(0).offset == 3
    log.close(clean=True)
    log = open_log(clean=True, segment_bytes=400, index_interval_bytes=100, start=3)
    assert log.max_timestamp() == (NOW_MS + 501, 13, 1)
    assert log.offset_for_timestamp(NOW_MS + 402).offset == 12


def test_offsets_by_time_of_undecodable_batches(open_log, batch):
    log = open_log()
    log.append_as_leader(batch(b"x", attributes=1), 0, NOW_MS)  # says gzip, is not
    assert log.max_timestamp() == (NOW_MS, 0, 0)


def test_enoent_of_a_read_is_not_a_dead_disk(open_log, batch, files):
    """H-18: a file that was renamed or deleted meanwhile."""
    log = open_log()
    log.append_as_leader(batch(b"a"), 0, NOW_MS)
    log.close(clean=True)
    log = open_log(clean=True)
    files.fail("open", ".log", errno.ENOENT)
    with pytest.raises(LogReadError):
        log.read(0, 100, 1, blocking=True)
    assert log.dir.is_online
