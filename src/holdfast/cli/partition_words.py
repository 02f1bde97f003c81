"""``orders:0,2`` and what it stands for in a cluster. The parsing is pure; what does not exist is named."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from holdfast.cli.failing import Failed, Misused
from holdfast.client.admin import AdminClient
from holdfast.client.views import ClusterMetadata, TopicView
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


def partitions_of(view: ClusterMetadata, wanted: Iterable[tuple[str, Sequence[int] | None]]) -> list[TopicPartition]:
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


def existing(view: ClusterMetadata, topic: str) -> list[int]:
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


# -- patterns ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pattern:
    """Topics whose whole name matches, and of them the partitions from ``low`` to before ``high``."""

    topic: re.Pattern[str]
    low: int = 0
    high: int | None = None

    def has(self, tp: TopicPartition) -> bool:
        in_range = self.low <= tp.partition and (self.high is None or tp.partition < self.high)
        return in_range and self.topic.fullmatch(tp.topic) is not None


def parse_patterns(text: str) -> list[Pattern]:
    """``orders:0-3,:7,logs.*``, as kafka-get-offsets.sh takes them: an expression for names, and a number or a range
    without its upper end; either may be left out."""
    return [_parse_pattern(each) for each in text.split(",")]


def _parse_pattern(text: str) -> Pattern:
    name, colon, numbers = text.partition(":")
    found = re.fullmatch(r"(\d*)(-?)(\d*)", numbers)
    if found is None or (colon and not (found[1] or found[3])):
        raise Misused(f"--topic-partitions {text!r}: expected TOPIC, TOPIC:N, TOPIC:N-M, TOPIC:N- or TOPIC:-M")
    low = int(found[1] or 0)
    high = (int(found[3]) if found[3] else None) if found[2] or not colon else low + 1
    return Pattern(expression(name or ".*", "--topic-partitions"), low, high)


def expression(text: str, option: str) -> re.Pattern[str]:
    """Misused for what is no regular expression."""
    try:
        return re.compile(text)
    except re.error as e:
        raise Misused(f"{option} {text!r} is no regular expression: {e}") from None


def matching(
    view: ClusterMetadata,
    patterns: Iterable[Pattern],
    *,
    numbers: Collection[int] | None = None,
    exclude_internal: bool = False,
) -> list[TopicPartition]:
    """In order. Failed where something was asked for and nothing is there."""
    chosen = list(patterns)
    found = [
        tp
        for topic in view.topics.values()
        if not (exclude_internal and topic.internal)
        for p in topic.partitions
        if (tp := TopicPartition(topic.name, p.partition)) and any(pattern.has(tp) for pattern in chosen)
        if numbers is None or p.partition in numbers
    ]
    if not found:
        raise Failed("Could not match any topic-partitions with the specified filters")
    return sorted(found)
