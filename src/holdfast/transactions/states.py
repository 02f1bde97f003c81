"""The states of a transactional id, and which follows which: the table that the code asks before every change.

Names and numbers are Kafka's: the names are told by DescribeTransactions, the numbers are in ``__transaction_state``.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from holdfast.model.transitions import Transitions


class TransactionState(Enum):
    """PREPARE_EPOCH_FENCE and DEAD are never written: the one becomes PREPARE_ABORT in the same turn, the other is a
    tombstone under way."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


NUMBERS: Final = {state: number for number, state in enumerate(TransactionState)}
"""As in the log."""
BY_NUMBER: Final = {number: state for state, number in NUMBERS.items()}
BY_NAME: Final = {state.value: state for state in TransactionState}

AT_REST: Final = frozenset((TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))
"""No transaction is open or being ended; the id may expire."""
PREPARED: Final = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
"""Decided; the markers are on their way."""


class TransactionEvent(Enum):
    """What changes the state of a transactional id."""

    INITIALIZED = "a producer begins or goes on (InitProducerId)"
    ADDED = "partitions or offsets are added"
    FENCED = "a newer producer comes, or the time is up"
    COMMITTED = "commit"
    ABORTED = "abort"
    MARKED = "every partition has its marker"
    EXPIRED = "unused for transactional.id.expiration.ms"


_S, _E = TransactionState, TransactionEvent

TRANSACTION: Final = Transitions(
    starts=(_S.EMPTY,),
    moves={
        (_S.EMPTY, _E.INITIALIZED): _S.EMPTY,
        (_S.EMPTY, _E.ADDED): _S.ONGOING,
        (_S.EMPTY, _E.ABORTED): _S.PREPARE_ABORT,
        (_S.EMPTY, _E.EXPIRED): _S.DEAD,
        (_S.ONGOING, _E.ADDED): _S.ONGOING,
        (_S.ONGOING, _E.COMMITTED): _S.PREPARE_COMMIT,
        (_S.ONGOING, _E.ABORTED): _S.PREPARE_ABORT,
        (_S.ONGOING, _E.FENCED): _S.PREPARE_EPOCH_FENCE,
        (_S.PREPARE_EPOCH_FENCE, _E.ABORTED): _S.PREPARE_ABORT,
        (_S.PREPARE_COMMIT, _E.MARKED): _S.COMPLETE_COMMIT,
        (_S.PREPARE_ABORT, _E.MARKED): _S.COMPLETE_ABORT,
        (_S.COMPLETE_COMMIT, _E.INITIALIZED): _S.EMPTY,
        (_S.COMPLETE_COMMIT, _E.ADDED): _S.ONGOING,
        (_S.COMPLETE_COMMIT, _E.ABORTED): _S.PREPARE_ABORT,
        (_S.COMPLETE_COMMIT, _E.EXPIRED): _S.DEAD,
        (_S.COMPLETE_ABORT, _E.INITIALIZED): _S.EMPTY,
        (_S.COMPLETE_ABORT, _E.ADDED): _S.ONGOING,
        (_S.COMPLETE_ABORT, _E.ABORTED): _S.PREPARE_ABORT,
        (_S.COMPLETE_ABORT, _E.EXPIRED): _S.DEAD,
    },
)
"""Of one transactional id."""
