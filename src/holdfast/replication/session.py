"""A follower's fetch session (KIP-227): what the follower has, kept here, so that a fetch costs what changed.

Owns the follower's position in each partition that it fetches, and its parked request. One session per connection
of a follower; the shell keeps it with the connection and checks ids and epochs.

A partition of the session is, between two mentions by the follower:

    armed --(there is more than it has)--> ready --(sent)--> sent --(mentioned with its new offset)--> armed

Unlike KIP-227's, a partition that was sent is not sent again until the follower mentions it: it does so when its
append is through, so that the offset in a fetch is always really in the follower's log. An error or a diverging
epoch takes the partition out of the session; the follower mentions it again when it is ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from holdfast.model.errors import (
    CorruptRecordError,
    HoldfastError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    ReplicaNotAvailableError,
    StorageError,
)
from holdfast.model.types import BrokerEpoch, BrokerId, Offset, TopicPartition
from holdfast.replication import question, reading
from holdfast.replication.isr import FollowerProgress
from holdfast.replication.partition import Partition
from holdfast.replication.surroundings import Surroundings
from holdfast.replication.throttle import ByteRate, Throttle
from holdfast.replication.types import FetchPartitionQuery, FetchQuery, FetchResult
from holdfast.storage.log import ColdRead, FileSlice, Log

Done = Callable[[list[FetchResult]], None]


class SessionEntry:
    """One partition in a session."""

    __slots__ = (
        "_told_mark",
        "_told_start",
        "armed",
        "log",
        "partition",
        "prepared",
        "progress",
        "query",
        "reading",
        "sent",
        "session",
    )

    def __init__(self, session: FollowerSession, partition: Partition, log: Log, progress: FollowerProgress) -> None:
        self.session = session
        self.partition = partition
        self.log = log
        self.progress = progress
        self.query = FetchPartitionQuery(partition.topic_partition, 0, 0)
        self.armed = False
        """The follower waits for what comes after ``query.offset``."""
        self.reading = False
        """The disk reads for ``query``."""
        self.prepared: FileSlice | None = None
        """What the disk has read for ``query``."""
        self.sent: Offset | None = None
        """What the follower was sent last."""
        self._told_mark: Offset | None = None
        self._told_start: Offset | None = None

    @property
    def asked_ms(self) -> int:
        """When its follower asked last, for this partition or, having it still, for others."""
        return self.session.asked_ms

    def on_append(self, end_offset: Offset, now_ms: int) -> None:
        """The log has grown."""
        if self.armed and self.query.offset < end_offset and not self.reading:
            self.session.ready(self)

    def high_watermark_moved(self) -> None:
        """No reason to answer, but the next answer tells it."""
        self.session.news[self] = None

    def start_moved(self) -> None:
        """The log's start has moved: tell the follower now, DeleteRecords waits for it."""
        self.session.news[self] = None
        self.session.answer_parked()

    def lost(self, error: HoldfastError) -> None:
        """The partition does not lead here any more, or not in this epoch."""
        self.session.lost(self, error)

    def has_news(self) -> bool:
        """The follower was not told the present high watermark or log start."""
        return self._told_mark != self.partition.high_watermark or self._told_start != self.log.view.start_offset

    def result(self, data: FileSlice | None) -> FetchResult:
        """The answer for this partition; remembers what it tells."""
        self._told_mark = mark = self.partition.high_watermark
        self._told_start = start = self.log.view.start_offset
        if data is not None:
            self.sent = self.query.offset
        return FetchResult(self.partition.topic_partition, None, mark, mark, start, None, None, data)


class ParkedFetch:
    """A fetch that waits for news."""

    __slots__ = ("done", "finished", "in_heap", "max_bytes", "session")

    def __init__(self, session: FollowerSession, max_bytes: int, done: Done) -> None:
        self.session = session
        self.max_bytes = max_bytes
        self.done = done
        self.finished = False
        self.in_heap = False

    def expire(self, now_ms: int) -> None:
        self.in_heap = False
        self.session.flush()


