"""What the driver asks a cluster: which partitions a subscription has, and offsets by name and by time.

Owns one client per process and set of bootstrap servers (Spark's processes are forked and reused, and ``stop`` of a
reader is not reliably called). Never reads records, except to wait for the next one.
"""

import asyncio
import logging
import os
import random
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from holdfast.client.blocking import BlockingClient
from holdfast.client.cluster import KafkaClient
from holdfast.client.security import SecuritySettings
from holdfast.client.views import BrokerNode, CommittedOffset, FetchedRecords, IsolationLevel, OffsetSpec, TopicView
from holdfast.model.errors import HoldfastError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from holdfast.model.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from holdfast.spark.options import (
    EARLIEST,
    LATEST,
    AtGroup,
    AtOffsets,
    AtTimestamps,
    Named,
    OptionError,
    Position,
    ReadOptions,
)
from holdfast.spark.ranges import Leader, PartitionEnd, Positions
from holdfast.spark.watching import Watcher, by_leader_of

log = logging.getLogger(__name__)

MOST_CLIENTS: Final = 16
"""Of a process, for later readers; a reader keeps its own however many come after it."""
_clients: dict[tuple[Any, ...], BlockingClient] = {}
"""By process and all that ``client_of`` is given; what was asked for last is last."""

RETRY_S: Final = 30.0
OPINIONS: Final = 2
"""So many brokers must know nothing of a topic that one of them is another than the one that was asked first."""


class DataLossError(RuntimeError):
    """Records that were to be read are gone, and failOnDataLoss is true."""


def client_of(
    bootstrap: str,
    client_id: str,
    *,
    retries: int | None = None,
    retry_pause_s: float | None = None,
    security: SecuritySettings | None,
) -> BlockingClient:
    """This process's client of the cluster; its threads do not survive a fork, so the process is part of the key."""
    key = (os.getpid(), bootstrap, client_id, retries, retry_pause_s, security)
    client = _clients.pop(key, None)
    if client is None:
        client = BlockingClient(
            bootstrap,
            client_id=client_id,
            timeout_s=RETRY_S,
            retries=retries,
            retry_pause_s=retry_pause_s,
            security=security,
        )
    _clients[key] = client
    while len(_clients) > MOST_CLIENTS:
        del _clients[next(iter(_clients))]  # it ends with the last reader that has it
    return client


