"""Offsets of logs, and cuts of them: the lines of kafka-get-offsets.sh and kafka-delete-records.sh, a table, JSON.

Pure. Reads the JSON of kafka-delete-records.sh, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.client.log_cuts import TO_END, Cut
from holdfast.client.offset_resets import LogSpan
from holdfast.client.views import OffsetAt
from holdfast.model.errors import HoldfastError
from holdfast.model.types import Offset, TopicPartition

CUT_FORM: Final = '{"partitions": [{"topic": "t", "partition": 0, "offset": 5}], "version": 1}'


def offset_lines(found: Mapping[TopicPartition, OffsetAt]) -> Iterator[str]:
    """``topic:partition:offset``; none for a partition that has no such offset."""
    for tp, at in sorted(found.items()):
        if at.offset is not None:
            yield f"{tp.topic}:{tp.partition}:{at.offset}"


def span_lines(found: Mapping[TopicPartition, LogSpan]) -> Iterator[str]:
    """A table."""
    rows = [("TOPIC", "PARTITION", "EARLIEST", "LATEST", "RECORDS")]
    rows += [
        (tp.topic, str(tp.partition), str(log.start), str(log.end), str(log.end - log.start))
        for tp, log in sorted(found.items())
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for topic, *numbers in rows:
        cells = [f"{topic:<{widths[0]}}", *(f"{n:>{width}}" for n, width in zip(numbers, widths[1:], strict=True))]
        yield "  ".join(cells)


def span_json(found: Mapping[TopicPartition, LogSpan], failed: Mapping[TopicPartition, HoldfastError]) -> str:
    """One document; a partition of which nothing can be told has ``error`` in place of numbers."""
    partitions: list[dict[str, Any]] = []
    for tp in sorted({*found, *failed}):
        each: dict[str, Any] = {"topic": tp.topic, "partition": tp.partition}
        if tp in failed:
            each["error"] = str(failed[tp])
        else:
            log = found[tp]
            each |= {"earliest": log.start, "latest": log.end, "records": log.end - log.start}
        partitions.append(each)
    return json.dumps({"partitions": partitions})


def cut_lines(cuts: Mapping[TopicPartition, Cut]) -> Iterator[str]:
    """What goes, before it goes."""
    for tp, cut in sorted(cuts.items()):
        if cut.offsets:
            there = cut.log.end - cut.log.start
            yield f"{tp}: {cut.offsets} of {there} records go: offsets {cut.log.start} to {cut.before - 1}"
        else:
            yield f"{tp}: nothing goes: it begins at {cut.log.start}"


def total(cuts: Mapping[TopicPartition, Cut]) -> str:
    """``30 records of 2 partitions``."""
    counts = [cut.offsets for cut in cuts.values() if cut.offsets]
    partitions = f"{len(counts)} partition{'s' if len(counts) != 1 else ''}"
    return f"{sum(counts)} record{'s' if sum(counts) != 1 else ''} of {partitions}"


def low_watermark_lines(found: Mapping[TopicPartition, Offset]) -> Iterator[str]:
    """Kafka's, after what it has done."""
    yield "Records delete operation completed:"
    for tp, offset in sorted(found.items()):
        yield f"partition: {tp}\tlow_watermark: {offset}"


def parse_cuts(text: str) -> dict[TopicPartition, Offset]:
    """Of kafka-delete-records.sh's JSON. ValueError says what is wrong."""
    try:
        document = json.loads(text)
        version = document.get("version", 1)
        rows = [(TopicPartition(p["topic"], p["partition"]), p["offset"]) for p in document["partitions"]]
        if not all(isinstance(tp.topic, str) and _is_number(tp.partition) and _is_number(at) for tp, at in rows):
            raise TypeError("a topic that is no text, or a number that is none")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise ValueError(f"{type(e).__name__} {e}: expected {CUT_FORM}") from None
    if version != 1:
        raise ValueError(f"version {version!r}: expected 1")
    names = [tp for tp, _ in rows]
    twice = sorted({tp for tp in names if names.count(tp) > 1})
    if twice:
        raise ValueError(f"Offset json file contains duplicate topic partitions: {','.join(map(str, twice))}")
    below = next(((tp, at) for tp, at in rows if at < TO_END), None)
    if below is not None:
        raise ValueError(f"{below[0]}: offset {below[1]}: expected -1 (its end) or more")
    return dict(rows)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
