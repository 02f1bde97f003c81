"""The metadata store on a ZooKeeper ensemble: Kafka's znodes, and a few of ours beside them.

    cluster_id -> enter -> claim -> load -> commit, commit, ... -> resign | the session expires | another one claims

Owns what one broker does with the ensemble, each part in a module: its session (zookeeper_link.py), the election
(zookeeper_election.py), the nodes of live brokers (zookeeper_brokers.py) and of their hosts (zookeeper_ids.py), what is
read and written of the metadata (zookeeper_tree.py, zookeeper_writer.py). Here is what holds them together: the present
reign, which begins with a claim and ends once, and by whatever comes first. A session that is resumed goes on with its
reign, as nobody else can have claimed; one that has expired never does: its claim is lost, and what it says is refused
(H-08).

Blocking: call from threads, but ``enter`` and ``controller_died``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID, uuid4

from holdfast.client.outgoing import Outgoing
from holdfast.coordination import zookeeper_tree as tree
from holdfast.coordination.zookeeper_acls import AclCheck
from holdfast.coordination.zookeeper_brokers import LiveBrokers, OwnNode
from holdfast.coordination.zookeeper_client import (
    AccessError,
    ConnectionLostError,
    SessionExpiredError,
    SessionState,
    ZooKeeperClient,
    ZooKeeperError,
)
from holdfast.coordination.zookeeper_config_changes import ConfigChanges
from holdfast.coordination.zookeeper_election import ControllerElection, Won
from holdfast.coordination.zookeeper_events import LogDirEvents
from holdfast.coordination.zookeeper_ids import HostGarbage, ZooKeeperBrokerIds
from holdfast.coordination.zookeeper_link import CLOSED, MAX_RETRY_S, Errands, Link
from holdfast.coordination.zookeeper_requests import ToolRequests
from holdfast.coordination.zookeeper_writer import Writer
from holdfast.metadata import znode_paths, znodes
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import ConfigRecord, ControllerClaimRecord, MetadataRecord
from holdfast.metadata.store import (
    Asked,
    Candidate,
    Claim,
    ControllerLocation,
    CopyState,
    Fatal,
    Judgement,
    Loaded,
    Presence,
    ReignNews,
    Retry,
    claim_record,
)
from holdfast.metadata.znode_writes import Multi
from holdfast.metadata.znodes import TreeWriter
from holdfast.model.errors import FencedControllerError, HoldfastError, KafkaStorageError, MetadataMovedError
from holdfast.model.types import BrokerId, ControllerEpoch, Offset, TimestampMs
from holdfast.storage.partition_metadata import encode_uuid

log = logging.getLogger(__name__)

T = TypeVar("T")
CONNECT_S: Final = 18.0
OWN_NODE_S: Final = 1.0
"""Whoever cannot have a node, as another has its id, may still have what nobody else takes."""
NEWS_BETWEEN: Final = 500
"""Configurations that are changed until old news of them are removed."""
TRIES: Final = 15
"""Answers and sessions that may be lost before the id of the cluster is known, some seconds apart."""
MAX_RECORDS: Final = 5_000
"""Of a commit: some 2 MB of znodes."""


class StoreLane(Protocol):
    """Threads that do one thing after the other (Lanes)."""

    def begin(self, key: str, job: Callable[[], Any]) -> Any: ...

    def close(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class _Reign:
    """One claim. ``writer`` and ``image``: once its metadata is loaded."""

    claim: Claim
    won: Won
    news: ReignNews | None
    writer: Writer | None = None
    nodes: TreeWriter | None = None
    image: ClusterImage | None = None


class ZooKeeperStore:
    """See the module's docstring (MetadataStore). ``connect`` makes a client that is not started; ``sets_acls``: what
    it makes is not anybody's (zookeeper.set.acl), so what was there before is looked at."""

    def __init__(
        self,
        connect: Callable[[], ZooKeeperClient],
        lanes: StoreLane,
        *,
        wall_ms: Callable[[], TimestampMs],
        new_id: Callable[[], UUID] = uuid4,
        connect_timeout_s: float = CONNECT_S,
        outgoing: Outgoing | None = None,
        sets_acls: bool = False,
    ) -> None:
        self._lanes = lanes
        self._new_id = new_id
        self._mutex = threading.RLock()
        self._errands = Errands(lanes)
        self._link = Link(connect, self._errands, self._told, connect_timeout_s=connect_timeout_s)
        self._election = ControllerElection(self._link, self._errands, self._not_ours, wall_ms)
        self._own = OwnNode(self._link, self._errands, wall_ms, self._entered)
        self.host_ids = ZooKeeperBrokerIds(self._link, self._errands, outgoing)
        """Which host has which broker id."""
        self._garbage = HostGarbage(self._link, self._errands)
        self._live = LiveBrokers(self._link, self._errands, self._gone, self._garbage.look_soon)
        self._events = LogDirEvents(self._link, self._errands, self._dir_failed)
        self._requests = ToolRequests(self._link, self._errands, self._ask)
        self._config_changes = ConfigChanges(self._link, self._errands)
        self._acl_check = AclCheck(self._link, self._errands) if sets_acls else None
        self._broker_id: BrokerId | None = None
        self._cluster_id: str | None = None
        self._reign: _Reign | None = None
        self._won: Won | None = None
        """To be given back."""
        self._refused: AccessError | MetadataMovedError | None = None
        self._closed = False
        self._news_left = NEWS_BETWEEN

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        """The id of the cluster; the first broker of all makes it, and all that a tree begins with. ConnectionLostError
        when no server answers in time."""
        tries = 0
        while self._cluster_id is None:
            has_session = False
            try:
                client = self._link.client()
                has_session = True
                self._cluster_id = self._prepared(client)
            except (ConnectionLostError, SessionExpiredError) as e:  # this process was stopped, or a server
                nobody_answers = isinstance(e, ConnectionLostError) and not has_session
                tries += 1
                if nobody_answers or tries == TRIES or self._errands.wait(MAX_RETRY_S):
                    raise
                log.warning("%s, and the id of the cluster was not known yet", e)
        return self._cluster_id

    def has_cluster(self) -> bool:
        """Whether ``cluster_id`` would make none."""
        return self._link.client().get(znode_paths.CLUSTER_ID) is not None

    def _prepared(self, client: ZooKeeperClient) -> str:
        tree.refuse_moved(client)
        return tree.prepare(client, self._errands, encode_uuid(self._new_id()))

    def enter(self, me: Presence) -> None:
        """Make /brokers/ids/N, now and in every session to come."""
        self._broker_id = me.broker_id
        self._own.enter(me)
        if self._acl_check is not None:
            self._acl_check.begin()

    def _entered(self, me: Presence) -> None:
        host = me.host
        if host is not None:
            self._errands.post("host of this broker", lambda: self.host_ids.keep(host, me.broker_id))

    def log_dir_failed(self) -> None:
        """Make a node below /log_dir_event_notification (K112-22)."""
        if self._broker_id is not None:
            self._events.announce(self._broker_id)

    # -- the claim -----------------------------------------------------------------------------------------------------

    def claim(self, candidate: Candidate, news: ReignNews | None = None) -> Claim:
        """Wait for /controller; where the tree is there already, for the ensemble too, as long as it takes."""
        self._refuse_closed()
        self.resign()
        try:
            self.cluster_id()
            self._own.wait_made(OWN_NODE_S)
            won = self._election.take(candidate)
        except (AccessError, MetadataMovedError) as e:
            self._refused = e
            raise
        claim = Claim(epoch=won.epoch, candidate=candidate)
        with self._mutex:
            self._reign, self._won, self._refused = _Reign(claim=claim, won=won, news=news), won, None
            if self._closed:
                self._reign = None
                raise FencedControllerError(CLOSED)
        self._election.look_soon()  # what was lost before this line is seen once more
        return claim

    def judge(self) -> Judgement:
        """Fatal when the ensemble does not let this broker in, or the metadata is in another store."""
        if self._refused is None:
            return Retry()
        is_moved = isinstance(self._refused, MetadataMovedError)
        return Fatal(reason=str(self._refused) if is_moved else f"ZooKeeper refuses this broker: {self._refused}")

    def _refuse_closed(self) -> None:
        if self._closed:
            raise FencedControllerError(CLOSED)

    def resign(self) -> None:
        """Delete /controller."""
        with self._mutex:
            self._reign = None
            won, self._won = self._won, None
        self._end()
        if won is not None:
            self._election.give_back(won)

    def close(self) -> None:
        """End the session, and with it all that it holds."""
        with self._mutex:
            self._closed = True
            self._reign = self._won = None
        self._end()
        self._errands.end()
        self._election.wake()
        self._link.close()
        self._lanes.close()

    def _end(self) -> None:
        """Of a reign: nothing is watched for it any more."""
        for part in (self._live, self._garbage, self._events, self._requests, self._config_changes):
            part.end()

    def _check(self, fence: ControllerEpoch) -> _Reign:
        reign = self._reign
        if reign is None or reign.claim.epoch != fence:
            held = "none" if reign is None else f"epoch {reign.claim.epoch}"
            raise FencedControllerError(f"Controller epoch {fence} is over: the claim held here is {held}")
        return reign

    # -- news ----------------------------------------------------------------------------------------------------------

    def _told(self, client: ZooKeeperClient, state: SessionState) -> None:
        """Of a session's state, from any thread."""
        if state is SessionState.SUSPENDED:
            return
        if state is SessionState.EXPIRED:
            reign = self._reign
            if reign is not None and reign.won.client is client:
                self._lose(reign.won, f"ZooKeeper session 0x{client.session_id:x} has expired")
        self._election.wake()
        self._election.look_soon()
        self._own.look_soon()

    def _not_ours(self, won: Won, why: str) -> None:
        self._lose(won, why)

    def _lose(self, won: Won, why: str) -> None:
        with self._mutex:
            reign = self._reign
            if reign is None or reign.won is not won:
                return
            self._reign = None
            self._end()  # here, as the next reign may begin at once
        log.warning("controller epoch %d is over: %s", won.epoch, why)
        if reign.news is not None:
            reign.news.lost(why)

    def _gone(self, broker_id: BrokerId, incarnation_id: UUID) -> None:
        reign = self._reign
        if reign is None or reign.image is None or reign.news is None:
            return
        broker = reign.image.brokers.get(broker_id)
        if broker is None or broker.incarnation_id != incarnation_id or broker_id == reign.claim.candidate.broker_id:
            return
        log.info("the session of broker %d is over", broker_id)
        reign.news.broker_gone(broker_id, broker.epoch)

    def _dir_failed(self, broker_id: BrokerId) -> None:
        reign = self._reign
        if reign is not None and reign.news is not None:
            reign.news.log_dir_failed(broker_id)

    def _ask(self, asked: Asked, decided: Callable[[], None]) -> None:
        reign = self._reign
        if reign is not None and reign.news is not None:
            reign.news.asked(asked, decided)

    # -- the metadata --------------------------------------------------------------------------------------------------

    def load(self, claim: Claim) -> Loaded:
        """What the tree says, and the claim, which is written here."""
        reign = self._check(claim.epoch)
        return self._or_end(reign, lambda: self._load(reign))

    def _load(self, reign: _Reign) -> Loaded:
        won, claim = reign.won, reign.claim
        tree.refuse_moved(won.client)  # what marks it so from now on finds that the epoch is another
        tree.prepare_reign(won.client, self._errands)
        reading = tree.read(won.client)
        tail = won.client.get(znode_paths.METADATA_LOG)
        if tail is None:
            raise KafkaStorageError(f"{znode_paths.METADATA_LOG} has gone: expected where the metadata log ends")
        end_offset = reading.end_offset
        writer = Writer(
            self._link, self._errands, won,
            tail_version=tail.stat.version, tail=tail.data, end_offset=end_offset,
        )  # fmt: skip
        before = [record for record in reading.records if not isinstance(record, ControllerClaimRecord)]
        records: list[MetadataRecord] = [*before, claim_record(claim)]
        image, _ = ClusterImage.empty(self.cluster_id()).apply(records, end_offset + 1 - len(records))
        opening = Multi(writes=(znodes.log_end(image, end_offset + 1),), end_offset=end_offset + 1)
        writer.write(tree.steps([*tree.repairs(reading), opening], tail.data, end_offset))
        reign.writer, reign.nodes, reign.image = writer, TreeWriter(reading.emptied), image
        self._live.begin(won, image, claim.candidate.broker_id)
        self._garbage.begin(won)
        self._tidy_soon()
        self._events.begin(won)
        self._requests.begin(won, image)
        self._config_changes.begin(won)
        return Loaded(records=tuple(records), end_offset=end_offset + 1, image=image)

    def commit(
        self, records: Sequence[MetadataRecord], fence: ControllerEpoch, *, before: ClusterImage, after: ClusterImage
    ) -> Offset:
        """Write what the records change, as of ``after``, in multis that are under way at the same time."""
        reign = self._check(fence)
        return self._or_end(reign, lambda: self._commit(reign, records, before, after))

    def _commit(
        self, reign: _Reign, records: Sequence[MetadataRecord], before: ClusterImage, after: ClusterImage
    ) -> Offset:
        writer, nodes = reign.writer, reign.nodes
        assert writer is not None and nodes is not None, "load comes before the first commit"
        base_offset = writer.end_offset
        assert before.next_offset == base_offset, f"image {before.offset}, log {base_offset}"
        steps = tree.steps(nodes.writes(before, after, records, tree.LIMIT_BYTES), writer.tail, base_offset)
        writer.write(steps)
        self._news_left -= sum(isinstance(record, ConfigRecord) for record in records)
        if self._news_left < 0:
            self._tidy_soon()
        reign.image = after
        self._live.follow(before, after)
        self._requests.follow(records, after)
        self._config_changes.follow(records)
        return base_offset

    def _tidy_soon(self) -> None:
        """Nobody of ours reads /config/changes: what is old there goes."""
        self._news_left = NEWS_BETWEEN
        reign = self._reign
        if reign is not None:
            self._errands.post(f"old news, epoch {reign.won.epoch}", lambda: tree.tidy(reign.won, self._errands))

    def _or_end(self, reign: _Reign, work: Callable[[], T]) -> T:
        """An error ends the claim: nobody knows what was written."""
        try:
            return work()
        except SessionExpiredError as e:
            self._lose(reign.won, str(e))
            raise FencedControllerError(f"Controller epoch {reign.claim.epoch} is over: {e}") from e
        except ZooKeeperError as e:
            self._lose(reign.won, str(e))
            raise KafkaStorageError(f"ZooKeeper: {e}") from e
        except HoldfastError as e:
            if isinstance(e, MetadataMovedError):
                self._refused = e
            self._lose(reign.won, str(e))
            raise

    @property
    def max_records(self) -> int | None:
        """A commit is some multis long: what is decided meanwhile goes into the next one."""
        return MAX_RECORDS

    @property
    def wants_snapshot(self) -> bool:
        """The tree is one at any time."""
        return False

    def snapshot(self, image: ClusterImage, fence: ControllerEpoch) -> None:
        """Nothing is to be done."""
        self._check(fence)

    def tend(self, fence: ControllerEpoch) -> bool:
        """The ensemble looks after its copies itself."""
        self._check(fence)
        return False

    @property
    def directories(self) -> tuple[str, ...]:
        """None on this machine."""
        return ()

    def copies(self) -> list[CopyState]:
        """The ensemble's servers are not looked at."""
        return []

    # -- where the controller is ---------------------------------------------------------------------------------------

    def active(self) -> ControllerLocation | None:
        """What /controller said last; its watch tells when that is old. Only the first call asks the ensemble."""
        return None if self._closed else self._election.location()

    def controller_died(self, location: ControllerLocation) -> None:
        """Its node need not be waited for."""
        self._election.died(location)
