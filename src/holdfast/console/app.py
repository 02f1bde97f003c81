"""The application: which address is answered by what. Made of a host; starts nothing before it is served."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from holdfast.console.act_pages import ActPages
from holdfast.console.asked_pages import AskedPages
from holdfast.console.guard import UNLOCK, AccessGuard
from holdfast.console.host import ConsoleHost
from holdfast.console.message_pages import MessagePages
from holdfast.console.metrics_routes import MetricsRoutes
from holdfast.console.pages import OverviewPages

STATIC_FOR_S = 300
Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class KeptFiles(StaticFiles):
    """Files that a browser may keep for a while."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        found = await super().get_response(path, scope)
        found.headers["cache-control"] = f"max-age={STATIC_FOR_S}"
        return found


def make_app(host: ConsoleHost) -> Starlette:
    """Every route but ``/unlock`` and ``/act/NAME`` is GET alone. With ``metrics_only`` there are no pages."""

    async def failed(request: Request, error: Exception) -> Response:
        return PlainTextResponse("the console has made a mistake: see its log\n", 500)

    async def unknown(request: Request, error: Exception) -> Response:
        if host.settings.metrics_only:
            return PlainTextResponse(f"expected one of {', '.join(_asked_by_programs(host))}\n", 404)
        return await host.trouble(request, f"there is no page {request.url.path}", status=404)

    @asynccontextmanager
    async def serving(app: Starlette) -> AsyncIterator[None]:
        host.start()
        try:
            yield
        finally:
            host.close()

    return Starlette(
        routes=[
            *(Route(path, answer, methods=["GET"]) for path, answer in _asked_by_programs(host).items()),
            *([] if host.settings.metrics_only else _pages(host)),
        ],
        middleware=[Middleware(AccessGuard, rules=host.rules)],
        exception_handlers={404: unknown, 500: failed},
        lifespan=serving,
    )


def _asked_by_programs(host: ConsoleHost) -> dict[str, Handler]:
    routes = MetricsRoutes(host)
    return {
        "/metrics": routes.metrics,
        "/health": routes.ready,
        "/health/live": routes.live,
        "/health/ready": routes.ready,
    }


def _pages(host: ConsoleHost) -> list[BaseRoute]:
    overview, asked = OverviewPages(host), AskedPages(host)
    messages, acts = MessagePages(host), ActPages(host)

    async def news(request: Request) -> Response:
        if host.news.is_full:
            return PlainTextResponse("there are too many pages: one of them has to be closed\n", 503)
        return StreamingResponse(host.news.listen(), media_type="text/event-stream")

    pages = {
        "/": overview.disks,
        "/disk": overview.disk,
        "/brokers": overview.brokers,
        "/topics": overview.topics,
        "/topic": overview.topic,
        "/partitions": overview.partitions,
        "/groups": overview.groups,
        "/reassignments": overview.under_way,
        "/series": overview.series,
        "/group": asked.group,
        "/configs": asked.configs,
        "/messages": messages.messages,
        "/messages/search": messages.searching,
        "/messages/tail": messages.tailing,
        "/message": messages.message,
        "/message/value": messages.value,
        "/acts": acts.index,
        "/acts/{number:int}": acts.outcome,
        "/events": news,
    }
    return [
        *(Route(path, page, methods=["GET"]) for path, page in pages.items()),
        Route(UNLOCK, acts.unlock, methods=["GET", "POST"]),
        Route("/act/{name}", acts.act, methods=["GET", "POST"]),
        Mount("/static", KeptFiles(directory=str(files("holdfast.console") / "static"))),
    ]
