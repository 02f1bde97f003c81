"""Transactions in a log against a model, through truncations to any offset, clean stops, crashes and copies.

The model is a list of what was written. From it alone it says which transactions are open, which were aborted, and what
a reader of committed records sees; the log must say the same, and so must a follower that has the same bytes, and a log
that is opened again.
"""

import shutil
import tempfile
from typing import NamedTuple
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.batch import iter_headers
from holdfast.records.markers import EndMarker, decode_marker, encode_marker
from holdfast.records.record import Record, encode_batch, iter_batch
from holdfast.storage import recovery
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)
PRODUCERS = st.sampled_from([1, 1, 2])


class Written(NamedTuple):
    base: int
    last: int
    producer: int
    epoch: int
    sequence: int
    marker: EndMarker | None
    """None: records of the producer's transaction; of producer 0, of none."""


class State(NamedTuple):
    """What follows from a list of Written."""

    open: dict[int, int]
    aborted: list[tuple[int, int, int]]
    """Producer, first offset, marker."""
    known: dict[int, tuple[int, int | None, int | None]]
    """Of each producer: epoch, coordinator epoch, where its open transaction begins."""

    @classmethod
    def of(cls, written: list[Written]) -> "State":
        found = cls({}, [], {})
        for each in written:
            if not each.producer:
                continue
            _, coordinator, first = found.known.get(each.producer, (0, None, None))
            if each.marker is None:
                first = each.base if first is None else first
                found.open[each.producer] = first
            else:
                coordinator = each.marker.coordinator_epoch
                if first is not None and not each.marker.is_commit:
                    found.aborted.append((each.producer, first, each.base))
                first = None
                found.open.pop(each.producer, None)
            found.known[each.producer] = each.epoch, coordinator, first
        return found

    def is_seen(self, each: Written) -> bool:
        """By a reader of committed records, below the last stable offset."""
        return each.marker is None and not any(
            pid == each.producer and first <= each.base <= marker for pid, first, marker in self.aborted
        )


class TransactionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        recovery.log.disabled = True
        self.root = tempfile.mkdtemp()
        self.dir = LogDir(self.root, OsFiles(), InlineQueue())
        self.written: list[Written] = []
        self.log = self.open("t", clean=True)

    def teardown(self) -> None:
        recovery.log.disabled = False
        shutil.rmtree(self.root)

    def open(self, topic: str, *, clean: bool, recovery_point: int = 0) -> Log:
        return Log.open(
            self.dir, TopicPartition(topic, 0), UUID(int=1), CONFIG,
            clean_shutdown=clean, now_ms=NOW_MS, recovery_point=recovery_point,
        )  # fmt: skip

    def next_of(self, producer: int) -> tuple[int, int]:
        """Epoch and sequence that the log expects of it."""
        epoch, sequence = 0, 0
        for each in self.written:
            if each.producer == producer:
                if each.epoch != epoch:
                    epoch, sequence = each.epoch, 0
                if each.marker is None:
                    sequence += each.last - each.base + 1
        return epoch, sequence

    @rule(producer=PRODUCERS, count=st.integers(1, 3), size=st.integers(0, 100))
    def write(self, producer: int, count: int, size: int) -> None:
        epoch, sequence = self.next_of(producer)
        base = self.log.view.end_offset
        batch = encode_batch(
            [Record(i, NOW_MS, None, b"%d %s" % (base + i, b"x" * size)) for i in range(count)],
            producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True,
        )  # fmt: skip
        assert self.log.append_as_leader(batch, 0, NOW_MS).base_offset == base
        self.written.append(Written(base, base + count - 1, producer, epoch, sequence, None))

    @rule(size=st.integers(0, 100))
    def write_plainly(self, size: int) -> None:
        base = self.log.view.end_offset
        self.log.append_as_leader(encode_batch([Record(0, NOW_MS, None, b"%d %s" % (base, b"y" * size))]), 0, NOW_MS)
        self.written.append(Written(base, base, 0, -1, -1, None))

    @rule(producer=PRODUCERS, aborts=st.integers(1, 8))
    def abort_some(self, producer: int, aborts: int) -> None:
        """Short transactions, until a segment is full of their markers."""
        for _ in range(aborts):
            self.write(producer, 1, 0)
            self.end(producer, False, 1)

    @rule(producer=PRODUCERS, is_commit=st.booleans(), version=st.sampled_from([1, 1, 2]))
    def end(self, producer: int, is_commit: bool, version: int) -> None:
        epoch = self.next_of(producer)[0] + int(version == 2)
        base, marker = self.log.view.end_offset, EndMarker(is_commit, 3)
        batch = encode_marker(producer, epoch, marker, NOW_MS)
        self.log.append_as_leader(batch, 0, NOW_MS, trusted=True, txn_version=version)
        self.written.append(Written(base, base, producer, epoch, -1, marker))

    @rule(back=st.one_of(st.integers(1, 3), st.integers(0, 30)))
    def truncate(self, back: int) -> None:
        offset = max(0, self.log.view.end_offset - back)
        self.log.truncate_to(offset, NOW_MS)
        self.written = [each for each in self.written if each.last < offset]
        assert self.log.view.end_offset <= offset
        if self.log.view.end_offset != (self.written[-1].last + 1 if self.written else 0):
            self.log.truncate_fully_and_start_at(0, NOW_MS)  # all was cut, from the middle of what came first
            self.written = []

    @rule(clean=st.booleans(), synced=st.booleans())
    def reopen(self, clean: bool, synced: bool) -> None:
        if synced:
            self.log.flush_rolled()
        recovery_point = self.log.recovery_point
        self.log.close(clean=clean)
        self.log = self.open("t", clean=clean, recovery_point=recovery_point)

    def data(self, log: Log) -> bytes:
        return b"".join(segment.handle().pread(end, 0) for segment, end in log.view.segments_from(0))

    @rule(piece=st.integers(1, 5))
    def copy(self, piece: int) -> None:
        """A follower that gets some batches at a time."""
        shutil.rmtree(f"{self.root}/copy-0", ignore_errors=True)
        follower, data = self.open("copy", clean=True), self.data(self.log)
        starts = [at for at, _ in iter_headers(data)][::piece]
        for start, stop in zip(starts, [*starts[1:], len(data)], strict=False):
            follower.append_as_follower(data[start:stop], NOW_MS)
        assert self.data(follower) == data
        self.check(follower)
        follower.close(clean=False)

    @invariant()
    def is_as_the_model_says(self) -> None:
        self.check(self.log)

    def check(self, log: Log) -> None:
        state, end = State.of(self.written), log.view.end_offset
        assert {
            pid: (e.epoch, e.coordinator_epoch, e.txn_first_offset) for pid, e in log.producers.entries.items()
        } == state.known
        stable = log.view.last_stable(end)
        assert stable == min(state.open.values(), default=end)
        expected = [
            offset for w in self.written if w.base < stable and state.is_seen(w) for offset in range(w.base, w.last + 1)
        ]
        for max_bytes in (1, 400, 1 << 20):
            assert committed(log, stable, max_bytes) == expected


def committed(log: Log, stable: int, max_bytes: int) -> list[int]:
    """What a client reads: it drops what is of an aborted transaction, from its first offset to the abort marker."""
    seen: list[int] = []
    offset = log.view.start_offset
    while (found := log.read(offset, max_bytes, stable, blocking=True)) is not None:
        aborts = sorted(log.aborted(found, stable, blocking=True), key=lambda pair: pair[1])
        dropping: set[int] = set()
        data = found.read()
        for at, header in iter_headers(data):
            while aborts and aborts[0][1] <= header.last_offset:
                dropping.add(aborts.pop(0)[0])
            if header.is_control:
                marker = decode_marker(data[at:], header)
                assert marker is not None
                if not marker.is_commit:
                    dropping.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in dropping:
                for record in iter_batch(data[at : at + header.size]):
                    assert record.value is not None and record.value.split()[0] == b"%d" % record.offset
                    seen.append(record.offset)
            offset = header.next_offset
    return seen


TestTransactions = TransactionsMachine.TestCase
TestTransactions.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
