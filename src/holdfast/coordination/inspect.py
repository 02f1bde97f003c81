"""A look at the copies of the metadata from outside, and a start with a copy that is not known to be complete.

Owns what ``holdfast metadata check`` and ``force`` need. ``look`` changes nothing and works beside a running cluster.
"""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from holdfast.coordination import election, notes
from holdfast.coordination.lanes import Lanes
from holdfast.coordination.metadata_copy import LOG_DIRECTORY, MetadataCopy
from holdfast.coordination.metadata_log import Contents
from holdfast.coordination.notes import Note, Seen
from holdfast.coordination.rebuild import EPOCH_MARGIN
from holdfast.model.errors import HoldfastError, KafkaStorageError
from holdfast.storage.file_locks import LockFile
from holdfast.storage.files import FileSystem

LIMIT_S: Final = 10.0
"""How long a directory may take to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """One copy. ``problem``: why it is not good; None when it is."""

    path: str
    seen: Seen | None = None
    contents: Contents | None = None
    size: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All copies, and the newest note of which are good."""

    newest: Note | None
    copies: tuple[CopyReport, ...]
    witnesses: int = 0
    """Directories that keep notes and answered with one."""

    @property
    def good(self) -> list[CopyReport]:
        return [copy for copy in self.copies if copy.problem is None]


def look(copies: Sequence[MetadataCopy], witnesses: Sequence[str], files: FileSystem, lanes: Lanes) -> Report:
    """What is in each copy. Directories that do not answer within ``LIMIT_S`` are said to be so."""

    def read(copy: MetadataCopy) -> tuple[Seen, Contents | None, int]:
        seen, log_dir = copy.look(), f"{copy.path}/{LOG_DIRECTORY}"
        if not files.exists(log_dir):
            return seen, None, 0
        size = sum(files.file_size(f"{log_dir}/{name}") for name in files.listdir(log_dir))
        try:
            return seen, copy.log.read(), size
        except KafkaStorageError as e:  # its note counts all the same
            return replace(seen, problem=str(e)), None, size

    jobs = {copy.path: partial(read, copy) for copy in copies}
    answers = lanes.ask(jobs, patience_s=LIMIT_S, limit_s=LIMIT_S)
    asked = {path: partial(notes.newest, files, path) for path in witnesses}
    told = lanes.ask(asked, patience_s=LIMIT_S, limit_s=LIMIT_S)
    found = [answer.value for answer in told.values() if answer.value is not None]
    found += [a.value[0].note for a in answers.values() if a.value is not None and a.value[0].note is not None]
    newest = max(found, key=lambda note: note.order, default=None)
    reports = []
    for copy in copies:
        answer = answers.get(copy.path)
        if answer is None or answer.value is None:
            why = f"no answer within {LIMIT_S:.0f} s" if answer is None else str(answer.error)
            reports.append(CopyReport(path=copy.path, problem=why))
        else:
            seen, contents, size = answer.value
            problem = _problem(seen, contents, newest)
            reports.append(CopyReport(path=copy.path, seen=seen, contents=contents, size=size, problem=problem))
    kept = sum(answer.value is not None for answer in told.values())
    return Report(newest=newest, copies=tuple(reports), witnesses=kept)


def _problem(seen: Seen, contents: Contents | None, newest: Note | None) -> str | None:
    if seen.problem is not None and (newest is None or seen.copy_id in newest.good):
        return seen.problem
    if newest is not None and newest.moved is not None:
        return f"left: the metadata is in {newest.moved.to}"
    if newest is None:
        return None if contents is not None and not contents.is_empty else "empty"
    if seen.copy_id is None:
        return "empty, or not whole"
    if seen.copy_id not in newest.good:
        return "left out: it lacks decisions"
    try:
        _ = None if contents is None else contents.records()
    except HoldfastError as e:
        return str(e)
    return None


def take_locks(copies: Sequence[str], log_dirs: Sequence[str], files: FileSystem) -> list[LockFile]:
    """The locks of a cluster that is stopped. KafkaStorageError when somebody has one. None is made in a directory that
    holds nothing: it lies beneath a disk that is not mounted, or is new, and nobody has its lock."""
    taken = []
    for path in (*(f"{copy}/{election.FILE}" for copy in copies), *(f"{each}/.lock" for each in log_dirs)):
        try:
            if not files.listdir(posixpath.dirname(path)):
                continue
            lock = files.open_lock(path)
        except OSError:  # a directory that is gone holds nobody's lock
            continue
        if not lock.try_take():
            raise KafkaStorageError(f"{path} is locked: a broker of this cluster runs; stop all of them first")
        taken.append(lock)
    return taken


def force(copy: MetadataCopy, report: Report, witnesses: Sequence[str], files: FileSystem) -> Note:
    """Say in this copy and with all witnesses that it is the good one. All brokers must be stopped. KafkaStorageError
    for one that is damaged: its beginning would be a state of long ago, with leaders that lack records."""
    seen = copy.look()
    newest = report.newest
    half = newest is not None and newest.moved is not None and seen.copy_id not in newest.copies
    if seen.copy_id is None or not seen.has_log or half:
        raise KafkaStorageError(f"{copy.path} holds no whole copy of the metadata")
    try:
        contents = copy.log.read()
    except KafkaStorageError as e:
        raise KafkaStorageError(f"{e}. `holdfast metadata recover` rebuilds it from the log directories") from e
    epoch = EPOCH_MARGIN + max([contents.last_epoch, *([newest.epoch] if newest is not None else [])])
    note = notes.Note(
        cluster_id=seen.cluster_id or (newest.cluster_id if newest is not None else ""), epoch=epoch, number=0,
        broker_id=-1, good=(seen.copy_id,), copies={seen.copy_id: copy.path},
    )  # fmt: skip
    notes.write(files, copy.path, note)
    for path in witnesses:
        if notes.is_place(files, path):
            notes.write(files, path, note)
    return note
