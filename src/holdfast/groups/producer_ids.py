"""Producer ids, handed out one by one from blocks that the controller allocates. Ids never repeat.

Owns the rest of the block at hand and who waits for the next one. A block that a crashed broker did not use up is
lost, which is fine: there are 2^63.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from holdfast.model.errors import HoldfastError
from holdfast.model.group_errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError

MAX_WAITERS = 10_000


class ProducerIdBlock(NamedTuple):
    """Ids from ``first`` on, ``size`` of them."""

    first: int
    size: int


ProducerIdReply: TypeAlias = Callable[[int | HoldfastError], None]
BlockReply: TypeAlias = Callable[[ProducerIdBlock | HoldfastError], None]
AllocateBlock: TypeAlias = Callable[[BlockReply], None]
"""Asks the controller for a block; answers once, at once or later."""


class ProducerIds:
    """See the module's docstring."""

    __slots__ = ("_allocate_block", "_asking", "_left", "_next", "_waiting")

    def __init__(self, allocate_block: AllocateBlock) -> None:
        self._allocate_block = allocate_block
        self._next = 0
        self._left = 0
        self._asking = False
        self._waiting: deque[ProducerIdReply] = deque()

    def next_id(self, reply: ProducerIdReply) -> None:
        """One id, at once if the block has one."""
        if len(self._waiting) >= MAX_WAITERS:
            reply(CoordinatorNotAvailableError("too many producers wait for an id"))
            return
        self._waiting.append(reply)
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._left:
            given = self._next
            self._next += 1
            self._left -= 1
            self._waiting.popleft()(given)
        if self._waiting and not self._asking:
            self._asking = True
            self._allocate_block(self._allocated)

    def _allocated(self, block: ProducerIdBlock | HoldfastError) -> None:
        self._asking = False
        if isinstance(block, HoldfastError):
            # Kafka's clients try again on this one, whatever the reason was.
            error = CoordinatorLoadInProgressError(f"no block of producer ids could be allocated: {block}")
            waiting, self._waiting = self._waiting, deque()
            for reply in waiting:
                reply(error)
            return
        self._next, self._left = block
        self._serve()
