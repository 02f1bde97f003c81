"""Where a table ends in the log, and how a batch moves that on. Pure: no file, no clock.

A position is kept by the table itself, in the same atomic commit as the files that it speaks of. It says per topic the
topic id, and per partition the next offset (everything below it is in the table) and the leader epoch of the last
record that was read. Its text is JSON with sorted keys, so that equal positions are equal text:

    {"version": 1, "sequence": 7, "attempt": "...", "not_before_ms": 0, "rows": 90, "bad": 1, "gaps": [],
     "topics": {"flights": {"id": "6f0c...", "partitions": {"0": [91, 4]}}}}
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from holdfast.lake.errors import HoleError, PositionError
from holdfast.model.types import LeaderEpoch, Offset, TimestampMs, TopicId

FORMAT_VERSION: Final = 1
MOST_GAPS: Final = 1_000
"""A position names the newest gaps up to this number; ``gap_offsets`` counts them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Where a table ends in one partition."""

    offset: Offset
    """The next one: all below it has been landed, or is named as a gap."""
    epoch: LeaderEpoch | None = None
    """Leader epoch of the last record that was read; None where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEnds:
    """Where a table ends in one topic."""

    topic_id: TopicId | None
    """None where brokers are too old to have ids."""
    partitions: Mapping[int, End]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets ``start <= offset < end`` that are not in the table, knowingly."""

    topic: str
    topic_id: TopicId | None
    partition: int
    start: Offset
    end: Offset
    reason: str

    def __str__(self) -> str:
        return f"{place(self.topic, self.topic_id, self.partition)}: offsets {self.start} to {self.end}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedRange:
    """What one task did with offsets ``start <= offset < end`` of a partition."""

    topic: str
    topic_id: TopicId | None
    partition: int
    start: Offset
    end: Offset
    epoch: LeaderEpoch | None
    rows: int
    """Rows that it wrote into files of the table."""
    bad: int = 0
    """Records that are no rows of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The table's word. The default is that of a table that nothing was landed in yet."""

    sequence: int = 0
    """Commits that changed the position; each adds one, so no two positions of a table are equal."""
    attempt: str | None = None
    """Which attempt made it: how a writer that lost the answer to its commit finds out that it was taken."""
    not_before_ms: TimestampMs = 0
    """Attempts that began earlier are refused for ever: their files may have been swept."""
    topics: Mapping[str, TopicEnds] = field(default_factory=dict)
    rows: int = 0
    """Rows landed since the table was made."""
    bad: int = 0
    gaps: tuple[Gap, ...] = ()
    gap_offsets: int = 0
    """Offsets in gaps since the table was made."""

    def to_text(self) -> str:
        topics = {
            name: {
                "id": str(ends.topic_id) if ends.topic_id is not None else None,
                "partitions": {str(number): [end.offset, end.epoch] for number, end in sorted(ends.partitions.items())},
            }
            for name, ends in sorted(self.topics.items())
        }
        gaps = [
            [gap.topic, str(gap.topic_id) if gap.topic_id else None, gap.partition, gap.start, gap.end, gap.reason]
            for gap in self.gaps
        ]
        content = {
            "version": FORMAT_VERSION,
            "sequence": self.sequence,
            "attempt": self.attempt,
            "not_before_ms": self.not_before_ms,
            "topics": topics,
            "rows": self.rows,
            "bad": self.bad,
            "gaps": gaps,
            "gap_offsets": self.gap_offsets,
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_text(text: str, table: str) -> "Position":
        """PositionError, naming the table, for text that is not one of ours or of a newer format."""
        try:
            content: dict[str, Any] = json.loads(text)
            version = content["version"]
        except (ValueError, KeyError, TypeError):
            raise PositionError(f"{table}: its position is {text[:80]!r}, expected JSON with a version") from None
        if version != FORMAT_VERSION:
            raise PositionError(
                f"{table}: its position has format version {version!r}, this Holdfast reads {FORMAT_VERSION}: "
                "use the newer one that wrote it"
            )
        try:
            return _parsed(content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PositionError(f"{table}: its position is damaged ({error!r}): {text[:200]}") from None


def _parsed(content: Mapping[str, Any]) -> Position:
    topics = {
        name: TopicEnds(
            topic_id=UUID(ends["id"]) if ends["id"] is not None else None,
            partitions={
                int(number): End(offset=int(offset), epoch=epoch)
                for number, (offset, epoch) in ends["partitions"].items()
            },
        )
        for name, ends in content["topics"].items()
    }
    gaps = tuple(
        Gap(
            topic=topic,
            topic_id=UUID(topic_id) if topic_id else None,
            partition=partition,
            start=start,
            end=end,
            reason=reason,
        )
        for topic, topic_id, partition, start, end, reason in content["gaps"]
    )
    return Position(
        sequence=int(content["sequence"]),
        attempt=content["attempt"],
        not_before_ms=int(content["not_before_ms"]),
        topics=topics,
        rows=int(content["rows"]),
        bad=int(content["bad"]),
        gaps=gaps,
        gap_offsets=int(content["gap_offsets"]),
    )


def place(topic: str, topic_id: TopicId | None, partition: int) -> str:
    """For a message: the partition as a person looks for it."""
    return f"topic {topic} (id {topic_id if topic_id is not None else 'unknown'}), partition {partition}"


def advanced(before: Position, landed: Iterable[LandedRange], *, attempt: str) -> Position:
    """The position after a batch. Order of ``landed`` does not matter.

    HoleError, naming topic, id, partition and offsets, if the ranges of a partition do not join on to where ``before``
    ends and to each other, or are of another topic id. A partition that ``before`` does not know begins anywhere.
    """
    ranges = sorted(landed, key=lambda each: (each.topic, each.partition, each.start, each.end))
    topics = {name: (ends.topic_id, dict(ends.partitions)) for name, ends in before.topics.items()}
    rows, bad = before.rows, before.bad
    for each in ranges:
        where = place(each.topic, each.topic_id, each.partition)
        topic_id, ends = topics.setdefault(each.topic, (each.topic_id, {}))
        if topic_id is None and each.topic_id is not None:
            topic_id = each.topic_id
            topics[each.topic] = (topic_id, ends)
        if each.topic_id != topic_id:
            raise HoleError(f"{where}: the table is at topic id {topic_id}: the topic was made again")
        if each.start < 0 or each.end < each.start or each.rows < 0 or each.bad < 0:
            raise HoleError(f"{where}: a batch brings offsets {each.start} to {each.end}, {each.rows} rows: no range")
        old = ends.get(each.partition)
        if old is not None and each.start != old.offset:
            kind = "missing" if each.start > old.offset else "there already"
            first, last = sorted((each.start, old.offset))
            raise HoleError(f"{where}: the batch goes on at {each.start}: offsets {first} to {last} are {kind}")
        epoch = each.epoch if each.epoch is not None else (old.epoch if old is not None else None)
        ends[each.partition] = End(offset=each.end, epoch=epoch)
        rows += each.rows
        bad += each.bad
    return replace(
        before,
        sequence=before.sequence + 1,
        attempt=attempt,
        topics={name: TopicEnds(topic_id=found, partitions=ends) for name, (found, ends) in topics.items()},
        rows=rows,
        bad=bad,
    )


def with_gap(before: Position, gap: Gap) -> Position:
    """``before`` with the end of one partition moved over offsets that are lost, and a note of it.

    The first half of a batch: hand the answer to ``advanced``. HoleError if the gap does not begin at the end; in a
    partition that ``before`` does not know it begins anywhere.
    """
    ends = before.topics.get(gap.topic, TopicEnds(topic_id=gap.topic_id, partitions={}))
    end = ends.partitions.get(gap.partition, End(offset=gap.start))
    if end.offset != gap.start or gap.end < gap.start or ends.topic_id != gap.topic_id:
        raise HoleError(f"{gap}: the table ends at {end.offset} there")
    partitions = {**ends.partitions, gap.partition: replace(end, offset=gap.end)}
    return replace(
        before,
        topics={**before.topics, gap.topic: replace(ends, partitions=partitions)},
        gaps=(*before.gaps, gap)[-MOST_GAPS:],
        gap_offsets=before.gap_offsets + gap.end - gap.start,
    )


def restarted(before: Position, topic: str, topic_id: TopicId, reason: str) -> Position:
    """``before`` with a topic that was made again: its partitions begin anew, and where the old ones ended is noted.

    The first half of a batch, as ``with_gap``. How much of the old topic was lost nobody can say: each note is of no
    offsets, at the end that the table had. PositionError if the table has not landed the topic, or has this id.
    """
    ends = before.topics.get(topic)
    if ends is None or ends.topic_id == topic_id:
        known = "is not in the position" if ends is None else f"has the id {topic_id} already"
        raise PositionError(f"topic {topic} {known}: it cannot begin again")
    notes = tuple(
        Gap(topic=topic, topic_id=ends.topic_id, partition=number, start=end.offset, end=end.offset, reason=reason)
        for number, end in sorted(ends.partitions.items())
    )
    return replace(
        before,
        topics={**before.topics, topic: TopicEnds(topic_id=topic_id, partitions={})},
        gaps=(*before.gaps, *notes)[-MOST_GAPS:],
    )


def cut_back(before: Position, topic: str, partition: int, to: Offset, reason: str) -> Position:
    """``before`` with the end of one partition moved back to where its log was cut: what the log has from there on are
    other records, which are yet to be landed. The rows of before stay; the note of it is of no offsets, at the old end.

    The first half of a batch, as ``with_gap``. PositionError if the table does not end beyond ``to`` there.
    """
    ends = before.topics.get(topic)
    end = ends.partitions.get(partition) if ends is not None else None
    if ends is None or end is None or not 0 <= to < end.offset:
        known = end.offset if end is not None else "no offset"
        raise PositionError(f"topic {topic}, partition {partition}: the table ends at {known}, it is not cut to {to}")
    note = Gap(
        topic=topic, topic_id=ends.topic_id, partition=partition, start=end.offset, end=end.offset, reason=reason
    )
    partitions = {**ends.partitions, partition: End(offset=to, epoch=end.epoch)}
    return replace(
        before,
        topics={**before.topics, topic: replace(ends, partitions=partitions)},
        gaps=(*before.gaps, note)[-MOST_GAPS:],
    )


def difference(table: Position, batch: Position) -> str:
    """For a message: where the table ends otherwise than the batch begins; the first five places."""
    found = []
    for topic in sorted({*table.topics, *batch.topics}):
        ours, theirs = table.topics.get(topic), batch.topics.get(topic)
        if ours is not None and theirs is not None and ours.topic_id != theirs.topic_id:
            found.append(f"topic {topic}: the table is at topic id {ours.topic_id}, the batch at {theirs.topic_id}")
            continue
        known = ours or theirs
        assert known is not None
        numbers = {*(ours.partitions if ours else ()), *(theirs.partitions if theirs else ())}
        for number in sorted(numbers):
            end = ours.partitions.get(number) if ours else None
            start = theirs.partitions.get(number) if theirs else None
            if end != start:
                found.append(
                    f"{place(topic, known.topic_id, number)}: the table ends at {_words(end)}, "
                    f"the batch begins at {_words(start)}"
                )
    if not found:
        return f"the table is at commit {table.sequence} of attempt {table.attempt}, the batch at {batch.sequence}"
    return "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")


def _words(end: End | None) -> str:
    if end is None:
        return "nothing"
    return f"{end.offset}" + (f" (leader epoch {end.epoch})" if end.epoch is not None else "")
