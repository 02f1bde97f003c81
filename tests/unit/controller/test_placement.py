"""Placement against SPEC 0.2 and what Kafka 3.9.1's assignment really gave."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.controller.placement import Place, alternate_racks, place
from holdfast.model.errors import InvalidPartitionsError, InvalidReplicationFactorError

GOLDEN = Path(__file__).parents[2] / "golden" / "placement"
VECTORS: list[dict[str, Any]] = json.loads((GOLDEN / "admin_utils_3.9.1.json").read_text())


def brokers(n: int) -> list[Place]:
    return [Place(id=i) for i in range(n)]


def text(assignment: list[tuple[int, ...]]) -> str:
    return " ".join("".join(map(str, replicas)) for replicas in assignment)


@pytest.mark.parametrize(
    ("n", "rf", "expected"),
    [
        (5, 3, "012 123 234 340 401 023 134 240 301 412 034 140 201 312 423"),
        (3, 3, "012 120 201 021 102 210 012 120 201"),
        (4, 3, "012 123 230 301 023 130 201 312 031 102 213 320"),
        (3, 2, "01 12 20 02 10 21"),
        (1, 1, "0 0 0"),
    ],
)
def test_R_03_R_04_C11_the_formula(n: int, rf: int, expected: str) -> None:
    assert text(place(brokers(n), len(expected.split()), rf)) == expected


def test_R_05_the_load_of_a_dead_broker_is_spread_over_all_others() -> None:
    placed = place(brokers(5), 15, 3)
    led_by_0 = [replicas for replicas in placed if replicas[0] == 0]
    assert {replica for replicas in led_by_0 for replica in replicas[1:]} == {1, 2, 3, 4}
    assert Counter(replica for replicas in placed for replica in replicas) == dict.fromkeys(range(5), 9)


def test_equal_to_kafka_3_9_1_over_all_recorded_vectors() -> None:
    assert len(VECTORS) > 100
    for vector in VECTORS:
        places = [Place(id=int(i), rack=rack) for i, rack in vector["racks"].items()]
        placed = place(
            places,
            vector["partitions"],
            vector["rf"],
            start=vector["fixed_start_index"],
            shift=vector["fixed_start_index"],
            first_partition=vector["start_partition_id"],
        )
        expected = {int(p): tuple(replicas) for p, replicas in vector["assignment"].items()}
        assert dict(enumerate(placed, vector["start_partition_id"])) == expected, vector


def test_R_47_racks_alternate() -> None:
    racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    places = [Place(id=i, rack=rack) for i, rack in racks.items()]
    assert alternate_racks(places) == [0, 3, 1, 5, 4, 2]
    assert text(place(places, 7, 3)) == "031 315 154 542 420 203 042"


def test_a_broker_without_a_rack_makes_all_rackless() -> None:
    places = [Place(id=0, rack="a"), Place(id=1, rack="a"), Place(id=2)]
    assert place(places, 3, 2) == place(brokers(3), 3, 2)


def test_what_cannot_be_placed() -> None:
    with pytest.raises(InvalidReplicationFactorError, match="factor of 3 cannot be reached because only 2 broker"):
        place(brokers(2), 1, 3)
    with pytest.raises(InvalidReplicationFactorError):
        place(brokers(2), 1, 0)
    with pytest.raises(InvalidReplicationFactorError, match="All brokers are currently fenced, or"):
        place([], 1, 1)
    with pytest.raises(InvalidPartitionsError):
        place(brokers(2), -1, 1)
    assert place(brokers(2), 0, 1) == []


def test_brokers_that_are_down_take_what_the_others_are_too_few_for() -> None:
    down = [Place(id=7), Place(id=8)]
    assert text(place(brokers(2), 4, 3, down=down)) == "017 108 017 108"
    assert text(place(brokers(2), 2, 4, down=down, start=1)) == "1087 0178"
    assert text(place(brokers(2), 2, 2, down=down)) == text(place(brokers(2), 2, 2))
    with pytest.raises(InvalidReplicationFactorError, match="factor of 5 cannot be reached because only 4 broker"):
        place(brokers(2), 1, 5, down=down)
    with pytest.raises(InvalidReplicationFactorError, match="All brokers are currently fenced"):
        place([], 1, 1, down=down)


@given(data=st.data(), n=st.integers(1, 9), partitions=st.integers(0, 40))
def test_R_06_R_10_replicas_are_distinct_and_leaders_even(data: st.DataObject, n: int, partitions: int) -> None:
    rf = data.draw(st.integers(1, n))
    start, shift = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    placed = place(brokers(n), partitions, rf, start=start, shift=shift)
    assert len(placed) == partitions
    assert all(len(set(replicas)) == rf for replicas in placed)
    leaders = Counter(dict.fromkeys(range(n), 0))
    leaders.update(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1
    if partitions % n == 0:
        replicas = Counter(replica for placed_on in placed for replica in placed_on)
        assert len(set(replicas.values())) <= 1


@given(
    data=st.data(),
    racks=st.lists(st.sampled_from("abc"), min_size=2, max_size=8),
    partitions=st.integers(0, 20),
)
def test_R_47_each_partition_spans_as_many_racks_as_it_can(
    data: st.DataObject, racks: list[str], partitions: int
) -> None:
    rf = data.draw(st.integers(1, len(racks)))
    places = [Place(id=i, rack=rack) for i, rack in enumerate(racks)]
    for replicas in place(places, partitions, rf, shift=data.draw(st.integers(0, 7))):
        assert len(set(replicas)) == rf
        assert len({racks[replica] for replica in replicas}) == min(len(set(racks)), rf)
