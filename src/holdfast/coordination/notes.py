"""Which copies of the metadata are good: the note that says so, where it is kept, and what follows from it at a start.

A note is one small file in a directory of its own, named by the controller epoch that wrote it:

    COPY/metadata-reigns/0000000007.json         in each copy that is good
    LOGDIR/metadata-reigns/0000000007.json       and in the log directories of the brokers, the witnesses

Owns the format and the judgement (``judge``), which is pure. A note of an epoch is made first by a link, so of two
brokers that claim one epoch in the same directory only one can; what it changes later replaces its own file and never
that of another. So whoever writes a note and then looks again sees the note of every other one that did so before.

Notes are ordered by epoch and number. A copy has an id, new with every filling: the newest note names those that hold
everything that was ever committed.
"""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.metadata.moved import Moved
from holdfast.model.errors import ConfigError, FencedControllerError, KafkaStorageError, MetadataError
from holdfast.model.types import BrokerId, ControllerEpoch
from holdfast.storage.files import FileSystem
from holdfast.storage.log_dir import META_PROPERTIES

DIRECTORY: Final = "metadata-reigns"
_NAME = re.compile(r"(\d{10})\.json")
MAX_NOTE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """A directory that keeps notes. ``disk``: the device that it was on when it was last seen."""

    path: str
    disk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Which copies are good, as the controller of ``epoch`` knew it when it wrote this for the ``number``-th time."""

    cluster_id: str
    epoch: ControllerEpoch
    number: int
    broker_id: BrokerId
    good: tuple[str, ...]
    """Ids of copies."""
    copies: Mapping[str, str]
    """Id -> path, of those that are good."""
    voters: tuple[Voter, ...] = ()
    moved: Moved | None = None
    """The metadata is in another store. Then no copy is good, and ``copies`` are those that were."""

    @property
    def order(self) -> tuple[int, int]:
        """Newer notes have a greater one."""
        return self.epoch, self.number

    def encoded(self) -> bytes:
        """The file's text."""
        more = {} if self.moved is None else {"moved": self.moved.values()}
        return json.dumps(
            {
                "cluster_id": self.cluster_id,
                "epoch": self.epoch,
                "number": self.number,
                "broker_id": self.broker_id,
                "good": list(self.good),
                "copies": dict(self.copies),
                "voters": [[voter.path, voter.disk] for voter in self.voters],
                **more,
            }
        ).encode()


def decode_note(data: bytes) -> Note:
    """ValueError for what is no note."""
    try:
        found = json.loads(data)
        note = Note(
            cluster_id=_text(found["cluster_id"]),
            epoch=_number(found["epoch"]),
            number=_number(found["number"]),
            broker_id=_number(found["broker_id"]),
            good=tuple(_text(each) for each in found["good"]),
            copies={_text(key): _text(value) for key, value in found["copies"].items()},
            voters=tuple(Voter(path=_text(path), disk=_number(disk)) for path, disk in found["voters"]),
            moved=Moved.of("moved", found["moved"]) if "moved" in found else None,
        )
    except (KeyError, TypeError, AttributeError, RecursionError, MetadataError) as e:
        raise ValueError(f"no note of the metadata's copies: {e}") from e
    return note


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no number")
    return value


def epochs(files: FileSystem, directory: str) -> list[ControllerEpoch]:
    """Of the notes in one directory, in order. FileNotFoundError when it has no place for them."""
    return sorted(
        int(match[1]) for name in files.listdir(f"{directory}/{DIRECTORY}") if (match := _NAME.fullmatch(name))
    )


def newest(files: FileSystem, directory: str) -> Note | None:
    """The newest note of one directory that is whole; None when there is none."""
    try:
        found = epochs(files, directory)
    except FileNotFoundError:
        return None
    for epoch in reversed(found):
        try:
            return decode_note(files.read_bytes(_path(directory, epoch)))
        except (ValueError, FileNotFoundError):
            continue
    return None


def is_of(note: Note, directory: str) -> bool:
    """Whether a note was written for the directory in which it was found. One that was copied or moved with it names
    directories of the original, which are none of ours."""
    return directory in note.copies.values() or any(voter.path == directory for voter in note.voters)


