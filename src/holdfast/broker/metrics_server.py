"""``GET /metrics``: the port that Prometheus scrapes (metrics.port).

Owns a small HTTP/1.1 responder on the broker's event loop and the page that it last made. Knows one path, reads
nothing but the head of a request, closes after each answer. Everything is bounded: connections, bytes of a head, time
of a request; a page serves all who ask within a second.

Metrics never keep a broker from serving: a port that is taken is told in the log and tried again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from holdfast.broker import metrics
from holdfast.broker.metrics_text import text
from holdfast.model.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.broker.platform import Platform, WorkThread

log = logging.getLogger(__name__)

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_CONNECTIONS = 16
MAX_HEAD_BYTES = 8192
REQUEST_TIMEOUT_S = 10.0
FRESH_S = 1.0
"""How old a page may be that is served again."""
BIND_RETRY_S = 1.0
REMEMBER_S = 10.0


class ScrapedHost(metrics.MeasuredHost, Protocol):
    """What the port of the metrics asks of the broker."""

    loop: asyncio.AbstractEventLoop
    platform: Platform


class MetricsServer:
    """See the module's docstring. ``start`` and ``close`` on the loop."""

    def __init__(self, broker: ScrapedHost, host: str, port: int) -> None:
        self._broker = broker
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None
        self._thread: WorkThread | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[None] | None = None
        self._page: asyncio.Task[bytes] | None = None
        self._made_s = 0.0
        self._told = False
        self._minute: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Listen now, or as soon as the port can be had."""
        self._starting = self._broker.loop.create_task(self._listen())

    async def _listen(self) -> None:
        try:
            sock = self._broker.platform.listen(self._host, self._port)
        except ConfigError as e:
            if not self._told:
                log.warning("no metrics for now: metrics.port: %s", str(e).partition(": ")[2])
            self._told = True
            self._retry = self._broker.loop.call_later(BIND_RETRY_S, self.start)
            return
        self._server = await asyncio.start_server(self._accept, sock=sock, limit=MAX_HEAD_BYTES)
        self._remember()
        log.info("metrics at http://%s:%d%s", self._host or "0.0.0.0", self._port, PATH)

    def _remember(self) -> None:
        """Quantiles are of the last minute: keep what there was."""
        if self._broker.meters is not None:
            self._broker.meters.remember(metrics.disk_threads(self._broker))
        self._minute = self._broker.loop.call_later(REMEMBER_S, self._remember)

    def close(self) -> None:
        """Stop listening, and end what is under way."""
        if self._minute is not None:
            self._minute.cancel()
        if self._retry is not None:
            self._retry.cancel()
        if self._starting is not None:
            self._starting.cancel()
        if self._server is not None:
            self._server.close()
        for task in (*self._connections, self._page):
            if task is not None:
                task.cancel()
        if self._thread is not None:
            self._thread.close()

    # -- one connection ----------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) > MAX_CONNECTIONS:
                writer.write(_answer("503 Service Unavailable", b"too many connections\n"))
            else:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    writer.write(await self._respond(reader))
                    await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # who asked has gone, or says nothing
        except Exception:
            log.exception("metrics: a request failed")
        finally:
            self._connections.discard(task)
            writer.close()

    async def _respond(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _answer("431 Request Header Fields Too Large", b"")
        method, _, rest = head.split(b"\r\n", 1)[0].partition(b" ")
        target, _, version = rest.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            return _answer("400 Bad Request", b"expected HTTP/1.1\n")
        if method not in (b"GET", b"HEAD"):
            return _answer("405 Method Not Allowed", b"", "Allow: GET, HEAD\r\n")
        if target.partition(b"?")[0] != PATH.encode():
            return _answer("404 Not Found", f"see {PATH}\n".encode())
        return _answer("200 OK", await self._current(), head=method == b"HEAD")

    async def _current(self) -> bytes:
        """The page; one that is being made, or was made a moment ago, serves everybody."""
        loop = self._broker.loop
        stale = self._page is not None and self._page.done() and loop.time() - self._made_s > FRESH_S
        if self._page is None or stale or (self._page.done() and self._page.exception() is not None):
            self._page = loop.create_task(self._make())
        return await asyncio.shield(self._page)

    async def _make(self) -> bytes:
        reading = await metrics.read(self._broker)
        if self._thread is None:
            self._thread = self._broker.platform.thread("metrics", self._broker.loop)
        made: asyncio.Future[bytes] = self._broker.loop.create_future()

        def done(page: bytes | None, error: Exception | None) -> None:
            if made.done():
                return
            if error is not None or page is None:
                made.set_exception(error or RuntimeError("no page"))
            else:
                made.set_result(page)

        self._thread.submit(lambda: text(reading), done)
        page = await made
        self._made_s = self._broker.loop.time()
        return page


def _answer(status: str, body: bytes, more: str = "", *, head: bool = False) -> bytes:
    lines = f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
    return f"{lines}{more}Connection: close\r\n\r\n".encode() + (b"" if head else body)
