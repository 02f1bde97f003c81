"""Filters of a query: what they leave to read is what they would leave of everything."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
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
from holdfast.spark.filters import WORTH_A_FETCH, narrowed
from holdfast.spark.ranges import Range

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCALE = 7 * WORTH_A_FETCH // 10
"""Offsets of the test are apart by so many: what lies between two spans is read with them, or is not."""
RANGES = [Range(tp=TopicPartition(topic, part), start=0, end=30 * SCALE) for topic in ("a", "ab") for part in (0, 1)]


def compared(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    simple = st.builds(
        lambda kind, value: kind((column,), value),
        st.sampled_from([EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]),
        values,
    )
    several = st.builds(lambda found: In((column,), tuple(found)), st.lists(values, min_size=1, max_size=6))
    null = st.sampled_from([IsNull((column,)), IsNotNull((column,))])
    return (simple | several | null).flatmap(lambda each: st.sampled_from([each, Not(each)]))


words = st.sampled_from(["", "a", "b", "ab", "abc"])
text = st.builds(
    lambda kind, value: kind(("topic",), value),
    st.sampled_from([StringStartsWith, StringEndsWith, StringContains]),
    words,
)
any_filter = (
    compared("offset", st.integers(-2, 31).map(lambda n: n * SCALE))
    | compared("partition", st.integers(-1, 2))
    | compared("topic", words)
    | text
    | compared("timestamp", st.integers(-3, 40).map(lambda n: EPOCH + timedelta(microseconds=500 * n)))
)


def holds(each: Any, row: dict[str, Any]) -> bool:
    """As Spark has it; written once more and otherwise."""
    if isinstance(each, Not):
        return not holds(each.child, row)
    value = row[each.attribute[0]]
    match each:
        case IsNull() | IsNotNull():
            return isinstance(each, IsNotNull)
        case In():
            return any(value == one for one in each.value)
        case EqualTo() | EqualNullSafe():
            return bool(value == each.value)
        case GreaterThan():
            return bool(value > each.value)
        case GreaterThanOrEqual():
            return not value < each.value
        case LessThan():
            return bool(value < each.value)
        case LessThanOrEqual():
            return not value > each.value
        case StringStartsWith():
            return bool(value[: len(each.value)] == each.value)
        case StringEndsWith():
            return bool(value.endswith(each.value))
        case StringContains():
            return bool(value.find(each.value) >= 0)
    raise AssertionError(each)


@given(st.lists(any_filter, max_size=5))
def test_nothing_that_is_wanted_is_left_out_and_what_spark_is_not_told_of_is(filters: list[Any]) -> None:
    narrowing, rest = narrowed(filters)
    assert all(any(each is one for one in filters) for each in rest)
    left = narrowing.ranges(RANGES)
    bounds = narrowing.bounds_us
    for whole in RANGES:
        mine = [each for each in left if each.tp == whole.tp]
        assert all(one.end <= two.start for one, two in pairwise(mine))
        for offset in {edge + n for k in range(31) for edge in [k * SCALE] for n in (-1, 0, 1)}:
            if not 0 <= offset < whole.end:
                continue
            time_us = 500 * (offset % 41) - 1000
            row = {"topic": whole.tp.topic, "partition": whole.tp.partition, "offset": offset}
            row["timestamp"] = EPOCH + timedelta(microseconds=time_us)
            read = any(each.start <= offset < each.end for each in mine)
            read = read and (bounds is None or bounds[0] <= time_us < bounds[1])
            read = read and (narrowing.since_ms is None or -(-time_us // 1000) >= narrowing.since_ms)
            assert all(holds(each, row) for each in filters) == (read and all(holds(each, row) for each in rest))


def test_a_single_interval_of_offsets_and_partitions_are_left_to_nobody_else() -> None:
    filters = [GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9), EqualTo(("partition",), 1)]
    narrowing, rest = narrowed([*filters, IsNotNull(("topic",)), StringStartsWith(("topic",), "ab")])
    assert rest == []
    assert [(each.tp, each.start, each.end) for each in narrowing.ranges(RANGES)] == [(("ab", 1), 5, 9)]


def test_offsets_that_are_far_apart_are_ranges_of_their_own_and_near_ones_are_one() -> None:
    far = 2 * WORTH_A_FETCH
    filters = [In(("offset",), (3, 5, far, 10 * far)), EqualTo(("topic",), "a"), EqualTo(("partition",), 0)]
    narrowing, rest = narrowed(filters)
    assert [(each.start, each.end) for each in narrowing.ranges(RANGES)] == [
        (3, 6), (far, far + 1), (10 * far, 10 * far + 1),
    ]  # fmt: skip
    assert rest == [filters[0]]  # 4 is read, too
    many = [In(("offset",), tuple(far * n for n in range(100)))]
    assert narrowed(many)[1] == many and len(narrowed(many)[0].ranges(RANGES)) == len(RANGES)


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("value", "offset"), 3),
        EqualTo(("key",), b"k"),
        EqualTo(("offset",), "3"),
        EqualTo(("offset",), True),
        EqualTo(("partition",), 1.0),
        EqualTo(("topic",), None),
        In(("topic",), ("a", None)),
        In(("offset",), (3, None)),
        Not(In(("partition",), (0, None))),
        StringStartsWith(("offset",), "1"),
        GreaterThan(("timestamp",), datetime(2026, 1, 1)),  # of no zone
    ],
)
def test_what_is_not_understood_is_left_to_spark(each: Any) -> None:
    narrowing, rest = narrowed([each])
    assert rest == [each]
    assert narrowing.ranges(RANGES) == RANGES and narrowing.bounds_us is None


def test_times_are_asked_for_in_whole_milliseconds_and_never_before_1970() -> None:
    def since(each: Any) -> int | None:
        narrowing, rest = narrowed([each])
        assert rest == [each]
        return narrowing.since_ms

    at = EPOCH + timedelta(milliseconds=1500)
    assert since(GreaterThanOrEqual(("timestamp",), at)) == 1500
    assert since(GreaterThan(("timestamp",), at)) == 1501
    assert since(GreaterThan(("timestamp",), at - timedelta(microseconds=1))) == 1500
    assert since(GreaterThanOrEqual(("timestamp",), EPOCH)) is None  # 0 and less have a meaning of their own
    assert since(LessThan(("timestamp",), at)) is None
