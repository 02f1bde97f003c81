"""What every SASL mechanism of a broker is: one object a login, which answers what the client says.

Deciding code: the time is a parameter, chance is given at the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from holdfast.security.principal import Principal


@dataclass(frozen=True, slots=True)
class Challenge:
    """The login goes on: what the client is told."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Proved:
    """Who speaks is known. ``expires_ms``: when what proves it ends, by the wall clock; None: it does not."""

    token: bytes
    principal: Principal
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The login has failed. ``reason`` is for the broker's log, and never told to the client. ``told``: what the client
    is told rather than the text that all failed logins have; it says nothing of users."""

    reason: str
    told: str | None = None


SaslStep: TypeAlias = Challenge | Proved | Refused


class SaslMechanism(Protocol):
    """One login. It is asked until it has answered Proved or Refused, and not after."""

    def answer(self, token: bytes, now_ms: int) -> SaslStep: ...
