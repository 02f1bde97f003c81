"""The embedded metadata store: a directory that the brokers of one machine share.

    DIR/cluster.id                 made once, by whoever comes first
    DIR/lock                       whoever holds its flock is the controller; kill -9 frees it at once
    DIR/controller.json            where the active controller listens; written after its claim is in the log
    DIR/__cluster_metadata-0/      the log (metadata_log.py)

No consensus: the operating system's lock elects, the local file system keeps. A claim is appended before anything
else of a reign, with an epoch above all before it. Locks of network file systems cannot be trusted, so such a
directory is refused.

Blocking: call from threads; ``active`` alone is for the loop. ``claim`` waits in the system call for as long as
another broker reigns, so it has a thread of its own, one that need not end for the process to end.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

from holdfast.coordination.metadata_log import MetadataLog
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import ControllerClaimRecord, MetadataRecord
from holdfast.metadata.store import Candidate, Claim, ControllerLocation, Loaded, claim_record
from holdfast.model.errors import ConfigError, FencedControllerError, KafkaStorageError
from holdfast.model.types import ControllerEpoch, Offset, TimestampMs
from holdfast.storage.files import FileLock, FileSystem, OsFiles, make_durably
from holdfast.storage.partition_metadata import decode_uuid, encode_uuid

LOG_DIRECTORY: Final = "__cluster_metadata-0"
SNAPSHOT_BYTES: Final = 8 << 20
"""Log after which a snapshot is wanted: about 150,000 changes, a few seconds of recovery."""
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "fuse.sshfs"}
)
_OS_FILES: Final = OsFiles()
_Seen = tuple[int, int, int]


def _wall_clock_ms() -> TimestampMs:
    return time.time_ns() // 1_000_000


class EmbeddedStore:
    """One broker's handle on the shared directory (MetadataStore)."""

    def __init__(
        self,
        directory: str,
        *,
        files: FileSystem = _OS_FILES,
        snapshot_bytes: int = SNAPSHOT_BYTES,
        clock: Callable[[], TimestampMs] = _wall_clock_ms,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        self._directory = directory
        self._files = files
        self._new_id = new_id
        make_durably(files, f"{self._directory}/{LOG_DIRECTORY}")
        refuse_network_file_system(self._directory, files)
        self._log = MetadataLog(f"{self._directory}/{LOG_DIRECTORY}", self._files, clock)
        self._snapshot_bytes = snapshot_bytes
        self._location_path = f"{self._directory}/controller.json"
        self._mutex = threading.Lock()
        self._lock: FileLock | None = None
        self._claim: Claim | None = None
        self._loaded: Loaded | None = None
        self._closed = False
        self._location: tuple[_Seen, ControllerLocation] | None = None

    def cluster_id(self) -> str:
        """The id of the cluster, 22 characters; the first caller of all brokers makes it."""
        path = f"{self._directory}/cluster.id"
        if not self._files.exists(path):
            mine = f"{path}.{self._new_id().hex}"
            self._files.write_atomic(mine, f"{encode_uuid(self._new_id())}\n".encode())
            try:
                with contextlib.suppress(FileExistsError):  # another broker was first: its id is the one
                    self._files.link(mine, path)
            finally:
                self._files.unlink(mine)
        # Also if another broker made it: what we write down elsewhere must not outlive it.
        self._files.fsync_dir(self._directory)
        text = self._files.read_bytes(path).decode(errors="replace").strip()
        try:
            decode_uuid(text)
        except ValueError as e:
            raise ConfigError(f"{path}: {e}") from None
        return text

    # -- the claim ---------------------------------------------------------------------------------------------

    def claim(self, candidate: Candidate) -> Claim:
        """Wait for the lock, recover the log, append the claim, say where the controller is."""
        try:
            lock = self._files.wait_for_lock(f"{self._directory}/lock")
            try:
                return self._claim_with(lock, candidate)
            except BaseException:
                lock.release()
                raise
        except OSError as e:
            raise KafkaStorageError(f"Metadata directory {self._directory}: {e}") from e

    def _claim_with(self, lock: FileLock, candidate: Candidate) -> Claim:
        with self._mutex:
            if self._closed:
                raise FencedControllerError("The metadata store is closed")
            if self._lock is not None:
                self._lock.release()  # of a reign that ended without ``resign``
                self._lock = None
            claim = self._begin_reign(candidate)
            self._lock = lock
            return claim

    def _begin_reign(self, candidate: Candidate) -> Claim:
        self._claim = None
        records = self._log.recover()
        epochs = (record.controller_epoch for record in records if isinstance(record, ControllerClaimRecord))
        claim = Claim(epoch=max(epochs, default=0) + 1, candidate=candidate)
        opening = claim_record(claim)
        self._log.append([opening], claim.epoch)
        self._loaded = Loaded(records=(*records, opening), end_offset=self._log.end_offset)
        self._write_location(claim)
        self._claim = claim
        return claim

    def resign(self) -> None:
        """Give the lock to whoever waits for it."""
        with self._mutex:
            self._claim = self._loaded = None
            self._log.close()
            lock, self._lock = self._lock, None
            if lock is not None:
                try:
                    self._files.unlink(self._location_path)
                finally:
                    lock.release()

    def close(self) -> None:
        """Resign; a claim that still waits fails when it would get the lock."""
        self._closed = True
        self.resign()

    def _check(self, fence: ControllerEpoch) -> None:
        if self._claim is None or self._claim.epoch != fence:
            held = "none" if self._claim is None else f"epoch {self._claim.epoch}"
            raise FencedControllerError(f"Controller epoch {fence} is over: the claim held here is {held}")

    # -- the log -----------------------------------------------------------------------------------------------

    def load(self, claim: Claim) -> Loaded:
        """What recovery found, and the claim. Once per claim: it is not kept."""
        with self._mutex:
            self._check(claim.epoch)
            loaded, self._loaded = self._loaded, None
            assert loaded is not None, "load once after a claim"
            return loaded

    def commit(self, records: Sequence[MetadataRecord], fence: ControllerEpoch) -> Offset:
        """Append one batch and sync it."""
        with self._mutex:
            self._check(fence)
            return self._log.append(records, fence)

    @property
    def wants_snapshot(self) -> bool:
        """Whether the log is so long that ``snapshot`` should be called."""
        return self._log.tail_bytes > self._snapshot_bytes

    def snapshot(self, image: ClusterImage, fence: ControllerEpoch) -> None:
        """Replace the log so far by ``image``, which must be the one after the last commit."""
        with self._mutex:
            self._check(fence)
            assert image.next_offset == self._log.end_offset, f"image {image.offset}, log {self._log.end_offset}"
            self._log.snapshot(image.to_records(), fence)

    # -- where the controller is -------------------------------------------------------------------------------

    def active(self) -> ControllerLocation | None:
        """From controller.json, read again only when it changed: one stat a call."""
        try:
            seen = self._files.identity(self._location_path)
            if seen is None:
                return None
            if self._location is None or seen != self._location[0]:
                found = json.loads(self._files.read_bytes(self._location_path))
                self._location = (seen, _location(found))
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return None  # not there, or torn by a crash of the machine: the next controller writes it anew
        return self._location[1]

    def _write_location(self, claim: Claim) -> None:
        where = claim.candidate
        text = json.dumps({"broker_id": where.broker_id, "host": where.host, "port": where.port, "epoch": claim.epoch})
        self._files.write_atomic(self._location_path, text.encode(), durable=False)


def _location(found: Any) -> ControllerLocation:
    """What controller.json says; TypeError for values that it never has."""
    broker_id, host, port, epoch = found["broker_id"], found["host"], found["port"], found["epoch"]
    if not (type(host) is str and all(type(number) is int for number in (broker_id, port, epoch))):
        raise TypeError(f"controller.json holds {found!r}")
    return ControllerLocation(broker_id=broker_id, host=host, port=port, epoch=epoch)


def refuse_network_file_system(path: str, files: FileSystem) -> None:
    """ConfigError if the directory is on a file system whose locks are another machine's word."""
    kind = files.kind(path)
    if kind in NETWORK_FILE_SYSTEMS:
        raise ConfigError(f"metadata.log.dir: {path} is on {kind}: expected a local disk, for the lock that elects")
