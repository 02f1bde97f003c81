"""The fetch sessions of a broker's consumers (KIP-227): which there are, and who gets one when all slots are taken.

Owns the sessions by their ids. Bounded twice: by ``max.incremental.fetch.session.cache.slots`` sessions (0: none), and
by MAX_PARTITIONS partitions in all of them, of about 0.7 KiB each: at most some 350 MiB. One request
names no more partitions than its frame holds (socket.request.max.bytes, 24 bytes each at least).

A session belongs to its id and to no connection. It ends when its consumer closes it (epoch -1, or a full fetch with
its id), when it has forgotten all its partitions, and when another one gets its slot: the one that was unused longest,
if for EVICTION_MS; else the smallest of those that are older than EVICTION_MS, if the new one is larger. Room for
partitions is made by ending those that were unused for EVICTION_MS. Who gets no session, or has lost it, goes on with
full fetches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from holdfast.model.errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    HoldfastError,
    InvalidFetchSessionEpochError,
)
from holdfast.replication.consumer_session import ConsumerSession, Mention, Served, Topic
from holdfast.replication.types import FetchResult

EVICTION_MS = 120_000
"""A constant in Kafka too (min.incremental.fetch.session.eviction.ms is none of its keys)."""
MAX_PARTITIONS = 500_000
"""In all sessions. Kafka has no such limit."""
_LAST_EPOCH = 0x7FFFFFFF


class FetchSessions:
    """See the module's docstring."""

    def __init__(
        self, served: Served, *, slots: int, new_id: Callable[[], int], max_partitions: int = MAX_PARTITIONS
    ) -> None:
        """``new_id`` gives random numbers from 0 to 2^31 - 1."""
        self._served = served
        self._slots = slots
        self._new_id = new_id
        self._max_partitions = max_partitions
        self._sessions: dict[int, ConsumerSession] = {}
        """By id, the one that was unused longest first."""
        self.partitions = 0
        """In all sessions."""
        self.evictions = 0
        """Sessions that lost their slot to another one."""

    def __len__(self) -> int:
        """Sessions that there are."""
        return len(self._sessions)

    def open(
        self, asked: Sequence[tuple[Mention, FetchResult]], *, uses_ids: bool, now_ms: int
    ) -> ConsumerSession | None:
        """A session for a consumer whose full fetch is answered: its partitions, each once, and what is answered
        for each. None when there is no room."""
        size = len(asked)
        if not size or not self._slots or not self._fits(size, now_ms) or not self._has_slot(size, now_ms):
            return None
        number = self._new_id()
        while number == 0 or number in self._sessions:
            number = self._new_id()
        session = self._sessions[number] = ConsumerSession(number, self._served, uses_ids=uses_ids, now_ms=now_ms)
        session.mention(mention for mention, _ in asked)
        self.partitions += len(session.entries)
        for ((topic, query), result), entry in zip(asked, list(session.entries.values()), strict=True):
            assert entry.key == (topic, query.topic_partition.partition), "each partition once"
            session.tell(entry, result)
        return session

    def _fits(self, more: int, now_ms: int) -> bool:
        """Whether there is room for so many partitions, made by ending sessions that were unused for long."""
        while self.partitions + more > self._max_partitions:
            oldest = next(iter(self._sessions.values()), None)
            if more > self._max_partitions or oldest is None or now_ms - oldest.used_ms <= EVICTION_MS:
                return False
            self._evict(oldest)
        return True

    def _has_slot(self, size: int, now_ms: int) -> bool:
        """Whether there is a slot for a session of ``size`` partitions, made free if need be."""
        if len(self._sessions) < self._slots:
            return True
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > EVICTION_MS:
            return self._evict(oldest)
        if size <= 1:
            return False  # none is smaller
        old = [s for s in self._sessions.values() if now_ms - s.created_ms > EVICTION_MS]
        smallest = min(old, key=lambda s: (len(s.entries), s.id), default=None)
        if smallest is None or len(smallest.entries) >= size:
            return False
        return self._evict(smallest)

    def _evict(self, session: ConsumerSession) -> bool:
        self.evictions += 1
        self.close(session.id)
        return True

    def resume(self, session_id: int, epoch: int, *, uses_ids: bool, now_ms: int) -> ConsumerSession | HoldfastError:
        """The session of an incremental fetch, which awaits the next epoch from now on; or why there is none."""
        session = self._sessions.get(session_id)
        if session is None:
            return FetchSessionIdNotFoundError(f"fetch session {session_id} is not known")
        if session.epoch != epoch:
            return InvalidFetchSessionEpochError(f"fetch session {session_id}: epoch {epoch}, expected {session.epoch}")
        if session.uses_ids != uses_ids:
            began = "ids" if session.uses_ids else "names"
            return FetchSessionTopicIdError(f"fetch session {session_id} began with topic {began}")
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        session.used_ms = now_ms
        del self._sessions[session_id]
        self._sessions[session_id] = session
        return session

    def update(
        self, session: ConsumerSession, mentions: Iterable[Mention], forgotten: Iterable[tuple[Topic, int]]
    ) -> HoldfastError | None:
        """Take what an incremental fetch says. A fetch of the session that still waits is answered before. A session
        without partitions ends; so does one that grows when there is no room, and that is an error."""
        session.flush()
        before = len(session.entries)
        session.mention(mentions)
        session.forget(forgotten)
        self.partitions += len(session.entries) - before
        if not session.entries:
            self.close(session.id)
        elif len(session.entries) > before and not self._fits(0, session.used_ms):
            self.close(session.id)
            return FetchSessionIdNotFoundError(
                f"fetch session {session.id} is closed: all sessions may have {self._max_partitions} partitions"
            )
        return None

    def close(self, session_id: int) -> None:
        """Its consumer is through with it, or somebody else needs the slot. Nothing happens if there is none."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.entries)
            session.close()
