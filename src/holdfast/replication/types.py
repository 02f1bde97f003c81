"""The values that go in and out of replication, and what it asks of the shell around it.

No behaviour. Values that are made once per request or partition of a request are named tuples (cheap), the rest
frozen dataclasses. Absence is None; nothing here knows wire codes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from holdfast.model.config import BrokerConfig
from holdfast.model.errors import HoldfastError
from holdfast.model.types import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TimestampMs,
    TopicId,
    TopicPartition,
)
from holdfast.storage.log_view import FileSlice


class Role(Enum):
    """What this broker is for one partition."""

    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"  # its log directory died, or its log could not be made
    CREATING = "creating"  # the log is being made on its disk


class Isolation(Enum):
    """How far a consumer may read."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class SpecialTimestamp(Enum):
    """The special timestamps of ListOffsets; the values are the wire's."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings:
    """What replication goes by; names are those of the configuration keys."""

    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_backoff_ms: int = 1_000
    fetch_max_bytes: int = 57_671_680
    alter_partition_retry_ms: int = 500
    order_patience_ms: int = 700
    """How long an order of the controller waits for a directory that gets nothing done: others wait behind it."""
    order_timeout_ms: int = 20_000
    """How long it waits for one that does."""

    @classmethod
    def of(cls, config: BrokerConfig) -> "ReplicationSettings":
        """The settings that a broker's configuration gives."""
        return cls(
            replica_lag_time_max_ms=config.int("replica.lag.time.max.ms"),
            replica_fetch_wait_max_ms=config.int("replica.fetch.wait.max.ms"),
            replica_fetch_min_bytes=config.int("replica.fetch.min.bytes"),
            replica_fetch_max_bytes=config.int("replica.fetch.max.bytes"),
            replica_fetch_response_max_bytes=config.int("replica.fetch.response.max.bytes"),
            replica_fetch_backoff_ms=config.int("replica.fetch.backoff.ms"),
            fetch_max_bytes=config.int("fetch.max.bytes"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """What the controller wants of one partition (LeaderAndIsr)."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    is_new: bool = False
    eligible: tuple[BrokerId, ...] = ()
    """Replicas outside the ISR that may be elected (KIP-966)."""
    recovering: bool = False
    """The leader was not elected from those that have everything, and has not said yet that it is ready (KIP-704)."""


class StopReplica(NamedTuple):
    """What the controller wants gone. ``leader_epoch`` None: whatever the epoch (the topic is being deleted).
    ``topic_id``: a replica of another topic of that name is not meant; None: any is."""

    topic_partition: TopicPartition
    leader_epoch: LeaderEpoch | None
    delete: bool
    topic_id: TopicId | None = None


OrderDone: TypeAlias = Callable[[dict[TopicPartition, HoldfastError | None]], None]


class ProduceResult(NamedTuple):
    """What became of one append. The offsets mean something only when ``error`` is None."""

    error: HoldfastError | None
    base_offset: Offset = 0
    log_append_time_ms: TimestampMs | None = None
    log_start_offset: Offset = 0
    error_message: str | None = None
    waited_ns: int = 0
    """How long it was in our log and waited for the in-sync replicas; 0 where nobody counts."""
    began_ns: int = 0
    """When its disk's thread came to it, in ticks of the traffic; 0 where it did not, or nobody counts."""


class AppendTerms(NamedTuple):
    """What is known of batches beyond their bytes (storage/growing_log.py). As it stands: a client's."""

    trusted: bool = False
    """The broker made them: offsets of groups, markers."""
    verified: bool = True
    """The transaction coordinator has said that the partition is in the transaction; else it has to be open there."""
    txn_version: int = 0
    """Of a marker."""
    from_zero: bool = False
    """A producer that is not known here begins with sequence 0: its epoch is new with each transaction (KIP-890)."""


OF_CLIENT = AppendTerms()


class FetchPartitionQuery(NamedTuple):
    """One partition of a fetch, from a consumer to us or from us to a leader."""

    topic_partition: TopicPartition
    offset: Offset
    max_bytes: int
    current_leader_epoch: LeaderEpoch | None = None
    last_fetched_epoch: LeaderEpoch | None = None
    log_start_offset: Offset | None = None
    """The follower's own; None for a consumer."""


class FetchQuery(NamedTuple):
    """One fetch without a session. ``replica`` is None for a consumer, else the follower's id and epoch."""

    replica: tuple[BrokerId, BrokerEpoch | None] | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: Isolation
    partitions: Sequence[FetchPartitionQuery]


class FetchResult(NamedTuple):
    """One partition's answer. With an error there is no data, and offsets are None where they are not known."""

    topic_partition: TopicPartition
    error: HoldfastError | None
    high_watermark: Offset | None = None
    last_stable_offset: Offset | None = None
    log_start_offset: Offset | None = None
    diverging: tuple[LeaderEpoch, Offset] | None = None
    current_leader: tuple[BrokerId | None, LeaderEpoch] | None = None
    data: FileSlice | bytes | None = None
    aborted: Sequence[tuple[int, Offset]] | None = None
    """(producer id, first offset) of aborted transactions in the data; None: not asked for."""


class FetchPlan(NamedTuple):
    """The next fetch of a follower: what to send to the source.

    ``session_epoch`` 0 opens a session (``session_id`` None then); else only what changed is in ``partitions``.
    """

    session_id: int | None
    session_epoch: int
    partitions: list[FetchPartitionQuery]
    forgotten: list[TopicPartition]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int


class FetchedPartition(NamedTuple):
    """One partition of a source's answer. ``records`` must stay valid until the append: it is not copied."""

    topic_partition: TopicPartition
    error: HoldfastError | None
    high_watermark: Offset | None
    log_start_offset: Offset | None
    diverging: tuple[LeaderEpoch, Offset] | None
    records: bytes | bytearray | memoryview | None
    current_leader: tuple[BrokerId | None, LeaderEpoch] | None = None


class IsrProposal(NamedTuple):
    """A change of the ISR that we, the leader, ask of the controller (AlterPartition, one partition)."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[tuple[BrokerId, BrokerEpoch | None], ...]
    """With each member the broker epoch that it fetched with; None where it did not say (and for ourselves)."""
    recovered: bool = True
    """We are through with what an unclean election asks of us, if there was one."""


class IsrOutcome(NamedTuple):
    """What the controller made of a proposal."""

    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    partition_epoch: PartitionEpoch
    eligible: tuple[BrokerId, ...] = ()
    recovering: bool = False


class OffsetResult(NamedTuple):
    """The answer of ListOffsets; all None when nothing matches."""

    offset: Offset | None
    timestamp_ms: TimestampMs | None = None
    leader_epoch: LeaderEpoch | None = None


class EpochEnd(NamedTuple):
    """The answer of OffsetForLeaderEpoch; both None when the epoch is not known."""

    leader_epoch: LeaderEpoch | None
    end_offset: Offset | None


class Fetcher(Protocol):
    """What the shell does for one source and one local directory: it sends the plans and brings the answers."""

    @property
    def source(self) -> BrokerId:
        """The broker that is fetched from."""

    @property
    def is_empty(self) -> bool:
        """Nothing is fetched: no connection is needed."""

    @property
    def partitions(self) -> Iterable[TopicPartition]:
        """Those that are fetched."""

    def build(self, now_ms: int) -> FetchPlan | None:
        """The next request, if there is one to send now."""

    def on_response(
        self, error: HoldfastError | None, session_id: int | None, fetched: Sequence[FetchedPartition], now_ms: int
    ) -> None:
        """The answer to the oldest plan that has none."""

    def on_failure(self, error: HoldfastError, now_ms: int) -> None:
        """The connection is gone, and no answer comes any more."""


class Outbox(Protocol):
    """What replication asks of the shell. Calls come on the loop thread and must not call back synchronously."""

    def alter_partition(self, proposals: Sequence[IsrProposal]) -> None:
        """Send to the controller; each proposal's answer goes to LocalReplicas.alter_partition_result."""

    def fetcher_ready(self, fetcher: Fetcher) -> None:
        """``fetcher.build(now_ms)`` has something to send now (connect to ``fetcher.source`` if need be).

        May be called several times before the shell gets to it; build answers None when there is nothing.
        """

    def log_is_corrupt(self, tp: TopicPartition, error: HoldfastError) -> None:
        """A batch of the log that this broker leads with is damaged on its disk, which works (K18-03)."""

    def leadership_changed(self, tp: TopicPartition, is_leader: bool, leader_epoch: LeaderEpoch) -> None:
        """This broker has begun or ceased to lead a partition. Called in order for each partition."""
