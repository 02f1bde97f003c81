"""Tokens for OAUTHBEARER: from an endpoint by client credentials (RFC 6749, 4.4), or unsecured ones, for tests.

Owns the tokens of this process: one is kept until ``KEPT`` of its time is over. Blocks while it asks. Never in a text:
a secret or a token.
"""

import base64
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from holdfast.client.errors import AuthenticationError
from holdfast.model.errors import NetworkError

KEPT: Final = 0.8
"""As sasl.login.refresh.window.factor of Kafka's clients."""
ASK_S: Final = 10.0
MOST_ANSWER_BYTES: Final = 1 << 20
MOST_TOKENS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEndpoint:
    """``url``: http or https, with the authorities that the system trusts."""

    url: str = field(repr=False)
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None

    @property
    def shown(self) -> str:
        """The address without what may be a secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsecuredToken:
    """A JWT that nobody has signed (RFC 7519, 6), as Kafka's brokers take it for tests."""

    claims: tuple[tuple[str, str | float | tuple[str, ...]], ...]
    lifetime_s: int = 3600


class _Kept(NamedTuple):
    token: str
    until_s: float


_tokens: dict[TokenEndpoint, _Kept] = {}
_lock = threading.Lock()


def token_of(source: TokenEndpoint | UnsecuredToken) -> str:
    """AuthenticationError if the endpoint gives none, NetworkError if it does not answer."""
    if isinstance(source, UnsecuredToken):
        return _unsecured(source, time.time())
    with _lock:  # connections to several brokers ask once
        kept = _tokens.get(source)
        if kept is not None and time.monotonic() < kept.until_s:
            return kept.token
        asked_s = time.monotonic()
        token, lifetime_s = _ask(source)
        _tokens.pop(source, None)
        while len(_tokens) >= MOST_TOKENS:
            _tokens.pop(next(iter(_tokens)))
        _tokens[source] = _Kept(token, asked_s + KEPT * lifetime_s)
        return token


def _unsecured(source: UnsecuredToken, now_s: float) -> str:
    claims: dict[str, Any] = {"iat": int(now_s), "exp": int(now_s) + source.lifetime_s, **dict(source.claims)}
    return f"{_packed({'alg': 'none'})}.{_packed(claims)}."


def _packed(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _ask(source: TokenEndpoint) -> tuple[str, float]:
    """The token and for how many seconds it is good."""
    import http.client
    import urllib.error
    import urllib.request

    class Unredirected(urllib.request.HTTPRedirectHandler):
        """The secret goes where it was said to go, and nowhere else."""

        def redirect_request(self, *_: Any) -> None:
            return None

    where = f"token endpoint {source.shown}, client {source.client_id!r}"
    fields = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    pair = base64.b64encode(f"{source.client_id}:{source.client_secret}".encode()).decode()
    headers = {"Authorization": f"Basic {pair}", "Accept": "application/json"}
    request = urllib.request.Request(source.url, urlencode(fields).encode(), headers)
    try:
        with urllib.request.build_opener(Unredirected()).open(request, timeout=ASK_S) as answer:
            body = answer.read(MOST_ANSWER_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            reason = _error_in(error.read(4096))
        if error.code >= 500 or error.code == 429:
            raise NetworkError(f"{where}: HTTP {error.code}") from None
        raise AuthenticationError(
            f"{where}: HTTP {error.code}{reason}; expected a token for clientId and clientSecret of sasl.jaas.config"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise NetworkError(f"{where}: no answer: {getattr(error, 'reason', None) or type(error).__name__}") from None
    return _token_in(body, where)


def _error_in(body: bytes) -> str:
    """The code that RFC 6749 (5.2) gives to what went wrong."""
    try:
        code = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return ""
    return f" {code[:60]}" if isinstance(code, str) else ""


def _token_in(body: bytes, where: str) -> tuple[str, float]:
    try:
        said = json.loads(body) if len(body) <= MOST_ANSWER_BYTES else {}
    except ValueError:
        said = {}
    token = said.get("access_token") if isinstance(said, dict) else None
    if not isinstance(token, str) or not token or not all("!" <= each <= "~" for each in token):
        raise AuthenticationError(f"{where}: expected JSON with access_token")
    lifetime_s = said.get("expires_in")
    if isinstance(lifetime_s, str) and lifetime_s.isdecimal():
        lifetime_s = int(lifetime_s)
    if not isinstance(lifetime_s, int | float) or isinstance(lifetime_s, bool):
        lifetime_s = _expiry(token) - time.time()
    return token, max(0.0, float(lifetime_s))


def _expiry(token: str) -> float:
    """When a JWT ends, in seconds since 1970; 0 if it does not say: it is asked for at each login then."""
    try:
        part = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["exp"])
    except (ValueError, KeyError, IndexError, TypeError):
        return 0.0
