"""The transactions of a log that were aborted, as a cleaning has to know them: which batches are of one, and which
marker ends one whose batches are still there.

Owns Kafka's rules for markers (KAFKA-8522): a marker is never superseded by key. It stays while a batch of its
transaction is in the log, and then as long as a tombstone. No disk here; the entries are those of
``.txnindex`` files (txn_index.py).
"""

from collections import deque
from collections.abc import Iterable

from holdfast.records.batch import BatchHeader
from holdfast.records.markers import EndMarker
from holdfast.storage.txn_index import AbortedTxn


class _Ongoing:
    __slots__ = ("is_seen", "transaction")

    def __init__(self, transaction: AbortedTxn) -> None:
        self.transaction = transaction
        self.is_seen = False
        """A batch of it was read."""


class Transactions:
    """Told of every batch from some offset on, in order. ``kept``: the aborted transactions whose markers stay and of
    which batches were read: the index of what is written has them."""

    __slots__ = ("_aborted", "_committed", "_waiting", "kept")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._waiting = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborted: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()
        self.kept: list[AbortedTxn] = []

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

    def is_marker_of_nothing(self, header: BatchHeader, marker: EndMarker | None) -> bool:
        """Whether nothing is left of the transaction that a control batch ends. ``marker``: what it says; None: nothing
        that is known, or it was emptied by an earlier cleaning."""
        self._begin(header)
        if marker is None:
            return not header.record_count
        seen = header.producer_id in self._committed
        self._committed.discard(header.producer_id)
        if not marker.is_commit:
            ongoing = self._aborted.pop(header.producer_id, None)
            if ongoing is not None and ongoing.is_seen:
                self.kept.append(ongoing.transaction)
                return False
        return not seen  # also of an abort that the index does not know: better a marker too many

    def take_kept(self) -> list[AbortedTxn]:
        """``kept``, told once."""
        kept, self.kept = self.kept, []
        return kept
