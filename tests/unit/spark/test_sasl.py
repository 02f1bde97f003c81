"""Logging in: each mechanism from options to records, at a listener that asks for it; what is said if it fails."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest

from holdfast.client import oauth
from holdfast.client.errors import AuthenticationError
from holdfast.client.sasl_options import parse_jaas
from holdfast.model.errors import ConfigError, NetworkError
from holdfast.spark.options import OptionError
from holdfast.spark.topics import Topics
from tests.secure_front import FakeSasl, SecureFront
from tests.unit.spark.log_cluster import LogCluster
from tests.unit.spark.test_security import END, TP, TRUST, before, parsed, read, tls_server

USERS = {"alice": 'se"c=r,e;t', "b=o,b": "other"}
PACKAGE = "org.apache.kafka.common.security"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
ALLOWED = "sasl.oauthbearer.allowed.urls"


def jaas(module: str, **options: str) -> str:
    quoted = [
        f'{name}="{value}"'.replace("\\", "\\\\") if '"' not in value else f"{name}='{value}'"
        for name, value in options.items()
    ]
    return f"{PACKAGE}.{module} required {' '.join(quoted)};"


def with_password(mechanism: str, user: str = "alice", password: str | None = None) -> dict[str, str]:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    line = jaas(module, username=user, password=USERS.get(user, "") if password is None else password)
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": line}


BEARER = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
UNSECURED = BEARER | {
    "sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule", unsecuredLoginStringClaim_sub="alice")
}


def claims(token: str) -> dict[str, Any]:
    head, body, signature = token.split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"} and not signature
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=="))
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[LogCluster]:
    with LogCluster(2) as running:
        log = running.topic("t")[0]
        for _ in range(END // 5000):
            log.append(5000)
        yield running


@pytest.fixture
def sasl() -> FakeSasl:
    return FakeSasl(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"), dict(USERS))


@pytest.fixture
def front(cluster: LogCluster, sasl: FakeSasl) -> Iterator[SecureFront]:
    with before(cluster, sasl=sasl) as running:
        yield running


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", list(USERS))
def test_user_and_password_open_the_driver_and_the_tasks(
    front: SecureFront, sasl: FakeSasl, mechanism: str, user: str
) -> None:
    assert read(front, with_password(mechanism, user)) == list(range(END))
    assert {name for _, name in sasl.logins} == {user} and len(sasl.logins) >= 2


def test_over_tls_too(cluster: LogCluster, sasl: FakeSasl) -> None:
    with before(cluster, sasl=sasl, tls=tls_server()) as front:
        assert read(front, TRUST | with_password("SCRAM-SHA-512") | {"security.protocol": "SASL_SSL"}) == list(
            range(END)
        )


def test_an_unsecured_token_is_made_of_the_claims_of_the_options(front: SecureFront, sasl: FakeSasl) -> None:
    tokens: list[str] = []
    sasl.token = lambda token: not tokens.append(token)  # type: ignore[func-returns-value]
    line = jaas(
        "oauthbearer.OAuthBearerLoginModule",
        unsecuredLoginStringClaim_sub="alice",
        unsecuredLoginNumberClaim_n="1.5",
        unsecuredLoginListClaim_scope=",a,b",
        unsecuredLoginLifetimeSeconds="60",
        unsecuredLoginExtension_cluster="lkc-1",
    )
    assert read(front, BEARER | {"sasl.jaas.config": line}) == list(range(END))
    found = claims(tokens[0])
    assert found["exp"] - found["iat"] == 60 and abs(found["iat"] - time.time()) < 60
    assert {name: found[name] for name in ("sub", "n", "scope")} == {"sub": "alice", "n": 1.5, "scope": ["a", "b"]}


@pytest.mark.parametrize(
    ("settings", "changed", "words"),
    [
        (
            with_password("PLAIN", password="hush"),
            {},
            r"mechanism PLAIN: the login is refused \(no entry\), expected a us",
        ),
        (with_password("SCRAM-SHA-256", password="hush"), {}, r"mechanism SCRAM-SHA-256: the login is refused"),
        (with_password("SCRAM-SHA-256", "nobody", "hush"), {}, r"the login is refused"),
        (
            with_password("SCRAM-SHA-256"),
            {"mechanisms": ("PLAIN", "OAUTHBEARER")},
            r"SCRAM-SHA-256: it is not enabled there, expected OAUTHBEARER or PLAIN in sasl.mechanism",
        ),
        (with_password("SCRAM-SHA-256"), {"iterations": 4000}, r"asks for 4000 iterations: expected 4096"),
        (with_password("SCRAM-SHA-512"), {"knows_password": False}, r"the server's signature is wrong"),
        (UNSECURED, {"token": lambda _: False}, r"OAUTHBEARER: the login is refused .*expected a token that it takes"),
    ],
)
def test_a_login_that_fails_is_told_at_once_by_broker_and_mechanism(
    front: SecureFront, sasl: FakeSasl, settings: dict[str, str], changed: dict[str, Any], words: str
) -> None:
    for name, value in changed.items():
        setattr(sasl, name, value)
    with pytest.raises(AuthenticationError, match=rf"broker localhost:[0-9]+, .*{words}") as raised:
        read(front, settings)
    assert front.accepted == 1, "nothing of this is tried again"
    assert "hush" not in str(raised.value) and USERS["alice"] not in str(raised.value)


def test_a_listener_without_sasl_says_so(cluster: LogCluster) -> None:
    with (
        before(cluster) as front,
        pytest.raises(AuthenticationError, match=r"has no SASL: expected security.protocol="),
    ):
        Topics(parsed(front.bootstrap, with_password("PLAIN"))).partitions()


def test_a_session_is_renewed_before_it_ends_on_the_same_connections(
    front: SecureFront, sasl: FakeSasl, cluster: LogCluster
) -> None:
    """The front ends a connection that asks for anything after its session: as a broker does."""
    sasl.lifetime_ms = 400
    settings = with_password("SCRAM-SHA-256") | {"fetch.max.bytes": "65536", "client.id": "renews"}
    topics = Topics(parsed(front.bootstrap, settings))
    limit_s = time.monotonic() + 2
    while time.monotonic() < limit_s:
        assert topics.latest([TP])[TP] == END
    assert front.accepted == 1 and front.trouble == []
    assert 4 <= sum(number == 1 for number, _ in sasl.logins) <= 20
    pause = {"slow": 0}

    def slowly(broker: int, offset: int) -> None:
        pause["slow"] += 1
        time.sleep(0.05)

    cluster.fetch_script = [slowly] * 12
    try:
        assert read(front, settings) == list(range(END))
    finally:
        cluster.fetch_script = []
    assert pause["slow"] and front.trouble == [], "tasks renew theirs between two fetches"
    assert max(number for number, _ in sasl.logins) == front.accepted
    assert len([1 for number, _ in sasl.logins if number == front.accepted]) >= 2


# -- tokens of an endpoint -----------------------------------------------------------------------------------------


class Endpoint(BaseHTTPRequestHandler):
    """Answers as the server's ``plan`` says."""

    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        server.asked.append((self.headers["Authorization"], parse_qs(body)))
        code, answer = server.plan[min(len(server.asked), len(server.plan)) - 1]
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def endpoint() -> Iterator[Any]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        server.asked, server.plan = [], [(200, {"access_token": "to.ke.n", "expires_in": 3600})]  # type: ignore[attr-defined]
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def by_endpoint(server: Any, **options: str) -> dict[str, str]:
    given = {"clientId": "me", "clientSecret": "hush", "scope": "read write", **options}
    url = f"http://127.0.0.1:{server.server_port}/token?key=hush"
    return BEARER | {
        "sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule", **given),
        ENDPOINT: url,
        ALLOWED: f"http://x/, {url}",
        "sasl.login.callback.handler.class": f"{PACKAGE}.oauthbearer.OAuthBearerLoginCallbackHandler",
    }


