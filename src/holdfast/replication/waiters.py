"""Everything that waits until a time: one heap for all of them, without a timer each.

A waiter that is answered before its time stays in the heap until its time or until half of the heap is like it;
it must have let go of what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Protocol

_COMPACT_FROM = 256


class Waiter(Protocol):
    """Something with a deadline."""

    finished: bool

    def expire(self, now_ms: int) -> None:
        """The deadline has passed. Called once, only if not finished."""


class WaiterDeadlines:
    """The heap."""

    __slots__ = ("_finished", "_heap", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Waiter]] = []
        self._serial = 0
        self._finished = 0

    def __len__(self) -> int:
        """Waiters in the heap, finished ones too."""
        return len(self._heap)

    def __iter__(self) -> Iterator[Waiter]:
        """Waiters in the heap, finished ones too, in no order."""
        return (waiter for _, _, waiter in self._heap)

    def add(self, at_ms: int, waiter: Waiter) -> None:
        """``waiter.expire`` is due at ``at_ms`` unless ``finished`` is said before."""
        self._serial += 1
        heappush(self._heap, (at_ms, self._serial, waiter))

    def finished(self) -> None:
        """A waiter in the heap is answered; its ``finished`` is set."""
        self._finished += 1
        if self._finished > _COMPACT_FROM and self._finished * 2 > len(self._heap):
            self._heap = [item for item in self._heap if not item[2].finished]
            heapify(self._heap)
            self._finished = 0

    def expire(self, now_ms: int) -> None:
        """Tell all whose time has come."""
        while self._heap and self._heap[0][0] <= now_ms:
            waiter = heappop(self._heap)[2]
            if waiter.finished:
                self._finished -= 1
            else:
                waiter.expire(now_ms)

    def next_ms(self) -> int | None:
        """The earliest deadline."""
        heap = self._heap
        while heap and heap[0][2].finished:
            heappop(heap)
            self._finished -= 1
        return heap[0][0] if heap else None
