"""Logs on a disk that loses power, against a ledger of what was written and what was flushed.

A run is a sequence of random operations on a few partitions of one log directory, cut by kills and losses of power,
between operations or inside one, at any access to the disk. After each start, per partition:

* what the log holds is a run without holes of what was written, byte for byte, in the order of some moment;
* it reaches at least to what was flushed; after a kill that lost no power, to all that was written;
* leader epochs, producers, open and aborted transactions are what these batches say.
"""

import errno
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from holdfast.model.config import LogConfig
from holdfast.model.errors import HoldfastError, KafkaStorageError
from holdfast.model.types import TopicPartition
from holdfast.records.batch import BatchHeader, iter_headers, parse_header
from holdfast.records.markers import EndMarker, decode_marker, encode_marker
from holdfast.records.record import Record, encode_batch
from holdfast.storage.checkpoints import CLEAN_SHUTDOWN
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.log_manager import LogManager
from holdfast.storage.recovery_point import RecoveryPointAhead
from tests.removing import purge
from tests.simulation.disk import CrashNow, SimDisk

RUNS = 60
LIVES = 5
"""Times that a run starts the broker; 60 runs of 5 are 300 crashes."""
NOW_MS = 1_700_000_000_000
TRANSACTIONAL = (4, 5)
"""Producers that write in transactions."""
PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
SEGMENT_BYTES = (1500, 1500, 60_000)
"""Of the runs in turn: in large segments recovery points move within them."""
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200, file_delete_delay_ms=0, retention_ms=None)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)  # recovery tells of every cut
    yield
    logging.disable(logging.NOTSET)


class Ledger:
    """What one replica was told to hold.

    ``batches``: in order, from the first one ever kept. ``after``: what they become by the operation that is under
    way. ``flushed``: a crash may take nothing below it. ``first``: where the oldest segment began.
    """

    def __init__(self, topic_id: UUID) -> None:
        self.topic_id = topic_id
        self.batches: list[bytes] = []
        self.after: list[bytes] | None = None
        self.end = 0
        self.flushed = 0
        self.flushed_after: int | None = None
        self.first = 0
        self.ever_flushed = False
        self.sequences: dict[int, int] = {}

    def begin(self, after: list[bytes], flushed: int | None = None) -> None:
        self.after = after
        self.flushed_after = self.flushed if flushed is None else flushed

    def done(self) -> None:
        if self.after is not None:
            self.batches, self.after = self.after, None
        if self.flushed_after is not None:
            self.flushed, self.flushed_after = self.flushed_after, None


def header_of(batch: bytes) -> BatchHeader:
    return parse_header(batch)


def end_of(batches: list[bytes], default: int) -> int:
    return header_of(batches[-1]).next_offset if batches else default


