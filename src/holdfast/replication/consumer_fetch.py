"""A consumer's fetch: read what is committed, or wait until there is enough of it.

Owns one request. A reader of committed records stops at the last stable offset, and what lies beyond does not count as
bytes that are there; a commit wakes it, as its marker raises the high watermark. One of a fetch session
(consumer_session.py) has those partitions alone that have news; others ``join`` when they have some, too. Each
partition is read at most once per piece of news of it; what was read for the others is kept. Answers when min_bytes are
there, when any partition fails or diverges, or when its time has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from holdfast.model.errors import CorruptRecordError, HoldfastError, OffsetOutOfRangeError, StorageError
from holdfast.model.types import Offset, TopicPartition
from holdfast.replication import question, reading
from holdfast.replication.partition import Partition
from holdfast.replication.surroundings import Surroundings
from holdfast.replication.types import FetchPartitionQuery, FetchQuery, FetchResult, Isolation
from holdfast.storage.log import ColdRead, FileSlice, Log

Done = Callable[[list[FetchResult]], None]

_FEW = 8
"""Partitions that are found by looking through them."""
COLD_GRACE_MS = 1000
"""How long after max_wait an answer still waits for a disk that is reading for it."""


class FetchWait:
    """See the module's docstring. ``start`` answers or parks."""

    __slots__ = (
        "_around",
        "_budget",
        "_cold",
        "_committed",
        "_done",
        "_min_bytes",
        "_parked",
        "_partitions",
        "_places",
        "_queries",
        "_results",
        "_settled",
        "_settled_late",
        "_sizes",
        "_total",
        "_waiting",
        "finished",
    )

    def __init__(self, around: Surroundings, query: FetchQuery, done: Done) -> None:
        self._around = around
        self._budget = min(query.max_bytes, around.settings.fetch_max_bytes)
        self._committed = query.isolation is Isolation.READ_COMMITTED
        self._min_bytes = query.min_bytes
        self._queries = list(query.partitions)
        self._done: Done | None = done
        self._results: list[FetchResult] = []
        self._sizes: list[int] = []
        self._partitions: list[Partition | None] = []
        self._places: dict[Partition, list[int]] | None = None
        """Where each partition is in the query; made when it is first looked for, of a fetch of many."""
        self._total = 0
        self._cold: set[int] = set()
        """Partitions (by their place) that are being read on their disks."""
        self._settled = self._settled_late = False
        """A partition failed or diverged: the answer must not wait for more."""
        self._parked = False
        """It stands in the heap of deadlines."""
        self._waiting = False
        """``start`` has returned without an answer."""
        self.finished = False

    def start(
        self,
        partitions: Mapping[TopicPartition, Partition],
        unknown: Callable[[TopicPartition], HoldfastError],
        max_wait_ms: int,
        now_ms: int,
    ) -> bool:
        """Read all; True when the answer has been given."""
        self._results = [FetchResult(q.topic_partition, None) for q in self._queries]
        self._sizes = [0] * len(self._queries)
        self._partitions = [partitions.get(q.topic_partition) for q in self._queries]
        for place, partition in enumerate(self._partitions):
            if partition is None:
                query = self._queries[place]
                self._fail(place, reading.failed(query, unknown(query.topic_partition)))
            else:
                self._read(place, partition)
        if self._is_due(max_wait_ms):
            self._finish()
            return True
        for partition in self._partitions:
            if partition is not None:
                partition.consumer_waits[self] = None
        self._parked = self._waiting = True
        self._around.deadlines.add(now_ms + max_wait_ms, self)
        return False

    def _is_due(self, max_wait_ms: int = 1) -> bool:
        if self._cold:
            return False  # with what comes from the disk there may be enough
        return self._settled or self._total >= self._min_bytes or max_wait_ms <= 0

    # -- reading -------------------------------------------------------------------------------------------------

    def _read(self, place: int, partition: Partition) -> None:
        query = self._queries[place]
        problem = reading.check(partition, query, partition.not_leader())
        if problem is not None:
            self._fail(place, problem)
            return
        log = partition.log
        assert log is not None, "checked"
        limit, data = partition.high_watermark, None
        aborted: Sequence[tuple[int, Offset]] | None = None
        if self._committed:
            limit, aborted = log.view.last_stable(limit), ()
        room = self._budget - self._total
        # A directory that does not answer has no data now: its bytes would hold up those of the others.
        if query.offset < limit and (room > 0 or not self._total) and log.dir.answers:
            max_bytes = min(query.max_bytes, room)
            try:
                data = log.read(query.offset, max_bytes, limit, min_one=not self._total)
                if aborted is not None and data is not None and log.view.aborting:
                    aborted = log.aborted(data, limit)
            except ColdRead:
                self._read_cold(place, partition, log, max_bytes, limit)
                return
            except (StorageError, OffsetOutOfRangeError, CorruptRecordError) as e:
                self._fail(place, reading.failed(query, e, partition))
                return
        self._store(place, partition, data, aborted)

    def _store(
        self,
        place: int,
        partition: Partition,
        data: FileSlice | None,
        aborted: Sequence[tuple[int, Offset]] | None,
    ) -> None:
        log = partition.log
        size = 0 if data is None else len(data)
        self._total += size - self._sizes[place]
        self._sizes[place] = size
        mark = stable = partition.high_watermark
        start = None
        if log is not None:
            view = log.view
            start = view.start_offset
            if view.unstable is not None:
                stable = view.last_stable(mark)
        self._results[place] = FetchResult(
            self._queries[place].topic_partition, None, mark, stable, start, None, None, data, aborted
        )

    def _fail(self, place: int, result: FetchResult) -> None:
        self._total -= self._sizes[place]
        self._sizes[place] = 0
        self._results[place] = result
        self._settled = True

    def _read_cold(self, place: int, partition: Partition, log: Log, max_bytes: int, limit: Offset) -> None:
        self._cold.add(place)
        offset = self._queries[place].offset
        if self._committed:
            committed = partial(self._cold_committed, place, partition)
            reading.read_cold_committed(log, offset, max_bytes, limit, committed)
        else:
            reading.read_cold(log, offset, max_bytes, limit, partial(self._cold_read, place, partition, None))

    def _cold_committed(
        self, place: int, partition: Partition, found: reading.CommittedRead | None, error: HoldfastError | None
    ) -> None:
        data, aborted = found or (None, ())
        self._cold_read(place, partition, aborted, data, error)

    def _cold_read(
        self,
        place: int,
        partition: Partition,
        aborted: Sequence[tuple[int, Offset]] | None,
        data: FileSlice | None,
        error: HoldfastError | None,
    ) -> None:
        self._cold.discard(place)
        if self.finished:
            return
        if error is not None:
            self._fail(place, reading.failed(self._queries[place], error, partition))
        else:
            self._store(place, partition, data, aborted)
        if self._waiting and self._is_due():
            self._finish()

    # -- news ----------------------------------------------------------------------------------------------------

    def join(self, query: FetchPartitionQuery, partition: Partition, error: HoldfastError | None) -> None:
        """One partition more, which has news for a fetch that waits; ``error``: it does not lead here any more."""
        place = len(self._queries)
        self._queries.append(query)
        self._results.append(FetchResult(query.topic_partition, None))
        self._sizes.append(0)
        self._partitions.append(partition)
        if self._places is not None:
            self._places.setdefault(partition, []).append(place)
        if error is not None:
            self._fail(place, reading.failed(query, error, partition))
        else:
            partition.consumer_waits[self] = None
            self._read(place, partition)
        if error is not None or self._is_due():
            self._finish()

    def _places_of(self, partition: Partition) -> Sequence[int]:
        if len(self._partitions) <= _FEW:
            return [place for place, one in enumerate(self._partitions) if one is partition]
        if self._places is None:
            self._places = {}
            for place, one in enumerate(self._partitions):
                if one is not None:
                    self._places.setdefault(one, []).append(place)
        return self._places.get(partition, ())

    def on_progress(self, partition: Partition) -> None:
        """The high watermark or the log's start of ``partition`` has moved."""
        for place in self._places_of(partition):
            if place not in self._cold and self._sizes[place] < self._queries[place].max_bytes:
                self._total -= self._sizes[place]
                self._sizes[place] = 0
                self._read(place, partition)
        if not self.finished and self._is_due():
            self._finish()

    def lost(self, partition: Partition, error: HoldfastError) -> None:
        """``partition`` does not lead here any more: answer with what there is."""
        for place, one in enumerate(self._partitions):
            if one is partition:
                self._fail(place, reading.failed(self._queries[place], error, partition))
        if not self.finished:
            self._finish()

    def expire(self, now_ms: int) -> None:
        """max_wait has passed. What a disk is reading now is waited for a while longer; one that hangs then must not
        hold up what others have read."""
        self._parked = False
        if self._cold and not self._settled_late:
            self._settled = self._settled_late = self._parked = True
            self._around.deadlines.add(now_ms + COLD_GRACE_MS, self)
            return
        self._settled = True
        for place in self._cold:
            partition = self._partitions[place]
            assert partition is not None, "somebody reads it"
            self._store(place, partition, None, () if self._committed else None)
        self._finish()

    def flush(self) -> None:
        """Answer now with what there is: another request waits behind this one on its connection."""
        if not self.finished:
            self._finish()

    def cancel(self) -> None:
        """The connection is gone: forget the request, ``done`` is not called."""
        if not self.finished:
            self._done = None
            self._finish()

    def _finish(self) -> None:
        self.finished = True
        if self._parked:
            self._parked = False
            self._around.deadlines.finished()
        done, results = self._done, self._results
        for place, partition in enumerate(self._partitions):
            if partition is not None:
                partition.consumer_waits.pop(self, None)
                size, traffic = self._sizes[place], partition.traffic
                if traffic is not None and done is not None:
                    traffic.fetches += 1
                    traffic.bytes_out += size
                if size:
                    query = self._queries[place]
                    question.consumer_read(partition, query.offset, query.max_bytes)
        self._done, self._results, self._partitions, self._places = None, [], [], None
        if done is not None:
            done(results)
