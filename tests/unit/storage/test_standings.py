"""How a replica stands on its broker: the table is asked, and what is read off it agrees."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model.fates import ReplicaFate
from holdfast.model.types import TopicPartition
from holdfast.storage.standings import STANDING, ReplicaState, StandingEvent, Standings

TP = TopicPartition("t", 0)
FAILED: Any = object()


def standings(*, is_away: bool = False) -> Standings:
    return Standings(lambda tp: is_away)


def test_a_replica_without_trouble_is_in_no_table() -> None:
    some = standings()
    assert some.of(TP) is ReplicaState.WELL
    some.used(TP)
    some.gone(TP)
    assert (some.of(TP), some.fate(TP), dict(some.failed), list(some.wanted())) == (ReplicaState.WELL, None, {}, [])


def test_away_is_read_off_the_directory() -> None:
    assert standings(is_away=True).of(TP) is ReplicaState.AWAY


def test_K18_03_one_that_failed_alone_is_left_aside_and_comes_back_from_nothing() -> None:
    some = standings()
    some.broken(TP, FAILED)
    some.given_up(TP)
    assert some.failed[TP] is FAILED
    some.not_left(TP)
    assert some.of(TP) is ReplicaState.FAILED
    some.given_up(TP)
    some.back(TP, ReplicaFate.LOST, avoid="/d")
    assert (some.of(TP), some.fate(TP), dict(some.failed)) == (ReplicaState.BACK, ReplicaFate.LOST, {})
    assert some.avoids(TP, "/d")
    some.made(TP)
    assert (some.of(TP), some.fate(TP), some.avoids(TP, "/d")) == (ReplicaState.WELL, None, False)


def test_only_the_newest_fate_is_confirmed() -> None:
    some = standings()
    some.back(TP, ReplicaFate.DAMAGED)
    some.confirmed(TP, ReplicaFate.LOST)
    assert some.of(TP) is ReplicaState.BACK
    some.confirmed(TP, ReplicaFate.DAMAGED)
    assert some.of(TP) is ReplicaState.RECORDED
    some.back(TP, ReplicaFate.LOST)
    assert some.of(TP) is ReplicaState.BACK, "it failed once more"


def test_one_that_is_back_and_refused_is_told_on() -> None:
    some = standings()
    some.back(TP, ReplicaFate.LOST)
    some.refused(TP)
    assert some.of(TP) is ReplicaState.BACK and not some.is_refused(TP)
    some.gone(TP)
    some.refused(TP)
    assert some.is_refused(TP) and list(some.wanted()) == [TP]


@pytest.mark.parametrize(
    ("confirmed", "leads", "recovers", "counts", "may"),
    [
        (False, False, False, False, True),
        (False, False, False, True, False),
        (False, True, True, True, False),
        (True, True, True, True, True),
        (True, True, False, True, False),
        (True, False, True, True, False),
    ],
)
def test_H_07_what_an_order_may_do_with_one_that_is_back(
    confirmed: bool, leads: bool, recovers: bool, counts: bool, may: bool
) -> None:
    some = standings()
    assert not some.may_return(TP, leads=leads, recovers=recovers, counts=counts), "it was never away"
    some.back(TP, ReplicaFate.DAMAGED)
    if confirmed:
        some.confirmed(TP, ReplicaFate.DAMAGED)
    assert some.may_return(TP, leads=leads, recovers=recovers, counts=counts) is may


def test_a_bug_is_told() -> None:
    with pytest.raises(AssertionError, match="WELL: expected no GIVEN_UP there"):
        standings().given_up(TP)
    assert STANDING.after(ReplicaState.BACK, StandingEvent.BROKEN) is ReplicaState.FAILED
