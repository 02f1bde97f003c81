"""``--producer-property KEY=VALUE``: settings of a producer by Kafka's names, where the command has them.

Owns the names, their values and what they mean; a name that changes nothing here is refused. The file of
--command-config, which is made for other clients too, may have others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import click

from holdfast.cli.command_config import OPTION, command_config
from holdfast.records.compression import Codec

F = TypeVar("F", bound=Callable[..., Any])
ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}
MOST_BYTES: Final = 1 << 30
MOST_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerProperties:
    """What the properties say; None where they say nothing."""

    acks: int | None = None
    batch_bytes: int | None = None
    buffer_bytes: int | None = None
    client_id: str | None = None
    codec: Codec | None = None
    delivery_timeout_s: float | None = None
    idempotent: bool | None = None
    linger_s: float | None = None


def _one_of(names: Mapping[str, Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        if text not in names:
            raise ValueError(f"expected one of {', '.join(names)}")
        return names[text]

    return parse


def _whole(least: int, most: int, *, per: float | None = None) -> Callable[[str], float]:
    """``per``: milliseconds become seconds by it."""

    def parse(text: str) -> float:
        if not text.isascii() or not text.isdecimal() or not least <= int(text) <= most:
            raise ValueError(f"expected {least} to {most}")
        return int(text) if per is None else int(text) / per

    return parse


def _name(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("expected a name")
    return text


_KEYS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "acks": ("acks", _one_of(ACKS)),
    "batch.size": ("batch_bytes", _whole(100, 32 << 20)),
    "buffer.memory": ("buffer_bytes", _whole(1, MOST_BYTES)),
    "client.id": ("client_id", _name),
    "compression.type": ("codec", _one_of({codec.name.lower(): codec for codec in Codec})),
    "delivery.timeout.ms": ("delivery_timeout_s", _whole(1, MOST_MS, per=1000)),
    "enable.idempotence": ("idempotent", _one_of({"true": True, "false": False})),
    "linger.ms": ("linger_s", _whole(0, MOST_MS, per=1000)),
}
"""Kafka's name -> what it sets, and how its value is read."""
_SAME: Final = {
    "acks": "acks", "batch_size": "batch.size", "compression": "compression.type", "linger_ms": "linger.ms",
    "idempotence": "enable.idempotence", "no_idempotence": "enable.idempotence",
}  # fmt: skip
"""A parameter of a command -> the property that says the same."""
_KNOWN: Final = "holdfast.producer_properties"
"""Of a click context's ``meta``: those that the command has."""


def properties_of(pairs: Sequence[str], known: Sequence[str]) -> ProducerProperties:
    """ValueError names the property, its value and what was expected. ``known``: those that the command has. Pure."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key, value = key.strip(), value.strip()
        if not equals:
            raise ValueError(f"{pair!r}: expected KEY=VALUE, as acks=all")
        if key not in known:
            raise ValueError(f"{key}: expected one of {', '.join(known)}")
        name, parse = _KEYS[key]
        if name in found:
            raise ValueError(f"{key} comes twice: expected each property once")
        try:
            found[name] = parse(value)
        except ValueError as e:
            raise ValueError(f"{key}={value}: {e}") from None
    return ProducerProperties(**found)


def producer_properties(*known: str) -> Callable[[F], F]:
    """The option, for a command that has these properties: parameter ``properties``."""

    def check(ctx: click.Context, param: click.Parameter, pairs: tuple[str, ...]) -> ProducerProperties:
        ctx.meta[_KNOWN] = known
        try:
            return properties_of(pairs, known)
        except ValueError as e:
            raise click.UsageError(f"--producer-property {e}", ctx) from None

    return click.option(
        "--producer-property", "properties", multiple=True, metavar="KEY=VALUE", callback=check,
        help=f"A producer's setting by Kafka's name; may be repeated: {', '.join(known)}.",
    )  # fmt: skip


def settled(ctx: click.Context, properties: ProducerProperties) -> ProducerProperties:
    """With what the file of --command-config says where neither a property nor an option does. UsageError where an
    option and a property say the same thing, or the file what cannot be."""
    optional = {
        key: f"--{parameter.replace('_', '-')}"
        for parameter, key in _SAME.items()
        if ctx.get_parameter_source(parameter) is click.core.ParameterSource.COMMANDLINE
    }
    for key, option in optional.items():
        if getattr(properties, _KEYS[key][0]) is not None:
            raise click.UsageError(f"{option} and {key} of --producer-property: expected one of them", ctx)
    known, settings = ctx.meta[_KNOWN], command_config().settings
    names = [
        key for key in known
        if key in settings and key not in optional and getattr(properties, _KEYS[key][0]) is None
    ]  # fmt: skip
    try:
        found = properties_of([f"{key}={settings[key]}" for key in names], known)
    except ValueError as e:
        raise click.UsageError(f"{OPTION} {e}", ctx) from None
    return replace(properties, **{_KEYS[key][0]: getattr(found, _KEYS[key][0]) for key in names})
