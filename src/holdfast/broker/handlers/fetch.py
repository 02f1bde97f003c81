"""Fetch (API 1): batches out, to consumers and to followers.

Versions as protocol/apis.py lists them. Whole batches as they stand in the segment, from the page cache to the
socket. Long poll as asked. Followers get a fetch session that lives with their connection (KIP-227), so that ten
thousand idle partitions cost one small request. Consumers get one, too, if they ask for it and there is room: theirs
lives with its id, whatever the connection (replication/fetch_sessions.py). Differences from Kafka: a follower answers a
consumer NOT_LEADER_OR_FOLLOWER at every version, and so does a leader that may have been replaced, where Kafka's says
that an offset is out of range.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias
from uuid import UUID

from holdfast.broker.exchange import Answering, Exchange, SendSlice
from holdfast.broker.handlers.leaders import KnowsLeaders, endpoints, leader_of
from holdfast.model.errors import (
    FencedLeaderEpochError,
    FetchSessionIdNotFoundError,
    HoldfastError,
    InvalidFetchSessionEpochError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.types import BrokerId, TopicPartition
from holdfast.protocol.error_codes import code_of
from holdfast.protocol.fetch_codec import (
    TOPIC_IDS,
    FetchAnswer,
    FetchData,
    decode_fetch_request,
    encode_fetch_response,
)
from holdfast.replication.types import FetchPartitionQuery, FetchQuery, FetchResult, Isolation
from holdfast.security.operations import refusal
from holdfast.security.resources import Operation, ResourceKind

if TYPE_CHECKING:
    from holdfast.broker.access import Access
    from holdfast.broker.judge import Judge
    from holdfast.broker.membership import Membership
    from holdfast.broker.quotas import Meter
    from holdfast.replication.fetch_sessions import FetchSessions
    from holdfast.replication.local_replicas import FetchWait, FollowerSession, SingleFetch

log = logging.getLogger(__name__)

STORAGE_ERROR_VERSION = 6
"""First version whose clients know KAFKA_STORAGE_ERROR (K112-94)."""
SESSION_VERSION = 7
OPEN_SESSION, NO_SESSION = 0, -1
"""Session epochs of full fetches: one that wants a session, one that wants none. Both close the one that they name."""
LEADER_HINT_VERSION = 16
"""First version that names the current leader (KIP-951)."""
_NOT_LEADER_CODE = code_of(NotLeaderOrFollowerError)
_BEFORE_A_LOG = (UnknownTopicOrPartitionError, UnknownTopicIdError, TopicAuthorizationFailedError)
"""Errors of who did not come as far as a log: with an empty list of aborted transactions, as Kafka's are."""
_Answer: TypeAlias = FetchAnswer[bytes | SendSlice]
_Topics: TypeAlias = list[tuple[str | UUID, list[_Answer]]]
_Asked: TypeAlias = list[tuple[str | UUID, FetchPartitionQuery]]
"""Partitions in the order of a request, each with how its topic is named there. The query's own topic is empty where
that is an id that we do not know."""


class FetchHost(KnowsLeaders, Protocol):
    """What a fetch asks of the broker."""

    access: Access
    membership: Membership
    fetch_sessions: FetchSessions

    def now_ms(self) -> int: ...


