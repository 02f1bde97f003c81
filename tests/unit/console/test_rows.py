"""Rows of tables out of a snapshot."""

from __future__ import annotations

from dataclasses import replace

from holdfast.client.views import CommittedOffset, ReassignmentView
from holdfast.console.asked_pages import lag_rows
from holdfast.console.rows import (
    broker_rows,
    disk_row,
    group_rows,
    move_rows,
    partition_rows,
    reassignment_rows,
    replica_rows,
    topic_rows,
)
from holdfast.console.snapshot import GroupPositions, topics_of_groups
from holdfast.model.types import TopicPartition
from tests.unit.console.snapshots import GIB, disk, move, snapshot, topic

A, B = "/disks/a", "/disks/b"
NOW = replace(
    snapshot(
        topics=[
            topic("t", (1, (1, 2), (1, 2)), (None, (2, 1), ())),
            topic("u", (1, (1, 2), (1,))),
            topic("__internal", (2, (2,), (2,))),
        ],
        disks={
            1: [
                disk(A, replicas=[("t", 0), ("u", 0)]),
                disk(B, state="offline", reason=f"log dir {B}: EIO", future=[("t", 0)]),
            ],
            2: [disk(A, replicas=[("t", 0), ("t", 1)])],
        },
        moves={1: [move(("t", 0), A, B)]},
        groups={"g": "Stable", "h": "Empty"},
    ),
    ends={TopicPartition("t", 0): 100, TopicPartition("u", 0): 7},
    positions={
        "g": GroupPositions(offsets={TopicPartition("t", 0): CommittedOffset(offset=60)}, told_ms=5),
        "h": GroupPositions(offsets={TopicPartition("t", 1): CommittedOffset(offset=60)}, told_ms=5),
    },
)


def test_topics_have_their_bytes_ends_and_trouble() -> None:
    rows = {row["name"]: row for row in topic_rows(NOW)}
    assert (rows["t"]["bytes"], rows["t"]["records"], rows["t"]["leaderless"], rows["t"]["under"]) == (3000, 100, 1, 1)
    assert (rows["u"]["under"], rows["u"]["replicas"]) == (1, 2)
    assert (rows["__internal"]["internal"], rows["__internal"]["bytes"]) == (True, None)


def test_partitions_can_be_those_in_trouble_alone() -> None:
    assert [row.tp for row in partition_rows(NOW, "offline")] == ["t-1"]
    assert [row.tp for row in partition_rows(NOW, "under")] == ["t-1", "u-0"]
    assert [row.tp for row in partition_rows(NOW, "moving")] == ["t-0"]
    assert len(partition_rows(NOW, "")) == len(partition_rows(NOW, "nonsense")) == 4
    assert [row.tp for row in partition_rows(NOW, topic="u")] == ["u-0"]
    assert partition_rows(NOW, topic="none") == []


def test_a_replica_that_is_only_on_its_way_is_not_missing() -> None:
    coming = replace(
        NOW, reassignments={TopicPartition("u", 0): ReassignmentView(replicas=(1, 2), adding=(2,), removing=())}
    )
    assert [row.tp for row in partition_rows(coming, "under")] == ["t-1"]
    (row,) = reassignment_rows(coming)
    assert (row["tp"], row["bytes"], row["copied"], row["share"]) == ("u-0", 1000, 0, 0.0)


def test_brokers_that_are_away_are_there() -> None:
    away = replace(NOW, alive=frozenset({1}), view=replace(NOW.view, brokers={1: NOW.view.brokers[1]}))
    one, two = broker_rows(away)
    assert (one["alive"], one["leads"], one["replicas"], one["offline"], one["usable"]) == (True, 2, 3, 1, 50 * GIB)
    assert (two["alive"], two["address"], two["behind"]) == (False, None, 2)


def test_a_tile_says_why_and_what_is_on_its_way() -> None:
    told = NOW.disks[1]
    good, bad = (disk_row(told, d) for d in told.disks.disks)
    assert (good["state"], good["why"], good["going"], good["coming"], good["used_share"]) == ("online", "", 1, 0, 0.5)
    assert (bad["state"], bad["why"], bad["replicas"], bad["coming"]) == ("offline", "EIO", 0, 1)


def test_what_is_in_a_directory_says_which_copy_is_the_last() -> None:
    rows = {row["tp"]: row for row in replica_rows(NOW, 1, NOW.disks[1].disks.disks[0].replicas)}
    assert {tp: row["last_copy"] for tp, row in rows.items()} == {"t-0": False, "u-0": True}
    assert rows["t-0"]["target"] == B


def test_a_move_says_how_far_it_is() -> None:
    (row,) = move_rows(NOW)
    assert (row["tp"], row["broker"], row["share"], row["left_s"]) == ("t-0", 1, 1.0, 0.0)


def test_lag_is_what_is_known_of_it() -> None:
    assert [(row["name"], row["lag"], row["topics"]) for row in group_rows(NOW)] == [("g", 40, 1), ("h", None, 1)]
    assert topics_of_groups(NOW) == {"t": ["g", "h"]}
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    rows = lag_rows({t0: CommittedOffset(offset=9)}, {t0: 5}, {t1: "me"})
    assert [(row["tp"], row["lag"], row["member"]) for row in rows] == [("t-0", 0, ""), ("t-1", None, "me")]
