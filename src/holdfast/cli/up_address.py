"""By which address the brokers of ``holdfast up`` are reached, and where they listen for that.

    --host          clients are told   clients' listener is bound to   brokers among themselves
    (none)          127.0.0.1          127.0.0.1                       127.0.0.1
    10.0.0.5        10.0.0.5           10.0.0.5                        127.0.0.1
    log.example     log.example        every address                   127.0.0.1

A name is not bound to, as a machine may know itself by it at 127.0.1.1. Brokers stay among themselves: what they say to
each other is believed, and none but them is on this machine.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
import time
from dataclasses import dataclass
from typing import Final

from holdfast.model.listeners import is_loopback, is_unspecified

HOST: Final = "127.0.0.1"
REGISTRY_VARIABLE: Final = "HOLDFAST_SCHEMA_REGISTRY"
"""Of the schema registry that a console asks, its own or that of `up`."""
PORT_WAIT_S: Final = 1.0
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """``host`` is what clients are told; ValueError says what is wrong with it."""

    host: str = HOST

    def __post_init__(self) -> None:
        if is_unspecified(self.host):
            raise ValueError(f"{self.host}: expected an address by which clients reach this machine")
        if not self._is_literal and not _NAME.fullmatch(self.host):
            raise ValueError(f"{self.host!r}: expected an address or a name of this machine, without port")

    @property
    def _is_literal(self) -> bool:
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return False
        return True

    @property
    def is_loopback(self) -> bool:
        """Nobody from elsewhere gets here."""
        return is_loopback(self.host)

    @property
    def bound(self) -> str:
        """Where clients' listener listens; empty is every address."""
        return self.host if self._is_literal or self.is_loopback else ""

    @property
    def local(self) -> str:
        """By which this machine reaches clients' listener for certain."""
        return self.bound or HOST


def port_is_free(port: int, host: str = HOST) -> bool:
    """Whether a broker could listen there now; OSError when ``host`` is no address of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as e:
            if e.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def not_of_this_machine(host: str, error: OSError) -> str:
    """What is said then."""
    why = error.strerror or error
    return f"--host {host}: {why}: expected an address of this machine, or a name by which others know it"


def port_gets_free(port: int, host: str = HOST) -> bool:
    """The port of a broker that was killed is kept by its closer for a moment."""
    limit_s = time.monotonic() + PORT_WAIT_S
    while not port_is_free(port, host):
        if time.monotonic() > limit_s:
            return False
        time.sleep(0.01)
    return True


def port_is_ours(host: str, port: int, *, wait: bool) -> bool:
    """Whether a broker could listen there, or with ``wait`` can in a moment. True where ``host`` is no address of this
    machine, of which others say more."""
    try:
        return port_gets_free(port, host) if wait else port_is_free(port, host)
    except OSError:
        return True
