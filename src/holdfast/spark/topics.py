"""What the driver asks a cluster: which partitions a subscription has, and offsets by name and by time.

Owns one client per process and set of bootstrap servers (Spark's processes are forked and reused, and ``stop`` of a
reader is not reliably called). Never reads records, except to wait for the next one.
"""

import asyncio
import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.client.blocking import BlockingClient
from holdfast.client.cluster import KafkaClient
from holdfast.client.views import IsolationLevel, OffsetSpec, TopicView
from holdfast.model.errors import HoldfastError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from holdfast.model.types import Offset, TopicPartition
from holdfast.spark.options import EARLIEST, LATEST, AtOffsets, AtTimestamps, Named, OptionError, Position, ReadOptions
from holdfast.spark.ranges import Positions

log = logging.getLogger(__name__)

_clients: dict[tuple[int, str, str], BlockingClient] = {}

RETRY_S: Final = 30.0


class DataLossError(RuntimeError):
    """Records that were to be read are gone, and failOnDataLoss is true."""


def client_of(bootstrap: str, client_id: str) -> BlockingClient:
    """This process's client of the cluster; its threads do not survive a fork, so the process is part of the key."""
    key = (os.getpid(), bootstrap, client_id)
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = BlockingClient(bootstrap, client_id=client_id, timeout_s=RETRY_S)
    return client


class Topics:
    """The cluster as one reader sees it."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._client = client_of(options.bootstrap, options.client_id)
        self._isolation = IsolationLevel.READ_COMMITTED if options.read_committed else IsolationLevel.READ_UNCOMMITTED
        self._watcher: KafkaClient | None = None
        self._addresses: dict[int, tuple[str, int]] = {}

    # -- partitions ------------------------------------------------------------------------------------------

    def partitions(self) -> list[TopicPartition]:
        """All partitions subscribed to now. OptionError if a topic or partition that was named is not there."""
        wanted = self._options.subscription
        if wanted.pattern is not None:
            view = self._client.metadata()
            matching = [topic for name, topic in view.topics.items() if re.fullmatch(wanted.pattern, name)]
            return sorted(tp for topic in matching for tp in _partitions_of(topic))
        if wanted.topics is not None:
            return sorted(tp for topic in self._named("subscribe", wanted.topics) for tp in _partitions_of(topic))
        assigned = wanted.assigned or {}
        found = []
        for topic in self._named("assign", tuple(assigned)):
            there = {each.partition for each in topic.partitions}
            for partition in assigned[topic.name]:
                if partition not in there:
                    raise OptionError(
                        f"option assign: topic {topic.name} has no partition {partition}, it has {len(there)}"
                    )
                found.append(TopicPartition(topic.name, partition))
        return sorted(found)

    def _named(self, option: str, names: tuple[str, ...]) -> list[TopicView]:
        view = self._client.metadata(names)
        topics = []
        for name in names:
            topic = view.topics.get(name)
            if topic is None or isinstance(topic.error, UnknownTopicOrPartitionError):
                raise OptionError(f"option {option}: topic {name!r} does not exist at {self._options.bootstrap}")
            if topic.error is not None:
                raise topic.error
            topics.append(topic)
        return topics

    def leaders(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[str, int]]:
        """Where each partition's leader listens; a partition without one now is left out."""
        names = sorted({tp.topic for tp in tps})
        view = self._client.metadata(names)
        nodes = {node.broker_id: (node.host, node.port) for node in view.brokers.values()}
        found = {}
        for tp in tps:
            leader = view.leader_of(tp)
            if leader in nodes:
                found[tp] = nodes[leader]
        return found

    def leader(self, tp: TopicPartition) -> tuple[str, int]:
        """As ``leaders`` for one partition; LeaderNotAvailableError if it has none."""
        found = self.leaders([tp])
        if tp not in found:
            raise LeaderNotAvailableError(f"partition {tp} has no leader")
        return found[tp]

    def bounds(self, tp: TopicPartition) -> tuple[Offset, Offset]:
        """Where the partition's log starts and ends."""
        return self.earliest([tp])[tp], self.latest([tp])[tp]

    # -- offsets ---------------------------------------------------------------------------------------------

    def earliest(self, tps: Iterable[TopicPartition]) -> Positions:
        return self._listed(dict.fromkeys(tps, OffsetSpec.EARLIEST))

    def latest(self, tps: Iterable[TopicPartition]) -> Positions:
        return self._listed(dict.fromkeys(tps, OffsetSpec.LATEST))

    def _listed(self, specs: Mapping[TopicPartition, OffsetSpec]) -> Positions:
        if not specs:
            return {}
        answers = self._client.list_offsets(dict(specs), isolation=self._isolation)
        return {tp: answer.offset or 0 for tp, answer in answers.items()}

    def at(self, position: Position, tps: list[TopicPartition], *, starting: bool) -> Positions:
        """The offsets that an option asks for; OptionError if it does not fit the partitions or the log."""
        match position:
            case Named.EARLIEST:
                return self.earliest(tps)
            case Named.LATEST:
                return self.latest(tps)
            case AtTimestamps():
                return self._at_times(position, tps, starting)
            case AtOffsets():
                return self._at_offsets(position, tps)

    def _at_offsets(self, position: AtOffsets, tps: list[TopicPartition]) -> Positions:
        given = _fitting(position.offsets, tps, position.option)
        found = {tp: offset for tp, offset in given.items() if offset >= 0}
        found |= self.earliest([tp for tp, offset in given.items() if offset == EARLIEST])
        found |= self.latest([tp for tp, offset in given.items() if offset == LATEST])
        return found

    def _at_times(self, position: AtTimestamps, tps: list[TopicPartition], starting: bool) -> Positions:
        if position.timestamps is None:
            times = dict.fromkeys(tps, position.everywhere or 0)
        else:
            times = _fitting(position.timestamps, tps, position.option)
        answers = self._client.list_offsets(dict(times), isolation=self._isolation)
        found = {tp: answer.offset for tp, answer in answers.items() if answer.offset is not None}
        late = [tp for tp in tps if tp not in found]
        if late and starting and not self._options.latest_where_no_time:
            raise OptionError(
                f"option {position.option}: partition {late[0]} has no record at or after {times[late[0]]}; with "
                "startingOffsetsByTimestampStrategy=latest it would start at its end"
            )
        return found | self.latest(late)

    def data_loss(self, text: str) -> None:
        """Raises, or warns if the user said that loss is fine."""
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{text}. Set failOnDataLoss=false to go on with what is there")
        log.warning("%s; going on, since failOnDataLoss is false", text)

    # -- waiting ---------------------------------------------------------------------------------------------

    def wait_beyond(self, positions: Positions) -> None:
        """Returns when a partition may have a record at or after its position, or after fetch.max.wait.ms.

        A fetch that the brokers hold until there is something; an error only ends the wait early, the caller finds
        out more by asking for offsets.
        """
        if self._watcher is None:
            # A client of its own: answers of one connection come in order, so a held fetch would hold up the rest.
            self._watcher = KafkaClient(self._options.bootstrap, client_id=f"{self._options.client_id}-watch")
        self._client.run(_wait(self._watcher, positions, self._options.fetch_wait_ms, self._isolation))


