"""What is on disk after a stop of any kind, and what a log makes of it."""

import errno
import os
from pathlib import Path

import pytest

from holdfast.model.errors import InconsistentTopicIdError, KafkaStorageError
from holdfast.storage import partition_metadata

NOW_MS = 1_700_000_000_000


def fill(log, batch, count, epoch=0, size=30):
    for i in range(count):
        log.append_as_leader(batch(b"x" * size, timestamp=NOW_MS + i), epoch, NOW_MS)


def active_file(log) -> Path:
    return Path(log.view.segments[-1].path(".log"))


@pytest.mark.parametrize("rolled", [False, True])
def test_nothing_written_is_lost_without_a_clean_stop(open_log, batch, read_all, rolled):
    config = {"segment_bytes": 300 if rolled else 10**6}
    log = open_log(**config)
    fill(log, batch, 20)
    before = read_all(log)
    log.close(clean=False)
    for recovery_point in (0, 7, 20, 10**6):
        log = open_log(recovery_point=recovery_point, **config)
        assert log.view.end_offset == 20
        assert read_all(log) == before
        assert log.recovery_point == min(recovery_point, 20)
        assert log.epochs.entries() == [(0, 0)]
        log.close(clean=False)


@pytest.mark.parametrize("cut", [1, 40, 61, 98])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(open_log, batch, read_all, cut):
    log = open_log(index_interval_bytes=100)
    fill(log, batch, 10)
    before = read_all(log)
    path = active_file(log)
    log.close(clean=False)
    os.truncate(path, len(before) - cut)
    log = open_log(index_interval_bytes=100)
    assert log.view.end_offset == 9
    assert read_all(log) == before[: len(before) // 10 * 9]
    assert path.stat().st_size == len(before) // 10 * 9
    fill(log, batch, 1)
    assert log.view.end_offset == 10


@pytest.mark.parametrize("lost", ["all", "last batch", "file"])
def test_a_log_has_no_holes(open_log, batch, read_all, lost):
    """A loss of power takes what a rolled segment had not synced, and leaves a later segment (simulation, seed 18)."""
    config = {"segment_bytes": 400, "index_interval_bytes": 100}
    log = open_log(**config)
    fill(log, batch, 20)
    before = read_all(log)
    first, middle = log.view.segments[:2]
    kept = middle.base_offset
    log.close(clean=False)
    path = Path(middle.path(".log"))
    if lost == "file":
        path.unlink()
    elif lost == "all":
        os.truncate(path, 0)
    else:
        size = path.stat().st_size
        count = log.view.segments[2].base_offset - kept
        os.truncate(path, size - size // count)
        kept += count - 1
    log = open_log(**config)
    assert log.view.end_offset == kept
    assert read_all(log) == before[: len(before) // 20 * kept]
    assert log.view.segments[0].base_offset == first.base_offset
    fill(log, batch, 1)
    assert log.view.end_offset == kept + 1


@pytest.mark.parametrize("at", [17, 25, 70])
def test_the_log_ends_at_the_first_bad_batch(open_log, batch, read_all, at):
    """A flipped bit in the CRC, the attributes or a record; all that follows goes, later segments too."""
    config = {"segment_bytes": 400, "index_interval_bytes": 100}
    log = open_log(**config)
    fill(log, batch, 20)
    before = read_all(log)
    segment = log.view.segments[2]
    log.close(clean=False)
    data = bytearray(Path(segment.path(".log")).read_bytes())
    data[len(data) // 4 + at] ^= 0x10
    Path(segment.path(".log")).write_bytes(data)
    log = open_log(**config)
    assert log.view.end_offset == segment.base_offset + 1
    assert [s.base_offset for s in log.view.segments] == [0, 4, 8]
    assert read_all(log) == before[: len(before) // 20 * 9]
    assert not any(n.startswith("00000000000000000012") for n in os.listdir(log.path))


def test_batches_out_of_order_are_no_log(open_log, batch, read_all):
    log = open_log()
    fill(log, batch, 2)
    path, before = active_file(log), read_all(log)
    log.close(clean=False)
    path.write_bytes(before + before)  # offsets 0, 1, 0, 1
    assert open_log().view.end_offset == 2


def test_large_batches_are_recovered(open_log, batch, read_all):
    log = open_log(max_message_bytes=2**22)
    fill(log, batch, 3, size=2**21)
    before = read_all(log)
    path = active_file(log)
    log.close(clean=False)
    assert read_all(open_log()) == before
    os.truncate(path, len(before) - 1)
    assert open_log().view.end_offset == 2
    with open(path, "r+b") as f:
        f.seek(1000)
        f.write(b"!")
    assert open_log().view.end_offset == 0
    path.write_bytes(b"\0" * 2**21)
    assert open_log().view.end_offset == 0


def test_indexes_are_made_again(open_log, batch, read_all):
    config = {"segment_bytes": 1000, "index_interval_bytes": 100}
    log = open_log(**config)
    fill(log, batch, 25)
    log.close(clean=True)
    before = {n: (Path(log.path) / n).read_bytes() for n in os.listdir(log.path)}
    for clean in (False, True):
        for damage in ("missing", "garbage", "zeros", "not growing"):
            for name in before:
                path = Path(log.path) / name
                if not name.endswith("index"):
                    continue
                if damage == "missing":
                    path.unlink()
                elif damage == "garbage":
                    path.write_bytes(b"\xff" * 13)
                elif damage == "zeros":
                    path.write_bytes(before[name] + bytes(40))
                else:
                    path.write_bytes(before[name][:12] * 2)
            log = open_log(clean=clean, **config)
            assert log.view.end_offset == 25
            assert len(read_all(log)) == 25 * 99
            for segment in log.view.segments:
                segment.load_indexes()
                segment.write_indexes(preallocate=None)
            log.close(clean=True)
            after = {n: (Path(log.path) / n).read_bytes() for n in os.listdir(log.path)}
            if not clean:  # one that is made again on the way has Kafka's default density
                assert {n: d for n, d in after.items() if "time" not in n} == {
                    n: d for n, d in before.items() if "time" not in n
                }
            for name, data in before.items():
                (Path(log.path) / name).write_bytes(data)


def test_a_lying_mark_of_a_clean_stop_does_not_hurt(open_log, batch, read_all):
    log = open_log(index_interval_bytes=100)
    fill(log, batch, 10)
    path = active_file(log)
    log.close(clean=True)
    os.truncate(path, 10 * 99 - 5)
    log = open_log(clean=True, index_interval_bytes=100)
    assert log.view.end_offset == 9


def test_an_epoch_that_begins_in_a_gap_begins_where_the_gap_does(open_log, batch):
    """A copy of a cleaned log: a follower that has something else in the gap cuts it off (found by simulation)."""
    log = open_log()
    for base, epoch in ((0, 3), (5, 4), (49, 5), (50, 8)):
        log.append_as_follower(batch(b"x", base_offset=base, leader_epoch=epoch), NOW_MS)
    expected = [(3, 0), (4, 1), (5, 6), (8, 50)]
    assert log.epochs.entries() == expected
    assert log.epoch_end_offset(4) == (4, 6)
    log.close(clean=False)
    assert open_log().epochs.entries() == expected


def test_epochs_are_found_again_in_the_batches(open_log, batch):
    log = open_log()
    for epoch in (0, 2, 5):
        fill(log, batch, 3, epoch=epoch)
    log.close(clean=True)
    file = Path(log.path) / "leader-epoch-checkpoint"
    for clean in (False, True):
        for text in (None, "", "garbage", "0\n1\n0 0\n0 0\n", "0\n2\n0 0\n1\n"):
            file.unlink() if text is None else file.write_text(text)
            log = open_log(clean=clean)
            assert log.epochs.entries() == [(0, 0), (2, 3), (5, 6)]
            log.close(clean=True)
            assert file.read_text() == "0\n3\n0 0\n2 3\n5 6\n"
    file.write_text("0\n4\n0 0\n2 3\n5 6\n9 9\n")  # an epoch that wrote nothing before the crash
    assert open_log().epochs.entries() == [(0, 0), (2, 3), (5, 6)]


def test_the_start_offset_is_kept(open_log, batch, read_all):
    log = open_log(segment_bytes=300)
    fill(log, batch, 10)
    log.delete_records_before(4)
    log.close(clean=True)
    log = open_log(clean=True, start=4, segment_bytes=300)
    assert (log.view.start_offset, log.view.end_offset) == (4, 10)
    assert log.epochs.entries() == [(0, 4)]
    log.close(clean=False)
    log = open_log(start=50, segment_bytes=300)  # the data before it are gone
    assert (log.view.start_offset, log.view.end_offset) == (50, 50)
    fill(log, batch, 1)
    assert log.view.end_offset == 51


def test_garbage_of_crashes_and_deletions_is_removed(open_log, batch):
    log = open_log()
    fill(log, batch, 3)
    log.close(clean=True)
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000009.index",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000077.snapshot",
        "00000000000000000002.snapshot",
    ):
        (Path(log.path) / name).write_bytes(b"x")
    (Path(log.path) / "notes.log").write_bytes(b"mine")
    open_log(clean=True)
    assert sorted(os.listdir(log.path)) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
        "notes.log",
        "partition.metadata",
    ]


def test_a_torn_snapshot_is_not_believed(open_log, batch):
    log = open_log()
    log.append_as_leader(batch(b"v", producer_id=9, producer_epoch=0, sequence=0), 0, NOW_MS)
    log.close(clean=True)
    path = Path(log.path) / "00000000000000000001.snapshot"
    for text in (b"", path.read_bytes()[:-1], b"\0" * 60):
        path.write_bytes(text)
        log = open_log(clean=True)
        assert log.append_as_leader(batch(b"v", producer_id=9, producer_epoch=0, sequence=0), 0, NOW_MS).duplicate


def test_topic_id_of_a_directory(open_log, log_dir, batch):
    log = open_log()
    path = Path(log.path) / "partition.metadata"
    assert partition_metadata.read(log_dir.files, str(path)) == log.topic_id
    for text in ("", "version: 0\ntopic_id: " + partition_metadata.encode_uuid(log.topic_id)):
        path.write_text(text)
        assert open_log().topic_id == log.topic_id
        assert path.read_text().startswith("version: 0\ntopic_id: ")
    for text in ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", "version: 9\n", "version: 0\ntopic_id: 1\n"):
        path.write_text(text)
        with pytest.raises(InconsistentTopicIdError):
            open_log()


def test_opening_costs_little(open_log, batch, files):
    """A clean stop is believed: no segment is read but the end of the last one."""
    log = open_log(segment_bytes=2000, index_interval_bytes=500)
    fill(log, batch, 200)
    log.close(clean=True)
    files.calls.clear()
    log = open_log(clean=True, segment_bytes=2000, index_interval_bytes=500)
    assert len(log.view.segments) == 10
    reads = [c for c in files.calls if c[0] == "pread"]
    assert len(reads) <= 2
    assert all("180" in path for _, path in reads)


@pytest.mark.parametrize("operation", ["listdir", "read_bytes", "pread", "truncate", "mkdir"])
def test_k112_01_an_error_while_loading_takes_the_dir_offline(open_log, batch, files, operation):
    log = open_log()
    fill(log, batch, 3)
    os.truncate(active_file(log), 250)
    log.close(clean=False)
    files.fail(operation)
    with pytest.raises(KafkaStorageError):
        open_log()
    assert not log.dir.is_online


def test_no_room_for_a_log_is_a_failure_of_the_dir(open_log, files):
    files.fail("create", ".log", errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        open_log()
