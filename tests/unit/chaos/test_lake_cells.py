"""What lake-chaos plans: as many kills as are asked for, and every cell once before one comes twice."""

from collections import Counter

from tests.lake_chaos.cells import cells, plans


def test_every_cell_comes_once_before_one_comes_twice() -> None:
    planned = plans(4711, 2 * len(cells()))
    blows = Counter((plan.format, blow.victim, blow.step) for plan in planned for blow in plan.blows)
    assert sum(blows.values()) == 2 * len(cells()) and blows.keys() == set(cells())
    assert plans(4711, 30) == plans(4711, 30) != plans(4712, 30)
    assert all(plan.bad_share for plan in planned if any("side" in blow.step for blow in plan.blows))
