"""kazoo's client with what kazoo leaves out: one session and no second one, and a whole ensemble to try in time.

Owns what reaches into kazoo's insides; made for 2.11. It knows nothing of our protocol but the settings.

* kazoo makes a new session when the old one has expired. Here its thread ends instead.
* kazoo waits for as long as a session lasts for each server that does not answer. Here the third of that time which
  is left when a silent server is noticed is enough for all of them.
* kazoo waits longer and longer between two rounds over the servers, up to an hour. Here at most RETRY_S.
* kazoo cannot say how long a session the server has granted, nor why it could not connect.
* kazoo's multi says nothing of a new node but its name. Here it has the stat too, as ZooKeeper answers it since 3.5.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import CLOSED_STATES, KazooClient
from kazoo.exceptions import EXCEPTIONS, WriterNotClosedException
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import (
    CheckVersion,
    Connect,
    Create2,
    Delete,
    GetData,
    MultiHeader,
    SetData,
    Transaction,
    int_struct,
    read_buffer,
    read_string,
    stat_struct,
)
from kazoo.protocol.states import Callback, KeeperState, ZnodeStat
from kazoo.retry import KazooRetry

from holdfast.coordination.zookeeper_settings import ZooKeeperSettings

log = logging.getLogger(__name__)
log.setLevel(max(logging.INFO, log.level))  # kazoo writes what it sends at DEBUG, passwords too

RETRY_S = 0.5
"""Between two rounds over all servers that do not answer."""
SHORTEST_S = 0.1
"""What each server has at least, to take a connection."""


class KazooMulti(Transaction):  # type: ignore[misc]
    """A multi whose answer is a list with an entry for each operation: (path, ZnodeStat) of a Create2, a ZnodeStat of a
    SetData, None of the others, or the error."""

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        while True:
            header, offset = MultiHeader.deserialize(data, offset)
            if header.done:
                return results
            result: Any = None
            if header.type == Create2.type:
                path, offset = read_string(data, offset)
                result = (path, ZnodeStat._make(stat_struct.unpack_from(data, offset)))
                offset += stat_struct.size
            elif header.type == SetData.type:
                result = ZnodeStat._make(stat_struct.unpack_from(data, offset))
                offset += stat_struct.size
            elif header.type == -1:
                result = EXCEPTIONS[int_struct.unpack_from(data, offset)[0]]()
                offset += int_struct.size
            else:
                assert header.type in (Delete.type, CheckVersion.type), f"a multi answers with {header}"
            results.append(result)


class MultiRead:
    """Many nodes by one request, which servers know since 3.6. Its answer is a list with (data, ZnodeStat) or the error
    of each; who has less rights than it takes for one has the others. A class of its own, as kazoo has none."""

    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        parts: list[bytes] = []
        for path in self._paths:
            parts += (MultiHeader(GetData.type, False, -1).serialize(), GetData(path, None).serialize())
        return b"".join((*parts, MultiHeader(-1, True, -1).serialize()))

    def deserialize(self, data: bytes, offset: int) -> list[Any]:
        results: list[Any] = []
        while True:
            header, offset = MultiHeader.deserialize(data, offset)
            if header.done:
                return results
            if header.type == -1:
                results.append(EXCEPTIONS[int_struct.unpack_from(data, offset)[0]]())
                offset += int_struct.size
                continue
            found, offset = read_buffer(data, offset)
            results.append((found, ZnodeStat._make(stat_struct.unpack_from(data, offset))))
            offset += stat_struct.size

    def __str__(self) -> str:
        return f"MultiRead of {len(self._paths)} nodes"


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads; a server that does not take a connection within ``limit_s`` is left for the next."""

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self._limit_s = limit_s
        self.trouble: Exception | None = None
        """Why the last connection could not be made, or ended before there was a session."""

    def create_connection(self, *args: Any, timeout: float, **options: Any) -> Any:
        try:
            return super().create_connection(*args, timeout=min(timeout, self._limit_s), **options)
        except Exception as e:
            self.trouble = e
            raise


