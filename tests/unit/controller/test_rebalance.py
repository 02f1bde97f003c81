"""R-08, R-09: what moves when brokers are added, and when everything is placed anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.controller.placement import Place, place
from holdfast.controller.rebalance import Assignment, counts, full, minimal, moved
from holdfast.model.errors import InvalidReplicationFactorError
from holdfast.model.types import TopicPartition


def brokers(*ids: int, racks: Mapping[int, str] | None = None) -> list[Place]:
    return [Place(id=i, rack=(racks or {}).get(i)) for i in ids]


def placed(topics: Sequence[tuple[int, int]], among: Sequence[Place]) -> Assignment:
    """(partitions, replicas) of each topic, even over the brokers as far as one topic after the other gives that."""
    found: Assignment = {}
    start = 0
    for number, (partitions, copies) in enumerate(topics):
        lists = place(among, partitions, min(copies, len(among)), start=start, shift=number)
        found |= {TopicPartition(f"t{number}", p): replicas for p, replicas in enumerate(lists)}
        start += partitions
    return found


def test_R_08_the_picture_of_the_docstring() -> None:
    rows = ((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2))
    now = {TopicPartition("t", p): row for p, row in enumerate(rows)}
    wanted = minimal(now, brokers(1, 2, 3, 4))
    assert moved(now, wanted) == 3
    held, led = counts((now | wanted).values())
    assert held == {1: 3, 2: 3, 3: 3, 4: 3}
    assert led == {1: 1, 2: 1, 3: 1, 4: 1}


@given(
    n=st.integers(1, 6), m=st.integers(1, 4), partitions=st.integers(1, 60), copies=st.integers(1, 4),
)  # fmt: skip
def test_R_08_brokers_that_are_added_get_their_share_and_nothing_else_moves(
    n: int, m: int, partitions: int, copies: int
) -> None:
    old, new = set(range(1, n + 1)), set(range(n + 1, n + m + 1))
    even = minimal(start := placed([(partitions, copies)], brokers(*old)), brokers(*old))
    now = start | even
    before, _ = counts(now.values())
    assert max(before.values()) - min(before[b] for b in old) <= 1
    wanted = now | minimal(now, brokers(*old, *new))
    total = sum(before.values())
    assert m * floor(total / (n + m)) <= moved(now, wanted) <= m * ceil(total / (n + m))
    held, led = counts(wanted.values())
    for count in (held, led):
        assert max(count[b] for b in old | new) - min(count[b] for b in old | new) <= 1
    for tp, replicas in wanted.items():
        assert len(set(replicas)) == len(replicas) == len(now[tp])
        assert set(replicas) - set(now[tp]) <= new  # nothing moves between the brokers that were there


@given(
    topics=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 4)), min_size=1, max_size=6),
    before=st.integers(1, 6), after=st.sets(st.integers(1, 9), min_size=4),
)  # fmt: skip
def test_whatever_brokers_come_and_go_every_partition_is_whole_and_even(
    topics: list[tuple[int, int]], before: int, after: set[int]
) -> None:
    now = placed(topics, brokers(*range(1, before + 1)))
    wanted = now | minimal(now, brokers(*after))
    for tp, replicas in wanted.items():
        assert len(set(replicas)) == len(replicas) == len(now[tp])
        assert set(replicas) <= after
    held, _ = counts(wanted.values())
    assert max(held[b] for b in after) - min(held[b] for b in after) <= 1


@given(
    partitions=st.integers(1, 30), copies=st.integers(1, 3), added=st.integers(1, 3), seed=st.integers(0, 5),
)  # fmt: skip
def test_with_racks_no_partition_spans_fewer_than_before(partitions: int, copies: int, added: int, seed: int) -> None:
    racks = {b: "abc"[(b + seed) % 3] for b in range(1, 10)}
    now = placed([(partitions, copies)], brokers(1, 2, 3, 4, racks=racks))
    wanted = now | minimal(now, brokers(*range(1, 5 + added), racks=racks))
    for tp, replicas in wanted.items():
        assert len({racks[b] for b in replicas}) >= len({racks[b] for b in now[tp]})


def test_with_racks_new_brokers_take_over_from_their_own_rack() -> None:
    racks = dict(zip(range(1, 7), "abcabc", strict=True))
    now = placed([(12, 3)], brokers(1, 2, 3, racks=racks))
    held, led = counts((now | minimal(now, brokers(*racks, racks=racks))).values())
    assert held == dict.fromkeys(racks, 6)
    assert led == dict.fromkeys(racks, 2)


def test_what_is_even_stays_as_it_is() -> None:
    now = placed([(12, 3)], brokers(1, 2, 3, 4))
    now |= minimal(now, brokers(1, 2, 3, 4))
    assert minimal(now, brokers(1, 2, 3, 4)) == {}


def test_R_09_full_places_everything_anew() -> None:
    now = placed([(12, 3), (6, 2)], brokers(1, 2, 3))
    wanted = now | full(now, brokers(1, 2, 3, 4, 5))
    for tp, replicas in wanted.items():
        assert len(set(replicas)) == len(now[tp])
    held, led = counts(wanted.values())
    assert max(held.values()) - min(held.values()) <= 3
    assert max(led.values()) - min(led.values()) <= 1
    assert set(held) == {1, 2, 3, 4, 5}
    assert moved(now, full(now, brokers(1, 2, 3, 4, 5))) > moved(now, minimal(now, brokers(1, 2, 3, 4, 5)))


@pytest.mark.parametrize("plan", [minimal, full])
def test_more_replicas_than_brokers_are_refused_by_name(plan: object) -> None:
    now = {TopicPartition("t", 3): (1, 2, 3)}
    with pytest.raises(InvalidReplicationFactorError, match=r"t-3 has 3 replicas, and there are 2 brokers"):
        plan(now, brokers(1, 2))  # type: ignore[operator]


def test_twenty_thousand_partitions_are_planned() -> None:
    now = placed([(50, 3)] * 400, brokers(*range(1, 7)))
    wanted = now | minimal(now, brokers(*range(1, 10)))
    held, led = counts(wanted.values())
    assert max(held.values()) - min(held.values()) <= 1
    assert max(led.values()) - min(led.values()) <= 1
    assert moved(now, wanted) <= 3 * ceil(60_000 / 9) + 400  # what was not quite even before is made so
