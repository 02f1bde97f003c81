"""Pages that ask the cluster when they are asked for: a group with its members, configurations."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.client.configs import ConfigTarget, describe_config
from holdfast.client.log_offsets import list_offsets_each
from holdfast.client.views import CommittedOffset, OffsetAt, OffsetSpec
from holdfast.console.host import ConsoleHost, asked_of
from holdfast.console.rows import by
from holdfast.console.windows import Row, text_of, window
from holdfast.model.errors import HoldfastError
from holdfast.model.types import Offset, TopicPartition

MOST_MEMBERS = 200
PATIENCE_S = 1.0
LAG_SORTS = {"name": by("topic", "partition"), "lag": by("lag", "topic", "partition")}
CONFIG_SORTS = {"name": by("name"), "source": by("source", "name")}


class AskedPages:
    """Handlers; each answers GET."""

    def __init__(self, host: ConsoleHost) -> None:
        self._host = host

    async def group(self, request: Request) -> Response:
        now, name = await self._host.snapshot(), request.query_params.get("name", "")
        try:
            async with self._host.client(timeout_s=5.0) as client:
                view = await client.describe_group(name)
                committed = await client.committed(name)
                client.learn(now.view.topics)
                ends = await list_offsets_each(
                    client, dict.fromkeys(committed, OffsetSpec.LATEST), patience_s=PATIENCE_S
                )
        except HoldfastError as e:
            return await self._host.trouble(request, f"group {name!r}: {e}")
        owners = {tp: member for member in view.members for tp in member.assignment}
        known = {tp: at.offset for tp, at in ends.items() if isinstance(at, OffsetAt) and at.offset is not None}
        rows = lag_rows(committed, known, {tp: member.client_id for tp, member in owners.items()})
        found = window(rows, asked_of(request), text=text_of("tp", "member"), sorts=LAG_SORTS, default="name")
        lags = [row["lag"] for row in rows if row["lag"] is not None]
        return await self._host.page(
            request, "group.html", window=found, group=view, members=view.members[:MOST_MEMBERS],
            lag=sum(lags) if lags else None, keep={"name": name},
        )  # fmt: skip

    async def configs(self, request: Request) -> Response:
        now = await self._host.snapshot()
        kind, of = request.query_params.get("kind", "default"), request.query_params.get("of", "")
        if kind == "topic":
            target = ConfigTarget(topic=of)
        elif kind == "broker" and of.isascii() and of.isdecimal():
            target = ConfigTarget(broker=int(of))
        elif kind == "default":
            target = ConfigTarget()
        else:
            return await self._host.trouble(request, f"broker {of!r}: expected a number", status=404)
        try:
            async with self._host.client(timeout_s=5.0) as client:
                values = await describe_config(client, target)
        except HoldfastError as e:
            return await self._host.trouble(request, f"{target}: {e}")
        asked = asked_of(request)
        rows: list[Row] = [
            {
                "name": v.name,
                "value": "hidden" if v.sensitive else v.value,
                "source": v.source,
                "type": v.type,
                "read_only": v.read_only,
                "layers": [f"{s.source}: {s.value}" for s in v.synonyms if s.source != v.source],
                "own": v.source == target.layer,
            }
            for v in values
            if asked.only == "all" or kind == "default" or v.source != "DEFAULT_CONFIG"
        ]
        found = window(rows, asked, text=text_of("name"), sorts=CONFIG_SORTS, default="name")
        return await self._host.page(
            request, "configs.html", window=found, kind=kind, of=of, target=target, alive=sorted(now.alive),
            keep={"kind": kind, "of": of},
        )  # fmt: skip


def lag_rows(
    committed: dict[TopicPartition, CommittedOffset],
    ends: dict[TopicPartition, Offset],
    members: dict[TopicPartition, str],
) -> list[Row]:
    """A row a partition that the group has an offset in, or a member reads. Pure."""
    found: list[dict[str, Any]] = []
    for tp in sorted({*committed, *members}):
        at, end = committed.get(tp), ends.get(tp)
        found.append(
            {
                "tp": str(tp),
                "topic": tp.topic,
                "partition": tp.partition,
                "offset": None if at is None else at.offset,
                "end": end,
                "lag": None if at is None or end is None else max(0, end - at.offset),
                "member": members.get(tp, ""),
            }
        )
    return list(found)
