"""This broker's block of producer ids: handed out one by one, the next block is asked of the controller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.protocol.apis import ApiKey
from holdfast.protocol.error_codes import error_of

if TYPE_CHECKING:
    from holdfast.broker.app import Broker

ALLOCATE_VERSION = 0
TIMEOUT_S = 5.0


class ProducerIds:
    """No id is given twice: blocks are records of the controller, and a block that is lost is not used again."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """A producer id that nobody else has. Raises what asking the controller raises."""
        async with self._lock:
            if self._next == self._end:
                membership = self._broker.membership
                answer = await membership.ask(
                    ApiKey.ALLOCATE_PRODUCER_IDS, ALLOCATE_VERSION, TIMEOUT_S,
                    broker_id=self._broker.broker_id, broker_epoch=membership.broker_epoch,
                )  # fmt: skip
                error = error_of(int(answer.error_code))
                if error is not None:
                    raise error
                self._next = answer.producer_id_start
                self._end = self._next + answer.producer_id_len
            self._next += 1
            return self._next - 1
