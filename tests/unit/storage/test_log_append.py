"""What a log takes, what it refuses, and where it puts it."""

import contextlib
import errno
import tracemalloc
from pathlib import Path

import pytest

from holdfast.model.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaStorageError,
    LogAppendError,
    LogReadError,
    MessageTooLargeError,
    OffsetsOutOfOrderError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    UnsupportedCompressionTypeError,
)
from holdfast.records.batch import HEADER, iter_headers, parse_header, stamp, stamp_crc
from holdfast.records.compression import Codec, compress
from holdfast.records.record import decode_batch
from holdfast.storage.dir_state import DirState
from holdfast.storage.log_dir import LogDir
from holdfast.storage.validation import RejectedRecordsError
from tests.unit.storage.conftest import contents

NOW_MS = 1_700_000_000_000


def test_offsets_and_epoch_are_stamped_in_place_and_written(open_log, batch, read_all):
    log = open_log()
    first, second = batch(b"a", b"b"), batch(b"c")
    info = log.append_as_leader(first, 3, NOW_MS)
    assert (info.base_offset, info.last_offset, info.leader_epoch, info.duplicate) == (0, 1, 3, False)
    assert info.log_append_time_ms is None
    assert log.append_as_leader(second, 3, NOW_MS).base_offset == 2
    assert parse_header(second).base_offset == 2
    assert parse_header(second).partition_leader_epoch == 3
    assert read_all(log) == bytes(first + second)
    assert log.view.end_offset == 3
    assert log.view.size == len(first + second)
    assert log.view.last_epoch == 3


def test_several_batches_at_once_and_a_torn_one_behind_them(open_log, batch, read_all):
    log = open_log()
    both = batch(b"a", b"b") + batch(b"c")
    info = log.append_as_leader(memoryview(both + batch(b"never")[:-1]), 0, NOW_MS)
    assert (info.base_offset, info.last_offset) == (0, 2)
    assert [h.base_offset for _, h in iter_headers(read_all(log))] == [0, 2]


def broken(batch: bytearray, position: int, value: bytes, *, crc: bool = True) -> bytearray:
    batch[position : position + len(value)] = value
    if crc:
        stamp_crc(batch, 0)
    return batch


def test_what_a_producer_may_not_send(open_log, batch):
    log = open_log(max_message_bytes=200, timestamp_before_max_ms=1000, timestamp_after_max_ms=1000)
    refused = [
        (bytearray(b"short"), InvalidRecordError),
        (bytearray(), InvalidRecordError),
        (batch(b"a")[:-1], InvalidRecordError),
        (batch(b"x" * 200), MessageTooLargeError),
        (broken(batch(b"a"), 60, b"\x02"), InvalidRecordError),  # record count
        (broken(batch(b"a"), 23, b"\0\0\0\x01"), InvalidRecordError),  # last offset delta
        (broken(batch(b"a"), 57, b"\0\0\0\0"), InvalidRecordError),  # no records
        (batch(b"a", base_offset=100), InvalidRecordError),
        (batch(b"a", attributes=0x20), InvalidRecordError),  # control batch
        (batch(b"a", attributes=7), UnsupportedCompressionTypeError),
        (batch(b"a", producer_id=1, producer_epoch=0, sequence=-1), InvalidRecordError),
        (batch(b"a", producer_id=1, producer_epoch=0, sequence=0) * 2, InvalidRecordError),
        (broken(batch(b"a"), 65, b"!", crc=False), CorruptRecordError),
        (broken(batch(b"a"), 16, b"\x03", crc=False), CorruptRecordError),  # magic
        (batch(b"a", timestamp=NOW_MS - 1001), InvalidTimestampError),
        (batch(b"a", timestamp=NOW_MS + 1001), InvalidTimestampError),
        (batch(b"a", b"b", timestamp=NOW_MS, step_ms=1001), InvalidTimestampError),
    ]
    for data, error in refused:
        with pytest.raises(error):
            log.append_as_leader(data, 0, NOW_MS)
    assert log.view.end_offset == 0
    log.append_as_leader(batch(b"a", timestamp=-1), 0, NOW_MS)  # no timestamp is fine
    log.append_as_leader(batch(b"a", attributes=0x20, timestamp=0), 0, NOW_MS, trusted=True)
    assert log.view.end_offset == 2


