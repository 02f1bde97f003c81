"""Log compaction of one log: what stays, what its files are, and that a reader finds it."""

from pathlib import Path

import pytest

from holdfast.model.errors import CorruptRecordError
from holdfast.records.batch import DELETE_HORIZON_BIT, iter_headers
from holdfast.records.compression import Codec
from holdfast.records.markers import EndMarker, encode_marker
from holdfast.records.record import Record, encode_batch
from holdfast.storage.cleaning_job import CleaningOrder
from holdfast.storage.cleaning_plan import CleanerSettings, look, plan
from holdfast.storage.cleaning_rules import Cleanable, Made, Source, first_dirty_of, fits
from tests.unit.storage.cleaning import batches, clean_log, pairs
from tests.unit.storage.conftest import NOW_MS
from tests.unit.storage.test_golden_disk import files_of, open_recorded, recording, written_files

DAY = 86_400_000
COMPACT = {"cleanup_policy": frozenset({"compact"}), "retention_ms": None}


def put(log, *records, codec=Codec.NONE, **batch):
    """One batch of (key, value), and a segment of its own for it."""
    encoded = encode_batch(
        [Record(i, NOW_MS + i, key, value) for i, (key, value) in enumerate(records)], compression=codec, **batch
    )
    log.append_as_leader(encoded, 0, NOW_MS, trusted=batch.get("control", False))
    roll(log)


def mark(log, producer_id, *, commit, epoch=0):
    log.append_as_leader(encode_marker(producer_id, epoch, EndMarker(commit, 0), NOW_MS), 0, NOW_MS, trusted=True)
    roll(log)


def roll(log):
    log._roll(log.view.end_offset, NOW_MS)
    log._publish(log.view.start_offset, log.view.end_offset)


@pytest.fixture
def compacted(open_log):
    return open_log(**COMPACT)


def test_a_cleaned_log_is_kafkas_byte_for_byte(log_dir):
    found = recording("compacted-0")
    expected = files_of(found["files_after_clean_shutdown"])
    log = open_recorded(log_dir, "compacted-0", expected)
    for append in found["appended"]:
        if log.view.end_offset:
            roll(log)
        batch = bytearray.fromhex(append["records_hex"])
        newest = next(header.max_timestamp for _, header in iter_headers(batch))
        assert log.append_as_leader(batch, 0, newest).base_offset == append["answer"]["base_offset"]
    horizon = next(
        h.base_timestamp
        for _, h in iter_headers(expected["00000000000000000000.log"])
        if h.attributes & DELETE_HORIZON_BIT
    )
    assert clean_log(log, horizon - DAY).end == 14
    log.close(clean=True)
    assert written_files(log) == expected


@pytest.mark.parametrize("codec", list(Codec))
def test_the_newest_of_each_key_stays_in_its_codec(compacted, read_all, codec):
    put(compacted, (b"a", b"1"), (b"b", b"1"), codec=codec)
    put(compacted, (b"a", b"2"), (b"long" * 30, b"1"), codec=codec)
    put(compacted, (b"long" * 30, b"2"), codec=codec)
    put(compacted, (b"last", b"x"), codec=codec)
    clean_log(compacted, NOW_MS)
    data = read_all(compacted)
    assert pairs(data) == [(1, b"b", b"1"), (2, b"a", b"2"), (4, b"long" * 30, b"2"), (5, b"last", b"x")]
    assert {h.compression for _, h in iter_headers(data)} == {codec}
    assert [compacted.read(offset, 1 << 20, 6, blocking=True) is not None for offset in range(6)] == [True] * 6


def test_a_tombstone_stays_until_its_horizon_and_goes_at_the_pass_after(compacted, read_all):
    put(compacted, (b"a", b"1"))
    put(compacted, (b"a", None), (b"b", b"1"))
    clean_log(compacted, NOW_MS)
    assert pairs(read_all(compacted)) == [(1, b"a", None), (2, b"b", b"1")]
    horizons = [h.base_timestamp for _, h in iter_headers(read_all(compacted)) if h.attributes & DELETE_HORIZON_BIT]
    assert horizons == [NOW_MS + DAY]
    times = [r.timestamp for r in decoded(read_all(compacted))]
    assert times == [NOW_MS, NOW_MS + 1]
    put(compacted, (b"c", b"1"))
    clean_log(compacted, NOW_MS + DAY - 1)
    assert (1, b"a", None) in pairs(read_all(compacted))
    put(compacted, (b"d", b"1"))
    clean_log(compacted, NOW_MS + DAY)
    assert pairs(read_all(compacted)) == [(2, b"b", b"1"), (3, b"c", b"1"), (4, b"d", b"1")]


def decoded(data):
    from holdfast.records.record import decode_batches

    return list(decode_batches(data))


def test_records_without_a_key_go(compacted, read_all, batch):
    compacted.config = type(compacted.config)()  # they came before the topic was compacted
    put(compacted, (None, b"1"), (b"k", b"2"))
    put(compacted, (b"z", b"3"))
    clean_log(compacted, NOW_MS)
    assert pairs(read_all(compacted)) == [(1, b"k", b"2"), (2, b"z", b"3")]


