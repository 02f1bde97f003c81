"""The embedded store alone: processes that are killed, torn files, snapshots that do not get whole."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.coordination.embedded import EmbeddedStore
from holdfast.coordination.lanes import InlineLanes
from holdfast.coordination.metadata_copy import refuse_network_file_system
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import FeatureLevelRecord, MetadataRecord, NoOpRecord, TopicRecord
from holdfast.metadata.store import Candidate
from holdfast.model.errors import (
    ConfigError,
    CorruptRecordError,
    FencedControllerError,
    KafkaStorageError,
)
from holdfast.model.listeners import Endpoint, SecurityProtocol
from holdfast.records.record import Record, encode_batch
from holdfast.storage.files import OsFiles, file_system_of
from tests.simulation.disk import CrashNow, SimDisk

ONE = Candidate(broker_id=1, host="one", port=9001)
CHILD = """
import sys
from holdfast.coordination.embedded import EmbeddedStore
from holdfast.metadata.records import FeatureLevelRecord
from holdfast.metadata.store import Candidate
store = EmbeddedStore(sys.argv[1])
claim = store.claim(Candidate(broker_id=int(sys.argv[2]), host="h", port=1))
offset = store.commit([FeatureLevelRecord(name="by-" + sys.argv[2], level=1)], claim.epoch)
print(claim.epoch, offset, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "meta")


@pytest.fixture
def store(directory: str) -> Iterator[EmbeddedStore]:
    made = EmbeddedStore(directory, clock=lambda: 1000)
    yield made
    made.close()


def log_file(directory: str, base: int = 0, epoch: int = 1) -> Path:
    return Path(directory) / "__cluster_metadata-0" / f"{base:020d}-{epoch:010d}.log"


def start(directory: str, broker: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, directory, str(broker)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_kill_9_of_the_controller_frees_the_lock_at_once(directory: str) -> None:
    first = start(directory, 1)
    second = None
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "1 1\n"
        second = start(directory, 2)
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=20)
        assert second.stdout is not None
        assert second.stdout.readline() == "2 3\n"
        location = EmbeddedStore(directory).active()
        assert location is not None
        assert (location.broker_id, location.epoch) == (2, 2)
    finally:
        for child in (first, second):
            if child is not None:
                child.kill()
                child.communicate()


def test_a_waiting_claim_fails_when_the_store_is_closed(directory: str, store: EmbeddedStore) -> None:
    store.claim(ONE)
    waiting = EmbeddedStore(directory)
    errors: list[Exception] = []

    def claim() -> None:
        try:
            waiting.claim(ONE)
        except FencedControllerError as e:
            errors.append(e)

    thread = threading.Thread(target=claim)
    thread.start()
    waiting.close()
    store.resign()
    thread.join(timeout=20)
    assert len(errors) == 1
    # The lock is free again: nobody is left holding it.
    assert store.claim(ONE).epoch == 2


@pytest.mark.parametrize("damage", ["torn", "garbage", "bit"])
def test_H_27_recovery_cuts_at_the_first_batch_that_is_not_whole(
    directory: str, store: EmbeddedStore, damage: str
) -> None:
    claim = store.claim(ONE)
    store.commit([FeatureLevelRecord(name="kept", level=1)], claim.epoch)
    whole = log_file(directory).read_bytes()
    store.commit([FeatureLevelRecord(name="lost", level=1)], claim.epoch)
    store.resign()
    data = log_file(directory).read_bytes()
    if damage == "torn":
        data = data[:-3]
    elif damage == "garbage":
        data = whole + b"\xff" * 80
    else:
        data = data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
    log_file(directory).write_bytes(data)
    again = store.claim(ONE)
    loaded = store.load(again)
    assert [getattr(r, "name", None) for r in loaded.records] == [None, "kept", None]
    assert loaded.end_offset == 3
    assert log_file(directory).read_bytes().startswith(whole)


def test_a_whole_batch_that_is_not_understood_is_never_cut_off(directory: str, store: EmbeddedStore) -> None:
    log_file(directory).parent.mkdir(parents=True)
    log_file(directory).write_bytes(encode_batch([Record(0, 0, None, b"\x01\x63\x00")]))
    with pytest.raises(CorruptRecordError, match="key 99 version 0"):
        store.claim(ONE)
    assert log_file(directory).stat().st_size > 0


