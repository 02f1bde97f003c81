"""Offsets that are reset, and deleted, as lines and as CSV, the way kafka-consumer-groups.sh has them. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.model.errors import HoldfastError
from holdfast.model.types import Offset, TopicPartition

NARROW = 15
Plan = dict[str, dict[TopicPartition, Offset]]
"""Group -> partition -> offset."""

_NO_GROUP, _WITH_GROUP = "topic,partition,offset", "group,topic,partition,offset"


def reset_lines(offsets: Mapping[str, Mapping[TopicPartition, Offset]]) -> Iterator[str]:
    """GROUP TOPIC PARTITION NEW-OFFSET; nothing where there is no group."""
    if not offsets:
        return
    group_width = max(NARROW, *map(len, offsets))
    topic_width = max(NARROW, NARROW, *(len(tp.topic) for each in offsets.values() for tp in each))
    yield ""
    yield f"{'GROUP':<{group_width}} {'TOPIC':<{topic_width}} {'PARTITION':<10} NEW-OFFSET"
    for group, each in sorted(offsets.items()):
        for tp, offset in sorted(each.items()):
            yield f"{group:<{group_width}} {tp.topic:<{topic_width}} {tp.partition:<10} {offset}"


def export_lines(offsets: Mapping[str, Mapping[TopicPartition, Offset]], *, with_group: bool) -> Iterator[str]:
    """What ``parse_plan`` reads."""
    for group, each in sorted(offsets.items()):
        for tp, offset in sorted(each.items()):
            line = io.StringIO()
            cells = [tp.topic, tp.partition, offset]
            csv.writer(line, lineterminator="").writerow([group, *cells] if with_group else cells)
            yield line.getvalue()


def parse_plan(text: str, groups: Sequence[str]) -> Plan:
    """For a single group the lines may do without it. ValueError names the line that cannot be read."""
    found: Plan = {}
    rows = [(number, row) for number, row in enumerate(_rows(text), 1) if row]
    with_group = len(groups) != 1 or not rows or len(rows[0][1]) != 3
    form = _WITH_GROUP if with_group else _NO_GROUP
    for number, row in rows:
        group = row.pop(0) if with_group else groups[0]
        try:
            topic, partition, offset = row
            tp, at = TopicPartition(topic.strip(), int(partition)), int(offset)
            if not tp.topic or tp.partition < 0:
                raise ValueError(row)
        except ValueError:
            raise ValueError(f"line {number}: {','.join(row)!r}: expected {form}") from None
        if tp in found.setdefault(group.strip(), {}):
            raise ValueError(f"line {number}: {tp} of group {group.strip()!r} stands there twice")
        found[group.strip()][tp] = at
    if not found:
        raise ValueError(f"no line in it: expected {form}")
    return found


def _rows(text: str) -> Iterable[list[str]]:
    try:
        yield from csv.reader(text.splitlines(), strict=True)
    except csv.Error as e:
        raise ValueError(f"it is no CSV: {e}") from None


def deletion_lines(outcomes: Mapping[TopicPartition, str | None]) -> Iterator[str]:
    """TOPIC PARTITION STATUS; None: it is done."""
    width = max(NARROW, NARROW, *(len(tp.topic) for tp in outcomes))
    yield ""
    for cells in (("TOPIC", "PARTITION", "STATUS"), *((*tp, _status(why)) for tp, why in sorted(outcomes.items()))):
        topic, partition, status = cells
        yield f"{topic:<{width}} {partition:<10} {status:<15}"


def _status(why: str | None) -> str:
    return "Successful" if why is None else f"Error: {why}"


def failures(failed: Mapping[str, HoldfastError]) -> list[str]:
    """A line for each group, which names it."""
    return [
        text if f"'{group}'" in (text := str(error)) else f"group '{group}': {text}"
        for group, error in sorted(failed.items())
    ]
