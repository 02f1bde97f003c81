"""What a table says of itself, as plain values: for people, for scripts, for JSON."""

from collections.abc import Mapping
from typing import Any

from holdfast.lake.table import Table
from holdfast.model.types import Offset, TopicPartition


def status(table: Table, latest: Mapping[TopicPartition, Offset] | None = None) -> dict[str, Any]:
    """Of the newest state; ready for JSON.

    ``rows`` is what the table has now, ``landed`` what the lake has put into it since it was made: others may have
    added and deleted. ``latest`` are the ends in the log, for the lag in offsets of each partition (None without).
    """
    table.refresh()
    position = table.position()
    number, metadata = table.snapshot()
    topics = {
        topic: {
            "id": str(ends.topic_id) if ends.topic_id is not None else None,
            "partitions": {
                str(partition): {
                    "offset": end.offset,
                    "epoch": end.epoch,
                    "lag": _lag(latest, TopicPartition(topic, partition), end.offset),
                }
                for partition, end in sorted(ends.partitions.items())
            },
        }
        for topic, ends in sorted(position.topics.items())
    }
    return {
        "location": table.store.location,
        "format": table.format,
        "rows": table.rows(),
        "landed": position.rows,
        "bad": position.bad,
        "commits": position.sequence,
        "topics": topics,
        "gap_offsets": position.gap_offsets,
        "gaps": [str(gap) for gap in position.gaps],
        "files": len(table.files()),
        "snapshot": number,
        "metadata": metadata,
    }


def _lag(latest: Mapping[TopicPartition, Offset] | None, tp: TopicPartition, offset: Offset) -> int | None:
    end = latest.get(tp) if latest is not None else None
    return max(0, end - offset) if end is not None else None