def test_time_of_append(open_log, batch, read_all):
    log = open_log(message_timestamp_type="LogAppendTime")
    info = log.append_as_leader(batch(b"a", b"b", timestamp=5), 0, NOW_MS)
    assert info.log_append_time_ms == NOW_MS
    assert [r.timestamp for r in decode_batch(read_all(log))] == [NOW_MS, NOW_MS]


def test_a_client_cannot_claim_the_brokers_clock(open_log, batch, read_all):
    log = open_log()
    assert log.append_as_leader(batch(b"a", attributes=0x08), 0, NOW_MS).log_append_time_ms is None
    header = parse_header(read_all(log))
    assert header.attributes == 0
    log.close(clean=False)
    assert open_log(clean=False).view.end_offset == 1  # its CRC is right


def test_a_small_batch_of_very_many_records_takes_little_memory(open_log):
    """A hundred thousand empty records in a few hundred bytes: they are looked at one at a time."""
    record = b"\x0c\0\0\0\x01\x01\0"  # no key, no value
    count = 100_000
    payload = compress(Codec.ZSTD, record * count)
    head = HEADER.pack(0, 49 + len(payload), -1, 2, 0, Codec.ZSTD, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count)
    batch = bytearray(head + payload)
    stamp_crc(batch, 0)
    log = open_log(cleanup_policy=frozenset({"compact"}))
    tracemalloc.start()
    try:
        with pytest.raises(RejectedRecordsError, match="100000 of 100000"):
            log.append_as_leader(batch, 1, NOW_MS)
        assert tracemalloc.get_traced_memory()[1] < 6 << 20
    finally:
        tracemalloc.stop()


def test_compacted_topics_need_keys(open_log, batch):
    log = open_log(cleanup_policy=frozenset({"compact"}))
    with pytest.raises(InvalidRecordError) as refused:
        log.append_as_leader(batch(b"a", b"b", key=None), 0, NOW_MS)
    assert [i for i, _ in refused.value.record_errors] == [0, 1]  # type: ignore[attr-defined]
    log.append_as_leader(batch(b"a"), 0, NOW_MS)
    log.append_as_leader(batch(b"a", key=None), 0, NOW_MS, trusted=True)


def test_topic_compression(open_log, batch, read_all):
    log = open_log(compression_type="zstd", max_message_bytes=160)
    log.append_as_leader(batch(b"a" * 80) + batch(b"b"), 0, NOW_MS)
    data = read_all(log)
    assert [h.compression for _, h in iter_headers(data)] == [4, 4]
    assert [h.base_offset for _, h in iter_headers(data)] == [0, 1]
    again = bytearray(data[: parse_header(data).size])
    stamp(again, 0, 0, -1)
    log.append_as_leader(again, 0, NOW_MS)  # has the codec already
    random = bytes(range(256))[:89]  # 160 bytes as it comes, more with zstd around it
    with pytest.raises(MessageTooLargeError):
        log.append_as_leader(batch(random), 0, NOW_MS)


