"""Fetching from one leader into one log directory: what to ask next, what to do with the answer.

WIP signatures.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.errors import HoldfastError
from holdfast.model.types import BrokerId
from holdfast.replication.types import FetchedPartition, FetchPlan


class FetcherState:
    """All partitions of one local log directory that follow one broker. One connection serves one fetcher.

    One fetcher per pair of source and directory, so that a disk that hangs holds up nobody else's replication.
    The shell's loop: when told ``outbox.fetcher_ready(fetcher)``, or after an answer, call ``build``; send the plan
    if there is one; hand the answer to ``on_response``. A second plan may be made while the first is parked at
    the source (new partitions are urgent): send it behind the first on the same connection.
    """

    source: BrokerId
    directory: str

    @property
    def is_empty(self) -> bool:
        """No partition is fetched: the connection may be closed."""
        raise NotImplementedError

    def build(self, now_ms: int) -> FetchPlan | None:
        """The next request, or None when there is nothing to ask for now."""
        raise NotImplementedError

    def on_response(
        self, error: HoldfastError | None, session_id: int | None, partitions: Iterable[FetchedPartition], now_ms: int
    ) -> None:
        """The answer to the oldest plan that is not answered yet. Only partitions that the answer mentions."""
        raise NotImplementedError

    def on_failure(self, error: HoldfastError, now_ms: int) -> None:
        """The connection went away (or could not be made): all unanswered plans are void, the session is gone."""
        raise NotImplementedError

    def next_deadline_ms(self) -> int | None:
        """When a back-off ends; LocalReplicas.tick says fetcher_ready then."""
        raise NotImplementedError
