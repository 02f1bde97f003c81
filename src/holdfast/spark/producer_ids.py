"""Producer ids that an executor's process keeps from one task to the next.

A stream has many short tasks. An id for each would be a round trip for each, and a broker remembers every id that has
written to a partition for a day (producer.id.expiration.ms). Owns the ids and how far each is numbered in which
partition; an id is used by one task at a time, and one whose task has failed is not used again.
"""

import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from holdfast.records.columns_out import BatchProducer

KEPT_S: Final = 600.0
"""Long before a broker forgets it."""
MOST_KEPT: Final = 16
MOST_PARTITIONS: Final = 10_000

_MOST_SEQUENCE: Final = 0x7FFFFFFF


@dataclass(slots=True)
class NumberedProducer:
    """A producer id and the sequence number that comes next in each partition."""

    producer: BatchProducer
    inherited: bool = False
    """Whether a task before this one has written with it."""
    following: dict[tuple[str, int], int] = field(default_factory=dict)

    def number(self, topic: str, partition: int, records: int) -> int:
        """The sequence number of the first of so many records."""
        sequence = self.following.get((topic, partition), 0)
        self.following[topic, partition] = (sequence + records) & _MOST_SEQUENCE
        return sequence


_kept: dict[Hashable, tuple[float, NumberedProducer]] = {}


def taken(owner: Hashable) -> NumberedProducer | None:
    """One that a task of ``owner`` has given back; ``owner`` names the process and all that its client goes by."""
    since_s, numbered = _kept.pop(owner, (0.0, None))
    return numbered if numbered is not None and time.monotonic() - since_s < KEPT_S else None


def give_back(owner: Hashable, numbered: NumberedProducer) -> None:
    """For the next task; only when all that was written with it is acknowledged."""
    if len(numbered.following) > MOST_PARTITIONS:
        return
    numbered.inherited = True
    _kept.pop(owner, None)
    _kept[owner] = time.monotonic(), numbered
    while len(_kept) > MOST_KEPT:
        del _kept[next(iter(_kept))]
