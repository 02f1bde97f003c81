"""``orders:0,2`` and what it stands for in a cluster. The parsing is pure; what does not exist is named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.cli.plain_command import Failed, Misused
from holdfast.client.admin import AdminClient
from holdfast.client.views import ClusterView, TopicView
from holdfast.model.types import TopicPartition

MAX_PARTITION = 2**31 - 1


def parse_partitions(text: str, option: str) -> tuple[int, ...]:
    """``0,2``, each once and in order."""
    try:
        found = sorted({int(number) if number.strip().isascii() else -1 for number in text.split(",")})
    except ValueError:
        found = [-1]
    if not all(0 <= number <= MAX_PARTITION for number in found):
        raise Misused(f"{option} {text!r}: expected numbers of partitions, as 0,1,2")
    return tuple(found)


def parse_topic(text: str, option: str = "--topic") -> tuple[str, tuple[int, ...] | None]:
    """``orders``, or ``orders:0,2``; None stands for all partitions."""
    topic, colon, numbers = text.partition(":")
    if not topic or (colon and not numbers):
        raise Misused(f"{option} {text!r}: expected a topic, or TOPIC:0,1,2")
    return topic, parse_partitions(numbers, f"{option} {topic}:") if colon else None


def partitions_of(view: ClusterView, wanted: Iterable[tuple[str, Sequence[int] | None]]) -> list[TopicPartition]:
    """All partitions that are meant, each once and in order. Failed names what does not exist."""
    found: set[TopicPartition] = set()
    for topic, numbers in wanted:
        there = existing(view, topic)
        found |= {TopicPartition(topic, number) for number in (there if numbers is None else numbers)}
        missing = sorted(set(numbers or ()) - set(there))
        if missing:
            numbered = ", ".join(map(str, missing))
            raise Failed(f"topic '{topic}' has no partition {numbered}: expected 0 to {max(there)}")
    return sorted(found)


def existing(view: ClusterView, topic: str) -> list[int]:
    """The partitions of a topic that exists."""
    there: TopicView | None = view.topics.get(topic)
    if there is None or not there.partitions:
        raise Failed(f"topic '{topic}' does not exist")
    return [p.partition for p in there.partitions]


async def find_partitions(
    client: AdminClient, wanted: Sequence[tuple[str, Sequence[int] | None]]
) -> list[TopicPartition]:
    """``partitions_of`` the cluster as it is now."""
    return partitions_of(await client.metadata({topic for topic, _ in wanted}), wanted)
