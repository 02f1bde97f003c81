"""The embedded metadata store: directories on several disks that the brokers of one machine share.

Each directory of ``metadata.log.dirs`` holds a copy of everything (metadata_copy.py has the names). No consensus: the
operating system's locks elect (election.py), the local file systems keep, notes say which copies are good (notes.py),
and every commit is on all of those (copies.py). A claim is appended before anything else of a reign, with an epoch
above all before it. Locks of network file systems cannot be trusted, so a directory on one is refused.

Owns what one broker does with all that. Blocking: call from threads. ``claim`` waits for as long as another broker
reigns, so it has a thread of its own, one that need not end for the process to end. What a hung directory does to a
call, see lanes.py: it costs ``patience_s`` once, and then that directory is left out.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from holdfast.coordination import notes
from holdfast.coordination.copies import SURVEY_LIMIT_S, Copies
from holdfast.coordination.disk_judge import DiskJudge
from holdfast.coordination.election import Election
from holdfast.coordination.lanes import Lanes, ThreadLanes
from holdfast.coordination.metadata_copy import LOG_DIRECTORY, MetadataCopy
from holdfast.coordination.metadata_log import make_batch
from holdfast.coordination.notes import Note
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import MetadataRecord
from holdfast.metadata.store import (
    Candidate,
    Claim,
    ControllerLocation,
    CopyState,
    Fatal,
    Judgement,
    Loaded,
    Presence,
    ReignNews,
    claim_record,
)
from holdfast.model.errors import (
    ConfigError,
    FencedControllerError,
    HoldfastError,
    KafkaStorageError,
    MetadataMovedError,
)
from holdfast.model.types import BrokerId, ControllerEpoch, Offset, TimestampMs
from holdfast.storage.files import FileSystem, OsFiles
from holdfast.storage.partition_metadata import encode_uuid

__all__ = ["LOG_DIRECTORY", "EmbeddedStore", "Witness"]

log = logging.getLogger(__name__)

SNAPSHOT_BYTES: Final = 128 << 10
"""Log after which a snapshot is wanted, or one as long as the last snapshot: about 2,400 changes, which whoever begins
to reign reads in 60 ms."""
PATIENCE_S: Final = 0.5
CLOSE_S: Final = 1.0
_OS_FILES: Final = OsFiles()
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A broker and its log directories, which keep notes of which copies of the metadata are good.

    ``broker_id``: None: it does not know its id yet, so nobody is told of its directories.
    ``makes_place``: they are other directories (``metadata.witness.dirs``), which hold nothing but notes."""

    broker_id: BrokerId | None
    directories: tuple[str, ...]
    makes_place: bool = False


def _wall_clock_ms() -> TimestampMs:
    return time.time_ns() // 1_000_000