def is_place(files: FileSystem, directory: str) -> bool:
    """Whether a note may be kept in a directory that a broker registered: a formatted log directory, or one in which
    its broker made the place. An empty one lies beneath a disk that was unmounted, or is not formatted yet."""
    return files.exists(f"{directory}/{META_PROPERTIES}") or files.exists(f"{directory}/{DIRECTORY}")


def make_place(files: FileSystem, directory: str) -> None:
    """In a directory that exists and holds nothing else. OSError when it does not exist."""
    if not files.is_dir(directory):
        raise FileNotFoundError(f"{directory} does not exist")
    files.makedirs(f"{directory}/{DIRECTORY}")


def write(files: FileSystem, directory: str, note: Note, *, first: bool = False) -> None:
    """Keep a note, on the device on return. ``first``: it is the first of its epoch here, and FencedControllerError if
    another broker was faster with one of that epoch."""
    files.makedirs(f"{directory}/{DIRECTORY}")
    path = _path(directory, note.epoch)
    if first:
        mine = f"{path}.{note.broker_id}"
        files.write_atomic(mine, note.encoded())
        try:
            files.link(mine, path)
        except FileExistsError:
            raise FencedControllerError(f"Controller epoch {note.epoch} is another broker's: {path}") from None
        finally:
            files.unlink(mine)
        files.fsync_dir(f"{directory}/{DIRECTORY}")
        files.fsync_dir(directory)
    else:
        files.write_atomic(path, note.encoded())


def of_epoch(files: FileSystem, directory: str, epoch: ControllerEpoch) -> Note | None:
    """The note of one epoch; None when there is none, or none that is whole."""
    with contextlib.suppress(ValueError, FileNotFoundError):
        return decode_note(files.read_bytes(_path(directory, epoch)))
    return None


def all_notes(files: FileSystem, directory: str) -> list[Note]:
    """Every note of one directory that is whole."""
    found = []
    for epoch in epochs(files, directory):
        with contextlib.suppress(ValueError, FileNotFoundError):
            found.append(decode_note(files.read_bytes(_path(directory, epoch))))
    return found


def remove_older(files: FileSystem, directory: str, epoch: ControllerEpoch) -> None:
    """Those of earlier epochs are of no more use once nobody can have written one that we have not seen; and only where
    that of ``epoch`` is, for a directory without any note says nothing at a start."""
    found = epochs(files, directory)
    for other in found if epoch in found else ():
        if other < epoch:
            files.unlink(_path(directory, other))


def confirm(files: FileSystem, directory: str, epoch: ControllerEpoch) -> None:
    """That the reign of ``epoch`` still has this copy: its note is there (else OSError: the directory is not the one
    that it was), and none of a later epoch (else FencedControllerError)."""
    found = epochs(files, directory)
    if found and found[-1] > epoch:
        raise FencedControllerError(f"Controller epoch {epoch} is over: {directory} is of epoch {found[-1]}")
    if epoch not in found:
        raise FileNotFoundError(f"{directory} was emptied or replaced: the note of epoch {epoch} is gone")


def _path(directory: str, epoch: ControllerEpoch) -> str:
    return f"{directory}/{DIRECTORY}/{epoch:010d}.json"


# -- what follows at a start -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A directory that answered."""

    note: Note | None
    copy_id: str | None = None
    """None: no copy is kept here, or one that did not get whole."""
    has_log: bool = False
    cluster_id: str | None = None
    problem: str | None = None
    """Why the log of this copy cannot be gone by; None: it can, or nobody has looked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a start may go by."""

    newest: Note | None
    """None: this cluster has never written one."""
    believed: tuple[str, ...]
    """Paths of copies that hold everything that was committed, by the newest note; () for a new cluster."""
    take_over: str | None = None
    """The one copy of a cluster that was made before there were notes."""


