"""Transactions in a log: who may write in one, where readers of committed records stop, and what they are told."""

import errno
from pathlib import Path

import pytest

from holdfast.model.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    LogAppendError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from holdfast.records.batch import parse_header
from holdfast.records.markers import EndMarker, decode_marker, encode_marker
from holdfast.records.record import Record, encode_batch
from holdfast.storage.files import OsFiles
from holdfast.storage.future_log import NOWHERE, FutureLog, Once, last_look, look
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.producer_state import ENDED_KEPT, ProducerStates
from holdfast.storage.segment import ColdRead
from holdfast.storage.txn_index import AbortedTxn, TxnIndex, read

NOW_MS = 1_700_000_000_000
TRANSACTIONAL = 0x10


def write(log, batch, pid, sequence, *values, epoch=0, transactional=True, **terms):
    data = batch(
        *(values or (b"v",)), producer_id=pid, producer_epoch=epoch, sequence=sequence,
        attributes=TRANSACTIONAL if transactional else 0,
    )  # fmt: skip
    return log.append_as_leader(data, 0, NOW_MS, **terms)


def end(log, pid, is_commit, *, epoch=0, coordinator=0, version=0):
    marker = encode_marker(pid, epoch, EndMarker(is_commit, coordinator), NOW_MS)
    return log.append_as_leader(marker, 0, NOW_MS, trusted=True, txn_version=version)


def stable(log, high_watermark=None):
    view = log.view
    return view.last_stable(view.end_offset if high_watermark is None else high_watermark)


def aborted(log, start, limit=None):
    limit = stable(log) if limit is None else limit
    data = log.read(start, 1 << 20, limit, blocking=True)
    return log.aborted(data, limit, blocking=True)


def test_readers_stop_where_the_oldest_open_transaction_begins(open_log, batch):
    log = open_log()
    assert log.view.unstable is None
    write(log, batch, 1, 0)
    write(log, batch, 2, 0)
    write(log, batch, 9, 0, transactional=False)
    assert stable(log) == 0
    end(log, 1, True)
    assert stable(log) == 1
    end(log, 2, False)
    assert stable(log) == 5
    assert aborted(log, 0) == [(2, 1)]
    log.producers.committed = 5
    write(log, batch, 9, 1, transactional=False)
    assert log.view.unstable is None, "nothing is left of what was committed"


def test_a_transaction_counts_until_its_marker_is_committed(open_log, batch):
    log = open_log()
    write(log, batch, 1, 0)
    end(log, 1, True)
    write(log, batch, 9, 0, transactional=False)
    assert [stable(log, mark) for mark in range(4)] == [0, 0, 2, 3]


def test_ended_transactions_are_bounded(batch):
    states = ProducerStates()
    for i in range(ENDED_KEPT + 5):
        data = parse_header(batch(b"v", producer_id=1, producer_epoch=0, sequence=i, attributes=TRANSACTIONAL))
        states.update(data, 2 * i)
        states.update(parse_header(encode_marker(1, 0, EndMarker(True, 0), 0)), 2 * i + 1, EndMarker(True, 0))
    assert len(states.unstable.ended) == ENDED_KEPT
    assert states.unstable.ended[0] == (0, 11)


def test_deleted_records_do_not_hold_readers_up(open_log, batch):
    log = open_log()
    write(log, batch, 1, 0)
    write(log, batch, 9, 0, transactional=False)
    log.delete_records_before(1)
    assert (stable(log), log.view.start_offset) == (1, 1)


def test_a_transaction_that_nobody_ends_is_late(open_log, batch):
    log = open_log()
    write(log, batch, 1, 0)
    assert (log.producers.is_late(NOW_MS), log.producers.is_late(NOW_MS + 1)) == (False, True)
    end(log, 1, False)
    assert not log.producers.is_late(NOW_MS + 1)