def test_the_last_batch_of_a_producer_stays_for_its_sequence(compacted, read_all):
    put(compacted, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(compacted, (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=1)
    put(compacted, (b"a", b"3"))
    clean_log(compacted, NOW_MS)
    assert batches(read_all(compacted)) == [(1, 1, 0), (2, 2, 1)]
    header = next(h for _, h in iter_headers(read_all(compacted)))
    assert (header.producer_id, header.last_sequence) == (7, 1)


def test_the_last_batch_of_a_cleaned_segment_stays_for_its_offset(compacted, read_all):
    put(compacted, (b"a", b"1"))
    put(compacted, (b"b", b"1"))
    put(compacted, (b"a", b"2"), (b"b", b"2"))
    compacted.config = type(compacted.config)(cleanup_policy=frozenset({"compact"}), segment_bytes=1)
    clean_log(compacted, NOW_MS)
    assert batches(read_all(compacted)) == [(0, 0, 0), (1, 1, 0), (2, 3, 2)]
    assert [s.base_offset for s in compacted.view.segments] == [0, 1, 2, 4]


class TestTransactions:
    def test_records_of_an_aborted_one_go_and_its_marker_goes_after_them(self, compacted, read_all):
        put(compacted, (b"a", b"kept"))
        put(compacted, (b"a", b"gone"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        mark(compacted, 7, commit=False)
        put(compacted, (b"z", b"1"), producer_id=7, producer_epoch=0, base_sequence=1)
        clean_log(compacted, NOW_MS)
        assert batches(read_all(compacted)) == [(0, 0, 1), (2, 2, 1), (3, 3, 1)]
        put(compacted, (b"y", b"1"))
        clean_log(compacted, NOW_MS + 1)  # nothing of it is left: the marker gets its horizon
        assert [h.attributes & DELETE_HORIZON_BIT for _, h in iter_headers(read_all(compacted))] == [0, 64, 0, 0]
        put(compacted, (b"x", b"1"))
        clean_log(compacted, NOW_MS + DAY + 1)
        assert pairs(read_all(compacted)) == [(0, b"a", b"kept"), (3, b"z", b"1"), (4, b"y", b"1"), (5, b"x", b"1")]
        assert [h.is_control for _, h in iter_headers(read_all(compacted))] == [False] * 4

    def test_while_a_batch_of_it_is_left_the_index_knows_it(self, compacted, read_all):
        put(compacted, (b"a", b"1"))
        put(compacted, (b"b", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        mark(compacted, 7, commit=False)
        clean_log(compacted, NOW_MS)
        assert batches(read_all(compacted)) == [(0, 0, 1), (1, 1, 0), (2, 2, 1)]  # the header: its last sequence
        assert [(t.producer_id, t.first_offset, t.last_offset) for t in compacted.aborted_before(9)] == [(7, 1, 2)]

    def test_markers_of_several_transactions_are_no_keys(self, compacted, read_all):
        for number in range(3):
            put(
                compacted, (b"k%d" % number, b"1"), producer_id=7, producer_epoch=0, base_sequence=number,
                transactional=True,
            )  # fmt: skip
            mark(compacted, 7, commit=number != 1)
        clean_log(compacted, NOW_MS)
        assert pairs(read_all(compacted)) == [(0, b"k0", b"1"), (4, b"k2", b"1")]
        assert [h.base_offset for _, h in iter_headers(read_all(compacted)) if h.is_control] == [1, 3, 5]

    def test_an_abort_beyond_the_cleaned_part_counts(self, compacted, read_all):
        put(compacted, (b"a", b"kept"))
        put(compacted, (b"a", b"gone"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        compacted.append_as_leader(encode_marker(7, 0, EndMarker(False, 0), NOW_MS), 0, NOW_MS, trusted=True)
        clean_log(compacted, NOW_MS)  # the marker is in the active segment
        assert pairs(read_all(compacted)) == [(0, b"a", b"kept")]

    def test_nothing_beyond_an_open_one_is_cleaned(self, compacted, read_all):
        put(compacted, (b"a", b"1"))
        put(compacted, (b"a", b"2"))
        put(compacted, (b"a", b"3"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        put(compacted, (b"a", b"4"))
        assert clean_log(compacted, NOW_MS).end == 2
        assert pairs(read_all(compacted)) == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]


def test_with_little_memory_it_takes_several_rounds(compacted, read_all):
    for number in range(40):
        put(compacted, (b"k%d" % (number % 20), b"%d" % number))
    little = CleanerSettings(160 * 5, 1.0, 64)
    ends = []
    while (stats := clean_log(compacted, NOW_MS, settings=little)) is not None:
        assert stats.keys <= 5
        ends.append(stats.end)
    assert ends == [5, 10, 15, 20, 25, 30, 35, 40]
    assert pairs(read_all(compacted)) == [(n, b"k%d" % (n % 20), b"%d" % n) for n in range(20, 40)]


def test_a_damaged_batch_is_told_and_nothing_is_replaced(compacted):
    put(compacted, (b"a", b"1"))
    put(compacted, (b"b", b"1"))
    path = Path(compacted.path) / "00000000000000000001.log"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match="offset 1"):
        clean_log(compacted, NOW_MS)
    assert not [p for p in Path(compacted.path).iterdir() if p.suffix == ".deleted"]


def test_a_log_that_was_cut_meanwhile_keeps_its_segments(compacted):
    for number in range(3):
        put(compacted, (b"a", b"%d" % number))
    found = look(compacted.dir.files, compacted, 3, NOW_MS)
    planned = plan(compacted, found, CleanerSettings(1 << 20, 0.9, 1 << 16), NOW_MS)
    compacted.truncate_to(2, NOW_MS)
    from holdfast.storage.cleaning_job import clean

    with pytest.raises(FileNotFoundError):
        clean(compacted.dir.files, planned[1], lambda one: None, lambda size: None)


def test_readers_of_the_old_picture_go_on(compacted):
    for number in range(3):
        put(compacted, (b"a", b"%d" % number))
    before = compacted.read(0, 1, 3, blocking=True)
    clean_log(compacted, NOW_MS)
    assert pairs(before.read()) == [(0, b"a", b"0")]
    assert pairs(compacted.read(0, 1000, 3, blocking=True).read()) == [(2, b"a", b"2")]


def test_a_cleaned_log_opens_again(compacted, open_log, read_all):
    for number in range(5):
        put(compacted, (b"k%d" % (number % 2), b"%d" % number))
    clean_log(compacted, NOW_MS)
    found = read_all(compacted)
    compacted.close(clean=False)
    again = open_log(**COMPACT)
    assert read_all(again) == found
    assert again.view.end_offset == 5


def test_an_order_survives_its_way():
    order = CleaningOrder(
        path="/d/t-0", sources=[(0, 10), (5, 20)], end=9, aborted=[], first_dirty=5,
        producers={7: (3, 1), 8: (None, 2)}, now_ms=1, delete_retention_ms=2, segment_bytes=3, segment_index_bytes=4,
        index_interval_bytes=5, most_keys=6, read_bytes=7,
    )  # fmt: skip
    assert CleaningOrder.decode(order.encode()) == order


class TestRules:
    def test_segments_become_one_as_long_as_there_is_room(self):
        def joined(made, each, following=50):
            return fits(made, each, following, 100, 80)

        assert joined(Made(0, 60, 0), Source(10, 40))
        assert not joined(Made(0, 61, 0), Source(10, 40))
        assert joined(Made(0, 1, 40), Source(10, 1, 40))
        assert not joined(Made(0, 1, 41), Source(10, 1, 40))
        assert joined(Made(0, 1, 0), Source(10, 1), 2**31)
        assert not joined(Made(0, 1, 0), Source(10, 1), 2**31 + 1)

    def test_a_checkpoint_that_is_wrong_counts_for_nothing(self):
        assert [first_dirty_of(c, 5, 20) for c in (None, 4, 5, 20, 21)] == [5, 5, 5, 20, 5]

    def test_what_is_due(self, open_log):
        config = open_log(**COMPACT).config
        assert not Cleanable(0, 9, 50, 50, False).is_due(config)
        assert Cleanable(0, 9, 49, 51, False).is_due(config)
        assert Cleanable(0, 9, 99, 1, True).is_due(config)
        assert not Cleanable(0, 9, 99, 0, True).is_due(config)

    def test_young_records_are_left(self, open_log):
        log = open_log(min_compaction_lag_ms=1000, **COMPACT)
        put(log, (b"a", b"1"))
        put(log, (b"a", b"2"))
        assert look(log.dir.files, log, 2, NOW_MS + 999).dirty_bytes == 0
        assert look(log.dir.files, log, 2, NOW_MS + 1000).end == 2

    def test_a_record_that_waits_too_long_makes_it_overdue(self, open_log):
        log = open_log(max_compaction_lag_ms=1000, **COMPACT)
        put(log, (b"a", b"1"))
        assert not look(log.dir.files, log, 1, NOW_MS + 1000).is_overdue
        assert look(log.dir.files, log, 1, NOW_MS + 1001).is_overdue

    def test_nothing_above_the_high_watermark(self, compacted):
        for number in range(3):
            put(compacted, (b"a", b"%d" % number))
        assert [look(compacted.dir.files, compacted, mark, NOW_MS).end for mark in (0, 1, 2, 3)] == [0, 1, 2, 3]


def test_what_a_cleaning_has_written_is_behind_the_recovery_point(compacted):
    """What it was made of had not been flushed; it is gone, and nobody would flush it later."""
    for number in range(6):
        put(compacted, (b"k", b"%d" % number))
    assert compacted.recovery_point == 0
    stats = clean_log(compacted, NOW_MS)
    assert stats.end == compacted.view.segments[-1].base_offset == compacted.recovery_point == compacted.cleaned_offset


def test_what_a_cleaning_has_left_as_it_was_is_not(compacted):
    put(compacted, (b"k", b"v"))
    clean_log(compacted, NOW_MS)
    assert (compacted.cleaned_offset, compacted.recovery_point) == (1, 0)
    compacted.flush_rolled()
    assert compacted.recovery_point == 1