def judge(paths: Sequence[str], seen: Mapping[str, Seen], witnesses: Mapping[str, Seen]) -> Verdict:
    """What a start may believe. ``paths``: the configured copies; ``seen``: those of them that answered;
    ``witnesses``: other directories that answered. ConfigError, MetadataMovedError or
    KafkaStorageError when it must not start."""
    found = [each.note for each in (*seen.values(), *witnesses.values()) if each.note is not None]
    clusters = sorted({note.cluster_id for note in found} | {s.cluster_id for s in seen.values() if s.cluster_id})
    if len(clusters) > 1:
        raise ConfigError(f"metadata.log.dirs: {', '.join(paths)} are of clusters {', '.join(clusters)}: expected one")
    if not found:
        return _without_notes(paths, seen)
    last = max(found, key=lambda note: note.order)
    if last.moved is not None:
        raise last.moved.refusal(f"metadata.log.dirs {', '.join(paths)}")
    here = {s.copy_id: path for path, s in seen.items() if s.copy_id is not None}
    named = tuple(path for copy_id, path in here.items() if copy_id in last.good)
    if not named:
        raise KafkaStorageError(_refusal(paths, seen, last))
    believed = tuple(path for path in named if seen[path].problem is None)
    if not believed:
        away = [path for copy_id, path in last.copies.items() if copy_id not in here]
        raise KafkaStorageError(_unusable(named, seen, away))
    if len(named) < len(last.good):
        _need_evidence(last, {c: path for c, path in here.items() if path in believed}, seen, witnesses)
    return Verdict(newest=last, believed=believed)


def _without_notes(paths: Sequence[str], seen: Mapping[str, Seen]) -> Verdict:
    logs = [path for path in paths if path in seen and seen[path].has_log]
    if len(logs) > 1:
        raise ConfigError(
            f"metadata.log.dirs: {' and '.join(logs)} both hold a log, and nothing says which is complete"
        )
    if logs and seen[logs[0]].problem is not None:
        raise KafkaStorageError(_unusable(logs, seen, ()))
    if logs:
        return Verdict(newest=None, believed=(), take_over=logs[0])
    silent = [path for path in paths if path not in seen]
    if silent:
        raise KafkaStorageError(
            f"{', '.join(silent)} cannot be read and the other directories of metadata.log.dirs are empty: a new "
            "cluster is made only when all of them answer"
        )
    return Verdict(newest=None, believed=())


def _unusable(here: Sequence[str], seen: Mapping[str, Seen], away: Sequence[str]) -> str:
    found = "; ".join(f"{path}: {seen[path].problem}" for path in here)
    back = f"Bring the disk of {', '.join(away)} back, which is complete; if it is gone for good, " if away else ""
    return (
        f"No copy of the metadata that is here can be gone by: {found}. {back}`holdfast metadata recover` rebuilds the "
        "metadata from the log directories"
    )


def _refusal(paths: Sequence[str], seen: Mapping[str, Seen], last: Note) -> str:
    complete = ", ".join(sorted(last.copies.values())) or "none"
    here = ", ".join(f"{path} ({_looks(path, seen, last)})" for path in paths)
    return (
        f"No complete copy of the metadata is here: complete is {complete}, found is {here}. Bring the disk of the "
        f"complete one back; if it is gone for good, `holdfast metadata force PATH` goes on with an older copy, and "
        f"`holdfast metadata recover` rebuilds the metadata from the log directories"
    )


def _looks(path: str, seen: Mapping[str, Seen], last: Note) -> str:
    if path not in seen:
        return "cannot be read"
    if seen[path].copy_id is None:
        return "empty"
    return "complete" if seen[path].copy_id in last.good else "left out earlier: it lacks decisions"


def _need_evidence(
    last: Note, here: Mapping[str, str], seen: Mapping[str, Seen], witnesses: Mapping[str, Seen]
) -> None:
    """Some good copies do not answer. One of them may have gone on alone, in a note that is on none of the directories
    that answer: that cannot be when more than half of the disks that keep notes answer, for those who go on write
    theirs on as many as answer them."""
    has_moved = any(last.copies.get(copy_id) not in (None, path) for copy_id, path in here.items())
    known = {**witnesses, **seen}
    disks: dict[int, list[bool]] = {}
    for voter in () if has_moved else last.voters:
        found = known.get(voter.path)
        disks.setdefault(voter.disk, []).append(found is not None and found.note is not None)
    answering = sum(2 * sum(answers) > len(answers) for answers in disks.values())
    if 2 * answering <= len(disks):
        missing = [path for copy_id, path in last.copies.items() if copy_id not in here]
        voters = sum(map(len, disks.values()))
        raise KafkaStorageError(
            f"{', '.join(missing)} cannot be read and may hold newer decisions than {', '.join(here.values())}: of the "
            f"{voters} directories on {len(disks)} disks that would know, too few answer. Bring that disk back; if it "
            f"is gone for good, `holdfast metadata force {next(iter(here.values()))}` goes on without it"
        )
