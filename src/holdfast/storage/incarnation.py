"""What a broker can say of its replicas after a start: did their files see every write of the time before?

Owns ``holdfast.incarnation``, one in each log directory: the epoch of the broker's last registration, the boot of
the machine (its boot id) in which that was, and the directories that the broker had then. Owns ``judge``, which
makes the fate of every replica out of it (model/fates.py). Reads no replica and decides nothing about leaders.

A killed process leaves what it wrote in the page cache, and that is whole until the machine goes down; so the same
boot id means that nothing is missing, and a clean stop that nothing is missing whatever the machine did since. The
file needs no sync: after a power loss its boot id, old or torn, is not the present one.

A directory that fails while the broker runs is named in the notes of the others as one that has failed: what is there
when it is back is not believed to be whole, and when it is not back what it had is lost. One that is left out of
log.dirs between two starts is known by its place in the notes: it is awaited like one that cannot be read.

It is written when the controller has recorded the registration, and before the broker serves: if the broker dies in
between, it is the incarnation before that comes again.
"""

import json
import logging
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from holdfast.model.errors import HoldfastError
from holdfast.model.fates import ReplicaFate, ReplicaFates
from holdfast.model.types import BrokerEpoch, DirectoryId, TopicPartition
from holdfast.storage.files import FileSystem
from holdfast.storage.log_dir import SPACE_ERRORS, LogDir

log = logging.getLogger(__name__)

FILE_NAME = "holdfast.incarnation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One registration of a broker. ``directories``: each one's id, and the last epoch in which it was online.
    ``failed``: those that the broker had as well and that have failed since. ``paths``: where they were, as far as that
    is noted."""

    broker_epoch: BrokerEpoch
    boot_id: str
    directories: Mapping[DirectoryId, BrokerEpoch]
    paths: Mapping[DirectoryId, str] = field(default_factory=dict)
    failed: frozenset[DirectoryId] = frozenset()

    def encode(self) -> bytes:
        """The file's text."""
        directories = {str(each): epoch for each, epoch in sorted(self.directories.items())}
        named = self.directories.keys() | self.failed
        paths = {str(each): path for each, path in sorted(self.paths.items()) if each in named}
        value = {
            "version": 1, "brokerEpoch": self.broker_epoch, "bootId": self.boot_id, "directories": directories,
            "paths": paths, "failed": sorted(map(str, self.failed)),
        }  # fmt: skip
        return json.dumps(value).encode()


