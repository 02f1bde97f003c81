"""What is there to audit: asks the cluster, then lists the files.

Owns the order of the questions, on which the audit stands: who is in sync, then the high watermark, then where the
replicas are, then their files. So what is below the high watermark is in the files of every replica that was in sync,
however much is written meanwhile. Reads names and sizes only; never opens a segment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.client.blocking import BlockingClient
from holdfast.client.disks import describe_disks
from holdfast.client.security import SecuritySettings
from holdfast.client.views import ClusterMetadata, LogDirView, OffsetSpec, PartitionMetadata, TopicView
from holdfast.model.errors import HoldfastError
from holdfast.model.types import BrokerId, Offset, TopicPartition
from holdfast.spark.audit_scan import SegmentFile

CLIENT_ID: Final = "holdfast-audit"
TIMEOUT_S: Final = 15.0
DIRS_TIMEOUT_S: Final = 5.0
"""A broker that does not tell its log directories within this has replicas that are not compared."""
DOWN: Final = "the broker is down"
LOOKS: Final = 4
"""How often files and the broker's count of their bytes are looked at before they are said to disagree: retention may
take a segment between the two."""
_META_PROPERTIES: Final = "meta.properties"


class AuditError(Exception):
    """The audit cannot be done; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlan:
    """One replica. ``slot``: its number among the replicas of its partition. Without a ``directory`` it is nowhere;
    with a ``reason`` it cannot be read here."""

    tp: TopicPartition
    broker: BrokerId
    slot: int
    in_sync: bool
    high_watermark: Offset
    compacted: bool
    directory: str | None = None
    reason: str | None = None
    segments: tuple[SegmentFile, ...] = ()
    short_bytes: int = 0
    """How many bytes more than there are files the broker counts in this replica."""

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """One partition; without a high watermark, ``reason`` says why nothing of it can be compared."""

    tp: TopicPartition
    leader: BrokerId | None
    log_start_offset: Offset | None
    high_watermark: Offset | None
    compacted: bool
    replicas: tuple[ReplicaPlan, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some segments of one replica: what one reader does in one go."""

    replica: ReplicaPlan
    segments: tuple[SegmentFile, ...]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dirs:
    """One broker's log directories, or why they are not known."""

    views: tuple[LogDirView, ...] = ()
    homes: Mapping[TopicPartition, tuple[str, int]] = field(default_factory=dict)
    """Where each replica is, and its size as the broker counts it."""
    reason: str | None = None
    offline: Mapping[str, str] = field(default_factory=dict)
    """Why directories are offline, as their broker tells its operator."""


def make_plan(
    bootstrap: str, topics: Iterable[str] | None = None, security: SecuritySettings | None = None
) -> tuple[PartitionPlan, ...]:
    """All partitions of the topics (None: of all topics) with the files of their replicas."""
    with (
        BlockingClient(bootstrap, client_id=CLIENT_ID, timeout_s=TIMEOUT_S, security=security) as client,
        BlockingClient(bootstrap, client_id=CLIENT_ID, timeout_s=DIRS_TIMEOUT_S, security=security) as disks,
    ):
        client.connect()  # a cluster that cannot be reached is said to be so before anything is retried
        view = client.metadata(None if topics is None else sorted(set(topics)))
        for topic in view.topics.values():
            if topic.error is not None:
                raise AuditError(str(topic.error))
        wanted = [(t, p) for _, t in sorted(view.topics.items()) for p in sorted(t.partitions, key=_index)]
        compacted = _compacted(client, view)
        ends, starts = _offsets(client, wanted)
        dirs = _log_dirs(disks, view, {b for _, p in wanted for b in p.replicas})
        unreadable = {broker: _unreadable(broker, answer, view.cluster_id) for broker, answer in dirs.items()}
        plans = []
        for topic, partition in wanted:
            tp = TopicPartition(topic.name, partition.partition)
            end = ends[tp]
            known = end if isinstance(end, int) else 0
            replicas = (
                ReplicaPlan(
                    tp=tp,
                    broker=broker,
                    slot=slot,
                    in_sync=broker in partition.isr,
                    high_watermark=known,
                    compacted=topic.name in compacted,
                )
                for slot, broker in enumerate(partition.replicas)
            )
            plans.append(
                PartitionPlan(
                    tp=tp,
                    leader=partition.leader,
                    log_start_offset=starts.get(tp),
                    high_watermark=end if isinstance(end, int) else None,
                    compacted=topic.name in compacted,
                    replicas=tuple(_with_files(disks, r, dirs[r.broker], unreadable[r.broker]) for r in replicas),
                    reason=end if isinstance(end, str) else None,
                )
            )
        return tuple(plans)


def in_sync_now(
    bootstrap: str, tps: Iterable[TopicPartition], security: SecuritySettings | None = None
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """The in-sync replicas as they are by now."""
    wanted = set(tps)
    with BlockingClient(bootstrap, client_id=CLIENT_ID, timeout_s=TIMEOUT_S, security=security) as client:
        view = client.metadata(sorted({tp.topic for tp in wanted}))
    return {
        tp: partition.isr
        for topic in view.topics.values()
        for partition in topic.partitions
        if (tp := TopicPartition(topic.name, partition.partition)) in wanted
    }


def _index(partition: PartitionMetadata) -> int:
    return partition.partition


def _compacted(client: BlockingClient, view: ClusterMetadata) -> set[str]:
    """Topics whose logs may have holes."""
    if not view.topics:
        return set()
    configs = client.describe_topic_configs(sorted(view.topics))
    return {
        topic
        for topic, values in configs.items()
        for value in values
        if value.name == "cleanup.policy" and "compact" in (value.value or "")
    }


def _offsets(
    client: BlockingClient, wanted: Sequence[tuple[TopicView, PartitionMetadata]]
) -> tuple[dict[TopicPartition, Offset | str], dict[TopicPartition, Offset]]:
    """High watermark of each partition, or why it is not known; log start offsets as far as they are known."""
    ends: dict[TopicPartition, Offset | str] = {}
    starts: dict[TopicPartition, Offset] = {}
    by_leader: dict[BrokerId, list[TopicPartition]] = {}
    for topic, partition in wanted:
        tp = TopicPartition(topic.name, partition.partition)
        if partition.leader is None:
            ends[tp] = "it has no leader, so that its high watermark is not known"
        else:
            by_leader.setdefault(partition.leader, []).append(tp)
    for leader, tps in by_leader.items():
        try:
            for tp, found in client.list_offsets(dict.fromkeys(tps, OffsetSpec.EARLIEST)).items():
                starts[tp] = found.offset or 0
            for tp, found in client.list_offsets(dict.fromkeys(tps, OffsetSpec.LATEST)).items():
                ends[tp] = found.offset or 0
        except HoldfastError as error:
            ends |= dict.fromkeys(tps, f"its leader, broker {leader}, did not tell the high watermark: {error}")
    return ends, starts


def _log_dirs(client: BlockingClient, view: ClusterMetadata, brokers: Iterable[BrokerId]) -> dict[BrokerId, _Dirs]:
    answers = {}
    for broker in sorted(brokers):
        try:
            answers[broker] = _ask_dirs(client, broker, None) if broker in view.brokers else _Dirs(reason=DOWN)
        except HoldfastError as error:
            alive = broker in client.metadata(()).brokers
            answers[broker] = _Dirs(reason=f"the broker does not tell its log directories: {error}" if alive else DOWN)
    return answers


def _ask_dirs(client: BlockingClient, broker: BrokerId, tps: Sequence[TopicPartition] | None) -> _Dirs:
    views = client.describe_log_dirs([broker], tps)[broker]
    homes = {found.tp: (view.path, found.size_bytes) for view in views for found in view.replicas if not found.future}
    bad = [view.path for view in views if view.error is not None]
    return _Dirs(views=views, homes=homes, offline=_why_offline(client, broker) if bad and tps is None else {})


def _why_offline(client: BlockingClient, broker: BrokerId) -> dict[str, str]:
    """Nothing where it is no broker of Holdfast's, or may not be asked."""
    try:
        disks = client.run(describe_disks(client.aio, broker)).disks
        return {disk.path: disk.reason for disk in disks if disk.reason is not None}
    except HoldfastError:
        return {}


def _unreadable(broker: BrokerId, dirs: _Dirs, cluster_id: str | None) -> dict[str, str]:
    """Log directory -> why it cannot be read here."""
    found = {}
    for view in dirs.views:
        why = dirs.offline.get(view.path, str(view.error))
        reason = f"offline: {why}" if view.error is not None else not_here(view.path, broker, cluster_id)
        if reason is not None:
            found[view.path] = reason
    return found


def not_here(path: str, broker: BrokerId, cluster_id: str | None) -> str | None:
    """Why a log directory cannot be read from this process; None if it can. A directory of the same name that
    belongs to another broker (we may be on another machine) is found out by its meta.properties."""
    try:
        os.listdir(path)
        with open(os.path.join(path, _META_PROPERTIES), encoding="utf-8") as file:
            pairs = (line.strip().partition("=") for line in file if not line.startswith("#"))
            meta = {key: value for key, _, value in pairs}
    except (OSError, UnicodeDecodeError) as error:
        return f"not readable on this machine: {getattr(error, 'strerror', None) or error}"
    owner = meta.get("node.id") or meta.get("broker.id")
    if owner != str(broker):
        return f"on this machine that directory is broker {owner}'s"
    if cluster_id is not None and meta.get("cluster.id", cluster_id) != cluster_id:
        return f"on this machine that directory belongs to cluster {meta['cluster.id']}, not {cluster_id}"
    return None


def _with_files(
    client: BlockingClient, replica: ReplicaPlan, dirs: _Dirs, unreadable: Mapping[str, str]
) -> ReplicaPlan:
    """The replica with its directory and segments, or with the reason why not."""
    if dirs.reason is not None:
        return replace(replica, reason=dirs.reason)

    def home_by_now() -> tuple[str, int] | None:
        try:
            return _ask_dirs(client, replica.broker, [replica.tp]).homes.get(replica.tp)
        except HoldfastError:
            return None

    home = dirs.homes.get(replica.tp)
    if home is None:
        offline = [view.path for view in dirs.views if view.error is not None]
        if offline:  # a broker does not know what is on a directory that it cannot read
            return replace(replica, directory=offline[0], reason=unreadable[offline[0]])
        home = home_by_now()  # it may just be made
        if home is None:
            return replica
    path, size = home
    if path in unreadable:
        return replace(replica, directory=path, reason=unreadable[path])

    def size_by_now() -> int | None:
        found = home_by_now()
        return None if found is None else found[1]

    try:
        segments, short = settled_segments(os.path.join(path, str(replica.tp)), size, size_by_now)
    except FileNotFoundError:
        return replace(replica, directory=path)
    except OSError as error:
        return replace(replica, directory=path, reason=f"not readable on this machine: {error.strerror}")
    return replace(replica, directory=path, segments=segments, short_bytes=short)


def settled_segments(
    directory: str, size: int, size_by_now: Callable[[], int | None]
) -> tuple[tuple[SegmentFile, ...], int]:
    """A replica's segments, and by how many bytes they fall short of what its broker counts. A difference that goes
    by itself was a segment that retention took meanwhile."""
    for _ in range(LOOKS):
        segments = list_segments(directory)
        short = size - sum(segment.size for segment in segments)
        if short <= 0:
            return segments, 0
        told = size_by_now()
        if told is None:
            return segments, 0  # nobody to compare with any more
        size = told
    return segments, short


def list_segments(directory: str) -> tuple[SegmentFile, ...]:
    """The segments of a replica's directory in offset order."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            stem, suffix = os.path.splitext(entry.name)
            if suffix != ".log" or len(stem) != 20 or not stem.isdecimal():
                continue
            try:
                found.append((int(stem), entry.path, entry.stat().st_size))
            except FileNotFoundError:
                continue  # retention took it
    found.sort()
    after = [base for base, _, _ in found[1:]]
    return tuple(
        SegmentFile(path=path, base_offset=base, next_base=following, size=size)
        for (base, path, size), following in zip(found, [*after, None], strict=True)
    )


def cut(plans: Iterable[PartitionPlan], *, parallelism: int) -> list[tuple[Piece, ...]]:
    """What each Spark task reads: small replicas together, large ones in ranges of segments."""
    replicas = [r for p in plans if p.high_watermark for r in p.replicas if r.segments]
    total = sum(r.size for r in replicas)
    # Some tasks per core, so that a slow one does not hold up the end; a task costs some 30 ms to start.
    target = min(max(total // (4 * parallelism), 16 << 20), 256 << 20)
    tasks: list[tuple[Piece, ...]] = []
    task: list[Piece] = []
    size = 0
    for piece in (piece for replica in replicas for piece in _pieces(replica, target)):
        if task and size + piece.size > target:
            tasks.append(tuple(task))
            task, size = [], 0
        task.append(piece)
        size += piece.size
    return [*tasks, tuple(task)] if task else tasks


def _pieces(replica: ReplicaPlan, target: int) -> Iterator[Piece]:
    part: list[SegmentFile] = []
    size = 0
    for segment in replica.segments:
        if segment.base_offset >= replica.high_watermark and segment is not replica.segments[0]:
            break
        if part and size + segment.size > target:
            yield Piece(replica=replica, segments=tuple(part))
            part, size = [], 0
        part.append(segment)
        size += segment.size
    if part:
        yield Piece(replica=replica, segments=tuple(part))
