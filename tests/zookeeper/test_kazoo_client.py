"""What only a real server shows of KazooZooKeeper: its threads, servers that are silent, TLS and SASL."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from holdfast.coordination.kazoo_client import KazooZooKeeper
from holdfast.coordination.zookeeper_client import (
    AccessError,
    ConnectionLostError,
    Create,
    SessionExpiredError,
    SessionState,
)
from holdfast.coordination.zookeeper_settings import Digest, Sasl, Tls, ZooKeeperSettings
from holdfast.java.zookeeper import ServerSettings
from holdfast.model.errors import ConfigError
from holdfast.testing import free_port, wait_for
from tests.certificates import Authority, foreign
from tests.zookeeper.link import Link
from tests.zookeeper.server import TICK_MS, ZooKeeperServer

pytestmark = pytest.mark.system

CERTIFICATES = Path(__file__).parent / "certificates"
AUTHORITY = str(CERTIFICATES / "authority.pem")
HOSTS = Authority.make("Authority of hosts")
"""Of certificates that the server trusts, too."""
CHROOTS = (f"/kazoo/{number}" for number in count())
REFUSED = (
    r"^The ensemble does not accept the credentials of user holdfast \(zookeeper\.sasl\.username\): expected a user "
    r"that the servers' JAAS file has \(user_NAME\), with its password in zookeeper\.sasl\.password$"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Takes plain connections, encrypted ones that show a certificate, and SASL if a client wants it."""
    folder = tmp_path_factory.mktemp("zookeeper")
    jaas = folder / "jaas.conf"
    jaas.write_text('Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_holdfast="hush"; };\n')
    trusted = folder / "trusted.pem"
    trusted.write_text(Path(AUTHORITY).read_text() + HOSTS.pem)
    more = (
        f"secureClientPort={free_port()}",
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        f"ssl.keyStore.location={CERTIFICATES / 'server.pem'}",
        f"ssl.trustStore.location={trusted}",
        "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    )
    settings = ServerSettings(
        folder=folder, host="127.0.0.1", client_port=free_port(), tick_ms=TICK_MS, more=more,
        java_options=(f"-Djava.security.auth.login.config={jaas}",),
    )  # fmt: skip
    with ZooKeeperServer(folder, settings=settings) as started:
        started.secure_port = int(more[0].partition("=")[2])  # type: ignore[attr-defined]
        yield started


def settings_of(servers: str, *, session_timeout_ms: int = 2000) -> ZooKeeperSettings:
    return ZooKeeperSettings(servers=servers, session_timeout_ms=session_timeout_ms)


def started(settings: ZooKeeperSettings, timeout_s: float = 30) -> closing[KazooZooKeeper]:
    client = KazooZooKeeper(settings)
    client.start(timeout_s)
    return closing(client)


# -- threads and limits ----------------------------------------------------------------------------------------


def test_more_requests_than_allowed_wait_for_an_answer(server: ZooKeeperServer) -> None:
    link = Link(server.port)
    settings = dataclasses.replace(settings_of(link.connect, session_timeout_ms=8000), max_in_flight=2)
    with closing(link), started(settings) as client, started(settings_of(server.connect)) as other:
        client.write([Create(path="/bound")]).result(30)
        link.cut(to_server=False)
        sent: list[int] = []

        def write() -> None:
            for number in range(4):
                client.write([Create(path=f"/bound/{number}", ephemeral=True)])
                sent.append(number)

        thread = threading.Thread(target=write)
        thread.start()
        wait_for(lambda: other.children("/bound") == ["0", "1"], "two requests")
        assert sent == [0, 1] and thread.is_alive()
        link.mend()
        thread.join(30)
        wait_for(lambda: other.children("/bound") == ["0", "1", "2", "3"], "the others")


def test_threads_end_with_close_and_with_the_session(server: ZooKeeperServer) -> None:
    before = set(threading.enumerate())
    link = Link(server.port)
    with started(settings_of(link.connect)):
        assert set(threading.enumerate()) - before
    link.close()
    wait_for(lambda: set(threading.enumerate()) <= before, "the threads to end")


def test_no_session_is_made_after_one_that_has_expired(server: ZooKeeperServer) -> None:
    link = Link(server.port)
    states: list[SessionState] = []
    with closing(link), started(settings_of(link.connect)) as client, started(settings_of(server.connect)) as other:
        client.listen(states.append)
        client.write([Create(path="/gone", ephemeral=True)]).result(30)
        link.cut()
        wait_for(lambda: other.get("/gone") is None, "the session to expire")
        link.reset()
        link.mend()
        wait_for(lambda: SessionState.EXPIRED in states, "the news")
        taken = link.taken
        with started(settings_of(server.connect)), pytest.raises(SessionExpiredError):
            client.get("/")
        assert link.taken == taken


def test_a_callback_that_fails_harms_no_other(server: ZooKeeperServer, caplog: pytest.LogCaptureFixture) -> None:
    link, calls = Link(server.port), list[str]()

    def fail() -> None:
        raise RuntimeError("a mistake of the caller")

    with closing(link), started(settings_of(link.connect)) as client:
        client.children("/", watch=fail)
        client.get("/after", watch=lambda: calls.append("after"))
        client.write([Create(path="/after", ephemeral=True)]).result(30)
        wait_for(lambda: calls == ["after"], "the other watch")
    assert "a mistake of the caller" in caplog.text


# -- several servers -------------------------------------------------------------------------------------------


def full_port() -> tuple[socket.socket, list[socket.socket]]:
    """A port that takes no connection and refuses none, as a host without power: its queue is full."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        fillers.append(filler)
    return listener, fillers


def test_a_session_outlives_servers_that_take_no_connection(server: ZooKeeperServer) -> None:
    """Those that are tried take a third of the session's time together, so that one that serves is found in time."""
    listener, fillers = full_port()
    link, way_back = Link(server.port), Link(server.port)
    way_back.cut()  # takes connections and says nothing
    dead = f"127.0.0.1:{listener.getsockname()[1]}"
    states: list[SessionState] = []
    settings = settings_of(f"{link.connect},{dead},{way_back.connect}", session_timeout_ms=4000)
    with closing(link), closing(way_back), started(settings) as client:
        client.listen(states.append)
        client.write([Create(path="/kept", ephemeral=True)]).result(30)
        for _ in range(3):
            states.clear()
            link.reset()
            wait_for(lambda: states[-1:] == [SessionState.CONNECTED], "the session to go on")
            assert SessionState.EXPIRED not in states
        node = client.get("/kept")
        assert node is not None and node.stat.ephemeral_owner == client.session_id
    for each in (*fillers, listener):
        each.close()


# -- credentials -----------------------------------------------------------------------------------------------


def secure(server: ZooKeeperServer, tls: Tls, *, host: str = "localhost") -> ZooKeeperSettings:
    port: int = server.secure_port  # type: ignore[attr-defined]
    return dataclasses.replace(settings_of(f"{host}:{port}"), tls=tls)


@pytest.mark.parametrize(("keystore", "password"), [("client.pem", None), ("client-locked.pem", "hush")])
def test_tls_with_the_certificate_that_servers_ask_for(
    server: ZooKeeperServer, keystore: str, password: str | None
) -> None:
    tls = Tls(keystore=str(CERTIFICATES / keystore), keystore_password=password, truststore=AUTHORITY)
    with started(dataclasses.replace(secure(server, tls), set_acl=True)) as client:
        client.write([Create(path="/tls", ephemeral=True)]).result(30)
        with started(settings_of(server.connect)) as stranger:
            error = stranger.write([Create(path="/tls/x")]).exception(30)
            assert isinstance(error, AccessError)


@pytest.mark.parametrize(
    ("tls", "host", "expected"),
    [
        (Tls(keystore=str(CERTIFICATES / "client.pem")), "localhost", "self.signed certificate|unable to get local"),
        (Tls(keystore=str(CERTIFICATES / "client.pem"), truststore=AUTHORITY), "127.0.0.1", "IP address mismatch"),
        (Tls(truststore="/none.pem"), "localhost", "No such file"),
        (Tls(truststore=AUTHORITY), "localhost", "ask for a certificate: expected zookeeper.ssl.keystore.location"),
    ],
    ids=["unknown authority", "another name", "no truststore", "no certificate"],
)
def test_tls_that_cannot_be_says_why(server: ZooKeeperServer, tls: Tls, host: str, expected: str) -> None:
    with pytest.raises(ConnectionLostError, match=expected):
        KazooZooKeeper(secure(server, tls, host=host)).start(3)


def test_a_certificate_that_servers_do_not_trust_is_named(server: ZooKeeperServer, tmp_path: Path) -> None:
    keystore = str(tmp_path / "foreign.pem")
    Path(keystore).write_text(foreign().pem)
    expected = re.escape(
        f"do not take the certificate in {keystore} (zookeeper.ssl.keystore.location): expected one of"
    )
    with pytest.raises(ConnectionLostError, match=expected):
        KazooZooKeeper(secure(server, Tls(keystore=keystore, truststore=AUTHORITY))).start(3)


def test_certificates_of_several_hosts_are_several_identities(server: ZooKeeperServer, tmp_path: Path) -> None:
    """As with Kafka: with ACLs by certificates alone all brokers show one subject."""
    settings = []
    for host in ("host-1", "host-2"):
        keystore = tmp_path / f"{host}.pem"
        keystore.write_text(HOSTS.issue(host).pem)
        made = secure(server, Tls(keystore=str(keystore), truststore=AUTHORITY))
        settings.append(dataclasses.replace(made, set_acl=True, chroot="/hosts"))
    with started(settings[0]) as one, started(settings[1]) as two:
        one.write([Create(path="/config"), Create(path="/config/users")]).result(30)
        with pytest.raises(
            AccessError, match=r"host-2\.pem .* one identity, and certificates of several hosts are one"
        ):
            two.get("/config/users")
        digest = Digest(user="holdfast", password="hush")
        both = [dataclasses.replace(each, digest=digest, chroot="/both") for each in settings]
        with started(both[0]) as one, started(both[1]) as two:
            one.write([Create(path="/config"), Create(path="/config/users")]).result(30)
            assert two.get("/config/users") is not None


def test_a_port_of_the_other_kind_says_which_key_is_wrong(server: ZooKeeperServer) -> None:
    plain = dataclasses.replace(secure(server, Tls()), tls=None)
    with pytest.raises(ConnectionLostError, match=r"takes TLS does: expected zookeeper\.ssl\.client\.enable=true for"):
        KazooZooKeeper(plain).start(3)
    tls = Tls(keystore=str(CERTIFICATES / "client.pem"), truststore=AUTHORITY)
    with pytest.raises(ConnectionLostError, match=r"zookeeper\.ssl\.client\.enable=true: expected a port in zookeeper"):
        KazooZooKeeper(dataclasses.replace(settings_of(server.connect), tls=tls)).start(3)


def test_tls_takes_another_name_where_it_is_told_to(server: ZooKeeperServer) -> None:
    tls = Tls(keystore=str(CERTIFICATES / "client.pem"), truststore=AUTHORITY, check_hostname=False)
    with started(secure(server, tls, host="127.0.0.1")) as client:
        assert client.get("/") is not None


def test_sasl_gives_a_name_that_acls_go_by(server: ZooKeeperServer) -> None:
    sasl = Sasl(mechanism="DIGEST-MD5", user="holdfast", password="hush")
    settings = dataclasses.replace(settings_of(server.connect), sasl=sasl, set_acl=True)
    with started(settings) as client, started(settings_of(server.connect)) as stranger:
        client.write([Create(path="/sasl", ephemeral=True)]).result(30)
        error = stranger.write([Create(path="/sasl/x")]).exception(30)
        assert isinstance(error, AccessError)


def test_sasl_with_a_wrong_password_is_refused_and_not_tried_again(server: ZooKeeperServer) -> None:
    link = Link(server.port)
    sasl = Sasl(mechanism="DIGEST-MD5", user="holdfast", password="guess")
    with closing(link), pytest.raises(AccessError, match=REFUSED):
        KazooZooKeeper(dataclasses.replace(settings_of(link.connect), sasl=sasl)).start(20)
    assert link.taken == 1


@pytest.mark.parametrize(
    ("digest", "expected"),
    [
        (Digest(user="holdfast", password="guess"), "user holdfast with the password that is given (zookeeper.auth."),
        (Digest(user="other", password="hush"), "user other with the password that is given (zookeeper.auth.digest)"),
        (None, "nobody: it has no zookeeper.sasl.mechanism, zookeeper.auth.digest or zookeeper.ssl.keystore.location"),
    ],
    ids=["another password", "another user", "nobody"],
)
def test_an_acl_of_others_says_who_this_one_is(server: ZooKeeperServer, digest: Digest | None, expected: str) -> None:
    owner = dataclasses.replace(
        settings_of(server.connect), chroot=next(CHROOTS), digest=Digest(user="holdfast", password="hush"), set_acl=True
    )
    said = re.escape(f"/config/users: its ACL does not allow it. This client is {expected}")
    with started(owner) as client:
        client.write([Create(path="/config"), Create(path="/config/users")]).result(30)
        with started(dataclasses.replace(owner, digest=digest, set_acl=False)) as other:
            with pytest.raises(AccessError, match=said) as caught:
                other.get("/config/users")
            assert "hush" not in str(caught.value)


def test_sasl_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    settings = dataclasses.replace(settings_of("one:1"), sasl=Sasl(mechanism="GSSAPI"))
    with pytest.raises(ConfigError, match=r"needs the package pure-sasl: pip install 'holdfast\[zookeeper-sasl\]'"):
        KazooZooKeeper(settings)


def test_passwords_are_in_no_log(server: ZooKeeperServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    sasl = Sasl(mechanism="DIGEST-MD5", user="holdfast", password="hush")
    with started(dataclasses.replace(settings_of(server.connect), sasl=sasl)) as client:
        assert client.get("/") is not None
    assert "hush" not in caplog.text
