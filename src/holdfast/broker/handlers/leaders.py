"""Who leads a partition, for answers that refuse because this broker does not (KIP-951).

A broker hears of a new leader twice: as an order (LeaderAndIsr), from which on its replica refuses, and a little
later as metadata. An answer out of the metadata alone would in between name this very broker, and a client that is
told so believes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from holdfast.model.types import BrokerId, LeaderEpoch, TopicPartition

if TYPE_CHECKING:
    from holdfast.broker.membership import Membership
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.model.config import BrokerConfig
    from holdfast.replication.local_replicas import LocalReplicas


CONFIRM_SLACK_MS = 500
"""Beyond the time for which a leader holds a follower's fetch."""
CONFIRM_INTERVAL_S = 0.02


class KnowsSession(Protocol):
    """A broker that knows whether its session with the controller lasts."""

    config: BrokerConfig
    membership: Membership
    replicas: LocalReplicas

    def now_ms(self) -> int: ...


async def is_led_here(broker: KnowsSession, tp: TopicPartition) -> bool:
    """Whether this broker leads the partition for sure, and did when it was asked (H-13). While its session lasts it
    does; after that another one may have been elected, so the in-sync replicas are waited for: they fetch from whoever
    leads. So a broker that only has no controller goes on, and one that was cut off and given up does not."""
    if broker.membership.is_current:
        return True
    began_ms = broker.now_ms()
    limit_ms = began_ms + broker.config.int("replica.fetch.wait.max.ms") + CONFIRM_SLACK_MS
    while not broker.membership.is_current:
        replica = broker.replicas.partitions.get(tp)
        if replica is None or not replica.is_open or broker.now_ms() >= limit_ms:
            return False
        if replica.is_followed_since(began_ms):
            return True
        await asyncio.sleep(CONFIRM_INTERVAL_S)
    return True


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
