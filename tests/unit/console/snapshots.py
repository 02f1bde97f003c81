"""Snapshots of small clusters for tests of what is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.client.views import (
    BrokerNode,
    ClusterMetadata,
    DisksView,
    DiskView,
    GroupListing,
    MoveView,
    PartitionMetadata,
    ReplicaOnDisk,
    TopicView,
)
from holdfast.console.snapshot import Snapshot, ToldDisks
from holdfast.model.types import TopicPartition

GIB = 1 << 30


def disk(
    path: str,
    *,
    state: str = "online",
    reason: str | None = None,
    cordoned: bool = False,
    replicas: Sequence[tuple[str, int]] = (),
    future: Sequence[tuple[str, int]] = (),
    usable: int = 50 * GIB,
) -> DiskView:
    """A directory of 100 GiB."""
    return DiskView(
        path=path,
        directory_id=None,
        state=state,
        reason=reason,
        since_ms=1_700_000_000_000,
        total_bytes=100 * GIB,
        usable_bytes=usable,
        probe_ms=0.4,
        cordoned=cordoned,
        replicas=tuple(
            ReplicaOnDisk(tp=TopicPartition(*tp), size_bytes=1000, offset_lag=0, future=is_future)
            for tps, is_future in ((replicas, False), (future, True))
            for tp in tps
        ),
    )


def topic(name: str, *partitions: tuple[int | None, tuple[int, ...], tuple[int, ...]]) -> TopicView:
    """Of (leader, replicas, ISR) of each partition."""
    return TopicView(
        name=name,
        topic_id=None,
        internal=name.startswith("__"),
        partitions=tuple(
            PartitionMetadata(partition=n, leader=leader, leader_epoch=1, replicas=replicas, isr=isr, offline=())
            for n, (leader, replicas, isr) in enumerate(partitions)
        ),
    )


def move(tp: tuple[str, int], source: str, target: str) -> MoveView:
    return MoveView(tp=TopicPartition(*tp), source=source, target=target, lag=5, bytes_per_s=1000)


def snapshot(
    *,
    number: int = 1,
    taken_ms: int = 1_700_000_100_000,
    topics: Sequence[TopicView] = (),
    disks: Mapping[int, Sequence[DiskView]] | None = None,
    moves: Mapping[int, Sequence[MoveView]] | None = None,
    controller: int | None = 1,
    alive: Sequence[int] = (1, 2),
    groups: Mapping[str, str] | None = None,
) -> Snapshot:
    return Snapshot(
        number=number,
        taken_ms=taken_ms,
        view=ClusterMetadata(
            cluster_id="c",
            controller_id=controller,
            brokers={b: BrokerNode(broker_id=b, host="127.0.0.1", port=9091 + b) for b in alive},
            topics={t.name: t for t in topics},
        ),
        alive=frozenset(alive),
        disks={
            broker: ToldDisks(
                disks=DisksView(disks=tuple(each), moves=tuple((moves or {}).get(broker, ()))), told_ms=taken_ms
            )
            for broker, each in (disks or {}).items()
        },
        groups=tuple(
            GroupListing(group_id=name, protocol_type="consumer", state=state) for name, state in (groups or {}).items()
        ),
    )
