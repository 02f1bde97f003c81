"""Users' passwords and clients' quotas as kafka-configs.sh has them: entities, values, and its lines. Pure.

An entity is what the wire has: a name, or None for the default, by ``user``, ``client-id`` or ``ip``.
"""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from typing import Final

USER, CLIENT_ID, IP = "user", "client-id", "ip"
Entity = Mapping[str, str | None]
Quotas = Mapping[str, float]
KEYS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
"""Of users and clients."""
IP_KEYS: Final = ("connection_creation_rate",)
_SINGULAR: Final = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
_PLURAL: Final = {USER: "users", CLIENT_ID: "clients", IP: "ips"}
_KAFKAS_TYPE: Final = {USER: "user", CLIENT_ID: "client", IP: "ip"}
_KINDS: Final = ((USER,), (USER, CLIENT_ID), (CLIENT_ID,), (IP,))
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
LEAST_ITERATIONS, MOST_ITERATIONS = 4096, 16384


def entity_of(
    *,
    user: str | None = None,
    client: str | None = None,
    ip: str | None = None,
    user_default: bool = False,
    client_default: bool = False,
    ip_default: bool = False,
) -> dict[str, str | None]:
    """What the options name. ValueError: nothing, or what cannot be one."""
    found: dict[str, str | None] = {}
    for kind, name, default, options in (
        (USER, user, user_default, "--user and --user-default"),
        (CLIENT_ID, client, client_default, "--client and --client-default"),
        (IP, ip, ip_default, "--ip and --ip-default"),
    ):
        if name is not None and default:
            raise ValueError(f"expected one of {options}")
        if name is not None or default:
            found[kind] = name
            if name == "":
                raise ValueError(f"--{_KAFKAS_TYPE[kind]} '': expected a name, or --{_KAFKAS_TYPE[kind]}-default")
    if IP in found and len(found) > 1:
        raise ValueError("--ip: expected it without --user and --client: connections are counted before anybody speaks")
    if ip is not None:
        try:
            ipaddress.ip_address(ip)
        except ValueError:
            raise ValueError(f"--ip {ip}: expected an address") from None
    return found


def parse_quotas(entity: Entity, texts: Iterable[str]) -> dict[str, float]:
    """Of KEY=VALUE. ValueError."""
    found: dict[str, float] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise ValueError(f"{text!r}: expected KEY=VALUE, like producer_byte_rate=1000000")
        _check_key(entity, key)
        if key in found:
            raise ValueError(f"{key} comes twice: expected each key once")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number <= 0:
            raise ValueError(f"{text!r}: expected a number above 0")
        found[key] = number
    return found


def parse_quota_keys(entity: Entity, keys: Sequence[str]) -> list[str]:
    """ValueError: one is no quota of such an entity."""
    for key in keys:
        _check_key(entity, key)
    return list(dict.fromkeys(keys))


def _check_key(entity: Entity, key: str) -> None:
    there = IP_KEYS if IP in entity else KEYS
    if key not in there:
        near = get_close_matches(key, there, n=1)
        hint = f": did you mean {near[0]}?" if near else ""
        raise ValueError(f"no quota {key!r} of {'an ip' if IP in entity else 'users and clients'}{hint}; there are "
                         f"{', '.join(there)}")  # fmt: skip


def javas_number(value: float) -> str:
    """As Java prints a double: ``1024.0``, ``1.0E7``."""
    number = Decimal(repr(float(value)))
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{number:f}"
        return text if "." in text else f"{text}.0"
    _, digits, _ = number.normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if value < 0 else ''}{digits[0]}.{rest}E{number.adjusted()}"


def entity_text(entity: Entity) -> str:
    """``user-principal 'bob', the default client-id``."""
    return ", ".join(
        f"the default {_SINGULAR[kind]}" if entity[kind] is None else f"{_SINGULAR[kind]} '{entity[kind]}'"
        for kind in (USER, CLIENT_ID, IP)
        if kind in entity
    )


def quota_line(entity: Entity, quotas: Quotas) -> str:
    values = ", ".join(f"{key}={javas_number(value)}" for key, value in sorted(quotas.items()))
    return f"Quota configs for {entity_text(entity)} are {values}"


def quota_lines(found: Iterable[tuple[Entity, Quotas]]) -> list[str]:
    """Those of users first, then of users with clients, of clients, of ips; the default before names."""
    return [quota_line(entity, quotas) for entity, quotas in sorted(found, key=lambda each: _order(each[0])) if quotas]


def _order(entity: Entity) -> tuple[int, tuple[str, ...]]:
    kinds = tuple(kind for kind in (USER, CLIENT_ID, IP) if kind in entity)
    return _KINDS.index(kinds), tuple(entity[kind] or "" for kind in kinds)


def credential_line(user: str, credentials: Mapping[str, int]) -> str:
    """``credentials``: iterations by mechanism."""
    values = ", ".join(f"{name}=iterations={count}" for name, count in sorted(credentials.items(), reverse=True))
    return f"SCRAM credential configs for user-principal '{user}' are {values}"


def completed_line(entity: Entity) -> str:
    """What kafka-configs.sh says when it is done; of two entities it names the first."""
    kind = next(kind for kind in (USER, CLIENT_ID, IP) if kind in entity)
    if entity[kind] is None:
        return f"Completed updating default config for {_PLURAL[kind]} in the cluster."
    return f"Completed updating config for {_KAFKAS_TYPE[kind]} {entity[kind]}."


def quotas_document(found: Iterable[tuple[Entity, Quotas]]) -> str:
    """One JSON document; null is the default."""
    listed = [
        {"entity": dict(entity), "quotas": dict(sorted(quotas.items()))}
        for entity, quotas in sorted(found, key=lambda each: _order(each[0]))
    ]
    return json.dumps({"version": 1, "quotas": listed}, ensure_ascii=False)


def users_document(found: Mapping[str, Mapping[str, int]]) -> str:
    """One JSON document: iterations by mechanism, no passwords, as nobody knows them."""
    users = [
        {"name": user, "credentials": [{"mechanism": m, "iterations": n} for m, n in sorted(credentials.items())]}
        for user, credentials in sorted(found.items())
    ]
    return json.dumps({"version": 1, "users": users}, ensure_ascii=False)
