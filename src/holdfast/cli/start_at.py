"""Where reading begins: what people write for it, and which offsets that is.

earliest | latest      by name           @2026-01-01T00:00:00   the first record of then or later, UTC unless it says
7                      that offset       @1767225600000         the same, in ms since 1970
-5                     the last five offsets of each partition
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

from holdfast.client.views import IsolationLevel, OffsetAt, OffsetSpec
from holdfast.model.types import Offset, TimestampMs, TopicPartition

log = logging.getLogger(__name__)

EXPECTED = "a number, -N, earliest, latest, @2026-01-01T00:00:00 or @MS"
MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Exactly:
    """This offset."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class LastOf:
    """So many offsets before the end."""

    count: int


@dataclass(frozen=True, slots=True)
class FromTime:
    """The first record with this timestamp or a later one; the end, where there is none yet."""

    timestamp_ms: TimestampMs


Start: TypeAlias = OffsetSpec | Exactly | LastOf | FromTime


def parse_start(text: str) -> Start:
    """ValueError says what was expected."""
    if text in ("earliest", "latest"):
        return OffsetSpec[text.upper()]
    if text.startswith("@"):
        return FromTime(parse_time(text[1:]))
    number = text.removeprefix("-")
    if not (number.isascii() and number.isdecimal()) or int(number) > MOST:
        raise ValueError(f"expected {EXPECTED}")
    return LastOf(int(number)) if text.startswith("-") else Exactly(int(number))


def parse_time(text: str) -> TimestampMs:
    """Milliseconds since 1970. A time without a zone is UTC, as Kafka's tools take it."""
    if text.isascii() and text.isdecimal() and int(text) <= MOST:
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("expected a time as 2026-01-01T00:00:00, or milliseconds since 1970") from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    found = round(when.timestamp() * 1000)
    if found < 0:
        raise ValueError("expected a time from 1970 on")
    return found


class OffsetsByTime(Protocol):
    """What is asked of a client."""

    async def list_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec | TimestampMs], *, isolation: IsolationLevel
    ) -> dict[TopicPartition, OffsetAt]: ...  # pragma: no cover


async def starting_offsets(
    client: OffsetsByTime, tps: Iterable[TopicPartition], start: Start, isolation: IsolationLevel
) -> dict[TopicPartition, Offset]:
    """The offset of each partition to begin at. One that a log does not have is told, and which it is instead."""
    wanted = list(tps)
    if not wanted:
        return {}

    async def listed(spec: OffsetSpec | TimestampMs) -> dict[TopicPartition, Offset | None]:
        found = await client.list_offsets(dict.fromkeys(wanted, spec), isolation=isolation)
        return {tp: at.offset for tp, at in found.items()}

    if isinstance(start, OffsetSpec):
        return {tp: at or 0 for tp, at in (await listed(start)).items()}
    ends = {tp: at or 0 for tp, at in (await listed(OffsetSpec.LATEST)).items()}
    if isinstance(start, FromTime):
        return {tp: ends[tp] if at is None else at for tp, at in (await listed(start.timestamp_ms)).items()}
    begins = {tp: at or 0 for tp, at in (await listed(OffsetSpec.EARLIEST)).items()}
    if isinstance(start, LastOf):
        return {tp: max(begins[tp], ends[tp] - start.count) for tp in wanted}
    return {tp: _held(tp, start.offset, begins[tp], ends[tp]) for tp in wanted}


def _held(tp: TopicPartition, offset: Offset, begin: Offset, end: Offset) -> Offset:
    if offset < begin:
        log.warning("%s has no offset %d any more: it begins at %d, and is read from there", tp, offset, begin)
        return begin
    if offset > end:
        log.warning("%s has no offset %d yet: it ends at %d, and is read from there", tp, offset, end)
        return end
    return offset
