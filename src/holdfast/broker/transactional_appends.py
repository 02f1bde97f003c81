"""Batches of transactions on their way into the log: the first of a transaction waits for its coordinator.

Owns, for each partition and producer, what waits until the coordinator has said that the partition is in the
transaction (txn_verification.py), and the rule that nothing overtakes it:

    (none) --(a batch, and nothing is open here)--> ASKED --(it is in it)--> VERIFIED --(first append done)--> (none)
                                                    |  ^                       |
                                                    |  +-(was ended: again)    +--(a marker comes)--> (none)
                                                    +--(it is not, or nobody can say)--> (none), all refused

A marker that is appended between the question and the append ends the very transaction that was asked about: what was
learned is worth nothing then (the guard of Kafka's verification). The log looks as well, in the turn of the append:
a batch that is not verified is taken only into a transaction that is open there (storage/producer_state.py).

Batches behind one that was refused for a passing reason are refused for the same reason until it comes again, because
a partition that knows nothing of a producer takes any sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from holdfast.broker.txn_verification import NOBODY_COULD_SAY, PartitionClaim, TxnVerification
from holdfast.model.errors import (
    ConcurrentTransactionsError,
    HoldfastError,
    InvalidTxnStateError,
    NetworkError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    TransactionAbortableError,
)
from holdfast.model.types import LeaderEpoch, TopicPartition
from holdfast.replication.types import OF_CLIENT, AppendTerms, ProduceResult

if TYPE_CHECKING:
    from holdfast.model.config import BrokerConfig
    from holdfast.records.batch import BatchHeader
    from holdfast.replication.local_replicas import LocalReplicas

ADDS_VERSION: Final = 12
"""First version of Produce whose clients leave it to the broker to add partitions (transaction version 2)."""
ABORTABLE_VERSION: Final = 11
"""First version whose clients know TRANSACTION_ABORTABLE."""
MAX_BEHIND: Final = 64
"""Batches of one producer and partition that may wait; stock clients have five on their way."""
MAX_REFUSED: Final = 1_000
KEPT_MS: Final = 60_000
"""As for other batches that were refused (replication/refused.py)."""
ATTEMPTS: Final = 3
VERIFIES: Final = "transaction.partition.verification.enable"
"""Of version 2 partitions are added all the same."""
NOT_ADDED: Final = "Partition was not added to the transaction"

_IF_OPEN = AppendTerms(verified=False)
_ADDED = AppendTerms(from_zero=True)


class AppendsHost(Protocol):
    """What these appends ask of the broker."""

    config: BrokerConfig
    replicas: LocalReplicas
    txn_verification: TxnVerification

    def now_ms(self) -> int: ...


class TxnBatch(NamedTuple):
    """One partition of a Produce request whose batch is of a transaction; ``done`` gets its result once."""

    topic_partition: TopicPartition
    records: memoryview
    header: BatchHeader
    transactional_id: str
    version: int
    acks: int
    timeout_ms: int
    done: Callable[[ProduceResult], None]
    coordinated_in: LeaderEpoch | None = None
    """A coordinator made it for a client while this broker led in that epoch: it has no sequences of the producer's,
    and is worth nothing to the coordinator of a later epoch."""


class _Pending:
    """A producer's transaction in a partition that is not known to be open there."""

    __slots__ = ("attempts", "is_verified", "leader_epoch", "waiting", "was_ended")

    def __init__(self) -> None:
        self.waiting: list[TxnBatch] = []
        self.attempts = 0
        self.leader_epoch: LeaderEpoch | None = None
        """In which it was asked: another leader may have appended a marker since."""
        self.was_ended = False
        self.is_verified = False


class _Refusal(NamedTuple):
    """The lowest sequence of a producer's epoch that was refused and did not come again."""

    epoch: int
    sequence: int
    error: HoldfastError
    at_ms: int


