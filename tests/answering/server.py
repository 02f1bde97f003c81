"""The sockets of answering brokers: one port each, on a loop of a thread, until the ``with`` ends."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

from holdfast.client.versions import LIST_OFFSETS, METADATA
from holdfast.protocol.framing import (
    SIZE,
    decode_request,
    encode_body,
    encode_response_raw,
    parse_request_header,
)
from holdfast.protocol.operating import MANAGE_LOG_DIRS
from tests.answering.answers import AnsweringBroker
from tests.answering.description import DescribedCluster

log = logging.getLogger(__name__)
LONGEST_REQUEST = 64 << 20
ASKED_AGAIN = frozenset((METADATA, LIST_OFFSETS, MANAGE_LOG_DIRS))
"""Of these a question is worked through once: nothing of them changes here but where logs end."""
Made = Callable[[float], bytes]
"""The bytes of an answer at so many seconds since the beginning."""


class AnsweringCluster:
    """``with AnsweringCluster(description) as cluster: cluster.bootstrap``."""

    def __init__(self, of: DescribedCluster) -> None:
        self._of = of
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="answering-brokers", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._began_s = time.monotonic()
        self.ports: dict[int, int] = {}
        self.asked: Counter[int] = Counter()
        """Requests by API, of all brokers."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *error: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> None:
        for broker_id in self._of.brokers:
            connected = _Connected(self, broker_id)
            server = await asyncio.start_server(connected, "127.0.0.1", 0)
            self._servers.append(server)
            self.ports[broker_id] = server.sockets[0].getsockname()[1]
            connected.broker = AnsweringBroker(self._of, broker_id, self.ports)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.gather(*(server.wait_closed() for server in self._servers))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connected: _Connected) -> None:
        """One connection, until it ends or asks what is not known."""
        self._writers.add(writer)
        try:
            while True:
                (size,) = SIZE.unpack(await reader.readexactly(4))
                if not 0 < size <= LONGEST_REQUEST:
                    raise ValueError(f"a request of {size} bytes")
                writer.write(self._answer(await reader.readexactly(size), connected))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # it has ended
        except KeyError as e:
            log.error("no answer is known to API %s", e)
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, frame: bytes, connected: _Connected) -> bytes:
        head = parse_request_header(frame)
        self.asked[head.api_key] += 1
        raw = frame[head.body_offset :]
        assert connected.broker is not None
        made = connected.made.get((head.api_key, raw))
        if made is None:
            request = decode_request(head.api_key, head.api_version, memoryview(raw))
            made = self._made(connected.broker, head.api_key, request)
            if head.api_key in ASKED_AGAIN:
                connected.made[head.api_key, raw] = made
        body = made(time.monotonic() - self._began_s)
        return encode_response_raw(head.api_key, head.api_version, head.correlation_id, body)

    def _made(self, broker: AnsweringBroker, api_key: int, request: Any) -> Made:
        if api_key == LIST_OFFSETS:
            return broker.offsets(request)
        body = encode_body(broker.answer(api_key, request))
        return lambda elapsed_s: body


class _Connected:
    """The one who takes connections of one broker."""

    def __init__(self, cluster: AnsweringCluster, broker_id: int) -> None:
        self._cluster = cluster
        self.broker_id = broker_id
        self.broker: AnsweringBroker | None = None
        self.made: dict[tuple[int, bytes], Made] = {}

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._cluster.serve(reader, writer, self)
