"""The embedded metadata store: a directory that the brokers of one machine share.

    DIR/cluster.id                 made once, by whoever comes first
    DIR/lock                       whoever holds its flock is the controller; kill -9 frees it at once
    DIR/controller.json            where the active controller listens; written after its claim is in the log
    DIR/__cluster_metadata-0/*.log the records, in Kafka's batch format, one batch a commit, synced

No consensus: the operating system's lock elects, the local file system keeps. A claim is appended before anything
else of a reign, with an epoch above all before it. Recovery cuts the log at the first batch that is not whole; a
commit that returned is never behind that, for it was synced. Locks of network file systems cannot be trusted, so
such a directory is refused. Blocking: call from a thread; ``active`` alone is for the loop.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from collections.abc import Sequence
from uuid import uuid4

from holdfast.metadata.codec import decode_record, encode_record
from holdfast.metadata.records import ControllerClaimRecord, MetadataRecord
from holdfast.metadata.store import Candidate, Claim, ControllerLocation, Loaded, claim_record
from holdfast.model.errors import ConfigError, FencedControllerError, KafkaStorageError
from holdfast.model.types import ControllerEpoch, Offset
from holdfast.records.batch import crc_ok, iter_headers
from holdfast.records.record import BatchBuilder, decode_batch
from holdfast.storage.files import OsFiles
from holdfast.storage.partition_metadata import encode_uuid

log = logging.getLogger(__name__)

LOG_DIRECTORY = "__cluster_metadata-0"
LOG_FILE = "00000000000000000000.log"
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "fuse.sshfs"}
)


class EmbeddedStore:
    """One broker's handle on the shared directory (MetadataStore)."""

    def __init__(self, directory: str) -> None:
        self._directory = os.path.abspath(directory)
        self._files = OsFiles()
        self._files.makedirs(f"{self._directory}/{LOG_DIRECTORY}")
        refuse_network_file_system(self._directory)
        self._log_path = f"{self._directory}/{LOG_DIRECTORY}/{LOG_FILE}"
        self._mutex = threading.Lock()
        self._lock_fd: int | None = None
        self._claim: Claim | None = None
        self._loaded: Loaded | None = None
        self._end_offset: Offset = 0
        self._end_position = 0
        self._closed = False
        self._location: tuple[tuple[int, int], ControllerLocation | None] = ((0, 0), None)

    def cluster_id(self) -> str:
        """The id of the cluster, 22 characters; the first caller of all brokers makes it."""
        path = f"{self._directory}/cluster.id"
        if not self._files.exists(path):
            mine = f"{path}.{os.getpid()}.{uuid4().hex}"
            self._files.write_atomic(mine, f"{encode_uuid(uuid4())}\n".encode())
            try:
                os.link(mine, path)  # fails if another broker was first; its id is the one
            except FileExistsError:
                pass
            finally:
                self._files.unlink(mine)
        return self._files.read_bytes(path).decode().strip()

    def claim(self, candidate: Candidate) -> Claim:
        """Wait for the lock, recover the log, append the claim."""
        fd = os.open(f"{self._directory}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            with self._mutex:
                if self._closed:
                    raise FencedControllerError("the metadata store is closed")
                self._lock_fd = fd
                return self._begin_reign(candidate)
        except BaseException:
            self._lock_fd = None
            os.close(fd)
            raise

    def _begin_reign(self, candidate: Candidate) -> Claim:
        records = self._recover()
        epoch = max((r.controller_epoch for r in records if isinstance(r, ControllerClaimRecord)), default=0) + 1
        claim = Claim(epoch=epoch, candidate=candidate)
        self._claim = claim
        opening = claim_record(claim)
        self._append([opening], epoch)
        self._loaded = Loaded(records=(*records, opening), end_offset=self._end_offset)
        self._write_location(claim)
        return claim

    def _recover(self) -> list[MetadataRecord]:
        """All whole batches; what follows them is cut off."""
        try:
            data = self._files.read_bytes(self._log_path)
        except FileNotFoundError:
            data = b""
        records: list[MetadataRecord] = []
        end = offset = 0
        for position, header in iter_headers(data):
            if header.base_offset != offset or not crc_ok(data, position, header):
                break
            batch = decode_batch(memoryview(data)[position : position + header.size])
            records.extend(decode_record(r.value or b"") for r in batch)
            offset, end = header.next_offset, position + header.size
        if end < len(data):
            log.warning("%s: %d bytes after offset %d are not whole: cut off", self._log_path, len(data) - end, offset)
            handle = self._files.open(self._log_path)
            handle.truncate(end)
            handle.fsync()
            handle.close()
        self._end_offset, self._end_position = offset, end
        return records

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
            return self._append(records, fence)

    def _append(self, records: Sequence[MetadataRecord], epoch: ControllerEpoch) -> Offset:
        builder = BatchBuilder(base_offset=self._end_offset, leader_epoch=epoch)
        for record in records:
            builder.append(None, encode_record(record))
        batch = builder.build()
        base_offset = self._end_offset
        try:
            is_new = not self._files.exists(self._log_path)
            handle = self._files.open(self._log_path, create=True)
            try:
                handle.pwritev((batch,), self._end_position)
                handle.fsync()
            finally:
                handle.close()
            if is_new:
                self._files.fsync_dir(os.path.dirname(self._log_path))
        except OSError as e:
            raise KafkaStorageError(f"metadata log {self._log_path}: {e}") from e
        self._end_offset += len(records)
        self._end_position += len(batch)
        return base_offset

    def active(self) -> ControllerLocation | None:
        """From controller.json, read again only when it changed."""
        path = f"{self._directory}/controller.json"
        try:
            stat = os.stat(path)
        except FileNotFoundError:
            return None
        seen = (stat.st_ino, stat.st_mtime_ns)
        if seen != self._location[0]:
            found = json.loads(self._files.read_bytes(path))
            location = ControllerLocation(
                broker_id=found["broker_id"], host=found["host"], port=found["port"], epoch=found["epoch"]
            )
            self._location = (seen, location)
        return self._location[1]

    def _write_location(self, claim: Claim) -> None:
        c = claim.candidate
        text = json.dumps({"broker_id": c.broker_id, "host": c.host, "port": c.port, "epoch": claim.epoch})
        self._files.write_atomic(f"{self._directory}/controller.json", text.encode(), durable=False)

    def resign(self) -> None:
        """Give the lock to whoever waits for it."""
        with self._mutex:
            self._claim = None
            if self._lock_fd is not None:
                os.close(self._lock_fd)
                self._lock_fd = None

    def close(self) -> None:
        """Resign; a claim that still waits fails when it would get the lock."""
        self._closed = True
        self.resign()

    def _check(self, fence: ControllerEpoch) -> None:
        if self._claim is None or self._claim.epoch != fence:
            held = "none" if self._claim is None else f"epoch {self._claim.epoch}"
            raise FencedControllerError(f"controller epoch {fence} is over: the claim held here is {held}")


def refuse_network_file_system(path: str) -> None:
    """ConfigError if the directory is on a file system whose locks are another machine's word."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return  # not Linux: nothing to ask
    best, kind = "", ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        mount = fields.split()[4].encode().decode("unicode_escape")
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, rest.split()[0]
    if kind in NETWORK_FILE_SYSTEMS:
        raise ConfigError(f"metadata.log.dir: {path} is on {kind}: expected a local disk, for the lock that elects")
