"""A console where one logs in as a user of the cluster: what is seen without, with, and by whom."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from holdfast.client.sasl import SaslSettings
from holdfast.client.security import SecuritySettings, TlsSettings
from holdfast.console.guard import AccessRules
from holdfast.console.host import ConsoleSettings
from holdfast.console.login_gate import AT_ONCE, LOGIN, LOGOUT, LoginGate
from holdfast.console.server import ConsoleAsked, ConsoleRefused, listening, settings_of
from holdfast.console.sessions import IDLE_S
from holdfast.model.listeners import SecurityProtocol
from tests.secure_front import FakeSasl, SecureFront
from tests.unit.client.test_outgoing import CERTIFICATES, tls_server
from tests.unit.spark.log_cluster import LogCluster

HOST = "127.0.0.1:8080"
ORIGIN = f"http://{HOST}"
HTML = {"accept": "text/html"}
USERS = {"alice": "hush", "bob": "hush too"}
SECURITY = SecuritySettings(
    protocol=SecurityProtocol.SASL_SSL,
    tls=TlsSettings(trusted=(CERTIFICATES / "authority.pem").read_text()),
    sasl=SaslSettings(mechanism="SCRAM-SHA-512", user="nobody", password="nobody"),
)


class Got(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def cookie(self) -> str:
        return self.headers.get("set-cookie", "").partition(";")[0]


class Browser:
    """Of a gate whose clock is the test's."""

    def __init__(self, servers: str, tmp_path: Path, *, has_own_user: bool = False) -> None:
        rules = AccessRules(port=8080, token="")
        settings = ConsoleSettings(bootstrap=(servers,), rules=rules, data_dir=tmp_path)
        self.now_s = 0.0
        self.gate = LoginGate(settings, SECURITY, has_own_user=has_own_user, clock=lambda: self.now_s)

    async def ask(self, method: str, path: str, headers: dict[str, str] | None = None, **form: str) -> Got:
        body = urlencode(form).encode()
        given = {"host": HOST, "content-type": "application/x-www-form-urlencoded", **(headers or {})}
        scope: dict[str, Any] = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "scheme": "http", "server": ("127.0.0.1", 8080), "client": ("127.0.0.1", 1), "http_version": "1.1",
            "root_path": "",
        }  # fmt: skip
        sent: list[Any] = []
        bodies = [body]

        async def receive() -> Any:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            return await asyncio.get_running_loop().create_future()  # the browser stays

        async def send(message: Any) -> None:
            sent.append(message)

        await self.gate(scope, receive, send)
        text = b"".join(each.get("body", b"") for each in sent[1:]).decode(errors="replace")
        return Got(sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}, text)

    async def log_in(self, user: str, password: str, **headers: str) -> Got:
        return await self.ask("POST", LOGIN, {"origin": ORIGIN, **headers}, user=user, password=password)


@asynccontextmanager
async def living(browser: Browser) -> AsyncIterator[Browser]:
    to: asyncio.Queue[Any] = asyncio.Queue()
    told: asyncio.Queue[Any] = asyncio.Queue()
    life = asyncio.ensure_future(browser.gate({"type": "lifespan"}, to.get, told.put))
    to.put_nowait({"type": "lifespan.startup"})
    await told.get()
    try:
        yield browser
    finally:
        to.put_nowait({"type": "lifespan.shutdown"})
        await life


@pytest.fixture(scope="module")
def cluster() -> Iterator[LogCluster]:
    with LogCluster(1) as running:
        running.topic("t")
        yield running


@pytest.fixture
def sasl() -> FakeSasl:
    return FakeSasl(("SCRAM-SHA-512",), dict(USERS))


@pytest.fixture
def run(cluster: LogCluster, sasl: FakeSasl, tmp_path: Path) -> Iterator[Callable[..., None]]:
    targets = [("127.0.0.1", each.port) for each in cluster.brokers.values()]
    with SecureFront(targets, tls=tls_server(), sasl=sasl) as front:

        def run(check: Callable[[Browser], Coroutine[Any, Any, None]], *, has_own_user: bool = False) -> None:
            async def main() -> None:
                async with (
                    asyncio.timeout(60),
                    living(Browser(front.bootstrap, tmp_path, has_own_user=has_own_user)) as browser,
                ):
                    await check(browser)

            asyncio.run(main())

        yield run


def test_without_a_session_there_is_the_form_and_nothing_else(run: Callable[..., None]) -> None:
    async def check(browser: Browser) -> None:
        for path in ("/", "/topics", "/acts", "/unlock", "/nowhere"):
            got = await browser.ask("GET", path, HTML)
            assert (got.status, got.headers["location"]) == (303, LOGIN), path
        for method, path in (("GET", "/events"), ("GET", "/series"), ("POST", "/act/create-topic"), ("POST", LOGOUT)):
            got = await browser.ask(method, path, {"origin": ORIGIN})
            assert got.status in (401, 303) and "t</a>" not in got.text, path
        got = await browser.ask("GET", "/topics", HTML | {"hx-request": "true"})
        assert (got.status, got.headers["hx-redirect"]) == (401, LOGIN), "a page that was open goes there"
        form = await browser.ask("GET", LOGIN)
        assert form.status == 200 and 'type="password"' in form.text and "content-security-policy" in form.headers
        assert (await browser.ask("GET", "/static/console.css")).status == 200
        assert (await browser.ask("GET", "/metrics")).status == (await browser.ask("GET", "/health")).status == 403

    run(check)


