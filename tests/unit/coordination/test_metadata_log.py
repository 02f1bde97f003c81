"""A failed flush of the metadata log: what could not be written is dropped, and the next flush succeeds (H-28)."""

import errno
import random
from collections.abc import Callable

import pytest

from holdfast.coordination.metadata_log import LAST_EPOCH, MetadataLog, make_batch
from holdfast.metadata.records import FeatureLevelRecord, MetadataRecord
from holdfast.model.errors import KafkaStorageError
from tests.simulation.disk import SimDisk


def record(number: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=f"f{number}", level=number)


@pytest.fixture(params=range(40))
def disk(request: pytest.FixtureRequest) -> SimDisk:
    disk = SimDisk(random.Random(request.param), now_ms=lambda: 1000)
    disk.mount_point("/m")
    return disk


def recovered(disk: SimDisk, process: str) -> tuple[MetadataLog, list[MetadataRecord]]:
    log = MetadataLog("/m", disk.mount(process), lambda: 1000)
    return log, log.recover()


def fails_once(disk: SimDisk, operation: str) -> None:
    def fault(found: str, path: str) -> None:
        if found == operation:
            disk.fault = None
            raise OSError(errno.EIO, "Input/output error", path)

    disk.fault = fault


Change = Callable[[MetadataLog, list[MetadataRecord]], object]
CHANGES: dict[str, Change] = {
    "append": lambda log, _: log.append([record(9)], 1),
    "snapshot": lambda log, records: log.snapshot(records, 1),
}


def cases() -> list[tuple[str, str]]:
    snapshot = ("create", "write", "fsync", "rename", "fsync_dir", "listdir")
    return [("append", "write"), ("append", "fsync"), *(("snapshot", operation) for operation in snapshot)]


@pytest.mark.parametrize(("change", "operation"), cases())
def test_H_28_after_an_error_the_metadata_log_takes_nothing_before_it_is_recovered(change: str, operation: str) -> None:
    disk = SimDisk(random.Random(1), now_ms=lambda: 1000)
    disk.mount_point("/m")
    log, _ = recovered(disk, "a")
    log.append([record(1)], 1)
    fails_once(disk, operation)
    with pytest.raises(KafkaStorageError):
        CHANGES[change](log, [record(1)])
    assert disk.fault is None
    done = disk.operations
    for again in CHANGES.values():  # the disk would take it now
        with pytest.raises(KafkaStorageError, match="recovered"):
            again(log, [record(1)])
    assert disk.operations == done
    records = log.recover()
    assert records[:1] == [record(1)]
    log.append([record(2)], 2)
    assert recovered(disk, "b")[1] == [*records, record(2)]


def test_H_28_what_was_believed_after_a_failed_flush_is_there_after_a_loss_of_power(disk: SimDisk) -> None:
    log, _ = recovered(disk, "a")
    log.append([record(1)], 1)
    fails_once(disk, "fsync")
    with pytest.raises(KafkaStorageError):
        log.append([record(2)], 1)
    disk.kill("a")
    next_one, believed = recovered(disk, "b")
    assert believed[:1] == [record(1)]
    next_one.append([record(3)], 2)
    disk.power_loss(random.Random(disk.rng.getrandbits(32)))
    assert recovered(disk, "c")[1] == [*believed, record(3)]


@pytest.mark.parametrize(("epoch", "is_whole"), [(LAST_EPOCH, True), (LAST_EPOCH + 1, False)])
def test_an_epoch_that_no_claim_can_follow_is_damage(epoch: int, is_whole: bool) -> None:
    """The CRC does not cover it: in a segment whose name tells no claim the epoch of a damaged batch was believed, and
    that of the next claim fitted into no batch."""
    disk = SimDisk(random.Random(1), now_ms=lambda: 1000)
    disk.mount_point("/m")
    files = disk.mount("a")
    files.write_atomic(f"/m/{0:020d}.log", make_batch([record(1)], 0, epoch, 1000).data)
    log, records = recovered(disk, "a")
    assert records == ([record(1)] if is_whole else [])
    log.append([record(2)], epoch if is_whole else 1)
    assert recovered(disk, "b")[1] == [*records, record(2)]
