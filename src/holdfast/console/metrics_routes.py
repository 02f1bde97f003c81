"""What Prometheus and who starts a console ask of it: ``/metrics`` and ``/health``.

A scrape is a look at the cluster: the answer is what that look found, so that it comes as often as Prometheus asks, and
two that ask within a second are one. Compressed for who takes that.
"""

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from holdfast.console.host import ConsoleHost
from holdfast.console.metrics_page import plain_pieces

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PATIENCE_S = 8.0
"""Prometheus waits ten by itself."""


class MetricsRoutes:
    """Handlers; each answers GET."""

    def __init__(self, host: ConsoleHost) -> None:
        self._host = host

    async def metrics(self, request: Request) -> Response:
        packed = await self._host.scraped(PATIENCE_S)
        if packed is None:
            return PlainTextResponse(f"the cluster was not looked at within {PATIENCE_S:g} s: no metrics\n", 503)
        headers = {"content-type": CONTENT_TYPE, "vary": "accept-encoding"}
        if takes_gzip(request.headers.get("accept-encoding", "")):
            return Response(packed, headers={**headers, "content-encoding": "gzip"})
        return StreamingResponse(plain_pieces(packed), headers=headers)

    async def live(self, request: Request) -> Response:
        return PlainTextResponse("the console runs\n")

    async def ready(self, request: Request) -> Response:
        """Whether the last look at the cluster was answered."""
        trouble = self._host.poller.snapshot.trouble
        reasons = [] if trouble is None else [{"reason": "cluster", "text": trouble}]
        return JSONResponse({"ok": not reasons, "reasons": reasons}, 200 if not reasons else 503)


def takes_gzip(accepted: str) -> bool:
    """By an Accept-Encoding header. Pure."""
    for item in accepted.lower().split(","):
        coding, _, weight = item.replace(" ", "").partition(";q=")
        if coding in ("gzip", "*") and not _is_nothing(weight):
            return True
    return False


def _is_nothing(weight: str) -> bool:
    """q=0, q=0.0 and so on."""
    return bool(weight) and not weight.strip("0.")
