"""What several pages need of a snapshot, made once: rows of its tables, and the verdict.

The poller makes them on its own thread while somebody looks, so that a page of a large cluster need not.
"""

from functools import cached_property

from holdfast.client.health import Health, Survey, judge
from holdfast.console.rows import ListedPartition, broker_rows, group_rows, partition_rows, topic_rows
from holdfast.console.snapshot import Snapshot
from holdfast.console.windows import Row

TIMELESS = frozenset(("topics", "partitions", "brokers", "health"))
"""What no time of asking is in."""


class PreparedRows:
    """Of one snapshot. Two threads that ask at once may both make the same."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def renewed(self, snapshot: Snapshot) -> "PreparedRows":
        """Of a later snapshot that says the same, times aside: what there is stays."""
        made = PreparedRows(snapshot)
        kept = {name: rows for name, rows in vars(self).items() if name in TIMELESS}
        vars(made).update(kept)
        return made

    def prepare(self) -> None:
        """All of it."""
        _ = self.topics, self.partitions, self.brokers, self.groups, self.health

    @cached_property
    def topics(self) -> list[Row]:
        return sorted(topic_rows(self.snapshot), key=lambda row: str(row["name"]))

    @cached_property
    def partitions(self) -> list[ListedPartition]:
        """In order."""
        return partition_rows(self.snapshot)

    @cached_property
    def brokers(self) -> list[Row]:
        return broker_rows(self.snapshot)

    @cached_property
    def groups(self) -> list[Row]:
        return group_rows(self.snapshot)

    @cached_property
    def health(self) -> Health:
        """What is wrong, as ``holdfast cluster health`` has it."""
        now = self.snapshot
        return judge(
            Survey(
                view=now.view,
                alive=now.alive,
                min_isr=now.min_isr,
                adding={tp: frozenset(each.adding) for tp, each in now.reassignments.items()},
                disks={
                    broker: told.disks.disks if told.error is None else told.error
                    for broker, told in now.disks.items()
                    if broker in now.alive
                },
            )
        )
