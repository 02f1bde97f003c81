"""Asking a port whether a broker lives there: by somebody who has just lost a connection to it.

Owns the question and what its answers mean. Silence is no answer: that is left to sessions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from holdfast.broker.closer_process import CONTROLLER_PREFIX
from holdfast.broker.listening import nobody_is_there
from holdfast.client.errors import BrokerUnreachable, ConnectionLost
from holdfast.model.errors import HoldfastError
from holdfast.protocol.apis import ApiKey

if TYPE_CHECKING:
    from holdfast.client.outgoing import Outgoing
    from holdfast.model.listeners import Endpoint

PROBE_TIMEOUT_S: Final = 1.0
PROBE_RETRY_S: Final = 0.001
_CLIENT: Final = CONTROLLER_PREFIX.decode() + "probe"
"""By this name the port of a broker that was killed a moment ago answers at once that it is dead."""


async def lives(outgoing: Outgoing, where: Endpoint) -> bool | None:
    """True: a broker answers there. False: the port refuses, or says itself that its broker was killed. None: nobody
    knows, and its session will tell. Nobody has to log in for that."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            while await _ends(outgoing, where):  # noqa: ASYNC110 - another process is asked
                await asyncio.sleep(PROBE_RETRY_S)
        return True
    except BrokerUnreachable as e:
        return False if e.refused else None
    except (HoldfastError, TimeoutError):
        return None


async def is_dead(outgoing: Outgoing, where: Endpoint) -> bool:
    """Whether it is known that no broker lives there."""
    return await lives(outgoing, where) is False


async def _ends(outgoing: Outgoing, where: Endpoint) -> bool:
    """Whether the port takes a connection and ends it without an answer; False: a broker lives there.
    BrokerUnreachable also if the port itself says that none does, as that of one that was killed a moment ago."""
    connection = outgoing.probe(where, _CLIENT)
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
