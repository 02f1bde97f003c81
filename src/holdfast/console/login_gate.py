"""A console where one logs in as a user of the cluster: what is before the pages.

    no session    /login, static files; everything else leads to /login
    a session     the pages of this user: their connections to brokers are the user's, as are the rights

Each user who is logged in has a console of its own inside (a poller, acts, streams), so that nobody sees what another
one may see. Passwords are asked of the brokers and kept in memory for as long as the session is. Metrics and health are
answered in the name of the console's own user, where its file has one.

Owns sessions and the consoles that they need. What is answered belongs to the session that it was asked for with, and
ends with it, a stream too. Forms are taken from this console's own pages alone (Origin), and the
cookie is sent by no other site (SameSite=Strict).
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.client.admin import AdminClient
from holdfast.client.errors import AuthenticationError
from holdfast.client.security import SecuritySettings
from holdfast.console.act_pages import form_of
from holdfast.console.app import KeptFiles, make_app
from holdfast.console.guard import SAFE, AccessGuard, AccessRules
from holdfast.console.host import ConsoleHost, ConsoleSettings, environment
from holdfast.console.login_limits import LoginLimits
from holdfast.console.poller import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S
from holdfast.console.sessions import Sessions
from holdfast.console.under_way import AnswersUnderWay
from holdfast.model.errors import HoldfastError

log = logging.getLogger(__name__)

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
FOR_PROGRAMS: Final = ("/metrics", "/health")
COOKIE_BYTES: Final = 32
MOST_CHARACTERS: Final = 1024
AT_ONCE: Final = 4
"""Logins that brokers are asked about at the same time; others wait for their turn."""
TURN_S: Final = 10.0
"""For so long; brokers that do not answer would gather logins otherwise."""
SWEEP_S: Final = 30.0
REFUSALS: Final = 3
"""Looks at the cluster one after the other at which a user was refused, who is logged out then: one broker alone may
know the old password yet."""
TRY_AGAIN: Final = "there are too many logins at the moment: try again"
REFUSED: Final = "the brokers do not take this user and password"


class LoginRules:
    """What AccessGuard asks before a login: Host, and where forms come from."""

    def __init__(self, rules: AccessRules) -> None:
        self._rules = rules

    def refusal(self, method: str, path: str, headers: Headers) -> str | None:
        if not self._rules.is_host(headers.get("host")):
            return f"Host {headers.get('host')!r}: expected one of {', '.join(self._rules.names)}"
        if method not in SAFE and not self._rules.is_origin(headers.get("origin"), headers.get("host")):
            return f"Origin {headers.get('origin')!r}: expected http://{headers.get('host')}"
        return None


class LoginGate:
    """An ASGI application. ``settings``: of the console itself. ``security`` has a mechanism with user and password;
    with ``has_own_user`` it names a user who is the console's own."""

    def __init__(
        self,
        settings: ConsoleSettings,
        security: SecuritySettings,
        *,
        has_own_user: bool,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._security = security
        self._clock = clock
        self._wait = wait
        self._sessions: Sessions[SecuritySettings] = Sessions()
        self._inside: dict[SecuritySettings, tuple[ConsoleHost, ASGIApp]] = {}
        self._under_way = AnswersUnderWay()
        self._limits = LoginLimits()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._closing: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self._own: ConsoleHost | None = None
        self._programs: ASGIApp | None = None
        if has_own_user:
            self._own = ConsoleHost(replace(settings, security=security, metrics_only=True))
            self._programs = make_app(self._own)
        self._static = Starlette(
            routes=[Mount("/static", KeptFiles(directory=str(files("holdfast.console") / "static")))]
        )
        self._page = environment().get_template("login.html")
        self._app = AccessGuard(self._answer, LoginRules(settings.rules))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._app(scope, receive, send)

    def close_streams(self) -> None:
        """They would go on for as long as a page is open."""
        for host, _ in self._inside.values():
            host.news.close()

    # -- life ------------------------------------------------------------------------------------------------------

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        if self._own is not None:
            self._own.start()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._sweeper.cancel()
        for host, _ in self._inside.values():
            host.close()
        if self._own is not None:
            self._own.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _sweep(self) -> None:
        while True:
            await self._wait(SWEEP_S)
            self._end_sessions()

    def _end_sessions(self) -> None:
        """Those whose time is over, and those of users whom the brokers do not take any more."""
        self._sessions.expire(self._clock())
        for who, (host, _) in self._inside.items():
            if host.poller.refusals >= REFUSALS:
                self._sessions.end_all_of(who)
        self._close_unused()

    def _close_unused(self) -> None:
        """What is answered to sessions that are over, and consoles whose users have all gone."""
        self._under_way.keep(self._sessions.keys())
        for who in self._inside.keys() - self._sessions.users():
            host, _ = self._inside.pop(who)
            host.news.close()
            closing = asyncio.get_running_loop().create_task(asyncio.to_thread(host.close))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    # -- requests --------------------------------------------------------------------------------------------------

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = request.url.path
        if path.startswith("/static/"):
            await self._static(scope, receive, send)
            return
        if path.startswith(FOR_PROGRAMS):
            nobody = PlainTextResponse("expected a user of the cluster in the file of --command-config\n", 403)
            await (self._programs or nobody)(scope, receive, send)
            return
        if path == LOGIN:
            answer = await self._log_in(request) if request.method == "POST" else self._form()
            await answer(scope, receive, send)
            return
        if path == LOGOUT and request.method == "POST":
            await self._log_out(request)(scope, receive, send)
            return
        found = self._sessions.found(self._cookies(request), self._clock())
        inside = None if found is None else self._inside.get(found[1])
        if found is None or inside is None:
            await _elsewhere(request)(scope, receive, send)
            return
        await self._under_way.answer(found[0], inside[1], _elsewhere(request), scope, receive, send)

    def _form(self, problem: str | None = None, status: int = 200, user: str = "") -> Response:
        return HTMLResponse(self._page.render(problem=problem, user=user), status)

    async def _log_in(self, request: Request) -> Response:
        form = await form_of(request)
        user, password = form.get("user", ""), form.get("password", "")
        if not user or not password or max(len(user), len(password)) > MOST_CHARACTERS or "\0" in user + password:
            return self._form("expected a user and a password", 422)
        address = _from(request)
        answer_s = self._limits.admit(address, user, self._clock())
        if answer_s is None:
            return self._form(TRY_AGAIN, 429, user)
        assert self._security.sasl is not None
        who = replace(self._security, sasl=replace(self._security.sasl, user=user, password=password))
        try:
            took_it = await self._asked_in_turn(who)
        except AuthenticationError as e:
            log.warning("a login as %r from %s is refused: %s", user, address, e)
            await self._wait(max(0.0, answer_s - self._clock()))  # nobody else waits for that
            return self._form(REFUSED, 403, user)
        except (HoldfastError, OSError, TimeoutError) as e:
            self._limits.forgive(address, user)
            return self._form(str(e) or type(e).__name__, 502, user)
        self._limits.forgive(address, user)
        if not took_it:
            return self._form(TRY_AGAIN, 429, user)
        if not self._sessions.may_begin(who):
            return self._form("too many users are logged in: one of them has to log out", 503, user)
        return self._begun(request, who, user)

    async def _asked_in_turn(self, who: SecuritySettings) -> bool:
        """False: its turn did not come. AuthenticationError, HoldfastError, OSError, TimeoutError."""
        try:
            async with asyncio.timeout(TURN_S):
                await self._turns.acquire()
        except TimeoutError:
            return False
        try:
            await self._asked(who)
        finally:
            self._turns.release()
        return True

    async def _asked(self, who: SecuritySettings) -> None:
        """A connection to a broker, which checks the user."""
        client = AdminClient(
            list(self._settings.bootstrap),
            client_id="holdfast-console",
            timeout_s=REQUEST_TIMEOUT_S,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            security=who,
        )
        try:
            async with asyncio.timeout(2 * REQUEST_TIMEOUT_S):
                await client.refresh(())
        finally:
            client.close()

    def _begun(self, request: Request, who: SecuritySettings, user: str) -> Response:
        if who not in self._inside:
            rules = replace(self._settings.rules, logged_in=True)
            host = ConsoleHost(replace(self._settings, rules=rules, security=who, user=user))
            host.start()
            self._inside[who] = host, make_app(host)
        for cookie in self._cookies(request):  # of another user before
            self._sessions.end(cookie)
        cookie = secrets.token_urlsafe(COOKIE_BYTES)
        self._sessions.begin(cookie, who, self._clock())
        self._close_unused()
        log.info("%r has logged in from %s", user, _from(request))
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self._cookie_name, cookie, httponly=True, samesite="strict", path="/")
        return answer

    def _log_out(self, request: Request) -> Response:
        for cookie in self._cookies(request):
            self._sessions.end(cookie)
        self._close_unused()
        answer = RedirectResponse(LOGIN, 303)
        answer.delete_cookie(self._cookie_name, httponly=True, samesite="strict", path="/")
        return answer

    @property
    def _cookie_name(self) -> str:
        return f"{self._settings.rules.cookie_name}_session"

    def _cookies(self, request: Request) -> list[str]:
        with contextlib.suppress(CookieError):
            found = SimpleCookie(request.headers.get("cookie", "")).get(self._cookie_name)
            if found is not None:
                return [found.value]
        return []


def _elsewhere(request: Request) -> Response:
    """For who is not logged in: a person is led to the form, a script is told."""
    if request.method in SAFE and "text/html" in request.headers.get("accept", "") and not request.headers.get(
        "hx-request"
    ):  # fmt: skip
        return RedirectResponse(LOGIN, 303)
    return PlainTextResponse(f"log in first: see {LOGIN}\n", 401, headers={"hx-redirect": LOGIN})


def _from(request: Request) -> str:
    return "somewhere" if request.client is None else request.client.host
