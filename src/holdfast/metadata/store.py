"""Where the cluster's metadata is kept and who may write it: the MetadataStore protocol, and one in memory.

A store does three things: it lets one broker at a time be the controller (``claim``), it keeps the records that the
controller decided (``commit``), and it tells any broker where the controller is (``active``). It never looks into
a decision.

    claim -> load -> commit, commit, ... -> resign | the process dies | another one claims

Invariants, checked by one contract suite for every store: a claim has a higher epoch than every claim before it;
its ControllerClaimRecord is in the log before anything else of that reign; after it nothing of an earlier reign is
ever written; what ``commit`` returned for is there after any crash; offsets are contiguous from 0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias
from uuid import UUID

from holdfast.metadata.broker_ids import OwnMapping
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.pieces import pieces
from holdfast.metadata.records import ControllerClaimRecord, MetadataRecord
from holdfast.model.errors import FencedControllerError, KafkaStorageError
from holdfast.model.listeners import Endpoint, Endpoints, SecurityProtocol
from holdfast.model.types import BrokerEpoch, BrokerId, ControllerEpoch, Offset, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A broker that is ready to be the controller, and where it will listen."""

    broker_id: BrokerId
    host: str
    port: int
    listener: str = SecurityProtocol.PLAINTEXT.name
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @classmethod
    def at(cls, broker_id: BrokerId, endpoint: Endpoint) -> "Candidate":
        """A broker that is asked there."""
        return cls(
            broker_id=broker_id,
            host=endpoint.host,
            port=endpoint.port,
            listener=endpoint.name,
            security_protocol=endpoint.security_protocol,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """A broker that lives, as it says itself."""

    broker_id: BrokerId
    incarnation_id: UUID
    endpoints: Endpoints
    rack: str | None = None
    host: str | None = None
    """What its host is called, for a store that keeps which id it has (KIP-426); None: nothing is kept of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to write, until another broker claims."""

    epoch: ControllerEpoch
    candidate: Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerLocation:
    """The active controller, as a store tells it to everybody. It may have died a moment ago."""

    broker_id: BrokerId
    host: str
    port: int
    epoch: ControllerEpoch
    listener: str = SecurityProtocol.PLAINTEXT.name
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @classmethod
    def of(cls, claim: Claim) -> "ControllerLocation":
        """Where whoever has the claim is asked."""
        to = claim.candidate
        return cls(
            broker_id=to.broker_id,
            host=to.host,
            port=to.port,
            epoch=claim.epoch,
            listener=to.listener,
            security_protocol=to.security_protocol,
        )

    @property
    def endpoint(self) -> Endpoint:
        """Its address, and how it is spoken to."""
        return Endpoint(name=self.listener, host=self.host, port=self.port, security_protocol=self.security_protocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the log says: records in order, perhaps shortened to a snapshot, and the offset after the last one."""

    records: Sequence[MetadataRecord]
    end_offset: Offset
    image: ClusterImage | None = None
    """What the records amount to, where the store has found out."""

    def applied(self, cluster_id: str) -> ClusterImage:
        """What the records amount to. It takes a third of a second for 20,000 partitions."""
        if self.image is not None:
            return self.image
        return ClusterImage.empty(cluster_id).apply(self.records, self.base_offset)[0]

    @property
    def base_offset(self) -> Offset:
        """What to give ClusterImage.apply with ``records``, so that the image ends at ``end_offset``. After a
        snapshot it says nothing else: there are fewer records than offsets."""
        return self.end_offset - len(self.records)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """One copy of the metadata, as the active controller sees it. ``reason``: why it is left out."""

    path: str
    is_good: bool
    answers: bool
    """False while none of them does: decisions wait."""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Another claim may work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fatal:
    """No claim of this process will work: it ends. ``reason`` is its last line, in Kafka's words where it has them."""

    reason: str


Judgement: TypeAlias = Retry | Fatal


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionAsked:
    """A tool wants these topics gone."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionAsked:
    """A tool wants the preferred replicas of these to lead."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentAsked:
    """A tool wants partitions on these brokers."""

    replicas: Mapping[TopicPartition, tuple[BrokerId, ...]]


Asked: TypeAlias = DeletionAsked | ElectionAsked | ReassignmentAsked
"""What tools ask through a store that they know: Kafka's, of its znodes (R-28)."""


class ReignNews(Protocol):
    """What a store tells of its own accord to whoever has the claim.

    Called from any thread, also before ``claim`` has returned, and never once ``resign`` or ``close`` has. The store
    may hold its own locks: what is called returns at once, raises nothing, and does not call the store.
    """

    def lost(self, reason: str) -> None:
        """The claim is over, and was not given back: whatever is decided by it now is not written. Once a claim."""
        ...

    def broker_gone(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        """This incarnation of a broker is dead, as its session in the store is over.

        Only of a store that has sessions. The embedded store has none: its controllers hear of brokers by heartbeats
        and connections alone, which a store with sessions does not replace."""
        ...

    def log_dir_failed(self, broker_id: BrokerId) -> None:
        """This broker has told in the store that a log directory of it failed: which replicas that concerns it answers
        to LeaderAndIsr (K112-23). Only of a store through which brokers tell that (MetadataStore.log_dir_failed)."""
        ...

    def asked(self, asked: Asked, decided: Callable[[], None]) -> None:
        """A tool asks something. ``decided`` is to be called when that is recorded, or refused; not when the claim is
        over before: whoever claims next hears of it. Only of a store of which there are tools of others."""
        ...


class MetadataStore(Protocol):
    """One cluster's metadata log, as one broker sees it. Calls may block: never on an event loop, except ``copies``."""

    def cluster_id(self) -> str:
        """The cluster's id; made once, by whoever asks first."""
        ...

    def enter(self, me: Presence) -> None:
        """This broker lives from now on until ``close`` or its end: a store with sessions says so where others see it.
        Another than the registration, which the controller decides. Returns at once, raises nothing."""
        ...

    def claim(self, candidate: Candidate, news: ReignNews | None = None) -> Claim:
        """Wait until ``candidate`` is the controller; ``news`` hears what becomes of the claim.

        FencedControllerError when the store was closed meanwhile, KafkaStorageError when what is kept cannot be read or
        written."""
        ...

    def judge(self) -> Judgement:
        """What follows from the errors so far, asked after a claim that failed or a reign that an error ended. What is
        bad about the disks or the servers behind a store is its own to know. Reads none of them."""
        ...

    def load(self, claim: Claim) -> Loaded:
        """Everything committed before and by ``claim``; its own claim record is the last."""
        ...

    def commit(
        self, records: Sequence[MetadataRecord], fence: ControllerEpoch, *, before: ClusterImage, after: ClusterImage
    ) -> Offset:
        """Append all and return the offset of the first one; durable on return.

        A store that cannot write so much at once cuts it: after a crash in between a prefix of it is there, which ends
        between two atoms (metadata/pieces.py; what is of no use without the rest is never there alone). ``Loaded`` has
        that prefix, or nothing of it. The caller guarantees that whoever claims next can go on from each such prefix:

        * decisions follow each other in the order in which they were taken, and each is whole before the next;
        * what goes (a broker that is fenced, drains, is forgotten or registers anew) goes after all that leaves it;
        * what comes (a broker that is active now, a topic) comes before all that leans on it;
        * an atom is one thing of which a client hears whether it was done.

        What a store writes of a thing is then as of the end of the piece: ``before.apply`` has the images in between.

        ``before`` and ``after`` are the images at the offset of the first record and behind the last one: for a store
        that keeps whole states instead of changes. Neither is looked into by one that keeps the records.

        FencedControllerError when ``fence`` is not the epoch of the current claim: nothing was written. After any other
        error nobody knows how much was: the claim is over.
        """
        ...

    @property
    def max_records(self) -> int | None:
        """How many records a commit should have, None: it does not matter. Who commits takes no further decision into
        one that has as many. A single decision may have more."""
        ...

    @property
    def wants_snapshot(self) -> bool:
        """Whether a ``snapshot`` would help the next ``load``."""
        ...

    def snapshot(self, image: ClusterImage, fence: ControllerEpoch) -> None:
        """Replace the log so far by an image, the one after the last commit; offsets go on."""
        ...

    def tend(self, fence: ControllerEpoch) -> bool:
        """Called about every second of a reign: notice what does not work, mend what works again. Whether it should be
        called again soon, as something is being mended.

        FencedControllerError when the claim is lost, KafkaStorageError when nothing can be written any more."""
        ...

    @property
    def directories(self) -> tuple[str, ...]:
        """Absolute paths on this machine of which each holds all of the metadata; none in a store that is elsewhere."""
        ...

    def copies(self) -> list[CopyState]:
        """The copies that are kept, in a store that keeps several and of which this broker has the claim; else none."""
        ...

    def active(self) -> ControllerLocation | None:
        """Who the controller is; None when there is none. Cheap enough to poll every few tens of ms."""
        ...

    @property
    def host_ids(self) -> OwnMapping | None:
        """Which host has which broker id, in a store that keeps it apart from the records; None: it is among them, and
        who decides on those decides on it too."""
        ...

    def log_dir_failed(self) -> None:
        """A log directory of this broker has failed: where brokers tell that through the store, it is told there too,
        beside the heartbeat that tells it. Returns at once, raises nothing. ``enter`` comes before."""
        ...

    def controller_died(self, location: ControllerLocation) -> None:
        """The port of this controller refuses: who claims need not wait for the end of its session. Returns at once. In
        a store without sessions nothing follows, as what its controllers hold is free when their processes are."""
        ...

    def resign(self) -> None:
        """Give the claim back. Nothing happens without one."""
        ...

    def close(self) -> None:
        """Resign and let a waiting ``claim`` fail. The store is not used afterwards."""
        ...


@dataclass(slots=True)
class SharedMemory:
    """What the in-memory stores of one cluster share: the log and the holder of the claim."""

    cluster_id: str = "holdfast-in-memory-id-"
    log: list[MetadataRecord] = field(default_factory=list)
    start: Offset = 0
    """What to add to a place in ``log`` for its offset; of the records of a snapshot it means nothing."""
    epoch: ControllerEpoch = 0
    location: ControllerLocation | None = None
    news: ReignNews | None = None
    """Of whoever has the claim."""


class InMemoryStore:
    """A store for tests and simulation: nothing blocks, a claim takes over at once, as after an expired session.

    ``on_commit`` is told every commit before it happens; a test may raise in it. With ``max_records`` a commit is cut
    into pieces of so many records, and each is told.
    """

    __slots__ = ("_claim", "_closed", "_failed", "_shared", "max_records", "on_commit")

    def __init__(self, shared: SharedMemory | None = None, *, max_records: int | None = None) -> None:
        self._shared = SharedMemory() if shared is None else shared
        self.max_records = max_records
        self._claim: Claim | None = None
        self._closed = False
        self._failed = False
        """A commit: nobody knows how much of it is there."""
        self.on_commit: Callable[[Sequence[MetadataRecord]], None] | None = None

    def cluster_id(self) -> str:
        return self._shared.cluster_id

    def claim(self, candidate: Candidate, news: ReignNews | None = None) -> Claim:
        if self._closed:
            raise FencedControllerError("The metadata store is closed")
        self.resign()
        shared = self._shared
        shared.epoch += 1
        claim = Claim(epoch=shared.epoch, candidate=candidate)
        shared.location = ControllerLocation.of(claim)
        shared.log.append(claim_record(claim))
        self._claim, self._failed = claim, False
        before, shared.news = shared.news, news
        if before is not None:
            before.lost(f"broker {candidate.broker_id} has claimed with epoch {claim.epoch}")
        return claim

    def enter(self, me: Presence) -> None:
        """Nobody looks."""

    @property
    def host_ids(self) -> None:
        """Records say it."""
        return None

    def log_dir_failed(self) -> None:
        """Heartbeats tell."""

    def controller_died(self, location: ControllerLocation) -> None:
        """A claim takes over at once."""

    def end_session(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        """For a test: have whoever has the claim hear that the session of a broker is over."""
        if self._shared.news is not None:
            self._shared.news.broker_gone(broker_id, broker_epoch)

    def judge(self) -> Judgement:
        return Retry()

    def load(self, claim: Claim) -> Loaded:
        self._check(claim.epoch)
        return Loaded(records=tuple(self._shared.log), end_offset=self._shared.start + len(self._shared.log))

    def commit(
        self,
        records: Sequence[MetadataRecord],
        fence: ControllerEpoch,
        *,
        before: ClusterImage | None = None,
        after: ClusterImage | None = None,
    ) -> Offset:
        """Images may be left out; those that are given must be of these offsets."""
        self._check(fence)
        base_offset = self._shared.start + len(self._shared.log)
        assert before is None or before.next_offset == base_offset, f"image {before.offset} before {base_offset}"
        end_offset = base_offset + len(records)
        assert after is None or after.next_offset == end_offset, f"image {after.offset}, log will end at {end_offset}"
        self._failed = True
        for piece in [records] if self.max_records is None else pieces(records, self.max_records):
            if self.on_commit is not None:
                self.on_commit(piece)
            self._shared.log.extend(piece)
        self._failed = False
        return base_offset

    @property
    def wants_snapshot(self) -> bool:
        return False

    def snapshot(self, image: ClusterImage, fence: ControllerEpoch) -> None:
        self._check(fence)
        shared = self._shared
        shared.start += len(shared.log)
        shared.log = list(image.to_records())
        shared.start -= len(shared.log)

    def tend(self, fence: ControllerEpoch) -> bool:
        self._check(fence)
        return False

    @property
    def directories(self) -> tuple[str, ...]:
        return ()

    def copies(self) -> list[CopyState]:
        return []

    def active(self) -> ControllerLocation | None:
        return self._shared.location

    def resign(self) -> None:
        if self._claim is not None and self._shared.epoch == self._claim.epoch:
            self._shared.location = self._shared.news = None
        self._claim = None

    def close(self) -> None:
        self._closed = True
        self.resign()

    def _check(self, fence: ControllerEpoch) -> None:
        if self._claim is None or self._claim.epoch != fence or self._shared.epoch != fence:
            raise FencedControllerError(
                f"Controller epoch {fence} is over: the metadata log is at epoch {self._shared.epoch}"
            )
        if self._failed:
            raise KafkaStorageError(f"A commit of controller epoch {fence} has failed: claim again")


def claim_record(claim: Claim) -> ControllerClaimRecord:
    """The record that opens the reign of ``claim``."""
    return ControllerClaimRecord(
        controller_epoch=claim.epoch,
        broker_id=claim.candidate.broker_id,
        host=claim.candidate.host,
        port=claim.candidate.port,
    )