def test_the_epoch_is_looked_at_first(open_log, batch):
    """KAFKA-19690: a fenced producer hears that it is, not that it has no transaction."""
    log = open_log()
    write(log, batch, 1, 0, epoch=3)
    with pytest.raises(InvalidProducerEpochError):
        write(log, batch, 1, 7, epoch=2, verified=False)
    with pytest.raises(OutOfOrderSequenceError):
        write(log, batch, 1, 7, epoch=3, verified=False)


def test_only_what_is_verified_begins_a_transaction(open_log, batch):
    log = open_log()
    with pytest.raises(InvalidTxnStateError, match="never had this partition"):
        write(log, batch, 1, 0, verified=False)
    write(log, batch, 1, 0)
    write(log, batch, 1, 1, verified=False)  # it is open
    end(log, 1, True)
    with pytest.raises(InvalidTxnStateError, match="is over"):
        write(log, batch, 1, 2, verified=False)
    assert write(log, batch, 1, 1, verified=False).duplicate, "what is there may come again"


def test_a_batch_of_no_transaction_is_refused_while_one_is_open(open_log, batch):
    log = open_log()
    write(log, batch, 1, 0)
    assert write(log, batch, 1, 0, transactional=False).duplicate  # as recorded
    with pytest.raises(InvalidTxnStateError, match="a batch of no transaction"):
        write(log, batch, 1, 1, transactional=False)


def test_a_producer_with_a_new_epoch_for_each_transaction_begins_at_zero(open_log, batch):
    log = open_log()
    with pytest.raises(OutOfOrderSequenceError, match="not known"):
        write(log, batch, 1, 4, from_zero=True)
    write(log, batch, 1, 0, from_zero=True)


def test_transactions_need_a_producer(open_log, batch):
    with pytest.raises(InvalidRecordError, match="without a producer id"):
        open_log().append_as_leader(batch(b"v", attributes=TRANSACTIONAL), 0, NOW_MS)


def test_a_coordinators_batches_have_no_sequences(open_log, batch):
    log = open_log()
    for _ in range(2):
        data = batch(b"v", producer_id=1, producer_epoch=0, attributes=TRANSACTIONAL)
        assert not log.append_as_leader(data, 0, NOW_MS, trusted=True).duplicate
    assert stable(log) == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_marker_that_comes_again_with_the_same_epoch_is_fine(open_log, batch, version):
    """KAFKA-19999: else the coordinator sends it for ever."""
    log = open_log()
    write(log, batch, 1, 0)
    epoch = int(version == 2)
    end(log, 1, False, epoch=epoch, version=version)
    end(log, 1, False, epoch=epoch, version=version)
    assert aborted(log, 0) == [(1, 0)]


def test_markers_of_version_2_have_a_newer_epoch(open_log, batch):
    log = open_log()
    write(log, batch, 1, 0, epoch=4)
    with pytest.raises(InvalidProducerEpochError, match="a marker of epoch 4"):
        end(log, 1, True, epoch=4, version=2)
    end(log, 1, True, epoch=5, version=2)
    with pytest.raises(InvalidProducerEpochError):  # late, of the transaction that is over
        write(log, batch, 1, 1, epoch=4)
    with pytest.raises(OutOfOrderSequenceError, match="expected 0"):
        write(log, batch, 1, 1, epoch=5)
    write(log, batch, 1, 0, epoch=5)


def test_a_stale_coordinator_is_fenced(open_log, batch):
    log = open_log()
    write(log, batch, 1, 0)
    end(log, 1, True, coordinator=7)
    write(log, batch, 1, 1)
    with pytest.raises(TransactionCoordinatorFencedError):
        end(log, 1, False, coordinator=6)
    with pytest.raises(InvalidProducerEpochError):
        end(log, 1, False, epoch=-1, coordinator=7)
    end(log, 1, False, coordinator=7)
    assert log.producers.entries[1].coordinator_epoch == 7