def read(files: FileSystem, directory: str, directory_id: DirectoryId) -> Incarnation | None:
    """The directory's incarnation; None when there is no file, or it is torn or of another directory."""
    path = f"{directory}/{FILE_NAME}"
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        value = json.loads(data)
        epoch = value["brokerEpoch"]
        directories = {UUID(text): each for text, each in value["directories"].items()}
        paths = {UUID(text): str(each) for text, each in value.get("paths", {}).items()}
        failed = frozenset(UUID(text) for text in value.get("failed", ()))
        boot_id = value["bootId"]
        for each in (epoch, *directories.values()):
            if type(each) is not int or not 0 <= each < 2**63:
                raise ValueError(f"expected an epoch, found {each!r}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        log.warning("%s cannot be read, its replicas count as damaged: %s", path, e)
        return None
    if value.get("version") != 1 or not isinstance(boot_id, str) or directories.get(directory_id) != epoch:
        log.warning("%s is not of this directory, its replicas count as damaged", path)
        return None
    return Incarnation(broker_epoch=epoch, boot_id=boot_id, directories=directories, paths=paths, failed=failed)


def write(files: FileSystem, directory: str, incarnation: Incarnation) -> None:
    """Replace the directory's file. In its place where there is no room for another one: what it says must not stay
    when it is not so any more. OSError, and it is gone, if that cannot be done either."""
    path, data = f"{directory}/{FILE_NAME}", incarnation.encode()
    try:
        files.write_atomic(path, data, durable=False)
    except OSError as e:
        if e.errno not in SPACE_ERRORS or not files.exists(path):
            raise
        handle = files.open(path)
        try:
            fits = handle.size() >= len(data)
            if fits:
                handle.pwritev((data.ljust(handle.size()),), 0)
        finally:
            handle.close()
        if not fits:
            files.unlink(path)
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class DirHistory:
    """What was found in one log directory at the start.

    ``clean_epoch``: of the mark of a clean stop. ``replicas``: what is there; ``missing``: what a checkpoint tells
    of and is not there; ``short``: what has not all that it had. ``readable``: it is online and all of it was loaded.
    """

    directory_id: DirectoryId | None
    readable: bool = True
    clean_epoch: BrokerEpoch | None = None
    incarnation: Incarnation | None = None
    replicas: frozenset[TopicPartition] = frozenset()
    missing: frozenset[TopicPartition] = frozenset()
    short: frozenset[TopicPartition] = frozenset()

    def whole_since(self, boot_id: str | None) -> BrokerEpoch | None:
        """The incarnation all of whose writes are there; None if some may be missing, or there was none."""
        if self.clean_epoch is not None:
            return self.clean_epoch
        found = self.incarnation
        return found.broker_epoch if found is not None and found.boot_id == boot_id else None

    @property
    def is_empty(self) -> bool:
        """Nothing was ever here, as far as one can see: a new directory."""
        return self.incarnation is None and self.clean_epoch is None and not self.replicas and not self.missing


@dataclass(slots=True, kw_only=True)
class _Sorted:
    """The directories of a broker by what they are good for."""

    current: list[DirHistory] = field(default_factory=list)
    """With all writes of the newest incarnation, or of the last one in which they were online."""
    doubtful: list[DirHistory] = field(default_factory=list)
    unreadable: bool = False
    gone: bool = False
    """A directory of the newest incarnation is not there."""
    newest: BrokerEpoch | None = None
    known: Mapping[DirectoryId, BrokerEpoch] = field(default_factory=dict)
    failed: frozenset[DirectoryId] = frozenset()
    """Of the newest incarnation, when it ended."""

    @property
    def named(self) -> frozenset[DirectoryId]:
        """All directories that the broker had."""
        return self.failed | self.known.keys()


def _sort(histories: Iterable[DirHistory], boot_id: str | None) -> _Sorted:
    result = _Sorted()
    readable = []
    for each in histories:
        if each.readable:
            readable.append(each)
        else:
            result.unreadable = True
    for each in readable:
        epoch = each.whole_since(boot_id)
        if epoch is not None and (result.newest is None or epoch > result.newest):
            result.newest = epoch
    incarnations = [each.incarnation for each in readable if each.incarnation is not None]
    believed = any(i.broker_epoch == result.newest for i in incarnations)
    # Which directories there were is believed after a power loss too: what they hold is another matter.
    last = max((i.broker_epoch for i in incarnations), default=None)
    notes = [i for i in incarnations if i.broker_epoch == (result.newest if believed else last)]
    if notes:  # one that has failed since is in its own note only
        first = notes[0].directories
        result.known = {d: epoch for d, epoch in first.items() if all(d in i.directories for i in notes)}
        result.failed = frozenset().union(*(i.failed for i in notes))
    for each in readable:
        epoch, expected = each.whole_since(boot_id), result.newest
        if believed:
            expected = None if each.directory_id is None else result.known.get(each.directory_id)
        if epoch is not None and epoch == expected:
            result.current.append(each)
        elif not each.is_empty:
            result.doubtful.append(each)
    result.gone = bool(result.named - {each.directory_id for each in readable})
    return result


def judge(histories: Iterable[DirHistory], boot_id: str | None) -> ReplicaFates:
    """The fate of every replica of the broker that has these directories, in this boot of its machine (None: the
    system does not tell; then only a clean stop is believed)."""
    found = _sort(histories, boot_id)
    if found.unreadable:
        rest = ReplicaFate.UNKNOWN
    elif found.gone:
        rest = ReplicaFate.LOST
    elif found.doubtful:
        # Of what was not flushed a power loss may take whole directories.
        rest = ReplicaFate.DAMAGED
    elif not found.current:
        rest = ReplicaFate.LOST
    else:
        # A replica that is not here was never made.
        rest = ReplicaFate.KEPT
    others: dict[TopicPartition, ReplicaFate] = {}
    for each in found.doubtful:
        others.update(dict.fromkeys(each.replicas, ReplicaFate.DAMAGED))
    for each in found.current:
        others.update((tp, ReplicaFate.LOST) for tp in each.missing if tp not in others)
    for each in found.current:
        others.update(dict.fromkeys(each.replicas, ReplicaFate.KEPT))
        others.update(dict.fromkeys(each.short, ReplicaFate.DAMAGED))
    return ReplicaFates(
        continues=found.newest if found.current else None,
        rest=rest,
        others={tp: fate for tp, fate in others.items() if fate is not rest},
    )


class Past:
    """What a broker knows of the time before its start, and what it leaves for the next one.

    ``boot_id``: of this boot of the machine; None: the system does not tell.
    """

    def __init__(self, dirs: Sequence[LogDir], boot_id: str | None) -> None:
        self.boot_id = boot_id
        self.fates = ReplicaFates(rest=ReplicaFate.UNKNOWN)
        """What became of the replicas while the broker was away."""
        self._dirs = dirs
        self._histories: list[DirHistory] = []
        self._noted: Incarnation | None = None
        self._forgotten: set[DirectoryId] = set()

    def adopt(self, histories: Iterable[DirHistory]) -> None:
        """All directories were looked at."""
        self._histories = list(histories)
        for _ in range(len(self._dirs) - len(self._histories)):  # nothing at all is known of these
            self._histories.append(DirHistory(directory_id=None, readable=False))
        self.fates = judge(self._histories, self.boot_id)

    def absent(self) -> list[str]:
        """Where the broker had a directory at its last start, and has none now: it was left out of log.dirs. One whose
        place has another directory now was replaced, and what it had is lost."""
        named = _sort(self._histories, self.boot_id).named
        here = {each.directory_id for each in self._histories}
        used = {posixpath.normpath(d.path) for d in self._dirs}
        paths = self._paths()
        missing = (posixpath.normpath(paths[each]) for each in named if each not in here and each in paths)
        return sorted(set(missing) - used)

    def await_absent(self, count: int) -> None:
        """So many directories that are absent count as ones that cannot be read: they may come back."""
        self._histories += [DirHistory(directory_id=None, readable=False) for _ in range(count)]
        self.fates = judge(self._histories, self.boot_id)

    def _paths(self) -> dict[DirectoryId, str]:
        notes = [h.incarnation for h in self._histories if h.incarnation is not None]
        notes.sort(key=lambda note: note.broker_epoch)  # the newest wins
        return {each: path for note in notes for each, path in note.paths.items()}

    def note(self, broker_epoch: BrokerEpoch, done: Callable[[], None]) -> None:
        """The controller has recorded this incarnation: note it in every directory that is online, each on its own
        queue; then ``done``, also when that failed. One that could not be read at the start is named as it was: it
        may come back."""
        online = {d: d.directory_id for d in self._dirs if d.is_online and d.directory_id is not None}
        if self.boot_id is None or not online:
            done()
            return
        before = _sort(self._histories, self.boot_id)
        away = before.known if before.unreadable else {}
        away = {each: epoch for each, epoch in away.items() if each not in self._forgotten}
        directories = {**away, **dict.fromkeys(online.values(), broker_epoch)}
        failed = (before.failed if before.unreadable else frozenset()) - self._forgotten - directories.keys()
        paths = {**self._paths(), **{directory_id: d.path for d, directory_id in online.items()}}
        paths = {each: path for each, path in paths.items() if each in directories or each in failed}
        self._noted = Incarnation(
            broker_epoch=broker_epoch, boot_id=self.boot_id, directories=directories, paths=paths, failed=failed
        )
        self._write(online, self._noted, done)

    def healed(self, directory: LogDir) -> None:
        """It is back, and the controller knows what its replicas lack: from now on it is as good as the others."""
        noted = self._noted
        if noted is None or directory.directory_id is None or not directory.is_online:
            return
        self._forgotten.discard(directory.directory_id)
        # Another disk in the place of one that failed: the controller knows that what it had is lost.
        replaced = {each for each in noted.failed if noted.paths.get(each) == directory.path}
        self._noted = replace(
            noted,
            directories={**noted.directories, directory.directory_id: noted.broker_epoch},
            paths={**noted.paths, directory.directory_id: directory.path},
            failed=noted.failed - replaced - {directory.directory_id},
        )
        self._write([d for d in self._dirs if d.is_online], self._noted, lambda: None)

    def removed(self, path: str) -> None:
        """The broker is to have this directory no more: the next start does not miss it."""
        noted = self._noted
        if noted is None:
            return
        gone = {each for each, where in noted.paths.items() if posixpath.normpath(where) == posixpath.normpath(path)}
        self._forgotten |= gone
        left = {d: e for d, e in noted.directories.items() if d not in gone}
        self._noted = replace(noted, directories=left, failed=noted.failed - gone)
        self._write([d for d in self._dirs if d.is_online], self._noted, lambda: None)

    def renew(self) -> None:
        """A directory has room again: it may have missed what was to be noted."""
        if self._noted is not None:
            self._write([d for d in self._dirs if d.is_online], self._noted, lambda: None)

    def epoch_of(self, directory: LogDir, broker_epoch: BrokerEpoch | None) -> BrokerEpoch | None:
        """Whose writes a directory has that is closed clean now: ours, or those of the time before when we never were
        registered (``broker_epoch`` is None or -1)."""
        if broker_epoch is not None and broker_epoch >= 0:
            return broker_epoch
        own = (h for h in self._histories if h.readable and h.directory_id == directory.directory_id)
        return next((h.whole_since(self.boot_id) for h in own), None)

    def failed(self, directory: LogDir) -> None:
        """It has failed while we run: what was written to it may not be there though it works again in this same boot
        (a failed fsync drops what it could not write). The others name it as one that has failed, and it loses its
        note, if it lets go of it."""
        noted = self._noted
        if noted is not None:
            left = {d: epoch for d, epoch in noted.directories.items() if d != directory.directory_id}
            failed = noted.failed | (noted.directories.keys() & {directory.directory_id})
            self._noted = replace(noted, directories=left, failed=failed)
            self._write([d for d in self._dirs if d.is_online], self._noted, lambda: None)
        directory.queue.submit(partial(take_away, directory), lambda *_: None)

    @staticmethod
    def _write(dirs: Iterable[LogDir], noted: Incarnation, done: Callable[[], None]) -> None:
        online = list(dirs)
        waiting = set(online)

        def write_note(directory: LogDir) -> None:
            with directory.guard():
                write(directory.files, directory.path, noted)

        def written(directory: LogDir, _: object, error: HoldfastError | None) -> None:
            waiting.discard(directory)
            if error is not None:
                log.warning("%s: the broker's epoch is not noted: %s", directory.path, error)
            if not waiting:
                done()

        for directory in online:
            directory.queue.submit(partial(write_note, directory), partial(written, directory))


def take_away(directory: LogDir) -> None:
    """On the dir's thread: its note says no more what it has kept."""
    try:
        directory.files.unlink(f"{directory.path}/{FILE_NAME}")
    except OSError as e:
        log.info("%s keeps its note: %s", directory.path, e)
