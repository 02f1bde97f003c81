"""What the log of one partition says where each record stands for itself: batches in, decoded newest records out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Generic, TypeVar

from holdfast.coordinators.newest import Newest, OpenPairs, Rest, value_of

T = TypeVar("T")


class KeyedReplay(Generic[T]):
    """``Replaying[list[T]]`` (tenant.py). ``decode`` gets the key and the value, never a tombstone; None: the record is
    of a kind or a version that is not ours. It may raise CorruptRecordError, and is called on any thread."""

    __slots__ = ("_decode", "_found", "_newest")

    def __init__(self, decode: Callable[[bytes, bytes], T | None]) -> None:
        self._decode = decode
        self._newest = Newest()
        self._found: list[T] = []

    def feed(self, batches: bytes) -> int:
        """The next batches of the log; how many bytes were whole ones. CorruptRecordError, InvalidRecordError."""
        return self._newest.feed(batches)

    def take(self, pairs: dict[bytes, Rest], open_pairs: OpenPairs) -> None:
        """Newest records that another process has found. Those of open transactions count for nothing here."""
        self._newest.pairs.update(pairs)

    def unfold(self, limit: int) -> bool:
        """Decode so many of the newest records; whether there are more."""
        pairs = self._newest.pairs
        for key in list(islice(pairs, limit)):
            value = value_of(pairs.pop(key))
            found = None if value is None else self._decode(key, value)
            if found is not None:
                self._found.append(found)
        return bool(pairs)

    def pieces(self, limit: int) -> list[T] | None:
        """So many of what was decoded, which are then no longer here; None when there are no more."""
        found = self._found[-limit:]
        del self._found[-limit:]
        return found or None