def test_a_token_comes_from_the_endpoint_and_is_kept(front: SecureFront, sasl: FakeSasl, endpoint: Any) -> None:
    sasl.token = lambda token: token == "to.ke.n"
    assert read(front, by_endpoint(endpoint)) == list(range(END))
    basic = "Basic " + base64.b64encode(b"me:hush").decode()
    assert endpoint.asked == [(basic, {"grant_type": ["client_credentials"], "scope": ["read write"]})]
    assert len(sasl.logins) >= 2


def test_a_token_is_asked_for_again_before_it_ends(endpoint: Any) -> None:
    url = f"http://127.0.0.1:{endpoint.server_port}/"
    source = oauth.TokenEndpoint(url=url, client_id="c", client_secret="hush")
    body = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 3600}).encode()).decode().rstrip("=")
    endpoint.plan = [
        (200, {"access_token": "first", "expires_in": 0}),
        (200, {"access_token": "no.jwt.here"}),
        (200, {"access_token": f"x.{body}.y"}),
    ]
    assert [oauth.token_of(source) for _ in range(4)] == ["first", "no.jwt.here", f"x.{body}.y", f"x.{body}.y"]
    assert "hush" not in repr(source)


@pytest.mark.parametrize(
    ("plan", "kind", "words"),
    [
        (
            (401, {"error": "invalid_client"}),
            AuthenticationError,
            "client 'me2': HTTP 401 invalid_client; expected a token",
        ),
        ((400, b"no json"), AuthenticationError, "HTTP 400; expected"),
        ((302, b""), AuthenticationError, "HTTP 302; expected"),
        ((503, b""), NetworkError, "HTTP 503"),
        ((200, b"{"), AuthenticationError, "expected JSON with access_token"),
        ((200, {"access_token": "a\x01b"}), AuthenticationError, "expected JSON with access_token"),
    ],
)
def test_an_endpoint_that_gives_no_token_is_named(endpoint: Any, plan: Any, kind: type[Exception], words: str) -> None:
    endpoint.plan = [plan]
    url = f"http://127.0.0.1:{endpoint.server_port}/token?key=hush"
    with pytest.raises(
        kind, match=f"token endpoint http://127.0.0.1:{endpoint.server_port}/token, .*{words}"
    ) as raised:
        oauth.token_of(oauth.TokenEndpoint(url=url, client_id="me2", client_secret="hush"))
    assert "hush" not in str(raised.value) and len(endpoint.asked) == 1


