"""The aborted transactions of one segment, and their file ``<base offset>.txnindex`` in Kafka's format.

Owns one entry for each abort marker in the segment that ended a transaction with records. In memory the entries are
the truth while the segment is active; the file is brought up to date as those of the other indexes are (index.py), and
made again from the batches where a crash may have left it behind (producer_replay.py). A segment without such a marker
has no file. Whoever cleans a log reads a file by ``read``.

On disk, big-endian, in the order of the markers:

    version i16 (0) | producer id i64 | first offset i64 | offset of the marker i64 | last stable offset i64

The last stable offset is the one right after the marker was written: no aborted transaction of a later entry begins
before it, which is what ends a search.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from holdfast.model.types import Offset
from holdfast.storage.files import FileSystem

_ENTRY = Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTxn(NamedTuple):
    """An aborted transaction: its records lie between its first offset and its marker."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    """Of the marker."""
    last_stable_offset: Offset


class TxnIndex:
    """See the module's docstring. Entries are only appended, so the loop may look up while the disk's thread appends;
    what is cut is replaced as a whole. ``written``: how many entries the file has."""

    ENTRY_SIZE: ClassVar[int] = _ENTRY.size
    __slots__ = ("_firsts", "_lasts", "_producers", "_stables", "written")

    def __init__(self) -> None:
        self._producers = array("q")
        self._firsts = array("q")
        self._stables = array("q")
        self._lasts = array("q")
        self.written = 0

    def __len__(self) -> int:
        return len(self._lasts)

    def __iter__(self) -> Iterator[AbortedTxn]:
        return map(AbortedTxn._make, zip(self._producers, self._firsts, self._lasts, self._stables, strict=True))

    def append(self, txn: AbortedTxn) -> None:
        """The next entry."""
        # The marker last: a reader that sees it finds the rest.
        self._producers.append(txn.producer_id)
        self._firsts.append(txn.first_offset)
        self._stables.append(txn.last_stable_offset)
        self._lasts.append(txn.last_offset)

    def collect(self, start: Offset, end: Offset, found: list[tuple[int, Offset]]) -> bool:
        """Add (producer id, first offset) of those with records in ``start <= offset < end`` to ``found``. True: no
        later entry, of a later segment either, can have any."""
        lasts, firsts, stables = self._lasts, self._firsts, self._stables
        for i in range(bisect_left(lasts, start), len(lasts)):
            if firsts[i] < end:
                found.append((self._producers[i], firsts[i]))
            if stables[i] >= end:
                return True
        return False

    def cut(self, end_offset: Offset) -> "TxnIndex":
        """Without the markers from ``end_offset`` on."""
        keep = bisect_left(self._lasts, end_offset)
        if keep == len(self):
            return self
        if not keep:
            return NO_ABORTS
        index = TxnIndex()
        index._producers, index._firsts = self._producers[:keep], self._firsts[:keep]
        index._stables, index._lasts = self._stables[:keep], self._lasts[:keep]
        index.written = min(self.written, keep)
        return index

    def encode(self, start: int = 0) -> bytes:
        """The entries from number ``start`` on, as in the file."""
        columns = self._producers[start:], self._firsts[start:], self._lasts[start:], self._stables[start:]
        return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in zip(*columns, strict=True))

    @classmethod
    def decode(cls, data: bytes, base_offset: Offset, end_offset: Offset) -> "TxnIndex | None":
        """The index in a file's bytes, of a segment with offsets from ``base_offset`` to before ``end_offset``; None if
        it cannot be that one's."""
        if len(data) % _ENTRY.size:
            return None
        index = cls()
        for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
            if version != _VERSION or not (first <= last and base_offset <= last < end_offset):
                return None
            index.append(AbortedTxn(producer_id, first, last, stable))
        index.written = len(index)
        return index if all(a < b for a, b in pairwise(index._lasts)) else None


NO_ABORTS: Final = TxnIndex()
"""Of every segment that has none. Never appended to."""


def read(files: FileSystem, path: str, base_offset: Offset, end_offset: Offset) -> TxnIndex | None:
    """The index in a file; NO_ABORTS where there is no file, None if it is damaged."""
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return NO_ABORTS
    return TxnIndex.decode(data, base_offset, end_offset) if data else NO_ABORTS


def read_before(files: FileSystem, path: str, base_offset: Offset, end_offset: Offset) -> TxnIndex | None:
    """As ``read``, of a file that may say more: the markers before ``end_offset``."""
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return NO_ABORTS
    kept = len(data) - len(data) % _ENTRY.size
    for at in range(0, kept, _ENTRY.size):
        if _ENTRY.unpack_from(data, at)[3] >= end_offset:
            kept = at
            break
    return TxnIndex.decode(data[:kept], base_offset, end_offset) if kept else NO_ABORTS
