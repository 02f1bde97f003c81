"""A cleaning that is cut short at any step: by kill -9, a loss of power, EIO or ENOSPC. No key that survives is lost,
and no key that was deleted is back."""

import errno
import logging
import random
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from holdfast.model.config import LogConfig
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition
from holdfast.records.record import Record, decode_batches, encode_batch
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.log_manager import LogManager
from tests.simulation.device import CrashNow
from tests.simulation.disk import SimDisk
from tests.unit.storage.cleaning import clean_log
from tests.unit.storage.conftest import contents

NOW_MS = 1_700_000_000_000
DAY = 86_400_000
CHANGES = {"create", "write", "truncate", "fsync", "rename", "unlink", "fsync_dir"}
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=400, retention_ms=None)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Machine:
    """A log of some segments on a disk that can stop at any operation."""

    def __init__(self, seed: int = 0) -> None:
        self.disk = SimDisk(random.Random(seed), now_ms=lambda: NOW_MS)
        self.disk.mount_point("/data")
        self.cleaned: int | None = None
        self.log = self.open()
        self.expected: dict[bytes, bytes] = {}
        for number in range(30):
            key, value = b"k%d" % (number % 7), None if number % 5 == 4 else b"%d" % number
            self.put(key, value)
        self.log.flush()
        clean_log(self.log, NOW_MS)  # tombstones have their horizons
        for number in range(30, 50):
            self.put(b"k%d" % (number % 3), b"%d" % number)
        self.log.flush()
        self.cleaned = self.log.cleaned_offset
        self.end = self.log.view.end_offset

    def put(self, key: bytes, value: bytes | None) -> None:
        self.log.append_as_leader(encode_batch([Record(0, NOW_MS, key, value)]), 0, NOW_MS)
        if value is None:
            self.expected.pop(key, None)
        else:
            self.expected[key] = value

    def open(self) -> Log:
        self.directory = LogDir("/data/logs", self.disk.mount("broker"), InlineQueue())
        self.directory.open(node_id=1, cluster_id="c", new_id=lambda: UUID(int=1), now_ms=NOW_MS)
        tp, topic_id = TopicPartition("t", 0), UUID(int=7)
        return Log.open(
            self.directory, tp, topic_id, CONFIG, clean_shutdown=False, now_ms=NOW_MS, cleaned_offset=self.cleaned
        )

    def clean(self) -> None:
        """Long enough after the first one that its tombstones go."""
        clean_log(self.log, NOW_MS + DAY)

    def stop_at(self, step: int, error: Callable[[str], BaseException]) -> Callable[[], bool]:
        """Whether it came to that."""
        count = 0

        def fault(operation: str, path: str) -> None:
            nonlocal count
            if operation in CHANGES and "t-0" in path:
                count += 1
                if count == step:
                    raise error(path)

        self.disk.fault = fault
        return lambda: count >= step

    def check(self) -> None:
        newest = {record.key: record.value for record in decode_batches(contents(self.log))}
        assert {key: value for key, value in newest.items() if value is not None} == self.expected
        assert self.log.view.end_offset == self.end
        names = self.directory.files.listdir(self.log.path)
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]


def steps(begin: Callable[[Machine], None], error: Callable[[str], BaseException], seed: int = 0) -> Iterator[Machine]:
    """A machine for each step at which it is stopped."""
    for step in range(1, 1000):
        machine = Machine(seed)
        machine.check()
        was_reached = machine.stop_at(step, error)
        begin(machine)
        machine.disk.fault = None
        if not was_reached():
            assert step > 20
            return
        yield machine
    raise AssertionError("it never ends")


def killed(machine: Machine) -> None:
    try:
        machine.clean()
    except CrashNow:
        return


def test_kill_9_at_every_step() -> None:
    for machine in steps(killed, lambda path: CrashNow()):
        machine.disk.kill("broker")
        machine.log = machine.open()
        machine.check()
        machine.clean()
        machine.check()


@pytest.mark.parametrize("seed", range(3))
def test_a_loss_of_power_at_every_step(seed: int) -> None:
    for machine in steps(killed, lambda path: CrashNow(), seed):
        machine.disk.power_loss(random.Random(seed))
        machine.log = machine.open()
        machine.check()
        machine.clean()
        machine.check()


@pytest.mark.parametrize("first", [12, pytest.param(13, marks=pytest.mark.long("the other half of the steps"))])
def test_a_crash_at_every_step_of_the_recovery_of_one(first: int) -> None:
    for stopped in range(first, 40, 2):
        for step in range(1, 30):
            machine = Machine()
            machine.stop_at(stopped, lambda path: CrashNow())
            killed(machine)
            machine.disk.fault = None
            machine.disk.kill("broker")
            was_reached = machine.stop_at(step, lambda path: CrashNow())
            try:
                machine.log = machine.open()
            except CrashNow:
                machine.disk.fault = None
                machine.disk.kill("broker")
                machine.log = machine.open()
            machine.disk.fault = None
            machine.check()
            if not was_reached():
                break


def failed(machine: Machine) -> None:
    try:
        machine.clean()
    except (OSError, HoldfastError):
        return


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_error_at_every_step(code: int) -> None:
    for machine in steps(failed, lambda path: OSError(code, "injected", path)):
        if machine.log.is_online and machine.log.failure is None:
            for left in [n for n in machine.directory.files.listdir(machine.log.path) if n.endswith(".cleaned")]:
                machine.directory.files.unlink(f"{machine.log.path}/{left}")
            machine.check()
            machine.clean()
            machine.check()
        machine.disk.kill("broker")
        machine.log = machine.open()
        machine.check()


@pytest.mark.parametrize("seed", range(30))
def test_what_a_cleaning_left_as_it_was_and_power_took_is_no_hole(seed: int) -> None:
    """Seed 1492334001: nothing of the log had been flushed, a cleaning found nothing to do in its first segment and was
    noted, and after the loss of power that segment, empty now, was taken for one that was cleaned."""
    disk = SimDisk(random.Random(seed), now_ms=lambda: NOW_MS)
    disk.mount_point("/data")
    tp = TopicPartition("t", 0)

    def broker() -> LogManager:
        directory = LogDir("/data/logs", disk.mount("broker"), InlineQueue())
        logs = LogManager([directory], node_id=1, cluster_id="c", config_of=lambda topic: CONFIG)
        errors: list[HoldfastError | None] = []
        logs.start(NOW_MS, errors.append)
        assert errors == [None]
        return logs

    logs = broker()
    logs.new.create(tp, UUID(int=7), CONFIG, is_new=True, now_ms=NOW_MS, done=lambda made, error: None)
    log = logs.get(tp)
    assert log is not None
    for number in range(20):
        log.append_as_leader(encode_batch([Record(0, NOW_MS, b"k%d" % number, b"v")]), 0, NOW_MS)
    clean_log(log, NOW_MS)
    assert log.cleaned_offset is not None and log.cleaned_offset > log.recovery_point
    logs.checkpoints.write_all({tp: 20})
    disk.power_loss(disk.rng)
    found = broker().get(tp)
    if found is not None:  # its directory's name may be lost
        offsets = [record.offset for record in decode_batches(contents(found))]
        assert offsets == list(range(found.view.end_offset))
