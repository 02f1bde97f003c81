"""Keys by which tokens are checked, from where their provider publishes them: a file or an address of the web.

Nothing is read that sasl.oauthbearer.allowed.urls does not have (CVE-2025-27817). A file is read at the start, and who
cannot read it does not start. An address is asked by a thread of its own, at the start and every ``refresh_s``; a login
never waits for it: until there are keys tokens are refused, and when the address does not answer the keys that are
there stay. A key that is not known has the address asked once more, once in ``UNKNOWN_S`` whoever and how many ask.
"""

from __future__ import annotations

import http.client
import logging
import ssl
import threading
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from holdfast.model.config_bearer_keys import ALLOWED_URLS, KEYS_URL
from holdfast.model.errors import ConfigError
from holdfast.security.bearer_token import BearerToken, TokenError
from holdfast.security.token_keys import MOST_KEY_SET_BYTES, TokenKeys, UnknownKeyError

UNKNOWN_S: Final = 60.0
ASK_S: Final = 10.0
"""How long an address has for its whole answer."""
TOLD_S: Final = 60.0
"""That keys cannot be read is told so often at the most."""
_PIECE: Final = 16 << 10
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlace:
    """Where keys are, and how often they are read. ``trusts``: for https; None: the authorities of the system."""

    url: str
    refresh_s: float = 3600.0
    backoff_s: float = 0.1
    backoff_max_s: float = 10.0
    unknown_s: float = UNKNOWN_S
    trusts: ssl.SSLContext | None = None

    @property
    def path(self) -> str | None:
        """Of a file; None: an address of the web."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.scheme == "file" else None


def check_allowed(url: str, allowed: Sequence[str]) -> None:
    """ConfigError: nothing may be read there, or nothing can be."""
    if url not in allowed:
        raise ConfigError(
            f"Invalid value {url!r} of {KEYS_URL}: it is not allowed: expected one of {ALLOWED_URLS}, "
            f"{', '.join(allowed) or 'which is empty'}"
        )
    try:
        parts = urlsplit(url)
        good = (parts.scheme == "file" and not parts.netloc and parts.path.startswith("/")) or (
            parts.scheme == "https" and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        )
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"Invalid value {url!r} of {KEYS_URL}: expected file:///PATH or https://HOST[:PORT]/PATH")


class _Shared:
    """What the thread and those who log in have in common; assigned as a whole, so nobody holds a lock."""

    def __init__(self) -> None:
        self.keys: TokenKeys | None = None
        self.wanted = False
        """Somebody has come with a key that is not known."""
        self.wake = threading.Event()
        self.ended = False

    def end(self) -> None:
        self.ended = True
        self.wake.set()


class KeySource:
    """See the module's docstring. It ends with ``close``, or when nobody has it any more."""

    def __init__(self, place: KeyPlace) -> None:
        """ConfigError: a file cannot be read."""
        self._shared = _Shared()
        self._place = place
        if place.path is not None:
            self._shared.keys = _of_file(place.path)
        thread = threading.Thread(target=_run, args=(place, self._shared), name="token-keys", daemon=True)
        self._finalizer = weakref.finalize(self, self._shared.end)
        thread.start()

    @property
    def keys(self) -> TokenKeys | None:
        """None: they have not been read yet."""
        return self._shared.keys

    def check(self, token: BearerToken) -> None:
        """TokenError: none of the keys has signed it."""
        keys = self._shared.keys
        if keys is None:
            raise TokenError(f"the keys of {self._place.url} are not known yet")
        try:
            keys.check(token)
        except UnknownKeyError:
            if not self._shared.wanted:
                self._shared.wanted = True
                self._shared.wake.set()
            raise

    def close(self) -> None:
        """The thread ends, at once if it does not ask just now."""
        self._finalizer()


def _run(place: KeyPlace, shared: _Shared) -> None:
    """Reads when it is time. Knows no KeySource, so that one which is forgotten ends."""
    failures, told_s, read_s = 0, -TOLD_S, time.monotonic()
    next_s = read_s if shared.keys is None else read_s + place.refresh_s
    while not shared.ended:
        now_s = time.monotonic()
        due_s = min(next_s, read_s + place.unknown_s) if shared.wanted and not failures else next_s
        if due_s > now_s:
            shared.wake.wait(min(due_s - now_s, threading.TIMEOUT_MAX))
            shared.wake.clear()
            continue
        read_s, shared.wanted = now_s, False
        try:
            keys = _ask(place) if place.path is None else _of_file(place.path)
        except ConfigError as error:
            next_s = time.monotonic() + min(place.backoff_s * 2 ** min(failures, 30), place.backoff_max_s)
            failures += 1
            if now_s - told_s >= TOLD_S:
                told_s = now_s
                what = "tokens are refused until they can" if shared.keys is None else "those that are known stay"
                log.warning("%s; %s", error, what)
            continue
        if failures or shared.keys is None:
            log.info("%s: %d keys", place.url, len(keys))
        shared.keys, failures, next_s = keys, 0, time.monotonic() + place.refresh_s


def _of_file(path: str) -> TokenKeys:
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_KEY_SET_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{KEYS_URL}: {path} cannot be read: {error.strerror}") from None
    return _parsed(text, path)


def _parsed(text: bytes, where: str) -> TokenKeys:
    try:
        return TokenKeys.parse(text)
    except ValueError as error:
        raise ConfigError(f"{KEYS_URL}: {where}: {error}") from None


class _Unredirected(urllib.request.HTTPRedirectHandler):
    """What was allowed is asked, and nothing that it names instead."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


def _ask(place: KeyPlace) -> TokenKeys:
    """ConfigError: there is no answer that is one."""
    handler = urllib.request.HTTPSHandler(context=place.trusts or ssl.create_default_context())
    request = urllib.request.Request(place.url, headers={"Accept": "application/json"})
    until_s, text = time.monotonic() + ASK_S, b""
    try:
        with urllib.request.build_opener(_Unredirected(), handler).open(request, timeout=ASK_S) as answer:
            while len(text) <= MOST_KEY_SET_BYTES and (piece := answer.read1(_PIECE)):
                text += piece
                if time.monotonic() > until_s:
                    raise TimeoutError("no whole answer in time")
    except urllib.error.HTTPError as error:
        with error:
            raise ConfigError(f"{KEYS_URL}: {place.url}: HTTP {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(f"{KEYS_URL}: {place.url}: no answer: {reason}") from None
    return _parsed(text, place.url)
