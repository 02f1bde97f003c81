"""The states of a group and the moves between them, as a table.

                +---------------- last member gone ----------------+
                v                                                  |
    EMPTY -> PREPARING_REBALANCE -> COMPLETING_REBALANCE -> STABLE |
      ^         |   ^     ^               |                   |    |
      |         |   |     +---------------+                   |    |
      +---------+   +-----------------------------------------+----+

PREPARING: members are expected to join. COMPLETING: all have joined, the leader's assignment is awaited. DEAD: the
group's tombstone is being written, or this broker no longer coordinates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class GroupState(Enum):
    """The values are Kafka's words, as DescribeGroups and ListGroups say them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


MAY_BECOME: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.DEAD}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.STABLE, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset({GroupState.EMPTY}),  # the tombstone could not be written
}

MAY_REBALANCE: Final = frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE})
"""States in which a rebalance can be started (in PREPARING one is under way already)."""
