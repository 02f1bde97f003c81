"""A wait for records: fetches that brokers hold until there is something, in fetch sessions (KIP-227).

Owns a client of its own, as answers of one connection come in order and a held fetch would hold up the rest. An idle
stream asks four times a second, and names its partitions once.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.client.cluster import KafkaClient
from holdfast.client.fetch_session import FetchSession
from holdfast.client.views import IsolationLevel
from holdfast.model.errors import FetchSessionIdNotFoundError, HoldfastError, InvalidFetchSessionEpochError
from holdfast.model.types import BrokerId, Offset, TopicPartition
from holdfast.protocol.fetch_codec import FetchData, FetchPartitionData
from holdfast.spark.fetch_connection import error_in
from holdfast.spark.options import ReadOptions
from holdfast.spark.ranges import Positions

LONGEST_PAUSE_S = 0.05
"""After an error, before leaders are asked for anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """What came of a wait at one broker."""

    failed: bool
    """The broker answered with an error, or some partition has one there: its leader may be another one."""
    throttled: bool = False
    """The broker holds the reader to a quota, and has waited for nothing."""


class Watcher:
    """Lives on the loop of the client that runs ``wait``."""

    def __init__(self, options: ReadOptions, isolation: IsolationLevel) -> None:
        self._client = KafkaClient(options.bootstrap, client_id=f"{options.client_id}-watch", security=options.security)
        self._wait_s = options.fetch_wait_ms / 1000
        self._wait_ms = options.fetch_wait_ms
        self._isolation = isolation
        self.sessions: dict[BrokerId, FetchSession] = {}
        """By broker; one that leads nothing any more is forgotten there, too."""

    async def wait(self, positions: Positions) -> None:
        """Returns when a partition may have a record at its position or after it, or after fetch.max.wait.ms. An error
        only ends the wait early: the caller finds out more by asking for offsets."""
        try:
            by_leader = await by_leader_of(self._client, positions)
        except HoldfastError:
            await asyncio.sleep(self._wait_s)
            return
        self.sessions = {broker: self.sessions.get(broker) or FetchSession() for broker in by_leader}
        fetches = [asyncio.ensure_future(self._watch(broker, part)) for broker, part in by_leader.items()]
        if not fetches:
            await asyncio.sleep(self._wait_s)
            return
        done, pending = await asyncio.wait(fetches, timeout=self._wait_s + 1, return_when=asyncio.FIRST_COMPLETED)
        for each in pending:
            each.cancel()
        found = [each.result() for each in done if not each.cancelled() and each.exception() is None]
        if any(each.throttled for each in found):  # answered at once, with nothing
            await asyncio.sleep(self._wait_s)
        if len(found) < len(done) or any(each.failed for each in found):
            # Leaders have moved, or a broker is gone: learn anew, without a busy loop.
            await asyncio.sleep(min(LONGEST_PAUSE_S, self._wait_s))
            await self._client.metadata(sorted({tp.topic for tp in positions}))

    async def _watch(self, broker: BrokerId, positions: Mapping[TopicPartition, Offset]) -> _Watched:
        """One fetch of next to nothing. A session that the broker has lost is begun again by the next."""
        session = self.sessions[broker]
        asked = session.request(positions)
        by_topic: dict[str, list[FetchPartitionData]] = {}
        for tp, offset in asked.changed.items():
            by_topic.setdefault(tp.topic, []).append(FetchPartitionData(tp.partition, -1, offset, -1, -1, 1))
        forgotten: dict[str, list[int]] = {}
        for tp in asked.forgotten:
            forgotten.setdefault(tp.topic, []).append(tp.partition)
        data = FetchData(
            -1, -1, self._wait_ms, 1, 1, self._isolation.value, asked.session_id, asked.epoch,
            list(by_topic.items()), list(forgotten.items()),
        )  # fmt: skip
        response = await self._client.fetch_with(broker, data)
        error = error_in(response.error_code, f"fetch from broker {broker}")
        if error is not None:
            session.lost()
            return _Watched(failed=not isinstance(error, FetchSessionIdNotFoundError | InvalidFetchSessionEpochError))
        session.answered(asked, response.session_id)
        failed = any(part.error_code for _, parts in response.topics for part in parts)
        return _Watched(failed=failed, throttled=response.throttle_ms > 0 and not response.topics)


async def by_leader_of(client: KafkaClient, positions: Positions) -> dict[BrokerId, Positions]:
    """The positions by the broker that leads the partition."""
    found: dict[BrokerId, Positions] = {}
    for tp, offset in positions.items():
        found.setdefault(await client.leader(tp), {})[tp] = offset
    return found
