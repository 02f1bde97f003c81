"""What a loss of power must not do to a log: one test for each way in which it once did, over many seeds.

The property test of the same name (tests/property) found them; the fault model is that of tests/simulation.
"""

import logging
import random
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.batch import iter_headers, parse_header
from holdfast.records.record import Record, encode_batch
from holdfast.storage.files import make_durably
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.log_manager import LogManager
from tests.simulation.disk import SimDisk

NOW_MS = 1_700_000_000_000
TP = TopicPartition("t", 0)
OLD, NEW = UUID(int=7), UUID(int=8)
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100, file_delete_delay_ms=0, retention_ms=None)
SEEDS = range(60)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


class Machine:
    """A broker's only log directory, and the machine that it is in."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(random.Random(seed), now_ms=lambda: NOW_MS)
        self.disk.mount_point("/data")
        self.ids = 100
        self.start()

    def new_id(self) -> UUID:
        self.ids += 1
        return UUID(int=self.ids)

    def start(self) -> None:
        directory = LogDir("/data/logs", self.disk.mount("broker"), InlineQueue())
        self.manager = LogManager(
            [directory], node_id=1, cluster_id="c", config_of=lambda topic: CONFIG, new_id=self.new_id
        )
        errors: list[object] = []
        self.manager.start(NOW_MS, errors.append)
        assert errors == [None]

    def lose_power(self) -> None:
        self.disk.power_loss(self.rng)
        self.start()

    def kill(self) -> None:
        self.disk.kill("broker")
        self.start()

    def create(self, topic_id: UUID = OLD) -> Log:
        made: list[Log] = []
        new = self.manager.new
        new.create(TP, topic_id, CONFIG, is_new=True, now_ms=NOW_MS, done=lambda log, error: made.append(log))
        return made[0]

    def log(self) -> Log | None:
        return self.manager.get(TP)

    def names(self) -> list[str]:
        return self.disk.mount("looker").listdir("/data/logs")


def batch(
    value: bytes, *, producer: int | None = None, sequence: int = 0, offset: int = 0, epoch: int = 0
) -> bytearray:
    options = {} if producer is None else {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    made = encode_batch([Record(0, NOW_MS, None, value)], **options)
    made[:8] = offset.to_bytes(8, "big")
    made[12:16] = bytes(4)
    return made


def append(log: Log, *values: bytes, epoch: int = 0) -> None:
    for value in values:
        log.append_as_leader(batch(value), epoch, NOW_MS)


def values(log: Log | None) -> list[bytes]:
    """The last letters of the records, of the whole log."""
    if log is None:
        return []
    data = b"".join(log.dir.files.read_bytes(s.path(".log")) for s in log.view.segments)
    return [data[at + header.size - 2 : at + header.size - 1] for at, header in iter_headers(data)]


def outcomes(prepare: Callable[[Machine], object], look: Callable[[Machine], object] | None = None) -> set[object]:
    """What is found after a loss of power, over all seeds."""
    found = set()
    for seed in SEEDS:
        machine = Machine(seed)
        prepare(machine)
        machine.lose_power()
        found.add(look(machine) if look is not None else b"".join(values(machine.log())))
    return found


def test_H_27_the_first_flush_brings_everything_above_the_log_to_the_device() -> None:
    def prepare(machine: Machine) -> None:
        log = machine.create()
        append(log, b"a", b"b")
        log.flush()
        append(log, b"c")

    assert outcomes(prepare) == {b"ab", b"abc"}


def test_H_27_a_flush_covers_the_name_of_a_new_segment() -> None:
    def prepare(machine: Machine) -> None:
        log = machine.create()
        append(log, b"a")
        log.flush()
        log.roll_if_due(NOW_MS + 10**10)
        append(log, b"b")
        log.flush()
        append(log, b"c")
        log.roll_if_due(NOW_MS + 10**10)
        append(log, b"d")
        log.flush_rolled()

    assert outcomes(prepare) == {b"abc", b"abcd"}


def test_what_a_truncation_cut_off_does_not_come_back_between_what_was_written_next() -> None:
    def prepare(machine: Machine) -> None:
        log = machine.create()
        append(log, b"a", *(size * b"x" + b"B" for size in (440, 440)), b"C")
        log.flush()
        log.truncate_to(1, NOW_MS)
        append(log, *(size * b"x" + b"b" for size in (440, 440)), b"c", epoch=1)

    assert outcomes(prepare) == {b"a", b"ab", b"abb", b"abbc"}


def test_segments_that_a_truncation_took_away_do_not_come_back() -> None:
    def prepare(machine: Machine) -> None:
        log = machine.create()
        append(log, b"a")
        for _ in range(3):
            log.roll_if_due(NOW_MS + 10**10)
            append(log, b"B")
        log.flush()
        log.truncate_to(1, NOW_MS)
        append(log, b"b", epoch=1)

    assert outcomes(prepare) == {b"a", b"ab"}


def test_a_log_that_began_again_elsewhere_stays_there() -> None:
    def prepare(machine: Machine) -> None:
        log = machine.create()
        append(log, b"A", b"B")
        log.flush()
        log.truncate_fully_and_start_at(100, NOW_MS)
        append(log, b"c", b"d", epoch=1)

    def look(machine: Machine) -> object:
        log = machine.log()
        assert log is not None
        return b"".join(values(log)), log.view.start_offset

    assert outcomes(prepare, look) == {(b"", 100), (b"c", 100), (b"cd", 100)}


def test_a_truncation_is_believed_before_the_recovery_point_that_it_undoes() -> None:
    """The checkpoint is lowered first: a kill in between must not leave one that is above what was synced."""
    machine = Machine(1)
    log = machine.create()
    append(log, b"a", b"b", b"c")
    log.flush()
    machine.manager.checkpoints.write_all({})
    told: list[str] = []

    def fault(operation: str, path: str) -> None:
        name = path.rpartition("/")[2]
        if operation == "truncate" and name.endswith(".log"):
            told.append("cut")
        if operation == "rename" and name == "recovery-point-offset-checkpoint.tmp":
            told.append("checkpoint")

    machine.disk.fault = fault
    log.truncate_to(1, NOW_MS)
    assert told == ["checkpoint", "cut"]


def test_H_01_epochs_are_those_of_the_batches() -> None:
    """Whatever is left of the checkpoint: an older one, an empty one, one of a branch that was cut off."""

    def prepare(machine: Machine) -> None:
        log = machine.create()
        append(log, b"a", epoch=1)
        append(log, b"b", epoch=3)
        log.flush()
        append(log, b"C", epoch=4)
        log.truncate_to(2, NOW_MS)
        append(log, b"c", epoch=5)
        append(log, b"d", epoch=7)

    def look(machine: Machine) -> object:
        log = machine.log()
        assert log is not None
        return log.view.end_offset, tuple(e for e in log.epochs.entries() if e[1] < log.view.end_offset)

    expected = ((1, 0), (3, 1), (5, 2), (7, 3))
    assert outcomes(prepare, look) == {(end, expected[:end]) for end in (2, 3, 4)}


def test_H_01_a_flush_brings_the_epochs_to_the_device_that_a_killed_process_wrote() -> None:
    def prepare(machine: Machine) -> None:
        log = machine.create()
        append(log, b"a", epoch=1)
        log.flush()
        append(log, b"b", epoch=2)
        machine.kill()
        log = machine.log()
        assert log is not None
        append(log, b"c", epoch=2)
        log.roll_if_due(NOW_MS + 10**10)
        append(log, b"d", epoch=2)
        log.flush()
        machine.manager.checkpoints.write_all({})

    def look(machine: Machine) -> object:
        log = machine.log()
        assert log is not None
        return tuple(log.epochs.entries())

    assert outcomes(prepare, look) == {((1, 0), (2, 1))}


def test_R_46_a_snapshot_in_the_middle_of_an_append_knows_the_producers_before_it() -> None:
    """A follower's append may begin several segments."""
    machine = Machine(1)
    log = machine.create()
    batches = [batch(b"x" * 400, producer=5, sequence=offset, offset=offset) for offset in range(4)]
    batches += [batch(b"x" * 400, offset=offset) for offset in (4, 5)]
    log.append_as_follower(b"".join(batches), NOW_MS)
    assert [s.base_offset for s in log.view.segments] == [0, 2, 4]
    machine.kill()
    again = machine.log()
    assert again is not None
    assert again.producers.entries[5].batches[-1].last_sequence == 3
    assert again.append_as_leader(batch(b"x" * 400, producer=5, sequence=3), 1, NOW_MS).duplicate