def test_r46_idempotent_producer_as_recorded(open_log, batch):
    """SPEC R-46 and C22: the sequence of cases of golden/wire produce.json."""
    log = open_log()

    def send(sequence: int, count: int = 1, epoch: int = 0, pid: int = 9):
        data = batch(*[b"v"] * count, producer_id=pid, producer_epoch=epoch, sequence=sequence)
        return log.append_as_leader(data, 0, NOW_MS)

    assert send(0).base_offset == 0
    assert send(1).base_offset == 1
    duplicate = send(1)
    assert (duplicate.base_offset, duplicate.duplicate, duplicate.log_append_time_ms) == (1, True, NOW_MS)
    with pytest.raises(OutOfOrderSequenceError):
        send(5)
    assert send(0).base_offset == 0  # still among the last five
    for sequence in range(2, 9):
        send(sequence)
    with pytest.raises(OutOfOrderSequenceError):
        send(0)
    with pytest.raises(OutOfOrderSequenceError):
        send(7, count=3)
    assert send(0, epoch=1).base_offset == 9
    with pytest.raises(OutOfOrderSequenceError):
        send(3, epoch=2)
    with pytest.raises(InvalidProducerEpochError):
        send(1, epoch=0)
    assert send(7, pid=10).base_offset == 10  # an unknown producer may begin anywhere
    assert send(2**31 - 1, count=2, pid=11).base_offset == 11
    assert send(1, pid=11).base_offset == 13  # the sequence wrapped to 0
    assert log.view.end_offset == 14


def test_producers_survive_roll_close_and_crash(open_log, batch):
    log = open_log(segment_bytes=200)
    for sequence in range(8):
        log.append_as_leader(batch(b"v", producer_id=9, producer_epoch=0, sequence=sequence), 0, NOW_MS)
    assert len(log.view.segments) > 1
    for clean in (False, True, False):
        log.close(clean=clean)
        log = open_log(clean=clean, segment_bytes=200)
        again = batch(b"v", producer_id=9, producer_epoch=0, sequence=7)
        assert log.append_as_leader(again, 0, NOW_MS).base_offset == 7
        with pytest.raises(OutOfOrderSequenceError):
            log.append_as_leader(batch(b"v", producer_id=9, producer_epoch=0, sequence=9), 0, NOW_MS)


def test_followers_append_as_it_is(open_log, batch, read_all):
    log = open_log()
    data = bytes(batch(b"a", b"b", leader_epoch=1) + batch(b"c", base_offset=2, leader_epoch=2))
    torn = data + bytes(batch(b"d", base_offset=3)[:-3])
    info = log.append_as_follower(torn, NOW_MS)
    assert (info.base_offset, info.last_offset, info.leader_epoch) == (0, 2, 2)
    assert read_all(log) == data
    assert log.epochs.entries() == [(1, 0), (2, 2)]
    assert log.append_as_follower(b"", NOW_MS) is None
    with pytest.raises(OffsetsOutOfOrderError):
        log.append_as_follower(batch(b"x", base_offset=2), NOW_MS)
    bad = batch(b"x", base_offset=3)
    bad[-2] ^= 1
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(bad, NOW_MS)
    log.append_as_follower(batch(b"x", base_offset=10, leader_epoch=2), NOW_MS)  # compaction leaves gaps
    assert log.view.end_offset == 11


def test_follower_knows_duplicates_when_it_becomes_leader(open_log, batch):
    log = open_log()
    sent = batch(b"v", producer_id=9, producer_epoch=0, sequence=0)
    log.append_as_follower(bytes(sent), NOW_MS)
    assert log.append_as_leader(sent, 1, NOW_MS).duplicate


def bases(log):
    return [s.base_offset for s in log.view.segments]


def test_segments_roll_by_size(open_log, batch):
    log = open_log(segment_bytes=200)
    for _ in range(5):
        log.append_as_leader(batch(b"x" * 20), 0, NOW_MS)
    assert bases(log) == [0, 2, 4]
    with pytest.raises(RecordListTooLargeError):
        log.append_as_leader(batch(b"x" * 300), 0, NOW_MS)
    assert log.view.end_offset == 5


def test_a_large_fetch_is_spread_over_segments(open_log, batch, read_all):
    log = open_log(segment_bytes=200)
    data = b"".join(bytes(batch(b"x" * 20, base_offset=i)) for i in range(7))
    log.append_as_follower(data, NOW_MS)
    assert bases(log) == [0, 2, 4, 6]
    assert read_all(log) == data


