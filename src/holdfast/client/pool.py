"""Connections to the brokers of one cluster, opened when first used.

Owns which addresses are known, one connection per broker, that it is logged in, and what versions each broker
takes. Never looks into an answer other than those, never retries a request.
"""

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kio.schema.api_versions.v3.request import ApiVersionsRequest

from holdfast import __version__
from holdfast.client.connection import BrokerConnection
from holdfast.client.errors import BrokerUnreachable, ConnectionLost, NoBrokersAvailable, RequestTimedOut
from holdfast.client.refused import raise_for
from holdfast.client.sasl import authenticate_version
from holdfast.client.security import CLOSED_AT_ONCE, TLS_EXPECTED, SecuritySettings, tls_context
from holdfast.client.versions import UsableVersions, require
from holdfast.client.views import BrokerNode
from holdfast.model.errors import BrokerUnavailableError, ConfigError, NetworkError
from holdfast.model.types import BrokerId
from holdfast.protocol.sasl_codec import AUTHENTICATE

DEFAULT_PORT = 9092
WRONG_LANGUAGE = "it speaks "
"""In what a connection says of bytes that are another protocol's."""


def parse_bootstrap(servers: str | Iterable[str]) -> list[tuple[str, int]]:
    """``host:port,host:port`` -> pairs; ConfigError names the part that is not one."""
    parts = servers.split(",") if isinstance(servers, str) else list(servers)
    found = []
    for part in (p.strip() for p in parts):
        if not part:
            continue
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, str(DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"bootstrap server {part!r}: expected HOST:PORT, and a port of 1 to 65535")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ConfigError(f"bootstrap servers {servers!r}: expected HOST:PORT[,HOST:PORT...]")
    return found


class ConnectionPool:
    """One open connection per broker, and one to whatever bootstrap server answered."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        client_id: str,
        *,
        connect_timeout_s: float,
        security: SecuritySettings | None = None,
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._connect_timeout_s = connect_timeout_s
        tls = None if security is None else security.tls
        self._ssl = None if tls is None else tls_context(tls)
        self._tls_names = None if tls is None else tls.names
        self._sasl = None if security is None else security.sasl
        self._nodes: dict[BrokerId, BrokerNode] = {}
        self._open: dict[tuple[str, int], BrokerConnection] = {}
        self._versions: dict[tuple[str, int], Mapping[int, UsableVersions]] = {}
        self._opening: dict[tuple[str, int], asyncio.Task[BrokerConnection]] = {}
        self._closed = False

    def close(self) -> None:
        self._closed = True
        for task in self._opening.values():
            task.cancel()
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    @property
    def logs_in(self) -> bool:
        return self._sasl is not None

    def learn(self, nodes: Mapping[BrokerId, BrokerNode]) -> None:
        """The brokers of the cluster, as its last metadata tells them."""
        if nodes:
            self._nodes = dict(nodes)

    async def to_broker(self, broker_id: BrokerId) -> BrokerConnection:
        """BrokerUnavailableError when metadata has no such broker; BrokerUnreachable when it does not answer."""
        node = self._nodes.get(broker_id)
        if node is None:
            raise BrokerUnavailableError(f"broker {broker_id} is not in the cluster's metadata")
        return await self._to(node.host, node.port)

    async def to_any(self) -> BrokerConnection:
        """An open connection if there is one; else the first known address that answers."""
        for connection in self._open.values():
            if connection.is_open:
                return await self._to(connection.host, connection.port)
        known = [(node.host, node.port) for node in self._nodes.values()]
        random.shuffle(known)
        errors: list[str] = []
        for host, port in dict.fromkeys((*known, *self._bootstrap)):
            try:
                return await self._to(host, port)
            except NetworkError as e:
                errors.append(str(e))
        raise NoBrokersAvailable("no broker can be reached: " + "; ".join(errors))

    def require(self, connection: BrokerConnection, api_key: int, version: int) -> None:
        """UnsupportedVersionError when the broker of this connection does not take the request."""
        require(self._versions[connection.host, connection.port], api_key, version, connection.address)

    async def _to(self, host: str, port: int) -> BrokerConnection:
        if self._closed:
            raise ConnectionLost("the client is closed")
        address = host, port
        there = self._open.get(address)
        if there is not None and there.is_open:
            return there
        opening = self._opening.get(address)
        if opening is None:
            opening = self._opening[address] = asyncio.ensure_future(self._connect(host, port))
            opening.add_done_callback(lambda _: self._opening.pop(address, None))
        return await asyncio.shield(opening)

    async def _connect(self, host: str, port: int) -> BrokerConnection:
        connection = BrokerConnection(host, port, self._client_id, ssl=self._ssl, tls_names=self._tls_names)
        await connection.open(self._connect_timeout_s)
        try:
            request = ApiVersionsRequest(client_software_name="holdfast", client_software_version=__version__)
            try:
                answer = await connection.request(request, timeout_s=self._connect_timeout_s)
            except RequestTimedOut as e:
                reason = (
                    f"connected, and no answer within {self._connect_timeout_s:g} s: is it a broker's port for clients?"
                )
                raise BrokerUnreachable(connection.address, refused=False, reason=reason) from e
            except ConnectionLost as e:
                if self._ssl is not None or WRONG_LANGUAGE in str(e):
                    raise
                raise ConnectionLost(f"{e}: {CLOSED_AT_ONCE}; if it speaks TLS, {TLS_EXPECTED}") from e
            raise_for(answer.error_code.value, None, f"versions of broker {connection.address}")
            self._versions[host, port] = {
                int(api.api_key): UsableVersions(int(api.min_version), int(api.max_version)) for api in answer.api_keys
            }
            await self._log_in(connection)
        except BaseException:
            connection.close()
            raise
        self._open[host, port] = connection
        return connection

    async def _log_in(self, connection: BrokerConnection) -> None:
        if self._sasl is None:
            return
        offered = self._versions[connection.host, connection.port].get(AUTHENTICATE)
        version = authenticate_version(None if offered is None else offered.high, connection.address)
        await connection.log_in(self._sasl, version, self._connect_timeout_s)


async def ask(pool: ConnectionPool, connection: BrokerConnection, request: Any, timeout_s: float) -> Any:
    """One request entity on a connection of the pool, its version checked first."""
    pool.require(connection, int(request.__api_key__), int(request.__version__))
    return await connection.request(request, timeout_s=timeout_s)
