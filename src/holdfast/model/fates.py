"""What became of a broker's replicas while it was away, as the broker itself found out when it started.

Values only. storage/incarnation.py finds it out, the broker tells it when it registers, the controller goes by it:
a replica that lost something may no longer stand for records that were acknowledged (H-07, KIP-966).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from holdfast.model.types import BrokerEpoch, LeaderEpoch, Offset, TopicPartition


class ReplicaFate(Enum):
    """What a replica has of what it had; the values are the wire's (protocol/interbroker.py)."""

    KEPT = 0
    """Every byte that was written: the broker was stopped, or its process was killed."""
    DAMAGED = 1
    """What was flushed: the machine went down. The end of the log may be missing."""
    LOST = 2
    """Nothing."""
    UNKNOWN = 3
    """It cannot be looked at now: a log directory does not answer."""


class ReplicaTurn(Enum):
    """What happens to a replica while its broker lives, as the broker tells the controller; values are the wire's."""

    FAILED = 1
    """Its log, or its log directory, cannot be used."""
    STRAINED = 2
    """Its directory is full, hangs or is slow: others had better lead, and need not wait for it."""
    BACK_DAMAGED = 3
    """It can be used again. What was not flushed when it failed may be missing."""
    BACK_LOST = 4
    """It can be made again, from nothing."""
    RELIEVED = 5
    """It is STRAINED no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFates:
    """The fate of every replica of a broker.

    ``continues``: the incarnation whose files these are; KEPT counts only if the controller knows of no later one.
    None: nothing is said of that. ``rest``: the fate of replicas that are not in ``others``.
    """

    continues: BrokerEpoch | None = None
    rest: ReplicaFate = ReplicaFate.KEPT
    others: Mapping[TopicPartition, ReplicaFate] = field(default_factory=dict)

    def of(self, tp: TopicPartition) -> ReplicaFate:
        """What became of one replica."""
        return self.others.get(tp, self.rest)


class LogEnd(NamedTuple):
    """How far a replica's log goes: the leader epoch of its last batch (None: there is none), and its end."""

    leader_epoch: LeaderEpoch | None
    end_offset: Offset

    @property
    def rank(self) -> tuple[int, Offset]:
        """Of two logs the one with the higher rank has more of what was acknowledged last."""
        return -1 if self.leader_epoch is None else self.leader_epoch, self.end_offset


ALL_KEPT = ReplicaFates()
"""Of a broker that has never been away."""