class Topics:
    """The cluster as one reader sees it."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._client = client_of(
            options.bootstrap,
            options.client_id,
            retries=options.offset_retries,
            retry_pause_s=options.offset_retry_pause_s,
            security=options.security,
        )
        self._isolation = IsolationLevel.READ_COMMITTED if options.read_committed else IsolationLevel.READ_UNCOMMITTED
        self._watcher: Watcher | None = None
        self._nodes: dict[BrokerId, BrokerNode] = {}
        self._ids: dict[str, UUID] = {}

    # -- partitions ------------------------------------------------------------------------------------------

    def partitions(self, known: Iterable[TopicPartition] = ()) -> list[TopicPartition]:
        """All partitions subscribed to now. OptionError if a topic or partition that was named is not there.

        What is missing of ``known``, partitions that were there before, is missing at two brokers: one that has just
        started, or is behind, must not end a stream. A named topic of which some were known is then left out.
        """
        known = set(known)
        wanted = self._options.subscription
        if wanted.pattern is not None:
            there = self._seen(None)
            matching = {n: t for n, t in there.items() if re.fullmatch(wanted.pattern, n) and not t.internal}
            return self._with_known(matching, known, lambda topic: _partitions_of(topic))
        if wanted.topics is not None:
            named = self._named("subscribe", wanted.topics, known)
            return self._with_known(named, known, lambda topic: _partitions_of(topic))
        assigned = wanted.assigned or {}
        named = self._named("assign", tuple(assigned), known)
        return self._with_known(named, known, lambda topic: self._assigned(topic, assigned[topic.name], known))

    def _with_known(
        self,
        topics: dict[str, TopicView],
        known: set[TopicPartition],
        partitions: Callable[[TopicView], list[TopicPartition]],
    ) -> list[TopicPartition]:
        found = {tp for topic in topics.values() for tp in partitions(topic)}
        doubtful = {tp.topic for tp in known - found}
        if doubtful:
            again = self._second_opinion(sorted(doubtful))
            found |= {tp for topic in again.values() for tp in partitions(topic)}
        return sorted(found)

    def _assigned(self, topic: TopicView, wanted: tuple[int, ...], known: set[TopicPartition]) -> list[TopicPartition]:
        there = {each.partition for each in topic.partitions}
        tps = [TopicPartition(topic.name, partition) for partition in wanted]
        for tp in tps:
            if tp.partition not in there and tp not in known:
                raise OptionError(
                    f"option assign: topic {topic.name} has no partition {tp.partition}, it has {len(there)}"
                )
        return [tp for tp in tps if tp.partition in there]

    def _named(self, option: str, names: tuple[str, ...], known: set[TopicPartition]) -> dict[str, TopicView]:
        before = {tp.topic for tp in known}
        topics = self._seen(names)
        unknown = [name for name in names if name not in topics and name not in before]
        if unknown:
            again = self._second_opinion(unknown)
            for name in unknown:
                if name not in again:
                    raise OptionError(f"option {option}: topic {name!r} does not exist at {self._options.bootstrap}")
            topics |= again
        return topics

    def _seen(self, names: tuple[str, ...] | None) -> dict[str, TopicView]:
        """The topics that a broker knows of, of ``names`` or of all. An error that passes is waited out, such as that
        of a topic that is being made; what lasts is raised."""
        pattern = self._options.subscription.pattern

        async def once() -> dict[str, TopicView]:
            view = await self._client.aio.refresh(names)
            found = {}
            for name, topic in view.topics.items():
                if names is None and (pattern is None or not re.fullmatch(pattern, name)):
                    continue
                if topic.error is None:
                    found[name] = topic
                elif not isinstance(topic.error, UnknownTopicOrPartitionError):
                    raise topic.error
            self._nodes = dict(view.brokers)
            return found

        found = self._client.run(self._client.aio.retrying(once, refresh=False))
        self._learn(found)
        return found

    async def _opinions(self, names: list[str]) -> list[dict[str, TopicView]]:
        """The topics as two brokers see them: it is not told which broker is usually asked, and one of two is another
        one. One that is being made, or is not known of, is left out."""
        found: list[dict[str, TopicView]] = []
        trouble: HoldfastError = LeaderNotAvailableError("no broker of the cluster is known")
        for broker_id in random.sample(sorted(self._nodes), len(self._nodes)):
            try:
                view = await self._client.aio.metadata_of(broker_id, names)
            except HoldfastError as error:
                trouble = error
                continue
            found.append({name: topic for name, topic in view.topics.items() if topic.error is None})
            passing = [topic.error for topic in view.topics.values() if topic.error is not None]
            trouble = next((each for each in passing if not isinstance(each, UnknownTopicOrPartitionError)), trouble)
            if passing and trouble in passing:
                raise trouble
            if len(found) == OPINIONS:
                break
        if not found:
            raise trouble
        return found

    def _second_opinion(self, names: list[str]) -> dict[str, TopicView]:
        """Those of the topics that any of two brokers knows of."""

        async def once() -> dict[str, TopicView]:
            found = {name: topic for opinion in await self._opinions(names) for name, topic in opinion.items()}
            self._client.aio.learn(found)
            return found

        found = self._client.run(self._client.aio.retrying(once))
        self._learn(found)
        return found

    def _learn(self, topics: Mapping[str, TopicView]) -> None:
        for name, topic in topics.items():
            if topic.topic_id is not None:
                self._ids[name] = topic.topic_id

    def topic_ids(self, before: Mapping[str, UUID]) -> dict[str, UUID]:
        """The ids of the topics that this reader has seen, as last seen; where there are ids. One that is not as it was
        ``before`` is what two brokers agree on: a stale one may still tell of the topic that was."""
        doubtful = [name for name, old in before.items() if self._ids.get(name, old) != old]

        async def once() -> dict[str, UUID]:
            agreed: dict[str, UUID] = {}
            for opinion in await self._opinions(doubtful):
                for name, topic in opinion.items():
                    if topic.topic_id is not None and agreed.setdefault(name, topic.topic_id) != topic.topic_id:
                        raise LeaderNotAvailableError(
                            f"topic {name} has id {agreed[name]} at one broker and {topic.topic_id} at another"
                        )
            return agreed

        if doubtful:
            self._ids |= self._client.run(self._client.aio.retrying(once))
        return dict(self._ids)

    def leaders(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, Leader]:
        """Where each partition's leader listens, and its epoch; a partition without one now is left out."""
        tps = list(tps)
        view = self._client.metadata(sorted({tp.topic for tp in tps}))
        self._nodes = dict(view.brokers)
        topics = {name: topic for name, topic in view.topics.items() if topic.error is None}
        unknown = sorted({tp.topic for tp in tps} - set(topics))
        self._learn(topics)
        topics |= self._second_opinion(unknown) if unknown else {}
        found = {}
        for tp in tps:
            topic = topics.get(tp.topic)
            seen = topic.partition(tp.partition) if topic is not None else None
            node = view.brokers.get(seen.leader) if seen is not None and seen.leader is not None else None
            if seen is not None and node is not None:
                found[tp] = Leader(node.host, node.port, seen.leader_epoch)
        return found

    def leader(self, tp: TopicPartition) -> Leader:
        """As ``leaders`` for one partition; LeaderNotAvailableError if it has none."""
        found = self.leaders([tp])
        if tp not in found:
            raise LeaderNotAvailableError(f"partition {tp} has no leader")
        return found[tp]

    def broker(self, broker_id: BrokerId, epoch: LeaderEpoch | None) -> Leader | None:
        """Where another replica than the leader may be read; None if the broker is not known."""
        node = self._client.metadata([]).brokers.get(broker_id)
        return None if node is None else Leader(node.host, node.port, epoch)

    def bounds(self, tp: TopicPartition) -> tuple[Offset, Offset]:
        """Where the partition's log starts and ends, by the leader that there is now."""
        self._client.metadata([tp.topic])
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

    def first_since(self, time_ms: int, tps: Iterable[TopicPartition]) -> Positions:
        """The first record of each partition that is as young as ``time_ms``; all before it are older. Partitions
        without one are left out."""
        answers = self._client.list_offsets(dict.fromkeys(tps, time_ms), isolation=self._isolation)
        return {tp: answer.offset for tp, answer in answers.items() if answer.offset is not None}

    def ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionEnd]:
        """As ``latest``, with the leader epoch of each end."""
        specs = dict.fromkeys(tps, OffsetSpec.LATEST)
        answers = self._client.list_offsets(specs, isolation=self._isolation) if specs else {}
        return {tp: PartitionEnd(answer.offset or 0, answer.leader_epoch) for tp, answer in answers.items()}

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, LeaderEpoch]
    ) -> dict[TopicPartition, tuple[LeaderEpoch | None, Offset | None]]:
        """Where the leaders' logs leave these epochs: KafkaClient.epoch_ends."""
        return self._client.run(self._client.aio.epoch_ends(epochs)) if epochs else {}

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
            case AtGroup():
                return self._at_group(position, tps)

    def _at_group(self, position: AtGroup, tps: list[TopicPartition]) -> Positions:
        """A partition that the group has not committed yet is read from its earliest record, like one that is new."""
        committed = self._client.committed(position.group, tps)
        found = {tp: committed[tp].offset for tp in tps if tp in committed}
        if tps and not found:
            what = self._options.subscription
            raise OptionError(f"option {position.option}: group {position.group!r} has committed no offset of {what}")
        return found | self.earliest([tp for tp in tps if tp not in found])

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

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], *, timeout_s: float
    ) -> None:
        """Tells a group without members where a reader stands: KafkaClient.commit_offsets."""
        self._client.commit_offsets(group, offsets, timeout_s=timeout_s)

    def data_loss(self, text: str) -> None:
        """Raises, or warns if the user said that loss is fine."""
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{text}. Set failOnDataLoss=false to go on with what is there")
        log.warning("%s; going on, since failOnDataLoss is false", text)

    def sample(
        self, positions: Positions, *, max_bytes: int, partition_max_bytes: int
    ) -> dict[TopicPartition, FetchedRecords]:
        """What the leaders have at the positions: one fetch to each, none of which is waited for or asked again. What
        a leader has no room for in its answer, refuses or throttles is left out."""
        return self._client.run(_sample(self._client.aio, positions, max_bytes, partition_max_bytes, self._isolation))

    # -- waiting ---------------------------------------------------------------------------------------------

    def wait_beyond(self, positions: Positions) -> None:
        """Returns when a partition may have a record at or after its position, or after fetch.max.wait.ms.

        A fetch that the brokers hold until there is something; an error only ends the wait early, the caller finds
        out more by asking for offsets.
        """
        if self._watcher is None:
            self._watcher = Watcher(self._options, self._isolation)
        self._client.run(self._watcher.wait(positions))


async def _sample(
    client: KafkaClient, positions: Positions, max_bytes: int, partition_max_bytes: int, isolation: IsolationLevel
) -> dict[TopicPartition, FetchedRecords]:
    try:
        by_leader = await by_leader_of(client, positions)
    except HoldfastError as error:
        log.info("records are not measured: %s", error)
        return {}
    sizes = {"max_bytes": max_bytes, "partition_max_bytes": partition_max_bytes}
    fetches = [
        client.fetch_from(broker, part, **sizes, max_wait_ms=0, isolation=isolation)
        for broker, part in by_leader.items()
    ]
    answers = await asyncio.gather(*fetches, return_exceptions=True)
    found: dict[TopicPartition, FetchedRecords] = {}
    for answer in answers:
        if isinstance(answer, HoldfastError):
            log.info("records are not measured: %s", answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found |= {tp: part for tp, part in answer.items() if part.error is None}
    return found


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