def test_segments_roll_by_the_records_time(open_log, batch):
    log = open_log(segment_ms=1000)
    for at in (0, 1000, 1001, 1500):
        log.append_as_leader(batch(b"x", timestamp=NOW_MS + at), 0, NOW_MS)
    assert bases(log) == [0, 2]


def test_segments_roll_by_the_clock_without_record_times(open_log, batch):
    log = open_log(segment_ms=1000)
    for at in (0, 1000, 1001):
        log.append_as_leader(batch(b"x", timestamp=-1), 0, NOW_MS + at)
    assert bases(log) == [0, 2]
    assert not open_log(topic="other").roll_if_due(NOW_MS)
    assert not log.roll_if_due(NOW_MS + 1500)
    assert log.roll_if_due(NOW_MS + 3000)
    assert bases(log) == [0, 2, 3]


def test_segments_roll_when_the_index_is_full(open_log, batch):
    log = open_log(segment_index_bytes=36, index_interval_bytes=1)
    for i in range(8):
        log.append_as_leader(batch(b"x", timestamp=NOW_MS + i), 0, NOW_MS)
    assert bases(log) == [0, 3, 6]


def test_segments_roll_before_relative_offsets_overflow(open_log, batch):
    log = open_log()
    log.append_as_follower(batch(b"x", base_offset=0), NOW_MS)
    log.append_as_follower(batch(b"x", base_offset=2**31 - 1), NOW_MS)
    log.append_as_follower(batch(b"x", base_offset=2**31), NOW_MS)
    assert bases(log) == [0, 2**31]
    other = open_log(topic="other")
    other.append_as_follower(batch(b"x", base_offset=2**40), NOW_MS)
    assert bases(other) == [0, 2**40]


def test_flush_messages_moves_the_recovery_point(open_log, batch, files):
    log = open_log(flush_messages=3)
    for _ in range(4):
        log.append_as_leader(batch(b"x"), 0, NOW_MS)
    assert log.recovery_point == 3
    log.append_as_follower(batch(b"x", b"y", base_offset=4), NOW_MS)
    assert log.recovery_point == 6
    syncs = len([c for c in files.calls if c[0] == "fsync"])
    log.flush()
    assert len([c for c in files.calls if c[0] == "fsync"]) == syncs


def test_flush_ms(open_log, batch):
    log = open_log(flush_ms=100)
    log.append_as_leader(batch(b"x"), 0, NOW_MS)
    log.flush_if_due(NOW_MS)
    log.flush_if_due(NOW_MS + 99)
    assert log.recovery_point == 0
    log.flush_if_due(NOW_MS + 100)
    assert log.recovery_point == 1


def test_appends_do_not_sync(open_log, batch, files):
    """Kafka's default: replication, not fsync, is what makes a record safe; a roll is synced by housekeeping."""
    log = open_log(segment_bytes=200)
    files.calls.clear()
    for _ in range(8):
        log.append_as_leader(batch(b"x" * 20), 0, NOW_MS)
    assert not [c for c in files.calls if "fsync" in c[0]]
    assert log.has_rolled
    log.flush_rolled()
    assert not log.has_rolled
    assert log.recovery_point == log.view.segments[-1].base_offset


def test_H_02_a_leaders_epoch_is_known_from_its_start_and_in_the_file_with_its_first_batch(open_log, batch):
    log = open_log()
    log.append_as_leader(batch(b"x"), 2, NOW_MS)
    checkpoint = Path(log.path) / "leader-epoch-checkpoint"
    log.assign_epoch(4)
    log.assign_epoch(3)
    assert log.view.last_epoch == 4
    assert log.epoch_end_offset(2) == (2, 1)
    assert log.epoch_end_offset(3) == (2, 1)
    assert log.epoch_end_offset(4) == (4, 1)
    assert checkpoint.read_text() == "0\n1\n2 0\n"  # many leaders that begin at once write no file each
    log.append_as_leader(batch(b"x"), 4, NOW_MS)
    assert checkpoint.read_text() == "0\n2\n2 0\n4 1\n"
    log.assign_epoch(6)
    log.close(clean=True)
    assert checkpoint.read_text() == "0\n3\n2 0\n4 1\n6 2\n"