class _Release:
    """A session that looks again when the throttle lets something through."""

    __slots__ = ("finished", "session")

    def __init__(self, session: FollowerSession) -> None:
        self.session = session
        self.finished = False

    def expire(self, now_ms: int) -> None:
        self.session.released()


class SingleFetch:
    """A follower's fetch without a session: a session for this one fetch, and an answer for every partition."""

    __slots__ = ("_done", "_queries", "_session", "finished")

    def __init__(self, session: FollowerSession, query: FetchQuery, done: Done) -> None:
        self._session = session
        self._queries = query.partitions
        self._done = done
        self.finished = False

    def start(self, query: FetchQuery, now_ms: int) -> None:
        """Answer or park."""
        self._session.fetch(
            query.partitions,
            (),
            max_wait_ms=query.max_wait_ms,
            min_bytes=query.min_bytes,
            max_bytes=query.max_bytes,
            now_ms=now_ms,
            done=self._answered,
        )

    def _answered(self, results: list[FetchResult]) -> None:
        found = {result.topic_partition: result for result in results}
        full = [found.get(q.topic_partition) or self._session.present(q.topic_partition) for q in self._queries]
        self._session.close()
        self.finished = True
        self._done(full)

    def flush(self) -> None:
        """Answer now with what there is."""
        self._session.flush()

    def cancel(self) -> None:
        """The connection is gone: forget the request, ``done`` is not called."""
        self._session.close()