def test_an_endpoint_that_is_not_there_may_come_back() -> None:
    source = oauth.TokenEndpoint(url="http://127.0.0.1:1/token", client_id="c", client_secret="hush")
    with pytest.raises(
        NetworkError, match=r"token endpoint http://127.0.0.1:1/token, client 'c': no answer: .*refused"
    ):
        oauth.token_of(source)


# -- options -------------------------------------------------------------------------------------------------------


def test_a_line_of_jaas() -> None:
    line = """ a.b.C  required
        user_x=y password="q\\"u;o=t\\\\e'd" other='s"\\n' ; """
    assert parse_jaas(line) == ("C", {"user_x": "y", "password": "q\"u;o=t\\e'd", "other": 's"\n'})


@pytest.mark.parametrize(
    "line",
    ["", "C", "C required", "C needed a=b;", "C required a=b", "C required a=;", "C required a b;", 'C required a="x;'],
)
def test_a_line_of_jaas_that_has_another_form(line: str) -> None:
    with pytest.raises(ConfigError, match="LoginModule required name="):
        parse_jaas(line)


PLAIN = with_password("PLAIN")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            PLAIN | {"security.protocol": "SSL"},
            "sasl.mechanism: security.protocol is SSL; expected SASL_PLAINTEXT or SASL_SSL",
        ),
        (PLAIN | {"sasl.mechanism": "GSSAPI"}, "sasl.mechanism='GSSAPI': expected PLAIN or SCRAM-SHA-256 or"),
        (PLAIN | {"sasl.mechanism": ""}, "kafka.sasl.mechanism is missing: expected PLAIN or"),
        (
            PLAIN | {"sasl.jaas.config": ""},
            "kafka.sasl.jaas.config is missing: expected org.apache.kafka...LoginModule",
        ),
        (PLAIN | {"sasl.jaas.config": "hush"}, "kafka.sasl.jaas.config: expected org.apache.kafka...LoginModule"),
        (PLAIN | {"sasl.mechanism": "SCRAM-SHA-256"}, "expected ScramLoginModule for sasl.mechanism=SCRAM-SHA-256"),
        (PLAIN | {"sasl.jaas.config": jaas("plain.PlainLoginModule", username="hush")}, 'password="..." is missing'),
        (
            PLAIN
            | {"sasl.jaas.config": jaas("plain.PlainLoginModule", username="a", password="hush", tokenauth="true")},
            "the login module's option tokenauth is not supported",
        ),
        (PLAIN | {ENDPOINT: "http://x/"}, f"{ENDPOINT}: sasl.mechanism is PLAIN, expected OAUTHBEARER with it"),
        (UNSECURED | {ENDPOINT: "ftp://hush/"}, "is expected to be http://HOST"),
        (UNSECURED | {ENDPOINT: "file:///hush", ALLOWED: "file:///hush"}, "is expected to be http://HOST"),
        (UNSECURED | {ENDPOINT: "http://hush/", ALLOWED: "http://hush/"}, 'clientId="..." is missing'),
        (UNSECURED | {ENDPOINT: "http://hush/"}, f"kafka.{ENDPOINT} is not allowed: expected the same address in "),
        (UNSECURED | {ENDPOINT: "http://hush/"}, f"in kafka.{ALLOWED}, which has none"),
        (UNSECURED | {ENDPOINT: "http://hush/", ALLOWED: "http://hush,http://hus"}, f"{ALLOWED}, which has others"),
        (
            UNSECURED | {"sasl.login.callback.handler.class": "x.MSK"},
            "handler.class='x.MSK': expected org.apache.kafka",
        ),
        (
            UNSECURED
            | {"sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule", unsecuredLoginStringClaim_x="hush")},
            "unsecuredLoginStringClaim_sub is missing; or sasl.oauthbearer.token.endpoint.url",
        ),
        (
            BEARER
            | {"sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule", unsecuredLoginNumberClaim_sub="hush")},
            "unsecuredLoginNumberClaim_sub: expected a number",
        ),
        (
            BEARER
            | {"sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule", unsecuredLoginLifetimeSeconds="hush")},
            "unsecuredLoginLifetimeSeconds: expected a whole number",
        ),
        (
            BEARER
            | {"sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule", unsecuredLoginExtension_auth="hush")},
            "unsecuredLoginExtension_auth: expected a name of letters, not auth",
        ),
        (
            PLAIN | {"sasl.kerberos.service.name": "kafka"},
            "sasl.kerberos.service.name is not allowed: GSSAPI is not spoken",
        ),
    ],
)
def test_what_cannot_be_used_is_named_and_no_secret_with_it(settings: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as raised:
        parsed("localhost:1", settings)
    assert words in str(raised.value)
    assert "hush" not in str(raised.value) and USERS["alice"] not in str(raised.value)


def test_secrets_are_in_no_text_of_the_options() -> None:
    texts = [repr(parsed("localhost:1", each)) for each in (PLAIN, with_password("SCRAM-SHA-256"))]
    line = jaas("oauthbearer.OAuthBearerLoginModule", clientId="me", clientSecret="hush", extension_a="hush")
    url = "http://x/?key=hush"
    texts.append(repr(parsed("localhost:1", BEARER | {"sasl.jaas.config": line, ENDPOINT: url, ALLOWED: url})))
    assert all("hush" not in text and USERS["alice"] not in text for text in texts)