def test_a_snapshot_replaces_the_log(directory: str) -> None:
    store = EmbeddedStore(directory, snapshot_bytes=200)
    claim = store.claim(ONE)
    image, _ = ClusterImage.empty("c").apply(store.load(claim).records, 0)
    while not store.wants_snapshot:
        records = [FeatureLevelRecord(name="f", level=image.next_offset), NoOpRecord()]
        image, _ = image.apply(records, store.commit(records, claim.epoch))
    store.snapshot(image, claim.epoch)
    names = sorted(os.listdir(f"{directory}/__cluster_metadata-0"))
    base = image.next_offset
    assert names == [f"{base:020d}-0000000001.checkpoint", f"{base:020d}-0000000001.log"]
    assert not store.wants_snapshot
    store.resign()
    loaded = store.load(store.claim(ONE))
    rebuilt, _ = ClusterImage.empty("c").apply(loaded.records, loaded.base_offset)
    assert rebuilt.features == image.features
    assert rebuilt.controller_epoch == 2
    store.close()


def test_a_log_is_replaced_before_it_is_much_longer_than_what_it_says(directory: str, store: EmbeddedStore) -> None:
    """Whoever reigns next reads it: seconds of it would be seconds without a controller. After a large snapshot it may
    be as long as that one, or snapshots would cost more than commits."""
    claim = store.claim(ONE)
    image, _ = ClusterImage.empty("c").apply(store.load(claim).records, 0)
    topics = [TopicRecord(name=f"{n:0200d}", topic_id=UUID(int=n + 1)) for n in range(1_000)]

    def commit(records: list[MetadataRecord]) -> None:
        nonlocal image
        image, _ = image.apply(records, store.commit(records, claim.epoch))

    written = 0
    while not store.wants_snapshot:
        commit([NoOpRecord()] * 50)
        written += 50
    assert 1_000 < written < 20_000, "some thousands of small records"
    commit([*topics])
    store.snapshot(image, claim.epoch)
    (snapshot,) = log_file(directory).parent.glob("*.checkpoint")
    again = 0
    while not store.wants_snapshot:
        commit([NoOpRecord()] * 50)
        again += 50
    assert snapshot.stat().st_size > 200_000 and again > written
    store.resign()
    store.load(store.claim(ONE))
    assert store.wants_snapshot, "the next reign knows how long both are"


def test_a_snapshot_that_did_not_get_whole_is_not_used(directory: str, store: EmbeddedStore) -> None:
    claim = store.claim(ONE)
    store.commit([FeatureLevelRecord(name="f", level=1)], claim.epoch)
    store.resign()
    folder = log_file(directory).parent
    # As a crash leaves it: the next segment is there, the snapshot is not.
    (folder / "00000000000000000002-0000000001.log").write_bytes(b"")
    loaded = store.load(store.claim(ONE))
    assert loaded.end_offset == 3
    # A segment for each claim, which begins with the batch before it; of the second there is none.
    assert sorted(os.listdir(folder)) == [log_file(directory).name, log_file(directory, 1, 2).name]


def test_snapshots_that_cannot_be_read_are_not_an_empty_cluster(directory: str, store: EmbeddedStore) -> None:
    folder = log_file(directory).parent
    folder.mkdir(parents=True)
    (folder / "00000000000000000009-0000000001.checkpoint").write_bytes(b"torn")
    with pytest.raises(KafkaStorageError, match="no snapshot can be read"):
        store.claim(ONE)


def test_where_the_controller_is_says_what_is_spoken_there(directory: str, store: EmbeddedStore) -> None:
    where = Endpoint(name="WITHIN", host="h", port=9094, security_protocol=SecurityProtocol.SASL_SSL)
    store.claim(Candidate.at(1, where))
    found = EmbeddedStore(directory).active()
    assert found is not None and found.endpoint == where
    path = Path(directory) / "controller.json"
    path.write_text(path.read_text().replace("SASL_SSL", "SMOKE"))
    assert EmbeddedStore(directory).active() is None


def modes(directory: Path) -> dict[str, str]:
    return {each.name: f"{each.stat().st_mode & 0o7777:o}" for each in (directory, *directory.iterdir())}


