"""Rates of the last hour: what a counter grew by, in memory that does not grow."""

from __future__ import annotations

import pytest

from holdfast.console.rates import SLOT_MS, SLOTS, RateHistory, RateRing

START = 1_700_000_000_000


def known(ring: RateRing, now_ms: int) -> list[float]:
    return [rate for _, rate in ring.points(now_ms) if rate is not None]


def test_a_rate_is_what_a_counter_grew_by_over_the_time_between() -> None:
    ring = RateRing()
    assert ring.newest is None
    for n in range(4):
        ring.count(START + n * SLOT_MS, 1000 * n)
    assert known(ring, START + 3 * SLOT_MS) == [100.0, 100.0, 100.0]
    assert ring.newest == 100.0


def test_slots_between_two_looks_have_the_same_rate() -> None:
    ring = RateRing()
    ring.count(START, 0)
    ring.count(START + 6 * SLOT_MS, 600)
    assert known(ring, START + 6 * SLOT_MS) == [10.0] * 6


def test_a_counter_that_was_made_anew_says_nothing_for_that_time() -> None:
    ring = RateRing()
    for n, counter in enumerate((0, 500, 20, 120)):
        ring.count(START + n * SLOT_MS, counter)
    points = [rate for _, rate in ring.points(START + 3 * SLOT_MS)][-3:]
    assert points == [50.0, None, 10.0]


def test_an_hour_is_kept_and_no_more() -> None:
    ring = RateRing()
    for n in range(2 * SLOTS):
        ring.count(START + n * SLOT_MS, n * n * 10)
    now_ms = START + (2 * SLOTS - 1) * SLOT_MS
    points = list(ring.points(now_ms))
    assert len(points) == SLOTS
    assert points[-1] == (now_ms // 1000 // 10 * 10, pytest.approx(2 * (2 * SLOTS - 1) - 1))
    assert points[0][1] == pytest.approx(2 * SLOTS - 1)
    assert all(rate is None for _, rate in ring.points(now_ms + SLOTS * SLOT_MS))


def test_the_largest_counters_are_followed_and_what_goes_is_forgotten() -> None:
    history = RateHistory(most=2)
    history.count(START, {"a": 1, "b": 5, "c": 9})
    history.count(START + SLOT_MS, {"a": 1, "b": 25, "c": 9})
    assert (len(history), history.newest("b"), history.newest("a")) == (2, 2.0, None)
    history.count(START + 2 * SLOT_MS, {"b": 25})
    assert len(history) == 1
    assert history.points("c", START) == []
