"""What the offsets of a group become when they are reset: one decision per partition.

Owns the forms of a reset and their rules, which are those of Kafka's tool. Knows what was asked of the cluster and asks
nothing itself. An offset that the log has not becomes the nearest one that it has, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.model.errors import InvalidRequestError
from holdfast.model.types import Offset, TimestampMs, TopicPartition


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """Where the log begins."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """Where the log ends."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """What is committed; where nothing is, the end of the log."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """This offset in every partition."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """So many further than what is committed; back, if negative."""

    by: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record that is not older than this."""

    timestamp_ms: TimestampMs


@dataclass(frozen=True, slots=True)
class ToPlan:
    """An offset for each partition."""

    offsets: Mapping[TopicPartition, Offset]


Form: TypeAlias = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime | ToPlan


def time_of(form: object) -> TimestampMs | None:
    """What has to be looked up in the logs for it."""
    return form.timestamp_ms if isinstance(form, ToTime) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpan:
    """Where a log begins and ends; ``at_time``: its first record not older than the time of the form, if it has one."""

    start: Offset
    end: Offset
    at_time: Offset | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The new offset of a partition, and what is to be said of it."""

    offset: Offset
    note: str | None = None


def resets(
    form: Form,
    partitions: Iterable[TopicPartition],
    logs: Mapping[TopicPartition, LogSpan],
    committed: Mapping[TopicPartition, Offset],
) -> dict[TopicPartition, Reset]:
    """The new offset of every partition, in their order. InvalidRequestError where one has none: then no other is to be
    changed either."""
    return {tp: reset(form, tp, logs[tp], committed.get(tp)) for tp in sorted(partitions)}


def reset(form: Form, tp: TopicPartition, log: LogSpan, committed: Offset | None) -> Reset:
    """One partition."""
    match form:
        case ToEarliest():
            return Reset(offset=log.start)
        case ToLatest():
            return Reset(offset=log.end)
        case ToCurrent():
            return Reset(offset=log.end if committed is None else committed)
        case ToOffset(offset):
            return within(tp, log, offset)
        case ToPlan(offsets):
            return within(tp, log, offsets[tp])
        case ShiftBy(by):
            if committed is None:
                raise InvalidRequestError(
                    f"Cannot shift offset for partition {tp} since there is no current committed offset"
                )
            return within(tp, log, committed + by)
        case ToTime():
            if log.at_time is not None:
                return Reset(offset=log.at_time)
            note = f"{tp} has no record of that time or later. Value will be set to its end, {log.end}"
            return Reset(offset=log.end, note=note)


def within(tp: TopicPartition, log: LogSpan, offset: Offset) -> Reset:
    """The offset, or the end of the log that it is beyond."""
    if offset > log.end:
        return Reset(
            offset=log.end,
            note=f"New offset ({offset}) is higher than latest offset for topic partition {tp}."
            f" Value will be set to {log.end}",
        )
    if offset < log.start:
        return Reset(
            offset=log.start,
            note=f"New offset ({offset}) is lower than earliest offset for topic partition {tp}."
            f" Value will be set to {log.start}",
        )
    return Reset(offset=offset)
