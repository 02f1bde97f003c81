"""One more connection of a broker to the controller, beside that of its heartbeats (membership.py)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.client.connection import BrokerConnection
    from holdfast.client.outgoing import Outgoing
    from holdfast.metadata.store import ControllerLocation

CONNECT_TIMEOUT_S: Final = 1.0


class Lane:
    """Made when it is first needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._connection: BrokerConnection | None = None
        self._controller: ControllerLocation | None = None
        self._opening = asyncio.Lock()

    async def open(self, controller: ControllerLocation, outgoing: Outgoing, broker_id: int) -> BrokerConnection:
        """The connection, open. Raises BrokerUnreachable."""
        async with self._opening:
            connection = self._connection
            if connection is None or not connection.is_open or self._controller != controller:
                self.close()
                connection = outgoing.connection(controller.endpoint, f"broker-{broker_id}-{self._name}")
                self._connection, self._controller = connection, controller
                await connection.open(CONNECT_TIMEOUT_S)
            return connection

    def close(self) -> None:
        """Requests under way end with ConnectionLost."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
