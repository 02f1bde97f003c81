"""Connections to the brokers of this cluster, for what is asked of them now and then.

Owns one connection for each broker that was asked, opened when it is first asked and again when it was lost. What
followers fetch and what the controller says have connections of their own (replica_fetcher.py, controller_channel.py).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.model.errors import HoldfastError, NetworkError
from holdfast.model.types import BrokerId

if TYPE_CHECKING:
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.client.connection import BrokerConnection
    from holdfast.client.outgoing import Outgoing
    from holdfast.model.listeners import Endpoint

CONNECT_TIMEOUT_S = 2.0


class PeersHost(Protocol):
    """What a line to other brokers asks of this one."""

    broker_id: BrokerId
    metadata: MetadataCache
    outgoing: Outgoing


class Peers:
    """See the module's docstring. ``role`` is for the client id by which the other broker knows the line."""

    def __init__(self, broker: PeersHost, role: str) -> None:
        self._broker = broker
        self._role = role
        self._open: dict[Endpoint, BrokerConnection] = {}
        self._opening: dict[Endpoint, asyncio.Task[BrokerConnection]] = {}

    async def ask(self, broker_id: BrokerId, request: Any, timeout_s: float) -> Any:
        """The answer to a request entity. NetworkError: there is none, and it may have been done or not."""
        where = self._broker.metadata.brokers.get(broker_id)
        if where is None:
            raise NetworkError(f"broker {broker_id} is not alive")
        connection = await self._to(where.endpoints.for_brokers)
        return await connection.request(request, timeout_s=timeout_s)

    async def _to(self, where: Endpoint) -> BrokerConnection:
        there = self._open.get(where)
        if there is not None and there.is_open:
            return there
        opening = self._opening.get(where)
        if opening is None:
            opening = self._opening[where] = asyncio.get_running_loop().create_task(self._connect(where))
            opening.add_done_callback(lambda _: self._opening.pop(where, None))
        return await asyncio.shield(opening)

    async def _connect(self, where: Endpoint) -> BrokerConnection:
        connection = self._broker.outgoing.connection(where, f"broker-{self._broker.broker_id}-{self._role}")
        try:
            await connection.open(CONNECT_TIMEOUT_S)
        except HoldfastError:
            raise
        except Exception as e:
            raise NetworkError(f"{type(e).__name__}: {e}") from e
        # Brokers that are gone for good leave nothing behind.
        self._open = {at: each for at, each in self._open.items() if each.is_open}
        self._open[where] = connection
        return connection

    def close(self) -> None:
        """Close every connection."""
        for task in self._opening.values():
            task.cancel()
        for connection in self._open.values():
            connection.close()
        self._open.clear()