class FetchHandler:
    """One per broker; what it keeps between requests stands in the connection's session, or in a fetch session."""

    def __init__(self, broker: FetchHost) -> None:
        self._broker = broker

    def handle(self, exchange: Exchange) -> None:
        """Answer now, or when enough bytes are there, or when max_wait has passed."""
        version = exchange.header.api_version
        request = decode_fetch_request(version, exchange.body)
        if request.replica_id >= 0 and not exchange.connection.listener.for_brokers:
            refuse_follower(exchange.connection, "Fetch", request.replica_id)
            return
        exchange.is_follower = request.replica_id >= 0
        meter = exchange.meter = None if exchange.is_follower else exchange.meter
        judge = self._broker.access.judge(exchange.connection, exchange.header.api_key)
        if exchange.is_follower and judge is not None and not judge.may(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER):
            self._no_follower(exchange, request)
            return
        if request.replica_id >= 0 and version >= SESSION_VERSION and request.session_epoch >= 0:
            self._follower(exchange, request)
            return
        if request.session_epoch not in (OPEN_SESSION, NO_SESSION):
            self._incremental(exchange, request, judge)
            return
        if request.session_id and request.replica_id < 0:
            self._broker.fetch_sessions.close(request.session_id)
        if meter is not None:
            if meter.is_over_fetch():
                _finish(self._broker, exchange, 0, [], [])
                return
            request = _limited(request, meter)
        asked = _distinct(_queries(self._broker, request))
        denied: frozenset[str] = frozenset()
        if judge is not None and not exchange.is_follower:
            denied = _denied(judge, {q.topic_partition.topic for name_or_id, q in asked if _is_known(name_or_id, q)})
        queries = [q for name_or_id, q in asked if _is_known(name_or_id, q) and q.topic_partition.topic not in denied]
        query = _limits(request, queries, is_patient=len(queries) == len(asked))
        pending = PendingFetch(self._broker, exchange, asked, request, denied)
        self._park(exchange, pending, self._broker.replicas.fetch(query, self._broker.now_ms(), pending.done))

    def _incremental(self, exchange: Exchange, request: FetchData, judge: Judge | None) -> None:
        """Of a consumer that has a session: only what changed comes in, only what changed goes out. A session has no
        topic that its consumer may not read: it is over where it would, and the full fetch that follows is told."""
        broker, now_ms = self._broker, self._broker.now_ms()
        sessions, uses_ids = broker.fetch_sessions, exchange.header.api_version >= TOPIC_IDS
        session = sessions.resume(request.session_id, request.session_epoch, uses_ids=uses_ids, now_ms=now_ms)
        if isinstance(session, HoldfastError):
            self._refuse(exchange, session)
            return
        if judge is not None:
            topics = {topic for topic, _ in session.entries} | {topic for topic, _ in request.topics}
            if _denied(judge, {name for topic in topics if (name := broker.metadata.resolve(topic))}):
                sessions.close(session.id)
                self._refuse(exchange, FetchSessionIdNotFoundError())
                return
        forgotten = [(topic, index) for topic, indexes in request.forgotten for index in indexes]
        error = sessions.update(session, _queries(broker, request) if request.topics else (), forgotten)
        if error is not None:
            self._refuse(exchange, error)
            return
        pending = PendingFetch(broker, exchange, [], request)
        if exchange.meter is not None:
            if exchange.meter.is_over_fetch():
                pending.changed(session.id, [])
                return
            request = _limited(request, exchange.meter)
        if session.entries:
            done = partial(pending.changed, session.id)
            self._park(exchange, pending, session.fetch(_limits(request, (), is_patient=True), now_ms, done))
        else:
            pending.changed(0, [])

    @staticmethod
    def _park(exchange: Exchange, pending: PendingFetch, wait: FetchWait | SingleFetch | None) -> None:
        if wait is not None and not pending.finished:
            pending.wait = wait
            exchange.connection.session.parked_fetch = pending

    def _follower(self, exchange: Exchange, request: FetchData) -> None:
        broker, session = self._broker, exchange.connection.session
        follower = session.follower
        assert follower is None or isinstance(follower, FollowerFetches)
        if request.session_epoch == 0:
            if follower is not None:
                follower.close()
            follower = FollowerFetches(broker.replicas.open_session((request.replica_id, request.replica_epoch)))
            session.follower = follower
        elif (
            follower is None
            or follower.session.id != request.session_id
            # It has registered again: what is proposed to the controller names the epoch that a session began with.
            or follower.session.broker_epoch != (request.replica_epoch if request.replica_epoch >= 0 else None)
        ):
            self._refuse(exchange, FetchSessionIdNotFoundError())
            return
        elif follower.epoch != request.session_epoch:
            self._refuse(exchange, InvalidFetchSessionEpochError())
            return
        follower.epoch += 1
        queries: list[FetchPartitionQuery] = []
        unknown: list[tuple[str | UUID, int]] = []
        for name_or_id, query in _queries(broker, request):
            tp = query.topic_partition
            if _is_known(name_or_id, query):
                follower.names[tp.topic] = name_or_id
                queries.append(query)
            else:
                unknown.append((name_or_id, tp.partition))
        follower.fetch(broker, exchange, request, queries, unknown)

    @staticmethod
    def _no_follower(exchange: Exchange, request: FetchData) -> None:
        """Who asks in a replica's name without the right to: what it says by asking must count for nothing."""
        header, code = exchange.header, code_of(TopicAuthorizationFailedError)
        _count(exchange, code)
        topics: _Topics = [(topic, [_failed(p.partition, code) for p in parts]) for topic, parts in request.topics]
        exchange.finish(encode_fetch_response(header.api_version, header.correlation_id, 0, 0, topics))

    @staticmethod
    def _refuse(exchange: Exchange, error: HoldfastError) -> None:
        header = exchange.header
        _count(exchange, code_of(error))
        exchange.finish(
            encode_fetch_response(
                header.api_version, header.correlation_id, error_code=code_of(error), session_id=0, topics=[]
            )
        )


