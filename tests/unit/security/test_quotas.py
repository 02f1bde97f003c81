"""security/quotas.py: which of eight levels counts, and budgets against a count of every millisecond."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.security import quotas
from holdfast.security.quota_entities import QuotaEntity
from holdfast.security.quotas import UNLIMITED, Budgets, Limit, Owner, limits_of

LEVELS: list[tuple[QuotaEntity, Owner]] = [
    ((("user", "u"), ("client-id", "c")), ("u", "c")),
    ((("user", "u"), ("client-id", None)), ("u", "c")),
    ((("user", "u"),), ("u", None)),
    ((("user", None), ("client-id", "c")), ("u", "c")),
    ((("user", None), ("client-id", None)), ("u", "c")),
    ((("user", None),), ("u", None)),
    ((("client-id", "c"),), (None, "c")),
    ((("client-id", None),), (None, "c")),
]
OTHERS: list[QuotaEntity] = [(("user", "x"),), (("user", "u"), ("client-id", "x")), (("ip", None),)]


@pytest.mark.parametrize("first", range(8))
def test_the_first_of_eight_levels_counts_whatever_is_beneath(first: int) -> None:
    for rest in itertools.product((False, True), repeat=7 - first):
        there = [first, *(first + 1 + n for n, is_there in enumerate(rest) if is_there)]
        by_entity = {LEVELS[n][0]: {"producer_byte_rate": float(n + 1)} for n in there}
        by_entity |= {entity: {"producer_byte_rate": 99.0} for entity in OTHERS}
        found = limits_of(by_entity, "u", "c")
        assert found.produce == Limit(float(first + 1), LEVELS[first][1])
        assert found.fetch is found.request is found.mutation is None
        assert found.is_any


def test_each_kind_of_quota_has_its_own_level() -> None:
    by_entity = {
        LEVELS[0][0]: {"consumer_byte_rate": 1.0}, LEVELS[2][0]: {"producer_byte_rate": 2.0, "consumer_byte_rate": 9.0},
        LEVELS[7][0]: {"request_percentage": 3.0, "controller_mutation_rate": 4.0},
    }  # fmt: skip
    found = limits_of(by_entity, "u", "c")
    assert (found.fetch, found.produce) == (Limit(1.0, ("u", "c")), Limit(2.0, ("u", None)))
    assert (found.request, found.mutation) == (Limit(3.0, (None, "c")), Limit(4.0, (None, "c")))


def test_without_a_quota_there_is_nothing_to_measure() -> None:
    assert limits_of({entity: {"producer_byte_rate": 1.0} for entity in OTHERS}, "u", "c") is UNLIMITED
    assert not UNLIMITED.is_any


RATE, WINDOW_S = 8, 4


class Counted:
    """The same, by looking at every millisecond: a bucket that gets RATE a second, in thousandths."""

    def __init__(self) -> None:
        self.left, self.now_ms = RATE * WINDOW_S * 1000, 0

    def pass_to(self, now_ms: int) -> None:
        for _ in range(now_ms - self.now_ms):
            self.left = min(RATE * WINDOW_S * 1000, self.left + RATE)
        self.now_ms = now_ms

    def spend(self, amount: int, now_ms: int) -> int:
        self.pass_to(now_ms)
        self.left -= amount * 1000
        left, delay_ms = self.left, 0
        while left < 0:
            left, delay_ms = left + RATE, delay_ms + 1
        return delay_ms


@given(st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 60)), max_size=30))
def test_a_budget_is_what_counting_says(steps: list[tuple[int, int]]) -> None:
    budgets, counted, limit, now_ms = Budgets(WINDOW_S), Counted(), Limit(RATE, ("u", None)), 0
    for passed_ms, amount in steps:
        now_ms += passed_ms
        expected = counted.spend(amount, now_ms)
        assert abs(budgets.spend(amount, limit, now_ms) - expected) <= 1  # a millisecond, by floating point
        assert abs(budgets.delay_ms(limit, now_ms) - expected) <= 1


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(0, 20_000))
def test_who_always_wants_more_gets_the_rate_after_the_first_window(amounts: list[int], begin_ms: int) -> None:
    """Every interval: no more than the window's worth at its begin, the rate, and the last request."""
    budgets, limit, now_ms = Budgets(WINDOW_S), Limit(RATE, ("u", None)), begin_ms
    taken: list[tuple[int, int]] = []
    for amount in amounts:
        taken.append((now_ms, amount))
        now_ms += budgets.spend(amount, limit, now_ms)
    for first, (from_ms, _) in enumerate(taken):
        for last in range(first, len(taken)):
            total = sum(amount for _, amount in taken[first:last])
            assert total <= RATE * WINDOW_S + RATE * (taken[last][0] - from_ms) / 1000 + 0.01 * len(taken)
    total = sum(amount for _, amount in taken)
    if total > RATE * WINDOW_S:
        even_ms = (total - RATE * WINDOW_S) / RATE * 1000
        assert even_ms - 1 <= now_ms - begin_ms <= even_ms + 2 * len(taken), "and no less"


def test_budgets_of_two_owners_are_two() -> None:
    budgets = Budgets(1)
    assert budgets.spend(30, Limit(10, ("a", None)), 0) == 2000
    assert budgets.spend(10, Limit(10, ("b", None)), 0) == 0
    assert budgets.delay_ms(Limit(10, ("a", None)), 500) == 1500


def test_a_higher_quota_counts_at_once() -> None:
    budgets = Budgets(1)
    assert budgets.spend(30, Limit(10, ("a", None)), 0) == 2000
    assert budgets.delay_ms(Limit(1000, ("a", None)), 0) == 20


def test_a_budget_that_is_full_again_is_forgotten() -> None:
    budgets = Budgets(1)
    budgets.spend(30, Limit(10, ("debtor", None)), 0)
    for n in range(20):
        budgets.spend(1, Limit(10, (f"u{n}", None)), 0)
    assert len(budgets) == 21
    budgets.spend(1, Limit(10, ("x", None)), 2_000)
    assert len(budgets) == 22, "the debtor, who is the oldest, is even now, and not full"
    for n in range(30):
        budgets.spend(1, Limit(10, (f"v{n}", None)), 10_000)
    assert len(budgets) == 30


def test_there_are_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MOST_BUDGETS", 100)
    budgets = Budgets(1)
    for n in range(300):
        budgets.spend(1000, Limit(10, (f"u{n}", None)), 0)
    assert len(budgets) == 100
    assert budgets.delay_ms(Limit(10, ("u299", None)), 0)