def test_R_46_producers_of_a_branch_that_was_cut_off_are_forgotten() -> None:
    def prepare(machine: Machine) -> None:
        log = machine.create()
        append(log, b"a", b"b")
        log.append_as_leader(batch(b"C", producer=5, sequence=0), 0, NOW_MS)
        log.roll_if_due(NOW_MS + 10**10)
        log.flush()
        log.truncate_to(2, NOW_MS)
        append(log, b"c", b"d", epoch=1)
        log.flush()

    def look(machine: Machine) -> object:
        log = machine.log()
        assert log is not None
        return b"".join(values(log)), tuple(log.producers.entries)

    assert outcomes(prepare, look) == {(b"abcd", ())}


def test_R_46_a_torn_snapshot_beside_a_useless_one_does_not_take_the_disk_offline() -> None:
    machine = Machine(1)
    log = machine.create()
    append(log, b"a", b"b", b"c")
    machine.disk.kill("broker")
    files = machine.disk.mount("hand")
    for offset in (1, 2):  # of clean stops; the newer one did not get to the device
        files.write_atomic(f"/data/logs/t-0/{offset:020d}.snapshot", b"")
    machine.start()
    assert machine.manager.dirs[0].is_online
    assert values(machine.log()) == [b"a", b"b", b"c"]


