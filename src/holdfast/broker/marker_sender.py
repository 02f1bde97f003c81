"""Takes the decisions of the transaction coordinator to the leaders of the partitions (WriteTxnMarkers).

Owns what waits for each broker, and the times of the next tries. Whoever leads a partition is looked up anew for each
try. A broker gets SLOTS requests at a time, over connections of their own: a partition that waits for its replicas
holds up the answer of its request, and only those that are in it.

Bounded: there is at most one decision for each transactional id; a request takes MAX_PARTITIONS. A partition that the
cluster does not have is waited for GONE_S (the metadata may be younger than the partition), then it is left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.broker.entity import build
from holdfast.broker.peers import Peers, PeersHost
from holdfast.model.errors import HoldfastError
from holdfast.model.types import BrokerId, TopicPartition, named
from holdfast.protocol.apis import ApiKey, request_type
from holdfast.protocol.error_codes import error_of
from holdfast.transactions.markers import MarkerVerdict, verdict
from holdfast.transactions.types import Ending

if TYPE_CHECKING:
    from holdfast.broker.metadata_cache import MetadataCache

log = logging.getLogger(__name__)

VERSION: Final = 2
REQUEST_TIMEOUT_S: Final = 35.0
"""Longer than the other broker waits for replicas (handlers/txn_markers.py)."""
SLOTS: Final = 4
MAX_PARTITIONS: Final = 2000
RETRY_S: Final = 0.05
MAX_RETRY_S: Final = 1.0
GONE_S: Final = 1.0
LOGGED_FROM: Final = 5
"""Tries that fail before it is said."""


class MarkersHost(PeersHost, Protocol):
    """What sending markers asks of the broker."""

    loop: asyncio.AbstractEventLoop
    metadata: MetadataCache

    @property
    def told_epoch(self) -> int: ...


class _Job:
    """One decision under way."""

    __slots__ = ("began_s", "done", "ending", "tries")

    def __init__(self, ending: Ending, done: Callable[[], None], began_s: float) -> None:
        self.ending = ending
        self.done = done
        self.began_s = began_s
        self.tries = 0


class BrokerMarkers:
    """See the module's docstring; the coordinator's MarkerSender."""

    def __init__(self, broker: MarkersHost) -> None:
        self._broker = broker
        self._peers = [Peers(broker, f"markers-{slot}") for slot in range(SLOTS)]
        self._lines: dict[BrokerId, _Line] = {}
        self._closed = False

    def send(self, ending: Ending, done: Callable[[], None]) -> None:
        """See MarkerSender (transactions/surroundings.py)."""
        self._route(_Job(ending, done, self._broker.loop.time()), frozenset(ending.left))

    def close(self) -> None:
        """The broker is ending."""
        self._closed = True
        for line in self._lines.values():
            line.close()
        for peers in self._peers:
            peers.close()

    def _route(self, job: _Job, partitions: Collection[TopicPartition]) -> None:
        """Each partition into the line of its leader."""
        if job.ending.is_over or self._closed:
            return
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        later: list[TopicPartition] = []
        for tp in sorted(partitions):
            info = self._broker.metadata.partition(tp)
            if info is not None and info.leader is not None:
                by_leader.setdefault(info.leader, []).append(tp)
            elif info is None and self._is_gone(job):
                log.info("%s is not in the cluster: no marker for %r", tp, job.ending.transactional_id)
                job.ending.left.discard(tp)
            else:
                later.append(tp)
        for leader, led in by_leader.items():
            self._line(leader).add(job, led)
        if later:
            self._again(job, later)
        self._settle(job)

    def _is_gone(self, job: _Job) -> bool:
        return self._broker.told_epoch >= 0 and self._broker.loop.time() - job.began_s >= GONE_S

    def _line(self, leader: BrokerId) -> _Line:
        line = self._lines.get(leader)
        if line is None:
            line = self._lines[leader] = _Line(leader, self._peers, self._came)
        return line

    def _came(self, job: _Job, told: dict[TopicPartition, HoldfastError | None]) -> None:
        """What became of these partitions' markers."""
        if job.ending.is_over or self._closed:
            return
        again = [tp for tp, error in told.items() if verdict(error) is MarkerVerdict.AGAIN]
        job.ending.left.difference_update(told.keys() - set(again))
        if again:
            error = told[again[0]]
            if job.tries >= LOGGED_FROM:
                where = named(again)
                log.warning("no marker of %r in %s so far: %s", job.ending.transactional_id, where, error)
            self._again(job, again)
        self._settle(job)

    def _again(self, job: _Job, partitions: list[TopicPartition]) -> None:
        delay_s = min(RETRY_S * 2**job.tries, MAX_RETRY_S)
        job.tries = min(job.tries + 1, LOGGED_FROM)
        self._broker.loop.call_later(delay_s, self._route, job, partitions)

    def _settle(self, job: _Job) -> None:
        if not job.ending.left and not job.ending.is_over:
            done, job.done = job.done, _nothing
            done()