def test_new_epochs_are_written_before_their_records(open_log, batch):
    log = open_log()
    log.assign_epoch(4)
    assert log.epoch_at(0) == 4
    log.assign_epoch(4)
    log.append_as_leader(batch(b"x"), 5, NOW_MS)
    assert log.epochs.entries() == [(5, 0)]
    log.append_as_leader(batch(b"x"), 7, NOW_MS)
    assert log.epoch_end_offset(5) == (5, 1)
    assert log.epoch_end_offset(6) == (5, 1)
    assert log.epoch_end_offset(7) == (7, 2)
    assert log.epoch_end_offset(8) is None


@pytest.mark.parametrize("operation", ["pwritev", "create"])
def test_k112_01_an_error_on_append_takes_the_dir_offline(open_log, batch, files, operation):
    log = open_log(segment_bytes=200)
    log.append_as_leader(batch(b"x" * 20), 0, NOW_MS)
    failed = []
    log.dir.on_offline = lambda d, e: failed.append((d, e))
    files.fail(operation, ".log")
    files.fail_probes()
    with pytest.raises(LogAppendError):
        for _ in range(3):
            log.append_as_leader(batch(b"x" * 20), 0, NOW_MS)
    assert [d for d, _ in failed] == [log.dir]
    files.rules.clear()
    with pytest.raises(LogAppendError, match="offline"):
        log.append_as_leader(batch(b"x"), 0, NOW_MS)
    with pytest.raises(KafkaStorageError):
        log.read(0, 100, 1)
    assert len(failed) == 1


@pytest.mark.parametrize("operation", ["pwritev", "create"])
def test_K18_03_an_error_on_append_of_one_log_is_no_dead_disk(open_log, batch, files, operation):
    log, other = open_log(segment_bytes=200), open_log(topic="other")
    failed = []
    log.dir.on_log_failed = lambda d, each: failed.append((d, each))
    log.append_as_leader(batch(b"x" * 20), 0, NOW_MS)
    files.fail(operation, f"{log.path}/")
    with pytest.raises(LogAppendError):
        for _ in range(3):
            log.append_as_leader(batch(b"x" * 20), 0, NOW_MS)
    assert log.dir.is_online
    assert failed == [(log.dir, log)]
    files.rules.clear()
    for work in (
        lambda: log.append_as_leader(batch(b"x"), 0, NOW_MS),
        lambda: log.read(0, 100, 1),
        lambda: log.read(0, 100, 1, blocking=True),
        log.flush,
    ):
        with pytest.raises(KafkaStorageError):
            work()
    other.append_as_leader(batch(b"x"), 0, NOW_MS)
    assert len(failed) == 1


def test_a_full_disk_is_not_a_dead_disk(open_log, batch, files, read_all):
    log = open_log(segment_bytes=200)
    told = []
    log.dir.on_full = lambda d, is_full: told.append(is_full)
    log.append_as_leader(batch(b"x" * 20), 0, NOW_MS)
    files.fail("pwritev", error=errno.ENOSPC)
    for _ in range(2):
        with pytest.raises(LogAppendError):
            log.append_as_leader(batch(b"y" * 20), 0, NOW_MS)
    log.dir.queue.submit(log.dir.probe, lambda *_: None)  # it cannot write either, and changes nothing
    assert (log.dir.state, log.failure, told) == (DirState.FULL, None, [True])
    before = read_all(log)
    files.rules.clear()
    log.dir.probe()
    assert (log.dir.state, told) == (DirState.ONLINE, [True, False])
    assert log.append_as_leader(batch(b"z" * 20), 0, NOW_MS).base_offset == 1
    assert read_all(log)[: len(before)] == before


