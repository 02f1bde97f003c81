"""What a client knows of a cluster, as values: no wire types, no sentinels.

Owns the words that the client's callers (CLI, Spark, tests) see. Never sends anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from holdfast.model.errors import HoldfastError
from holdfast.model.types import BrokerId, LeaderEpoch, Offset, TimestampMs, TopicPartition


class IsolationLevel(Enum):
    """Which records a reader is given; the numbers are those of Fetch and ListOffsets."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetSpec(Enum):
    """Offsets that have names; the numbers stand for timestamps in ListOffsets."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    """Where a broker listens."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """One partition as Metadata tells it."""

    partition: int
    leader: BrokerId | None
    leader_epoch: LeaderEpoch | None
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]
    error: HoldfastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """One topic as Metadata tells it; ``error`` when it could not be told, and then no partitions."""

    name: str
    topic_id: UUID | None
    internal: bool
    partitions: tuple[PartitionMetadata, ...]
    error: HoldfastError | None = None

    def partition(self, index: int) -> PartitionMetadata | None:
        if 0 <= index < len(self.partitions) and self.partitions[index].partition == index:
            return self.partitions[index]  # they are in order, and mostly none is missing
        return next((p for p in self.partitions if p.partition == index), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """The cluster as one broker saw it at one moment."""

    cluster_id: str | None
    controller_id: BrokerId | None
    brokers: Mapping[BrokerId, BrokerNode]
    topics: Mapping[str, TopicView]

    def leader_of(self, tp: TopicPartition) -> BrokerId | None:
        topic = self.topics.get(tp.topic)
        partition = topic.partition(tp.partition) if topic is not None else None
        return partition.leader if partition is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceAck:
    """A batch that a leader took. Offsets are absent with acks=0 and for a batch that it had already."""

    base_offset: Offset | None
    log_append_time_ms: TimestampMs | None = None
    log_start_offset: Offset | None = None
    duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRecords:
    """One partition's part of a fetch: whole batches as the leader has them, maybe a partial one at the end."""

    error: HoldfastError | None
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    records: memoryview
    aborted: tuple[tuple[int, Offset], ...] = ()
    """(producer id, first offset) of transactions that were aborted, for READ_COMMITTED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAt:
    """An answer of ListOffsets; ``offset`` is None when no record is at or after the time asked for."""

    offset: Offset | None
    timestamp_ms: TimestampMs | None = None
    leader_epoch: LeaderEpoch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A group's position in one partition."""

    offset: Offset
    leader_epoch: LeaderEpoch | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """A value that a layer gives to a key, perhaps under the name of the broker key behind it."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """One key of a topic or broker as DescribeConfigs tells it; ``source`` is Kafka's name for the layer.

    ``value`` of a sensitive key is None. ``synonyms``: the layers that have one, the one in force first, where they
    were asked for.
    """

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    type: str = "UNKNOWN"
    synonyms: tuple[ConfigSynonym, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOnDisk:
    """One replica in one log directory."""

    tp: TopicPartition
    size_bytes: int
    offset_lag: int
    future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirView:
    """One log directory of one broker."""

    path: str
    error: HoldfastError | None
    total_bytes: int | None
    usable_bytes: int | None
    replicas: tuple[ReplicaOnDisk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskView:
    """One log directory as a Holdfast broker tells its operator. ``state``: online, full, degraded, offline or
    loading, for ``reason`` and since ``since_ms``. ``replicas`` of one that is offline: what was there."""

    path: str
    directory_id: UUID | None
    state: str
    reason: str | None
    since_ms: TimestampMs | None
    total_bytes: int | None
    usable_bytes: int | None
    probe_ms: float | None
    cordoned: bool
    replicas: tuple[ReplicaOnDisk, ...]
    device: int | None = None
    """Of its file system: directories with the same one share its room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveView:
    """A replica on its way to another log directory; ``lag``: records that its copy has not got yet."""

    tp: TopicPartition
    source: str
    target: str
    lag: int
    bytes_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DisksView:
    """All log directories of one broker, and the moves between them."""

    disks: tuple[DiskView, ...]
    moves: tuple[MoveView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentView:
    """A partition that is being reassigned. ``replicas``: the target, then those that go."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as a broker lists it: the ``coordinator``, which may be another one by now."""

    group_id: str
    protocol_type: str
    state: str
    coordinator: BrokerId | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One consumer group as its coordinator tells it; Kafka's state names (Stable, Empty, Dead, ...)."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    coordinator: BrokerNode


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create: counts (None: the broker's default) or, instead, the replicas of each partition."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Mapping[int, tuple[BrokerId, ...]] | None = None
    configs: Mapping[str, str] | None = None
