"""How a broker speaks to others: which of its keys count for which listener; connections that log in and stay so."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.metadata.v0.request import MetadataRequest

from holdfast.client.connection import BrokerConnection
from holdfast.client.errors import AuthenticationError, BrokerUnreachable, ConnectionLost
from holdfast.client.oauth import UnsecuredToken
from holdfast.client.outgoing import Outgoing
from holdfast.model.errors import ConfigError
from holdfast.model.listeners import Endpoint, SecurityProtocol
from tests.secure_front import FakeSasl, SecureFront
from tests.unit.broker.conftest import Listener

CERTIFICATES = Path(__file__).parents[2] / "zookeeper/certificates"
SECRET = "hush=,"
KEYS = {
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.within.scram-sha-512.sasl.jaas.config": (
        f'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="{SECRET}";'
    ),
    "listener.name.within.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="{SECRET}" '
        f'user_admin="{SECRET}" user_alice="x";'
    ),
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": str(CERTIFICATES / "authority.pem"),
}


def within(protocol: str, port: int = 1, name: str = "WITHIN") -> Endpoint:
    return Endpoint(name=name, host="localhost", port=port, security_protocol=SecurityProtocol[protocol])


def tls_server() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    return context


# -- the keys ------------------------------------------------------------------------------------------------------


def test_a_listener_has_its_own_words_and_else_those_of_all(tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text((CERTIFICATES / "server.pem").read_text())
    outgoing = Outgoing(
        KEYS
        | {
            "listener.name.within.ssl.keystore.location": str(CERTIFICATES / "client.pem"),
            "listener.name.elsewhere.ssl.truststore.location": str(other),
            "ssl.endpoint.identification.algorithm": "",
            "listener.name.within.ssl.endpoint.identification.algorithm": "https",
        }
    )
    mine, elsewhere = outgoing.settings(within("SASL_SSL")), outgoing.settings(within("SSL", name="ELSEWHERE"))
    assert mine.tls is not None and elsewhere.tls is not None and mine.sasl is not None
    assert mine.tls.certificates is not None and elsewhere.tls.certificates is None
    assert mine.tls.trusted != elsewhere.tls.trusted
    assert (mine.tls.check_hostname, elsewhere.tls.check_hostname) == (True, False)
    assert (mine.sasl.mechanism, mine.sasl.user, mine.sasl.password) == ("SCRAM-SHA-512", "admin", SECRET)
    assert elsewhere.sasl is None and SECRET not in repr(mine)
    assert outgoing.settings(within("SASL_SSL")) is mine
    outgoing.renew()
    assert outgoing.settings(within("SASL_SSL")) is not mine


def test_the_line_of_the_listener_may_name_the_users_that_it_takes() -> None:
    outgoing = Outgoing(KEYS | {"sasl.mechanism.inter.broker.protocol": "plain"})
    found = outgoing.settings(within("SASL_PLAINTEXT"))
    assert found.sasl is not None and found.tls is None
    assert (found.sasl.mechanism, found.sasl.user, found.sasl.password) == ("PLAIN", "admin", SECRET)


def test_tokens_of_an_endpoint() -> None:
    found = Outgoing(
        {
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "listener.name.within.oauthbearer.sasl.jaas.config": (
                f'OAuthBearerLoginModule required clientId="me" clientSecret="{SECRET}";'
            ),
            "listener.name.within.sasl.oauthbearer.token.endpoint.url": "https://tokens/of",
            "sasl.oauthbearer.allowed.urls": "file:///keys,https://tokens/of",
        }
    ).settings(within("SASL_SSL"))
    assert found.sasl is not None and found.sasl.token is not None and SECRET not in repr(found)


def test_a_broker_asks_no_endpoint_for_a_token_that_is_not_allowed() -> None:
    keys = {
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.within.oauthbearer.sasl.jaas.config": (
            "OAuthBearerLoginModule required clientId=a clientSecret=b;"
        ),
        "sasl.oauthbearer.token.endpoint.url": "https://tokens/of",
    }
    for allowed in ({}, {"sasl.oauthbearer.allowed.urls": "https://tokens/,https://tokens/of/others"}):
        with pytest.raises(ConfigError, match=r"endpoint\.url is not allowed: .* sasl\.oauthbearer\.allowed\.urls"):
            Outgoing(keys | allowed).settings(within("SASL_SSL"))


def test_the_line_of_a_listener_says_what_tokens_it_takes_as_well() -> None:
    line = (
        'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker" unsecuredValidatorRequiredScope="a" '
        'ssl.truststore.location="/ca";'
    )
    keys = {
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.within.oauthbearer.sasl.jaas.config": line,
    }
    found = Outgoing(keys).settings(within("SASL_SSL"))
    assert found.sasl is not None and found.sasl.token == UnsecuredToken(claims=(("sub", "broker"),))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"sasl.mechanism.inter.broker.protocol": None},
            "sasl.mechanism.inter.broker.protocol is missing: expected PLAIN or SCRAM-SHA-256 .* listener WITHIN",
        ),
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "=GSSAPI: expected PLAIN or"),
        (
            {"listener.name.within.scram-sha-512.sasl.jaas.config": None},
            r"listener.name.within.scram-sha-512.sasl.jaas.config is missing: .*ScramLoginModule required username",
        ),
        (
            {"listener.name.within.scram-sha-512.sasl.jaas.config": "PlainLoginModule required a=b;"},
            "expected ScramLoginModule for sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512",
        ),
        (
            {"listener.name.within.scram-sha-512.sasl.jaas.config": "ScramLoginModule required user_a=b;"},
            'jaas.config: username="..." is missing: by it this broker logs in at others',
        ),
        (
            {"listener.name.within.scram-sha-512.sasl.jaas.config": "ScramLoginModule required username='a;"},
            "jaas.config: a quote at character",
        ),
        ({"ssl.truststore.location": "/none.pem"}, "ssl.truststore.location"),
    ],
)
def test_what_is_missing_is_named(changed: dict[str, str | None], words: str) -> None:
    given = {name: text for name, text in (KEYS | changed).items() if text is not None}
    outgoing = Outgoing(given)
    with pytest.raises(ConfigError, match=words):
        outgoing.check(within("SASL_SSL"))
    outgoing.check(within("PLAINTEXT"))


# -- connections -----------------------------------------------------------------------------------------------------


@contextmanager
def front(listener: Listener, *, tls: bool = True, sasl: FakeSasl | None = None) -> Iterator[SecureFront]:
    with SecureFront([("127.0.0.1", listener.port)], tls=tls_server() if tls else None, sasl=sasl) as running:
        yield running


def users(lifetime_ms: int = 0) -> FakeSasl:
    return FakeSasl(("PLAIN", "SCRAM-SHA-512"), {"admin": SECRET}, lifetime_ms=lifetime_ms)


def run(check: Callable[[Listener], Awaitable[None]]) -> None:
    async def main() -> None:
        listener = Listener()
        listener.reply = lambda request: {"controller_id": 7}
        try:
            async with asyncio.timeout(30):
                await check(listener)
        finally:
            listener.close()

    asyncio.run(main())


async def asked(connection: BrokerConnection) -> Any:
    return await connection.request(MetadataRequest(topics=()), timeout_s=10)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_what_a_listener_asks_for_is_spoken(protocol: str) -> None:
    async def check(listener: Listener) -> None:
        sasl = users() if "SASL" in protocol else None
        with front(listener, tls="SSL" in protocol, sasl=sasl) as standing:
            port = standing.ports[listener.port]
            closed: list[Exception | None] = []
            connection = Outgoing(KEYS).connection(within(protocol, port), "broker-1-fetcher", on_close=closed.append)
            await connection.open(10)
            await asked(connection)
            connection.close()
            assert closed == [None]
            if sasl is not None:
                assert sasl.logins == [(1, "admin")]
            probe = Outgoing(KEYS).probe(within(protocol, port), "controller-probe")
            await probe.open(10)
            await probe.request(ApiVersionsRequest(), timeout_s=10)
            probe.close()
            assert sasl is None or len(sasl.logins) == 1, "a sign of life needs no login"

    run(check)


def test_a_session_is_renewed_while_requests_wait_and_none_is_lost() -> None:
    async def check(listener: Listener) -> None:
        sasl = users(lifetime_ms=300)
        with front(listener, sasl=sasl) as standing:
            connection = Outgoing(KEYS).connection(within("SASL_SSL", standing.ports[listener.port]), "broker-1-x")
            await connection.open(10)
            while len(sasl.logins) < 4:
                await asyncio.gather(*(asked(connection) for _ in range(20)))
                connection.send_raw(3, 0, b"\0\0\0\0")
                await connection.drained()
            connection.close()
            assert {number for number, _ in sasl.logins} == {1}, "on one connection"
            assert standing.trouble == []

    run(check)


def test_a_session_that_is_not_renewed_ends_the_connection_and_says_why() -> None:
    async def check(listener: Listener) -> None:
        sasl = users(lifetime_ms=200)
        with front(listener, sasl=sasl) as standing:
            closed: list[Exception | None] = []
            connection = Outgoing(KEYS).connection(
                within("SASL_SSL", standing.ports[listener.port]), "broker-1-x", on_close=closed.append
            )
            await connection.open(10)
            sasl.users["admin"] = "another"
            with pytest.raises(AuthenticationError, match=r"mechanism SCRAM-SHA-512: the login is refused") as raised:
                while True:
                    await asked(connection)
            assert closed == [raised.value] and not connection.is_open
            with pytest.raises(ConnectionLost):
                await asked(connection)

    run(check)


def test_a_login_that_fails_is_told_once_to_who_opens() -> None:
    async def check(listener: Listener) -> None:
        with front(listener, sasl=FakeSasl(("SCRAM-SHA-512",), {"admin": "another"})) as standing:
            closed: list[Exception | None] = []
            outgoing = Outgoing(KEYS)
            there = within("SASL_SSL", standing.ports[listener.port])
            connection = outgoing.connection(there, "broker-1-x", on_close=closed.append)
            with pytest.raises(AuthenticationError, match="the login is refused"):
                await connection.open(10)
            assert closed == [] and not connection.is_open

    run(check)


def test_a_listener_that_says_nothing_is_waited_for_and_no_longer() -> None:
    async def check(listener: Listener) -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with await asyncio.start_server(silent, "localhost", 0) as server:
            port = server.sockets[0].getsockname()[1]
            for protocol in ("SSL", "SASL_PLAINTEXT"):
                connection = Outgoing(KEYS).connection(within(protocol, port), "broker-1-x")
                with pytest.raises((BrokerUnreachable, AuthenticationError, ConnectionLost)):
                    await connection.open(0.1)
                assert not connection.is_open

    run(check)