def test_control_batches_that_are_no_markers():
    control = {"producer_id": 1, "producer_epoch": 0, "transactional": True, "control": True}
    key, value = bytes(4), bytes(6)
    plain = encode_batch([Record(0, NOW_MS, key, value)], **control)
    assert decode_marker(plain, parse_header(plain)) == EndMarker(False, 0)
    with_headers = encode_batch([Record(0, NOW_MS, key, value, [("h", b"x")])], **control)
    assert decode_marker(with_headers, parse_header(with_headers)) == EndMarker(False, 0)
    for bad in (Record(0, NOW_MS, None, value), Record(0, NOW_MS, key[:3], value), Record(0, NOW_MS, key, value[:5]),
                Record(0, NOW_MS, b"\0\0\0\2", value)):  # fmt: skip
        data = encode_batch([bad], **control)
        assert decode_marker(data, parse_header(data)) is None
    assert decode_marker(plain, parse_header(plain)._replace(record_count=0)) is None


def many(log, batch, count, producers=(1, 2, 3)):
    """Transactions of one record and their markers, every other one aborted; several in each segment."""
    sequences = dict.fromkeys(producers, 0)
    for i in range(count):
        pid = producers[i % len(producers)]
        write(log, batch, pid, sequences[pid], b"x" * 50)
        sequences[pid] += 1
        end(log, pid, i % 2 == 1)


@pytest.fixture
def rolled(open_log, batch):
    log = open_log(segment_bytes=800)
    many(log, batch, 30)
    assert len(log.view.segments) > 5
    return log


def test_each_segment_tells_what_was_aborted_in_it(rolled, open_log):
    expected = [(i % 3 + 1, 2 * i) for i in range(0, 30, 2)]
    assert [found for start in range(0, 60, 4) for found in aborted(rolled, start, start + 4)] == expected
    on_disk = {int(p.name[:20]) for p in Path(rolled.path).glob("*.txnindex")}
    assert {s.base_offset for s in rolled.view.aborting} - on_disk <= {rolled.view.segments[-1].base_offset}
    rolled.close(clean=True)
    again = open_log(clean=True, segment_bytes=800)
    data = again.read(0, 100, 60, blocking=True)
    with pytest.raises(ColdRead):
        again.aborted(data, 60)
    assert [found for start in range(0, 60, 4) for found in aborted(again, start, start + 4)] == expected
    first = again.view.segments[0]
    index = read(again.dir.files, first.path(".txnindex"), 0, again.view.segments[1].base_offset)
    assert list(index) == [AbortedTxn(1, 0, 1, 2), AbortedTxn(3, 4, 5, 6)][: len(index)]


@pytest.mark.parametrize("damage", [b"", b"x", b"\0\1" + bytes(32), bytes(34) + bytes(34)])
def test_a_damaged_index_is_made_again(rolled, open_log, damage):
    expected = [found for start in range(0, 60, 4) for found in aborted(rolled, start, start + 4)]
    rolled.close(clean=True)
    if damage:
        for path in Path(rolled.path).glob("*.txnindex"):
            path.write_bytes(damage)
    again = open_log(clean=True, segment_bytes=800)
    assert [found for start in range(0, 60, 4) for found in aborted(again, start, start + 4)] == expected


@pytest.mark.parametrize("recovery_point", [0, 17, 40, 60])
def test_a_crash_costs_nothing(rolled, open_log, recovery_point):
    expected = [found for start in range(0, 60, 4) for found in aborted(rolled, start, start + 4)]
    entries = {pid: (e.epoch, e.coordinator_epoch, e.txn_first_offset) for pid, e in rolled.producers.entries.items()}
    rolled.flush_rolled()
    rolled.close(clean=False)
    again = open_log(recovery_point=recovery_point, segment_bytes=800)
    assert [found for start in range(0, 60, 4) for found in aborted(again, start, start + 4)] == expected
    assert {
        pid: (e.epoch, e.coordinator_epoch, e.txn_first_offset) for pid, e in again.producers.entries.items()
    } == entries
    again.close(clean=True)
    files = {p.name: p.read_bytes() for p in Path(again.path).glob("*.txnindex")}
    assert sum(map(len, files.values())) == 34 * len(expected)


