"""The pass over all partitions that a scrape makes: sums, and what is told by topic and by partition.

On the loop, in pieces: others run between them.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from holdfast.replication.types import Role

if TYPE_CHECKING:
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.model.types import TopicPartition
    from holdfast.replication.local_replicas import LocalReplicas
    from holdfast.replication.partition import Partition

LEVELS: Final = ("broker", "topic", "partition")
_AT_ONCE: Final = 250
"""Partitions looked at before the loop may do something else."""


class HasPartitions(Protocol):
    """What the pass asks of the broker."""

    replicas: LocalReplicas
    metadata: MetadataCache


class TopicRow(NamedTuple):
    """A topic's replicas on this broker. ``size``: bytes of their logs; ``under_replicated``: of those it leads."""

    partitions: int = 0
    leaders: int = 0
    under_replicated: int = 0
    size: int = 0


class PartitionRow(NamedTuple):
    """One replica with a log. The second half means something where it is led here."""

    topic_partition: TopicPartition
    size: int
    start_offset: int
    end_offset: int
    segments: int
    is_leader: bool = False
    replicas: int = 0
    in_sync: int = 0
    least: int = 0
    """So many in sync are needed for acks=all."""
    stable_lag: int = 0
    """Records that are committed and that a reader of committed transactions does not get yet."""


@dataclasses.dataclass(slots=True, kw_only=True)
class PartitionSums:
    """Of this broker."""

    partitions: int = 0
    leaders: int = 0
    offline_replicas: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    late_transactions: int = 0


@dataclasses.dataclass(slots=True, kw_only=True)
class ClusterSums:
    """Of the whole cluster, as its controller's broker knows it."""

    topics: int = 0
    all_partitions: int = 0
    offline_partitions: int = 0
    not_preferred: int = 0


class Partitions:
    """What the pass finds."""

    def __init__(self, level: str) -> None:
        self.sums = PartitionSums()
        self.topics: dict[str, TopicRow] = {}
        self.rows: list[PartitionRow] = []
        self.by_topic, self.by_partition = level != "broker", level == "partition"

    async def look(self, broker: HasPartitions, late_ms: int) -> None:
        """All partitions; a transaction that has been open since before ``late_ms`` is late."""
        for some in pieces(broker.replicas.partitions.values()):
            for partition in some:
                self._look_at(partition, late_ms)
            await asyncio.sleep(0)

    def _look_at(self, partition: Partition, late_ms: int) -> None:
        sums, log = self.sums, partition.log
        sums.partitions += 1
        is_leader = is_under = False
        in_sync = least = 0
        if partition.role is Role.OFFLINE:
            sums.offline_replicas += 1
        elif partition.is_open and log is not None:
            is_leader, in_sync = True, len(partition.isr.committed)
            least = min(log.config.min_insync_replicas, len(partition.replicas))
            is_under = in_sync < len(partition.replicas)
            sums.leaders += 1
            sums.under_replicated += is_under
            sums.under_min_isr += in_sync < least
            sums.at_min_isr += in_sync == least
            if log.view.unstable is not None:
                sums.late_transactions += log.producers.is_late(late_ms)
        if not self.by_topic:
            return
        view = None if log is None or partition.role is Role.OFFLINE else log.view
        tp = partition.topic_partition
        row = self.topics.get(tp.topic, _NO_ROW)
        self.topics[tp.topic] = TopicRow(
            row.partitions + 1, row.leaders + is_leader, row.under_replicated + is_under,
            row.size + (0 if view is None else view.size),
        )  # fmt: skip
        if self.by_partition and view is not None:
            mark = partition.high_watermark
            self.rows.append(
                PartitionRow(
                    tp, view.size, view.start_offset, view.end_offset, len(view.segments),
                    is_leader, len(partition.replicas), in_sync, least, mark - view.last_stable(mark),
                )
            )  # fmt: skip


async def cluster_sums(broker: HasPartitions) -> ClusterSums:
    """From the metadata that this broker was told."""
    sums, since = ClusterSums(), 0
    for topic in list(broker.metadata.topics.values()):
        sums.topics += 1
        sums.all_partitions += len(topic)
        for info in topic.values():
            sums.offline_partitions += info.leader is None
            sums.not_preferred += info.leader != info.replicas[0]
        since += len(topic)
        if since >= _AT_ONCE:
            since = 0
            await asyncio.sleep(0)
    return sums


def pieces(values: Iterable[Any]) -> Iterator[list[Any]]:
    """So many that the loop is not held up."""
    every = list(values)
    for i in range(0, len(every), _AT_ONCE):
        yield every[i : i + _AT_ONCE]


_NO_ROW: Final = TopicRow()
