"""Pages of records: a list, one record, a search that shows its budget, the tail as it grows.

Without scripts a search goes on page by page; with them it is a stream that ends when the page is left or cancels it.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from holdfast.client.admin import AdminClient
from holdfast.console.acts import ActRefused
from holdfast.console.group_acts import time_of_text
from holdfast.console.host import ConsoleHost
from holdfast.console.reading import (
    PAGE_BUDGET,
    STREAM_BUDGET,
    Extent,
    ReadBudget,
    SearchProgress,
    at_time,
    extents,
    search,
    tail,
)
from holdfast.console.record_text import FORMS, LIST_BYTES, PAGE_BYTES, ShownRecord, shown_record
from holdfast.console.stream import event
from holdfast.model.errors import HoldfastError, NetworkError
from holdfast.model.types import Offset, TopicPartition
from holdfast.records.record import Record

STARTS: Final = {
    "latest": "the last ones",
    "earliest": "the beginning",
    "offset": "an offset",
    "time": "a time (UTC)",
}
RECORDS: Final = 50
MOST_PARTITIONS: Final = 100
"""Of one list: the first ones of a topic that has more."""
MOST_STREAMS: Final = 8
"""Searches and tails at once."""
LONGEST_NEEDLE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesAsked:
    """What an address says. ``partition``: None is all."""

    topic: str
    partition: int | None
    start: str
    value: str
    form: str
    contains: str

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "MessagesAsked":
        """ActRefused names what makes no sense."""
        partition, start, form = query.get("partition", ""), query.get("start", "latest"), query.get("form", "auto")
        if partition and not (partition.isascii() and partition.isdecimal() and len(partition) < 10):
            raise ActRefused(f"partition {partition!r}: expected a number")
        if start not in STARTS:
            raise ActRefused(f"from {start!r}: expected one of {', '.join(STARTS)}")
        if form not in FORMS:
            raise ActRefused(f"as {form!r}: expected one of {', '.join(FORMS)}")
        return cls(
            topic=query.get("topic", ""),
            partition=int(partition) if partition else None,
            start=start,
            value=query.get("value", "").strip(),
            form=form,
            contains=query.get("contains", "")[:LONGEST_NEEDLE],
        )

    @property
    def query(self) -> dict[str, Any]:
        """The address of it, again."""
        return {
            "topic": self.topic, "partition": "" if self.partition is None else self.partition, "start": self.start,
            "value": self.value, "form": self.form, "contains": self.contains,
        }  # fmt: skip


async def begin_at(
    client: AdminClient, asked: MessagesAsked, logs: Mapping[TopicPartition, Extent], *, most: int
) -> dict[TopicPartition, Offset]:
    """Where each partition is read from. ActRefused."""
    match asked.start:
        case "earliest":
            return {tp: log.start for tp, log in logs.items()}
        case "offset":
            if not (asked.value.isascii() and asked.value.isdecimal() and len(asked.value) < 19):
                raise ActRefused(f"offset {asked.value!r}: expected a number")
            return {tp: min(max(int(asked.value), log.start), log.end) for tp, log in logs.items()}
        case "time":
            return await at_time(client, logs, time_of_text(asked.value))
    # A search begins where logs begin: the last ones are what it ends with.
    if asked.contains:
        return {tp: log.start for tp, log in logs.items()}
    return {tp: max(log.start, log.end - most) for tp, log in logs.items()}


class MessagePages:
    """Handlers; each answers GET."""

    def __init__(self, host: ConsoleHost) -> None:
        self._host = host
        self._streams = 0

    def _partitions(self, asked: MessagesAsked) -> list[TopicPartition]:
        """ActRefused for a topic or partition that is not there."""
        topic = self._host.poller.snapshot.view.topics.get(asked.topic)
        if topic is None:
            raise ActRefused(f"topic {asked.topic!r} does not exist")
        found = [
            TopicPartition(topic.name, p.partition) for p in topic.partitions if asked.partition in (None, p.partition)
        ]
        if not found:
            raise ActRefused(f"{asked.topic} has partitions 0 to {len(topic.partitions) - 1}: not {asked.partition}")
        return found[:MOST_PARTITIONS]

    async def messages(self, request: Request) -> Response:
        """A list: from the end backwards by itself, otherwise from somewhere on."""
        await self._host.snapshot()
        try:
            asked = MessagesAsked.of(request.query_params)
            tps = self._partitions(asked)
        except ActRefused as e:
            return await self._host.trouble(request, str(e), status=404)
        progress: SearchProgress | None = None
        why: dict[TopicPartition, str] = {}
        logs: dict[TopicPartition, Extent] = {}
        problem = None
        try:
            async with self._host.client() as client:
                logs, why = await extents(client, tps)
                progress = await self._read(client, asked, logs, PAGE_BUDGET)
        except (ActRefused, HoldfastError) as e:
            problem = str(e)
        shown = [] if progress is None else await self._shown(in_order(asked, progress), asked.form, LIST_BYTES)
        return await self._host.page(
            request, "messages.html", asked=asked, progress=progress, logs=logs, why=why, problem=problem,
            records=shown, starts=STARTS, forms=FORMS, tps=tps,
            resume=_resume(asked, progress), most=MOST_PARTITIONS,
        )  # fmt: skip

    async def _read(
        self, client: AdminClient, asked: MessagesAsked, logs: Mapping[TopicPartition, Extent], budget: ReadBudget
    ) -> SearchProgress:
        """A list is what a search for nothing finds."""
        if asked.contains or asked.start != "latest":
            at, most = await begin_at(client, asked, logs, most=RECORDS), RECORDS
        else:
            each = max(1, RECORDS // max(1, len(logs)))
            at, most = await begin_at(client, asked, logs, most=each), RECORDS * 2
        ends = {tp: log.end for tp, log in logs.items()}
        found: list[tuple[TopicPartition, Record]] = []
        async for progress in search(client, at, ends, asked.contains.encode(), most, budget):
            found += progress.found
        return SearchProgress(
            found=found, seen=progress.seen, bytes=progress.bytes, seconds=progress.seconds, left=progress.left,
            following=progress.following, over=progress.over,
        )  # fmt: skip

    async def _shown(self, found: Sequence[tuple[TopicPartition, Record]], form: str, limit: int) -> list[ShownRecord]:
        """As a page has them; a schema registry, where there is one, is asked first for what it does not know."""
        registered = self._host.registered
        if registered is None:
            return [shown_record(tp.partition, record, form, limit) for tp, record in found]
        await registered.learn(part for _, record in found for part in (record.key, record.value))
        return await asyncio.to_thread(
            lambda: [shown_record(tp.partition, record, form, limit, registered.text_of) for tp, record in found]
        )

    async def _one(self, request: Request) -> tuple[TopicPartition, Record] | None:
        """The record of topic, partition and offset; None where there is none. HoldfastError, ActRefused."""
        query = request.query_params
        asked = MessagesAsked.of({**query, "start": "offset", "value": query.get("offset", ""), "contains": ""})
        if asked.partition is None:
            raise ActRefused("partition: expected one")
        (tp,) = self._partitions(asked)
        async with self._host.client() as client:
            logs, why = await extents(client, [tp])
            if tp in why:
                raise ActRefused(why[tp])
            at = await begin_at(client, asked, logs, most=1)
            ends = {tp: min(logs[tp].end, at[tp] + 1)}
            found = [each async for each in search(client, at, ends, b"", 1, PAGE_BUDGET)][-1].found
        return found[0] if found and found[0][1].offset == int(asked.value) else None

    async def message(self, request: Request) -> Response:
        """One record, with more of it than a list shows."""
        await self._host.snapshot()
        form = request.query_params.get("form", "auto")
        try:
            found = await self._one(request)
        except (ActRefused, HoldfastError) as e:
            return await self._host.trouble(request, str(e), status=404)
        if found is None:
            return await self._host.trouble(request, "there is no record at this offset", status=404)
        tp, _ = found
        (shown,) = await self._shown([found], form if form in FORMS else "auto", PAGE_BYTES)
        return await self._host.page(request, "message.html", tp=tp, record=shown, forms=FORMS, form=form)

    async def value(self, request: Request) -> Response:
        """The bytes of a value, or of a key, as a file: never as anything that a browser shows."""
        await self._host.snapshot()
        try:
            found = await self._one(request)
        except (ActRefused, HoldfastError) as e:
            return PlainTextResponse(f"{e}\n", 404)
        data = None if found is None else found[1].key if request.query_params.get("of") == "key" else found[1].value
        if data is None:
            return PlainTextResponse("there is no such record, or it is null\n", 404)
        return Response(
            data,
            media_type="application/octet-stream",
            headers={"content-disposition": "attachment; filename=value.bin"},
        )

    # -- streams -----------------------------------------------------------------------------------------------

    async def searching(self, request: Request) -> Response:
        """A search as server-sent events: rows as they are found, and an event ``progress`` several times a second."""
        return await self._stream(request, self._search)

    async def tailing(self, request: Request) -> Response:
        """Rows as they are written."""
        return await self._stream(request, self._tail)

    async def _stream(self, request: Request, make: Any) -> Response:
        await self._host.snapshot()
        try:
            asked = MessagesAsked.of(request.query_params)
            tps = self._partitions(asked)
        except ActRefused as e:
            return PlainTextResponse(f"{e}\n", 404)
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse(f"{MOST_STREAMS} searches and tails are running: end one\n", 503)
        return StreamingResponse(self._counted(make(asked, tps)), media_type="text/event-stream")

    async def _counted(self, parts: AsyncIterator[str]) -> AsyncIterator[str]:
        self._streams += 1
        try:
            yield ": begun\n\n"
            async for part in parts:
                yield part
        except (ActRefused, HoldfastError) as e:
            yield event("progress", {"text": f"it has ended: {e}", "over": True})
        finally:
            self._streams -= 1

    async def _search(self, asked: MessagesAsked, tps: Sequence[TopicPartition]) -> AsyncIterator[str]:
        async with self._host.client() as client:
            logs, _ = await extents(client, tps)
            at = await begin_at(client, asked, logs, most=RECORDS)
            ends = {tp: log.end for tp, log in logs.items()}
            matches = 0
            async for progress in search(client, at, ends, asked.contains.encode(), RECORDS, STREAM_BUDGET):
                matches += len(progress.found)
                if progress.found:
                    yield await self._rows(asked, progress.found)
                yield event("progress", progress_words(progress, matches))
                await asyncio.sleep(0)
        yield event("over", {})

    async def _tail(self, asked: MessagesAsked, tps: Sequence[TopicPartition]) -> AsyncIterator[str]:
        """Leaders that move are looked up again; what comes meanwhile is read then."""
        at: dict[TopicPartition, Offset] | None = None
        while True:
            try:
                async with self._host.client() as client:
                    if at is None:
                        at = {tp: log.end for tp, log in (await extents(client, tps))[0].items()}
                        yield event("progress", {"text": "waiting for records", "over": False})
                    async for grown in tail(client, at):
                        at = dict(grown.following)
                        if grown.records:
                            yield await self._rows(asked, list(reversed(grown.records)))
                        if grown.skipped:
                            text = f"{grown.skipped:,} records came too fast to be shown"
                            yield event("progress", {"text": text, "over": False})
                        elif not grown.records:
                            yield ": nothing\n\n"
            except NetworkError as e:
                yield event("progress", {"text": f"{e}: trying again", "over": False})
                await asyncio.sleep(1.0)

    async def _rows(self, asked: MessagesAsked, found: Sequence[tuple[TopicPartition, Record]]) -> str:
        """Rows of the table as one message, which hx-sse swaps in."""
        shown = await self._shown(found, asked.form, LIST_BYTES)
        text = self._host.render("record_rows.html", records=shown, topic=asked.topic)
        return "".join(f"data: {line}\n" for line in text.splitlines()) + "\n"


def in_order(asked: MessagesAsked, progress: SearchProgress) -> list[tuple[TopicPartition, Record]]:
    """As a list has them: the last ones backwards, others as they are in the log; as many as a page takes. Pure."""
    found = list(progress.found)
    if asked.start == "latest" and not asked.contains:
        found = sorted(found, key=lambda pair: (pair[1].timestamp, pair[1].offset), reverse=True)
    return found[:RECORDS]


def progress_words(progress: SearchProgress, matches: int) -> dict[str, Any]:
    """How far a search is, for people. Pure."""
    rate = progress.seen / progress.seconds if progress.seconds else 0.0
    text = (
        f"{matches:,} found in {progress.seen:,} records, {progress.bytes >> 20:,} MiB, {progress.seconds:.1f} s "
        f"({rate:,.0f} records/s); {progress.left:,} left"
    )
    share = progress.seen / (progress.seen + progress.left) if progress.seen + progress.left else 1.0
    if progress.over is not None:
        text += f". It has ended: {progress.over}"
    return {"text": text, "share": round(share, 4), "over": progress.over is not None}


def _resume(asked: MessagesAsked, progress: SearchProgress | None) -> dict[str, Any] | None:
    """The address at which a list of one partition goes on. Pure."""
    if progress is None or not progress.left or asked.partition is None:
        return None
    if asked.start == "latest" and not asked.contains:
        return None
    (following,) = progress.following.values()
    return {**asked.query, "start": "offset", "value": following}
