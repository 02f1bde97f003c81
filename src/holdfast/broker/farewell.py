"""The last moments of a controlled shutdown: clients hear who leads now before their connections end.

When the controller lets a broker go, others lead its partitions, but its clients do not know yet: each hears it from
the next request that is refused here, and most then ask for metadata, here or elsewhere, after a back-off of up to
100 ms. A connection that ends in the middle of that costs a client much more than the move: librdkafka has its
question for the leader answered by nobody and asks again with its next look, up to a second later.

So this broker stays until no client has spoken to it for a while. It leads nothing then, and answers as any broker.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.replication.types import Role

if TYPE_CHECKING:
    from holdfast.broker.connection import Connection
    from holdfast.broker.server import Server
    from holdfast.model.types import BrokerEpoch, TopicPartition
    from holdfast.replication.local_replicas import LocalReplicas
    from holdfast.storage.log_manager import LogManager

log = logging.getLogger(__name__)

QUIET_S = 0.15
"""A client that has not spoken for that long has found its new leaders, or was not using the old one."""
LIMIT_S = 1.0
"""There are clients that never stop to ask."""
STEP_S = 0.01
CLOSE_LOGS_S = 5.0


class FarewellHost(Protocol):
    """What the wait for the clients looks at."""

    loop: asyncio.AbstractEventLoop
    replicas: LocalReplicas
    server: Server


async def clients_gone(broker: FarewellHost) -> None:
    """Return when this broker leads nothing and its clients have gone to others, or the time is up."""
    loop = broker.loop
    spoke_s = float("-inf")
    deadline_s = loop.time() + LIMIT_S
    while (now_s := loop.time()) < deadline_s:
        for connection in broker.server.connections:
            if _is_client(connection):
                spoke_s = max(spoke_s, connection.idle_since if connection.is_idle else now_s)
        if now_s - spoke_s >= QUIET_S and not _leads(broker):
            return
        await asyncio.sleep(STEP_S)


def _is_client(connection: Connection) -> bool:
    """Not the controller's line, nor a follower's, nor one over which a broker heartbeats to us."""
    return not connection.is_lasting and not connection.session.is_brokers


def _leads(broker: FarewellHost) -> bool:
    return any(partition.role is Role.LEADER for partition in broker.replicas.partitions.values())


async def logs_closed(logs: LogManager, broker_epoch: BrokerEpoch, high_watermarks: dict[TopicPartition, int]) -> None:
    """Close the logs clean, as far as their disks do it in time."""
    closed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    logs.close(
        clean=True, broker_epoch=broker_epoch, high_watermarks=high_watermarks, done=lambda: closed.set_result(None)
    )
    try:
        async with asyncio.timeout(CLOSE_LOGS_S):
            await closed
    except TimeoutError:
        log.warning("a log directory did not close within %.0f s", CLOSE_LOGS_S)
