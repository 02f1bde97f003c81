"""One connection to one broker: requests go out pipelined, answers come back by correlation id.

Owns the socket, the correlation ids and the deadlines of unanswered requests. Never retries, never routes,
never reconnects, and knows nothing of topics. Lives on one event loop; no method may be called from another
thread.

Answers larger than the connection's small buffer are received straight into a buffer of their own, so that
the records of a fetch are copied once, by the kernel. The memoryview given to the caller is the caller's.

Invariants: every accepted request gets exactly one outcome (answer, RequestTimedOut, ConnectionLost);
``on_close`` is called once for a connection that was open.
"""

import asyncio
import socket
import ssl as ssl_module
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from holdfast.client.errors import (
    AuthenticationError,
    BrokerUnreachable,
    ConnectionLost,
    MalformedResponse,
    RequestTimedOut,
    TooManyInFlight,
)
from holdfast.client.oauth import token_of
from holdfast.client.sasl import SaslSettings, log_in
from holdfast.client.security import ALERT, CLOSED_AT_ONCE, PLAINTEXT_TO_TLS, TlsNames, nobody_is_there, tls_error
from holdfast.client.tls_connect import connect_tls
from holdfast.client.wire import decode_response, encode_request, encode_request_raw, response_body
from holdfast.model.errors import HoldfastError
from holdfast.protocol.sasl_codec import AUTHENTICATE, AUTHENTICATE_VERSIONS, HANDSHAKE

__all__ = [
    "BrokerConnection",
    "BrokerUnreachable",
    "ConnectionLost",
    "MalformedResponse",
    "OnResponse",
    "RequestTimedOut",
    "TooManyInFlight",
]

OnResponse: TypeAlias = Callable[[memoryview | None, Exception | None], None]
"""Called once per request, with the body after the response header, or with the error."""

SMALL_BUFFER_BYTES = 64 * 1024
DEFAULT_MAX_RESPONSE_BYTES = 256 * 1024 * 1024
"""Above any fetch.max.bytes in use; a larger size in a frame is taken for garbage."""
DEFAULT_MAX_IN_FLIGHT = 4096

_INT32 = struct.Struct(">i")
_OF_A_LOGIN = (HANDSHAKE, AUTHENTICATE)


class _Pending(NamedTuple):
    api_key: int
    version: int
    deadline_s: float
    on_response: OnResponse


