"""A connection through TLS whose server hears why, where the client breaks off the handshake.

OpenSSL writes an alert, as of a certificate that it does not trust; asyncio closes the connection and leaves the alert
unsent. The server would know of a connection that ended, and of no failed authentication. Owns the socket until
asyncio has it.
"""

import asyncio
import contextlib
import socket
import ssl
from typing import Any


class TellingObject(ssl.SSLObject):
    """The error of its handshake has what the server is to hear, as ``alert``."""

    outgoing: ssl.MemoryBIO | None = None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if self.outgoing is not None:
                error.alert = self.outgoing.read()  # type: ignore[attr-defined]
            raise


class TellingContext(ssl.SSLContext):
    """A client's context that makes such objects."""

    sslobject_class = TellingObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **more: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *args, **more)
        assert isinstance(made, TellingObject)
        made.outgoing = outgoing
        return made


async def connect_tls(protocol: asyncio.BaseProtocol, ip: str, port: int, context: ssl.SSLContext, host: str) -> None:
    """``create_connection`` to a numeric address. ``host``: whom the server's certificate has to name. A handshake that
    fails with a TellingContext is told to the server before the connection ends."""
    loop = asyncio.get_running_loop()
    found = socket.getaddrinfo(ip, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    family, kind, number, _, place = found[0]
    raw = socket.socket(family, kind, number)
    try:
        raw.setblocking(False)
        await loop.sock_connect(raw, place)
        own = raw.dup()  # asyncio closes the other one before it says what has failed
    except BaseException:
        raw.close()
        raise
    with own:
        try:
            await loop.create_connection(lambda: protocol, sock=raw, ssl=context, server_hostname=host)
        except ssl.SSLError as error:
            with contextlib.suppress(OSError):
                own.send(getattr(error, "alert", b""))
            raise
