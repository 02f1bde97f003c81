"""Who is served first in a turn of the loop: known clients, then new connections, then strangers; of many strangers
one, or as many as there were known ones.

A step of a stranger takes 0.05 to 0.1 ms. Where a thousand come in a second, several are ready at any time, and a known
client would wait for each of them. Once it is answered it would wait for the processor as well, if it shares one with
the broker: the kernel wakes it there and lets the broker go on (docs/decisions/0062-limits-against-strangers.md).

Strangers have an epoll of their own within the loop's, of which a turn takes few: however many are ready, it costs no
more, and the kernel tells of each of them once before it tells of any again. When several had their turns one right
after the other, and none is ready any more, all of many rest for a moment, and nobody is woken for one of them: a step
right after others takes half as long as one by itself.

    strangers are served --none is ready--> they rest --REST_S later, or they are few--> strangers are served
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import select
import selectors
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Ready: TypeAlias = tuple[selectors.SelectorKey, int]

FEW: Final = 16
"""So many strangers are clients that come back, as after a failover: they have all the turns that they want."""
STRANGERS_A_TURN: Final = 1
"""At least, of more; else as many as known ones, so that whoever comes to a busy broker is let in."""
NEW_A_TURN: Final = 4
"""New connections of one listening socket, at most: as many as known ones that had their turn, and one if there are
none, so that those who are there are not held up by many, and a broker with long turns lets many in."""
REST_S: Final = 0.003
"""Of many strangers, and of whoever comes meanwhile. A login of theirs has four or five steps."""
SEVERAL: Final = 3
"""Steps without a moment in between. Who comes while all others are silent does them one by one, and seldom rests."""


class TurnOrder:
    """Hears of descriptors before the loop does. This one is for loops that tell of all as they come."""

    @property
    def is_crowded(self) -> bool:
        """Whether there are so many strangers that each waits for its turn."""
        return False

    @property
    def accepts(self) -> int:
        """How many new connections a listening socket may take in this turn."""
        return NEW_A_TURN

    def listens(self, fd: int) -> None:
        """New connections come by it."""

    def is_strange(self, fd: int) -> None:
        """It is a connection that has not said who it is."""

    def is_known(self, fd: int) -> None:
        """It has, or it is gone."""

    def closes(self, fd: int) -> None:
        """No new connections come by it any more."""


def _give_way() -> None:
    """Whoever else is ready on this processor goes first. The shortest sleep, 0.06 ms: ``sched_yield`` takes nothing
    where nobody is ready, but beside busy processes a whole slice of the scheduler's, 3 ms."""
    time.sleep(0.000001)


