"""Reads several partitions side by side: one long poll per leader, positions that move.

Owns positions and the fetches in flight. With READ_COMMITTED an answer has records of aborted transactions, too, and
says which these are (records/markers.py leaves them out). Never commits, never decodes, never chooses where to start. A
leader that moves or dies is looked up again; an offset that the log no longer has goes to ``reset``. Brokers that are
all away are waited for: the caller knows for how long.
"""

import asyncio
import logging
from collections.abc import Mapping

from holdfast.client.cluster import KafkaClient
from holdfast.client.views import FetchedRecords, IsolationLevel, OffsetSpec
from holdfast.model.errors import BrokerUnavailableError, HoldfastError, OffsetOutOfRangeError
from holdfast.model.types import BrokerId, Offset, TopicPartition
from holdfast.records.batch import iter_headers

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.05
AWAY_PAUSE_S = 0.25


class PartitionReader:
    """``poll`` returns what arrived; ``positions`` is the next offset of each partition after that."""

    def __init__(
        self,
        client: KafkaClient,
        positions: Mapping[TopicPartition, Offset],
        *,
        reset: OffsetSpec = OffsetSpec.LATEST,
        max_wait_ms: int = 500,
        max_bytes: int = 16 << 20,
        partition_max_bytes: int = 1 << 20,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> None:
        self.positions = dict(positions)
        self._client = client
        self._reset = reset
        self._max_wait_ms = max_wait_ms
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._isolation = isolation
        self._fetches: dict[BrokerId, asyncio.Task[dict[TopicPartition, FetchedRecords]]] = {}
        self._busy: dict[BrokerId, frozenset[TopicPartition]] = {}
        self._failed = False

    def close(self) -> None:
        """Forgets the fetches in flight."""
        for task in self._fetches.values():
            task.cancel()
        self._fetches.clear()
        self._busy.clear()

    def drop(self, tp: TopicPartition) -> None:
        """Reads that partition no more; what is in flight for it is thrown away."""
        del self.positions[tp]

    async def poll(self, timeout_s: float) -> list[tuple[TopicPartition, Offset, FetchedRecords]]:
        """(partition, offset asked for, answer) of partitions that have records, or nothing after ``timeout_s``.

        The first records of an answer may be before the offset asked for: batches come whole.
        """
        if self._failed:
            self._failed = False
            await asyncio.sleep(RETRY_PAUSE_S)
            try:
                await self._client.refresh(sorted({tp.topic for tp in self.positions}))
            except HoldfastError as e:  # the brokers are away: they may come back
                self._trouble(e)
                await asyncio.sleep(min(timeout_s, AWAY_PAUSE_S))
                return []
        await self._start_fetches()
        if not self._fetches:
            await asyncio.sleep(min(timeout_s, RETRY_PAUSE_S))
            return []
        await asyncio.wait(self._fetches.values(), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        found: list[tuple[TopicPartition, Offset, FetchedRecords]] = []
        for broker_id, task in list(self._fetches.items()):
            if task.done():
                del self._fetches[broker_id], self._busy[broker_id]
                found += await self._finish(broker_id, task)
        return found

    async def _start_fetches(self) -> None:
        flying = frozenset().union(*self._busy.values())
        idle: dict[BrokerId, dict[TopicPartition, Offset]] = {}
        for tp, offset in self.positions.items():
            if tp in flying:
                continue
            try:
                idle.setdefault(await self._client.leader(tp), {})[tp] = offset
            except HoldfastError as e:
                self._trouble(e)
        for broker_id, positions in idle.items():
            if broker_id in self._fetches:
                continue  # its turn comes with the others of that leader
            self._busy[broker_id] = frozenset(positions)
            self._fetches[broker_id] = asyncio.ensure_future(
                self._client.fetch_from(
                    broker_id,
                    positions,
                    max_wait_ms=self._max_wait_ms,
                    max_bytes=self._max_bytes,
                    partition_max_bytes=self._partition_max_bytes,
                    isolation=self._isolation,
                )
            )

    async def _finish(
        self, broker_id: BrokerId, task: "asyncio.Task[dict[TopicPartition, FetchedRecords]]"
    ) -> list[tuple[TopicPartition, Offset, FetchedRecords]]:
        try:
            answers = task.result()
        except HoldfastError as e:
            self._trouble(e)
            return []
        found = []
        for tp, answer in answers.items():
            asked = self.positions.get(tp)
            if asked is None:
                continue  # dropped meanwhile
            if isinstance(answer.error, OffsetOutOfRangeError):
                at = (await self._client.list_offsets({tp: self._reset}))[tp].offset or 0
                when = "yet" if asked > at else "any more"
                log.warning("%s has no offset %d %s: going on at %d", tp, asked, when, at)
                self.positions[tp] = at
            elif answer.error is not None:
                self._trouble(answer.error)
            elif len(answer.records):
                following = asked
                for _, header in iter_headers(answer.records):
                    following = header.next_offset
                if following > asked:
                    self.positions[tp] = following
                    found.append((tp, asked, answer))
        return found

    def _trouble(self, error: HoldfastError) -> None:
        """Retriable: the next poll looks for leaders again. Anything else is the caller's."""
        if not error.retriable and not isinstance(error, BrokerUnavailableError):
            raise error
        self._failed = True
