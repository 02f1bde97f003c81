"""What a request leads to, as a value: the rules decide (initializing.py, adding.py, ending.py), the shard does it.

RefusedTransaction   the client is told so
Answered             nothing changes: the client is told who it is
NeedsId              decide again, with a producer id that nobody has
Write                append ``after``; when it is durable ``after`` is in force; then the markers go out, where it
                     says that the transaction is decided; then the client is told
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from holdfast.model.errors import (
    ConcurrentTransactionsError,
    HoldfastError,
    InvalidProducerIdMappingError,
    ProducerFencedError,
)
from holdfast.transactions.types import Producer, Transaction, TransactionalId


@dataclass(frozen=True, slots=True)
class RefusedTransaction:
    """See the module's docstring."""

    error: HoldfastError


@dataclass(frozen=True, slots=True)
class Answered:
    """See the module's docstring."""

    producer: Producer


@dataclass(frozen=True, slots=True)
class NeedsId:
    """See the module's docstring."""


@dataclass(frozen=True, slots=True)
class Write:
    """See the module's docstring."""

    after: Transaction
    refuse: HoldfastError | None = None
    """What the client is told although all went well: to come again when the markers are written."""


Decision: TypeAlias = RefusedTransaction | Answered | NeedsId | Write


def fenced(name: TransactionalId, asked: Producer, found: Producer) -> ProducerFencedError:
    """A newer instance has taken over."""
    return ProducerFencedError(
        f"transactional id {name!r} has producer {found.id} with epoch {found.epoch}, the request {asked.id} with "
        f"{asked.epoch}"
    )


def no_mapping(name: TransactionalId, asked: Producer) -> InvalidProducerIdMappingError:
    """The coordinator does not know the id, or by another producer id."""
    return InvalidProducerIdMappingError(f"transactional id {name!r} does not have producer id {asked.id}")


def in_change(name: TransactionalId) -> ConcurrentTransactionsError:
    """Something of this transactional id is being written, markers perhaps: come again in a moment."""
    return ConcurrentTransactionsError(f"a change of transactional id {name!r} is still being written")
