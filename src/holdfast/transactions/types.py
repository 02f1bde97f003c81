"""What is known of a transactional id, what is asked of its coordinator, and what it answers.

Absence is None here; the numbers that mean "none" on the wire and in the log are the edges' (records.py, the handlers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from holdfast.model.errors import HoldfastError
from holdfast.model.types import LeaderEpoch, TimestampMs, TopicPartition
from holdfast.transactions.states import TransactionState

TransactionalId: TypeAlias = str
ProducerId: TypeAlias = int
ProducerEpoch: TypeAlias = int

MAX_EPOCH: Final = 2**15 - 1
"""The last one; a client never has it, so that there is always one left to fence it with."""
LAST_CLIENT_EPOCH: Final = MAX_EPOCH - 1
"""A producer with this epoch gets a new producer id when it would get a higher epoch."""
BUMPING: Final = 2
"""The transaction version (KIP-890) from which on every end of a transaction raises the epoch."""


class Producer(NamedTuple):
    """Who writes: a producer id in one of its epochs."""

    id: ProducerId
    epoch: ProducerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id as its newest record says. Never changes; another one takes its place."""

    producer_id: ProducerId
    previous_producer_id: ProducerId | None = None
    """The one before the last change."""
    next_producer_id: ProducerId | None = None
    """Told to the client already, in force once the markers are written: the epochs of ``producer_id`` are used up."""
    epoch: ProducerEpoch
    last_epoch: ProducerEpoch | None = None
    """The one before, whose holder may ask again for an answer that it did not get. Not in the log, as in Kafka;
    after an end that raised the epoch it is known all the same (records.py)."""
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: TimestampMs | None = None
    update_ms: TimestampMs
    version: int = 0
    """The transaction version of the client that changed it last."""

    @property
    def bumps(self) -> bool:
        """Whether its last change was of a client whose epoch rises with every end."""
        return self.version >= BUMPING


# -- requests ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRequest:
    """InitProducerId with a transactional id. ``producer``: the one that goes on (KIP-360)."""

    transactional_id: TransactionalId
    timeout_ms: int
    producer: Producer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest:
    """AddPartitionsToTxn and AddOffsetsToTxn. ``version``: the client's transaction version."""

    transactional_id: TransactionalId
    producer: Producer
    partitions: frozenset[TopicPartition]
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    """EndTxn."""

    transactional_id: TransactionalId
    producer: Producer
    commit: bool
    version: int = 0


# -- answers -----------------------------------------------------------------------------------------------------

ProducerReply: TypeAlias = Callable[[Producer | HoldfastError], None]
"""InitProducerId and EndTxn: who the client is from now on."""
AddReply: TypeAlias = Callable[[HoldfastError | None], None]
Verified: TypeAlias = Mapping[TopicPartition, HoldfastError | None]
FreshId: TypeAlias = Callable[[Callable[[int | HoldfastError], None]], None]
"""Gives a producer id that nobody has, at once or later, once."""


class DescribedTransaction(NamedTuple):
    """DescribeTransactions of one id."""

    error: HoldfastError | None
    transaction: Transaction | None = None


class ListedTransaction(NamedTuple):
    """One of ListTransactions."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    state: str


class TransactionList(NamedTuple):
    """ListTransactions."""

    error: HoldfastError | None
    unknown_states: tuple[str, ...] = ()
    transactions: tuple[ListedTransaction, ...] = ()


# -- markers -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True, eq=False)
class Ending:
    """A transaction that is decided: the markers that its partitions still lack."""

    transactional_id: TransactionalId
    producer: Producer
    commit: bool
    coordinator_epoch: LeaderEpoch
    version: int
    left: set[TopicPartition] = field(default_factory=set)
    is_over: bool = False
    """Another broker coordinates now: what is left is its affair."""