def test_a_full_disk_lets_retention_make_room(open_log, batch, files):
    log = open_log(segment_bytes=200, retention_bytes=300)
    for _ in range(8):
        log.append_as_leader(batch(b"x" * 100), 0, NOW_MS)
    files.fail("write_atomic", error=errno.ENOSPC)
    with contextlib.suppress(KafkaStorageError):
        log.delete_old_segments(NOW_MS, 8)
    files.rules.clear()
    assert log.has_retired
    assert log.view.start_offset > 0


def test_K18_01_each_error_says_what_was_done_to_which_partition_in_which_directory(open_log, batch, files):
    errors = {
        LogAppendError: ("pwritev", lambda log: log.append_as_leader(batch(b"x"), 0, NOW_MS)),
        LogReadError: ("pread", lambda log: log.read(0, 100, 1, blocking=True)),
        KafkaStorageError: ("fsync", lambda log: log.flush()),
    }
    for number, (kind, (operation, work)) in enumerate(errors.items()):
        log = open_log(topic=f"t{number}")
        log.append_as_leader(batch(b"x"), 0, NOW_MS)
        log.view.segments[-1].tail = None
        files.fail(operation, f"{log.path}/")
        with pytest.raises(kind) as raised:
            work(log)
        assert f"t{number}-0 in log dir {log.dir.path}" in str(raised.value)
        assert isinstance(raised.value.__cause__, OSError)
        files.rules.clear()


def test_K18_02_one_place_judges_all_errors(open_log, batch, files, monkeypatch):
    judged = []
    judge = LogDir.judge

    def note(self, error, kind, of=None):
        judged.append(error)
        return judge(self, error, kind, of)

    monkeypatch.setattr(LogDir, "judge", note)
    log = open_log(segment_bytes=200)
    work = {
        "pwritev": lambda: log.append_as_leader(batch(b"x"), 0, NOW_MS),
        "fsync": log.flush,
        "rename": lambda: log.rename_for_delete("0" * 32),
        "statvfs": log.dir.space,
    }
    for operation, do in work.items():
        log.failure = None
        log.append_as_leader(batch(b"x"), 0, NOW_MS)
        files.fail(operation, "", errno.EMFILE)
        with contextlib.suppress(KafkaStorageError):
            do()
        files.rules.clear()
    assert len(judged) == len(work)


@pytest.mark.parametrize("operation", ["create", "pwritev"])
@pytest.mark.parametrize("leads", [False, True])
def test_more_than_a_segment_of_which_only_a_part_found_room(open_log, batch, files, operation, leads):
    """What is written is there, for readers, producers and what comes next; the rest comes again."""
    parts = [
        bytes(batch(b"x" * 100, base_offset=i, leader_epoch=1, producer_id=7, producer_epoch=0, sequence=i))
        for i in range(6)
    ]
    log = open_log(segment_bytes=2 * len(parts[0]) + 20)
    files.fail(operation, "00000000000000000002.log", error=errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        log.append_as_follower(memoryview(b"".join(parts)), NOW_MS)
    files.rules.clear()
    assert log.view.end_offset == 2
    if leads:
        log.assign_epoch(2)
        for i in range(2, 6):
            new = batch(b"y" * 100, producer_id=7, producer_epoch=0, sequence=i)
            assert not log.append_as_leader(new, 2, NOW_MS).duplicate
        repeated = log.append_as_leader(batch(b"x" * 100, producer_id=7, producer_epoch=0, sequence=1), 2, NOW_MS)
        assert repeated.duplicate
    else:
        log.append_as_follower(memoryview(b"".join(parts[2:])), NOW_MS)
    assert [h.base_offset for _, h in iter_headers(contents(log))] == list(range(6))
    log.close(clean=False)
    again = open_log(segment_bytes=2 * len(parts[0]) + 20)
    assert [h.base_offset for _, h in iter_headers(contents(again))] == list(range(6))
