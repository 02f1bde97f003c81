"""Names for the values that travel between floors.

Plain aliases where the value is a number: they document, they cost nothing on a hot path. Absence is ``None``
inside the system; the numbers that mean "none" on the wire (-1, -2) are translated at the edge.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

BrokerId: TypeAlias = int
"""A broker's number, from ``node.id``."""
BrokerEpoch: TypeAlias = int
"""Number of one registration of a broker: the offset of its registration record."""
ControllerEpoch: TypeAlias = int
"""Number of one controller's reign; grows with every claim."""
LeaderEpoch: TypeAlias = int
"""Number of one leadership of a partition; grows with every change of leader."""
PartitionEpoch: TypeAlias = int
"""Number of one state of a partition in the metadata; grows with every change."""
Offset: TypeAlias = int
"""Position of a record in its partition."""
TimestampMs: TypeAlias = int
"""Milliseconds since 1970, UTC."""
TopicId: TypeAlias = UUID
DirectoryId: TypeAlias = UUID
"""Identity of one log directory, kept in its meta.properties."""


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as Kafka names its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def named(partitions: Sequence[TopicPartition], most: int = 10) -> str:
    """For a message: the first ``most`` of them, and how many more there are."""
    more = len(partitions) - most
    return ", ".join(map(str, partitions[:most])) + (f" and {more} more" if more > 0 else "")
