"""Asking a port whether a broker lives there: by somebody who has just lost a connection to it.

Owns the question and what its answers mean. Silence is no answer: that is left to sessions.
"""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.broker.closer_process import CONTROLLER_PREFIX
from holdfast.broker.listening import nobody_is_there
from holdfast.client.connection import BrokerConnection
from holdfast.client.errors import BrokerUnreachable, ConnectionLost
from holdfast.model.errors import HoldfastError
from holdfast.protocol.apis import ApiKey

PROBE_TIMEOUT_S: Final = 1.0
PROBE_RETRY_S: Final = 0.001
_CLIENT: Final = CONTROLLER_PREFIX.decode() + "probe"
"""By this name the port of a broker that was killed a moment ago answers at once that it is dead."""


async def lives(host: str, port: int) -> bool | None:
    """True: a broker answers there. False: the port refuses, or says itself that its broker was killed. None: nobody
    knows, and its session will tell."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            while await _ends(host, port):  # noqa: ASYNC110 - another process is asked
                await asyncio.sleep(PROBE_RETRY_S)
        return True
    except BrokerUnreachable as e:
        return False if e.refused else None
    except (HoldfastError, TimeoutError):
        return None


async def is_dead(host: str, port: int) -> bool:
    """Whether it is known that no broker lives there."""
    return await lives(host, port) is False


async def _ends(host: str, port: int) -> bool:
    """Whether the port takes a connection and ends it without an answer; False: a broker lives there.
    BrokerUnreachable also if the port itself says that none does, as that of one that was killed a moment ago."""
    connection = BrokerConnection(host, port, _CLIENT)
    try:
        await connection.open(PROBE_TIMEOUT_S)
        answer = await connection.request_raw(int(ApiKey.API_VERSIONS), 0, b"", timeout_s=PROBE_TIMEOUT_S)
        if nobody_is_there(answer):
            raise BrokerUnreachable(connection.address, refused=True, reason="its broker was killed")
    except ConnectionLost:
        return True
    finally:
        connection.close()
    return False
