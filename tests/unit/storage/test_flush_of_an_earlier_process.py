"""A flush failed, and the process that met it is gone: the next one believes what is on the device (H-28).

The one that met it could not leave a word of it: nothing could be written there any more, and there is no other log
directory. Then the disk takes writes again, without having been unmounted.
"""

import errno
import random
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.model.config import LogConfig
from holdfast.model.errors import KafkaStorageError
from holdfast.model.fates import ReplicaFate
from holdfast.model.types import TopicPartition
from holdfast.records.batch import HEADER_SIZE
from holdfast.storage import incarnation
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.log_manager import LogManager
from tests.simulation.disk import SimDisk
from tests.simulation.trouble import CHANGES
from tests.unit.storage.conftest import NOW_MS, contents, make_batch

TP = TopicPartition("t", 0)
CONFIG = LogConfig()


def broker_on(disk: SimDisk, process: str) -> LogManager:
    """A process of the broker, always in the same boot of the machine."""
    directory = LogDir("/d", disk.mount(process), InlineQueue())
    logs = LogManager([directory], node_id=1, cluster_id="c", config_of=lambda topic: CONFIG, boot_id="boot")
    errors: list[object] = []
    logs.start(NOW_MS, errors.append)
    assert errors == [None]
    return logs


def append(log: Log, *values: bytes) -> None:
    for value in values:
        log.append_as_leader(make_batch(value * 200), 0, NOW_MS)


def after_a_failed_flush(disk: SimDisk) -> LogManager:
    """Ten batches flushed, ten more of which the flush failed, the process killed; then another one has started."""
    logs = broker_on(disk, "first")
    logs.past.note(10, lambda: None)
    logs.new.create(TP, UUID(int=7), CONFIG, is_new=True, now_ms=NOW_MS, done=lambda made, error: None)
    log = logs.get(TP)
    assert log is not None
    append(log, *(b"flushed" for _ in range(10)))
    log.flush()
    logs.checkpoints.write_all({TP: 10})
    append(log, *(b"not flushed" for _ in range(10)))

    def read_only(operation: str, path: str) -> None:
        if operation in CHANGES:
            raise OSError(errno.EROFS, "Read-only file system", path)

    disk.fault = read_only
    with pytest.raises(KafkaStorageError):
        log.flush()
    logs.past.failed(log.dir)
    disk.kill("first")
    disk.fault = None
    return broker_on(disk, "second")


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> SimDisk:
    disk = SimDisk(random.Random(request.param), now_ms=lambda: NOW_MS)
    disk.mount_point("/d")
    return disk


@pytest.mark.parametrize("disk", range(40), indirect=True)
def test_H_28_what_the_next_process_has_flushed_outlives_a_loss_of_power(disk: SimDisk) -> None:
    logs = after_a_failed_flush(disk)
    log = logs.get(TP)
    assert log is not None
    assert 10 <= log.view.end_offset <= 20
    append(log, b"after it")
    log.flush()
    logs.checkpoints.write_all({TP: log.view.end_offset})
    believed = contents(log)
    disk.power_loss(disk.rng)
    recovered = broker_on(disk, "third").get(TP)
    assert recovered is not None
    assert contents(recovered) == believed


def test_H_28_a_replica_whose_device_has_less_than_was_shown_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when its broker dies again before the controller has heard of it."""
    files = OsFiles()
    directory = LogDir(str(tmp_path), files, InlineQueue())
    logs = LogManager([directory], node_id=1, cluster_id="c", config_of=lambda topic: CONFIG, boot_id="boot")
    logs.start(NOW_MS, lambda error: None)
    logs.past.note(10, lambda: None)
    for tp in (TP, TopicPartition("t", 1)):
        logs.new.create(tp, UUID(int=7), CONFIG, is_new=True, now_ms=NOW_MS, done=lambda made, error: None)
        append(logs.get(tp), b"a", b"b")  # type: ignore[arg-type]
    path = Path(logs.get(TP).path) / f"{0:020d}.log"  # type: ignore[union-attr]
    for each in logs.logs():
        each.close(clean=False)
    directory.close()
    path.write_bytes(path.read_bytes()[:-100] + bytes(100))  # as a page reads that was never written
    for _ in range(2):
        logs = LogManager([directory], node_id=1, cluster_id="c", config_of=lambda topic: CONFIG, boot_id="boot")
        logs.start(NOW_MS, lambda error: None)
        assert logs.past.fates.of(TP) is ReplicaFate.DAMAGED
        for each in logs.logs():
            each.close(clean=False)
        directory.close()
    assert not (tmp_path / incarnation.FILE_NAME).exists()


def test_H_28_the_other_replicas_of_that_directory_have_kept_everything() -> None:
    other = TopicPartition("t", 1)
    directory_id = UUID(int=1)
    history = incarnation.DirHistory(
        directory_id=directory_id,
        incarnation=incarnation.Incarnation(broker_epoch=10, boot_id="b", directories={directory_id: 10}),
        replicas=frozenset({TP, other}),
        short=frozenset({TP}),
    )
    fates = incarnation.judge([history], "b")
    assert (fates.of(TP), fates.of(other)) == (ReplicaFate.DAMAGED, ReplicaFate.KEPT)


@pytest.mark.parametrize(
    ("left", "is_short"),
    [
        pytest.param(lambda data, end: data[:-1], False, id="a write in which the process was killed"),
        pytest.param(lambda data, end: data[: end + HEADER_SIZE - 1], False, id="not even a header of it"),
        pytest.param(lambda data, end: data, False, id="all of it"),
        pytest.param(lambda data, end: data[:-2] + b"\0\0", True, id="zeros at its end"),
        pytest.param(lambda data, end: data[:end] + bytes(len(data) - end), True, id="nothing but zeros"),
        pytest.param(lambda data, end: data[:end] + b"\xff" * (len(data) - end), True, id="something else"),
        pytest.param(lambda data, end: data[: end - 2] + b"\0\0" + data[end:], True, id="in the batch before it"),
    ],
)
def test_H_28_a_torn_write_is_told_from_what_a_device_has_lost(open_log, batch, left, is_short: bool) -> None:
    log = open_log()
    append(log, b"a")
    end = log.view.size
    append(log, b"b")
    path = Path(log.path) / f"{0:020d}.log"
    log.close(clean=False)
    path.write_bytes(left(path.read_bytes(), end))
    recovered = open_log()
    assert recovered.is_short is is_short
    recovered.close(clean=False)


def test_H_28_a_log_that_lacks_a_segment_is_short(open_log, batch) -> None:
    log = open_log(segment_bytes=300)
    append(log, b"a", b"b", b"c")
    assert len(log.view.segments) == 3
    log.close(clean=False)
    (Path(log.path) / f"{1:020d}.log").unlink()
    recovered = open_log(segment_bytes=300)
    assert (recovered.is_short, recovered.view.end_offset) == (True, 1)
    recovered.close(clean=False)
