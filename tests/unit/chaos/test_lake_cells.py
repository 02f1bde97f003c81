"""What lake-chaos plans: as many kills as are asked for, and every cell once before one comes twice."""

from collections import Counter

from tests.lake_chaos.cells import FATAL, cells, plans


def test_every_cell_comes_once_before_one_comes_twice() -> None:
    planned = plans(4711, 2 * len(cells()))
    blows = Counter((plan.format, plan.values, blow.victim, blow.step) for plan in planned for blow in plan.blows)
    assert blows == Counter(dict.fromkeys(cells(), 2))
    assert plans(4711, 30) == plans(4711, 30) != plans(4712, 30)
    assert all(plan.bad_share for plan in planned if any("side" in blow.step for blow in plan.blows))


def test_a_driver_that_is_killed_has_no_blow_after_that() -> None:
    for plan in plans(4711, 200):
        for drive in plan.drives:
            assert all(blow.victim not in FATAL for blow in drive.blows[:-1])
