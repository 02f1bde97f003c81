"""Whether a broker lives at its registered port, asked of the port."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from holdfast.broker.listening import nobody_is_there
from holdfast.client.connection import BrokerConnection
from holdfast.client.errors import BrokerUnreachable, ConnectionLost
from holdfast.model.errors import HoldfastError
from holdfast.protocol.apis import ApiKey

if TYPE_CHECKING:
    from holdfast.metadata.image import BrokerImage

PROBE_TIMEOUT_S: Final = 1.0
PROBE_RETRY_S: Final = 0.001


async def lives(registered: BrokerImage) -> bool | None:
    """True: a broker answers there. False: the port refuses, or says itself that nobody is there. None: its session
    will tell."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            while await _ends(registered):  # noqa: ASYNC110 - another process is asked
                await asyncio.sleep(PROBE_RETRY_S)
        return True
    except BrokerUnreachable as e:
        return False if e.refused else None
    except (HoldfastError, TimeoutError):
        return None


async def _ends(registered: BrokerImage) -> bool:
    """Whether the port takes a connection and ends it without an answer; False: a broker lives there.
    BrokerUnreachable also if the port itself says that none does, as that of one that was killed a moment ago."""
    connection = BrokerConnection(*registered.endpoints.for_controller.address, "controller-probe")
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