class EmbeddedStore:
    """One broker's handle on the shared directories (MetadataStore).

    ``patience_s``: how long a directory may be silent when another has answered.
    """

    def __init__(
        self,
        directories: str | Sequence[str],
        *,
        files: FileSystem = _OS_FILES,
        snapshot_bytes: int = SNAPSHOT_BYTES,
        clock: Callable[[], TimestampMs] = _wall_clock_ms,
        new_id: Callable[[], UUID] = uuid4,
        lanes: Lanes | None = None,
        readers: Lanes | None = None,
        patience_s: float = PATIENCE_S,
        witness: Witness | None = None,
        apart: Collection[str] = (),
    ) -> None:
        """``apart``: those of the directories that no log directory is, or is in."""
        self._files = files
        given = (directories,) if isinstance(directories, str) else directories
        self._paths = tuple(map(os.path.abspath, given))  # by its path a copy knows that it was copied
        self._new_id = new_id
        self._clock = clock
        self._patience_s = patience_s
        self._witness = witness
        self._lanes = ThreadLanes("metadata") if lanes is None else lanes
        self._readers = readers or (ThreadLanes("metadata-look") if lanes is None else lanes)
        """For what every broker asks while another thread of it may claim or commit."""
        alone = set(map(os.path.abspath, apart))
        self._each = {path: MetadataCopy(path, files, clock, new_id, is_apart=path in alone) for path in self._paths}
        watched = () if witness is None else witness.directories
        self._election = Election(self._paths, files, self._readers, patience_s)
        self._copies = Copies(list(self._each.values()), files, self._lanes, patience_s, watched, self._election.let_go)
        self._snapshot_bytes = snapshot_bytes
        self._mutex = threading.RLock()
        self._cluster_id: str | None = None
        self._claim: Claim | None = None
        self._news: ReignNews | None = None
        self._disks = DiskJudge()
        self._moved: MetadataMovedError | None = None
        self._failure: KafkaStorageError | None = None
        """Nobody knows what of the last commit is where."""
        self._loaded: Loaded | None = None
        self._location: ControllerLocation | None = None
        self._closed = False

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        """The id of the cluster, 22 characters; the first caller of all brokers makes it, in directories that all
        answer. Also says in each copy which log directories this broker has."""
        if self._cluster_id is None:
            with self._mutex:
                self._cluster_id = self._find_cluster_id()
        return self._cluster_id

    def enter(self, me: Presence) -> None:
        """There are no sessions: the controller hears of a broker by its connection and its heartbeats."""

    @property
    def host_ids(self) -> None:
        """They are records (recorded_ids.py)."""
        return None

    def log_dir_failed(self) -> None:
        """Heartbeats tell."""

    def controller_died(self, location: ControllerLocation) -> None:
        """The operating system has given its locks back."""

    def _find_cluster_id(self) -> str:
        noted: dict[str, Note] = {}

        def opened(copy: MetadataCopy) -> str | None:
            copy.prepare()
            if (note := notes.newest(self._files, copy.path)) is not None:
                noted[copy.path] = note
            return copy.cluster_id()

        answers = self._readers.ask(
            {path: partial(opened, copy) for path, copy in self._each.items()},
            patience_s=self._patience_s, limit_s=SURVEY_LIMIT_S,
        )  # fmt: skip
        errors = {path: answer.error for path, answer in answers.items() if answer.error is not None}
        for error in errors.values():
            if isinstance(error, HoldfastError):
                raise error
        good = [path for path in self._paths if path in answers and path not in errors]
        found = {path: answers[path].value for path in good if answers[path].value is not None}
        if len(set(found.values())) > 1:
            several = ", ".join(f"{path} of {cluster_id}" for path, cluster_id in found.items())
            raise ConfigError(f"metadata.log.dirs: {several}: expected copies of one cluster's metadata")
        last = max((noted[path] for path in good if path in noted), key=lambda note: note.order, default=None)
        if last is not None and last.moved is not None:
            raise last.moved.refusal(f"metadata.log.dirs {', '.join(self._paths)}")
        if not good:
            what = "; ".join(f"{path}: {errors.get(path, 'no answer')}" for path in self._paths)
            silent = len(errors) < len(self._paths)  # it may hold everything and answer yet
            raise KafkaStorageError(f"Metadata directories: {what}") from (
                None if silent else next(iter(errors.values()))
            )
        cluster_id = next(iter(found.values()), None) or self._first_cluster_id(good)
        kept = self._at(good, lambda copy: copy.adopt_cluster_id(cluster_id))
        if set(kept) - {cluster_id} or not kept:
            raise KafkaStorageError(f"Metadata directories {', '.join(good)}: the cluster's id could not be kept")
        witness = self._witness
        if witness is not None and witness.broker_id is not None:
            broker_id = witness.broker_id
            self._at(good, lambda copy: copy.register(broker_id, witness.directories))
            if witness.makes_place:
                self._make_places(witness.directories)
        return cluster_id

    def _make_places(self, directories: Sequence[str]) -> None:
        jobs = {("note", path): partial(notes.make_place, self._files, path) for path in directories}
        answers = self._readers.ask(jobs, patience_s=self._patience_s, limit_s=SURVEY_LIMIT_S)
        for key in jobs:
            answer = answers.get(key)
            if answer is None or answer.error is not None:
                why = "no answer" if answer is None else answer.error
                log.warning("metadata.witness.dirs: %s keeps no notes: %s", key[1], why)

    def _first_cluster_id(self, good: Sequence[str]) -> str:
        """A new cluster, if it is one."""
        if len(good) < len(self._paths):
            silent = [path for path in self._paths if path not in good]
            raise KafkaStorageError(f"{', '.join(silent)} cannot be read: a new cluster needs all of metadata.log.dirs")
        _, witnesses = self._copies.survey()
        older = {seen.note.cluster_id for seen in witnesses.values() if seen.note is not None}
        if older:
            # Another broker may have made the cluster while we looked: its id is here before a note of it is elsewhere.
            for made in self._at(good, lambda copy: copy.cluster_id()):
                if made is not None:
                    return str(made)
            raise KafkaStorageError(
                f"{', '.join(self._paths)} are empty, and this broker's log directories are of cluster "
                f"{', '.join(sorted(older))}: bring a disk of its metadata back, or rebuild it with "
                f"`holdfast metadata recover`"
            )
        made = self._at(good[:1], lambda copy: copy.adopt_cluster_id(encode_uuid(self._new_id())))
        if not made:
            raise KafkaStorageError(f"Metadata directory {good[0]}: the cluster's id could not be kept")
        return str(made[0])

    def _at(self, paths: Sequence[str], work: Callable[[MetadataCopy], Any]) -> list[Any]:
        """What came of it where it worked."""
        jobs = {path: partial(work, self._each[path]) for path in paths}
        answers = self._readers.ask(jobs, patience_s=self._patience_s, limit_s=SURVEY_LIMIT_S)
        return [answers[path].value for path in paths if path in answers and answers[path].error is None]

    # -- the claim -----------------------------------------------------------------------------------------------------

    def claim(self, candidate: Candidate, news: ReignNews | None = None) -> Claim:
        """Wait for the locks, recover the log, append the claim, say where the controller is. That a claim is over
        shows when a copy is next written, read or probed; of the lives of brokers nothing is known here."""
        claim = self._judged(lambda: self._claim_now(candidate, news))
        self._disks.worked()
        return claim

    def _judged(self, work: Callable[[], T]) -> T:
        """What came of it; errors of directories are counted (``judge``)."""
        try:
            return work()
        except MetadataMovedError as e:
            self._moved = e
            raise
        except (KafkaStorageError, OSError) as e:
            self._refuse_closed()  # what else went wrong does not matter then
            if isinstance(e, KafkaStorageError):
                self._disks.failed(e)
                raise
            failure = KafkaStorageError(f"Metadata directories {', '.join(self._paths)}: {e}")
            failure.__cause__ = e
            self._disks.failed(failure)
            raise failure from e

    def judge(self) -> Judgement:
        """Fatal when all directories have failed (H-23), or the metadata is in another store."""
        return self._disks.judgement if self._moved is None else Fatal(reason=str(self._moved))

    def _claim_now(self, candidate: Candidate, news: ReignNews | None) -> Claim:
        self._refuse_closed()
        if self._election.is_held:
            self._election.release()  # of a reign that ended without ``resign``
        self.cluster_id()
        self._election.take()
        try:
            with self._mutex:
                self._refuse_closed()
                claim, self._news = self._begin_reign(candidate), news
                return claim
        except BaseException:
            self._election.release()
            raise

    def in_passing(
        self, reigner: BrokerId, decide: Callable[[ClusterImage], tuple[Sequence[MetadataRecord], T]]
    ) -> T | None:
        """Reign for one decision, if nobody reigns: what it comes to, once its records are kept; None: somebody has the
        locks. For who cannot be the controller and finds none (KIP-426: a broker without an id).

        ``reigner``: a number below -1, drawn at random, which tells those apart that do this at the same time. Nobody
        is told of the reign. Errors as of ``claim`` and ``commit``."""
        self._refuse_closed()
        self.cluster_id()
        try:
            if not self._judged(self._election.try_take):
                return None
            result = self._judged(lambda: self._decide_once(reigner, decide))
        finally:
            self.resign()
            self._election.let_go_of_all()
        self._disks.worked()
        return result

    def _decide_once(
        self, reigner: BrokerId, decide: Callable[[ClusterImage], tuple[Sequence[MetadataRecord], T]]
    ) -> T:
        with self._mutex:
            self._refuse_closed()
            claim = self._begin_reign(Candidate(broker_id=reigner, host="", port=0), tell=False)
            loaded = self.load(claim)
            image, _ = ClusterImage.empty(self.cluster_id()).apply(loaded.records, loaded.base_offset)
            records, result = decide(image)
            if records:
                self.commit(records, claim.epoch)
            return result

    def _refuse_closed(self) -> None:
        if self._closed:
            raise FencedControllerError("The metadata store is closed")

    def _begin_reign(self, candidate: Candidate, *, tell: bool = True) -> Claim:
        self._claim = self._failure = self._news = None
        records, epoch = self._copies.begin(candidate.broker_id, self.cluster_id())
        claim = Claim(epoch=epoch, candidate=candidate)
        opening = claim_record(claim)
        self._append([opening], epoch)
        self._loaded = Loaded(records=(*records, opening), end_offset=self._copies.end_offset)
        self._claim = claim
        if tell:
            self._write_location(claim)
        return claim

    def _write_location(self, claim: Claim) -> None:
        where = ControllerLocation.of(claim)
        self._copies.for_good(lambda copy: copy.write_location(where), limit_s=self._patience_s)

    def _append(self, records: Sequence[MetadataRecord], epoch: ControllerEpoch) -> Offset:
        base = self._copies.end_offset
        self._copies.commit(make_batch(records, base, epoch, self._clock()))
        return base

    def resign(self) -> None:
        """Give the locks to whoever waits for them."""
        with self._mutex:
            claim, self._claim, self._loaded, self._news = self._claim, None, None, None
            for copy in self._each.values():
                copy.log.close()
            if not self._election.is_held:
                return
            try:
                if claim is not None:
                    self._copies.for_good(lambda copy: copy.remove_location(), limit_s=self._patience_s)
            finally:
                self._election.release()

    def close(self) -> None:
        """Resign; a claim that still waits fails when it would get the locks, and so does a commit that waits for a
        disk."""
        self._closed = True
        if self._mutex.acquire(timeout=CLOSE_S):
            try:
                self.resign()
            finally:
                self._mutex.release()
        else:
            self._election.release()
        self._lanes.close()
        self._readers.close()

    def _check(self, fence: ControllerEpoch) -> None:
        if self._claim is None or self._claim.epoch != fence:
            held = "none" if self._claim is None else f"epoch {self._claim.epoch}"
            raise FencedControllerError(f"Controller epoch {fence} is over: the claim held here is {held}")
        if self._failure is not None:
            raise self._failure

    # -- the log -------------------------------------------------------------------------------------------------------

    def load(self, claim: Claim) -> Loaded:
        """What recovery found, and the claim. Once per claim: it is not kept."""
        with self._mutex:
            self._check(claim.epoch)
            loaded, self._loaded = self._loaded, None
            assert loaded is not None, "load once after a claim"
            return loaded

    def commit(
        self,
        records: Sequence[MetadataRecord],
        fence: ControllerEpoch,
        *,
        before: ClusterImage | None = None,
        after: ClusterImage | None = None,
    ) -> Offset:
        """Append one batch to every good copy and sync it. After an error the claim is over: nobody knows whether it
        counts before the next claim has looked. The records are what is kept: the images are of no use."""
        with self._mutex:
            self._check(fence)
            return self._or_end(lambda: self._append(records, fence))

    def _or_end(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except FencedControllerError as e:
            self._claim = None
            self._lose(e)
            raise
        except HoldfastError as e:
            self._failure = KafkaStorageError(f"{e}: nothing more is written before the next claim")
            self._lose(e)
            raise

    def _lose(self, why: HoldfastError) -> None:
        news, self._news = self._news, None
        if news is not None:
            news.lost(str(why))

    @property
    def max_records(self) -> int | None:
        """A batch is appended whole or not at all, of whatever size."""
        return None

    @property
    def wants_snapshot(self) -> bool:
        """Whether the log is so long that ``snapshot`` should be called."""
        return self._copies.wants_snapshot(self._snapshot_bytes)

    def snapshot(self, image: ClusterImage, fence: ControllerEpoch) -> None:
        """Replace the log so far by ``image``, which must be the one after the last commit."""
        with self._mutex:
            self._check(fence)
            end_offset = self._copies.end_offset
            assert image.next_offset == end_offset, f"image {image.offset}, log {end_offset}"
            records = list(image.to_records())
            self._or_end(lambda: self._copies.snapshot(records))

    def tend(self, fence: ControllerEpoch) -> bool:
        """Probe every copy, leave out what fails, fill again what works."""
        with self._mutex:
            self._check(fence)
            before = set(self._copies.good)
            soon = self._or_end(self._tend)
            if self._claim is not None and set(self._copies.good) - before:
                self._write_location(self._claim)
            return soon

    def _tend(self) -> bool:
        try:
            return self._copies.tend(self._election.take_one)
        except KafkaStorageError as e:
            self._disks.failed(e)
            raise

    @property
    def directories(self) -> tuple[str, ...]:
        """Of the copies."""
        return self._paths

    def copies(self) -> list[CopyState]:
        """As the broker that reigns sees them; empty elsewhere. Reads no disk."""
        if self._claim is None:
            return []
        stuck = getattr(self._lanes, "stuck_since_s", None) is not None
        good, left_out = self._copies.good, dict(self._copies.left_out)
        return [
            CopyState(path=path, is_good=path in good, answers=not stuck, reason=left_out.get(path))
            for path in self._paths
        ]

    # -- where the controller is ---------------------------------------------------------------------------------------

    def active(self) -> ControllerLocation | None:
        """Of what the copies that answer say, the one of the highest epoch. None of them answers: as it was."""
        jobs = {("location", path): copy.location for path, copy in self._each.items()}
        answers = self._readers.ask(jobs, patience_s=0.02, limit_s=self._patience_s)
        found = [answer.value for answer in answers.values() if answer.error is None]
        if found:
            self._location = max((f for f in found if f is not None), key=lambda f: f.epoch, default=None)
        return self._location
