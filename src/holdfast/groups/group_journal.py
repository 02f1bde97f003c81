"""The journal of groups, which can also write within a producer's transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.coordinators.journal import CoordinatorLog, Done, Entry, Journal, encode_entries
from holdfast.groups.types import OffsetsTransaction
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TimestampMs


class GroupLog(CoordinatorLog, Protocol):
    """The partitions of ``__consumer_offsets`` that this broker leads."""

    def append_within(
        self,
        transaction: OffsetsTransaction,
        partition: int,
        batch: bytearray,
        done: Callable[[HoldfastError | None], None],
        /,
    ) -> None:
        """As ``append``, once the transaction's coordinator has said that the partition is in it, or has added it
        (KIP-890). ``batch`` is of the transaction's producer; an older epoch of it is refused."""
        ...


class GroupJournal(Journal):
    """One partition of ``__consumer_offsets``."""

    __slots__ = ("_group_log",)

    def __init__(self, log: GroupLog, partition: int, max_batch_bytes: int) -> None:
        super().__init__(log, partition, max_batch_bytes)
        self._group_log = log

    def write_within(
        self, transaction: OffsetsTransaction, entries: Sequence[Entry], now_ms: TimestampMs, done: Done
    ) -> None:
        """Append entries that count when the transaction is committed."""

        def append(piece: Sequence[Entry], one: Callable[[HoldfastError | None], None]) -> None:
            batch = encode_entries(
                piece,
                now_ms,
                base_sequence=0,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
            )
            self._group_log.append_within(transaction, self.partition, batch, one)

        self.write_pieces(entries, append, done)
