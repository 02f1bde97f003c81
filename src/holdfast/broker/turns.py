"""What the controller is to hear of replicas on this broker, until it has heard it.

Owns one turn for each replica that has news, and the rule when a turn counts as told. Never sends anything: heartbeats
carry it, one at a time (membership.py), and what becomes of a replica is decided elsewhere (disks.py).

The rule: a turn is told when the answer comes to the very heartbeat that carried it, and that answer says that it was
taken. Of a heartbeat that was lost, or that the controller did not look at, everything is carried again; a turn that
was set after the heartbeat was made stays as well, also when it is the same one. A turn that is told twice changes
nothing at the controller (controller/replicas.py).
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

from holdfast.model.fates import ReplicaTurn
from holdfast.model.types import TopicPartition


class TurnsToTell(MutableMapping[TopicPartition, ReplicaTurn]):
    """See the module's docstring. A later turn of a replica takes the place of an earlier one."""

    def __init__(self) -> None:
        self._turns: dict[TopicPartition, ReplicaTurn] = {}
        self._since: set[TopicPartition] = set()
        """Those of which the turn was set after the last heartbeat was made."""

    def __getitem__(self, tp: TopicPartition) -> ReplicaTurn:
        return self._turns[tp]

    def __setitem__(self, tp: TopicPartition, turn: ReplicaTurn) -> None:
        self._turns[tp] = turn
        self._since.add(tp)

    def __delitem__(self, tp: TopicPartition) -> None:
        del self._turns[tp]
        self._since.discard(tp)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._turns)

    def __len__(self) -> int:
        return len(self._turns)

    def carried(self) -> dict[TopicPartition, ReplicaTurn]:
        """All of them, for a heartbeat that is made now."""
        self._since.clear()
        return dict(self._turns)

    def told(self, tp: TopicPartition, turn: ReplicaTurn) -> bool:
        """The last heartbeat carried ``turn`` and was answered: forget it, unless there is a newer one. True: gone."""
        if self._turns.get(tp) is not turn or tp in self._since:
            return False
        del self._turns[tp]
        return True
