"""How often a login may be tried: what guessing costs, whom it holds up, what is kept in memory."""

from __future__ import annotations

import pytest

from holdfast.console.login_limits import FAILED_S, FORGET_AT, OF_ADDRESS, OF_ALL, OF_USER, LoginLimits

SECONDS = 600


def guessed(limits: LoginLimits, names: list[tuple[str, str]], *, each: int) -> int:
    """How many were tried in ten minutes by who tries ``each`` of (address, user) a second, and waits for nothing."""
    return sum(
        limits.admit(address, user, float(now_s)) is not None
        for now_s in range(SECONDS)
        for address, user in names
        for _ in range(each)
    )


def most(*limits: tuple[float, float]) -> int:
    """In that time: what passes, and what may be owed at once."""
    return min(round((SECONDS + most_s) / cost_s) for cost_s, most_s in limits)


def test_guesses_come_no_faster_however_many_guess() -> None:
    of_address = guessed(LoginLimits(), [("a", f"u{n}") for n in range(20)], each=5)
    assert most(OF_ADDRESS) * 0.98 <= of_address <= most(OF_ADDRESS) < 8 * SECONDS, (
        "as four at once, half a second each"
    )
    of_user = guessed(LoginLimits(), [(f"a{n}", "u") for n in range(20)], each=5)
    assert most(OF_USER) * 0.98 <= of_user <= most(OF_USER)
    of_all = guessed(LoginLimits(), [(f"a{n}", f"u{n}") for n in range(20)], each=5)
    assert most(OF_ALL) * 0.98 <= of_all <= most(OF_ALL)


def test_answers_to_guesses_wait_for_each_other() -> None:
    limits, (cost_s, _) = LoginLimits(), OF_ADDRESS
    answers_s = [limits.admit("a", "u", 100.0) for _ in range(10)]
    assert answers_s == pytest.approx([100 + max(FAILED_S, cost_s * (n + 1)) for n in range(10)])
    assert limits.admit("a", "u", 110.0) == 110 + FAILED_S, "nothing is owed any more"


def test_who_guesses_at_one_user_leaves_room_for_others() -> None:
    limits = LoginLimits()
    while limits.admit("a", "u", 0.0) is not None:
        pass
    assert limits.admit("elsewhere", "u", 0.0) is None, "of all addresses together"
    assert limits.admit("a", "v", 0.0) is not None
    assert limits.admit("elsewhere", "v", 0.0) is not None


def test_passwords_that_are_right_cost_nothing() -> None:
    limits = LoginLimits()
    for _ in range(1000):
        assert limits.admit("a", "u", 5.0) is not None
        limits.forgive("a", "u")
    assert limits.admit("a", "u", 5.0) == 5.0 + FAILED_S
    limits.forgive("never seen", "nor this one")


def test_names_are_forgotten_that_owe_nothing() -> None:
    limits = LoginLimits()
    for now_s in range(3 * FORGET_AT):
        assert limits.admit(f"a{now_s}", f"u{now_s}", float(now_s)) is not None
    assert len(limits) <= FORGET_AT + 2
