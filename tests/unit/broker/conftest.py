"""A port of a broker that does as the test says, for the parts that talk to other brokers."""

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.broker.connection import Connection
from holdfast.broker.entity import build
from holdfast.broker.exchange import Exchange
from holdfast.broker.server import Server
from holdfast.model.listeners import ListenerUse
from holdfast.protocol.apis import ApiKey, response_type
from holdfast.protocol.framing import decode_request, encode_response
from holdfast.security.connection_limits import ConnectionLimits

DEADLINE_S = 10
EVERYTHING = ListenerUse(name="PLAINTEXT", for_brokers=True, for_operators=True)
"""The listener of a broker that has only one."""
Values = dict[str, Any]


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop run until it is so."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - it is the code under test that has no event to wait for
            await asyncio.sleep(0.001)


class Listener:
    """A listening port. Every request is decoded and kept; ``reply`` gives the fields of its answer, or None to
    leave it unanswered. Without errors by default."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[Any] = []
        self.unanswered: list[Exchange] = []
        self.reply: Callable[[Any], Values | None] = lambda request: {}
        self.ended: list[Connection] = []
        self.server = Server(
            dispatch=self._dispatch, on_close=self.ended.append, max_frame_bytes=1 << 24,
            limits=ConnectionLimits(connections=100), max_idle_ms=60_000,
        )  # fmt: skip
        self.port = self.server.bind("127.0.0.1", port, EVERYTHING)
        self.server.start()

    def of(self, api: int) -> list[Any]:
        """The requests of one API."""
        return [request for request in self.requests if int(request.__api_key__) == api]

    def _dispatch(self, exchange: Exchange) -> None:
        header = exchange.header
        request = decode_request(header.api_key, header.api_version, bytes(exchange.body))
        if header.api_key == ApiKey.API_VERSIONS:  # a sign of life
            self.answer(exchange, {})
            return
        self.requests.append(request)
        values = self.reply(request)
        if values is None:
            self.unanswered.append(exchange)
        else:
            self.answer(exchange, values)

    @staticmethod
    def answer(exchange: Exchange, values: Values) -> None:
        header = exchange.header
        response = build(response_type(header.api_key, header.api_version), values)
        exchange.finish([encode_response(header.correlation_id, response)])

    def answer_all(self) -> None:
        """What was left unanswered."""
        waiting, self.unanswered = self.unanswered, []
        for exchange in waiting:
            if not exchange.connection.closed:
                self.answer(exchange, {})

    def hang_up(self) -> None:
        """Close the connections; the port stays open."""
        for connection in list(self.server.connections):
            connection.close(None)

    def close(self) -> None:
        """The process is gone."""
        self.server.close()
