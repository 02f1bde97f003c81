"""One fetch session of a consumer (KIP-227): what it asks for and what it was told, kept here between its fetches.

Owns a CachedPartition for each partition that the consumer has named and not forgotten. Each of them is

    in the session's ``news``, to be looked at by the next fetch, or
    in its partition's ``consumer_waits``: there is nothing to read, and all else has been told.

The partition's own news (its high watermark, the log's start, the end of its leadership) and a mention by the
consumer move it to ``news``. So a fetch costs what has changed, however many partitions the session has. News that
come while nobody fetches are noted once; a session whose consumer is gone costs an append nothing more after that.

The next fetch looks at ``news`` in their order, and what has given records goes to the end: none starves.
Ids, epochs and slots are the cache's (fetch_sessions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias
from uuid import UUID

from holdfast.model.errors import HoldfastError, UnknownTopicIdError
from holdfast.model.types import Offset, TopicPartition
from holdfast.replication.consumer_fetch import FetchWait
from holdfast.replication.partition import Partition
from holdfast.replication.surroundings import Surroundings
from holdfast.replication.types import FetchPartitionQuery, FetchQuery, FetchResult

Topic: TypeAlias = str | UUID
"""As the consumer names it: a session goes by names or by ids, never by both."""
Mention: TypeAlias = tuple[Topic, FetchPartitionQuery]
"""What a request says of one partition. The query's topic is empty where the id is not known."""
Done: TypeAlias = Callable[[list[tuple[Topic, FetchResult]]], None]


class Served(NamedTuple):
    """What the sessions of one broker share."""

    around: Surroundings
    partitions: Mapping[TopicPartition, Partition]
    unknown: Callable[[TopicPartition], HoldfastError]
    """What is answered for a partition that is not here."""
    resolve: Callable[[Topic], str | None]
    """A topic's name; None for an id that is not known."""


class CachedPartition:
    """One partition of a session."""

    __slots__ = ("partition", "query", "session", "told_mark", "told_start", "topic")

    def __init__(self, session: ConsumerSession, topic: Topic, query: FetchPartitionQuery) -> None:
        self.session = session
        self.topic = topic
        self.query = query
        self.told_mark: Offset | None = None
        """The high watermark in the last answer; None: it has to be told."""
        self.told_start: Offset | None = None
        self.partition: Partition | None = None
        """Whose ``consumer_waits`` it is in."""

    @property
    def key(self) -> tuple[Topic, int]:
        """Its place in the session."""
        return self.topic, self.query.topic_partition.partition

    def on_progress(self, partition: Partition) -> None:
        """The high watermark or the log's start has moved."""
        if self.partition is partition:
            self.unwatch()
            self.session.has_news(self, partition, None)

    def lost(self, partition: Partition, error: HoldfastError) -> None:
        """``partition`` does not lead here any more."""
        if self.partition is partition:
            self.unwatch()
            self.session.has_news(self, partition, error)

    def watch(self, partition: Partition) -> None:
        """Wait for its news."""
        self.partition = partition
        partition.consumer_waits[self] = None

    def unwatch(self) -> None:
        """Wait no more."""
        if self.partition is not None:
            self.partition.consumer_waits.pop(self, None)
            self.partition = None