async def _wait(client: KafkaClient, positions: Positions, wait_ms: int, isolation: IsolationLevel) -> None:
    by_leader: dict[int, Positions] = {}
    try:
        for tp, offset in positions.items():
            by_leader.setdefault(await client.leader(tp), {})[tp] = offset
    except HoldfastError:
        await asyncio.sleep(wait_ms / 1000)
        return
    fetches = [
        asyncio.ensure_future(
            client.fetch_from(
                broker, part, max_bytes=1, partition_max_bytes=1, max_wait_ms=wait_ms, isolation=isolation
            )
        )
        for broker, part in by_leader.items()
    ]
    if not fetches:
        await asyncio.sleep(wait_ms / 1000)
        return
    done, pending = await asyncio.wait(fetches, timeout=wait_ms / 1000 + 1, return_when=asyncio.FIRST_COMPLETED)
    for each in pending:
        each.cancel()
    failed = [each.exception() for each in done if not each.cancelled() and each.exception() is not None]
    stale = any(part.error is not None for each in done if not each.exception() for part in each.result().values())
    if failed or stale:  # leaders have moved, or a broker is gone: learn anew, without a busy loop
        await asyncio.sleep(min(0.05, wait_ms / 1000))
        await client.metadata(sorted({tp.topic for tp in positions}))


def _fitting(
    given: Mapping[str, Mapping[int, Any]], tps: list[TopicPartition], option: str
) -> dict[TopicPartition, Any]:
    """One value per partition, neither more nor less: a forgotten partition would be silently not read."""
    found = {TopicPartition(topic, p): value for topic, parts in given.items() for p, value in parts.items()}
    missing = [tp for tp in tps if tp not in found]
    if missing:
        raise OptionError(
            f"option {option} says nothing of partition {missing[0]}: expected every partition that is read"
        )
    extra = sorted(set(found) - set(tps))
    if extra:
        raise OptionError(f"option {option} names {extra[0]}, which is not subscribed to or does not exist")
    return {tp: found[tp] for tp in tps}


def _partitions_of(topic: TopicView) -> list[TopicPartition]:
    return [TopicPartition(topic.name, each.partition) for each in topic.partitions]


def checked_start(
    topics: Topics, start: Positions, earliest: Positions, latest: Positions
) -> dict[TopicPartition, Offset]:
    """``start`` moved to what is there: below the log's start or beyond its end is loss of data."""
    found = dict(start)
    for tp, offset in start.items():
        if offset < earliest[tp]:
            topics.data_loss(
                f"partition {tp}: offset {offset} is gone, the log starts at {earliest[tp]} "
                "(retention or a deletion of records took the rest)"
            )
            found[tp] = earliest[tp]
        elif offset > latest[tp]:
            topics.data_loss(
                f"partition {tp}: offset {offset} is beyond the end of the log, {latest[tp]} "
                "(was the topic deleted and made again?)"
            )
            found[tp] = latest[tp]
    return found
