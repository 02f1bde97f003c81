"""Recovery points within a segment: what a start after a kill reads, and what makes a point count for nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from uuid import UUID

import pytest

from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.batch import BatchHeader, crc_ok
from holdfast.records.markers import EndMarker, encode_marker
from holdfast.records.record import Record, encode_batch
from holdfast.storage import recovery
from holdfast.storage.files import Buffer
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.log_manager import LogManager
from holdfast.storage.recovery_point import KEPT_SNAPSHOTS
from tests.simulation.disk import SimDisk

NOW_MS = 1_700_000_000_000
TP = TopicPartition("t", 0)
BATCHES = 2_000
MARKER = BATCHES
"""Offset of the abort marker that ``machine`` writes behind its batches."""
CONFIG = LogConfig(segment_bytes=1 << 30, index_interval_bytes=4096, file_delete_delay_ms=0, retention_ms=None)


class OneLog:
    """A log in a directory of a machine that is killed or loses power."""

    def __init__(self) -> None:
        self.rng = random.Random(1)
        self.disk = SimDisk(self.rng, now_ms=lambda: NOW_MS)
        self.disk.mount_point("/data")
        self.start()
        made: list[Log] = []
        self.manager.new.create(
            TP, UUID(int=7), CONFIG, is_new=True, now_ms=NOW_MS, done=lambda log, error: made.append(log)
        )

    @property
    def log(self) -> Log:
        found = self.manager.get(TP)
        assert found is not None
        return found

    def start(self) -> None:
        directory = LogDir("/data/logs", self.disk.mount("broker"), InlineQueue())
        self.manager = LogManager([directory], node_id=1, cluster_id="c", config_of=lambda topic: CONFIG)
        errors: list[object] = []
        self.manager.start(NOW_MS, errors.append)
        assert errors == [None]

    def kill(self, *, power: bool = False) -> None:
        if power:
            self.disk.power_loss(self.rng)
        else:
            self.disk.kill("broker")
        self.start()

    def append(self, count: int, *, producer: int = 9) -> None:
        for _ in range(count):
            entry = self.log.producers.entries.get(producer)
            sequence = entry.batches[-1].last_sequence + 1 if entry is not None and entry.batches else 0
            records = [Record(0, NOW_MS + self.log.view.end_offset, None, b"x")]
            self.log.append_as_leader(
                encode_batch(
                    records, producer_id=producer, producer_epoch=0, base_sequence=sequence,
                    transactional=producer == 9,
                ),
                1, NOW_MS,
            )  # fmt: skip

    def abort(self) -> None:
        self.log.append_as_leader(bytearray(encode_marker(9, 0, EndMarker(False, 0), NOW_MS)), 1, NOW_MS, trusted=True)

    def move(self) -> None:
        """As housekeeping does it."""
        self.manager.upkeep.unchecked_most = 1
        self.manager.upkeep.move_recovery_points()
        self.manager.checkpoints.write_all({})

    def snapshots(self) -> list[int]:
        names = self.disk.mount("looker").listdir(f"/data/logs/{TP}")
        return sorted(int(n.removesuffix(".snapshot")) for n in names if n.endswith(".snapshot"))

    def state(self) -> object:
        """All that recovery has to find out."""
        segment = self.log.view.segments[-1]
        offsets, times = segment.load_indexes()
        assert segment.aborts is not None
        return (
            self.log.view.start_offset, self.log.view.end_offset, list(offsets.offsets), list(offsets.positions),
            list(times.timestamps), list(times.offsets), list(segment.aborts), self.log.epochs.entries(),
            {pid: (e.batches[-1].last_sequence, e.txn_first_offset) for pid, e in self.log.producers.entries.items()},
            segment.max_timestamp, segment.bytes_since_index, segment.size,
        )  # fmt: skip


@pytest.fixture
def machine() -> OneLog:
    made = OneLog()
    made.append(BATCHES)
    made.abort()
    return made


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many batches recovery has checked since it was asked last."""
    count = 0

    def counted(data: Buffer, at: int, header: BatchHeader) -> bool:
        nonlocal count
        count += 1
        return crc_ok(data, at, header)

    def since() -> int:
        nonlocal count
        found, count = count, 0
        return found

    monkeypatch.setattr(recovery, "crc_ok", counted)
    return since


