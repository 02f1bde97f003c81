"""A broker of one page for client tests: frames over a real socket, answers as the test's handlers say."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from kio.index import load_request_schema
from kio.serial import entity_reader, entity_writer

Handler = Callable[[int, Any], Any]
"""(version, request entity) -> response entity | raw body bytes | None for no answer."""


class FakeBroker:
    """``handlers``: api key -> handler; ``seen`` holds every request in order of arrival."""

    def __init__(self, handlers: dict[int, Handler]) -> None:
        self.handlers = handlers
        self.seen: list[tuple[int, int, Any]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "FakeBroker":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop_all()

    def drop_all(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                self._answer(await reader.readexactly(size), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        api_key, version, correlation_id, name = struct.unpack_from(">hhih", frame)
        schema = load_request_schema(api_key, version)
        at = 10 + max(name, 0)
        if schema.__flexible__:
            at += 1
        request, _ = entity_reader(schema)(frame, at)
        self.seen.append((api_key, version, request))
        answer = self.handlers[api_key](version, request)
        if answer is None:
            return
        header = struct.pack(">i", correlation_id)
        if schema.__flexible__ and api_key != 18:
            header += b"\0"
        if not isinstance(answer, bytes):
            body = bytearray()
            entity_writer(type(answer))(_Sink(body), answer)
            answer = bytes(body)
        writer.write(struct.pack(">i", len(header) + len(answer)) + header + answer)


class _Sink:
    def __init__(self, into: bytearray) -> None:
        self.into = into

    def write(self, data: bytes) -> int:
        self.into += data
        return len(data)
