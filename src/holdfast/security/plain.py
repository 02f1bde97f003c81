"""PLAIN on a broker's side (RFC 4616): a name and a password, as they are.

Users and passwords are the listener's own, from its line for the login module: comparing with the keys of SCRAM would
take a millisecond of the loop for each guess. Who is not known is compared too, with a password that nobody has.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from holdfast.model.shown import shown
from holdfast.security.principal import Principal
from holdfast.security.sasl_mechanism import Proved, Refused, SaslStep

NAME: Final = "PLAIN"
MOST_BYTES: Final = 65_536
"""Of a message; more is no name and password."""
_NOBODY: Final = b"\0"
"""No password has this character in it: it separates the parts of the message."""


class PlainServer:
    """One login; ``users``: password by name."""

    __slots__ = ("_users",)

    def __init__(self, users: Mapping[str, bytes]) -> None:
        self._users = users

    def answer(self, token: bytes, now_ms: int) -> SaslStep:
        """The client's one message. Kafka's rules: no part may be empty, and one acts for oneself (CVE-2017-12610)."""
        if len(token) > MOST_BYTES:
            return Refused(f"a message of {len(token)} bytes, expected {MOST_BYTES} at most")
        parts = token.split(b"\0")
        if len(parts) != 3:
            return Refused(f"{len(parts)} parts, expected 3: authorization id, name, password")
        try:
            acts_for, user = parts[0].decode(), parts[1].decode()
        except UnicodeDecodeError:
            return Refused("the name is not UTF-8")
        password = parts[2]
        if not user or not password:
            return Refused("an empty name or password")
        known = self._users.get(user)
        is_right = hmac.compare_digest(password, _NOBODY if known is None else known)
        if not is_right or known is None:
            return Refused(f"user {shown(user)}: unknown, or another password")
        if acts_for and acts_for != user:
            return Refused(f"user {shown(user)} asks for the authorization id of another one")
        return Proved(b"", Principal.user(user))
