"""Pages of the cluster as the last snapshot has it: disks, brokers, topics, partitions, groups, what is under way."""

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.console.host import ConsoleHost, asked_of
from holdfast.console.poller import ALL_RECORDS, group_series, topic_series
from holdfast.console.rows import (
    GROUP_SORTS,
    MOVE_SORTS,
    PARTITION_FILTERS,
    PARTITION_SORTS,
    REPLICA_SORTS,
    TOPIC_SORTS,
    disk_row,
    move_rows,
    only_rows,
    partition_text,
    reassignment_rows,
    replica_rows,
    replica_text,
)
from holdfast.console.snapshot import topics_of_groups
from holdfast.console.windows import text_of, window

CHANGES_SHOWN = 20


class OverviewPages:
    """Handlers; each answers GET."""

    def __init__(self, host: ConsoleHost) -> None:
        self._host = host

    async def disks(self, request: Request) -> Response:
        now = await self._host.snapshot()
        prepared = self._host.prepared(now)
        brokers = [
            {**row, "told": told, "tiles": [] if told is None else [disk_row(told, d) for d in told.disks.disks]}
            for row in prepared.brokers
            for told in [now.disks.get(row["broker"])]
        ]
        newest = list(reversed(self._host.poller.changes[-CHANGES_SHOWN:]))
        return await self._host.page(
            request, "disks.html", brokers=brokers, health=prepared.health, changes=newest, rate=self._rate(ALL_RECORDS)
        )

    async def disk(self, request: Request) -> Response:
        now = await self._host.snapshot()
        broker, path = request.query_params.get("broker", ""), request.query_params.get("path", "")
        disk = now.disk(int(broker), path) if broker.isascii() and broker.isdecimal() else None
        if disk is None:
            return await self._host.trouble(request, f"broker {broker!r} has no directory {path!r}", status=404)
        told = now.disks[int(broker)]
        found = window(disk.replicas, asked_of(request), text=replica_text, sorts=REPLICA_SORTS, default="name")
        found = replace(found, rows=replica_rows(now, int(broker), found.rows))
        return await self._host.page(
            request, "disk.html", window=found, broker=int(broker), told=told, tile=disk_row(told, disk),
            keep={"broker": broker, "path": path},
        )  # fmt: skip

    async def brokers(self, request: Request) -> Response:
        return await self._host.page(
            request, "brokers.html", rows=self._host.prepared(await self._host.snapshot()).brokers
        )

    async def topics(self, request: Request) -> Response:
        rows = self._host.prepared(await self._host.snapshot()).topics
        asked = asked_of(request)
        shown = [row for row in rows if not row["internal"]] if asked.only != "all" else rows
        found = window(shown, asked, text=text_of("name"), sorts=TOPIC_SORTS, default="name", is_sorted=True)
        rates = {row["name"]: self._rate(topic_series(row["name"])) for row in found.rows}
        return await self._host.page(
            request, "topics.html", window=found, rates=rates, internal=sum(row["internal"] for row in rows), keep={}
        )

    async def topic(self, request: Request) -> Response:
        now, name = await self._host.snapshot(), request.query_params.get("name", "")
        topic = now.view.topics.get(name)
        if topic is None:
            return await self._host.trouble(request, f"topic {name!r} does not exist", status=404)
        found = window(
            [row for row in self._host.prepared(now).partitions if row.topic == name],
            asked_of(request),
            text=partition_text,
            sorts=PARTITION_SORTS,
            default="name",
        )
        return await self._host.page(
            request, "topic.html", window=found, topic=topic, row=_row_of(self._host.prepared(now).topics, name),
            groups=topics_of_groups(now).get(name, []), min_isr=now.min_isr.get(name), keep={"name": name},
            rate=self._rate(topic_series(name)),
        )  # fmt: skip

    async def partitions(self, request: Request) -> Response:
        asked = asked_of(request)
        rows = only_rows(self._host.prepared(await self._host.snapshot()).partitions, asked.only)
        found = window(rows, asked, text=partition_text, sorts=PARTITION_SORTS, default="name", is_sorted=True)
        return await self._host.page(request, "partitions.html", window=found, filters=PARTITION_FILTERS, keep={})

    async def groups(self, request: Request) -> Response:
        rows = self._host.prepared(await self._host.snapshot()).groups
        found = window(rows, asked_of(request), text=text_of("name", "state"), sorts=GROUP_SORTS, default="name")
        return await self._host.page(request, "groups.html", window=found, keep={})

    async def under_way(self, request: Request) -> Response:
        now, asked = await self._host.snapshot(), asked_of(request)
        found = window(move_rows(now), asked, text=text_of("tp"), sorts=MOVE_SORTS, default="name")
        between = window(reassignment_rows(now), asked, text=text_of("tp"), sorts=MOVE_SORTS, default="name")
        return await self._host.page(request, "reassignments.html", window=found, between=between, keep={})

    async def series(self, request: Request) -> Response:
        """Points of a chart: [[seconds...], [values...]] of the last hour."""
        kind, name = request.query_params.get("kind", ""), request.query_params.get("name", "")
        series = {"topic": topic_series(name), "group": group_series(name)}.get(kind, ALL_RECORDS)
        points = self._host.poller.rates.points(series, self._host.poller.snapshot.taken_ms)
        return JSONResponse([[at for at, _ in points], [value for _, value in points]])

    def _rate(self, series: str) -> float | None:
        return self._host.poller.rates.newest(series)


def _row_of(rows: list[Any], name: str) -> Any:
    return next(row for row in rows if row["name"] == name)