def _queries(broker: FetchHost, request: FetchData) -> _Asked:
    asked: _Asked = []
    for name_or_id, partitions in request.topics:
        name = broker.metadata.resolve(name_or_id) or ""
        for p in partitions:
            query = FetchPartitionQuery(
                TopicPartition(name, p.partition),
                p.fetch_offset,
                p.max_bytes,
                None if p.current_leader_epoch < 0 else p.current_leader_epoch,
                None if p.last_fetched_epoch < 0 else p.last_fetched_epoch,
                None if p.log_start_offset < 0 else p.log_start_offset,
            )
            asked.append((name_or_id, query))
    return asked


def _denied(judge: Judge, topics: Iterable[str]) -> frozenset[str]:
    """Those that may not be read."""
    return frozenset(name for name in topics if not judge.may(Operation.READ, ResourceKind.TOPIC, name))


def _is_known(name_or_id: str | UUID, query: FetchPartitionQuery) -> bool:
    """False for an id that is no topic's; a name is looked for with the partition, an empty one too."""
    return isinstance(name_or_id, str) or query.topic_partition.topic != ""


def _distinct(asked: _Asked) -> _Asked:
    """Each partition once: in its first place, as it was asked for last."""
    if len(asked) <= 1:
        return asked
    found = {(name_or_id, query.topic_partition.partition): query for name_or_id, query in asked}
    return asked if len(found) == len(asked) else [(name_or_id, query) for (name_or_id, _), query in found.items()]


def _limited(request: FetchData, meter: Meter) -> FetchData:
    """What a quota leaves of it."""
    most = meter.most_bytes(request.max_bytes)
    return request._replace(max_bytes=most, min_bytes=min(request.min_bytes, most))


def _limits(request: FetchData, queries: Sequence[FetchPartitionQuery], *, is_patient: bool) -> FetchQuery:
    return FetchQuery(
        replica=(request.replica_id, request.replica_epoch) if request.replica_id >= 0 else None,
        max_wait_ms=request.max_wait_ms if is_patient else 0,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation=Isolation.READ_COMMITTED if request.isolation_level else Isolation.READ_UNCOMMITTED,
        partitions=queries,
    )


