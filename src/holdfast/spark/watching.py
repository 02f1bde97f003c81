"""A wait for records: fetches that brokers hold until there is something, in fetch sessions (KIP-227).

Owns a client of its own, as answers of one connection come in order and a held fetch would hold up the rest. An idle
stream asks four times a second, and names its partitions once.
"""

import asyncio
from collections.abc import Mapping

from holdfast.client.cluster import KafkaClient
from holdfast.client.fetch_session import FetchSession
from holdfast.client.views import IsolationLevel, Watched
from holdfast.model.errors import HoldfastError
from holdfast.model.types import BrokerId, Offset, TopicPartition
from holdfast.spark.options import ReadOptions
from holdfast.spark.ranges import Positions

LONGEST_PAUSE_S = 0.05
"""After an error, before leaders are asked for anew."""


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

    async def _watch(self, broker: BrokerId, positions: Mapping[TopicPartition, Offset]) -> Watched:
        return await self._client.watch(
            broker, positions, self.sessions[broker], max_wait_ms=self._wait_ms, isolation=self._isolation
        )


async def by_leader_of(client: KafkaClient, positions: Positions) -> dict[BrokerId, Positions]:
    """The positions by the broker that leads the partition."""
    found: dict[BrokerId, Positions] = {}
    for tp, offset in positions.items():
        found.setdefault(await client.leader(tp), {})[tp] = offset
    return found
