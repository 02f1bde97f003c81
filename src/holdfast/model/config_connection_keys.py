"""Keys that limit connections: how many there may be and how fast new ones come, and what is given to one that has not
said who it is.

Values only; who counts is security/connection_limits.py and broker/strangers.py (docs/decisions/0062).
"""

import ipaddress
from collections.abc import Mapping
from typing import Final

from holdfast.model.addresses import plain_address
from holdfast.model.config_key import INT_MAX, ConfigKey, ConfigType, Form, UpdateMode, make_key
from holdfast.model.errors import ConfigError

_I, _L, _S = ConfigType.INT, ConfigType.LONG, ConfigType.STRING
_ALL = UpdateMode.CLUSTER_WIDE

PER_IP: Final = "max.connections.per.ip"
OVERRIDES: Final = "max.connections.per.ip.overrides"
LOGIN_TIMEOUT: Final = "connections.login.timeout.ms"
LOGIN_MOST: Final = "connections.login.max"
LOGIN_BYTES: Final = "connections.login.max.bytes"
REQUEST_TIMEOUT: Final = "socket.request.timeout.ms"
_OVERRIDE: Final = r"\s*\[?[0-9A-Fa-f.:%]+\]?\s*:\s*[0-9]{1,10}\s*"

CONNECTION_KEYS: Final[tuple[ConfigKey, ...]] = (
    make_key("connections.max.idle.ms", _L, 600_000, "A connection without a request is closed after this."),
    make_key(
        "max.connections",
        _I,
        INT_MAX,
        "The most connections at a time. Brokers that connect get the place of the client that has been idle the "
        "longest, where they have a listener of their own.",
        0,
        update=_ALL,
        per_listener=True,
    ),
    make_key(
        "max.connection.creation.rate",
        _I,
        INT_MAX,
        "New connections a second at the most; a listener over it accepts none until the rate is back.",
        0,
        update=_ALL,
        per_listener=True,
    ),
    make_key(PER_IP, _I, INT_MAX, "The most connections of one address at a time.", 0, update=_ALL),
    make_key(
        OVERRIDES,
        _S,
        "",
        "The same for single addresses, by commas. Names are not looked up.",
        form=Form(pattern=rf"|{_OVERRIDE}(,{_OVERRIDE})*", words="ADDRESS:COUNT[,ADDRESS:COUNT]..."),
        update=_ALL,
    ),
    make_key(
        LOGIN_TIMEOUT,
        _I,
        10_000,
        "A connection of a listener with TLS or SASL that has not said who it is within this time is closed.",
        1,
        ours=True,
    ),
    make_key(
        LOGIN_MOST,
        _I,
        4000,
        "The most connections that have not said who they are; where there are more, the oldest goes.",
        1,
        ours=True,
    ),
    make_key(
        LOGIN_BYTES,
        _I,
        16 << 20,
        "The most bytes of requests of all such connections together; beyond it those go that have sent the most.",
        1,
        ours=True,
    ),
    make_key(
        REQUEST_TIMEOUT,
        _I,
        30_000,
        "A request that has begun to come has this time; after it, it has to come with 1,024 bytes a second, or its "
        "connection is closed.",
        1,
        ours=True,
    ),
)


def overrides_per_ip(text: str) -> Mapping[str, int]:
    """A value of max.connections.per.ip.overrides, by address. ConfigError: an entry is no address or no count."""
    found: dict[str, int] = {}
    for entry in (part.strip() for part in text.split(",") if part.strip()):
        host, _, count = (part.strip() for part in entry.rpartition(":"))
        address = plain_address(host.strip("[]"))
        try:
            ipaddress.ip_address(address)
        except ValueError:
            raise ConfigError(f"Invalid value {entry!r} of {OVERRIDES}: expected ADDRESS:COUNT, 10.0.0.7:100") from None
        if int(count) > INT_MAX:
            raise ConfigError(f"Invalid value {entry!r} of {OVERRIDES}: expected a count of {INT_MAX} at most")
        if address in found:
            raise ConfigError(f"Invalid value {entry!r} of {OVERRIDES}: expected each address once")
        found[address] = int(count)
    return found


def check_connection_limits(per_ip: int, overrides: str) -> None:
    """ConfigError where nobody could connect, or an override cannot be read. In Kafka's words where it has some."""
    if not overrides_per_ip(overrides) and not per_ip:
        raise ConfigError(f"{PER_IP} can be set to zero only if {OVERRIDES} property is set.")
