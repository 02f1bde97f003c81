"""Requests to the application of a console without a socket: what routes answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Route

from holdfast.console.app import make_app
from holdfast.console.guard import AccessRules
from holdfast.console.host import ConsoleHost, ConsoleSettings
from holdfast.console.poller import now_ms
from holdfast.console.prepared import PreparedRows
from holdfast.console.snapshot import Snapshot

PORT = 8080
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"


@dataclass(frozen=True, slots=True)
class RouteAnswer:
    """What came, as a whole."""

    status: int
    text: str
    headers: Mapping[str, str]


def console(
    folder: Path | None = None, *, read_only: bool = False, metrics_only: bool = False, now: Snapshot | None = None
) -> ConsoleHost:
    """One that asks nobody; its pages show ``now``."""
    rules = AccessRules(port=PORT, token="" if read_only else "secret", read_only=read_only)
    settings = ConsoleSettings(bootstrap=("127.0.0.1:1",), rules=rules, data_dir=folder, metrics_only=metrics_only)
    host = ConsoleHost(settings)
    if now is not None:
        host.poller.snapshot = replace(now, taken_ms=now_ms())
        host.poller.prepared = PreparedRows(host.poller.snapshot)
    return host


def ask(
    host: ConsoleHost, method: str, path: str, /, headers: Mapping[str, str] | None = None, **query: Any
) -> RouteAnswer:
    """The answer of the application, its middleware included."""
    return asyncio.run(answer_of(app_of(host), method, path, headers or {}, query))


@lru_cache(maxsize=2)
def app_of(host: ConsoleHost) -> Starlette:
    return make_app(host)


async def answer_of(
    app: Starlette, method: str, path: str, headers: Mapping[str, str], query: Mapping[str, Any], body: bytes = b""
) -> RouteAnswer:
    given = {"host": HOST, **headers}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": urlencode(query).encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", PORT),
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(20):
        await app(scope, receive, send)
    start, *parts = sent
    text = b"".join(part.get("body", b"") for part in parts).decode(errors="replace")
    return RouteAnswer(
        start["status"], text, {name.decode(): value.decode() for name, value in start.get("headers", ())}
    )


def paths_of(routes: list[BaseRoute]) -> Iterator[str]:
    """One address of every route there is. A kind of route that is not known here is an error: it has to be thought
    of."""
    for route in routes:
        if isinstance(route, Mount):
            yield f"{route.path}/console.css"
            yield from (f"{route.path}{path}" for path in paths_of(list(route.routes)))
        else:
            assert isinstance(route, Route), route
            yield route.path.replace("{name}", "create-topic").replace("{number:int}", "1")
