"""Where the latest batches of an active segment are, in memory: most reads ask for these."""

from array import array
from typing import Final

from holdfast.model.types import Offset

TAIL_LIMIT: Final = 256
"""Batches that the table holds at most; half of them go when it is full."""


class Tail:
    """Last offset and position of the latest batches of the active segment.

    Only ever appended to by the writer (and replaced when full), so the loop reads it without a lock.
    ``first_offset``: from here on every batch is in the table.
    """

    __slots__ = ("first_offset", "last_offsets", "positions")

    def __init__(self, first_offset: Offset) -> None:
        self.first_offset = first_offset
        self.last_offsets = array("q")
        self.positions = array("I")

    def younger_half(self) -> "Tail":
        """A table with the later half of the entries."""
        half = len(self.positions) // 2
        tail = Tail(self.last_offsets[half - 1] + 1)
        tail.last_offsets = self.last_offsets[half:]
        tail.positions = self.positions[half:]
        return tail
