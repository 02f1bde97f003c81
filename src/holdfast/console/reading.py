"""Reads records for the pages of messages: a list from somewhere on, a search with a budget, the tail as it grows.

Functions over an AdminClient. Decoding is done on another thread, so that pages and streams go on meanwhile. No answer
is larger than a few MiB, unless one batch is.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.client.admin import AdminClient
from holdfast.client.log_offsets import list_offsets_each
from holdfast.client.reader import PartitionReader
from holdfast.client.views import IsolationLevel, OffsetAt, OffsetSpec
from holdfast.console.scanning import scan
from holdfast.model.errors import HoldfastError, OffsetOutOfRangeError
from holdfast.model.types import Offset, TimestampMs, TopicPartition
from holdfast.records.batch import iter_headers
from holdfast.records.record import Record

FETCH_BYTES = 1 << 20
"""So little that whoever writes meanwhile waits for one short answer: four megabytes doubled the p99 of small writes,
and were no faster."""
TELL_EVERY_S = 0.3
SEARCH_WAIT_MS = 100
TAIL_WAIT_MS = 500
TAIL_AT_ONCE = 50
ISOLATION = IsolationLevel.READ_COMMITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBudget:
    """What one search may cost; it ends at the first that is reached."""

    records: int
    bytes: int
    seconds: float


PAGE_BUDGET = ReadBudget(records=500_000, bytes=256 << 20, seconds=2.0)
"""Of a page, which is waited for."""
STREAM_BUDGET = ReadBudget(records=100_000_000, bytes=100 << 30, seconds=600.0)
"""Of a search that shows how far it is and can be cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    """How far a search is. ``over``: why it goes no further; ``following``: where each partition goes on."""

    found: Sequence[tuple[TopicPartition, Record]]
    seen: int
    bytes: int
    seconds: float
    left: int
    following: Mapping[TopicPartition, Offset]
    over: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Where a log begins and ends."""

    start: Offset
    end: Offset


async def extents(
    client: AdminClient, tps: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, Extent], dict[TopicPartition, str]]:
    """Of the partitions that tell it; why not, of the others."""
    starts = await list_offsets_each(client, dict.fromkeys(tps, OffsetSpec.EARLIEST), patience_s=1.0)
    ends = await list_offsets_each(client, dict.fromkeys(tps, OffsetSpec.LATEST), isolation=ISOLATION, patience_s=1.0)
    found, why = {}, {}
    for tp in tps:
        start, end = starts[tp], ends[tp]
        if isinstance(start, OffsetAt) and isinstance(end, OffsetAt):
            found[tp] = Extent(start=start.offset or 0, end=end.offset or 0)
        else:
            why[tp] = str(end if isinstance(end, HoldfastError) else start)
    return found, why


async def at_time(
    client: AdminClient, logs: Mapping[TopicPartition, Extent], time_ms: TimestampMs
) -> dict[TopicPartition, Offset]:
    """The first record not older than that; the end of a log that has none."""
    found = await list_offsets_each(client, dict.fromkeys(logs, time_ms), patience_s=1.0)
    return {
        tp: at.offset if isinstance(at, OffsetAt) and at.offset is not None else logs[tp].end
        for tp, at in found.items()
    }


async def search(
    client: AdminClient,
    positions: Mapping[TopicPartition, Offset],
    ends: Mapping[TopicPartition, Offset],
    needle: bytes,
    most: int,
    budget: ReadBudget,
) -> AsyncIterator[SearchProgress]:
    """Goes through partitions one after the other until ``ends``, and tells of it several times a second.

    The last one told has ``over``. What was found is told once: each SearchProgress has what is new.
    """
    begun_s = told_s = time.monotonic()
    at = dict(positions)
    new: list[tuple[TopicPartition, Record]] = []
    seen = size = count = 0
    over = None
    for tp in sorted(at):
        async with _FetchAhead(client, tp, at[tp], ends[tp]) as ahead:
            while at[tp] < ends[tp] and over is None:
                answer = await ahead.following()
                scanned = await asyncio.to_thread(
                    scan, answer.records, answer.aborted, at[tp], needle=needle, most=most - count, end=ends[tp]
                )
                seen, size = seen + scanned.seen, size + len(answer.records)
                count += len(scanned.records)
                new += ((tp, record) for record in scanned.records)
                at[tp] = max(scanned.following, at[tp])
                if count < most:
                    # Markers and aborted records are not looked at, and are behind us all the same.
                    at[tp] = min(ends[tp], max(at[tp], answer.following))
                now_s = time.monotonic()
                over = _over(budget, seen, size, now_s - begun_s, enough=count >= most)
                if over is None and now_s - told_s >= TELL_EVERY_S:
                    told_s = now_s
                    yield _progress(new, seen, size, now_s - begun_s, at, ends, None)
                    new = []
    yield _progress(new, seen, size, time.monotonic() - begun_s, at, ends, over or "the end is reached")


def _progress(
    new: list[tuple[TopicPartition, Record]],
    seen: int,
    size: int,
    seconds: float,
    at: Mapping[TopicPartition, Offset],
    ends: Mapping[TopicPartition, Offset],
    over: str | None,
) -> SearchProgress:
    left = sum(max(0, ends[tp] - offset) for tp, offset in at.items())
    return SearchProgress(found=new, seen=seen, bytes=size, seconds=seconds, left=left, following=dict(at), over=over)


def _over(budget: ReadBudget, seen: int, size: int, seconds: float, *, enough: bool) -> str | None:
    if enough:
        return "there are as many as were asked for"
    if seen >= budget.records:
        return f"{budget.records:,} records were looked at"
    if size >= budget.bytes:
        return f"{budget.bytes >> 20:,} MiB were read"
    return f"{budget.seconds:g} s are over" if seconds >= budget.seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    records: memoryview
    aborted: tuple[tuple[int, Offset], ...]
    following: Offset


class _FetchAhead:
    """Answers of one log one after the other; the next one is asked for while the last is looked through."""

    def __init__(self, client: AdminClient, tp: TopicPartition, offset: Offset, end: Offset) -> None:
        self._client, self._tp, self._offset, self._end = client, tp, offset, end
        self._asked: asyncio.Task[_Answer] | None = None

    async def __aenter__(self) -> "_FetchAhead":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._asked is not None:
            self._asked.cancel()
            await asyncio.gather(self._asked, return_exceptions=True)

    async def following(self) -> _Answer:
        """From where the last answer ended. HoldfastError."""
        answer = await (self._asked or self._ask())
        self._asked = None
        self._offset = max(self._offset, answer.following)
        if answer.records and self._offset < self._end:
            self._asked = self._ask()
        return answer

    def _ask(self) -> "asyncio.Task[_Answer]":
        return asyncio.create_task(_fetch(self._client, self._tp, self._offset))


async def _fetch(client: AdminClient, tp: TopicPartition, offset: Offset) -> _Answer:
    """One answer; a log that was cut meanwhile goes on where it begins now."""
    try:
        found = await client.fetch_raw(
            tp, offset, max_bytes=FETCH_BYTES, max_wait_ms=SEARCH_WAIT_MS, isolation=ISOLATION
        )
    except OffsetOutOfRangeError:
        start = (await client.list_offsets({tp: OffsetSpec.EARLIEST}))[tp].offset or 0
        return _Answer(records=memoryview(b""), aborted=(), following=max(start, offset))
    following = offset
    for _, header in iter_headers(found.records):
        following = max(following, header.next_offset)
    return _Answer(records=found.records, aborted=found.aborted, following=following)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """What has come to the tails. ``skipped``: records that came too fast to be shown; ``following``: the next ones."""

    records: Sequence[tuple[TopicPartition, Record]]
    skipped: int
    following: Mapping[TopicPartition, Offset]


async def tail(client: AdminClient, ends: Mapping[TopicPartition, Offset]) -> AsyncIterator[Grown]:
    """Records as they are written, from ``ends`` on, until nobody asks any more; twice a second at most.

    Leaders that move are looked up again. HoldfastError: it goes no further.
    """
    reader = PartitionReader(client, ends, max_wait_ms=TAIL_WAIT_MS, isolation=ISOLATION)
    try:
        while True:
            begun_s = time.monotonic()
            found: list[tuple[TopicPartition, Record]] = []
            skipped = 0
            for tp, asked, answer in await reader.poll(TAIL_WAIT_MS / 1000):
                scanned = await asyncio.to_thread(
                    scan, answer.records, answer.aborted, asked, needle=b"", most=TAIL_AT_ONCE
                )
                found += ((tp, record) for record in scanned.records)
                skipped += max(0, reader.positions[tp] - scanned.following)
            yield Grown(
                records=found[:TAIL_AT_ONCE],
                skipped=skipped + max(0, len(found) - TAIL_AT_ONCE),
                following=dict(reader.positions),
            )
            await asyncio.sleep(max(0.0, TAIL_WAIT_MS / 1000 - (time.monotonic() - begun_s)))
    finally:
        reader.close()