def test_a_torn_topic_id_is_no_reason_not_to_start_and_its_log_goes_to_no_other_topic() -> None:
    """Nothing of that log was ever flushed; its topic may be gone, and a new one of that name is another."""

    def prepare(machine: Machine) -> None:
        append(machine.create(), b"A", b"B")

    def look(machine: Machine) -> object:
        log = machine.log()
        topic_id = log.topic_id if log is not None else None
        created = machine.create(NEW) if log is None or topic_id is None else log
        assert created.topic_id in (OLD, NEW)
        found = b"".join(values(created))
        assert created.topic_id == OLD or not found, f"{found!r} was of another topic"
        return topic_id, any(name.endswith("-stray") for name in machine.names())

    found = outcomes(prepare, look)
    assert {(OLD, False), (None, False), (None, True)} <= found


@pytest.mark.parametrize("how", ["deleted", "lost"])
def test_H_13_a_new_log_does_not_start_from_the_checkpoints_of_one_that_is_gone(how: str) -> None:
    """Neither its recovery point, or torn batches would be believed, nor its high watermark."""

    def prepare(machine: Machine) -> None:
        log = machine.create()
        append(log, b"A", b"B", b"C", b"D")
        log.flush()
        machine.manager.checkpoints.write_all({TP: 4})
        machine.kill()
        if how == "deleted":
            machine.manager.delete(TP, now_ms=NOW_MS, done=lambda error: None)
        else:
            machine.disk.kill("broker")
            machine.disk.mount("hand").rmtree("/data/logs/t-0")
            machine.start()
        log = machine.create(NEW)
        assert machine.manager.held.mark_of(TP) is None
        append(log, b"a" * 300, b"b" * 300, b"c" * 300)

    def look(machine: Machine) -> object:
        assert machine.manager.held.mark_of(TP) is None
        log = machine.log()
        found = b"".join(values(log))
        if log is not None:
            data = b"".join(log.dir.files.read_bytes(s.path(".log")) for s in log.view.segments)
            assert sum(parse_header(data, at).size for at, _ in iter_headers(data)) == len(data)
            assert log.view.end_offset == len(found)
        return found

    assert outcomes(prepare, look) <= {b"", b"a", b"ab", b"abc"}


def test_a_recovery_cut_is_on_the_device_before_the_next_append() -> None:
    for seed in SEEDS:
        machine = Machine(seed)
        log = machine.create()
        append(log, b"a")
        log.flush()
        append(log, *(b"x" * 440 + b"B" for _ in range(2)))
        for _ in range(3):
            machine.lose_power()
            log = machine.log()
            assert log is not None
            kept = values(log)
            assert b"".join(kept) in (b"a", b"aB", b"aBB", b"ab", b"abb", b"aBb")
            append(log, *(b"x" * 440 + b"b" for _ in range(3 - len(kept))), epoch=log.view.end_offset + 1)
            assert b"".join(values(log))[: len(kept)] == b"".join(kept)


def test_H_27_a_directory_that_a_killed_process_made_is_brought_to_the_device_by_the_next() -> None:
    for seed in SEEDS:
        disk = SimDisk(random.Random(seed), now_ms=lambda: NOW_MS)
        disk.mount("first").makedirs("/data/of/holdfast/logs")
        disk.kill("first")
        make_durably(disk.mount("second"), "/data/of/holdfast/logs")
        disk.power_loss(random.Random(seed))
        assert disk.mount("third").is_dir("/data/of/holdfast/logs")


def test_indexes_of_a_flushed_segment_are_those_of_its_batches_when_the_next_one_has_begun() -> None:
    """The recovery point is where the next segment begins then, so recovery does not look at the older one."""

    def prepare(machine: Machine) -> None:
        log = machine.create()
        append(log, *(b"x" * 100 for _ in range(5)))
        log.write_indexes()
        log.dir.files.sync_all("/data")
        log.truncate_to(1, NOW_MS)
        append(log, *(b"y" * 50 for _ in range(4)), epoch=1)
        log.flush()
        machine.manager.checkpoints.write_all({})
        log.roll_if_due(NOW_MS + 10**10)
        append(log, b"z", epoch=1)

    def look(machine: Machine) -> object:
        log = machine.log()
        assert log is not None
        segment = log.view.segments[0]
        data = log.dir.files.read_bytes(segment.path(".log"))
        batches = {at: header.last_offset for at, header in iter_headers(data)}
        offsets, _ = segment.load_indexes()
        assert dict(zip(offsets.positions, offsets.offsets, strict=True)).items() <= batches.items()
        return len(offsets) > 0

    assert outcomes(prepare, look) == {True}


def test_a_truncation_into_what_is_deleted_leaves_no_hole() -> None:
    """In the middle of a batch that begins before the log's start. A hole would end the log at the next start."""
    machine = Machine(1)
    log = machine.create()
    append(log, b"a")
    log.append_as_leader(encode_batch([Record(i, NOW_MS, None, b"B") for i in range(4)]), 0, NOW_MS)
    append(log, b"C")
    log.delete_records_before(3)
    log.truncate_to(4, NOW_MS)
    assert (log.view.start_offset, log.view.end_offset) == (1, 1)
    append(log, b"b", epoch=1)
    log.roll_if_due(NOW_MS + 10**10)
    append(log, b"c", epoch=1)
    machine.kill()
    assert values(machine.log()) == [b"b", b"c"]
