"""Truncation, retention, deletion: what goes, what stays, and what a crash in between leaves."""

import contextlib
import errno
import os
from pathlib import Path

import pytest

from holdfast.model.errors import KafkaStorageError, OffsetOutOfRangeError
from holdfast.records.batch import iter_headers
from holdfast.storage.files import OsFiles
from holdfast.storage.leader_epochs import LeaderEpochs
from tests.removing import purge, remove

NOW_MS = 1_700_000_000_000


def fill(log, batch, count, epoch=0, start=0):
    for i in range(count):
        data = batch(b"x" * 20, b"y", timestamp=NOW_MS + 10 * (start + i))
        log.append_as_leader(data, epoch, NOW_MS + 10 * (start + i))


@pytest.fixture(params=[10**6, 350])
def log(request, open_log, batch):
    """Twelve batches of two records; epochs 0, 1, 2 of four batches each; in one or in six segments."""
    log = open_log(segment_bytes=request.param, index_interval_bytes=100)
    for epoch in range(3):
        fill(log, batch, 4, epoch=epoch, start=4 * epoch)
    return log


@pytest.mark.parametrize("offset", [23, 22, 16, 15, 9, 8, 2, 1, 0])
def test_truncate_keeps_whole_batches_before_the_offset(log, open_log, batch, read_all, offset):
    before = read_all(log)
    config = {"segment_bytes": log.config.segment_bytes, "index_interval_bytes": 100}
    log.truncate_to(offset, NOW_MS)
    end = offset // 2 * 2
    kept = before[: len(before) // 24 * end]
    assert log.view.end_offset == end
    assert read_all(log) == kept
    assert log.view.size == len(kept)
    assert log.epochs.entries() == [(e, s) for e, s in ((0, 0), (1, 8), (2, 16)) if s < end]
    fill(log, batch, 3, epoch=7, start=100)
    assert log.view.end_offset == end + 6
    again = read_all(log)
    assert again[: len(kept)] == kept
    assert log.offset_for_timestamp(NOW_MS + 1000).offset == end
    for wanted in range(end + 6):
        assert [h.base_offset for _, h in iter_headers(log.read(wanted, 1, 999, blocking=True).read())] == [
            wanted // 2 * 2
        ]
    log.close(clean=False)
    log = open_log(**config)
    assert read_all(log) == again
    log.close(clean=True)
    assert read_all(open_log(clean=True, **config)) == again


def test_truncate_beyond_the_end_does_nothing(log):
    view = log.view
    log.truncate_to(24, NOW_MS)
    log.truncate_to(99, NOW_MS)
    assert log.view is view


def test_truncation_drops_an_epoch_that_wrote_nothing(log):
    """Led for a moment, wrote nothing: the next leader never heard of that epoch and would tell us again and again
    that we diverge from it."""
    log.assign_epoch(9)
    assert log.view.last_epoch == 9
    log.truncate_to(24, NOW_MS)
    assert log.view.last_epoch == 2
    assert log.epochs.entries()[-1] == (2, 16)


def test_an_epoch_is_forgotten_though_the_full_disk_did_not_take_the_file(open_log, batch, files):
    """Found by chaos with a full disk: what the log told of itself was not what it knew, and leader and follower told
    each other so three thousand times a second until the broker was restarted."""
    log = open_log()
    fill(log, batch, 2, epoch=3)
    log.assign_epoch(9)
    files.fail("write_atomic", "leader-epoch-checkpoint", error=errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        log.truncate_to(4, NOW_MS)
    files.rules.clear()
    log.truncate_to(4, NOW_MS)
    assert log.view.last_epoch == 3 and log.epochs.entries() == [(3, 0)]
    again = LeaderEpochs.load(OsFiles(), f"{log.path}/leader-epoch-checkpoint")
    assert again.entries() == [(3, 0)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_full_disk_leaves_no_producer_of_what_was_cut(open_log, batch, files, restarted):
    """The client that repeats it would be told that it is there."""
    log = open_log()
    log.append_as_leader(batch(b"a", producer_id=7, producer_epoch=0, sequence=0), 1, NOW_MS)
    log.append_as_leader(batch(b"b", producer_id=7, producer_epoch=0, sequence=1), 2, NOW_MS)
    files.fail("write_atomic", "leader-epoch-checkpoint", error=errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        log.truncate_to(1, NOW_MS)
    files.rules.clear()
    log.truncate_to(1, NOW_MS)
    if restarted:
        log.close(clean=True)
        log = open_log(clean=True)
    again = log.append_as_leader(batch(b"b", producer_id=7, producer_epoch=0, sequence=1), 3, NOW_MS)
    assert not again.duplicate and log.view.end_offset == 2


@pytest.mark.parametrize("cut", [10, 0])
def test_K18_03_a_log_that_was_cut_half_way_is_used_no_more(log, files, cut):
    """Whatever stopped it: nobody knows what is there. The directory has nothing to do with it."""
    files.fail("rename" if log.config.segment_bytes < 1000 or not cut else "fsync", ".log", error=errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        log.truncate_to(cut, NOW_MS)
    files.rules.clear()
    assert log.failure is not None and log.dir.is_online
    with pytest.raises(KafkaStorageError):
        log.truncate_fully_and_start_at(50, NOW_MS)


def test_truncation_lowers_the_recovery_point_and_says_so(log):
    told = []
    log.dir.on_recovery_points_lowered = lambda: told.append(log.recovery_point)
    log.flush()
    assert log.recovery_point == 24
    log.truncate_to(10, NOW_MS)
    assert log.recovery_point == 10
    log.truncate_fully_and_start_at(500, NOW_MS)
    assert log.recovery_point == 500
    assert told == [10]
    log.truncate_fully_and_start_at(5, NOW_MS)
    assert told == [10, 5]


def test_a_log_that_starts_again_before_its_start_says_so(log):
    """What is appended there would be cut off by the start that the checkpoint remembers."""
    told = []
    log.dir.on_log_start_lowered = lambda: told.append(log.view.start_offset)
    log.delete_records_before(20)
    log.truncate_fully_and_start_at(22, NOW_MS)
    assert told == []
    log.truncate_fully_and_start_at(5, NOW_MS)
    assert told == [5]


def test_truncate_fully(log, open_log, batch):
    log.truncate_fully_and_start_at(100, NOW_MS)
    assert (log.view.start_offset, log.view.end_offset, log.view.size) == (100, 100, 0)
    assert log.epochs.entries() == []
    fill(log, batch, 2, epoch=3)
    assert log.view.end_offset == 104
    log.close(clean=False)
    log = open_log(start=100)
    assert (log.view.start_offset, log.view.end_offset) == (100, 104)
    log.truncate_to(50, NOW_MS)  # before its start: nothing of it is of use
    assert (log.view.start_offset, log.view.end_offset) == (50, 50)
    log.truncate_fully_and_start_at(50, NOW_MS)
    fill(log, batch, 1)
    assert log.view.end_offset == 52


def test_truncation_forgets_what_producers_wrote_there(open_log, batch):
    log = open_log(segment_bytes=200)
    for sequence in range(6):
        log.append_as_leader(batch(b"x", producer_id=9, producer_epoch=0, sequence=sequence), 0, NOW_MS)
    log.truncate_to(3, NOW_MS)
    sent = batch(b"x", producer_id=9, producer_epoch=0, sequence=3)
    info = log.append_as_leader(sent, 1, NOW_MS)
    assert (info.base_offset, info.duplicate) == (3, False)
    log.truncate_fully_and_start_at(0, NOW_MS)
    assert log.producers.entries == {}


def names(log):
    return sorted(os.listdir(log.path))


def test_retention_by_time(open_log, batch):
    log = open_log(segment_bytes=350, retention_ms=45)
    fill(log, batch, 10)
    assert [s.base_offset for s in log.view.segments] == [0, 6, 12, 18]
    assert log.delete_old_segments(NOW_MS + 46, 20) == 0  # the first segment's newest record is 45 ms younger
    assert log.delete_old_segments(NOW_MS + 75 + 1, 5) == 0  # not committed
    assert log.delete_old_segments(NOW_MS + 20 + 46, 20) == 1
    assert log.view.start_offset == 6
    assert log.epochs.entries() == [(0, 6)]
    with pytest.raises(OffsetOutOfRangeError):
        log.read(5, 10, 20)
    assert log.delete_old_segments(NOW_MS + 10**6, 20) == 3  # all: the active one is rolled first
    assert (log.view.start_offset, log.view.end_offset, log.view.size) == (20, 20, 0)
    assert log.delete_old_segments(NOW_MS + 10**7, 20) == 0
    fill(log, batch, 1)
    assert log.view.end_offset == 22


def test_retention_by_time_after_a_start_reads_only_indexes(open_log, batch, files):
    log = open_log(segment_bytes=350, retention_ms=45)
    fill(log, batch, 10)
    log.close(clean=True)
    log = open_log(clean=True, segment_bytes=350, retention_ms=45)
    files.calls.clear()
    assert log.delete_old_segments(NOW_MS + 20 + 46, 20) == 1
    assert not [c for c in files.calls if c[0] == "pread" and c[1].endswith(".log")]
    os.unlink(log.view.segments[0].path(".timeindex"))
    assert log.delete_old_segments(NOW_MS + 50 + 46, 20) == 1


def test_retention_without_times_goes_by_the_files(open_log, batch):
    log = open_log(segment_bytes=200, retention_ms=1000)
    for _ in range(4):
        log.append_as_leader(batch(b"x" * 20, b"y", timestamp=-1), 0, NOW_MS)
    first = log.view.segments[0].path(".log")
    os.utime(first, (1, 1))
    now_ms = int(os.stat(log.view.segments[1].path(".log")).st_mtime * 1000)
    assert log.delete_old_segments(now_ms, 8) == 1


def test_retention_by_size(open_log, batch):
    log = open_log(segment_bytes=350, retention_bytes=600)
    fill(log, batch, 10)
    size, first = log.view.size, log.view.segments[0].size
    assert 600 <= size - first < 600 + first
    assert log.delete_old_segments(NOW_MS, 5) == 0
    assert log.delete_old_segments(NOW_MS, 20) == 1
    assert log.view.size == size - first
    assert log.delete_old_segments(NOW_MS, 20) == 0


def test_no_retention(open_log, batch):
    log = open_log(segment_bytes=350, retention_ms=None)
    fill(log, batch, 10)
    assert log.delete_old_segments(NOW_MS + 10**12, 20) == 0
    log = open_log(topic="compacted", segment_bytes=350, cleanup_policy=frozenset({"compact"}))
    fill(log, batch, 10)
    assert log.delete_old_segments(NOW_MS + 10**12, 20) == 0


def test_deleted_records_go_with_their_segments(open_log, batch):
    log = open_log(segment_bytes=350)
    fill(log, batch, 10)
    log.flush_rolled()
    log.read(0, 1, 20, blocking=True)
    assert log.delete_records_before(13) == 13
    assert log.delete_records_before(2) == 13
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records_before(21)
    assert log.delete_old_segments(NOW_MS, 0) == 2
    assert (log.view.start_offset, log.view.segments[0].base_offset) == (13, 12)
    assert log.delete_records_before(20) == 20
    assert log.delete_old_segments(NOW_MS, 0) == 1


def test_retired_files_wait_and_go(open_log, batch):
    log = open_log(segment_bytes=350, file_delete_delay_ms=1000)
    fill(log, batch, 10)
    log.delete_records_before(6)
    log.delete_old_segments(NOW_MS, 0)
    assert log.has_retired
    assert "00000000000000000000.log.deleted" in names(log)
    purge(log, NOW_MS + 999)
    assert "00000000000000000000.log.deleted" in names(log)
    purge(log, NOW_MS + 1000)
    assert not [n for n in names(log) if n.endswith(".deleted")]
    assert not log.has_retired


def test_delete_renames_and_removes(open_log, batch, read_all):
    log = open_log(topic="t" * 249)
    fill(log, batch, 1)
    before = read_all(log)
    path = log.rename_for_delete("0" * 32)
    assert os.path.basename(path) == "t" * 213 + "-0." + "0" * 32 + "-delete"
    assert read_all(log) == before
    log.append_as_leader(batch(b"late"), 9, NOW_MS)  # an append that was queued before
    remove(log)
    assert not Path(path).exists()
    remove(log)


@pytest.mark.parametrize("operation", ["rename", "truncate", "unlink", "fsync", "rmtree", "write_atomic"])
def test_k112_01_errors_of_upkeep_take_the_dir_offline(open_log, batch, files, operation):
    log = open_log(segment_bytes=350)
    fill(log, batch, 10)
    work = {
        "rename": lambda: (log.delete_records_before(20), log.delete_old_segments(NOW_MS, 20)),
        "truncate": lambda: log.truncate_to(19, NOW_MS),
        "unlink": lambda: (log.truncate_to(2, NOW_MS), purge(log, NOW_MS + 10**9)),
        "fsync": log.flush,
        "rmtree": lambda: remove(log),
        "write_atomic": lambda: log.append_as_leader(batch(b"x"), 5, NOW_MS),
    }[operation]
    files.fail(operation)
    files.fail_probes()
    aside = operation == "rmtree"  # nobody waits for it
    with contextlib.nullcontext() if aside else pytest.raises(KafkaStorageError):
        work()
    assert not log.dir.is_online