@pytest.mark.parametrize("is_apart", [True, False])
def test_nobody_else_reads_the_metadata_also_where_it_was_there_before(tmp_path: Path, is_apart: bool) -> None:
    directory = tmp_path / "meta"
    log = directory / "__cluster_metadata-0"
    log.mkdir(parents=True)
    for each in (directory, log):
        each.chmod(0o755)
    left = log / "00000000000000000000.log.deleted"
    left.write_bytes(b"")
    left.chmod(0o644)
    store = EmbeddedStore(str(directory), apart=(str(directory),) if is_apart else ())
    claim = store.claim(ONE)
    store.commit([NoOpRecord()], claim.epoch)
    assert modes(log) == {each.name: "600" for each in log.iterdir()} | {log.name: "700"}
    found = modes(directory)
    assert found["meta"] == ("700" if is_apart else "755")
    assert found["controller.json"] == found["cluster.id"] == ("600" if is_apart else "644")


def test_a_torn_location_is_no_controller(directory: str, store: EmbeddedStore) -> None:
    store.claim(ONE)
    (Path(directory) / "controller.json").write_text('{"broker_id": 1')
    assert EmbeddedStore(directory).active() is None


def sim_store(disk: SimDisk, process: str, ids: Iterator[int]) -> EmbeddedStore:
    return EmbeddedStore(
        "/m/store",
        files=disk.mount(process),
        clock=lambda: 1000,
        new_id=lambda: UUID(int=next(ids)),
        lanes=InlineLanes(),
    )


def test_H_27_what_the_store_says_outlives_a_loss_of_power() -> None:
    """Its directories, the cluster's id, the claim: brokers write them down elsewhere."""
    for seed in range(60):
        disk, ids = SimDisk(random.Random(seed), now_ms=lambda: 1000), count()
        disk.mount_point("/m")
        store = sim_store(disk, "before", ids)
        cluster_id, claim = store.cluster_id(), store.claim(ONE)
        disk.power_loss(random.Random(seed))
        again = sim_store(disk, "after", ids)
        assert again.cluster_id() == cluster_id
        assert again.claim(ONE).epoch == claim.epoch + 1


def test_H_27_a_cluster_id_that_another_broker_made_is_on_the_device_when_it_is_told() -> None:
    for seed in range(60):
        disk, ids = SimDisk(random.Random(seed), now_ms=lambda: 1000), count()
        disk.mount_point("/m")

        def crash(operation: str, path: str) -> None:
            if operation == "unlink":  # the id has its name, nothing is synced
                raise CrashNow

        first, second = sim_store(disk, "first", ids), sim_store(disk, "second", ids)
        disk.fault = crash
        with pytest.raises(CrashNow):
            first.cluster_id()
        disk.fault = None
        disk.kill("first")
        told = second.cluster_id()
        disk.power_loss(random.Random(seed))
        assert sim_store(disk, "after", ids).cluster_id() == told


def test_resigning_frees_the_lock_also_on_a_disk_that_fails() -> None:
    disk, ids = SimDisk(random.Random(1), now_ms=lambda: 1000), count()
    first, second = sim_store(disk, "first", ids), sim_store(disk, "second", ids)
    first.claim(ONE)

    def fail(operation: str, path: str) -> None:
        if operation == "unlink":
            raise OSError(errno.EIO, "injected", path)

    disk.fault = fail
    first.resign()
    disk.fault = None
    assert second.claim(ONE).epoch == 2


MOUNTS = """21 1 8:1 / / rw - ext4 /dev/sda1 rw
30 21 0:40 / /mnt/nfs rw shared:1 - nfs4 server:/x rw
31 21 0:41 / /mnt/nfs2 rw - tmpfs none rw
32 21 0:42 / /with\\040space rw - cifs //x rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data", "ext4"),
        ("/mnt/nfs", "nfs4"),
        ("/mnt/nfs/deep", "nfs4"),
        ("/mnt/nfs2/x", "tmpfs"),
        ("/mnt/nfsx", "ext4"),
        ("/with space/y", "cifs"),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str) -> None:
    assert file_system_of(path, MOUNTS) == kind


class OnNfs(OsFiles):
    """A file system that says what it is."""

    def kind(self, path: str) -> str:
        return "nfs4"


def test_locks_of_a_network_file_system_are_not_trusted(directory: str) -> None:
    refuse_network_file_system(directory, OsFiles())
    with pytest.raises(ConfigError, match="is on nfs4"):
        EmbeddedStore(directory, files=OnNfs()).cluster_id()
