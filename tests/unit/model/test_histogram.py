"""Buckets have no gaps, quantiles are right to a bucket, and Prometheus' bounds count what is below them."""

import random

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.histogram import BUCKETS, EXPORTED, NOTHING, QUANTILES, Histogram, bounds

LONG = st.integers(min_value=0, max_value=(1 << 33) - 1)


def of(*values: int) -> Histogram:
    made = Histogram()
    for value in values:
        made.add(value)
    return made


def test_buckets_follow_each_other_without_a_gap() -> None:
    assert bounds(0) == (0, 1)
    for bucket in range(1, BUCKETS):
        assert bounds(bucket)[0] == bounds(bucket - 1)[1]
    assert bounds(BUCKETS - 1)[1] == 1 << 33


@given(LONG)
def test_an_observation_is_in_the_bucket_that_has_it(value: int) -> None:
    [bucket] = [i for i, count in enumerate(of(value).counts) if count]
    low, high = bounds(bucket)
    assert low <= value < high
    assert value < 4 or (high - low) * 4 <= low


def test_what_is_out_of_range_is_counted_at_its_end() -> None:
    found = of(-5, 1 << 40)
    assert (found.counts[0], found.counts[-1]) == (1, 1)


@given(st.lists(LONG, min_size=1, max_size=50))
def test_bounds_of_prometheus_count_what_is_below_them(values: list[int]) -> None:
    found = of(*values).now()
    told = list(found.below())
    assert [count for _, count in told[:-1]] == [sum(v < 1 << e for v in values) for e in EXPORTED]
    assert told[-1] == (float("inf"), len(values))
    assert found.sum_us == sum(values)


def test_quantiles_are_right_to_a_fifth() -> None:
    rng = random.Random(3)
    values = sorted(int(rng.lognormvariate(6, 1.5)) for _ in range(20_000))
    for quantile, us in of(*values).now().quantiles():
        real = values[int(quantile * (len(values) - 1))]
        assert abs(us - real) <= 0.2 * real + 1, (quantile, us, real)


def test_nothing_has_no_quantile_and_one_has_every() -> None:
    assert NOTHING.quantiles() == []
    assert [q for q, _ in of(7).now().quantiles()] == list(QUANTILES)
    assert all(7 <= us <= 8 for _, us in of(7).now().quantiles())


def test_what_came_since_is_the_difference() -> None:
    made = of(5, 100)
    before = made.now()
    made.add(100)
    since = made.now().since(before)
    assert (since.observations, since.sum_us) == (1, 100)
    assert made.now().since(NOTHING).observations == 3
    assert since.plus(before) == made.now()
    assert since.with_zeros(4).observations == 5
