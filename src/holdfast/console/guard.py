"""Who may ask for what, before any page is: Host, Origin, the token, ``--read-only``; and the headers of answers.

    GET, HEAD       from a Host that is this console's; nothing else is needed
    anything else   besides: not with --read-only, an Origin that is this console's, the cookie that the token gave

The rules are pure; ``AccessGuard`` is the middleware that asks them. A name that somebody else's page is reached by is
no Host of a console, so that no page of elsewhere reads one through a browser on this machine.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final, Protocol
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE: Final = ("GET", "HEAD")
UNLOCK: Final = "/unlock"
POLICY: Final = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
LOOPBACKS: Final = ("127.0.0.1", "localhost", "::1")
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """``names``: hosts that this console is reached by; ``any_address``: every address besides, for one that listens on
    all of a machine. ``token`` is what acts need."""

    port: int
    token: str
    read_only: bool = False
    names: tuple[str, ...] = LOOPBACKS
    any_address: bool = False
    logged_in: bool = False
    """Who gets here is a user of the cluster (login_gate.py); no token is needed then."""

    @property
    def cookie_name(self) -> str:
        """A browser does not tell ports apart."""
        return f"holdfast_console_{self.port}"

    @property
    def cookie_value(self) -> str:
        """What the token is traded for; nobody makes the token of it."""
        return hmac.new(self.token.encode(), b"holdfast console cookie", hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(self.token.encode(), given.strip().encode())

    def may_act(self, cookie: str | None) -> bool:
        """Whether who sends this Cookie header has shown the token."""
        if self.logged_in:
            return not self.read_only
        if self.read_only or not cookie:
            return False
        try:
            morsel = SimpleCookie(cookie).get(self.cookie_name)
        except CookieError:
            return False
        return morsel is not None and hmac.compare_digest(morsel.value.encode(), self.cookie_value.encode())

    def is_host(self, host: str | None) -> bool:
        """Of a Host header."""
        parts = _parted(f"//{host}") if host else None
        if parts is None:
            return False
        name, port = parts
        if port not in (None, self.port):
            return False
        return name in self.names or (self.any_address and _is_address(name))

    def is_origin(self, origin: str | None, host: str | None) -> bool:
        """Whether a form was sent by a page of this console."""
        return origin is not None and self.is_host(host) and origin == f"http://{host}"

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> str | None:
        """Why a request is answered by 403, or None."""
        if not self.is_host(headers.get("host")):
            return f"Host {headers.get('host')!r}: expected one of {', '.join(self.names)}, port {self.port}"
        if method in SAFE:
            return None
        if self.read_only:
            return "this console is --read-only"
        if not self.is_origin(headers.get("origin"), headers.get("host")):
            return f"Origin {headers.get('origin')!r}: expected http://{headers.get('host')}"
        if path != UNLOCK and not self.may_act(headers.get("cookie")):
            return f"acts need the token of this console: see {UNLOCK}"
        return None


def _parted(address: str) -> tuple[str, int | None] | None:
    try:
        parts = urlsplit(address)
        if parts.username is not None or parts.path or not parts.hostname:
            return None
        return parts.hostname, parts.port
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def names_of(host: str, others: Iterable[str] = ()) -> tuple[str, ...]:
    """The hosts of a console that listens on ``host``."""
    return tuple(dict.fromkeys((*LOOPBACKS, host.casefold(), *(name.casefold() for name in others))))


class Rules(Protocol):
    """What is asked before every page."""

    def refusal(self, method: str, path: str, headers: Headers) -> str | None: ...


class AccessGuard:
    """Answers 403 itself; adds the headers to what the application answers."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        why = self._rules.refusal(scope["method"], scope["path"], headers)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    found[name] = value
                found.setdefault("cache-control", "no-store")
            await send(message)

        if why is not None:
            await PlainTextResponse(why + "\n", 403)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)
