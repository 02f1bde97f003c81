"""What a reader under test is: a function of bytes, what it may refuse with, and what it may cost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.model.errors import HoldfastError
from tests.fuzz.fixups import Fixup

Run = Callable[[bytes], Any]
"""Reads one input. Returns anything small and hashable that tells what kind of success it was, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One line of the table.

    ``make`` imports what is needed and returns the function; ``corpus`` makes inputs from real encodings and
    recordings. ``refusals`` are the only errors that may leave the function. One input of n bytes may allocate
    ``memory_base + memory_factor * n`` bytes at its peak. ``kinds``: the first byte of an input chooses one of so many
    message types; it is not read as data. ``headroom``: address space that all inputs together may take beyond what the
    process has when it begins.
    """

    name: str
    reads: str
    make: Callable[[], Run]
    corpus: Callable[[], list[bytes]]
    refusals: tuple[type[Exception], ...] = (HoldfastError,)
    fixup: Fixup = Fixup.NONE
    kinds: int = 0
    prefix: int = 0
    tokens: tuple[bytes, ...] = ()
    max_size: int = 1024
    memory_base: int = 64 << 10
    memory_factor: int = 256
    headroom: int = 96 << 20

    def inputs(self) -> list[bytes]:
        """The corpus, without what is too large to be one input."""
        corpus = self.corpus()
        return [item for item in corpus if len(item) <= self.max_size] or [item[: self.max_size] for item in corpus]
