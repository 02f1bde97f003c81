"""What counts as a change between two snapshots, and in which words it is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.client.views import ReassignmentView
from holdfast.console.changes import changes, some
from holdfast.model.types import TopicPartition
from tests.unit.console.snapshots import disk, move, snapshot, topic

A, B = "/disks/a", "/disks/b"
LED = topic("t", (1, (1, 2), (1, 2)), (2, (2, 1), (2, 1)))
ORPHAN = topic("t", (None, (1, 2), ()), (2, (2, 1), (2,)))


def told(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, bool]]:
    found = changes(snapshot(**before), snapshot(number=2, taken_ms=1_700_000_200_000, **after))
    assert all(change.at_ms == 1_700_000_200_000 for change in found)
    return [(change.text, change.grave) for change in found]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"disks": {1: [disk(A)]}}, {"disks": {1: [disk(A)]}}, []),
        (
            {"disks": {1: [disk(A), disk(B)]}},
            {"disks": {1: [disk(A), disk(B, state="offline", reason="EIO")]}},
            [("broker 1: /disks/b is offline: EIO", True)],
        ),
        (
            {"disks": {1: [disk(B, state="offline")]}},
            {"disks": {1: [disk(B)]}},
            [("broker 1: /disks/b is online", False)],
        ),
        (
            {"disks": {1: [disk(A)]}},
            {"disks": {1: [disk(A, cordoned=True)]}},
            [("broker 1: /disks/a is cordoned", False)],
        ),
        (
            {"disks": {1: [disk(A)]}},
            {"disks": {1: [disk(A), disk(B)]}},
            [("broker 1: /disks/b was added: online", False)],
        ),
        ({"disks": {1: [disk(A), disk(B)]}}, {"disks": {1: [disk(A)]}}, [("broker 1: /disks/b was removed", False)]),
        ({}, {"alive": [1]}, [("broker 2 is away", True)]),
        ({"alive": [1]}, {}, [("broker 2 is here", False)]),
        ({}, {"controller": 2}, [("broker 2 is the controller", False)]),
        ({}, {"controller": None}, [("the cluster has no controller", True)]),
        ({"topics": [LED]}, {"topics": [ORPHAN]}, [("no leader: t-0", True)]),
        ({"topics": [ORPHAN]}, {"topics": [LED]}, [("led again: t-0", False)]),
        ({"topics": [ORPHAN]}, {}, [("topic deleted: t", False)]),
        ({}, {"topics": [LED]}, [("topic made: t", False)]),
        ({"groups": {"g": "Stable"}}, {"groups": {"g": "Empty"}}, [("group g is Empty", False)]),
        ({"groups": {"g": "Empty"}}, {"groups": {"h": "Empty"}}, [("group new: h", False), ("group gone: g", False)]),
    ],
)
def test_changes_are_told(before: dict[str, Any], after: dict[str, Any], expected: list[tuple[str, bool]]) -> None:
    assert told(before, after) == expected


def test_a_move_ends_where_it_was_going_or_is_given_up() -> None:
    under_way = {"disks": {1: [disk(A, replicas=[("t", 0)]), disk(B)]}, "moves": {1: [move(("t", 0), A, B)]}}
    still = {"disks": {1: [disk(A, replicas=[("t", 0)]), disk(B)]}}
    moved = {"disks": {1: [disk(A), disk(B, replicas=[("t", 0)])]}}
    assert told(still, under_way) == [("broker 1: t-0 on the way to /disks/b", False)]
    assert told(under_way, moved) == [("broker 1: t-0 moved", False)]
    assert told(under_way, still) == [("broker 1: the move of t-0 was given up", True)]


def test_a_reassignment_begins_and_ends() -> None:
    idle = snapshot()
    busy = replace(
        idle,
        number=2,
        reassignments={TopicPartition("t", 0): ReassignmentView(replicas=(1,), adding=(1,), removing=())},
    )
    assert [c.text for c in changes(idle, busy)] == ["t-0 is being reassigned"]
    assert [c.text for c in changes(busy, idle)] == ["t-0 is not reassigned any more"]


def test_a_first_snapshot_is_no_change() -> None:
    assert changes(None, snapshot(topics=[ORPHAN])) == ()


def test_snapshots_say_the_same_whenever_they_were_taken() -> None:
    one = snapshot(disks={1: [disk(A)]})
    assert one.says_the_same(snapshot(number=9, taken_ms=5, disks={1: [disk(A)]}))
    assert not one.says_the_same(snapshot(disks={1: [disk(A, usable=1)]}))
    assert not one.says_the_same(replace(one, trouble="nobody answers"))


def test_many_things_are_named_by_the_first_few() -> None:
    assert some(["c", "a", "b"]) == "a, b, c"
    assert some([*"edcba"]) == "a, b, c and 2 more"
