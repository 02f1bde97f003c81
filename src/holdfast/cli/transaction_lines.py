"""Transactions as lines of text, the way kafka-transactions.sh prints them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from holdfast.client.transactions import ProducerView, TransactionListing, TransactionView
from holdfast.model.types import TimestampMs, TopicPartition

NONE = "None"
_MS_PER_MINUTE = 60_000


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their widest cell, each followed by a tab."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    for row in (headers, *rows):
        yield "".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True))


def list_lines(listings: Iterable[TransactionListing]) -> Iterator[str]:
    rows = [[t.transactional_id, str(t.coordinator), str(t.producer_id), t.state] for t in listings]
    return table(["TransactionalId", "Coordinator", "ProducerId", "TransactionState"], rows)


def describe_lines(t: TransactionView, now_ms: TimestampMs) -> Iterator[str]:
    headers = [
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
    ]  # fmt: skip
    times = [NONE, NONE] if t.start_ms is None else [str(t.start_ms), str(now_ms - t.start_ms)]
    row = [
        str(t.coordinator), t.transactional_id, str(t.producer_id), str(t.producer_epoch), t.state, str(t.timeout_ms),
        *times, ",".join(map(str, t.partitions)),
    ]  # fmt: skip
    return table(headers, [row])


def producer_lines(producers: Iterable[ProducerView]) -> Iterator[str]:
    headers = [
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    ]  # fmt: skip
    rows = [
        [
            str(p.producer_id), str(p.producer_epoch), str(_or(p.coordinator_epoch, -1)), str(p.last_sequence),
            str(p.last_timestamp_ms), str(_or(p.start_offset, NONE)),
        ]
        for p in producers
    ]  # fmt: skip
    return table(headers, rows)


def hanging_lines(found: Iterable[tuple[TopicPartition, ProducerView]], now_ms: TimestampMs) -> Iterator[str]:
    headers = [
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
        "Duration(min)",
    ]  # fmt: skip
    rows = [
        [
            tp.topic, str(tp.partition), str(p.producer_id), str(p.producer_epoch), str(_or(p.coordinator_epoch, -1)),
            str(_or(p.start_offset, -1)), str(p.last_timestamp_ms),
            str((now_ms - p.last_timestamp_ms) // _MS_PER_MINUTE),
        ]
        for tp, p in found
    ]  # fmt: skip
    return table(headers, rows)


def document(name: str, found: Iterable[TransactionListing | TransactionView | ProducerView]) -> str:
    """What is known of each, by the names of its fields; what is not is null."""
    return json.dumps({"version": 1, name: [_fields(each) for each in found]})


def hanging_document(found: Iterable[tuple[TopicPartition, ProducerView]]) -> str:
    each = [{"topic": tp.topic, "partition": tp.partition, **_fields(p)} for tp, p in found]
    return json.dumps({"version": 1, "hanging": each})


def _fields(each: TransactionListing | TransactionView | ProducerView) -> dict[str, Any]:
    found = {field.name: getattr(each, field.name) for field in fields(each)}
    if isinstance(each, TransactionView):
        found["partitions"] = [{"topic": tp.topic, "partition": tp.partition} for tp in each.partitions]
    return found


def _or(value: int | None, absent: int | str) -> int | str:
    return absent if value is None else value
