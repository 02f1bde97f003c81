"""The copies of the metadata during one reign: which are good, and what is done so that they stay equal.

Owns the list of good copies and the notes that tell it (notes.py). Every commit goes to all good copies at the same
time. One that fails, or does not answer while another has, is left out: first the note without it is on every copy that
is left and on the witnesses, then the commit counts. A copy that works again is filled anew, in the background, and
counts as good when the note says so.

    good  -> error, silence, wiped ->  left out  -> probe ok ->  being filled  -> whole, noted ->  good

Where no copy answers, the caller waits; where all have failed, KafkaStorageError.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from holdfast.coordination import notes
from holdfast.coordination.lanes import Answer, Background, Lanes, cause_of, errors_of, reasons_of, values_of
from holdfast.coordination.metadata_copy import MetadataCopy
from holdfast.coordination.metadata_log import Contents, LoggedBatch
from holdfast.coordination.notes import Note, Seen, Verdict, Voter
from holdfast.metadata.records import MetadataRecord
from holdfast.model.errors import FencedControllerError, HoldfastError, KafkaStorageError
from holdfast.model.log_events import LogEvent, told
from holdfast.model.types import BrokerId, ControllerEpoch, Offset
from holdfast.storage.files import FileSystem

log = logging.getLogger(__name__)
T = TypeVar("T")

WITNESS_PATIENCE_S: Final = 0.2
"""How long the witnesses are waited for: one that hangs must not hold up a decision."""
READ_PATIENCE_S: Final = 5.0
"""How much longer than another one a copy may take to be read or to take a snapshot."""
SURVEY_LIMIT_S: Final = 2.0
"""How long a start waits for directories that do not answer."""
MAX_PENDING_BYTES: Final = 8 << 20
"""What may be committed while a copy is being filled; beyond it the filling begins again."""


@dataclass(slots=True)
class _Filling:
    """A copy that gets everything anew, and what was committed since that was read."""

    work: Background
    pending: list[LoggedBatch] = field(default_factory=list)

    @property
    def pending_bytes(self) -> int:
        return sum(len(batch.data) for batch in self.pending)


class Copies:
    """All copies as the broker that reigns sees them. Blocking; one caller at a time."""

    def __init__(
        self,
        copies: Sequence[MetadataCopy],
        files: FileSystem,
        lanes: Lanes,
        patience_s: float,
        witnesses: Sequence[str],
        let_go: Callable[[str], None] = lambda path: None,
    ) -> None:
        """``let_go`` hears of every copy that is left out, once the note of it is written: nothing that others have
        open there is of use any more."""
        self._all = {copy.path: copy for copy in copies}
        self._files = files
        self._lanes = lanes
        self._patience_s = patience_s
        self._own_witnesses = tuple(witnesses)
        self._let_go = let_go
        self._cluster_id = ""
        self._broker_id: BrokerId = -1
        self._epoch: ControllerEpoch = 0
        self._number = 0
        self._good: dict[str, MetadataCopy] = {}
        self._voters: tuple[Voter, ...] = ()
        self._registered: dict[BrokerId, tuple[str, ...]] = {}
        self._uninformed: set[str] = set()
        self._filling: dict[str, _Filling] = {}
        self._probes: dict[str, Background] = {}
        """Of copies that are left out: nobody waits for these."""
        self._telling: dict[str, tuple[tuple[int, int], Background]] = {}
        """Witnesses that are told a note of this order."""
        self._before: dict[str, str] = {}
        """Copies that the note before this claim's names, by id, until we know that no other note followed it."""
        self._silent: set[str] = set()
        """Copies that did not answer when this claim began."""
        self._dropped: set[str] = set()
        """Left out, and no note says so yet."""
        self._end_offset: Offset = 0
        self.left_out: dict[str, str] = {}
        """Path -> why."""
        self.least_epoch: ControllerEpoch = 0
        """A claim must be above it, though no note says so."""

    @property
    def good(self) -> tuple[str, ...]:
        """Paths of the copies that every commit is on."""
        return tuple(self._good)

    @property
    def end_offset(self) -> Offset:
        return self._end_offset

    @property
    def wants_snapshot(self) -> Callable[[int], bool]:
        """Whether a log is longer than so many bytes and than the snapshot before it, or in too many files. So a reign
        begins by reading at most twice what it must, and all snapshots together cost as much as all commits."""
        logs = [copy.log for copy in self._good.values()]
        return lambda limit: any(
            each.tail_bytes > max(limit, each.snapshot_bytes) or each.has_many_segments for each in logs
        )

    # -- beginning a reign ---------------------------------------------------------------------------------------------

    def survey(self) -> tuple[dict[str, Seen], dict[str, Seen]]:
        """What the copies, and the directories that keep notes of them, say; those that answer in time."""
        answers = self._ask({path: copy.look for path, copy in self._all.items()}, limit_s=SURVEY_LIMIT_S)
        for answer in answers.values():
            if isinstance(answer.error, HoldfastError) and not isinstance(answer.error, KafkaStorageError):
                raise answer.error
        seen, self._silent = values_of(answers), set(self._all) - set(answers)
        if not seen:
            raise KafkaStorageError(f"Metadata directories: {errors_of(self._all, answers)}") from cause_of(
                self._all, answers
            )
        places, asked = set(self._own_witnesses), set[str]()
        found: dict[str, Seen] = {}
        while places - asked:
            now, asked = places - asked, asked | places
            read = {("note", path): partial(self._look_at_witness, path) for path in sorted(now)}
            found |= {key[1]: value for key, value in values_of(self._ask(read, limit_s=SURVEY_LIMIT_S)).items()}
            for path, each in (*seen.items(), *found.items()):
                if each.note is not None and notes.is_of(each.note, path):
                    places |= {voter.path for voter in each.note.voters if voter.path not in self._all}
        return seen, found

    def _look_at_witness(self, path: str) -> Seen:
        return Seen(note=notes.newest(self._files, path))

    def begin(self, broker_id: BrokerId, cluster_id: str) -> tuple[list[MetadataRecord], ControllerEpoch]:
        """Find what is complete, write the note of a new epoch, read everything, be ready to append. All records."""
        seen, witnesses = self.survey()
        verdict, broken = self._judge(seen, witnesses)
        self._broker_id, self._cluster_id = broker_id, cluster_id
        self._good, self._filling, self._number, self.left_out = {}, {}, 0, broken
        self._dropped.clear()
        self._start_with(verdict, seen)
        known = [s.note.epoch for s in (*seen.values(), *witnesses.values()) if s.note is not None]
        self._epoch = 1 + max(self.least_epoch, *known, 0)
        self._know_voters(verdict, seen, witnesses)
        # A claim that another one overtakes in this moment must leave no note without the copy that it commits to.
        self._before = dict(verdict.newest.copies) if verdict.newest is not None else {}
        self._write_note(first=True)
        self._look_again(verdict)
        named, self._before = set(self._note().good), {}
        if named != set(self._note().good):
            self._number += 1
            self._write_note()
        records = self._recover()
        for path in self._all:
            if path not in self._good:
                self.left_out.setdefault(path, "it is not complete")
                why = self.left_out[path]
                fields = told(LogEvent.METADATA_COPY_OFFLINE, dir=path, reason=why, left=tuple(self._good))
                log.warning("metadata copy %s is left out: %s", path, why, extra=fields)
                self._close(path)
        return records, self._epoch

    def _judge(self, seen: Mapping[str, Seen], witnesses: Mapping[str, Seen]) -> tuple[Verdict, dict[str, str]]:
        """What may be gone by, and why other copies may not though they were good. Their logs are read before anything
        is written: a note that names only a copy whose log is damaged would shut out a whole one that is away."""
        verdict, paths = notes.judge(list(self._all), seen, witnesses), list(self._all)
        logs = verdict.believed if verdict.take_over is None else (verdict.take_over,)
        jobs = {path: partial(self._all[path].log.read, keep=True) for path in logs}
        answers = self._ask(jobs, patience_s=READ_PATIENCE_S) if jobs else {}
        broken = reasons_of(logs, answers)
        if broken:
            read = {path: replace(each, problem=broken.get(path)) for path, each in seen.items()}
            try:
                verdict = notes.judge(paths, read, witnesses)
            except KafkaStorageError as e:
                raise KafkaStorageError(str(e)) from cause_of({*logs, *self._silent}, answers)
        return verdict, broken

    def _start_with(self, verdict: Verdict, seen: Mapping[str, Seen]) -> None:
        if verdict.believed:
            for path in verdict.believed:
                self._good[path] = self._all[path]
                self._good[path].copy_id = seen[path].copy_id
            return
        starters = [verdict.take_over] if verdict.take_over is not None else list(seen)
        if verdict.take_over is not None:
            log.warning("metadata of %s is taken over into %s", verdict.take_over, ", ".join(self._all))
            self.least_epoch = max(self.least_epoch, self._all[verdict.take_over].log.read().last_epoch)
        answers = self._ask({path: self._all[path].name for path in starters}, limit_s=SURVEY_LIMIT_S)
        self._good = {path: self._all[path] for path in values_of(answers)}
        if not self._good:
            raise KafkaStorageError(f"Metadata directories: {errors_of(starters, answers)}") from cause_of(
                starters, answers
            )

    def _know_voters(self, verdict: Verdict, seen: Mapping[str, Seen], witnesses: Mapping[str, Seen]) -> None:
        """Who keeps notes: the copies and the registered directories, with the disks that they are or were on."""
        last = verdict.newest
        here = {seen[path].copy_id: path for path in verdict.believed}
        stays = last is not None and all(last.copies.get(c or "") == path for c, path in here.items())
        self._voters, self._registered = (), {}
        if last is not None and stays:
            self._voters = last.voters
        else:  # made now, or a directory that was moved or copied: what it says of others is not of this one
            forgotten = self._ask({path: copy.forget_unplaced for path, copy in self._good.items()})
            if why := reasons_of(self._good, forgotten):
                raise KafkaStorageError(f"Metadata directories that were moved or copied: {why}")
        jobs = {path: partial(copy.registered, unplaced=stays) for path, copy in self._good.items()}
        for answer in values_of(self._ask(jobs)).values():
            self._registered |= answer
        self._renew_voters()

    def _renew_voters(self) -> bool:
        """Look for the disks of all who keep notes; whether something changed."""
        witnesses = {path for paths in self._registered.values() for path in paths} | set(self._own_witnesses)
        paths = sorted({*self._all, *witnesses})
        known = {voter.path: voter.disk for voter in self._voters}
        jobs = {("note", path): partial(self._files.device, path) for path in paths}
        answers = values_of(self._ask(jobs, patience_s=WITNESS_PATIENCE_S, limit_s=WITNESS_PATIENCE_S))
        disks = {path: known[path] for path in paths if path in known}
        disks |= {path: disk for (_, path), disk in answers.items() if path not in known or path in self._good}
        before, self._voters = self._voters, tuple(Voter(path=path, disk=disks[path]) for path in sorted(disks))
        return before != self._voters

    def _look_again(self, verdict: Verdict) -> None:
        """Nobody wrote a note between our reading and our writing. Then what is older goes."""
        places = sorted({*self._good, *(voter.path for voter in self._voters)})
        jobs = {("note", path): partial(notes.all_notes, self._files, path) for path in places}
        least = verdict.newest.order if verdict.newest is not None else (0, 0)
        answers = values_of(self._ask(jobs, limit_s=self._patience_s))
        others = [note for found in answers.values() for note in found if note.epoch != self._epoch]
        last = max((note for note in others if note.order > least), key=lambda note: note.order, default=None)
        if last is not None:
            if last.epoch < self._epoch:
                self._give_way(last)
            raise FencedControllerError(f"Controller epoch {self._epoch} is not ours: there is a note {last.order}")
        for path in places:
            self._lanes.begin(("note", path), partial(notes.remove_older, self._files, path, self._epoch))

    def _give_way(self, last: Note) -> None:
        """The other one may have committed to the copies of its note: ours is newer, and names those and no other."""
        note = replace(self._note(), number=self._number + 1, good=last.good, copies=last.copies)
        self._ask({p: partial(notes.write, self._files, p, note) for p in self._good}, limit_s=self._patience_s)
        with suppress(FencedControllerError):
            self._inform([voter.path for voter in self._voters if voter.path not in self._all], note)

    def _recover(self) -> list[MetadataRecord]:
        """Read all; the longest is what counts, the others get what they lack."""
        answers = self._ask({p: c.log.read for p, c in self._good.items()}, patience_s=READ_PATIENCE_S)
        found: dict[str, Contents] = values_of(answers)
        if not found:
            raise KafkaStorageError(f"Metadata log: {errors_of(self._all, answers)}") from cause_of(
                {*self._good, *self._silent}, answers
            )
        best = max(found.values(), key=lambda contents: (contents.last_epoch, contents.end_offset))
        if best.last_epoch >= self._epoch:
            self.least_epoch = best.last_epoch
            raise KafkaStorageError(f"Metadata log: it is of epoch {best.last_epoch}, its notes are older: claim again")
        records = best.records()

        def ready(copy: MetadataCopy, contents: Contents) -> None:
            missing = best.after(contents.end_offset, contents.last_epoch)
            if missing is None:
                raise KafkaStorageError(f"it ends at {contents.end_offset}, which is no part of the others")
            copy.begin(contents, self._epoch)
            copy.append(missing, self._epoch)

        jobs = {p: partial(ready, self._all[p], contents) for p, contents in found.items()}
        began = self._ask(jobs, patience_s=READ_PATIENCE_S)
        reasons = reasons_of(self._good, {**{p: a for p, a in answers.items() if a.error}, **began})
        self._end_offset = best.end_offset
        self._leave_out(reasons, began)
        return records

    # -- a reign -------------------------------------------------------------------------------------------------------

    def commit(self, batch: LoggedBatch) -> None:
        """On every good copy, synced, on return; on fewer than before only if that is noted."""
        epoch = self._epoch
        answers = self._ask({p: partial(c.append, (batch,), epoch) for p, c in self._good.items()})
        self._leave_out(reasons_of(self._good, answers), answers)
        self._end_offset = batch.next_offset
        for path, filling in list(self._filling.items()):
            filling.pending.append(batch)
            if filling.pending_bytes > MAX_PENDING_BYTES:
                del self._filling[path]

    def snapshot(self, records: Sequence[MetadataRecord]) -> None:
        """In place of everything so far, in every good copy."""
        epoch = self._epoch
        jobs = {p: partial(c.snapshot, records, epoch) for p, c in self._good.items()}
        answers = self._ask(jobs, patience_s=READ_PATIENCE_S)
        self._leave_out(reasons_of(self._good, answers), answers)

    def for_good(self, work: Callable[[MetadataCopy], T], *, limit_s: float | None = None) -> dict[str, T]:
        """Something that need not succeed, at every good copy; what came of it."""
        jobs = {path: partial(work, copy) for path, copy in self._good.items()}
        return values_of(self._ask(jobs, limit_s=limit_s))

    # -- leaving out ---------------------------------------------------------------------------------------------------

    def _leave_out(self, reasons: Mapping[str, str], answers: Mapping[str, Answer[Any]]) -> None:
        """These failed: the note of it comes before anything else counts. KafkaStorageError when they are all."""
        for answer in answers.values():
            if isinstance(answer.error, FencedControllerError):
                raise answer.error
        if not reasons:
            return
        if set(reasons) >= set(self._good):
            raise KafkaStorageError(f"Metadata log: {errors_of(self._all, answers)}") from cause_of(
                {*self._good, *self._silent}, answers
            )
        self._drop(reasons)
        self._number += 1
        self._write_note()

    def _close(self, path: str) -> None:
        """Have no file of it open, so that its disk can be unmounted. In turn: a write may hang there."""
        self._lanes.begin(path, self._all[path].log.close)
        self._let_go(path)

    def _drop(self, reasons: Mapping[str, str]) -> None:
        for path, why in reasons.items():
            copy = self._good.pop(path, None)
            if copy is not None:
                copy.copy_id = None
                self.left_out[path] = why
                self._dropped.add(path)
                left = tuple(self._good)
                fields = told(LogEvent.METADATA_COPY_OFFLINE, dir=path, reason=why, left=left)
                what = "metadata copy %s is left out: %s; decisions go on in %s"
                log.error(what, path, why, ", ".join(left), extra=fields)

    def _write_note(self, *, first: bool = False) -> None:
        """On every good copy, and on the witnesses that answer."""
        while True:
            note = self._note()
            jobs = {p: partial(notes.write, self._files, p, note, first=first) for p in self._good}
            answers = self._ask(jobs)
            for answer in answers.values():
                if isinstance(answer.error, FencedControllerError):
                    raise answer.error
            reasons = reasons_of(self._good, answers)
            if not reasons:
                break
            if set(reasons) >= set(self._good):
                raise KafkaStorageError(f"Metadata directories: {errors_of(self._all, answers)}") from cause_of(
                    {*self._good, *self._silent}, answers
                )
            self._drop(reasons)
            self._number, first = self._number + 1, False
        self._inform([voter.path for voter in self._voters if voter.path not in self._all], note)
        while self._dropped:
            self._close(self._dropped.pop())

    def _note(self) -> Note:
        copies = self._before | {copy.copy_id: path for path, copy in self._good.items() if copy.copy_id is not None}
        return Note(
            cluster_id=self._cluster_id, epoch=self._epoch, number=self._number, broker_id=self._broker_id,
            good=tuple(sorted(copies)), copies=copies, voters=self._voters,
        )  # fmt: skip

    def _inform(self, witnesses: Collection[str], note: Note) -> None:
        """Tell these; those that fail or do not answer are told later (``tend``)."""

        jobs = {("note", path): partial(self._tell, path, note) for path in witnesses}
        answers = self._ask(jobs, patience_s=WITNESS_PATIENCE_S, limit_s=WITNESS_PATIENCE_S)
        for answer in answers.values():
            if isinstance(answer.error, FencedControllerError):
                raise answer.error
        told = values_of(answers)
        if any(epoch > self._epoch for epoch in told.values()):
            raise FencedControllerError(f"Controller epoch {self._epoch} is over: a witness is of another")
        # Also one that failed: its older note would count as evidence for a copy that is left out now.
        self._uninformed = set(witnesses) - {path for _, path in told}
        absent = [path for (_, path), answer in answers.items() if isinstance(answer.error, FileNotFoundError)]
        asked = len(witnesses) - len(absent)
        if asked and 2 * len(told) <= asked:
            log.warning("only %d of %d directories could note which copies are good", len(told), asked)

    def _tell(self, path: str, note: Note) -> ControllerEpoch:
        """Keep it in a witness; the newest epoch that this knows of."""
        if not notes.is_place(self._files, path):
            raise FileNotFoundError(f"{path} is no log directory now")
        kept = notes.of_epoch(self._files, path, note.epoch)
        if kept is not None and kept.broker_id != note.broker_id:
            raise FencedControllerError(f"Controller epoch {note.epoch} is another broker's: {path}")
        notes.write(self._files, path, note, first=kept is None)
        return notes.epochs(self._files, path)[-1]

    def _tell_late(self, path: str) -> None:
        """A witness that was not told: try again, without waiting for it."""
        note = self._note()
        order, telling = self._telling.pop(path, (note.order, None))
        if telling is None:
            self._telling[path] = (note.order, self._lanes.begin(("note", path), lambda: self._tell(path, note)))
        elif telling.answer is None:
            self._telling[path] = (order, telling)
        elif isinstance(telling.answer.error, FencedControllerError):
            raise telling.answer.error
        elif telling.answer.error is None and order == note.order:
            self._uninformed.discard(path)

    # -- once in a while -----------------------------------------------------------------------------------------------

    def tend(self, take_lock: Callable[[str], bool]) -> bool:
        """Probe all; leave out, fill again. FencedControllerError when another broker reigns, KafkaStorageError when
        all copies have failed; where all are silent nothing happens."""
        epoch = self._epoch
        jobs = {p: partial(c.probe, epoch) for p, c in self._good.items()}
        answers = self._ask(jobs, limit_s=2 * self._patience_s)
        if answers:
            self._leave_out(reasons_of(self._good, answers), answers)
        for path in [path for path in self._all if path not in self._good]:
            self._mend(path, take_lock)
        before = dict(self._registered)
        for found in self.for_good(lambda copy: copy.registered(), limit_s=self._patience_s).values():
            self._registered |= found
        if before != self._registered and self._renew_voters():
            self._number += 1
            self._write_note()
        for path in sorted(self._uninformed):
            self._tell_late(path)
        probed = any(probe.answer is not None and probe.answer.error is None for probe in self._probes.values())
        return probed or bool(self._filling)

    def _mend(self, path: str, take_lock: Callable[[str], bool]) -> None:
        filling = self._filling.get(path)
        if filling is not None:
            if filling.work.answer is not None:
                del self._filling[path]
                self._take_back(path, filling, take_lock)
            return
        copy, probe = self._all[path], self._probes.pop(path, None)
        if probe is None or probe.answer is None:
            self._probes[path] = probe or self._lanes.begin(path, copy.try_again)
            return
        if probe.answer.error is not None:
            self.left_out[path] = str(probe.answer.error)
            return
        sources = self._ask({p: c.log.read for p, c in self._good.items()}, limit_s=READ_PATIENCE_S)
        contents = next((c for c in values_of(sources).values() if c.end_offset == self._end_offset), None)
        if contents is not None:
            cluster_id, registered, epoch = self._cluster_id, dict(self._registered), self._epoch
            log.warning("metadata copy %s works: it is filled up to offset %d", path, contents.end_offset)
            self._filling[path] = _Filling(
                self._lanes.begin(path, lambda: copy.fill(contents, cluster_id, registered, epoch))
            )

    def _take_back(self, path: str, filling: _Filling, take_lock: Callable[[str], bool]) -> None:
        """A copy was filled: what was committed meanwhile, then the note that names it, then it is good."""
        copy, epoch = self._all[path], self._epoch
        assert filling.work.answer is not None
        error = filling.work.answer.error
        if error is None and not take_lock(path):
            error = KafkaStorageError("its lock is another broker's")

        def catch_up() -> None:
            notes.write(self._files, path, self._note())  # not of it yet: it is the place of this reign
            notes.remove_older(self._files, path, epoch)
            copy.append(filling.pending, epoch)
            if copy.log.end_offset != self._end_offset:
                raise KafkaStorageError(f"it ends at {copy.log.end_offset}, expected {self._end_offset}")

        if error is None:
            answer = self._ask({path: catch_up}, limit_s=2 * self._patience_s).get(path)
            error = TimeoutError("no answer") if answer is None else answer.error
        if error is not None:
            self.left_out[path] = str(error)
            log.warning("metadata copy %s could not be filled: %s", path, error)
            return
        self._good[path] = copy
        self.left_out.pop(path, None)
        self._number += 1
        self._write_note()
        if path in self._good:
            fields = told(LogEvent.METADATA_COPY_ONLINE, dir=path)
            log.warning("metadata copy %s is good again, at offset %d", path, self._end_offset, extra=fields)

    # -- asking --------------------------------------------------------------------------------------------------------

    def _ask(
        self, jobs: Mapping[Any, Callable[[], T]], *, patience_s: float | None = None, limit_s: float | None = None
    ) -> dict[Any, Answer[T]]:
        return self._lanes.ask(jobs, patience_s=self._patience_s if patience_s is None else patience_s, limit_s=limit_s)