class Run:
    """One machine through several lives of its broker."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(random.Random(seed + 1), now_ms=lambda: NOW_MS)
        self.disk.mount_point("/log")
        self.ledgers: dict[TopicPartition, Ledger] = {}
        self.epoch = 0
        self.ids = 0
        self.crashes = 0
        self.told: list[str] = []
        self.config = replace(CONFIG, segment_bytes=SEGMENT_BYTES[seed % len(SEGMENT_BYTES)])
        self.points: dict[TopicPartition, tuple[Log, RecoveryPointAhead, bool]] = {}
        """Recovery points under way: whether they are synced."""

    def new_id(self) -> UUID:
        self.ids += 1
        return UUID(int=self.ids)

    def go(self) -> None:
        for life in range(LIVES):
            self.process = life
            power = self.live()
            self.crashes += 1
            self.disk.fault = None
            if power:
                self.disk.power_loss(self.rng)
            else:
                self.disk.kill(life)
            self.told.append("power loss" if power else "kill")
            self.power = power or self.failed  # what a failed flush left is gone like what a loss of power takes (H-28)
            self.look(life)
        self.disk.kill("look")

    # -- a life ------------------------------------------------------------------------------------------------

    def start(self, process: object) -> LogManager:
        self.points.clear()
        directory = LogDir("/log/d", self.disk.mount(process), InlineQueue())
        manager = LogManager(
            [directory], node_id=1, cluster_id="c", config_of=lambda topic: self.config, new_id=self.new_id
        )
        errors: list[HoldfastError | None] = []
        manager.start(NOW_MS, errors.append)
        assert errors == [None], errors
        assert directory.is_online, directory.failure
        return manager

    def live(self) -> bool:
        """Until the crash; whether power is lost then."""
        power = self.rng.random() < 0.7
        last = self.disk.operations + self.rng.randint(1, 1500)
        inside, failing = self.rng.random() < 0.7, self.rng.random() < 0.2
        self.started = self.failed = False

        def fault(operation: str, path: str) -> None:
            if self.disk.operations >= last:
                if failing and self.started:
                    self.told.append(f"error in {operation} {path}")
                    self.failed = True
                    raise OSError(self.rng.choice((errno.EIO, errno.ENOSPC)), "injected", path)
                self.told.append(f"crash in {operation} {path}")
                raise CrashNow

        if inside:
            self.disk.fault = fault
        try:
            self.manager = self.start(self.process)
            self.started = True
            for _ in range(self.rng.randint(1, 120)):
                self.operate()
            if self.rng.random() < 0.3:
                self.close()
        except (CrashNow, KafkaStorageError):
            pass  # of a disk that is offline nothing more is asked
        return power

    def operate(self) -> None:
        tp = self.rng.choice(PARTITIONS)
        log = self.manager.get(tp)
        if log is None:
            self.create(tp)
            return
        operations: list[tuple[int, Callable[[Log, Ledger], None]]] = [
            (30, self.append),
            (10, self.append_fetched),
            (5, self.flush),
            (4, self.flush_rolled),
            (4, self.truncate),
            (1, self.restart_at),
            (3, self.new_epoch),
            (2, self.roll),
            (2, self.delete_records),
            (2, self.checkpoint),
            (1, self.write_indexes),
            (1, self.delete),
            (8, self.move_recovery_point),
        ]
        ledger = self.ledgers[tp]
        operation = self.rng.choices([o for _, o in operations], [w for w, _ in operations])[0]
        self.told.append(f"{operation.__name__} {tp} at {log.view.end_offset} flushed {ledger.flushed}")
        operation(log, ledger)
        if ledger is not self.ledgers[tp]:
            return
        ledger.done()
        ledger.end = log.view.end_offset
        ledger.first = log.view.segments[0].base_offset
        assert ledger.end >= end_of(ledger.batches, 0)

    def create(self, tp: TopicPartition) -> None:
        ledger = Ledger(self.new_id())
        made: list[HoldfastError | None] = []
        self.told.append(f"create {tp}")
        self.manager.new.create(
            tp, ledger.topic_id, self.config, is_new=True, now_ms=NOW_MS, done=lambda log, error: made.append(error)
        )
        if made[0] is not None:
            raise made[0]
        self.ledgers[tp] = ledger

    # -- operations --------------------------------------------------------------------------------------------

    def make_batch(self, ledger: Ledger) -> bytearray:
        count, size = self.rng.randint(1, 3), self.rng.choice((0, 10, 10, 150, 350))
        value = b"%d" % self.rng.getrandbits(64)
        records = [Record(i, NOW_MS + i, b"k", value + b"v" * size) for i in range(count)]
        producer = self.rng.randint(0, 5)
        if not producer:
            return encode_batch(records)
        if producer in TRANSACTIONAL and self.rng.random() < 0.4:
            return bytearray(encode_marker(producer, 0, EndMarker(self.rng.random() < 0.4, 0), NOW_MS))
        sequence = ledger.sequences.get(producer, 0)
        return encode_batch(
            records, producer_id=producer, producer_epoch=0, base_sequence=sequence,
            transactional=producer in TRANSACTIONAL,
        )  # fmt: skip

    def append(self, log: Log, ledger: Ledger) -> None:
        batch = self.make_batch(ledger)
        ledger.begin(ledger.batches)
        try:
            info = log.append_as_leader(batch, self.epoch, NOW_MS, trusted=header_of(batch).is_control)
        finally:
            if header_of(batch).base_offset == log.view.end_offset or header_of(batch).base_offset:
                ledger.after = [*ledger.batches, bytes(batch)]
        assert not info.duplicate
        ledger.after = [*ledger.batches, bytes(batch)]
        self.count(ledger, [batch])

    def append_fetched(self, log: Log, ledger: Ledger) -> None:
        offset, batches = log.view.end_offset, []
        for _ in range(self.rng.randint(1, 3)):
            batch = self.make_batch(ledger)
            batch[:8] = offset.to_bytes(8, "big")
            batch[12:16] = self.epoch.to_bytes(4, "big")
            offset = header_of(batch).next_offset
            self.count(ledger, [batch])
            batches.append(bytes(batch))
        ledger.begin([*ledger.batches, *batches])
        log.append_as_follower(b"".join(batches), NOW_MS)

    def count(self, ledger: Ledger, batches: list[bytearray]) -> None:
        for batch in batches:
            header = header_of(batch)
            if header.producer_id >= 0 and not header.is_control:
                ledger.sequences[header.producer_id] = header.last_sequence + 1

    def flush(self, log: Log, ledger: Ledger) -> None:
        ledger.begin(ledger.batches, log.view.end_offset)
        log.flush()
        assert log.recovery_point == log.view.end_offset
        ledger.ever_flushed = ledger.ever_flushed or log.view.end_offset > 0

    def flush_rolled(self, log: Log, ledger: Ledger) -> None:
        log.flush_rolled()
        ledger.flushed = max(ledger.flushed, log.recovery_point)

    def move_recovery_point(self, log: Log, ledger: Ledger) -> None:
        """One step of it: others come in between."""
        tp = log.topic_partition
        held, point, is_synced = self.points.pop(tp, (None, None, False))
        if held is not log or point is None:
            began = log.begin_recovery_point()
            if began is not None:
                self.points[tp] = log, began, False
        elif not is_synced:
            assert log.sync_recovery_point(point)
            self.points[tp] = log, point, True
        else:
            log.take_recovery_point(point)
            ledger.flushed = max(ledger.flushed, log.recovery_point)

    def truncate(self, log: Log, ledger: Ledger) -> None:
        view = log.view
        offset = max(view.start_offset, view.end_offset - self.rng.randint(0, 12))
        after = [b for b in ledger.batches if header_of(b).last_offset < offset]
        if offset < view.end_offset and (
            offset <= view.segments[0].base_offset or end_of(after, view.start_offset) < view.start_offset
        ):
            after = []  # nothing that can be read is left
        cut = [header_of(b).base_offset for b in ledger.batches[len(after) :]]
        ledger.begin(after, min([ledger.flushed, offset, *cut]))
        log.truncate_to(offset, NOW_MS)
        self.epoch += 1  # truncations come with new leaders
        self.ask_sequences(log, ledger)

    def restart_at(self, log: Log, ledger: Ledger) -> None:
        offset = log.view.end_offset + self.rng.randint(-3, 20)
        ledger.begin([], 0)
        log.truncate_fully_and_start_at(max(0, offset), NOW_MS)
        self.ask_sequences(log, ledger)

    def ask_sequences(self, log: Log, ledger: Ledger) -> None:
        """Producers go on where the log says they are."""
        ledger.sequences = {
            pid: e.batches[-1].last_sequence + 1 if e.batches else 0 for pid, e in log.producers.entries.items()
        }

    def new_epoch(self, log: Log, ledger: Ledger) -> None:
        self.epoch += 1
        log.assign_epoch(self.epoch)

    def roll(self, log: Log, ledger: Ledger) -> None:
        log.roll_if_due(NOW_MS + 10**10)

    def delete_records(self, log: Log, ledger: Ledger) -> None:
        log.delete_records_before(self.rng.randint(log.view.start_offset, log.view.end_offset))
        log.delete_old_segments(NOW_MS, log.view.end_offset)
        purge(log, NOW_MS)

    def checkpoint(self, log: Log, ledger: Ledger) -> None:
        self.manager.checkpoints.write_all({})

    def write_indexes(self, log: Log, ledger: Ledger) -> None:
        self.manager.upkeep.write_indexes()

    def delete(self, log: Log, ledger: Ledger) -> None:
        del self.ledgers[log.topic_partition]  # a crash on the way may leave it, or not
        self.manager.delete(log.topic_partition, now_ms=NOW_MS, done=lambda error: None)
        self.create(log.topic_partition)

    def close(self) -> None:
        self.told.append("close")
        done: list[None] = []
        self.manager.close(clean=True, broker_epoch=7, high_watermarks={}, done=lambda: done.append(None))
        assert done
        self.disk.fault = None
        if CLEAN_SHUTDOWN in self.disk.mount("look").listdir(self.manager.dirs[0].path):  # else nothing was promised
            for ledger in self.ledgers.values():
                ledger.flushed = ledger.end

    # -- after a crash -----------------------------------------------------------------------------------------

    def look(self, life: int) -> None:
        """A start that only looks, and the ledgers go on from what it found."""
        manager = self.start(f"look {life}")
        for log in list(manager.logs()):
            if log.topic_partition not in self.ledgers or log.topic_id != self.ledgers[log.topic_partition].topic_id:
                manager.delete(log.topic_partition, now_ms=NOW_MS, done=lambda error: None)
        for tp, ledger in list(self.ledgers.items()):
            log = manager.get(tp)
            if log is None:
                assert self.power or not ledger.batches, f"{tp} is gone"
                assert ledger.flushed <= ledger.first, f"{tp} is gone, {ledger.flushed} was flushed"
                del self.ledgers[tp]
                continue
            self.check(tp, log, ledger)
        self.disk.kill(f"look {life}")

    def check(self, tp: TopicPartition, log: Log, ledger: Ledger) -> None:
        view = log.view
        data = b"".join(log.dir.files.read_bytes(s.path(".log")) for s in view.segments)
        found = [data[at : at + header.size] for at, header in iter_headers(data)]
        assert sum(map(len, found)) == len(data) == view.size
        versions = [ledger.batches] if ledger.after is None else [ledger.batches, ledger.after]
        floor = ledger.flushed if ledger.flushed_after is None else min(ledger.flushed, ledger.flushed_after)
        what = f"{tp} holds {[header_of(b)[:1] for b in found]} and ends at {view.end_offset}"
        if found:
            assert any(_is_run_of(found, v) for v in versions), f"{what}: that was never written"
            assert view.end_offset == max(end_of(found, 0), view.segments[-1].base_offset), what
        first = header_of(found[0]).base_offset if found else view.end_offset
        since = max(ledger.first, view.start_offset)
        assert any(
            all(
                first <= header.base_offset and header.last_offset < view.end_offset
                for header in map(header_of, version)
                if since <= header.last_offset < floor
            )
            for version in versions
            if _is_run_of(found, version)
        ), f"{what}, flushed was {floor}"
        if not self.power:
            ends = {end_of(v, 0) for v in versions}
            assert min(ends) <= max(end_of(found, 0), view.start_offset), f"{what}, and no power was lost"
        self.check_indexes(log)
        self.check_epochs(log, found, what)
        self.check_producers(log, found, what)
        self.check_transactions(log, found, what)
        before = next((v for v in versions if _is_run_of(found, v)), [])
        ledger.batches = before[: before.index(found[-1]) + 1] if found else []
        ledger.after, ledger.flushed_after = None, None
        ledger.flushed = min(floor, view.end_offset)
        ledger.end, ledger.first = view.end_offset, view.segments[0].base_offset
        self.ask_sequences(log, ledger)

    def check_indexes(self, log: Log) -> None:
        for segment in log.view.segments:
            data = log.dir.files.read_bytes(segment.path(".log"))
            batches = {at: header.last_offset for at, header in iter_headers(data)}
            offsets, times = segment.load_indexes()
            for position, relative in zip(offsets.positions, offsets.offsets, strict=True):
                assert batches.get(position) == segment.base_offset + relative, f"{segment}: index"
            assert all(segment.base_offset + relative in batches.values() for relative in times.offsets), segment

    def check_epochs(self, log: Log, found: list[bytes], what: str) -> None:
        expected: list[tuple[int, int]] = []
        for batch in found:
            header = header_of(batch)
            if header.next_offset <= log.view.start_offset:
                continue
            if not expected or header.partition_leader_epoch != expected[-1][0]:
                expected.append((header.partition_leader_epoch, max(header.base_offset, log.view.start_offset)))
        entries = [e for e in log.epochs.entries() if e[1] < log.view.end_offset]
        assert entries == expected, f"{what}: epochs"

    def check_producers(self, log: Log, found: list[bytes], what: str) -> None:
        latest: dict[int, tuple[int, int]] = {}
        for header in map(header_of, found):
            if header.producer_id >= 0 and not header.is_control:
                latest[header.producer_id] = (header.last_sequence, header.last_offset)
        for pid, (sequence, offset) in latest.items():
            assert pid in log.producers.entries, f"{what}: producer {pid} is not known"
            batch = log.producers.entries[pid].batches[-1]
            assert (batch.last_sequence, batch.last_offset) == (sequence, offset), f"{what}: producer {pid}"
        for pid, entry in log.producers.entries.items():
            if pid not in latest and entry.batches:
                assert entry.batches[-1].last_offset < log.view.end_offset, f"{what}: producer {pid}"

    def check_transactions(self, log: Log, found: list[bytes], what: str) -> None:
        """Those that begin behind a marker of their producer: an earlier one may begin before what is left."""
        opened: dict[int, int] = {}
        seen: set[int] = set()
        aborted: list[tuple[int, int, int]] = []
        for batch in found:
            header = header_of(batch)
            pid = header.producer_id
            if not header.is_transactional:
                continue
            if not header.is_control:
                if pid in seen:
                    opened.setdefault(pid, header.base_offset)
                continue
            marker = decode_marker(batch, header)
            assert marker is not None
            seen.add(pid)
            first = opened.pop(pid, None)
            if first is not None and not marker.is_commit:
                aborted.append((pid, first, header.base_offset))
        entries = log.producers.entries
        for pid in seen:
            assert entries[pid].txn_first_offset == opened.get(pid), f"{what}: the open transaction of producer {pid}"
        told = {each[:3] for each in log.aborted_before(log.view.end_offset)}
        assert told.issuperset(aborted), f"{what}: aborted transactions: {sorted(told)}, expected {aborted}"
        firsts = {first for _, first, _ in aborted}
        false = [t for t in told if found and t[1] in firsts and t not in aborted]
        assert not false, f"{what}: {false} were not aborted"


def _is_run_of(found: list[bytes], all_of: list[bytes]) -> bool:
    """Whether they stand in a row in ``all_of``."""
    if not found:
        return True
    if found[0] not in all_of:
        return False
    at = all_of.index(found[0])
    return all_of[at : at + len(found)] == found


@pytest.mark.parametrize("seed", range(RUNS))
def test_H_27_a_log_recovers_from_any_loss_of_power(seed: int) -> None:
    run = Run(seed)
    try:
        run.go()
    except Exception as e:
        e.add_note("\n".join(run.told[-40:]))
        raise
    assert run.crashes == LIVES
