"""``GET /metrics`` and ``/health/...``: the port that Prometheus scrapes and that says how a broker is (metrics.port).

Owns a small HTTP/1.1 responder on the broker's event loop and the page that it last made. Knows four paths, reads
nothing but the head of a request, closes after each answer. Everything is bounded: connections, bytes of a head, time
of a request, how much of a page is made in one turn of the loop; a page serves all who ask within a second. It answers
from the beginning of the start on, when there is health to be told and no metric yet.

    came --a whole head--> asks --the answer is taken--> closed        came --5 s, or 200 came later--> closed

Nobody logs in here, and an orchestrator kills a broker that does not say that it lives. So connections that ask nothing
take no place of those that ask, and /health/live and /health/ready, which cost nothing, are never refused.

Metrics never keep a broker from serving: a port that is taken is told in the log and tried again.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from holdfast.broker import health, metrics
from holdfast.broker.metrics_lines import pieces
from holdfast.broker.metrics_process import process_lines
from holdfast.broker.metrics_text import lines
from holdfast.model.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.broker.platform import Platform, WorkThread

log = logging.getLogger(__name__)

PATH = "/metrics"
HEALTH = "/health/"
LIVE, READY, SAFE_TO_STOP = "live", "ready", "safe-to-stop"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
JSON_TYPE = "application/json"
MAX_ASKING = 16
"""Connections that have asked for what has to be made, and have not taken it yet."""
MAX_SILENT = 200
"""Connections without a whole request. Twice as many as are accepted in one turn of the loop: who asks at once is read
before so many have come later."""
SILENT_S = 5.0
MAX_HEAD_BYTES = 8192
REQUEST_TIMEOUT_S = 10.0
FRESH_S = 1.0
"""How old a page may be that is served again."""
BIND_RETRY_S = 1.0
IN_A_TURN_S = 0.001
"""For so long, and a piece more, a page is written before the loop may do something else."""
REMEMBER_S = 10.0
BEAT_S = 1.0
"""How often it is noted that the loop turns."""
WORTH_PACKING = 1400
"""Bytes of a page from which on it is compressed for who takes that."""


class ScrapedHost(metrics.MeasuredHost, health.HealthHost, Protocol):
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
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """The oldest first."""
        self._asking: dict[asyncio.StreamWriter, bool] = {}
        """Whether its answer is on the way; the oldest first."""
        self._retry: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[None] | None = None
        self._page: asyncio.Task[bytes] | None = None
        self._made_s = 0.0
        self._told = False
        self._minute: asyncio.TimerHandle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._turned_s = 0.0
        self._packed: tuple[bytes, bytes] | None = None
        """A page, and the same compressed."""
        self._serves = False

    def start(self) -> None:
        """Listen now, or as soon as the port can be had; of the broker's parts nothing needs to be there yet."""
        self._turn()
        self._try()

    def open(self) -> None:
        """The broker serves: there are metrics to be told."""
        self._serves = True
        self._remember()

    def _try(self) -> None:
        self._starting = self._broker.loop.create_task(self._listen())

    async def _listen(self) -> None:
        try:
            sock = self._broker.platform.listen(self._host, self._port)
        except ConfigError as e:
            if not self._told:
                log.warning("no metrics for now: metrics.port: %s", str(e).partition(": ")[2])
            self._told = True
            self._retry = self._broker.loop.call_later(BIND_RETRY_S, self._try)
            return
        self._server = await asyncio.start_server(self._accept, sock=sock, limit=MAX_HEAD_BYTES)
        log.info("metrics at http://%s:%d%s", self._host or "0.0.0.0", self._port, PATH)

    def _remember(self) -> None:
        """Quantiles are of the last minute: keep what there was."""
        if self._broker.meters is not None:
            self._broker.meters.remember()
        self._minute = self._broker.loop.call_later(REMEMBER_S, self._remember)

    def _turn(self) -> None:
        self._turned_s = self._broker.loop.time()
        self._beat = self._broker.loop.call_later(BEAT_S, self._turn)

    def close(self) -> None:
        """Stop listening, and end what is under way."""
        for timer in (self._minute, self._beat):
            if timer is not None:
                timer.cancel()
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
        writer.transport.set_write_buffer_limits(high=0)  # what is drained then is taken by the kernel
        taken = False
        try:
            head = await self._head(reader, writer)
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                answer = await self._respond(head, writer)
                if writer in self._asking:
                    self._asking[writer] = True
                writer.write(answer)
                await writer.drain()
            taken = True
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # who asked has gone, or says nothing, or takes nothing
        except Exception:
            log.exception("metrics: a request failed")
        finally:
            self._connections.discard(task)
            self._silent.pop(writer, None)
            self._asking.pop(writer, None)
            if taken:
                writer.close()
            else:
                writer.transport.abort()  # close would wait for what nobody takes

    async def _head(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Of a request; empty where it is too long. Where too many are silent the oldest goes: one that means it has
        asked by then."""
        self._silent[writer] = None
        if len(self._silent) > MAX_SILENT:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()
        try:
            async with asyncio.timeout(SILENT_S):
                return await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return b""
        finally:
            self._silent.pop(writer, None)

    def _may_ask(self, writer: asyncio.StreamWriter) -> bool:
        """Whether there is a place for what has to be made. Who does not take an answer gives way to who asks."""
        if len(self._asking) >= MAX_ASKING:
            slow = next((each for each, is_made in self._asking.items() if is_made), None)
            if slow is None:
                return False
            del self._asking[slow]
            slow.transport.abort()
        self._asking[writer] = False
        return True

    async def _respond(self, head: bytes, writer: asyncio.StreamWriter) -> bytes:
        if not head:
            return _answer("431 Request Header Fields Too Large", b"")
        method, _, rest = head.split(b"\r\n", 1)[0].partition(b" ")
        target, _, version = rest.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            return _answer("400 Bad Request", b"expected HTTP/1.1\n")
        if method not in (b"GET", b"HEAD"):
            return _answer("405 Method Not Allowed", b"", "Allow: GET, HEAD\r\n")
        is_head, path = method == b"HEAD", target.partition(b"?")[0].decode("latin-1")
        if path in (PATH, HEALTH + SAFE_TO_STOP) and not self._may_ask(writer):
            return _answer("503 Service Unavailable", b"too many connections\n")
        if path.startswith(HEALTH):
            return await self._health(path.removeprefix(HEALTH), is_head=is_head)
        if path != PATH:
            return _answer("404 Not Found", f"see {PATH}, {', '.join(HEALTH + each for each in _QUESTIONS)}\n".encode())
        if not self._serves:
            return _answer("503 Service Unavailable", f"no metrics yet: see {HEALTH}{READY}\n".encode())
        page = await self._current()
        if len(page) < WORTH_PACKING or not _takes_gzip(head):
            return _answer("200 OK", page, _VARY, head=is_head)
        return _answer("200 OK", await self._pack(page), f"{_VARY}Content-Encoding: gzip\r\n", head=is_head)

    async def _health(self, question: str, *, is_head: bool) -> bytes:
        if question == LIVE:
            # Whoever asks is answered by the loop itself: how long it had stood still is what there is to be told.
            is_so, told = health.live(self._broker.loop.time() - self._turned_s - BEAT_S)
        elif question == READY:
            is_so, told = health.ready(self._broker)
        elif question == SAFE_TO_STOP:
            is_so, told = await health.safe_to_stop(self._broker)
        else:
            expected = ", ".join(_QUESTIONS)
            return _answer("404 Not Found", f"{HEALTH}{question[:40]}: expected one of {expected}\n".encode())
        status = "200 OK" if is_so else "503 Service Unavailable"
        return _answer(status, json.dumps(told).encode() + b"\n", head=is_head, kind=JSON_TYPE)

    async def _pack(self, page: bytes) -> bytes:
        if self._packed is None or self._packed[0] is not page:
            self._packed = page, await self._on_thread(partial(gzip.compress, page, 1, mtime=0))
        return self._packed[1]

    async def _on_thread(self, work: Callable[[], bytes]) -> bytes:
        if self._thread is None:
            self._thread = self._broker.platform.thread("metrics", self._broker.loop)
        made: asyncio.Future[bytes] = self._broker.loop.create_future()

        def done(result: bytes | None, error: Exception | None) -> None:
            if made.done():
                return
            if error is not None or result is None:
                made.set_exception(error or RuntimeError("no page"))
            else:
                made.set_result(result)

        self._thread.submit(work, done)
        return await made

    async def _current(self) -> bytes:
        """The page; one that is being made, or was made a moment ago, serves everybody."""
        loop = self._broker.loop
        stale = self._page is not None and self._page.done() and loop.time() - self._made_s > FRESH_S
        if self._page is None or stale or (self._page.done() and self._page.exception() is not None):
            self._page = loop.create_task(self._make())
        return await asyncio.shield(self._page)

    async def _make(self) -> bytes:
        reading = await metrics.read(self._broker)
        of_process = await self._on_thread(_process)
        page, loop = bytearray(), self._broker.loop
        turn_s = loop.time()
        for some in pieces(lines(reading)):
            page += some
            if loop.time() - turn_s >= IN_A_TURN_S:
                await asyncio.sleep(0)
                turn_s = loop.time()
        page += of_process
        self._made_s = loop.time()
        return bytes(page)


def _process() -> bytes:
    return "".join(process_lines()).encode()


_QUESTIONS = (LIVE, READY, SAFE_TO_STOP)
_VARY = "Vary: Accept-Encoding\r\n"


def _takes_gzip(head: bytes) -> bool:
    """By the Accept-Encoding of a request's head."""
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip() == b"accept-encoding":
            for item in value.split(b","):
                coding, _, weight = item.replace(b" ", b"").partition(b";q=")
                if coding in (b"gzip", b"*") and weight not in (b"0", b"0.0", b"0.00", b"0.000"):
                    return True
    return False


def _answer(status: str, body: bytes, more: str = "", *, head: bool = False, kind: str = CONTENT_TYPE) -> bytes:
    lines = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{lines}{more}Connection: close\r\n\r\n".encode() + (b"" if head else body)
