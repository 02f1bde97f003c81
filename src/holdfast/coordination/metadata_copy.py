"""One copy of the metadata: a directory with its log, its id, and what every broker may need of it.

    COPY/cluster.id                the cluster's id, the same in all copies
    COPY/copy.id                   this copy's, new with every filling; written when it is whole
    COPY/lock                      election.py
    COPY/controller.json           where the active controller listens; of several copies the highest epoch counts
    COPY/metadata-reigns/          notes.py
    COPY/metadata-witnesses/       broker-N.json: the log directories of each broker, which keep notes too;
                                   and where this copy was then: one that was copied or moved follows none of them
    COPY/__cluster_metadata-0/     metadata_log.py

Owns these names but the election's. Everything blocks, and raises OSError, KafkaStorageError or FencedControllerError;
which copies are good is copies.py's business.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from holdfast.coordination import notes
from holdfast.coordination.metadata_log import Contents, LoggedBatch, MetadataLog
from holdfast.coordination.notes import Seen
from holdfast.metadata.records import MetadataRecord
from holdfast.metadata.store import ControllerLocation
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import SecurityProtocol
from holdfast.model.types import BrokerId, ControllerEpoch, TimestampMs
from holdfast.storage.files import FileSystem, make_durably
from holdfast.storage.partition_metadata import decode_uuid, encode_uuid

LOG_DIRECTORY: Final = "__cluster_metadata-0"
WITNESSES: Final = "metadata-witnesses"
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "fuse.sshfs"}
)
_PROBE: Final = bytes(range(256)) * 16
"""4096 bytes: one block, so that a full disk refuses it."""
_BROKER = re.compile(r"broker-(\d+)\.json")


class MetadataCopy:
    """See the module's docstring. One caller at a time."""

    def __init__(
        self,
        path: str,
        files: FileSystem,
        clock: Callable[[], TimestampMs],
        new_id: Callable[[], UUID],
        *,
        is_apart: bool = False,
    ) -> None:
        """``is_apart``: the directory is for the metadata alone, no logs are in it."""
        self.path = path
        self._is_apart = is_apart
        self.copy_id: str | None = None
        self.log = MetadataLog(f"{path}/{LOG_DIRECTORY}", files, clock)
        self._files = files
        self._new_id = new_id

    # -- looking -----------------------------------------------------------------------------------------------

    def look(self) -> Seen:
        """What is here. OSError when it cannot be read."""
        files, path = self._files, self.path
        log_dir = f"{path}/{LOG_DIRECTORY}"
        names = files.listdir(log_dir) if files.exists(log_dir) else []
        return Seen(
            note=notes.newest(files, path),
            copy_id=_small(files, f"{path}/copy.id"),
            has_log=any(files.file_size(f"{log_dir}/{name}") > 0 for name in names),
            cluster_id=self.cluster_id(),
        )

    def cluster_id(self) -> str | None:
        """The cluster's id as this copy has it. ConfigError if it is none."""
        text = _small(self._files, f"{self.path}/cluster.id")
        if text is None:
            return None
        try:
            decode_uuid(text)
        except ValueError as e:
            raise ConfigError(f"{self.path}/cluster.id: {e}") from None
        return text

    def probe(self, epoch: ControllerEpoch | None) -> None:
        """Whether it can be written, synced and read; with an epoch, whether it is the directory that the reign of that
        epoch writes to. OSError or FencedControllerError if not."""
        files, path = self._files, f"{self.path}/.probe"
        if epoch is not None:
            notes.confirm(files, self.path, epoch)
            if _small(files, f"{self.path}/copy.id") != self.copy_id:
                raise FileNotFoundError(f"{self.path} was emptied or replaced: it is not copy {self.copy_id}")
            self.log.confirm()
        files.unlink(path)
        handle = files.open(path, create=True)
        try:
            handle.pwritev((_PROBE,), 0)
            handle.fsync()
            if handle.pread(len(_PROBE), 0) != _PROBE:
                raise OSError(f"{path} reads back other than it was written")
        finally:
            handle.close()

    def try_again(self) -> None:
        """Whether a copy that is left out could be used."""
        self.prepare()
        self.probe(None)

    # -- making ------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """The directory is there, on a file system whose locks can be trusted, and nobody else reads what is secret:
        keys of users are in the log."""
        if self._is_apart:
            self._files.keep_private(self.path)
        self._files.keep_private(f"{self.path}/{LOG_DIRECTORY}")
        make_durably(self._files, f"{self.path}/{LOG_DIRECTORY}")
        refuse_network_file_system(self.path, self._files)

    def adopt_cluster_id(self, cluster_id: str) -> str:
        """Keep the id; the first of several that try wins. The one that is kept, on the device."""
        path = f"{self.path}/cluster.id"
        if not self._files.exists(path):
            mine = f"{path}.{self._new_id().hex}"
            self._files.write_atomic(mine, f"{cluster_id}\n".encode())
            try:
                self._files.link(mine, path)
            except FileExistsError:  # another broker was first: its id is the one
                pass
            finally:
                self._files.unlink(mine)
        # Also if another broker made it: what we write down elsewhere must not outlive it.
        self._files.fsync_dir(self.path)
        kept = self.cluster_id()
        assert kept is not None
        return kept

    def name(self) -> str:
        """A new id: from now on this is another copy than before."""
        copy_id = encode_uuid(self._new_id())
        self._files.write_atomic(f"{self.path}/copy.id", f"{copy_id}\n".encode())
        self.copy_id = copy_id
        return copy_id

    def fill(
        self,
        contents: Contents,
        cluster_id: str,
        witnesses: Mapping[BrokerId, Sequence[str]],
        epoch: ControllerEpoch,
    ) -> str:
        """Hold ``contents`` and nothing of before, in new files of the reign of ``epoch``; the new id, written last."""
        files = self._files
        self.copy_id = None
        make_durably(files, self.path)
        files.unlink(f"{self.path}/copy.id")
        files.fsync_dir(self.path)
        files.write_atomic(f"{self.path}/cluster.id", f"{cluster_id}\n".encode())
        self.log.replace(contents, epoch)
        self.forget_unplaced()
        for broker_id, directories in witnesses.items():
            self.register(broker_id, directories)
        return self.name()

    # -- the log -----------------------------------------------------------------------------------------------

    def begin(self, contents: Contents, epoch: ControllerEpoch) -> None:
        """As MetadataLog.begin, while this is the copy of that reign."""
        self.log.begin(contents, epoch, lambda: notes.confirm(self._files, self.path, epoch))

    def append(self, batches: Sequence[LoggedBatch], epoch: ControllerEpoch) -> None:
        """Write and sync; then look whether this is still the copy of that reign: if another broker has claimed since,
        what was written counts only if it found it."""
        for batch in batches:
            self.log.append_batch(batch)
        notes.confirm(self._files, self.path, epoch)
        self.log.confirm()

    def snapshot(self, records: Sequence[MetadataRecord], epoch: ControllerEpoch) -> None:
        """As MetadataLog.snapshot, while this is the copy of that reign."""
        notes.confirm(self._files, self.path, epoch)
        self.log.snapshot(records, epoch, lambda: notes.confirm(self._files, self.path, epoch))

    # -- the controller, the witnesses ---------------------------------------------------------------------------------

    def write_location(self, where: ControllerLocation) -> None:
        said: dict[str, Any] = {
            "broker_id": where.broker_id,
            "host": where.host,
            "port": where.port,
            "epoch": where.epoch,
        }
        if where.security_protocol is not SecurityProtocol.PLAINTEXT:
            said |= {"listener": where.listener, "security_protocol": where.security_protocol.name}
        self._files.write_atomic(f"{self.path}/controller.json", json.dumps(said).encode(), durable=False)

    def remove_location(self) -> None:
        self._files.unlink(f"{self.path}/controller.json")

    def location(self) -> ControllerLocation | None:
        """None: not there, or torn by a crash of the machine (the next controller writes it anew)."""
        try:
            return _location(json.loads(self._files.read_bytes(f"{self.path}/controller.json")))
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def register(self, broker_id: BrokerId, directories: Sequence[str]) -> None:
        """Where a broker has directories that keep notes. Counts only where this copy is now (``registered``)."""
        folder, text = f"{self.path}/{WITNESSES}", json.dumps({"at": self.path, "dirs": list(directories)}).encode()
        path = f"{folder}/broker-{broker_id}.json"
        if not (self._files.exists(path) and self._files.read_bytes(path) == text):
            make_durably(self._files, folder)
            self._files.write_atomic(path, text)

    def registered(self, *, unplaced: bool = False) -> dict[BrokerId, tuple[str, ...]]:
        """What brokers have registered in this directory at this place: in one that was copied or moved stand the
        directories of the original. ``unplaced``: also where no place stands, as versions before 0.2 wrote it."""
        return {
            broker_id: dirs
            for broker_id, (at, dirs) in self._registrations().items()
            if at == self.path or (at is None and unplaced)
        }

    def forget_unplaced(self) -> None:
        """This directory was copied or moved: whose what stands without a place is, nobody knows."""
        for broker_id, (at, _) in self._registrations().items():
            if at is None:
                self._files.unlink(f"{self.path}/{WITNESSES}/broker-{broker_id}.json")

    def _registrations(self) -> dict[BrokerId, tuple[str | None, tuple[str, ...]]]:
        """By broker: the place of the copy then, and the directories."""
        folder, found = f"{self.path}/{WITNESSES}", {}
        for name in self._files.listdir(folder) if self._files.exists(folder) else ():
            if match := _BROKER.fullmatch(name):
                try:
                    text = json.loads(self._files.read_bytes(f"{folder}/{name}"))
                    dirs = tuple(each for each in text["dirs"] if type(each) is str)
                    found[int(match[1])] = text.get("at"), dirs
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    continue
        return found


def _small(files: FileSystem, path: str) -> str | None:
    """The text of a small file; None if it is missing or empty."""
    try:
        return files.read_bytes(path).decode(errors="replace").strip() or None
    except FileNotFoundError:
        return None


def _location(found: Any) -> ControllerLocation:
    """What controller.json says; TypeError for values that it never has."""
    broker_id, host, port, epoch = found["broker_id"], found["host"], found["port"], found["epoch"]
    protocol = SecurityProtocol[found.get("security_protocol", "PLAINTEXT")]
    listener = found.get("listener", protocol.name)
    if not (type(host) is type(listener) is str and all(type(number) is int for number in (broker_id, port, epoch))):
        raise TypeError(f"controller.json holds {found!r}")
    return ControllerLocation(
        broker_id=broker_id, host=host, port=port, epoch=epoch, listener=listener, security_protocol=protocol
    )


def refuse_network_file_system(path: str, files: FileSystem) -> None:
    """ConfigError if the directory is on a file system whose locks are another machine's word."""
    kind = files.kind(path)
    if kind in NETWORK_FILE_SYSTEMS:
        raise ConfigError(f"metadata.log.dirs: {path} is on {kind}: expected a local disk, for the lock that elects")
