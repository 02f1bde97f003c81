"""The schedule is a function of the seed, and of a kind that proves something."""

from __future__ import annotations

import itertools
import statistics

from tests.chaos.schedule import DECK, FULL, SHORT, Kind, schedule, topic_changes


def test_one_seed_one_schedule() -> None:
    assert schedule(5, 600, FULL) == schedule(5, 600, FULL)
    assert schedule(5, 600, FULL) != schedule(6, 600, FULL)
    assert topic_changes(5, 600, 9) == topic_changes(5, 600, 9)


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    short, long = schedule(5, 300, FULL), schedule(5, 3600, FULL)
    assert long[: len(short)] == short
    changes = topic_changes(5, 300, 9)
    assert topic_changes(5, 3600, 9)[: len(changes)] == changes


def test_an_hour_of_any_seed_has_more_than_a_kill_a_minute_and_every_kind() -> None:
    for seed in range(20):
        faults = [fault for planned in schedule(seed, 3600, FULL) for fault in planned.faults]
        assert sum(fault.kind.kills > 0 for fault in faults) > 75
        assert {fault.kind for fault in faults} == set(DECK)


def test_rounds_are_apart_and_most_have_one_fault() -> None:
    rounds = schedule(1, 36_000, FULL)
    gaps = [later.at_s - earlier.at_s for earlier, later in itertools.pairwise(rounds)]
    assert FULL.apart[0] <= min(gaps) and max(gaps) <= FULL.apart[1]
    assert 1.1 < statistics.mean(len(planned.faults) for planned in rounds) < 1.3


def test_faults_overlap_within_a_round() -> None:
    for planned in schedule(1, 36_000, FULL):
        if len(planned.faults) == 2:
            first, second = planned.faults
            assert first.after_s <= second.after_s <= first.after_s + first.lasts_s


def test_a_stop_is_longer_than_the_session() -> None:
    stops = [
        fault.lasts_s
        for pace in (FULL, SHORT)
        for planned in schedule(2, 3600, pace)
        for fault in planned.faults
        if fault.kind in (Kind.STOP, Kind.STOP_CONTROLLER)
        if fault.lasts_s <= pace.session_timeout
    ]
    assert stops == []


def test_the_deck_has_every_kind_and_more_kills_than_not() -> None:
    assert set(DECK) == {kind for kind in Kind if not (kind.of_store or kind.of_host)}
    killing = sum(count for kind, count in DECK.items() if kind.kills)
    assert killing * 2 > sum(DECK.values())


def test_topics_are_deleted_after_they_were_made() -> None:
    there: set[str] = set()
    for change in topic_changes(3, 3600, 9):
        if change.partitions is None:
            there.remove(change.name)
        else:
            assert change.name not in there
            there.add(change.name)
    assert len(there) <= 3