def _nothing() -> None:
    """It was called already."""


class _Line:
    """What waits for one broker, and the requests that are out to it."""

    def __init__(
        self,
        broker_id: BrokerId,
        peers: list[Peers],
        came: Callable[[_Job, dict[TopicPartition, HoldfastError | None]], None],
    ) -> None:
        self._broker_id = broker_id
        self._free = list(peers)
        self._came = came
        self._waiting: deque[tuple[_Job, list[TopicPartition]]] = deque()
        self._out: set[asyncio.Task[None]] = set()

    def add(self, job: _Job, partitions: list[TopicPartition]) -> None:
        self._waiting.append((job, partitions))
        self._start()

    def close(self) -> None:
        for task in self._out:
            task.cancel()

    def _start(self) -> None:
        if self._free:
            task = asyncio.get_running_loop().create_task(self._run(self._free.pop()))
            self._out.add(task)
            task.add_done_callback(self._out.discard)

    async def _run(self, peers: Peers) -> None:
        try:
            while self._waiting:
                asked = self._take()
                for job, told in await self._ask(peers, asked):
                    try:
                        self._came(job, told)
                    except Exception:
                        log.exception("the markers of %r could not be counted", job.ending.transactional_id)
        finally:
            self._free.append(peers)

    def _take(self) -> list[tuple[_Job, list[TopicPartition]]]:
        """What goes into the next request; of those that are over, nothing."""
        asked: list[tuple[_Job, list[TopicPartition]]] = []
        count = 0
        while self._waiting and (not asked or count + len(self._waiting[0][1]) <= MAX_PARTITIONS):
            job, partitions = self._waiting.popleft()
            if not job.ending.is_over:
                asked.append((job, partitions))
                count += len(partitions)
        return asked

    async def _ask(
        self, peers: Peers, asked: list[tuple[_Job, list[TopicPartition]]]
    ) -> list[tuple[_Job, dict[TopicPartition, HoldfastError | None]]]:
        if not asked:
            return []
        try:
            answer = await peers.ask(self._broker_id, _request(asked), REQUEST_TIMEOUT_S)
        except HoldfastError as e:
            return [(job, dict.fromkeys(partitions, e)) for job, partitions in asked]
        told = {
            (int(marker.producer_id), TopicPartition(topic.name, p.partition_index)): error_of(int(p.error_code))
            for marker in answer.markers
            for topic in marker.topics
            for p in topic.partitions
        }
        silent = HoldfastError(f"broker {self._broker_id} did not answer for it")
        return [
            (job, {tp: told.get((job.ending.producer.id, tp), silent) for tp in partitions})
            for job, partitions in asked
        ]


def _request(asked: list[tuple[_Job, list[TopicPartition]]]) -> Any:
    return build(
        request_type(ApiKey.WRITE_TXN_MARKERS, VERSION), {"markers": [_marker(job.ending, tps) for job, tps in asked]}
    )


def _marker(ending: Ending, partitions: list[TopicPartition]) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return {
        "producer_id": ending.producer.id,
        "producer_epoch": ending.producer.epoch,
        "transaction_result": ending.commit,
        "coordinator_epoch": ending.coordinator_epoch,
        "transaction_version": ending.version,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()],
    }
