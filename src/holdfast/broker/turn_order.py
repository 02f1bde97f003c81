"""Who is served first in a turn of the loop: known clients, then strangers, one or as many as there were known ones.

A step of a stranger takes 0.05 to 0.1 ms. Where a thousand come in a second, several are ready at any time, and a known
client would wait for each of them. Once it is answered it would wait for the processor as well, if it shares one with
the broker: the kernel wakes it there and lets the broker go on (docs/decisions/0062-limits-against-strangers.md).
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from typing import Final, TypeAlias

Ready: TypeAlias = tuple[selectors.SelectorKey, int]

STRANGERS_A_TURN: Final = 1
"""At least; else as many as known ones, so that whoever comes to a busy broker is let in."""


class TurnOrder:
    """Descriptors that come last; whoever opens and closes them tells it here."""

    def __init__(self) -> None:
        self.strangers: set[int] = set()
        """Connections that have not said who they are."""
        self.listening: set[int] = set()
        """What new connections come by."""


def _give_way() -> None:
    """Whoever else is ready on this processor goes first. It costs 0.3 us where nobody is."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()


class KnownFirst(selectors.DefaultSelector):
    """Of one loop. What a call does not tell of stays ready, and a later one tells: of each stranger once before it
    tells of any of them again."""

    def __init__(self, order: TurnOrder, give_way: Callable[[], None] = _give_way) -> None:
        super().__init__()
        self._order = order
        self._give_way = give_way
        self._had_turn: set[int] = set()
        """Since all that come last and were ready had one."""
        self._knew = False
        """Whether the turn before was of a known one, which may have been answered."""

    def select(self, timeout: float | None = None) -> list[Ready]:
        if self._knew and self._order.strangers:
            self._give_way()
        ready = super().select(timeout)
        strangers, listening = self._order.strangers, self._order.listening
        first, last = list[Ready](), list[Ready]()
        for each in ready:
            fd = each[0].fd
            (last if fd in strangers or fd in listening else first).append(each)
        self._knew = bool(first)
        if not last or len(ready) == 1:
            return ready
        return first + self._in_turn(last, max(STRANGERS_A_TURN, len(first)))

    def _in_turn(self, ready: list[Ready], most: int) -> list[Ready]:
        waiting = [each for each in ready if each[0].fd not in self._had_turn]
        if not waiting:
            self._had_turn.clear()
            waiting = ready
        taken = waiting[:most]
        self._had_turn.update(each[0].fd for each in taken)
        return taken
