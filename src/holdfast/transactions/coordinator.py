"""The transaction coordinator: every transactional id whose partition of ``__transaction_state`` this broker leads.

Sends each request to the partition of its id; the second tenant of the coordinator host (coordinators/tenant.py).
Knows no wire, no clock and no disk: time comes in with every call, records go out through ``CoordinatorLog``, markers
through ``MarkerSender``, answers through ``reply`` (called once, at once or later).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

from holdfast.coordinators.deadlines import Deadlines
from holdfast.coordinators.journal import CoordinatorLog
from holdfast.coordinators.replay import KeyedReplay
from holdfast.coordinators.shards import Shards
from holdfast.model.errors import (
    HoldfastError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    TransactionalIdNotFoundError,
)
from holdfast.model.group_errors import CoordinatorLoadInProgressError
from holdfast.model.internal_topics import TRANSACTIONS_TOPIC
from holdfast.model.types import LeaderEpoch, TimestampMs
from holdfast.transactions.patterns import compiled
from holdfast.transactions.records import MAX_TEXT, StoredTransaction, decode_record
from holdfast.transactions.settings import TransactionSettings
from holdfast.transactions.shard import TransactionShard
from holdfast.transactions.states import BY_NAME
from holdfast.transactions.surroundings import MarkerSender, TransactionSurroundings
from holdfast.transactions.types import (
    AddReply,
    AddRequest,
    DescribedTransaction,
    EndRequest,
    FreshId,
    InitRequest,
    ListedTransaction,
    ProducerReply,
    Transaction,
    TransactionalId,
    TransactionList,
    Verified,
)


class TransactionCoordinator:
    """See the module's docstring. ``version``: the transaction version that the cluster has finalized."""

    __slots__ = ("_deadlines", "_settings", "_shards")

    topic: Final = TRANSACTIONS_TOPIC
    reader: Final = "plain"

    def __init__(
        self,
        settings: TransactionSettings,
        log: CoordinatorLog,
        *,
        markers: MarkerSender,
        fresh_id: FreshId,
        version: Callable[[], int],
    ) -> None:
        self._deadlines = Deadlines()
        self._settings = settings
        around = TransactionSurroundings(
            settings=settings,
            log=log,
            deadlines=self._deadlines,
            fresh_id=fresh_id,
            markers=markers,
            version=version,
            clock=lambda: self._shards.now_ms,
        )

        def make(partition: int, leader_epoch: LeaderEpoch) -> TransactionShard:
            return TransactionShard(partition, leader_epoch, around)

        self._shards = Shards(make, partition_count=settings.partitions, noun="transactional id")

    # -- tenancy -------------------------------------------------------------------------------------------------

    @property
    def partition_count(self) -> int:
        """Partitions of ``__transaction_state``; a topic that exists may have another number than the setting."""
        return self._shards.partition_count

    @partition_count.setter
    def partition_count(self, count: int) -> None:
        self._shards.partition_count = count

    def on_elected(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        """This broker leads the partition; the epoch fences the markers of earlier coordinators."""
        self._shards.on_elected(partition, leader_epoch)

    def replay(self) -> KeyedReplay[StoredTransaction]:
        """What reads a partition's log."""
        return KeyedReplay(decode_record)

    def add(
        self, partition: int, leader_epoch: LeaderEpoch, piece: list[StoredTransaction], now_ms: TimestampMs
    ) -> None:
        """Some of what was read."""
        self._shards.add(partition, leader_epoch, piece, now_ms)

    def serve(self, partition: int, leader_epoch: LeaderEpoch, now_ms: TimestampMs) -> None:
        """All was read."""
        self._shards.serve(partition, leader_epoch, now_ms)

    def on_resigned(self, partition: int) -> None:
        """Another broker leads the partition."""
        self._shards.on_resigned(partition)

    def on_topics_deleted(self, topics: Collection[str], now_ms: TimestampMs) -> None:
        """Their partitions need no markers: the sender finds no such partition."""

    def next_deadline_ms(self) -> TimestampMs | None:
        """When to call ``tick`` next; may be early."""
        return self._deadlines.next_ms()

    def tick(self, now_ms: TimestampMs) -> None:
        """Run what is due."""
        self._shards.see(now_ms)
        self._deadlines.run_due(now_ms)

    # -- producers -----------------------------------------------------------------------------------------------

    def initialize(self, request: InitRequest, now_ms: TimestampMs, reply: ProducerReply) -> None:
        """InitProducerId: see initializing.py."""
        most = self._settings.max_timeout_ms
        error = _name_error(request.transactional_id)
        if error is not None:
            reply(error)
            return
        if not 0 < request.timeout_ms <= most:
            reply(
                InvalidTransactionTimeoutError(f"transaction.timeout.ms of {request.timeout_ms}: expected 1 to {most}")
            )
            return
        found = self._route(request.transactional_id, now_ms)
        if isinstance(found, HoldfastError):
            reply(found)
        else:
            found.initialize(request, now_ms, reply)

    def add_partitions(self, request: AddRequest, now_ms: TimestampMs, reply: AddReply) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn: see adding.py."""
        found = self._route(request.transactional_id, now_ms)
        if isinstance(found, HoldfastError):
            reply(found)
        else:
            found.add_partitions(request, now_ms, reply)

    def when_settled(self, name: TransactionalId, now_ms: TimestampMs, wake: Callable[[], None]) -> None:
        """``wake`` is called once, as soon as nothing of the id is under way here."""
        found = self._route(name, now_ms)
        if isinstance(found, HoldfastError):
            wake()
        else:
            found.when_settled(name, wake)

    def verify(self, request: AddRequest, now_ms: TimestampMs) -> Verified:
        """AddPartitionsToTxn that only asks."""
        found = self._route(request.transactional_id, now_ms)
        if isinstance(found, HoldfastError):
            return dict.fromkeys(request.partitions, found)
        return found.verify(request)

    def end(self, request: EndRequest, now_ms: TimestampMs, reply: ProducerReply) -> None:
        """EndTxn: see ending.py."""
        found = self._route(request.transactional_id, now_ms)
        if isinstance(found, HoldfastError):
            reply(found)
        else:
            found.end(request, now_ms, reply)

    def _route(self, name: TransactionalId, now_ms: TimestampMs) -> TransactionShard | HoldfastError:
        self._shards.see(now_ms)
        return _name_error(name) or self._shards.route(name)

    # -- administration ------------------------------------------------------------------------------------------

    def describe(self, name: TransactionalId, now_ms: TimestampMs) -> DescribedTransaction:
        """DescribeTransactions of one id."""
        found = self._route(name, now_ms)
        if isinstance(found, HoldfastError):
            return DescribedTransaction(found)
        transaction = found.transactions.get(name)
        if transaction is None or found.is_dead(name):
            return DescribedTransaction(TransactionalIdNotFoundError(f"nothing is known of transactional id {name!r}"))
        return DescribedTransaction(None, transaction)

    def list_transactions(
        self,
        now_ms: TimestampMs,
        *,
        states: Sequence[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> TransactionList:
        """Those in any of these states, of these producer ids, open for longer than that; all, where nothing is said.
        InvalidRegularExpressionError."""
        self._shards.see(now_ms)
        matches: re.Pattern[str] | None = compiled(pattern) if pattern else None
        if self._shards.loads:
            return TransactionList(CoordinatorLoadInProgressError("some transactional ids are still being read"))
        wanted = {BY_NAME[name] for name in states if name in BY_NAME}

        def is_wanted(name: TransactionalId, t: Transaction) -> bool:
            if (states and t.state not in wanted) or (producer_ids and t.producer_id not in producer_ids):
                return False
            started_ms = -1 if t.start_ms is None else t.start_ms
            if longer_than_ms is not None and now_ms - started_ms <= longer_than_ms:
                return False
            return matches is None or matches.fullmatch(name) is not None

        return TransactionList(
            None,
            tuple(name for name in states if name not in BY_NAME),
            tuple(
                ListedTransaction(name, t.producer_id, t.state.value)
                for shard in self._shards.active()
                for name, t in shard.transactions.items()
                if is_wanted(name, t) and not shard.is_dead(name)
            ),
        )


def _name_error(name: TransactionalId) -> HoldfastError | None:
    if name and len(name.encode()) <= MAX_TEXT:
        return None
    return InvalidRequestError(f"a transactional id of {len(name)} characters: expected 1 to {MAX_TEXT} bytes")
