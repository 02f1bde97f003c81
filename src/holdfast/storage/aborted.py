"""The transactions of a log that were aborted, as a cleaning has to know them: which batches are of one, and which
marker ends one whose batches are still there.

Owns Kafka's rules for markers (KAFKA-8522): a marker is never superseded by key. It stays while a batch of its
transaction is in the log, and then as long as a tombstone. No disk here; the entries are those of ``.txnindex``.
"""

from collections import deque
from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import Offset
from holdfast.records.batch import BatchHeader

_ENTRY: Final = Struct(">hqqqq")
_VERSION: Final = 0
_KEY: Final = Struct(">hh")
_ABORT: Final = 0
_COMMIT: Final = 1


class AbortedTransaction(NamedTuple):
    """An entry of a ``.txnindex`` file. ``last_offset``: of its marker."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset

    def encode(self) -> bytes:
        """As in the file."""
        return _ENTRY.pack(_VERSION, *self)


def decode_aborted(data: bytes) -> list[AbortedTransaction]:
    """The entries of a file; what a crash left half written at its end is no entry. CorruptRecordError: another
    version."""
    found = []
    for version, *rest in _ENTRY.iter_unpack(data[: len(data) - len(data) % _ENTRY.size]):
        if version != _VERSION:
            raise CorruptRecordError(f"an entry of version {version} in a transaction index: expected {_VERSION}")
        found.append(AbortedTransaction(*rest))
    return found


class _Ongoing:
    __slots__ = ("is_seen", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.is_seen = False
        """A batch of it was read."""


class Transactions:
    """Told of every batch from some offset on, in order. ``kept``: the aborted transactions whose markers stay and of
    which batches were read: the index of what is written has them."""

    __slots__ = ("_aborted", "_committed", "_waiting", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborted: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []

    def _begin(self, header: BatchHeader) -> None:
        while self._waiting and self._waiting[0].first_offset <= header.last_offset:
            each = self._waiting.popleft()
            if each.last_offset >= header.base_offset:
                self._aborted.setdefault(each.producer_id, _Ongoing(each))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch, which is no control batch, is of an aborted transaction."""
        self._begin(header)
        if not header.is_transactional:
            return False
        ongoing = self._aborted.get(header.producer_id)
        if ongoing is not None and ongoing.transaction.last_offset < header.base_offset:
            del self._aborted[header.producer_id]  # its marker is gone
            ongoing = None
        if ongoing is None:
            self._committed.add(header.producer_id)
            return False
        ongoing.is_seen = True
        return True

    def is_marker_of_nothing(self, header: BatchHeader, key: bytes | None) -> bool:
        """Whether nothing is left of the transaction that a control batch ends. ``key``: of its record; None: it was
        emptied by an earlier cleaning."""
        self._begin(header)
        if key is None:
            return True
        if len(key) < _KEY.size:
            raise CorruptRecordError(f"the marker at offset {header.base_offset} has the key {key!r}")
        kind = _KEY.unpack_from(key)[1]
        if kind == _ABORT:
            ongoing = self._aborted.pop(header.producer_id, None)
            if ongoing is not None and ongoing.is_seen:
                self.kept.append(ongoing.transaction)
                return False
            if header.producer_id in self._committed:  # the index does not know it: better one marker too many
                self._committed.discard(header.producer_id)
                return False
            return True
        if kind == _COMMIT:
            seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not seen
        return False

    def take_kept(self) -> list[AbortedTransaction]:
        """``kept``, told once."""
        kept, self.kept = self.kept, []
        return kept
