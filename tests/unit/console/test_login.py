"""A console where one logs in as a user of the cluster: what is seen without, with, and by whom."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from holdfast.client.sasl import SaslSettings
from holdfast.client.security import SecuritySettings, TlsSettings
from holdfast.console.acts import LOG_NAME
from holdfast.console.guard import AccessRules
from holdfast.console.host import ConsoleSettings
from holdfast.console.login_gate import LOGIN, LOGOUT, SWEEP_S, LoginGate
from holdfast.console.login_limits import FAILED_S, OF_ADDRESS, OF_USER
from holdfast.console.poller import NOT_ASKED
from holdfast.console.server import ConsoleAsked, ConsoleRefused, listening, settings_of
from holdfast.console.sessions import IDLE_S, MOST_OF_A_USER
from holdfast.model.listeners import SecurityProtocol
from tests.secure_front import FakeSasl, SecureFront
from tests.unit.client.test_outgoing import CERTIFICATES, tls_server
from tests.unit.console.snapshots import snapshot, topic
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


class Asked:
    """A request: what has come of its answer, which may go on."""

    def __init__(
        self,
        gate: LoginGate,
        method: str,
        path: str,
        headers: dict[str, str],
        query: str,
        body: bytes | asyncio.Future[bytes],
    ) -> None:
        self.sent: list[Any] = []
        self._body: bytes | asyncio.Future[bytes] | None = body
        scope: dict[str, Any] = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "scheme": "http", "server": ("127.0.0.1", 8080), "client": ("127.0.0.1", 1), "http_version": "1.1",
            "root_path": "",
        }  # fmt: skip
        self.answered = asyncio.ensure_future(gate(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        body, self._body = self._body, None
        if body is not None:
            data = body if isinstance(body, bytes) else await body
            return {"type": "http.request", "body": data, "more_body": False}
        return await asyncio.get_running_loop().create_future()  # the browser stays

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def text(self) -> str:
        return b"".join(each.get("body", b"") for each in self.sent[1:]).decode(errors="replace")

    @property
    def is_whole(self) -> bool:
        return not self.sent[-1].get("more_body", False)

    def got(self) -> Got:
        start = self.sent[0]
        return Got(start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, self.text)


class Waits:
    """What the gate waits for, until the test lets it go on."""

    def __init__(self) -> None:
        self.pending: list[tuple[float, asyncio.Future[None]]] = []

    async def __call__(self, seconds: float) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pending.append((seconds, over))
        await over

    def go_on(self, seconds: float) -> None:
        """Those that have waited for so long."""
        for pair in [pair for pair in self.pending if pair[0] == seconds]:
            self.pending.remove(pair)
            pair[1].set_result(None)


class Browser:
    """Of a gate whose clock and waits are the test's."""

    def __init__(self, servers: str, tmp_path: Path, *, has_own_user: bool = False) -> None:
        rules = AccessRules(port=8080, token="")
        settings = ConsoleSettings(bootstrap=(servers,), rules=rules, data_dir=tmp_path)
        self.now_s = 0.0
        self.waits = Waits()
        self.gate = LoginGate(settings, SECURITY, has_own_user=has_own_user, clock=lambda: self.now_s, wait=self.waits)

    def begin(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        query: str = "",
        body: bytes | asyncio.Future[bytes] = b"",
    ) -> Asked:
        given = {"host": HOST, "content-type": "application/x-www-form-urlencoded", **headers}
        return Asked(self.gate, method, path, given, query, body)

    async def ask(self, method: str, path: str, headers: dict[str, str] | None = None, **form: str) -> Got:
        asked = self.begin(method, path, headers or {}, body=urlencode(form).encode())
        await asked.answered
        return asked.got()

    def session(self, cookie: str) -> tuple[bytes, SecuritySettings] | None:
        return self.gate._sessions.found([cookie.partition("=")[2]], self.now_s)

    def begin_login(self, user: str, password: str, **headers: str) -> Asked:
        body = urlencode({"user": user, "password": password}).encode()
        return self.begin("POST", LOGIN, {"origin": ORIGIN, **headers}, body=body)

    async def log_in(self, user: str, password: str, **headers: str) -> Got:
        """A failure is answered at once."""
        asked = self.begin_login(user, password, **headers)
        await until(lambda: asked.answered.done() or any(seconds == FAILED_S for seconds, _ in self.waits.pending))
        self.waits.go_on(FAILED_S)
        await asked.answered
        return asked.got()


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop run until it is so."""
    limit_s = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < limit_s, "it does not become so"
        await asyncio.sleep(0)


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


def test_forms_of_elsewhere_are_refused(run: Callable[..., None], sasl: FakeSasl) -> None:
    async def check(browser: Browser) -> None:
        for origin in ("http://evil.example", "null"):
            assert (await browser.log_in("alice", "hush", origin=origin)).status == 403
        assert (await browser.ask("GET", LOGIN, {"host": "evil.example"})).status == 403
        assert sasl.attempts == 0

    run(check)


def test_who_knows_a_password_waits_for_nobody_who_guesses(run: Callable[..., None]) -> None:
    """Fifty that wait for the answer to a wrong password, some of them to the same user's."""

    async def check(browser: Browser) -> None:
        guesses = [browser.begin_login("bob" if n % 2 else "alice", f"guess {n}") for n in range(50)]
        await until(lambda: len(browser.waits.pending) == 51)
        assert not any(each.answered.done() for each in guesses)
        waited = sorted(seconds for seconds, _ in browser.waits.pending if seconds != SWEEP_S)
        cost_s, _ = OF_ADDRESS
        assert waited == pytest.approx([max(FAILED_S, cost_s * (n + 1)) for n in range(50)]), "one after the other"
        for user, password in USERS.items():
            assert (await browser.log_in(user, password)).status == 303, user
        for seconds in waited:
            browser.waits.go_on(seconds)
        await asyncio.gather(*(each.answered for each in guesses))
        assert {each.got().status for each in guesses} == {403}

    run(check)


