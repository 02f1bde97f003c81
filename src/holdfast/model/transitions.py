"""What the table of a state machine is: which state follows which, by which event.

The code that has a state asks its table before every change, so what is not in the table cannot happen unnoticed.
The pictures in docs/replication.md are made of the same tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transitions(Generic[S, E]):
    """``starts``: the states that something may begin in."""

    starts: tuple[S, ...]
    moves: Mapping[tuple[S, E], S]

    def after(self, state: S, event: E) -> S:
        """The state that follows. AssertionError: none does, so whoever asks has a bug."""
        follows = self.moves.get((state, event))
        if follows is None:
            raise AssertionError(f"{type(state).__name__} {state.name}: expected no {event.name} there")
        return follows

    def states(self) -> Iterator[S]:
        """Every state that the table names, once."""
        ends = (state for (begin, _), end in self.moves.items() for state in (begin, end))
        return iter(dict.fromkeys((*self.starts, *ends)))
