"""What a query's filters on topic, partition, offset and timestamp say of what need not be read. Pure: no cluster.

Spark hands over simple comparisons of a column with a value, all of which must hold; what is not understood here, or
only narrows what is read, Spark evaluates itself on what comes. None of the four columns is ever null.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from holdfast.model.types import TopicPartition
from holdfast.spark.ranges import Range

LEAST, MOST = -(2**63), 2**63
"""A column's whole numbers are ``LEAST <= value < MOST``."""
Spans: TypeAlias = tuple[tuple[int, int], ...]
"""``first <= value < second`` for one of them; in order, apart from each other."""
ALL: Final[Spans] = ((LEAST, MOST),)
MOST_SPANS: Final = 64
WORTH_A_FETCH: Final = 10_000
"""Fewer offsets than this between two that are wanted are read with them: a fetch brings whole record batches."""

_COMPARED: Final[Mapping[type, Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """What filters leave to read."""

    places: tuple[Filter, ...] = ()
    """On topic and partition."""
    offsets: Spans = ALL
    times_us: Spans = ALL
    """Of timestamps, in microseconds since 1970."""

    @property
    def since_ms(self) -> int | None:
        """No record that is wanted is older, in milliseconds since 1970; None if that says nothing."""
        if not self.times_us:
            return None
        since_ms = -(-self.times_us[0][0] // 1000)
        return since_ms if since_ms > 0 else None

    @property
    def bounds_us(self) -> tuple[int, int] | None:
        """Timestamps of records that are wanted are ``first <= timestamp < second``; None if all may be."""
        if self.times_us == ALL:
            return None
        return (self.times_us[0][0], self.times_us[-1][1]) if self.times_us else (0, 0)

    def takes(self, tp: TopicPartition) -> bool:
        return all(_holds(each, {"topic": tp.topic, "partition": tp.partition}) for each in self.places)

    def ranges(self, wanted: Iterable[Range]) -> list[Range]:
        """Of the ranges what is in partitions and at offsets that are wanted."""
        if not self.times_us:
            return []
        spans = _joined(self.offsets, WORTH_A_FETCH)
        found = []
        for each in wanted:
            if not self.takes(each.tp):
                continue
            for first, after in spans:
                start, end = max(each.start, first), min(each.end, after)
                if start < end:
                    found.append(replace(each, start=start, end=end))
        return found


@dataclass(slots=True)
class _Taken:
    """Filters as they are gone through."""

    places: list[Filter] = field(default_factory=list)
    offsets: Spans = ALL
    times_us: Spans = ALL


def narrowed(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """What the filters leave to read, and those of them that Spark must evaluate itself."""
    taken = _Taken()
    rest = [each for each in filters if not _take(each, taken)]
    narrowing = Narrowing(places=tuple(taken.places), offsets=taken.offsets, times_us=taken.times_us)
    return narrowing, rest


def _take(each: Filter, taken: _Taken) -> bool:
    """Whether nothing that ``each`` refuses is read."""
    inner = each.child if isinstance(each, Not) else each
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    column = path[0] if len(path) == 1 else None
    if column == "topic" or column == "partition":
        probe = {"topic": "", "partition": 0}
        if _holds(each, probe) is None:
            return False
        taken.places.append(each)
        return True
    if column == "offset":
        spans = _spans(each, _whole)
        if spans is not None and len(found := _both(taken.offsets, spans)) <= MOST_SPANS:
            taken.offsets = found
            return not isinstance(each, In | Not)  # what lies between several spans may be read with them
    if column == "timestamp":
        spans = _spans(each, _microseconds)
        if spans is not None and len(found := _both(taken.times_us, spans)) <= MOST_SPANS:
            taken.times_us = found
    return False


def _holds(each: Filter, row: Mapping[str, Any]) -> bool | None:
    """Of a topic and partition; None where the filter is not understood."""
    if isinstance(each, Not):
        held = _holds(each.child, row)
        return None if held is None else not held
    value = row[getattr(each, "attribute", ("",))[0]]
    if isinstance(each, IsNull | IsNotNull):
        return isinstance(each, IsNotNull)
    wanted: Any = getattr(each, "value", None)
    if isinstance(each, In):
        return value in wanted if all(type(one) is type(value) for one in wanted) else None
    compared = _COMPARED.get(type(each))
    if compared is None or type(wanted) is not type(value):
        return None
    return compared(value, wanted)


def _whole(value: Any) -> int | None:
    return value if type(value) is int and LEAST <= value < MOST - 1 else None


def _microseconds(value: Any) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)


def _spans(each: Filter, number: Callable[[Any], int | None]) -> Spans | None:
    """The whole numbers for which the filter holds; None where it is not understood."""
    if isinstance(each, Not):
        inner = _spans(each.child, number)
        return None if inner is None else _all_but(inner)
    if isinstance(each, IsNull | IsNotNull):
        return ALL if isinstance(each, IsNotNull) else ()
    if isinstance(each, In):
        numbers = [number(one) for one in each.value]
        if None in numbers:
            return None
        return _joined(tuple((one, one + 1) for one in sorted({one for one in numbers if one is not None})), 0)
    at = number(getattr(each, "value", None))
    if at is None:
        return None
    match each:
        case EqualTo() | EqualNullSafe():
            return ((at, at + 1),)
        case GreaterThan():
            return ((at + 1, MOST),)
        case GreaterThanOrEqual():
            return ((at, MOST),)
        case LessThan():
            return ((LEAST, at),) if at > LEAST else ()
        case LessThanOrEqual():
            return ((LEAST, at + 1),)
    return None


def _all_but(spans: Spans) -> Spans:
    edges = [LEAST, *(edge for span in spans for edge in span), MOST]
    return tuple((first, after) for first, after in zip(edges[::2], edges[1::2], strict=True) if first < after)


def _both(ours: Spans, theirs: Spans) -> Spans:
    """What is in one of ``ours`` and in one of ``theirs``."""
    found = []
    mine, other = list(ours), list(theirs)
    while mine and other:
        first, after = max(mine[0][0], other[0][0]), min(mine[0][1], other[0][1])
        if first < after:
            found.append((first, after))
        (mine if mine[0][1] <= other[0][1] else other).pop(0)
    return tuple(found)


def _joined(spans: Spans, gap: int) -> Spans:
    """Spans that have no more than ``gap`` between them as one."""
    found: list[tuple[int, int]] = []
    for first, after in spans:
        if found and first - found[-1][1] <= gap:
            found[-1] = (found[-1][0], after)
        else:
            found.append((first, after))
    return tuple(found)