class FollowerSession:
    """See the module's docstring."""

    __slots__ = (
        "_around",
        "_collecting",
        "_entries",
        "_immediate",
        "_parked",
        "_partitions",
        "_ready",
        "_release",
        "_replica_id",
        "_unknown",
        "asked_ms",
        "broker_epoch",
        "id",
        "news",
    )

    def __init__(
        self,
        session_id: int,
        around: Surroundings,
        replica: tuple[BrokerId, BrokerEpoch | None],
        partitions: Mapping[TopicPartition, Partition],
        unknown: Callable[[TopicPartition], HoldfastError],
    ) -> None:
        self.id = session_id
        self._around = around
        self._replica_id, self.broker_epoch = replica
        self._partitions = partitions
        self._unknown = unknown
        self._entries: dict[TopicPartition, SessionEntry] = {}
        self._immediate: list[FetchResult] = []
        """Errors and divergences: told in the next answer."""
        self._ready: dict[SessionEntry, None] = {}
        """Entries with data to send, the longest waiting first."""
        self.news: dict[SessionEntry, None] = {}
        """Entries whose high watermark or log start may have moved."""
        self._parked: ParkedFetch | None = None
        self._collecting = False
        self.asked_ms = 0
        """When the last fetch came."""
        self._release: _Release | None = None
        """When the throttle lets something through again that is ready."""

    def fetch(
        self,
        partitions: Sequence[FetchPartitionQuery],
        forgotten: Sequence[TopicPartition],
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        now_ms: int,
        done: Done,
    ) -> None:
        """One fetch: only changed partitions come in, only those with news go out. Any data is enough to answer,
        whatever ``min_bytes``, unless that is 0: then it is answered at once."""
        self.flush()
        self.asked_ms = now_ms
        for tp in forgotten:
            entry = self._entries.get(tp)
            if entry is not None:
                self._remove(entry)
        for query in partitions:
            self._mention(query, now_ms)
        parked = self._parked = ParkedFetch(self, max_bytes, done)
        if self._immediate or self._ready:
            self.answer_parked()
        if parked.finished:
            return
        if max_wait_ms <= 0 or min_bytes <= 0:
            self._finish(parked, self._collect(max_bytes))
        else:
            parked.in_heap = True
            self._around.deadlines.add(now_ms + max_wait_ms, parked)

    # -- what comes in -------------------------------------------------------------------------------------------

    def _mention(self, query: FetchPartitionQuery, now_ms: int) -> None:
        tp = query.topic_partition
        partition = self._partitions.get(tp)
        problem = (
            reading.failed(query, self._unknown(tp))
            if partition is None
            else reading.check(partition, query, partition.not_leader())
        )
        entry = self._entries.get(tp)
        if problem is not None or partition is None:
            if entry is not None:
                self._remove(entry)
            assert problem is not None, "no partition is a problem"
            self._immediate.append(problem)
            return
        if entry is None or entry.partition is not partition:
            entry = self._enter(partition, query, entry)
            if entry is None:
                return
        if partition.traffic is not None:
            partition.traffic.fetches += 1
        offset = query.offset
        if entry.sent == offset:  # it could not take what it was sent
            question.ask(partition, offset, query.max_bytes)
        entry.query = query
        entry.armed = True
        entry.reading = False
        entry.prepared = None
        self._ready.pop(entry, None)
        partition.follower_fetched(entry.progress, offset, query.log_start_offset, self.broker_epoch, now_ms)
        # What that led to may have taken the partition away again.
        if tp in self._entries:
            if entry.log.view.end_offset > offset:
                self._ready[entry] = None
            if entry.has_news():
                self.news[entry] = None

    def _enter(self, partition: Partition, query: FetchPartitionQuery, old: SessionEntry | None) -> SessionEntry | None:
        """A new entry, in the place of any other session's of the same follower; None if it may not follow."""
        if old is not None:
            self._remove(old)
        progress, log = partition.followers.get(self._replica_id), partition.log
        known_epoch = None if progress is None else progress.broker_epoch
        if (
            progress is None
            or log is None
            or (known_epoch is not None and self.broker_epoch is not None and self.broker_epoch < known_epoch)
        ):
            # No replica of it, or an earlier incarnation of the broker (H-06).
            error = NotLeaderOrFollowerError(f"{partition}: broker {self._replica_id} may not follow it")
            self._immediate.append(reading.failed(query, error, partition))
            return None
        other = partition.entries.get(self._replica_id)
        if other is not None:
            # Its follower must hear of it: it mentions the partition again, and gets it back.
            other.lost(ReplicaNotAvailableError(f"{partition}: another session fetches it now"))
        entry = self._entries[partition.topic_partition] = SessionEntry(self, partition, log, progress)
        partition.entries[self._replica_id] = entry
        return entry

    # -- what goes out -------------------------------------------------------------------------------------------

    def ready(self, entry: SessionEntry) -> None:
        """There is data for ``entry``."""
        self._ready[entry] = None
        if self._parked is not None:
            self.answer_parked()

    def answer_parked(self) -> None:
        """Answer the parked fetch, unless all there is has to come from a disk first."""
        parked = self._parked
        if parked is not None and not self._collecting:
            results = self._collect(parked.max_bytes)
            if results:
                self._finish(parked, results)

    def _collect(self, max_bytes: int) -> list[FetchResult]:
        """All there is to tell now, up to about ``max_bytes`` of data; at least one batch if there is any."""
        results: list[FetchResult] = []
        room, sent, held = max_bytes, False, False
        throttle = self._around.sending if self._around.sending.active else None
        self._collecting = True  # a disk that answers at once must not answer the fetch from in here
        for entry in tuple(self._ready):
            if sent and room <= 0:
                break
            rate = None if throttle is None else self._limit_of(throttle, entry)
            if rate is not None and rate.wait_ms(self._around.clock()) > 0:
                held = True
                continue
            data = self._read(entry, room, None if rate is None else rate.piece_bytes, min_one=not sent)
            if data is None:
                continue  # it did not fit, and stays; or it is being read; or it failed
            del self._ready[entry]
            room -= len(data)
            self._count(entry.partition, len(data))
            if rate is not None:
                rate.spent(len(data), self._around.clock())
            sent = True
            entry.armed = False
            self.news.pop(entry, None)
            results.append(entry.result(data))
        self._collecting = False
        if held and throttle is not None:
            self._come_back(throttle)
        if self.news:
            news, self.news = self.news, {}
            results += [entry.result(None) for entry in news if entry.has_news()]
        if self._immediate:
            immediate, self._immediate = self._immediate, []
            results += immediate
        return results

    def _count(self, partition: Partition, size: int) -> None:
        traffic = self._around.traffic
        if traffic is not None:
            traffic.replication_bytes_out += size
            if partition.adding and self._replica_id in partition.adding:
                traffic.reassignment_bytes_out += size

    def _limit_of(self, throttle: Throttle, entry: SessionEntry) -> ByteRate | None:
        """Only who is out of sync is held back (KIP-73): the high watermark waits for the others."""
        partition = entry.partition
        if self._replica_id in partition.isr.maximal or not throttle.names(partition.topic_partition):
            return None
        return throttle.rate

    def _come_back(self, throttle: Throttle) -> None:
        """Look again when the throttle lets the next piece through."""
        if self._release is None:
            now_ms = self._around.clock()
            self._release = _Release(self)
            self._around.deadlines.add(now_ms + max(1, throttle.rate.wait_ms(now_ms)), self._release)

    def released(self) -> None:
        """The time has come that ``_come_back`` named."""
        self._release = None
        self.answer_parked()

    def _read(self, entry: SessionEntry, room: int, piece: int | None, *, min_one: bool) -> FileSlice | None:
        if entry.prepared is None:
            query, log = entry.query, entry.log
            end_offset, max_bytes = log.view.end_offset, query.max_bytes
            if piece is not None:
                max_bytes = min(max_bytes, piece)
            try:
                if not log.dir.answers:
                    raise ColdRead  # else its bytes would hold up those of the others; it comes when the disk answers
                return log.read(query.offset, min(max_bytes, room), end_offset, min_one=min_one)
            except ColdRead:
                self._ready.pop(entry, None)
                entry.reading = True
                entry.progress.reading(self._around.clock())
                read_done = partial(self._cold_read, entry, query)
                reading.read_cold(log, query.offset, max_bytes, end_offset, read_done)
            except (StorageError, OffsetOutOfRangeError, CorruptRecordError) as e:
                self._remove(entry)
                self._immediate.append(reading.failed(entry.query, e, entry.partition))
        prepared, entry.prepared = entry.prepared, None
        return prepared

    def _cold_read(
        self,
        entry: SessionEntry,
        query: FetchPartitionQuery,
        data: FileSlice | None,
        error: HoldfastError | None,
    ) -> None:
        entry.progress.read(self._around.clock())
        if self._entries.get(query.topic_partition) is not entry or entry.query is not query:
            return  # the follower has moved on
        entry.reading = False
        if error is not None:
            self.lost(entry, error)
        else:
            entry.prepared = data
            self.ready(entry)

    def _finish(self, parked: ParkedFetch, results: list[FetchResult]) -> None:
        self._parked = None
        parked.finished = True
        if parked.in_heap:
            parked.in_heap = False
            self._around.deadlines.finished()
        parked.done(results)

    # -- ends ----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Answer a parked fetch now with what there is: another request waits behind it on its connection."""
        parked = self._parked
        if parked is not None:
            self._finish(parked, self._collect(parked.max_bytes))

    def lost(self, entry: SessionEntry, error: HoldfastError) -> None:
        """``entry`` cannot be fetched any more: the follower is told now."""
        self._remove(entry)
        self._immediate.append(reading.failed(entry.query, error, entry.partition))
        self.answer_parked()

    def present(self, tp: TopicPartition) -> FetchResult:
        """What an answer says of a partition without news."""
        entry = self._entries.get(tp)
        return FetchResult(tp, None) if entry is None else entry.result(None)

    def _remove(self, entry: SessionEntry) -> None:
        entry.armed = False
        self._ready.pop(entry, None)
        self.news.pop(entry, None)
        partition = entry.partition
        if self._entries.get(partition.topic_partition) is entry:
            del self._entries[partition.topic_partition]
        if partition.entries.get(self._replica_id) is entry:
            del partition.entries[self._replica_id]

    def close(self) -> None:
        """The connection has ended: forget everything. A parked fetch is not answered."""
        parked, self._parked = self._parked, None
        if parked is not None:
            parked.finished = True
            if parked.in_heap:
                self._around.deadlines.finished()
        release, self._release = self._release, None
        if release is not None:
            release.finished = True
            self._around.deadlines.finished()
        now_ms = self._around.clock()
        for entry in list(self._entries.values()):
            self._remove(entry)
            # The high watermark may have waited for it to join.
            entry.partition.advance(now_ms)
