"""Asks the controller for blocks of producer ids (groups/producer_ids.py hands the ids out)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from holdfast.groups.producer_ids import BlockReply, ProducerIdBlock, ProducerIdReply, ProducerIds
from holdfast.model.errors import HoldfastError
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.error_codes import error_of

if TYPE_CHECKING:
    from holdfast.broker.membership import Membership
    from holdfast.model.types import BrokerId

ALLOCATE_VERSION = 0
TIMEOUT_S = 5.0


class ProducerIdsHost(Protocol):
    """Who asks for producer ids."""

    broker_id: BrokerId
    membership: Membership


class ProducerIdShell:
    """One per broker. Owns the tasks that ask."""

    def __init__(self, broker: ProducerIdsHost) -> None:
        self._broker = broker
        self._ids = ProducerIds(self._allocate)
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, reply: ProducerIdReply) -> None:
        """A producer id that nobody else has, or why there is none: at once or later, once."""
        self._ids.next_id(reply)

    async def next(self) -> int:
        """A producer id that nobody else has. Raises what asking the controller raises."""
        future: asyncio.Future[int | HoldfastError] = asyncio.get_running_loop().create_future()
        self._ids.next_id(lambda given: None if future.done() else future.set_result(given))
        given = await future
        if isinstance(given, HoldfastError):
            raise given
        return given

    def _allocate(self, reply: BlockReply) -> None:
        task = asyncio.get_running_loop().create_task(self._ask(reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, reply: BlockReply) -> None:
        membership = self._broker.membership
        try:
            answer = await membership.ask(
                ApiKey.ALLOCATE_PRODUCER_IDS, ALLOCATE_VERSION, TIMEOUT_S,
                broker_id=self._broker.broker_id, broker_epoch=membership.broker_epoch,
            )  # fmt: skip
        except HoldfastError as e:
            reply(e)
            return
        error = error_of(int(answer.error_code))
        reply(error or ProducerIdBlock(answer.producer_id_start, answer.producer_id_len))
