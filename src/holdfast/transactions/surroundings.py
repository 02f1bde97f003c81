"""What the transactions of one partition work with: settings, deadlines, producer ids, the sender of markers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from holdfast.coordinators.deadlines import Deadlines
from holdfast.coordinators.journal import CoordinatorLog
from holdfast.model.types import TimestampMs
from holdfast.transactions.settings import TransactionSettings
from holdfast.transactions.types import Ending, FreshId


class MarkerSender(Protocol):
    """Takes the decision to the partitions."""

    def send(self, ending: Ending, done: Callable[[], None], /) -> None:
        """Have a marker written to every partition of ``ending.left``, which each leaves when it has one. ``done`` is
        called once, when none is left; never, once ``ending.is_over``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSurroundings:
    """The same for all partitions of ``__transaction_state`` that this broker leads."""

    settings: TransactionSettings
    log: CoordinatorLog
    deadlines: Deadlines
    fresh_id: FreshId
    markers: MarkerSender
    version: Callable[[], int]
    """The transaction version that the cluster has finalized (KIP-584)."""
    clock: Callable[[], TimestampMs]
    """The time of the latest call: for completions, which bring none of their own."""
