"""Every deadline of a coordinator in one heap.

A deadline has a key; setting a key again moves it. Moving one later, which every heartbeat does, costs no heap
operation: the entry that comes up early is pushed back when it does. So the heap holds at most one useless entry
per move to an *earlier* time, and ``next_ms`` may be early but is never late.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeAlias

from holdfast.model.types import TimestampMs

Action: TypeAlias = Callable[[TimestampMs], None]
"""What happens at a deadline; gets the time at which it is run."""


class _Deadline(NamedTuple):
    at_ms: TimestampMs
    action: Action


class Deadlines:
    """Keys with a time and an action each."""

    __slots__ = ("_by_key", "_heap", "_serial")

    def __init__(self) -> None:
        self._by_key: dict[Hashable, _Deadline] = {}
        self._heap: list[tuple[TimestampMs, int, Hashable]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def set(self, key: Hashable, at_ms: TimestampMs, action: Action) -> None:
        """Run ``action`` at ``at_ms``; what the key had before is forgotten."""
        before = self._by_key.get(key)
        self._by_key[key] = _Deadline(at_ms, action)
        if before is None or at_ms < before.at_ms:
            self._push(at_ms, key)

    def cancel(self, key: Hashable) -> None:
        """Forget the key; unknown keys are fine."""
        self._by_key.pop(key, None)

    def at(self, key: Hashable) -> TimestampMs | None:
        """When the key is due."""
        found = self._by_key.get(key)
        return None if found is None else found.at_ms

    def next_ms(self) -> TimestampMs | None:
        """When to run next, or None when nothing is due ever. May be early."""
        heap = self._heap
        while heap:
            at_ms, _, key = heap[0]
            if key in self._by_key:
                return at_ms
            heapq.heappop(heap)
        return None

    def run_due(self, now_ms: TimestampMs) -> None:
        """Run what is due, in order of time; actions may set and cancel keys, also their own."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            _, _, key = heapq.heappop(heap)
            found = self._by_key.get(key)
            if found is None:
                continue
            if found.at_ms > now_ms:
                self._push(found.at_ms, key)
                continue
            del self._by_key[key]
            found.action(now_ms)

    def _push(self, at_ms: TimestampMs, key: Hashable) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (at_ms, self._serial, key))