def test_one_logs_in_as_a_user_and_asks_brokers_in_that_name(run: Callable[..., None], sasl: FakeSasl) -> None:
    async def check(browser: Browser) -> None:
        got = await browser.log_in("alice", "hush")
        assert (got.status, got.headers["location"]) == (303, "/")
        said = got.headers["set-cookie"].lower()
        assert "httponly" in said and "samesite=strict" in said and "path=/" in said
        page = await browser.ask("GET", "/topics", HTML | {"cookie": got.cookie})
        assert page.status == 200 and "alice" in page.text and 'action="/logout"' in page.text
        assert {user for _, user in sasl.logins} == {"alice"}
        other = await browser.log_in("bob", "hush too")
        page = await browser.ask("GET", "/topics", HTML | {"cookie": other.cookie})
        assert "bob" in page.text and "alice" not in page.text
        assert (await browser.ask("GET", "/acts", HTML | {"cookie": got.cookie})).status == 200
        act = await browser.ask("POST", "/act/create-topic", {"cookie": got.cookie, "origin": "http://evil.example"})
        assert act.status == 403 and "Origin" in act.text
        act = await browser.ask("POST", "/act/create-topic", {"cookie": got.cookie, "origin": ORIGIN})
        assert act.status == 422, "no token is needed; the form was not made here"

    run(check)


def test_a_session_ends(run: Callable[..., None]) -> None:
    async def check(browser: Browser) -> None:
        got = await browser.log_in("alice", "hush")
        mine = HTML | {"cookie": got.cookie}
        assert (await browser.ask("GET", "/", mine)).status == 200
        out = await browser.ask("POST", LOGOUT, {"origin": ORIGIN, **mine})
        assert (out.status, out.headers["location"]) == (303, LOGIN) and "max-age=0" in out.headers[
            "set-cookie"
        ].lower()
        assert (await browser.ask("GET", "/", mine)).status == 303
        again = await browser.log_in("alice", "hush")
        browser.now_s += IDLE_S + 1
        assert (await browser.ask("GET", "/", HTML | {"cookie": again.cookie})).status == 303
        assert (await browser.ask("GET", "/", HTML | {"cookie": "holdfast_console_8080_session=guess"})).status == 303

    run(check)


@pytest.mark.parametrize(
    ("user", "password", "status", "words"),
    [
        ("alice", "guess", 403, "the brokers do not take this user and password"),
        ("mallory", "hush", 403, "the brokers do not take this user and password"),
        ("", "hush", 422, "expected a user and a password"),
        ("alice", "", 422, "expected a user and a password"),
        ("a\0", "hush", 422, "expected a user and a password"),
        ("a" * 2000, "hush", 422, "expected a user and a password"),
    ],
)
def test_who_is_not_known_is_told_so_and_no_more(
    run: Callable[..., None], user: str, password: str, status: int, words: str
) -> None:
    async def check(browser: Browser) -> None:
        got = await browser.log_in(user, password)
        assert (got.status, got.cookie) == (status, "")
        assert words in got.text and not re.search(r"hush|guess", got.text)

    run(check)


def test_forms_of_elsewhere_and_many_at_once_are_refused(run: Callable[..., None], sasl: FakeSasl) -> None:
    async def check(browser: Browser) -> None:
        for origin in ("http://evil.example", "null"):
            assert (await browser.log_in("alice", "hush", origin=origin)).status == 403
        assert (await browser.ask("GET", LOGIN, {"host": "evil.example"})).status == 403
        assert sasl.attempts == 0
        found = await asyncio.gather(*(browser.log_in("alice", f"guess {number}") for number in range(AT_ONCE + 3)))
        assert sorted(got.status for got in found) == [403] * AT_ONCE + [429] * 3

    run(check)


def test_brokers_that_do_not_answer_are_named(cluster: LogCluster, tmp_path: Path) -> None:
    async def main() -> None:
        async with living(Browser("127.0.0.1:1", tmp_path)) as browser:
            got = await browser.log_in("alice", "hush")
            assert got.status == 502 and "127.0.0.1:1" in got.text

    asyncio.run(main())


def test_the_consoles_own_user_answers_programs(run: Callable[..., None], sasl: FakeSasl) -> None:
    sasl.users["nobody"] = "nobody"

    async def check(browser: Browser) -> None:
        assert (await browser.ask("GET", "/health/live")).status == 200
        assert (await browser.ask("GET", "/", HTML)).status == 303

    run(check, has_own_user=True)


def test_passwords_go_over_no_network(tmp_path: Path) -> None:
    with listening("127.0.0.1", 0) as listens:

        def settings(host: str, **options: Any) -> ConsoleSettings:
            asked = ConsoleAsked(
                bootstrap=("h:1",), host=host, port=0, data_dir=tmp_path, security=SECURITY,
                **{"read_only": True, **options},
            )  # fmt: skip
            return settings_of(asked, listens)

        with pytest.raises(ConsoleRefused, match="passwords would travel unencrypted"):
            settings("0.0.0.0")
        assert settings("127.0.0.1", read_only=False).rules.token == "", "a login is in its place"
        assert settings("0.0.0.0", metrics_only=True).security == SECURITY
        with pytest.raises(ConsoleRefused, match=r"expected sasl.jaas.config with a user"):
            settings("127.0.0.1", metrics_only=True, has_user=False)
    assert not (tmp_path / "console.token").exists()
