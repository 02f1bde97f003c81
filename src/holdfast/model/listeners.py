"""Listeners: where a broker listens, what others are told of it, and what is taken there.

    listeners  --bound by-->  the server        advertised.listeners  --told to-->  who comes by that listener

Values only, and the rules of the configuration keys that make them. Names are upper case, as Kafka has them. A
connection knows the listener that it came by (``ListenerUse``); who asks for addresses is told those of that
listener. A broker says by which of its listeners other brokers and the controller reach it, and is reached there,
whatever the others have chosen for themselves: so they may change one after the other (docs/decisions/0018).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from holdfast.model.errors import ConfigError

LISTENERS: Final = "listeners"
ADVERTISED: Final = "advertised.listeners"
PROTOCOL_MAP: Final = "listener.security.protocol.map"
INTER_BROKER: Final = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"
CONTROL_PLANE: Final = "control.plane.listener.name"
OPERATORS: Final = "operator.listener.names"
DEFAULT_PROTOCOL_MAP: Final = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
_ZEROS: Final = re.compile(r"(0x0+|0+)(\.(0x0+|0+)){0,3}", re.IGNORECASE)
"""What the C library takes for 0.0.0.0, too: every address of the machine, to listen on, not to be reached at."""


class SecurityProtocol(IntEnum):
    """How a listener is spoken to; the numbers are Kafka's."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address of a listener; an empty host is every address of the machine."""

    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Where one broker is reached. ``inter_broker`` and ``control_plane`` name two of ``listeners``, or one."""

    listeners: tuple[Endpoint, ...]
    inter_broker: str
    control_plane: str

    @classmethod
    def of(
        cls, listeners: Iterable[Endpoint], inter_broker: str | None = None, control_plane: str | None = None
    ) -> Endpoints:
        """None: brokers use the first one, the controller that of the brokers. ValueError if there is no such one."""
        found = tuple(listeners)
        names = [endpoint.name for endpoint in found]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"listeners {', '.join(names) or 'of no number'}: expected one or more, each name once")
        brokers = inter_broker or names[0]
        made = cls(listeners=found, inter_broker=brokers, control_plane=control_plane or brokers)
        for name in (made.inter_broker, made.control_plane):
            if name not in names:
                raise ValueError(f"brokers use listener {name}: expected one of {', '.join(names)}")
        return made

    @classmethod
    def one(cls, host: str, port: int, name: str = "PLAINTEXT") -> Endpoints:
        """Of a broker with a single listener, which all use."""
        return cls.of((Endpoint(name=name, host=host, port=port),))

    @property
    def choice(self) -> tuple[str | None, str | None]:
        """``inter_broker`` and ``control_plane`` as ``of`` takes them: None where it comes to the same by itself."""
        first, brokers, controller = self.listeners[0].name, self.inter_broker, self.control_plane
        return (None if brokers == first else brokers, None if controller == brokers else controller)

    def at(self, listener: str) -> Endpoint | None:
        """What who came by the listener of this name is told; None: this broker has none."""
        for endpoint in self.listeners:
            if endpoint.name == listener:
                return endpoint
        return None

    def _known(self, listener: str) -> Endpoint:
        endpoint = self.at(listener)
        assert endpoint is not None, f"{listener} is none of {self.listeners}"
        return endpoint

    @property
    def for_brokers(self) -> Endpoint:
        """By which other brokers fetch and ask."""
        return self._known(self.inter_broker)

    @property
    def for_controller(self) -> Endpoint:
        """By which the controller gives its orders, and by which it is asked when this broker is it."""
        return self._known(self.control_plane)

    @property
    def for_clients(self) -> tuple[Endpoint, ...]:
        """All but those that brokers have for themselves."""
        own = (self.inter_broker, self.control_plane)
        return tuple(e for e in self.listeners if e.name not in own) or (self.for_brokers,)

    def shares_address_with(self, other: Endpoints) -> bool:
        """Whether the two cannot both be alive: an address is one process's."""
        return not {e.address for e in self.listeners}.isdisjoint(e.address for e in other.listeners)

    def __str__(self) -> str:
        return ",".join(map(str, self.listeners))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerUse:
    """What is taken on a listener beside what clients ask."""

    name: str
    for_brokers: bool
    """What brokers and the controller say to each other, fetches in a follower's name among it."""
    for_operators: bool
    """What operators ask one broker (ManageLogDirs)."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @property
    def has_sasl(self) -> bool:
        """Whether one logs in before anything else."""
        return self.security_protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """All that the keys say. ``inter_broker_is_given``: by name; otherwise it follows from a protocol."""

    bound: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    inter_broker: str
    inter_broker_is_given: bool
    control_plane: str | None
    operators: tuple[str, ...]

    def use_of(self, name: str) -> ListenerUse:
        """Of one of the bound listeners."""
        for_brokers = name in (self.inter_broker, self.control_plane)
        return ListenerUse(
            name=name,
            for_brokers=for_brokers,
            for_operators=for_brokers or name in self.operators,
            security_protocol=next(e.security_protocol for e in self.bound if e.name == name),
        )

    @property
    def told_to_brokers(self) -> Endpoint:
        """By which other brokers reach this one; port 0: any, which is known once it listens."""
        return next(endpoint for endpoint in self.advertised if endpoint.name == self.inter_broker)

    @property
    def told_to_controller(self) -> Endpoint:
        """By which the controller gives this one its orders."""
        name = self.control_plane or self.inter_broker
        return next(endpoint for endpoint in self.advertised if endpoint.name == name)

    def endpoints(self, ports: Mapping[str, int]) -> Endpoints:
        """What the cluster is told; ``ports``: which each listener has got, for one that may have any."""
        told = (
            Endpoint(name=e.name, host=e.host, port=e.port or ports[e.name], security_protocol=e.security_protocol)
            for e in self.advertised
        )
        return Endpoints.of(told, self.inter_broker, self.control_plane)

    @property
    def clients_are_between_brokers(self) -> bool:
        """Whether there is no listener that brokers have for themselves."""
        return all(endpoint.name in (self.inter_broker, self.control_plane) for endpoint in self.bound)

    def refuse(self) -> None:
        """ConfigError for what a broker must not start with.

        An address that nobody can be told (operator B8); and brokers' own requests, which are trusted, taken from
        other machines without that somebody has said so.
        """
        for endpoint in self.advertised:
            if not endpoint.host:
                raise ConfigError(_not_reachable(endpoint, self.bound))
        between = next(e for e in self.bound if e.name == self.inter_broker)
        if not self.inter_broker_is_given and not is_loopback(between.host):
            raise ConfigError(
                f"{INTER_BROKER} is not set, and {between} is no loopback address: whoever reaches it can speak as a "
                f"broker. Give brokers a listener of their own and name it in {INTER_BROKER}; "
                f"{INTER_BROKER}={between.name} says that all who reach it may"
            )

    def warning(self) -> str | None:
        """What a person should hear at every start."""
        if not self.clients_are_between_brokers:
            return None
        return (
            f"{INTER_BROKER}: brokers have no listener of their own, clients use {self.inter_broker} too: whoever "
            f"reaches it can speak as a broker"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it. A name other than localhost may be any machine's."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_unspecified(host: str) -> bool:
    """Whether it is every address of a machine, in whichever spelling: nobody is reached by it."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return _ZEROS.fullmatch(host) is not None


