"""A log directory as operators see it: ManageLogDirs and the metrics tell it (handlers/disks.py, metrics.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast.model.types import DirectoryId, TopicPartition
from holdfast.storage.log_dir import LogDir

if TYPE_CHECKING:
    from holdfast.broker.moves import Moves
    from holdfast.replication.local_replicas import LocalReplicas
    from holdfast.storage.log_manager import LogManager


class StatusHost(Protocol):
    """What a directory's status is read from."""

    logs: LogManager
    replicas: LocalReplicas
    moves: Moves


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One replica on a directory. ``size`` in bytes; ``lag`` in records behind, -1 if it is not known."""

    topic_partition: TopicPartition
    size: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskStatus:
    """One log directory as operators see it. ``state``: that of its health; ``since_ms``: wall clock.

    Bytes are -1 where they are not known, and so is ``device``, of its file system. ``replicas`` of an offline
    directory: what was there.
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
    device: int = -1


def status_of(broker: StatusHost, directory: LogDir, probe_ms: float | None) -> DiskStatus:
    """One directory, without its replicas: ``replicas_on`` lists them."""
    health = directory.health
    space = broker.logs.space_of(directory)
    return DiskStatus(
        path=directory.path,
        directory_id=directory.directory_id,
        state=health.state.value,
        reason=health.reason,
        since_ms=health.since_ms,
        total_bytes=-1 if space is None else space.total,
        usable_bytes=-1 if space is None or not directory.is_online else space.usable,
        probe_ms=probe_ms,
        cordoned=directory.cordoned,
        device=-1 if directory.device is None else directory.device,
        replicas=[],
    )


def replicas_on(broker: StatusHost, directory: LogDir) -> list[ReplicaStatus]:
    """A directory's replicas and the copies on it."""
    logs, replicas = broker.logs, broker.replicas
    return [
        ReplicaStatus(topic_partition=tp, size=size, lag=replicas.offset_lag(tp), is_future=False)
        for tp, size in logs.held_by(directory).items()
    ] + [
        ReplicaStatus(
            topic_partition=each.topic_partition,
            size=each.view.size,
            lag=broker.moves.lag_of(each.topic_partition),
            is_future=True,
        )
        for each in logs.copies
        if each.dir is directory
    ]


def held_on(broker: StatusHost, directory: LogDir) -> tuple[int, int]:
    """How many replicas and copies a directory has, and their bytes."""
    sizes = [*broker.logs.held_by(directory).values()]
    sizes += [each.view.size for each in broker.logs.copies if each.dir is directory]
    return len(sizes), sum(sizes)