class ConsumerSession:
    """See the module's docstring."""

    __slots__ = (
        "_fetched",
        "_served",
        "_wait",
        "created_ms",
        "entries",
        "epoch",
        "id",
        "news",
        "used_ms",
        "uses_ids",
    )

    def __init__(self, session_id: int, served: Served, *, uses_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.epoch = 1
        """Which the next request must carry."""
        self.uses_ids = uses_ids
        """Topics are named by their ids (Fetch v13 and later)."""
        self.created_ms = self.used_ms = now_ms
        self.entries: dict[tuple[Topic, int], CachedPartition] = {}
        self.news: dict[CachedPartition, None] = {}
        self._served = served
        self._wait: FetchWait | None = None
        """The fetch that waits for news."""
        self._fetched: list[CachedPartition] = []
        """Whose queries it has, in their order."""

    # -- what comes in -------------------------------------------------------------------------------------------

    def mention(self, mentions: Iterable[Mention]) -> None:
        """Add partitions, or take what is now asked of them."""
        entries = self.entries
        for topic, query in mentions:
            key = (topic, query.topic_partition.partition)
            entry = entries.get(key)
            if entry is None:
                entry = entries[key] = CachedPartition(self, topic, query)
            else:
                entry.query = query
                entry.unwatch()
            self.news[entry] = None

    def forget(self, forgotten: Iterable[tuple[Topic, int]]) -> None:
        """Take partitions out of the session; those that are not in it are nobody's concern."""
        for key in forgotten:
            entry = self.entries.pop(key, None)
            if entry is not None:
                entry.unwatch()
                self.news.pop(entry, None)

    def flush(self) -> None:
        """Answer the fetch that waits, if there is one, with what there is."""
        if self._wait is not None:
            self._wait.flush()
            self._wait = None

    def close(self) -> None:
        """Wait for nothing any more."""
        self.flush()
        for entry in self.entries.values():
            entry.unwatch()
        self.entries.clear()
        self.news.clear()

    def has_news(self, entry: CachedPartition, partition: Partition, error: HoldfastError | None) -> None:
        """Look at ``entry``: at once if a fetch waits for it, else with the next."""
        self.news[entry] = None
        wait = self._wait
        if wait is not None and not wait.finished:
            self._fetched.append(entry)
            wait.join(entry.query, partition, error)

    # -- what goes out -------------------------------------------------------------------------------------------

    def fetch(self, limits: FetchQuery, now_ms: int, done: Done) -> FetchWait | None:
        """Answer or wait. ``done`` gets those partitions alone that have records, an error, a divergence or a high
        watermark or log start that was not told. None when it has been called already. ``limits`` are a query's,
        its partitions are not looked at. One fetch at a time: ``flush`` the one before."""
        fetched: list[CachedPartition] = []
        queries: list[FetchPartitionQuery] = []
        unknown: list[CachedPartition] = []
        for entry in self.news:
            if self.uses_ids and not self._resolved(entry):
                unknown.append(entry)
            else:
                fetched.append(entry)
                queries.append(entry.query)
        query = limits._replace(partitions=queries)
        wait = FetchWait(self._served.around, query, partial(self._answer, fetched, unknown, done))
        self._wait, self._fetched = wait, fetched
        max_wait_ms = 0 if unknown else limits.max_wait_ms
        wait.start(self._served.partitions, self._served.unknown, max_wait_ms, now_ms)
        return None if wait.finished else wait

    def _resolved(self, entry: CachedPartition) -> bool:
        """Whether the topic's id is known; the query has its name then."""
        name = self._served.resolve(entry.topic)
        if name is None:
            return False
        tp = entry.query.topic_partition
        if tp.topic != name:
            entry.query = entry.query._replace(topic_partition=TopicPartition(name, tp.partition))
        return True

    def _answer(
        self, fetched: list[CachedPartition], unknown: list[CachedPartition], done: Done, results: list[FetchResult]
    ) -> None:
        self._wait = None
        told: list[tuple[Topic, FetchResult]] = []
        for entry in unknown:
            entry.told_mark = None
            tp = entry.query.topic_partition
            told.append((entry.topic, FetchResult(tp, UnknownTopicIdError(f"topic id {entry.topic} is not known"))))
        for entry, result in zip(fetched, results, strict=True):
            if self.tell(entry, result):
                told.append((entry.topic, result))
        done(told)

    def tell(self, entry: CachedPartition, result: FetchResult) -> bool:
        """Note what the answer says of ``entry``, and where it waits from now on; whether there is anything to say."""
        if result.error is not None or result.diverging is not None:
            entry.told_mark = None  # to be told when it is right again
            return True
        mark, start = result.high_watermark, result.log_start_offset
        if mark is None:  # a disk still reads it
            entry.told_mark = None
            return False
        changed = mark != entry.told_mark or start != entry.told_start
        entry.told_mark, entry.told_start = mark, start
        if result.data is not None and len(result.data):
            self.news.pop(entry, None)
            self.news[entry] = None
            return True
        partition = self._served.partitions.get(entry.query.topic_partition)
        if (
            partition is not None
            and entry.query.offset >= _limit(partition, result)  # else its disk does not answer, or there was no room
            and partition.high_watermark == mark
        ):
            self.news.pop(entry, None)
            entry.watch(partition)
        return changed


def _limit(partition: Partition, result: FetchResult) -> Offset:
    """Up to where the one who got ``result`` may read now."""
    return partition.high_watermark if result.aborted is None else partition.last_stable_offset