def test_more_guesses_than_may_wait_are_refused(run: Callable[..., None]) -> None:
    cost_s, most_s = OF_USER
    most = round(most_s / cost_s)

    async def check(browser: Browser) -> None:
        guesses = [browser.begin_login("alice", f"guess {n}") for n in range(most + 3)]
        await until(lambda: len(browser.waits.pending) == most + 1)
        refused = [each.got() for each in guesses if each.answered.done()]
        assert [(each.status, "try again" in each.text) for each in refused] == [(429, True)] * 3
        assert (await browser.log_in("bob", "hush too")).status == 303, "another user has a place of its own"
        browser.now_s += most_s
        assert (await browser.log_in("alice", "hush")).status == 303, "nothing is owed any more"

    run(check)


async def tail_of(browser: Browser, cookie: str) -> Asked:
    """Of the records of t, as its page asks for it; from the first that is told on. The brokers here know no API that
    a look at the cluster needs: a topic is told in its place."""
    found = browser.session(cookie)
    assert found is not None
    poller = browser.gate._inside[found[1]][0].poller
    await until(lambda: poller.snapshot.trouble != NOT_ASKED)
    poller.snapshot = replace(poller.snapshot, view=snapshot(topics=[topic("t", (1, (1,), (1,)))]).view)
    asked = browser.begin("GET", "/messages/tail", {"cookie": cookie}, query="topic=t&partition=0")
    await until(lambda: asked.answered.done() or "waiting for records" in asked.text)
    assert not asked.answered.done(), asked.sent
    return asked


async def news_of(browser: Browser, cookie: str) -> Asked:
    asked = browser.begin("GET", "/events", {"cookie": cookie})
    await until(lambda: asked.answered.done() or asked.text)
    assert not asked.answered.done(), asked.sent
    return asked


STREAMS = pytest.mark.parametrize("stream_of", [tail_of, news_of])


@STREAMS
def test_a_stream_ends_at_once_when_its_user_logs_out(
    run: Callable[..., None], cluster: LogCluster, stream_of: Callable[..., Any]
) -> None:
    async def check(browser: Browser) -> None:
        mine, other = [(await browser.log_in("alice", "hush")).cookie for _ in range(2)]
        stream, goes_on = await stream_of(browser, mine), await stream_of(browser, other)
        await browser.ask("POST", LOGOUT, {"origin": ORIGIN, "cookie": mine})
        told = stream.text
        await until(stream.answered.done)
        assert stream.answered.exception() is None and stream.is_whole, "an end that a browser understands"
        assert stream.text == told, "nothing after the logout"
        assert (await browser.ask("GET", "/messages/tail", {"cookie": mine})).status == 401
        assert not goes_on.answered.done(), "that of another session of the same user"
        if stream_of is tail_of:
            cluster.topics["t"].logs[0].append(1)
            last = cluster.topics["t"].logs[0].end - 1
            await until(lambda: f"t0-{last}" in goes_on.text)
        await browser.ask("POST", LOGOUT, {"origin": ORIGIN, "cookie": other})
        await until(goes_on.answered.done)

    run(check)


@STREAMS
@pytest.mark.parametrize("way", ["nobody uses it", "others came after it", "its user is refused"])
def test_a_stream_ends_with_its_session(
    run: Callable[..., None], sasl: FakeSasl, stream_of: Callable[..., Any], way: str
) -> None:
    async def check(browser: Browser) -> None:
        sasl.lifetime_ms = 1000 if way == "its user is refused" else 0
        mine = (await browser.log_in("alice", "hush")).cookie
        stream = await stream_of(browser, mine)
        if way == "others came after it":
            for number in range(MOST_OF_A_USER):
                assert not stream.answered.done(), number
                browser.now_s += 1
                await browser.log_in("alice", "hush")
        elif way == "nobody uses it":
            browser.now_s += IDLE_S + 1
        else:  # brokers ask for the password again
            del sasl.users["alice"]

        def is_over() -> bool:
            browser.waits.go_on(SWEEP_S)
            return stream.answered.done() and browser.session(mine) is None

        await until(is_over)
        assert (await browser.ask("GET", "/", HTML | {"cookie": mine})).headers["location"] == LOGIN
        assert stream.is_whole

    run(check)


def test_an_act_whose_form_comes_after_the_logout_is_not_done(run: Callable[..., None], tmp_path: Path) -> None:
    async def check(browser: Browser) -> None:
        mine = (await browser.log_in("alice", "hush")).cookie
        form: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        asked = browser.begin("POST", "/act/create-topic", {"origin": ORIGIN, "cookie": mine}, body=form)
        await browser.ask("GET", "/acts", {"cookie": mine})
        await browser.ask("POST", LOGOUT, {"origin": ORIGIN, "cookie": mine})
        await until(asked.answered.done)
        assert (asked.got().status, asked.got().text) == (401, f"log in first: see {LOGIN}\n")

    run(check)
    assert not (tmp_path / LOG_NAME).exists()


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