class KazooConnection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection: notes what was granted, and waits as briefly for a session that is resumed as for a
    connection. A new session is written by a majority first, and takes as long as their disks."""

    def __init__(self, *args: Any, limit_s: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limit_s = limit_s
        self.granted_ms: int | None = None

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        try:
            answer = super()._invoke(min(timeout, self._limit_s) if request.session_id else timeout, request, xid)
        except Exception as e:  # with TLS 1.3 a server says no to a certificate only now
            self.handler.trouble = e.__context__ if isinstance(e.__context__, OSError) else e
            raise
        if answer[0].time_out > 0:
            self.granted_ms = answer[0].time_out
        return answer


class OneSession(KazooClient):  # type: ignore[misc]
    """A kazoo client that ends with its session. ``told`` hears every state before kazoo acts on it, in its thread."""

    def __init__(self, settings: ZooKeeperSettings, told: Callable[[KeeperState], None]) -> None:
        self._told = told
        limit_s = max(SHORTEST_S, settings.session_timeout_ms / 1000 / 3 / settings.number_of_servers)
        handler = Handler(limit_s)
        retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=RETRY_S, sleep_func=handler.sleep_func)
        tls, sasl = settings.tls, _sasl_options(settings)
        super().__init__(
            hosts=settings.servers,
            timeout=settings.session_timeout_ms / 1000,
            handler=handler,
            connection_retry=retry,
            auth_data=[("digest", f"{settings.digest.user}:{settings.digest.password}")] if settings.digest else [],
            sasl_options=sasl,
            logger=log,
            use_ssl=tls is not None,
            certfile=tls and tls.keystore,
            keyfile=tls and tls.keystore,
            keyfile_password=tls and (tls.keystore_password or ""),  # None: OpenSSL would ask at the terminal
            ca=tls and tls.truststore,
            check_hostname=tls is not None and tls.check_hostname,
        )
        self._connection = KazooConnection(
            self, self._conn_retry.copy(), logger=log, sasl_options=sasl, limit_s=limit_s
        )  # fmt: skip

    @property
    def id_of_session(self) -> int:
        return int(self._session_id or 0)

    @property
    def granted_ms(self) -> int | None:
        granted: int | None = self._connection.granted_ms
        return granted

    @property
    def trouble(self) -> str:
        """Why it could not connect; empty when it has not tried or nobody knows."""
        return "" if self.handler.trouble is None else str(self.handler.trouble)

    def send(self, request: Any, answered: Callable[[Any], None]) -> None:
        """Queue it for the connection; ``answered`` has kazoo's result, in a thread of kazoo's."""
        result = self.handler.async_result()
        self._call(request, result)
        result.rawlink(answered)

    def later(self, work: Callable[..., None], *args: Any) -> None:
        """Call something in the thread that calls watches, in turn."""
        self.handler.dispatch_callback(Callback("session", work, args))

    def end(self) -> None:
        """End the session if it has not, and all threads; returns when they have ended or do not."""
        try:
            if self._stopped.is_set():
                self._safe_close()
            else:
                self.stop()
            self.close()
        except WriterNotClosedException as e:
            log.warning("The connection to %s does not end: %s", self.hosts, e)

    def _session_callback(self, state: KeeperState) -> None:
        if state != self._state:
            self._told(state)
        super()._session_callback(state)
        if state in CLOSED_STATES:
            self._stopped.set()  # its loop asks before it connects again


def _sasl_options(settings: ZooKeeperSettings) -> dict[str, str] | None:
    """As the package pure-sasl takes them, which kazoo hands them to."""
    sasl = settings.sasl
    if sasl is None:
        return None
    given = {
        "mechanism": sasl.mechanism,
        "service": sasl.service,
        "username": sasl.user,
        "password": sasl.password,
        "principal": sasl.principal,
    }
    return {name: value for name, value in given.items() if value is not None}
