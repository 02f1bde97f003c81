"""Replicas that had to go, and in which leader epoch.

An older order that comes late, over a connection that was given up, would make them anew; who gets one back gets it in
a later epoch (controller/reassignment.py).
"""

from holdfast.model.types import LeaderEpoch, TopicId, TopicPartition
from holdfast.replication.types import PartitionState

KEPT = 20_000
_FOR_EVER: LeaderEpoch = 2**31 - 1


class RememberedStops:
    """See the module's docstring. The newest of them."""

    def __init__(self) -> None:
        self._stops: dict[TopicPartition, tuple[TopicId, LeaderEpoch]] = {}

    def remember(self, tp: TopicPartition, topic_id: TopicId, leader_epoch: LeaderEpoch | None) -> None:
        """It had to go. ``leader_epoch`` None: its topic is deleted, and never comes again."""
        self._stops.pop(tp, None)
        self._stops[tp] = (topic_id, _FOR_EVER if leader_epoch is None else leader_epoch)
        while len(self._stops) > KEPT:
            del self._stops[next(iter(self._stops))]

    def after(self, state: PartitionState) -> LeaderEpoch | None:
        """The epoch in which the replica had to go, for an order from the time before; None for a newer one."""
        topic_id, last_epoch = self._stops.get(state.topic_partition, (None, -1))
        return last_epoch if topic_id == state.topic_id and state.leader_epoch <= last_epoch else None
