"""Lag in seconds, out of ends of logs at the times of looks."""

from __future__ import annotations

import pytest

from holdfast.client.views import CommittedOffset
from holdfast.console.lag_times import LEAST_POINTS, MOST_POINTS, EndPoints, LagTimes
from holdfast.model.types import TopicPartition

TP = TopicPartition("orders", 0)


def points(*pairs: tuple[int, int]) -> EndPoints:
    """Of (seconds, end)."""
    (first_s, first), *others = pairs
    found = EndPoints(first_s * 1000, first)
    for at_s, end in others:
        found.add(at_s * 1000, end)
    return found


def test_a_record_is_as_old_as_the_moment_when_the_end_passed_it() -> None:
    found = points((0, 0), (10, 100), (20, 200))
    assert found.lag_s(100, 20_000) == 10
    assert found.lag_s(150, 20_000) == 5
    assert found.lag_s(150, 80_000) == 65
    assert found.lag_s(0, 20_000) == 20


def test_who_is_at_the_end_has_no_lag_however_long_nothing_was_written() -> None:
    found = points((0, 100), (3600, 100))
    assert found.lag_s(100, 7_200_000) == 0
    assert found.lag_s(120, 7_200_000) == 0


def test_the_record_after_a_pause_is_not_taken_for_an_old_one() -> None:
    found = points((0, 100), (10, 100), (3600, 100), (3610, 101))
    assert len(found) == 3
    assert found.lag_s(100, 3_610_000) == 10


def test_what_was_written_before_the_first_look_is_at_least_so_old() -> None:
    assert points((10, 100), (20, 200)).lag_s(30, 50_000) == 40


def test_a_log_that_is_shorter_than_it_was_is_another_one() -> None:
    found = points((0, 500), (10, 900), (20, 40), (30, 60))
    assert (len(found), found.lag_s(50, 30_000)) == (2, 5)


def test_points_that_nobody_is_behind_are_forgotten() -> None:
    found = points(*((n, n * 10) for n in range(10)))
    found.forget(55)
    assert (len(found), found.lag_s(55, 9_000)) == (5, 3.5)
    found.forget(1_000)
    assert (len(found), found.lag_s(90, 9_000)) == (1, 0)


def test_memory_is_bounded_and_old_lag_is_still_right_by_a_few_percent() -> None:
    found = points(*((n, n * 7) for n in range(5_000)))
    assert len(found) == MOST_POINTS
    for offset in (0, 70, 7_000, 20_000, 34_000, 34_900):
        age_s = 4_999 - offset / 7
        assert found.lag_s(offset, 4_999_000) == pytest.approx(age_s, rel=0.1, abs=1)


def test_a_pause_survives_that_points_are_left_out() -> None:
    before = [(n, n) for n in range(100)]
    after = [(100_000 + n, 100 + n) for n in range(1_000)]
    found = points(*before, (99_999, 99), *after)
    assert found.lag_s(99, 101_000_000) == pytest.approx(1_000, rel=0.1)


def test_logs_are_followed_for_groups_alone_and_so_many_at_most() -> None:
    lags = LagTimes(most=2)
    ends = {TopicPartition("orders", n): 100 for n in range(5)}
    one = {TopicPartition("orders", n): CommittedOffset(offset=50) for n in (1, 2, 3)}
    lags.looked(0, ends, [one])
    assert len(lags) == 2
    assert lags.lag_s(TopicPartition("orders", 0), 50, 10_000) is None
    lags.looked(1_000, ends, [])
    assert len(lags) == 0


def test_history_reaches_back_to_the_group_that_is_furthest_behind() -> None:
    lags = LagTimes()
    for n in range(20):
        slow, quick = {TP: CommittedOffset(offset=0)}, {TP: CommittedOffset(offset=n * 10)}
        lags.looked(n * 1000, {TP: n * 10}, [slow, quick])
    assert lags.lag_s(TP, 0, 19_000) == 19
    assert lags.lag_s(TP, 185, 19_000) == 0.5
    assert lags.lag_s(TP, 190, 19_000) == 0


@pytest.mark.parametrize(("logs", "each"), [(1, MOST_POINTS), (10, 20), (30, LEAST_POINTS)])
def test_points_of_all_logs_together_are_bounded(logs: int, each: int) -> None:
    lags = LagTimes(all_points=200)
    names = [TopicPartition("orders", n) for n in range(logs)]
    committed = {tp: CommittedOffset(offset=0) for tp in names}
    for n in range(1_000):
        lags.looked(n * 1000, dict.fromkeys(names, n * 7), [committed])
    assert lags.points == logs * each
    for age_s in (1, 10, 100, 900):
        assert lags.lag_s(names[-1], (999 - age_s) * 7, 999_000) == pytest.approx(age_s, rel=0.25)


def test_fewer_points_are_kept_when_more_logs_are_followed() -> None:
    lags = LagTimes(all_points=200)
    names = [TopicPartition("orders", n) for n in range(20)]
    for n in range(100):
        followed = names if n == 99 else names[:1]
        lags.looked(n * 1000, dict.fromkeys(names, n), [{tp: CommittedOffset(offset=0) for tp in followed}])
    assert lags.points == 10 + 19