def test_a_start_after_a_kill_checks_what_came_after_the_point(machine: OneLog, checked: Callable[[], int]) -> None:
    machine.move()
    assert machine.log.recovery_point == MARKER + 1
    machine.append(5, producer=3)
    before = machine.state()
    machine.kill()
    assert machine.state() == before
    assert checked() == 5
    machine.kill(power=True)
    assert machine.log.view.end_offset >= MARKER + 1, "what the point stands for is on the device"
    checked()
    machine.log.recovery_point = 0
    machine.manager.checkpoints.write_all({})
    before = machine.state()
    machine.kill()
    assert machine.state() == before, "a whole check finds the same"
    assert checked() > BATCHES


def test_a_whole_check_takes_away_what_it_did_not_believe(machine: OneLog) -> None:
    machine.move()
    before = machine.state()
    machine.disk.mount("looker").unlink(machine.log.view.segments[-1].path(".index"))
    machine.kill()
    assert machine.state() == before
    assert machine.snapshots() == []


def test_snapshots_within_a_segment_do_not_pile_up(machine: OneLog) -> None:
    for _ in range(KEPT_SNAPSHOTS + 3):
        machine.append(2, producer=3)
        machine.move()
    assert len(machine.snapshots()) == KEPT_SNAPSHOTS
    assert machine.snapshots()[-1] == machine.log.recovery_point == machine.log.view.end_offset


def test_those_of_a_segment_that_was_deleted_go_as_well(machine: OneLog) -> None:
    machine.append(2, producer=3)
    machine.move()
    [within] = machine.snapshots()
    machine.append(2, producer=3)
    assert machine.log.roll_if_due(NOW_MS + CONFIG.segment_ms + CONFIG.segment_jitter_ms + 1)
    end = machine.log.delete_records_before(machine.log.view.end_offset)
    assert machine.log.delete_old_segments(NOW_MS, end) == 1 and machine.log.view.segments[0].base_offset == end
    for _ in range(KEPT_SNAPSHOTS):
        machine.append(2, producer=3)
        machine.move()
    found = machine.snapshots()
    assert within not in found and len([offset for offset in found if offset > end]) == KEPT_SNAPSHOTS


def test_a_cut_in_between_has_the_point_dropped(machine: OneLog) -> None:
    point = machine.log.begin_recovery_point()
    assert point is not None
    assert machine.log.sync_recovery_point(point)
    machine.log.truncate_to(100, NOW_MS)
    machine.append(50, producer=3)
    machine.log.take_recovery_point(point)
    assert machine.log.recovery_point <= 100
    assert machine.snapshots() == []
    before = machine.state()
    machine.kill()
    assert machine.state() == before


def test_a_cut_behind_a_point_leaves_it(machine: OneLog) -> None:
    machine.move()
    machine.append(50, producer=3)
    machine.log.truncate_to(MARKER + 11, NOW_MS)
    before = machine.state()
    machine.kill()
    assert machine.state() == before
    assert machine.snapshots() == [MARKER + 1]


def test_nothing_is_begun_where_nothing_is_new_or_before_what_is_not_synced(machine: OneLog) -> None:
    machine.move()
    assert machine.log.begin_recovery_point() is None
    machine.append(1, producer=3)
    machine.log.roll_if_due(NOW_MS, 1)
    machine.append(1, producer=3)
    assert machine.log.begin_recovery_point() is None, "the segment before is not synced yet"
    machine.log.flush_rolled()
    assert machine.log.begin_recovery_point() is not None


def test_what_is_flushed_with_each_append_gets_a_point_too(machine: OneLog, checked: Callable[[], int]) -> None:
    machine.log.flush()
    machine.move()
    machine.append(3, producer=3)
    machine.kill()
    assert checked() == 3


def test_a_deleted_log_has_no_point(machine: OneLog) -> None:
    log = machine.log
    point = log.begin_recovery_point()
    assert point is not None
    log.dir.files.rmtree(log.path)
    assert not log.sync_recovery_point(point)
    assert log.dir.is_online
