"""Who leads a partition, for answers that refuse because this broker does not (KIP-951).

A broker hears of a new leader twice: as an order (LeaderAndIsr), from which on its replica refuses, and a little
later as metadata. An answer out of the metadata alone would in between name this very broker, and a client that is
told so believes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from holdfast.model.types import BrokerId, LeaderEpoch, TopicPartition

if TYPE_CHECKING:
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.replication.local_replicas import LocalReplicas


class KnowsLeaders(Protocol):
    """Where the newest leader is looked up."""

    broker_id: BrokerId
    metadata: MetadataCache
    replicas: LocalReplicas


def leader_of(broker: KnowsLeaders, tp: TopicPartition) -> tuple[BrokerId, LeaderEpoch] | None:
    """The newest that this broker knows, if clients can be sent there; None: they must ask for metadata."""
    metadata, replica = broker.metadata, broker.replicas.partitions.get(tp)
    info = metadata.partition(tp)
    leader, epoch = (None, -1) if info is None else (info.leader, info.leader_epoch)
    if (
        replica is not None
        and replica.leader_epoch > epoch
        and metadata.topic_ids.get(tp.topic) in (None, replica.topic_id)
    ):
        leader, epoch = replica.leader, replica.leader_epoch
    if leader is None or leader == broker.broker_id or not metadata.leads(leader):
        return None
    return leader, epoch


def endpoints(
    broker: KnowsLeaders, leaders: Iterable[BrokerId], listener: str
) -> list[tuple[BrokerId, str, int, str | None]]:
    """Id, host, port and rack of the brokers that an answer names as leaders, for who came by ``listener``; those that
    have no such one are left out."""
    found = (broker.metadata.brokers[leader] for leader in dict.fromkeys(leaders))
    return [(b.id, at.host, at.port, b.rack) for b in found if (at := b.endpoints.at(listener)) is not None]