class BrokerConnection(asyncio.BufferedProtocol):
    """A connection that is opened once and closed once.

    Errors: ``BrokerUnreachable`` from ``open``; ``ConnectionLost``, ``RequestTimedOut`` from requests; from both
    ``AuthenticationError`` where TLS or a login fails for good. A broker of TLS 1.3 tells only after the handshake that
    it does not take the client's certificate.

    With ``sasl`` it is open once it has logged in. A session that ends (KIP-368) is renewed by the first request after
    most of it is over; that one and those after it are kept until the broker has agreed.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        *,
        on_close: Callable[[Exception | None], None] | None = None,
        ssl: ssl_module.SSLContext | None = None,
        tls_names: TlsNames | None = None,
        sasl: SaslSettings | None = None,
        max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
    ) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self._on_close = on_close
        self._ssl = ssl
        self._tls_names = tls_names or TlsNames()
        self._sasl = sasl
        self._max_response_bytes = max_response_bytes
        self._max_in_flight = max_in_flight
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: asyncio.Transport | None = None
        self._opened = False
        self._closed = False
        self._renewal: tuple[float, float, int] | None = None
        """Of the session: when it has to be renewed by the loop's clock, how long that may take, and the version."""
        self._renewing: asyncio.Task[None] | None = None
        self._kept: list[bytes] | None = None  # what is asked while a login is under way
        self._correlation_id = 0
        self._pending: dict[int, _Pending] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._sent: asyncio.Event | None = None  # set while the system has taken all that was written
        self._small = bytearray(SMALL_BUFFER_BYTES)
        self._small_view = memoryview(self._small)
        self._filled = 0
        # The frame that is being received into a buffer of its own, without its 4-byte size.
        self._large: memoryview | None = None
        self._large_filled = 0

    # -- life ----------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._closed

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def open(self, timeout_s: float) -> None:
        """Connects, and logs in where it has ``sasl``. ``refused`` in the error is true only when every address of the
        host refused, or what listens there says that its broker was killed."""
        if self._transport is not None or self._closed:
            raise ConnectionLost(f"connection to {self.address} was opened before; make a new one")
        loop = self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                await self._connect(loop)
                if self._sasl is not None:
                    await self.log_in(self._sasl, AUTHENTICATE_VERSIONS[1], timeout_s)
        except TimeoutError:
            self.close()
            reason = f"no answer within {timeout_s:g} s"
            raise BrokerUnreachable(self.address, refused=False, reason=reason) from None
        except OSError as e:
            raise BrokerUnreachable(self.address, refused=False, reason=e.strerror or str(e) or type(e).__name__) from e
        if self._closed:
            raise ConnectionLost(f"connection to {self.address} ended as soon as it was made")
        self._opened = True

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> None:
        # One address at a time: create_connection over several hides whether all of them refused.
        found = await resolve(loop, self.host, self.port)
        errors: list[OSError] = []
        for ip in found:
            try:
                if self._ssl is None:
                    await loop.create_connection(lambda: self, ip, self.port)
                else:
                    await connect_tls(self, ip, self.port, self._ssl, self.host)
                return
            except ssl_module.SSLError as e:
                if nobody_is_there(e):
                    raise BrokerUnreachable(self.address, refused=True, reason="its broker was killed") from None
                failed = tls_error(self.address, e, self._tls_names)
                if failed is not None:
                    raise failed from None
                errors.append(e)
            except OSError as e:
                errors.append(e)
        refused = all(isinstance(e, ConnectionRefusedError) for e in errors)
        reason = "connection refused" if refused else str(errors[-1]) or type(errors[-1]).__name__
        if self._ssl is not None and isinstance(errors[-1], ConnectionError | ssl_module.SSLError) and not refused:
            reason = f"it closed the connection in the TLS handshake: {CLOSED_AT_ONCE}; expected a listener with TLS"
        raise BrokerUnreachable(self.address, refused=refused, reason=reason)

    def close(self) -> None:
        """Ends the connection; unanswered requests get ConnectionLost before this returns."""
        if self._transport is not None:
            self._transport.abort()
        self._finish(None)

    # -- logging in ----------------------------------------------------------------------------------------

    async def log_in(self, sasl: SaslSettings, version: int, timeout_s: float) -> None:
        """Logs in with SaslAuthenticate of ``version``; ``timeout_s`` bounds each answer. What is asked meanwhile
        waits. A login that fails ends the connection: AuthenticationError, or what ended it."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        self._sasl, self._kept = sasl, self._kept or []
        try:
            lasts_s = await self._exchange(sasl, version, timeout_s)
        except BaseException as error:
            self._give_up(error if isinstance(error, Exception) else None)
            raise
        self._renewal = None if lasts_s is None else (began_s + lasts_s, timeout_s, version)
        kept, self._kept = self._kept or [], None
        if self._transport is not None and not self._closed:
            for frame in kept:
                self._transport.write(frame)

    async def _exchange(self, sasl: SaslSettings, version: int, timeout_s: float) -> float | None:
        """After how many seconds to log in again."""
        token = None if sasl.token is None else await asyncio.to_thread(token_of, sasl.token)
        steps = log_in(sasl, self.address, version, token)
        request = next(steps)
        while True:
            body = await self.request_raw(request.api_key, request.version, request.body, timeout_s=timeout_s)
            try:
                request = steps.send(body)
            except StopIteration as done:
                lasts_s: float | None = done.value
                return lasts_s

    def _renew_in_time(self) -> None:
        """Before something is asked. From the moment on that a login has begun nothing else may be asked."""
        if self._renewal is None or self._kept is not None or self._sasl is None or self._loop is None:
            return
        limit_s, timeout_s, version = self._renewal
        if self._loop.time() >= limit_s:
            self._kept = []
            self._renewing = self._loop.create_task(self.log_in(self._sasl, version, timeout_s))
            self._renewing.add_done_callback(_told_by_the_connection)

    # -- requests ------------------------------------------------------------------------------------------

    async def request(self, entity: Any, *, timeout_s: float) -> Any:
        """Sends a request entity; its class tells API and version. Returns the response entity."""
        api_key, version = entity.__api_key__, entity.__version__
        body = await self._ask(api_key, version, encode_request, entity, timeout_s)
        try:
            return decode_response(api_key, version, body)
        except Exception as e:
            raise MalformedResponse(
                f"{self.address} answered API {api_key} version {version} with bytes that cannot be read: {e}"
            ) from e

    async def request_raw(self, api_key: int, version: int, body: bytes, *, timeout_s: float) -> memoryview:
        """Sends an encoded body; returns the body of the answer, after its header."""
        return await self._ask(api_key, version, encode_request_raw, body, timeout_s)

    def request_raw_cb(
        self, api_key: int, version: int, body: bytes, on_response: OnResponse, *, timeout_s: float
    ) -> None:
        """As ``request_raw`` without a future or a task. Raises when the request cannot be sent at all."""
        self._send(api_key, version, encode_request_raw, body, timeout_s, on_response)

    def send_raw(self, api_key: int, version: int, body: bytes) -> None:
        """Sends a request that gets no answer: Produce with acks=0."""
        transport = self._ready()
        self._renew_in_time()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = encode_request_raw(api_key, version, self._correlation_id, self.client_id, body)
        if self._kept is not None:
            self._kept.append(frame)
        else:
            transport.write(frame)

    async def drained(self) -> None:
        """Returns when the system has taken everything sent so far: what ``send_raw`` has for an answer."""
        if self._kept is not None and self._renewing is not None:
            await asyncio.wait((self._renewing,))
        if self._sent is not None:
            await self._sent.wait()
        if not self.is_open:
            raise ConnectionLost(f"connection to {self.address} is not open")

    async def _ask(
        self, api_key: int, version: int, encode: Callable[..., bytes], content: Any, timeout_s: float
    ) -> memoryview:
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

        def on_response(body: memoryview | None, error: Exception | None) -> None:
            if future.done():  # the caller was cancelled
                return
            if body is not None:
                future.set_result(body)
            else:
                future.set_exception(error or ConnectionLost(f"no answer from {self.address}"))

        self._send(api_key, version, encode, content, timeout_s, on_response)
        return await future

    def _ready(self) -> asyncio.Transport:
        if self._transport is None or self._closed:
            raise ConnectionLost(f"connection to {self.address} is not open")
        if len(self._pending) >= self._max_in_flight:
            raise TooManyInFlight(f"{self._max_in_flight} requests to {self.address} are unanswered")
        return self._transport

    def _send(
        self,
        api_key: int,
        version: int,
        encode: Callable[..., bytes],
        content: Any,
        timeout_s: float,
        on_response: OnResponse,
    ) -> None:
        transport = self._ready()
        is_of_a_login = api_key in _OF_A_LOGIN
        if not is_of_a_login:
            self._renew_in_time()
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = encode(api_key, version, correlation_id, self.client_id, content)
        assert self._loop is not None
        deadline_s = self._loop.time() + timeout_s
        self._pending[correlation_id] = _Pending(api_key, version, deadline_s, on_response)
        if self._sweep is None or self._sweep.when() > deadline_s:
            self._arm(deadline_s)
        if self._kept is not None and not is_of_a_login:
            self._kept.append(frame)
        else:
            transport.write(frame)

    # -- deadlines: one timer for the earliest of all --------------------------------------------------------

    def _arm(self, deadline_s: float) -> None:
        assert self._loop is not None
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep = self._loop.call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        assert self._loop is not None
        self._sweep = None
        now_s = self._loop.time()
        due = [c for c, pending in self._pending.items() if pending.deadline_s <= now_s]
        expired = [self._pending.pop(c) for c in due]
        if self._pending:
            self._arm(min(pending.deadline_s for pending in self._pending.values()))
        for pending in expired:
            pending.on_response(None, RequestTimedOut(f"{self.address} did not answer API {pending.api_key} in time"))

    # -- asyncio.BufferedProtocol ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=0)
        if self._closed:  # closed while connecting
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._small_view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is None:
            self._filled += nbytes
            self._take_frames()
            return
        self._large_filled += nbytes
        if self._large_filled == len(self._large):
            frame, self._large = self._large, None
            self._answered(frame.toreadonly())  # entities are read from nothing else

    def pause_writing(self) -> None:
        self._sent = asyncio.Event()

    def resume_writing(self) -> None:
        sent, self._sent = self._sent, None
        if sent is not None:
            sent.set()

    def eof_received(self) -> None:
        return None  # the transport closes itself

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(exc or ConnectionLost(f"{self.address} closed the connection"))

    def _take_frames(self) -> None:
        at, filled = 0, self._filled
        while filled - at >= 4:
            (size,) = _INT32.unpack_from(self._small, at)
            if not 4 <= size <= self._max_response_bytes:
                alert = self._small[at : at + 2] == ALERT
                what = PLAINTEXT_TO_TLS if alert else f"it announced an answer of {size} bytes"
                if self._small[at : at + 4] == b"HTTP":
                    what = "it speaks HTTP: expected a broker's port for clients"
                self._give_up(MalformedResponse(f"{self.address}: {what}"))
                return
            end = at + 4 + size
            if end > filled:
                if 4 + size > SMALL_BUFFER_BYTES:
                    self._begin_large(size, at + 4, filled)
                    return
                break
            # A copy, since the small buffer is used again while the caller may keep the answer.
            self._answered(memoryview(bytes(self._small_view[at + 4 : end])))
            if self._closed:
                return
            at = end
        if at:
            self._small[: filled - at] = self._small[at:filled]
            self._filled = filled - at

    def _begin_large(self, size: int, start: int, filled: int) -> None:
        have = filled - start
        self._large = memoryview(bytearray(size))
        self._large[:have] = self._small_view[start:filled]
        self._large_filled = have
        self._filled = 0

    def _answered(self, frame: memoryview) -> None:
        (correlation_id,) = _INT32.unpack_from(frame, 0)
        pending = self._pending.pop(correlation_id, None)
        if pending is None:
            if correlation_id > self._correlation_id or correlation_id < 0:
                self._give_up(MalformedResponse(f"{self.address} answered a request that was not sent"))
            return  # else: late, its caller was told RequestTimedOut
        if not self._pending and self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        try:
            body = response_body(pending.api_key, pending.version, frame)
        except HoldfastError as e:
            error = MalformedResponse(f"{self.address} sent a response header that cannot be read: {e}")
            pending.on_response(None, error)
            self._give_up(error)
            return
        pending.on_response(body, None)

    def _give_up(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._finish(error)

    def _finish(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self.resume_writing()
        pending, self._pending = self._pending, {}
        if self._renewing is not None and self._renewing is not asyncio.current_task(self._loop):
            self._renewing.cancel()
        self._kept = None
        refused = error if isinstance(error, AuthenticationError) else None
        if isinstance(error, ssl_module.SSLError):
            refused = tls_error(self.address, error, self._tls_names)
        reason = str(error) if error is not None else "closed by this side"
        for one in pending.values():
            one.on_response(None, refused or ConnectionLost(f"connection to {self.address} ended: {reason}"))
        if self._opened and self._on_close is not None:
            self._on_close(error)


def _told_by_the_connection(renewing: asyncio.Task[None]) -> None:
    """Why a session could not be renewed is told to those who wait for answers."""
    if not renewing.cancelled():
        renewing.exception()


async def resolve(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    """Addresses of a host; a numeric one costs no thread."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))
