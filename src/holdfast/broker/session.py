"""What a broker knows of who is at the other end of a connection, and what handlers remember of it.

A typed value; the gate and the handlers write it, nobody closes or reads the connection here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast.broker.judge import Judge
from holdfast.security.principal import ANONYMOUS, Principal
from holdfast.security.sasl_server import SaslServer

if TYPE_CHECKING:
    from holdfast.security.quotas import Limit


class Closing(Protocol):
    """What ends with the connection."""

    def close(self) -> None: ...


@dataclass(slots=True)
class Session:
    """Of one connection. ``principal`` is ANONYMOUS until somebody has proved another one."""

    principal: Principal = ANONYMOUS
    unasked_since_s: float | None = None
    """When the connection was accepted, by the loop's clock; None from its first question for metadata on."""
    sasl: SaslServer | None = None
    """The logins of a connection to a listener with SASL, from its first request on."""
    judge: Judge | None = None
    """Of the principal, for the last API that asked for one (judge.py)."""
    takes_tokens: bool = False
    """What comes next are tokens without a header (SaslHandshake 0)."""
    software: tuple[str, str] | None = None
    """Name and version of the client, as its ApiVersions says."""
    broker: tuple[int, int] | None = None
    """Id and epoch of the broker that registered, or heartbeats, by it."""
    bytes_limit: Limit | None = None
    """What its owner may have of the broker's time, for bytes; None: as much as it likes, or nobody has looked."""
    is_timed: bool = False
    """Whether the time of its bytes is measured."""
    parked_fetch: Closing | None = None
    """A consumer's Fetch that waits."""
    follower: Closing | None = None
    """The fetch session of a follower (handlers/fetch.py)."""

    @property
    def is_brokers(self) -> bool:
        """Whether another broker fetches or heartbeats by it."""
        return self.broker is not None or self.follower is not None

    def close(self) -> None:
        """The connection is gone: nobody waits any more."""
        for each in (self.parked_fetch, self.follower):
            if each is not None:
                each.close()