def listening(
    *,
    listeners: Sequence[str],
    advertised: Sequence[str],
    protocol_map: str,
    inter_broker: str | None,
    inter_broker_protocol: str | None,
    control_plane: str | None,
    operators: Sequence[str],
) -> Listening:
    """What the values of the keys mean; ConfigError names what cannot be. None and empty: not given."""
    protocols = _protocols(protocol_map)
    bound = _endpoints(LISTENERS, listeners, protocols)
    _each_once(LISTENERS, bound)
    _each_port_once(bound)
    told = _endpoints(ADVERTISED, advertised, protocols) if advertised else bound
    _each_once(ADVERTISED, told)
    names = [endpoint.name for endpoint in bound]
    for endpoint in told:
        if endpoint.name not in names:
            raise ConfigError(
                f"Invalid value {str(endpoint)!r} of {ADVERTISED}: expected a listener of {LISTENERS}, "
                f"{', '.join(names)}"
            )
        if is_unspecified(endpoint.host):
            raise ConfigError(_not_reachable(endpoint, bound))
    names = [endpoint.name for endpoint in told]
    brokers = _inter_broker(inter_broker, inter_broker_protocol, names)
    if control_plane is not None:
        control_plane = control_plane.upper()
        if control_plane not in names or control_plane == brokers:
            raise ConfigError(
                f"Invalid value {control_plane!r} of {CONTROL_PLANE}: expected a listener of {ADVERTISED} other than "
                f"{brokers}, that of {INTER_BROKER}: {', '.join(n for n in names if n != brokers) or 'there is none'}"
            )
    for name in operators:
        if name.upper() not in [endpoint.name for endpoint in bound]:
            raise ConfigError(
                f"Invalid value {name!r} of {OPERATORS}: expected a listener of {LISTENERS}, "
                f"{', '.join(endpoint.name for endpoint in bound)}"
            )
    return Listening(
        bound=bound,
        advertised=told,
        inter_broker=brokers,
        inter_broker_is_given=inter_broker is not None,
        control_plane=control_plane,
        operators=tuple(name.upper() for name in operators),
    )


