"""What pages need of a snapshot is made once, and again only where the cluster says something else."""

from __future__ import annotations

from dataclasses import replace

from holdfast.client.views import CommittedOffset
from holdfast.console.prepared import PreparedRows
from holdfast.console.snapshot import GroupPositions
from holdfast.model.types import TopicPartition
from tests.unit.console.snapshots import disk, snapshot, topic


def test_rows_are_used_again_but_for_times_of_asking() -> None:
    at = GroupPositions(offsets={TopicPartition("orders", 0): CommittedOffset(offset=1)}, told_ms=1)
    now = replace(
        snapshot(
            topics=[topic("orders", (1, (1,), (1,)))], disks={1: [disk("/a", replicas=[("orders", 0)])]},
            groups={"etl": "Empty"},
        ),
        positions={"etl": at},
    )  # fmt: skip
    before = PreparedRows(now)
    before.prepare()
    later = replace(now, number=2, taken_ms=now.taken_ms + 1000, positions={"etl": replace(at, told_ms=2)})
    assert later.says_the_same(now)
    after = before.renewed(later)
    assert after.snapshot is later
    assert [after.topics is before.topics, after.partitions is before.partitions] == [True, True]
    assert [after.brokers is before.brokers, after.health is before.health] == [True, True]
    assert [row["told_ms"] for rows in (before.groups, after.groups) for row in rows] == [1, 2]
    assert PreparedRows(later).topics == after.topics