class KnownFirst(TurnOrder, selectors.BaseSelector):
    """The selector of one loop, on Linux."""

    def __init__(self, give_way: Callable[[], None] = _give_way, now_s: Callable[[], float] = time.monotonic) -> None:
        self._give_way, self._now_s = give_way, now_s
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._epoll, self._last = select.epoll(), select.epoll()
        self._last_fd = self._last.fileno()
        self._epoll.register(self._last_fd, select.EPOLLIN)
        self._strangers: set[int] = set()
        self._listening: set[int] = set()
        self._known_told = 0
        """So many known ones had their turn in the last one, and may have been answered."""
        self._worked = False
        """Whether a stranger had a turn since the processor was given away: silent ones cost nobody a sleep."""
        self._rests_until_s: float | None = None
        """They rest."""
        self._steps = 0
        """Of strangers, and new connections, since none was ready."""

    @property
    def is_crowded(self) -> bool:
        return len(self._strangers) > FEW

    @property
    def accepts(self) -> int:
        return max(1, min(NEW_A_TURN, self._known_told))

    # -- who is who --------------------------------------------------------------------------------------------

    def listens(self, fd: int) -> None:
        self._listening.add(fd)

    def closes(self, fd: int) -> None:
        self._listening.discard(fd)

    def is_strange(self, fd: int) -> None:
        assert fd not in self._keys, "the loop has not heard of it yet"
        self._strangers.add(fd)

    def is_known(self, fd: int) -> None:
        if fd in self._strangers:
            self._strangers.discard(fd)
            if (key := self._keys.get(fd)) is not None:
                with contextlib.suppress(OSError):
                    self._last.unregister(fd)
                    self._epoll.register(fd, _asked(key.events))

    def _of(self, fd: int) -> select.epoll:
        return self._last if fd in self._strangers else self._epoll

    # -- what a loop asks --------------------------------------------------------------------------------------

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = _descriptor(fileobj)
        if fd in self._keys:
            raise KeyError(f"{fileobj!r} is registered already")
        rests = self._rests_until_s is not None and fd in self._listening
        self._of(fd).register(fd, 0 if rests else _asked(events))
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        fd = _descriptor(fileobj)
        key = self._keys.pop(fd)
        with contextlib.suppress(OSError):  # it was closed before, as in the standard library
            self._of(fd).unregister(fd)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = _descriptor(fileobj)
        if self._keys[fd].events != events:
            self._of(fd).modify(fd, _asked(events))
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[_descriptor(fileobj)]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[Ready]:
        are_many = self.is_crowded
        if self._known_told and are_many and self._worked:
            self._worked = False
            self._give_way()
        # As in the standard library: milliseconds, rounded up, so that a timer is not looked for too early.
        wait_s = -1.0 if timeout is None else max(0.0, math.ceil(timeout * 1e3) * 1e-3)
        ready, new, has_last = list[Ready](), list[Ready](), False
        try:
            told = self._told(wait_s, are_many)
        except InterruptedError:
            return ready
        for fd, events in told:
            if fd == self._last_fd:
                has_last = True
            else:
                self._add(new if fd in self._listening else ready, fd, events)
        self._known_told = known = len(ready)
        ready += new
        if has_last:
            for fd, events in self._last.poll(0, max(STRANGERS_A_TURN, known) if are_many else FEW):
                self._add(ready, fd, events)
            self._worked = True
        self._steps = self._steps + len(ready) - known if are_many else 0
        return ready

    def _told(self, wait_s: float, are_many: bool) -> list[tuple[int, int]]:
        """What the epoll tells; below 0 s: as soon as there is something."""
        most = len(self._keys) + 1
        if self._rests_until_s is None and self._steps:
            told = self._epoll.poll(0, most)
            if any(fd == self._last_fd or fd in self._listening for fd, _ in told):
                return told
            if self._steps >= SEVERAL and are_many:
                self._rests_until_s = self._now_s() + REST_S
                self._listen_to_them(0)
            self._steps = 0
            if told or not wait_s:
                return told
        if self._rests_until_s is not None:
            now_s = self._now_s()
            left_s = self._rests_until_s - now_s
            if are_many and left_s > 0:
                if 0 <= wait_s <= left_s:
                    return self._epoll.poll(wait_s, most)
                told = self._epoll.poll(left_s, most)
                if told:
                    return told
                if wait_s > 0:  # below 0 it would be for ever
                    wait_s = max(0.0, wait_s - (self._now_s() - now_s))
            self._rests_until_s = None
            self._listen_to_them(select.EPOLLIN)
        return self._epoll.poll(wait_s, most)

    def _listen_to_them(self, events: int) -> None:
        """Strangers and new connections, or, with 0, none of them."""
        self._epoll.modify(self._last_fd, events)
        for fd in self._listening & self._keys.keys():
            self._epoll.modify(fd, events)

    def _add(self, ready: list[Ready], fd: int, events: int) -> None:
        key = self._keys.get(fd)
        if key is not None:  # an error or an end is told as what was asked for, as in the standard library
            reads, writes = events & ~select.EPOLLOUT, events & ~select.EPOLLIN
            found = (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if writes else 0)
            ready.append((key, found & key.events))

    def close(self) -> None:
        self._last.close()
        self._epoll.close()
        self._keys.clear()


def _asked(events: int) -> int:
    reads, writes = events & selectors.EVENT_READ, events & selectors.EVENT_WRITE
    return (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if writes else 0)


def _descriptor(fileobj: Any) -> int:
    return fileobj if isinstance(fileobj, int) else int(fileobj.fileno())


def ordered_loop() -> tuple[asyncio.AbstractEventLoop, TurnOrder]:
    """A loop, and what it goes by; where there is no epoll, all come as they do."""
    if not hasattr(select, "epoll"):
        return asyncio.SelectorEventLoop(), TurnOrder()
    order = KnownFirst()
    return asyncio.SelectorEventLoop(order), order