def _inter_broker(name: str | None, protocol: str | None, names: Sequence[str]) -> str:
    """Of the advertised listeners, that of brokers: by its name, or the one that is named like the protocol."""
    if name is not None and protocol is not None:
        raise ConfigError(f"Only one of {INTER_BROKER} and {INTER_BROKER_PROTOCOL} should be set: {INTER_BROKER} is it")
    wanted = (name or protocol or SecurityProtocol.PLAINTEXT.name).upper()
    if wanted in names:
        return wanted
    if name is not None:
        raise ConfigError(f"Invalid value {name!r} of {INTER_BROKER}: expected one of {', '.join(names)}")
    raise ConfigError(
        f"{INTER_BROKER} is not set, and no listener of {ADVERTISED} has the name of {INTER_BROKER_PROTOCOL}, "
        f"{wanted}: set {INTER_BROKER} to one of {', '.join(names)}"
    )


def _protocols(text: str) -> dict[str, SecurityProtocol]:
    """The map by names of listeners."""
    found: dict[str, SecurityProtocol] = {}
    for entry in (part.strip() for part in text.split(",") if part.strip()):
        name, _, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not name or protocol not in SecurityProtocol.__members__:
            raise ConfigError(
                f"Invalid value {entry!r} of {PROTOCOL_MAP}: expected NAME:PROTOCOL, the protocol one of "
                f"{', '.join(SecurityProtocol.__members__)}"
            )
        if name in found:
            raise ConfigError(
                f"Invalid value {entry!r} of {PROTOCOL_MAP}: expected each listener once, {name} is twice"
            )
        found[name] = SecurityProtocol[protocol]
    return found


def _endpoints(key: str, entries: Sequence[str], protocols: Mapping[str, SecurityProtocol]) -> tuple[Endpoint, ...]:
    result = []
    for entry in entries:
        name, separator, address = entry.partition("://")
        host, colon, port = address.rpartition(":")
        name = name.upper()
        if not (separator and colon and name and _is_port(port)):
            raise ConfigError(f"Invalid value {entry!r} of {key}: expected NAME://HOST:PORT")
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(
                f"Invalid value {entry!r} of {key}: No security protocol defined for listener {name}: expected an "
                f"entry {name}:PLAINTEXT in {PROTOCOL_MAP}"
            )
        result.append(Endpoint(name=name, host=host.strip("[]"), port=int(port), security_protocol=protocol))
    if not result:
        raise ConfigError(f"Invalid value '' of {key}: expected one NAME://HOST:PORT or more, by commas")
    return tuple(result)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) < 65536


def _each_once(key: str, endpoints: Sequence[Endpoint]) -> None:
    names = [endpoint.name for endpoint in endpoints]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        given = ",".join(map(str, endpoints))
        raise ConfigError(
            f"Invalid value {given!r} of {key}: Each listener must have a different name: {twice} is twice"
        )


def _each_port_once(endpoints: Sequence[Endpoint]) -> None:
    """Port 0 is any port, and one port may be had twice: of IPv4 and of IPv6."""
    taken: set[tuple[int, bool]] = set()
    for endpoint in endpoints:
        place = endpoint.port, ":" in endpoint.host
        if endpoint.port and place in taken:
            given = ",".join(map(str, endpoints))
            raise ConfigError(
                f"Invalid value {given!r} of {LISTENERS}: Each listener must have a different port: {endpoint.port} "
                f"is twice"
            )
        taken.add(place)


def _not_reachable(endpoint: Endpoint, bound: Sequence[Endpoint]) -> str:
    return (
        f"Invalid value {str(endpoint)!r} of {ADVERTISED}: expected an address that clients can reach;"
        f" set it beside {LISTENERS}={','.join(map(str, bound))}"
    )