class FollowerFetches:
    """The fetch session of one follower on one connection."""

    __slots__ = ("epoch", "names", "session")

    def __init__(self, session: FollowerSession) -> None:
        self.session = session
        self.epoch = 0
        """The session epoch that the next request must carry."""
        self.names: dict[str, str | UUID] = {}
        """Topic name -> how this follower names it on the wire."""

    def fetch(
        self,
        broker: FetchHost,
        exchange: Exchange,
        request: FetchData,
        queries: Sequence[FetchPartitionQuery],
        unknown: Sequence[tuple[str | UUID, int]],
    ) -> None:
        forgotten = [
            TopicPartition(name, index)
            for name_or_id, indexes in request.forgotten
            if (name := broker.metadata.resolve(name_or_id)) is not None
            for index in indexes
        ]
        version = exchange.header.api_version

        def done(results: Sequence[FetchResult]) -> None:
            exchange.hurry = None
            moved: list[BrokerId] = []
            topics: _Topics = [(name, [_failed(index, code_of(UnknownTopicIdError))]) for name, index in unknown]
            for result in results:
                name_or_id = self.names.get(result.topic_partition.topic, result.topic_partition.topic)
                if not topics or topics[-1][0] != name_or_id:
                    topics.append((name_or_id, []))
                answer = answer_of(broker, version, result, moved, follower=True)
                _count(exchange, answer.error_code)
                topics[-1][1].append(answer)
            _finish(broker, exchange, self.session.id, topics, moved)

        exchange.hurry = self.session.flush
        self.session.fetch(
            queries, forgotten, max_wait_ms=0 if unknown else request.max_wait_ms, min_bytes=request.min_bytes,
            max_bytes=request.max_bytes, now_ms=broker.now_ms(), done=done,
        )  # fmt: skip

    def close(self) -> None:
        """The connection ended or a new session replaces this one."""
        self.session.close()


class PendingFetch:
    """One Fetch request of a consumer under way."""

    __slots__ = ("_aborted", "_asked", "_broker", "_denied", "_exchange", "_wants_session", "finished", "wait")

    def __init__(
        self,
        broker: FetchHost,
        exchange: Exchange,
        asked: _Asked,
        request: FetchData,
        denied: frozenset[str] = frozenset(),
    ) -> None:
        """``denied``: topics that who asks may not read."""
        self._aborted: tuple[()] | None = () if request.isolation_level else None
        self._asked = asked
        self._broker = broker
        self._exchange = exchange
        self._denied = denied
        self._wants_session = request.session_epoch == OPEN_SESSION and not denied
        self.finished = False
        self.wait: FetchWait | SingleFetch | None = None

    def close(self) -> None:
        """The connection is gone."""
        if self.wait is not None and not self.finished:
            self.wait.cancel()

    def done(self, results: Sequence[FetchResult]) -> None:
        """All that was asked for, in its order."""
        broker, version = self._broker, self._exchange.header.api_version
        if len(results) == len(self._asked):
            full: Sequence[FetchResult] = results
        else:
            found, unknown, denied = iter(results), UnknownTopicIdError(), refusal(ResourceKind.TOPIC)
            full = [
                FetchResult(q.topic_partition, denied)
                if q.topic_partition.topic in self._denied
                else next(found)
                if _is_known(name_or_id, q)
                else FetchResult(q.topic_partition, unknown)
                for name_or_id, q in self._asked
            ]
        session = None
        if self._wants_session:
            session = broker.fetch_sessions.open(
                list(zip(self._asked, full, strict=True)), uses_ids=version >= TOPIC_IDS, now_ms=broker.now_ms()
            )
        told = [(name_or_id, result) for (name_or_id, _), result in zip(self._asked, full, strict=True)]
        self.changed(0 if session is None else session.id, told)

    def changed(self, session_id: int, told: Sequence[tuple[str | UUID, FetchResult]]) -> None:
        """Answer with these partitions."""
        self.finished = True
        version = self._exchange.header.api_version
        topics: _Topics = []
        moved: list[BrokerId] = []
        for name_or_id, result in told:
            if not topics or topics[-1][0] != name_or_id:
                topics.append((name_or_id, []))
            answer = answer_of(self._broker, version, result, moved, self._aborted)
            _count(self._exchange, answer.error_code)
            topics[-1][1].append(answer)
        _finish(self._broker, self._exchange, session_id, topics, moved)


