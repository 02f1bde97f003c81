"""A log directory as operators see it: ManageLogDirs and the metrics tell it (handlers/disks.py, metrics.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.broker.dir_health import DirHealth
from holdfast.model.errors import KafkaStorageError
from holdfast.model.types import DirectoryId, TopicPartition
from holdfast.storage.log_dir import DirState, LogDir

if TYPE_CHECKING:
    from holdfast.broker.app import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One replica on a directory. ``size`` in bytes; ``lag`` in records behind, -1 if it is not known."""

    topic_partition: TopicPartition
    size: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskStatus:
    """One log directory as operators see it. ``state``: online, full, degraded or offline; ``since_ms``: wall clock.

    Bytes are -1 where they are not known. ``replicas`` of an offline directory: what was there.
    """

    path: str
    directory_id: DirectoryId | None
    state: str
    reason: str | None
    since_ms: int
    total_bytes: int
    usable_bytes: int
    probe_ms: float | None
    cordoned: bool
    replicas: list[ReplicaStatus]


def status_of(broker: Broker, directory: LogDir, health: DirHealth, since_ms: int) -> DiskStatus:
    """One directory, its replicas and the copies on it."""
    logs, replicas = broker.logs, broker.replicas
    state, reason = directory.state.value, directory.failure or directory.full
    if directory.state is DirState.ONLINE and health.is_degraded:
        state, reason = "degraded", KafkaStorageError(f"probes usually took {health.usual_ms or 0.0:.1f} ms")
    space = logs.space_of(directory)
    return DiskStatus(
        path=directory.path,
        directory_id=directory.directory_id,
        state=state,
        reason=None if reason is None else str(reason),
        since_ms=since_ms,
        total_bytes=-1 if space is None else space.total,
        usable_bytes=-1 if space is None or not directory.is_online else space.usable,
        probe_ms=health.last_ms,
        cordoned=directory.cordoned,
        replicas=[
            ReplicaStatus(
                topic_partition=each.topic_partition,
                size=each.view.size,
                lag=replicas.offset_lag(each.topic_partition),
                is_future=False,
            )
            for each in logs.logs_in(directory)
        ]
        + [
            ReplicaStatus(topic_partition=tp, size=each.view.size, lag=broker.moves.lag_of(tp), is_future=True)
            for tp, each in logs.futures.items()
            if each.dir is directory
        ],
    )
