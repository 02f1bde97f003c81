"""Offsets of transactions that have not ended: they count when the commit marker is in the log, or never.

Owns, for one partition of ``__consumer_offsets``, which producer has written an offset of which group where. What it
wrote stands in the group, by producer, in the order of the log (``Group.in_transactions``): an offset that was
committed later, outside of the transaction or in one that ended first, is the newer one and stays.

    being written --(in the log)--> pending --(commit marker, and nothing newer)--> committed
         |                             +-----(abort marker, or something newer)---> gone
         +--(refused)--> gone

Whoever asks for stable offsets is refused from the first of these states on (KIP-447).
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.coordinators.newest import overtaken
from holdfast.groups.group import Group
from holdfast.groups.types import GroupId, OffsetAndMetadata
from holdfast.model.types import TopicPartition


class PendingOffsets:
    """See the module's docstring. ``groups``: those of the partition."""

    __slots__ = ("_by_producer", "_groups")

    def __init__(self, groups: dict[GroupId, Group]) -> None:
        self._groups = groups
        self._by_producer: dict[int, dict[tuple[GroupId, TopicPartition], None]] = {}

    def adopt(self, groups: Iterable[Group]) -> None:
        """Groups as they were read from the log."""
        for group in groups:
            for tp, waiting in group.in_transactions.items():
                for producer_id in waiting:
                    self._by_producer.setdefault(producer_id, {})[group.group_id, tp] = None

    def written(self, group: Group, tp: TopicPartition, producer_id: int, committed: OffsetAndMetadata) -> None:
        """It is in the log, after all that was told before."""
        waiting = group.in_transactions.setdefault(tp, {})
        waiting.pop(producer_id, None)  # the last one in the log is the last one here
        waiting[producer_id] = committed
        self._by_producer.setdefault(producer_id, {})[group.group_id, tp] = None

    def complete(self, producer_id: int, committed: bool) -> list[Group]:
        """The marker of the producer's transaction is in the log. The groups that it was about."""
        touched: dict[GroupId, Group] = {}
        for group_id, tp in self._by_producer.pop(producer_id, ()):
            group = self._groups.get(group_id)
            waiting = None if group is None else group.in_transactions.get(tp)
            if group is None or waiting is None or producer_id not in waiting:
                continue  # a tombstone came in between
            newest = overtaken(waiting, producer_id) if committed else None
            if newest is not None:
                group.offsets[tp] = newest
            del waiting[producer_id]
            if not waiting:
                del group.in_transactions[tp]
            touched[group_id] = group
        return list(touched.values())


def overtake(group: Group, tp: TopicPartition) -> None:
    """Something newer than what transactions have written is in the log."""
    waiting = group.in_transactions.get(tp)
    if waiting:
        for producer_id in waiting:
            waiting[producer_id] = None
