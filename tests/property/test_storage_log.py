"""A log against a model, through appends, truncations, deletions, stops and damage to its unsynced tail.

The model is the list of batches that the log must have. After a stop that was not clean the tail of the files may
be cut, flipped or followed by garbage: what was written whole before the damage must be there, byte for byte, and
nothing else.
"""

import shutil
import tempfile
from pathlib import Path
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.batch import BatchHeader, iter_headers, parse_header
from holdfast.records.record import Record, encode_batch
from holdfast.storage import recovery
from holdfast.storage.files import OsFiles
from holdfast.storage.log import ColdRead, Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from tests.removing import purge

NOW_MS = 1_700_000_000_000
TP = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=150, file_delete_delay_ms=0, retention_ms=None)


def make_batch(count: int, size: int, time: int, producer: tuple[int, int] | None) -> bytearray:
    records = [Record(i, NOW_MS + time + i, b"k", b"v" * size) for i in range(count)]
    if producer is None:
        return encode_batch(records)
    return encode_batch(records, producer_id=producer[0], producer_epoch=0, base_sequence=producer[1])


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        recovery.log.disabled = True  # it tells of every cut
        self.root = tempfile.mkdtemp()
        self.dir = LogDir(self.root, OsFiles(), InlineQueue())
        self.batches: list[bytes] = []  # all that must be in the files
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.sequence = 0
        self.floor = 0  # where the last segment begins
        self.log = self.open(clean=True)

    def teardown(self) -> None:
        recovery.log.disabled = False
        shutil.rmtree(self.root)

    def open(self, *, clean: bool, recovery_point: int = 0) -> Log:
        return Log.open(
            self.dir,
            TP,
            UUID(int=1),
            CONFIG,
            clean_shutdown=clean,
            now_ms=NOW_MS,
            recovery_point=recovery_point,
            log_start_offset=self.start,
        )

    def headers(self) -> list[BatchHeader]:
        return [parse_header(b) for b in self.batches]

    @rule(count=st.integers(1, 4), size=st.integers(0, 200), time=st.integers(0, 50), fetched=st.booleans())
    def append(self, count: int, size: int, time: int, fetched: bool) -> None:
        batch = make_batch(count, size, time, None)
        if fetched:
            gap = size % 3
            header = parse_header(batch)
            batch[:16] = header.base_offset.to_bytes(8) + batch[8:12] + self.epoch.to_bytes(4)
            batch[:8] = (self.end + gap).to_bytes(8)
            info = self.log.append_as_follower(bytes(batch), NOW_MS)
        else:
            info = self.log.append_as_leader(batch, self.epoch, NOW_MS)
        assert info is not None
        self.batches.append(bytes(batch))
        self.end = parse_header(batch).next_offset
        assert info.last_offset + 1 == self.end

    @rule(again=st.booleans())
    def append_idempotent(self, again: bool) -> None:
        batch = make_batch(1, 10, 0, (5, self.sequence))
        known = [h for h in self.headers() if h.producer_id == 5]
        if known and known[-1].base_sequence + 1 != self.sequence:
            self.sequence = known[-1].base_sequence + 1
            batch = make_batch(1, 10, 0, (5, self.sequence))
        if again and known:
            batch = make_batch(1, 10, 0, (5, known[-1].base_sequence))
            info = self.log.append_as_leader(batch, self.epoch, NOW_MS)
            assert info.duplicate
            assert info.base_offset == known[-1].base_offset
            return
        if not known and self.log.producers.entries:
            return  # retention took its batches, not what is known of it
        info = self.log.append_as_leader(batch, self.epoch, NOW_MS)
        assert not info.duplicate
        self.batches.append(bytes(batch))
        self.end += 1
        self.sequence += 1

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.start, self.end - back)
        bases = [segment.base_offset for segment in self.log.view.segments]
        first_base = bases[0]
        self.log.truncate_to(offset, NOW_MS)
        if offset >= self.end:
            return
        if offset <= first_base:
            self.batches, self.start, self.end = [], offset, offset
            return
        gone = [h for h in self.headers() if h.last_offset >= offset]
        self.batches = [b for b in self.batches if parse_header(b).last_offset < offset]
        end = max(self.headers()[-1].next_offset if self.batches else 0, *(base for base in bases if base < offset))
        if end < self.start:
            self.batches, self.start = [], min([offset, *(h.base_offset for h in gone[:1])])
            end = self.start
        self.end = end

    @rule(forward=st.integers(0, 12))
    def delete_records(self, forward: int) -> None:
        offset = min(self.end, self.start + forward)
        self.log.delete_records_before(offset)
        self.start = max(self.start, offset)
        self.log.delete_old_segments(NOW_MS, self.end)
        purge(self.log, NOW_MS)
        first = self.log.view.segments[0].base_offset
        self.batches = [b for b in self.batches if parse_header(b).base_offset >= first]

    @rule(offset=st.integers(0, 1000))
    def restart_at(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset, NOW_MS)
        self.batches, self.start, self.end = [], offset, offset

    @rule(everything=st.booleans())
    def flush(self, everything: bool) -> None:
        self.log.flush() if everything else self.log.flush_rolled()

    @rule()
    def roll(self) -> None:
        self.log.roll_if_due(NOW_MS + 10**10)

    @rule()
    def stop_and_start(self) -> None:
        self.floor = self.log.view.segments[-1].base_offset
        self.log.close(clean=True)
        self.log = self.open(clean=True)
        self.end_is_where_the_data_end()
        assert self.log.recovery_point == self.end

    @rule()
    def crash(self) -> None:
        self.floor = self.log.view.segments[-1].base_offset
        self.log = self.open(clean=False, recovery_point=self.log.recovery_point)
        self.end_is_where_the_data_end()

    def end_is_where_the_data_end(self) -> None:
        """A gap at the end, which a truncation may leave, is forgotten by a restart and fetched again. Data that
        end before the log's start are dropped."""
        data_end = max(self.headers()[-1].next_offset, self.floor) if self.batches else self.floor
        if data_end < self.start:
            self.batches = []
        self.end = max(self.start, data_end)

    @precondition(lambda self: self.log.recovery_point < self.end)
    @rule(data=st.data(), kind=st.sampled_from(["cut", "flip", "garbage"]))
    def crash_with_damage(self, data: st.DataObject, kind: str) -> None:
        """To the bytes from the recovery point on, which nobody promised."""
        self.floor = self.log.view.segments[-1].base_offset
        recovery_point = self.log.recovery_point
        unsynced = [b for b in self.batches if parse_header(b).base_offset >= recovery_point]
        victim = data.draw(st.integers(0, len(unsynced) - 1)) if unsynced else 0
        active = Path(self.log.view.segments[-1].path(".log"))
        if kind == "garbage" or not unsynced:
            with active.open("ab") as f:
                f.write(data.draw(st.binary(min_size=1, max_size=100)))
        else:
            batch = unsynced[victim]
            path, position = self.find(batch)
            self.floor = int(path.stem)
            # An older segment that ends with a whole batch, before the next one begins, is what compaction leaves.
            first = 16 if kind == "flip" else int(path != active)
            at = data.draw(st.integers(first, len(batch) - 1))
            content = bytearray(path.read_bytes())
            if kind == "cut":
                del content[position + at :]
            else:
                content[position + at] ^= 1 << data.draw(st.integers(0, 7))
            path.write_bytes(content)
            base = parse_header(batch).base_offset
            self.batches = [b for b in self.batches if parse_header(b).base_offset < base]
        self.log = self.open(clean=False, recovery_point=recovery_point)
        self.end_is_where_the_data_end()

    def find(self, batch: bytes) -> tuple[Path, int]:
        for segment in self.log.view.segments:
            path = Path(segment.path(".log"))
            position = path.read_bytes().find(batch)
            if position >= 0:
                return path, position
        raise AssertionError("a batch of the model is in no file")

    @invariant()
    def holds_the_models_batches(self) -> None:
        view = self.log.view
        assert view.end_offset == self.end
        assert view.start_offset == self.start
        on_disk = b"".join(Path(s.path(".log")).read_bytes() for s in view.segments)
        assert on_disk == b"".join(self.batches)
        assert view.size == len(on_disk)

    @invariant()
    def reads_every_offset(self) -> None:
        headers = self.headers()
        for offset in range(max(self.start, self.end - 15), self.end):
            expected = [h for h in headers if h.last_offset >= offset]
            piece = self.log.read(offset, 400, self.end, blocking=True)
            if not expected:
                assert piece is None
                continue
            assert piece is not None
            found = [h for _, h in iter_headers(piece.read())]
            assert found == expected[: len(found)]
            assert len(found) >= 1
            try:
                again = self.log.read(offset, 400, self.end)
            except ColdRead:
                continue
            assert again is not None
            assert (again.position, again.size) == (piece.position, piece.size)

    @invariant()
    def finds_times_and_epochs(self) -> None:
        live = [h for h in self.headers() if h.last_offset >= self.start]
        newest = max((h.max_timestamp for h in live if h.base_offset >= self.start), default=None)
        found = self.log.max_timestamp()
        if newest is not None:
            assert found is not None
            assert found.timestamp >= newest
        for header in live:
            assert self.log.epoch_at(header.last_offset) == header.partition_leader_epoch
        entries = self.log.epochs.entries()
        assert entries == sorted(set(entries))


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
