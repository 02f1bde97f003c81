"""When a log directory counts as degraded, and when it does not."""

import pytest

from holdfast.broker.dir_health import Pace, ProbeTimes

PEERS = [6.0, 5.0, 7.0]


def health(usual_ms: float = 5.0) -> ProbeTimes:
    made = ProbeTimes(1000.0)
    for _ in range(200):
        made.answered(usual_ms, PEERS)
    return made


def test_a_dir_as_always_is_well() -> None:
    made = health()
    assert (made.pace, made.last_ms) == (Pace.WELL, 5.0)
    assert made.usual_ms == pytest.approx(5.0)


@pytest.mark.parametrize("factor", [3.0, 9.0])
def test_no_flapping_at_a_few_times_its_past(factor: float) -> None:
    made = health(400.0)
    assert not any(made.answered(400.0 * factor, [400.0]) for _ in range(50))
    assert made.pace is Pace.WELL


def test_far_from_its_past_and_its_peers_three_times_in_a_row() -> None:
    made = health()
    assert [made.answered(1500.0, PEERS) for _ in range(4)] == [False, False, True, False]
    assert made.pace is Pace.SLOW


def test_one_slow_probe_is_nothing() -> None:
    made = health()
    for _ in range(20):
        assert not made.answered(5000.0, PEERS)
        assert not made.answered(5.0, PEERS)
        assert not made.answered(5.0, PEERS)
    assert made.pace is Pace.WELL


def test_all_dirs_slow_together_is_a_busy_machine() -> None:
    made = health()
    assert not any(made.answered(5000.0, [4000.0, 6000.0]) for _ in range(20))


def test_it_must_be_well_for_some_time() -> None:
    made = health()
    for _ in range(3):
        made.answered(2000.0, PEERS)
    assert not any(made.answered(500.0, PEERS) for _ in range(20)), "better, and not well"
    assert [made.answered(10.0, PEERS) for _ in range(6)] == [False, False, False, False, True, False]
    assert made.pace is Pace.WELL


def test_a_dir_that_does_not_answer() -> None:
    made = health()
    assert not made.silent(900.0, PEERS)
    assert made.silent(1100.0, PEERS)
    assert not made.silent(2000.0, PEERS), "said once"
    assert made.pace is Pace.SILENT
    assert made.answered(5.0, PEERS), "it answers: nobody knows yet how well"
    assert made.pace is Pace.SLOW
    assert not made.silent(2900.0, PEERS), "slow is known"
    assert made.silent(3100.0, PEERS)
    assert made.pace is Pace.SILENT


def test_what_it_takes_while_degraded_is_not_usual() -> None:
    made = health()
    made.silent(30_000.0, PEERS)
    for _ in range(100):
        made.answered(2000.0, PEERS)
    assert made.usual_ms == pytest.approx(5.0)