def refuse_follower(connection: Answering, api: str, replica_id: int) -> None:
    """Only a follower asks in a replica's name, and none comes by a listener of clients: what it is told, and what it
    says by asking, counts for what is acknowledged (Kafka: CVE-2018-1288)."""
    connection.close(
        f"{api} in the name of replica {replica_id} on listener {connection.listener.name}, which is not for brokers"
    )


def _count(exchange: Exchange, code: int) -> None:
    if code and exchange.times is not None:
        exchange.times.failed(exchange.header.api_key, code)


def _finish(broker: FetchHost, exchange: Exchange, session_id: int, topics: _Topics, moved: list[BrokerId]) -> None:
    nodes = endpoints(broker, moved, exchange.connection.listener.name) if moved else ()
    header, throttle_ms = exchange.header, 0
    if exchange.meter is not None:
        exchange.meter.took()
        exchange.meter.fetched(sum(len(answer.records) for _, answers in topics for answer in answers))
        throttle_ms = exchange.meter.throttle_ms
    exchange.finish(
        encode_fetch_response(
            header.api_version, header.correlation_id, 0, session_id, topics,
            throttle_ms=throttle_ms, node_endpoints=nodes,
        )
    )  # fmt: skip


def answer_of(
    broker: FetchHost,
    version: int,
    result: FetchResult,
    moved: list[BrokerId],
    aborted: tuple[()] | None = None,
    *,
    follower: bool = False,
) -> _Answer:
    """One partition's part of the answer. The leaders of partitions that moved away are added to ``moved``.

    A ``follower`` whose offset is out of range learns the log's start from the error; in Kafka it asks ListOffsets.
    """
    index = result.topic_partition.partition
    if result.error is not None:
        return _error(broker, version, result, result.error, moved, follower=follower)
    records: bytes | SendSlice = b""
    data = result.data
    if isinstance(data, bytes):
        records = data
    elif data is not None:
        records = SendSlice(data)
    return FetchAnswer(
        partition=index,
        error_code=0,
        high_watermark=_wire(result.high_watermark),
        last_stable_offset=_wire(result.last_stable_offset),
        log_start_offset=_wire(result.log_start_offset),
        diverging_epoch=result.diverging,
        records=records,
        aborted=aborted if result.aborted is None else result.aborted,
    )


def _error(
    broker: FetchHost,
    version: int,
    result: FetchResult,
    error: HoldfastError,
    moved: list[BrokerId],
    *,
    follower: bool,
) -> _Answer:
    tp = result.topic_partition
    if isinstance(error, OffsetOutOfRangeError) and not follower and not broker.membership.is_current:
        # The next leader may have it: a consumer would go where its auto.offset.reset says (H-13).
        error = NotLeaderOrFollowerError(f"the session is over, another broker may lead: {error}")
    code = code_of(error)
    if isinstance(error, KafkaStorageError) and version < STORAGE_ERROR_VERSION:
        code = _NOT_LEADER_CODE
    leader: tuple[int, int] | None = None
    if version >= LEADER_HINT_VERSION and isinstance(error, (NotLeaderOrFollowerError, FencedLeaderEpochError)):
        leader = leader_of(broker, tp)
        if leader is not None:
            moved.append(leader[0])
    return FetchAnswer(
        partition=tp.partition,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=_wire(result.log_start_offset) if follower else -1,
        diverging_epoch=None,
        current_leader=leader,
        records=b"",
        aborted=() if isinstance(error, _BEFORE_A_LOG) else None,
    )


def _failed(index: int, code: int) -> _Answer:
    return FetchAnswer(
        partition=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        diverging_epoch=None,
        records=b"",
        aborted=(),
    )


def _wire(offset: int | None) -> int:
    return -1 if offset is None else offset
