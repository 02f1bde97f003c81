"""Events that the controller decides together, and who waits for what was decided."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.model.errors import NotControllerError

if TYPE_CHECKING:
    from holdfast.metadata.image import ClusterDelta


class DecidedBatch:
    """Events that are decided and committed together."""

    __slots__ = ("deltas", "records", "replies", "resend")

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.deltas: list[ClusterDelta] = []
        self.replies: list[tuple[asyncio.Future[Any] | None, Any]] = []
        self.resend: set[int] = set()

    def answer(self) -> None:
        """Give everybody the reply."""
        for future, reply in self.replies:
            give(future, reply)

    def refuse(self) -> None:
        """Nobody knows whether it was recorded: whoever asked must ask the next controller."""
        for future, _ in self.replies:
            give(future, NotControllerError("the controller lost its claim"))


def give(future: asyncio.Future[Any] | None, reply: Any) -> None:
    if future is not None and not future.done():
        future.set_result(reply)
