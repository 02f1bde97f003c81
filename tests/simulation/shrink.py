"""A failing schedule made smaller: faults are left out as long as the run still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.faults import Fault, without


def shrink(faults: Sequence[Fault], fails: Callable[[list[Fault]], bool], *, runs: int = 60) -> list[Fault]:
    """The fewest of ``faults``, in their order, with which ``fails`` is still true; at most ``runs`` are tried."""
    smallest = list(faults)
    size = max(1, len(smallest) // 2)
    while runs > 0:
        at = 0
        while at < len(smallest) and runs > 0:
            fewer = without(smallest, at, size)
            runs -= 1
            if fails(fewer):
                smallest = fewer
            else:
                at += size
        if size == 1:
            break
        size = max(1, size // 2)
    return smallest
