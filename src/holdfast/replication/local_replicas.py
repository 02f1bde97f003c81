"""All partitions that this broker holds: the one door to them.

WIP signatures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.model.config import LogConfig
from holdfast.model.errors import HoldfastError
from holdfast.model.types import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    TopicPartition,
)
from holdfast.replication.types import (
    EpochEnd,
    FetchPartitionQuery,
    FetchQuery,
    FetchResult,
    IsrOutcome,
    IsrProposal,
    Isolation,
    OffsetResult,
    OffsetSpec,
    OrderDone,
    Outbox,
    PartitionState,
    ProduceResult,
    ReplicationSettings,
    StopReplica,
)

if TYPE_CHECKING:
    from holdfast.storage.log_dir import LogDir
    from holdfast.storage.log_manager import LogManager


class FetchWait:
    """A parked fetch; ``fetch`` returns one when it did not answer at once."""

    def cancel(self) -> None:
        """The connection is gone: forget the request, ``done`` is not called."""

    def flush(self) -> None:
        """Answer now with what there is (another request came behind this one on its connection)."""


class FollowerSession:
    """A fetch session of a follower (KIP-227), kept by its connection: fetches cost what changed, not what exists.

    On a follower's Fetch with session epoch 0: close the connection's old session, open a new one, answer its id.
    Else check id and epoch against it (70, 71). When the connection ends: close.
    """

    id: int

    def fetch(
        self,
        partitions: Sequence[FetchPartitionQuery],
        forgotten: Sequence[TopicPartition],
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        now_ms: int,
        done: Callable[[list[FetchResult]], None],
    ) -> None:
        """One fetch of the session: only changed partitions come in, only those with news go out."""

    def flush(self) -> None:
        """As FetchWait.flush."""

    def close(self) -> None:
        """Forget everything; ``done`` of a parked fetch is not called."""


class LocalReplicas:
    """See the module's docstring. Synchronous, on the loop thread only."""

    def __init__(
        self,
        broker_id: BrokerId,
        logs: LogManager,
        settings: ReplicationSettings,
        outbox: Outbox,
        *,
        log_config: Callable[[str], LogConfig],
        is_known: Callable[[TopicPartition], bool],
        clock: Callable[[], int],
    ) -> None:
        """``log_config`` tells the configuration of a topic's logs when one is created; ``is_known`` whether the
        metadata has a partition that is not here (6 instead of 3); ``clock`` is read when a disk has finished, in
        the milliseconds of ``now_ms``."""

    # -- orders of the controller --------------------------------------------------------------------------------

    def apply_leader_and_isr(
        self, partitions: Sequence[PartitionState], *, controller_epoch: ControllerEpoch, now_ms: int, done: OrderDone
    ) -> None:
        """Make the replicas what the controller says."""

    def stop_replicas(
        self,
        replicas: Sequence[StopReplica],
        *,
        controller_epoch: ControllerEpoch,
        now_ms: int,
        done: OrderDone,
    ) -> None:
        """Stop serving; with ``delete`` also delete the log."""

    def log_dir_failed(self, log_dir: LogDir, now_ms: int) -> None:
        """A log directory died: its replicas are offline, and whoever waits for them is answered now."""

    def resign(self, now_ms: int) -> None:
        """The broker is stopping: stop leading and following everything, answer every waiter."""

    # -- clients and followers -----------------------------------------------------------------------------------

    def append(
        self,
        tp: TopicPartition,
        batches: bytearray | memoryview,
        *,
        acks: int,
        timeout_ms: int,
        now_ms: int,
        done: Callable[[ProduceResult], None],
    ) -> None:
        """Append as leader."""

    def fetch(
        self, query: FetchQuery, now_ms: int, done: Callable[[list[FetchResult]], None]
    ) -> FetchWait | None:
        """Read; results in the order of the query."""

    def open_session(self, replica: tuple[BrokerId, BrokerEpoch | None]) -> FollowerSession:
        """A new fetch session for a follower's connection."""
        raise NotImplementedError

    def list_offset(
        self,
        tp: TopicPartition,
        what: OffsetSpec | int,
        *,
        isolation: Isolation,
        current_leader_epoch: LeaderEpoch | None,
        done: Callable[[OffsetResult | HoldfastError], None],
    ) -> None:
        """ListOffsets for one partition; an int is a timestamp."""

    def offset_for_leader_epoch(
        self, tp: TopicPartition, epoch: LeaderEpoch, *, current_leader_epoch: LeaderEpoch | None
    ) -> EpochEnd | HoldfastError:
        """The end offset of a leader epoch."""
        raise NotImplementedError

    def delete_records(
        self,
        tp: TopicPartition,
        before: Offset | None,
        *,
        timeout_ms: int,
        now_ms: int,
        done: Callable[[Offset | HoldfastError], None],
    ) -> None:
        """Raise the log start offset (None: to the high watermark); done gets the new low watermark."""

    # -- the controller's answers, the clock, and what others want to know ---------------------------------------

    def alter_partition_result(
        self, proposal: IsrProposal, outcome: IsrOutcome | HoldfastError, now_ms: int
    ) -> None:
        """The answer to a proposal that went out by the outbox."""

    def tick(self, now_ms: int) -> None:
        """Do what is due: expire waiters, check lagging followers, retry."""

    def next_deadline_ms(self) -> int | None:
        """When ``tick`` has something to do; None: not before something else happens."""

    def high_watermarks(self) -> Mapping[TopicPartition, Offset]:
        """For the checkpoint: of every partition with a log that is online."""
        raise NotImplementedError

    def is_leader(self, tp: TopicPartition) -> bool:
        """True while this broker leads the partition."""
        raise NotImplementedError
