"""Where the logs of partitions begin and end, and the cut at their beginning: ListOffsets (2), DeleteRecords (21).

Functions over an AdminClient with one outcome per partition: one that has no leader does not hide the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.client.admin import AdminClient
from holdfast.client.cluster import milliseconds
from holdfast.client.offset_resets import LogSpan
from holdfast.client.refused import refusal
from holdfast.client.views import IsolationLevel, OffsetAt, OffsetSpec
from holdfast.model.errors import (
    BrokerUnavailableError,
    HoldfastError,
    LeaderNotAvailableError,
    PolicyViolationError,
    RequestTimedOutError,
    UnknownServerError,
)
from holdfast.model.types import Offset, TimestampMs, TopicPartition, named
from holdfast.protocol.error_codes import code_of

PATIENCE_S = 5.0
"""How long a partition without a leader may hold up what is known of the others."""
DELETION_TIMEOUT_MS = 30_000

_NOT_DELETED = {
    code_of(PolicyViolationError): "no record was deleted: its cleanup.policy is without delete",
    code_of(RequestTimedOutError): "its leader has cut the log, and not every replica in sync has followed in time",
}

V = TypeVar("V")
A = TypeVar("A")


async def list_offsets_each(
    client: AdminClient,
    specs: Mapping[TopicPartition, OffsetSpec | TimestampMs],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    patience_s: float = PATIENCE_S,
) -> dict[TopicPartition, OffsetAt | HoldfastError]:
    """Offsets by name or by time, or why not."""
    from holdfast.client.translate import list_offsets_request, listed_offsets

    return await _each(
        client, specs, lambda part: list_offsets_request(part, isolation), listed_offsets, patience_s=patience_s
    )


async def log_spans(
    client: AdminClient, partitions: Collection[TopicPartition], time_ms: TimestampMs | None = None
) -> dict[TopicPartition, LogSpan]:
    """Where logs begin and end, and their first record not older than a time. LeaderNotAvailableError names those of
    which it cannot be told."""
    starts = await _known_offsets(client, partitions, OffsetSpec.EARLIEST)
    times = {} if time_ms is None else await _known_offsets(client, partitions, time_ms)
    ends = await _known_offsets(client, partitions, OffsetSpec.LATEST)
    return {
        # Ends are asked for last: a log that is cut meanwhile does not begin beyond its end.
        tp: LogSpan(start=starts[tp] or 0, end=ends[tp] or 0, at_time=times.get(tp))
        for tp in partitions
    }


async def _known_offsets(
    client: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec | TimestampMs
) -> dict[TopicPartition, Offset | None]:
    found = await list_offsets_each(client, dict.fromkeys(partitions, spec))
    failed = {tp: at for tp, at in found.items() if isinstance(at, HoldfastError)}
    if failed:
        why = next(iter(failed.values()))
        raise LeaderNotAvailableError(f"offsets of {named(sorted(failed))} cannot be told: {why.words or why}")
    return {tp: at.offset for tp, at in found.items() if isinstance(at, OffsetAt)}


async def delete_records(
    client: AdminClient, before: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Offset | HoldfastError]:
    """Where each log begins then, or why not. Offsets say what goes, so that to ask twice takes nothing more."""
    from kio.schema.delete_records.v2 import request as m
    from kio.schema.types import TopicName
    from kio.static.primitive import i32, i64

    def request(part: Mapping[TopicPartition, Offset]) -> m.DeleteRecordsRequest:
        by_topic: dict[str, list[m.DeleteRecordsPartition]] = {}
        for tp, offset in part.items():
            by_topic.setdefault(tp.topic, []).append(
                m.DeleteRecordsPartition(partition_index=i32(tp.partition), offset=i64(offset))
            )
        topics = tuple(m.DeleteRecordsTopic(name=TopicName(t), partitions=tuple(ps)) for t, ps in by_topic.items())
        return m.DeleteRecordsRequest(topics=topics, timeout=milliseconds(DELETION_TIMEOUT_MS))

    def outcomes(answer: Any) -> dict[TopicPartition, Offset | HoldfastError]:
        found: dict[TopicPartition, Offset | HoldfastError] = {}
        for topic in answer.topics:
            for p in topic.partitions:
                error = refusal(p.error_code.value, _NOT_DELETED.get(p.error_code.value))
                tp = TopicPartition(str(topic.name), int(p.partition_index))
                found[tp] = int(p.low_watermark) if error is None else error
        return found

    return await _each(
        client, before, request, outcomes, patience_s=client.timeout_s, answer_s=DELETION_TIMEOUT_MS / 1000 + PATIENCE_S
    )


async def _each(
    client: AdminClient,
    wanted: Mapping[TopicPartition, V],
    request: Callable[[Mapping[TopicPartition, V]], Any],
    outcomes: Callable[[Any], Mapping[TopicPartition, A | HoldfastError]],
    *,
    patience_s: float,
    answer_s: float | None = None,
) -> dict[TopicPartition, A | HoldfastError]:
    """Asks the leaders, and those partitions again whose error may pass, until ``patience_s`` are over."""
    found: dict[TopicPartition, A | HoldfastError] = {}

    async def once() -> None:
        by_leader: dict[int, dict[TopicPartition, V]] = {}
        for tp, value in wanted.items():
            if tp not in found or isinstance(found[tp], HoldfastError):
                found[tp] = UnknownServerError(f"{tp}: no answer tells of it")
                try:
                    by_leader.setdefault(await client.leader(tp), {})[tp] = value
                except HoldfastError as e:
                    found[tp] = e
        answers = await asyncio.gather(
            *(client.ask_broker(leader, request(part), timeout_s=answer_s) for leader, part in by_leader.items()),
            return_exceptions=True,
        )
        for part, answer in zip(by_leader.values(), answers, strict=True):
            if isinstance(answer, HoldfastError):
                found.update(dict.fromkeys(part, answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.update(outcomes(answer))
        for outcome in found.values():
            if isinstance(outcome, HoldfastError) and _may_pass(outcome):
                raise outcome

    with suppress(HoldfastError):  # it is in what was found, at its partitions
        await client.retrying(once, timeout_s=patience_s)
    return found


def _may_pass(error: HoldfastError) -> bool:
    return error.retriable or isinstance(error, BrokerUnavailableError)
