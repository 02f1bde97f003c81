"""Who is logged in at a console: sessions by the cookie of a browser, their limits and their ends. Pure: time and
cookies are the caller's.

A session ends by logging out, after ``IDLE_S`` without a request, after ``LONGEST_S`` whatever happens, or when its
user has ``MOST_OF_A_USER`` newer ones. Cookies are kept as hashes: what is in memory is of no use to who reads it.
"""

import hashlib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

IDLE_S: Final = 1800.0
LONGEST_S: Final = 12 * 3600.0
MOST_USERS: Final = 8
"""Each has somebody who looks at the cluster in the user's name."""
MOST_OF_A_USER: Final = 4

W = TypeVar("W", bound=Hashable)


@dataclass(slots=True)
class _Session(Generic[W]):
    who: W
    since_s: float
    used_s: float


class Sessions(Generic[W]):
    """Of users ``W``: two that are equal are one user."""

    def __init__(self) -> None:
        self._by_cookie: dict[bytes, _Session[W]] = {}

    def keys(self) -> frozenset[bytes]:
        """Of the sessions that there are."""
        return frozenset(self._by_cookie)

    def users(self) -> frozenset[W]:
        return frozenset(each.who for each in self._by_cookie.values())

    def may_begin(self, who: W) -> bool:
        users = self.users()
        return who in users or len(users) < MOST_USERS

    def begin(self, cookie: str, who: W, now_s: float) -> None:
        """The oldest ones of the same user go where there would be too many."""
        own = sorted((each.since_s, key) for key, each in self._by_cookie.items() if each.who == who)
        for _, key in own[: max(0, len(own) - MOST_OF_A_USER + 1)]:
            del self._by_cookie[key]
        self._by_cookie[_hashed(cookie)] = _Session(who, now_s, now_s)

    def found(self, cookies: Iterable[str], now_s: float) -> tuple[bytes, W] | None:
        """The key and the user of a request with these cookies, which counts as use; None: nobody's."""
        for cookie in cookies:
            key = _hashed(cookie)
            found = self._by_cookie.get(key)
            if found is not None and not _is_over(found, now_s):
                found.used_s = now_s
                return key, found.who
        return None

    def user(self, cookies: Iterable[str], now_s: float) -> W | None:
        """As ``found``, the user alone."""
        found = self.found(cookies, now_s)
        return None if found is None else found[1]

    def end(self, cookie: str) -> None:
        self._by_cookie.pop(_hashed(cookie), None)

    def end_all_of(self, who: W) -> None:
        self._by_cookie = {key: each for key, each in self._by_cookie.items() if each.who != who}

    def expire(self, now_s: float) -> None:
        """Those whose time is over go."""
        self._by_cookie = {key: each for key, each in self._by_cookie.items() if not _is_over(each, now_s)}


def _is_over(session: _Session[W], now_s: float) -> bool:
    return now_s - session.used_s > IDLE_S or now_s - session.since_s > LONGEST_S


def _hashed(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode(errors="replace")).digest()