class TransactionalAppends:
    """See the module's docstring. On the loop."""

    def __init__(self, broker: AppendsHost) -> None:
        self._broker = broker
        self._pending: dict[tuple[TopicPartition, int], dict[int, _Pending]] = {}
        """By partition and producer id, then by epoch."""
        self._refused: dict[tuple[TopicPartition, int], _Refusal] = {}

    def append(self, batch: TxnBatch) -> None:
        """Append, now or when it is verified."""
        header, tp = batch.header, batch.topic_partition
        pid, epoch = header.producer_id, header.producer_epoch
        replicas = self._broker.replicas
        pending = self._pending.get((tp, pid), {}).get(epoch)
        if pending is not None:
            if pending.is_verified:
                self._submit(batch, _terms(batch))
            elif len(pending.waiting) < MAX_BEHIND:
                pending.waiting.append(batch)
            else:
                _refuse(batch, NotEnoughReplicasError(f"{MAX_BEHIND} batches of the producer wait for its coordinator"))
            return
        if pid < 0 or not replicas.is_leader(tp) or replicas.has_open_transaction(tp, pid, epoch):
            self._submit(batch, _IF_OPEN)
            return
        if not _adds(batch) and not self._broker.config.bool(VERIFIES):
            self._submit(batch, _terms(batch))
            return
        gap = self._gap_before(batch)
        if gap is not None:
            _refuse(batch, gap)
            return
        pending = self._pending.setdefault((tp, pid), {})[epoch] = _Pending()
        pending.waiting.append(batch)
        self._ask(pending)

    def ended(self, tp: TopicPartition, producer_id: int) -> None:
        """A marker of the producer is about to be appended: what was learned before it is worth nothing."""
        found = self._pending.get((tp, producer_id))
        for epoch, pending in list(found.items()) if found else ():
            pending.was_ended = True
            if pending.is_verified:
                self._forget(tp, producer_id, epoch, pending)

    def _ask(self, pending: _Pending) -> None:
        first = pending.waiting[0]
        pending.attempts += 1
        pending.was_ended = False
        pending.leader_epoch = self._broker.replicas.leader_epoch(first.topic_partition)
        header = first.header
        claim = PartitionClaim(
            first.transactional_id, header.producer_id, header.producer_epoch, first.topic_partition, _adds(first)
        )
        self._broker.txn_verification.ask(claim, lambda error: self._answered(pending, error))

    def _answered(self, pending: _Pending, error: HoldfastError | None) -> None:
        leader_epoch = self._broker.replicas.leader_epoch(pending.waiting[0].topic_partition)
        if error is None and (pending.was_ended or leader_epoch != pending.leader_epoch):
            if leader_epoch is not None and pending.attempts < ATTEMPTS:
                self._ask(pending)
                return
            error = NetworkError("transactions end, or leaders change, faster than can be asked about")
        waiting, pending.waiting = pending.waiting, []
        first = waiting[0]
        tp, header = first.topic_partition, first.header
        if error is not None:
            self._forget(tp, header.producer_id, header.producer_epoch, pending)
            for batch in waiting:
                told = _told(error, batch)
                self._remember(batch, told)
                _refuse(batch, told)
            return
        pending.is_verified = True
        self._submit(first, _terms(first), pending)
        for batch in waiting[1:]:
            self._submit(batch, _terms(batch))

    def _submit(self, batch: TxnBatch, terms: AppendTerms, pending: _Pending | None = None) -> None:
        header, tp = batch.header, batch.topic_partition

        def done(result: ProduceResult) -> None:
            if pending is not None:
                self._forget(tp, header.producer_id, header.producer_epoch, pending)
            if result.error is None and self._refused:
                self._filled(batch)
            batch.done(result)

        if batch.coordinated_in is not None:
            terms = terms._replace(trusted=True)
            if self._broker.replicas.leader_epoch(tp) != batch.coordinated_in:
                done(ProduceResult(NotLeaderOrFollowerError(f"{tp}: leader epoch {batch.coordinated_in} is over")))
                return
        self._broker.replicas.append(
            tp, batch.records, acks=batch.acks, timeout_ms=batch.timeout_ms, now_ms=self._broker.now_ms(), done=done,
            terms=terms,
        )  # fmt: skip

    def _forget(self, tp: TopicPartition, producer_id: int, epoch: int, pending: _Pending) -> None:
        found = self._pending.get((tp, producer_id))
        if found is not None and found.get(epoch) is pending:
            del found[epoch]
            if not found:
                del self._pending[tp, producer_id]

    # -- gaps ----------------------------------------------------------------------------------------------------

    def _remember(self, batch: TxnBatch, error: HoldfastError) -> None:
        if not isinstance(error, (NotEnoughReplicasError, ConcurrentTransactionsError)):
            return
        header, key = batch.header, (batch.topic_partition, batch.header.producer_id)
        if self._broker.replicas.has_written(*key, header.producer_epoch, header.base_sequence):
            return  # it was sent once more, and came when its transaction was over
        known = self._refused.pop(key, None)
        if known is not None and known.epoch == header.producer_epoch and known.sequence <= header.base_sequence:
            self._refused[key] = known
            return
        if len(self._refused) >= MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[key] = _Refusal(header.producer_epoch, header.base_sequence, error, self._broker.now_ms())

    def _gap_before(self, batch: TxnBatch) -> HoldfastError | None:
        header = batch.header
        known = self._refused.get((batch.topic_partition, header.producer_id))
        if known is None or known.epoch != header.producer_epoch or header.base_sequence <= known.sequence:
            return None
        tp, pid = batch.topic_partition, header.producer_id
        if self._broker.replicas.has_written(tp, pid, known.epoch, known.sequence):  # perhaps by another leader
            del self._refused[tp, pid]
            return None
        if self._broker.now_ms() - known.at_ms <= KEPT_MS:
            return known.error
        return OutOfOrderSequenceError(f"sequence {header.base_sequence}, expected {known.sequence}")

    def _filled(self, batch: TxnBatch) -> None:
        header, key = batch.header, (batch.topic_partition, batch.header.producer_id)
        known = self._refused.get(key)
        if known is not None and (header.producer_epoch, header.base_sequence) >= (known.epoch, known.sequence):
            del self._refused[key]


def _adds(batch: TxnBatch) -> bool:
    return batch.version >= ADDS_VERSION


def _terms(batch: TxnBatch) -> AppendTerms:
    return _ADDED if _adds(batch) else OF_CLIENT


def _refuse(batch: TxnBatch, error: HoldfastError) -> None:
    batch.done(ProduceResult(error, error_message=error.message or None))


def _told(error: HoldfastError, batch: TxnBatch) -> HoldfastError:
    """What a client of this version is told: errors of coordinators on a Produce mean nothing to it, so that what
    passes is an error after which it sends the same batch again, without looking for another leader."""
    if isinstance(error, TransactionAbortableError) and batch.version < ABORTABLE_VERSION:
        error = InvalidTxnStateError("")
    if isinstance(error, InvalidTxnStateError):
        return InvalidTxnStateError(NOT_ADDED)
    passes = isinstance(error, ConcurrentTransactionsError) and not _adds(batch)
    if passes or isinstance(error, NOBODY_COULD_SAY):
        why = error.message or type(error).__name__
        return NotEnoughReplicasError(f"{batch.topic_partition}: whether it is in the transaction is not known: {why}")
    return error