@pytest.mark.parametrize("clean", [True, False])
def test_what_recovery_finds_in_rolled_segments_is_written(rolled, open_log, clean):
    """The simulation found it (seed 1509031506): the next clean start knew nothing of those transactions."""
    expected = [found for start in range(0, 60, 4) for found in aborted(rolled, start, start + 4)]
    rolled.close(clean=False)
    for path in Path(rolled.path).glob("*.txnindex"):
        path.unlink()
    recovered = open_log(recovery_point=0, segment_bytes=800)
    recovered.close(clean=clean, sync=False)
    again = open_log(clean=clean, recovery_point=60, segment_bytes=800)
    assert [found for start in range(0, 60, 4) for found in aborted(again, start, start + 4)] == expected


def test_retention_takes_the_index_with_its_segment(rolled):
    rolled.delete_records_before(40)
    rolled.delete_old_segments(NOW_MS, 60)
    bases = {s.base_offset for s in rolled.view.segments}
    assert {s.base_offset for s in rolled.view.aborting} <= bases
    assert {int(p.name[:20]) for p in Path(rolled.path).glob("*.txnindex")} <= bases


def test_a_search_ends_where_nothing_later_can_be_aborted():
    index = TxnIndex()
    for txn in (AbortedTxn(1, 0, 5, 3), AbortedTxn(2, 3, 9, 10), AbortedTxn(3, 20, 21, 22)):
        index.append(txn)
    found = []
    assert index.collect(0, 3, found)
    assert found == [(1, 0)]
    found = []
    assert index.collect(6, 10, found)
    assert found == [(2, 3)]
    found = []
    assert not index.collect(0, 30, found)
    assert found == [(1, 0), (2, 3), (3, 20)]
    assert TxnIndex.decode(index.encode(), 0, 22) is not None
    assert TxnIndex.decode(index.encode(), 0, 21) is None, "a marker beyond the segment"
    assert list(index.cut(21)) == list(index)[:2]


@pytest.mark.parametrize("start", [0, 41])
def test_a_log_that_moves_takes_its_transactions_along(rolled, batch, tmp_path, start):
    """Piece by piece, while a transaction is open, from a start within one."""
    write(rolled, batch, 4, 0, b"open")
    rolled.delete_records_before(start)
    expected = [found for found in aborted(rolled, start) if found[1] >= start]  # else only the marker is left
    home = tmp_path / "other"
    home.mkdir()
    copy = FutureLog.make(
        LogDir(str(home), OsFiles(), InlineQueue()), rolled.topic_partition, "0" * 32, rolled.topic_id, rolled.config,
        NOW_MS,
    )  # fmt: skip
    at = NOWHERE
    while at != rolled.view.end_offset:
        at = copy.apply(look(rolled, at, 300), NOW_MS).end_offset
    end(rolled, 1, True)  # of none
    write(rolled, batch, 9, 0, transactional=False)
    copy.seal(None, lambda: None)
    assert copy.commit(last_look(rolled, at, 1 << 20), Once(), NOW_MS, lambda: None)
    assert stable(copy) == stable(rolled) == 60
    assert copy.producers.entries == rolled.producers.entries
    assert copy.producers.entries is not rolled.producers.entries
    assert [found for found in aborted(copy, start) if found[1] >= start] == expected
    end(copy, 4, False)
    assert stable(copy) == copy.view.end_offset
    assert aborted(copy, 60) == [(4, 60)]


def test_a_full_disk_leaves_no_transaction_open(open_log, batch, files):
    """What was not written is not known."""
    log = open_log()
    write(log, batch, 1, 0)
    files.fail("pwritev", ".log", errno.ENOSPC)
    with pytest.raises(LogAppendError):
        write(log, batch, 2, 0)
    with pytest.raises(LogAppendError):
        end(log, 1, True)
    files.rules.clear()
    assert (log.producers.first_open_transaction(), list(log.producers.entries)) == (0, [1])
    end(log, 1, False)
    assert aborted(log, 0) == [(1, 0)]
