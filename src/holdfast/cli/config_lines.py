"""Configurations as lines and JSON, and what an operation on a key comes to. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from holdfast.cli.columns import table_lines
from holdfast.cli.failing import Failed
from holdfast.client.configs import AlterConfigOp, ConfigTarget, KeyChange
from holdfast.client.views import ConfigValue

DEFAULT = "DEFAULT_CONFIG"
NOT_SET = "(not set)"
SENSITIVE = "(sensitive)"
NULL = "null"
"""Kafka's tools print it for no value, and for one that is not told."""
_SHORT = {
    "DYNAMIC_TOPIC_CONFIG": "DYNAMIC_TOPIC",
    "DYNAMIC_BROKER_CONFIG": "DYNAMIC_BROKER",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "DYNAMIC_DEFAULT",
    "STATIC_BROKER_CONFIG": "STATIC",
    DEFAULT: "DEFAULT",
}
"""Kafka's names of sources, short enough for 80 columns beside almost every key."""
_MOST: Final = {0: 47, 2: len("DEFAULT, read-only")}
"""Two keys are longer, and few sources: their lines are."""


def chosen_values(values: Iterable[ConfigValue], keys: Sequence[str], *, everything: bool) -> list[ConfigValue]:
    """Those that are named; else those that are not default, or all. By name. Failed: there is no such key."""
    there = {v.name: v for v in values}
    if keys:
        for key in keys:
            if key not in there:
                raise Failed(unknown_key(key, there))
        return [there[key] for key in sorted(set(keys))]
    return sorted((v for v in there.values() if everything or v.source != DEFAULT), key=lambda v: v.name)


def unknown_key(key: str, there: Iterable[str]) -> str:
    """``no key 'retention.mss': did you mean 'retention.ms'?``"""
    return f"no key '{key}'{nearest(key, there)}"


def nearest(key: str, there: Iterable[str]) -> str:
    """The question at the end of such a line; empty where no key is like it."""
    near = get_close_matches(key, list(there), n=1)
    return f": did you mean '{near[0]}'?" if near else ""


def described_lines(values: Sequence[ConfigValue], width: int | None) -> list[str]:
    """The table."""
    rows = [(v.name, NULL if v.value is None else _quoted(v.value), _source(v)) for v in values]
    return list(table_lines(("KEY", "VALUE", "SOURCE"), rows, width=width, folded=1, most=_MOST))


def _source(value: ConfigValue) -> str:
    marks = [_SHORT.get(value.source, value.source)]
    marks += ["read-only"] if value.read_only else []
    marks += ["sensitive"] if value.sensitive else []
    return ", ".join(marks)


def described_json(target: ConfigTarget, values: Iterable[ConfigValue]) -> str:
    """One document, with Kafka's names of types and sources."""
    kind = "topic" if target.topic is not None else "broker"
    name: Any = target.topic if target.topic is not None else target.broker
    configs = [
        {
            "name": v.name, "value": v.value, "source": v.source, "type": v.type, "read_only": v.read_only,
            "sensitive": v.sensitive,
            "synonyms": [{"name": s.name, "value": s.value, "source": s.source} for s in v.synonyms],
        }
        for v in values
    ]  # fmt: skip
    return json.dumps({"version": 1, "entity": {"type": kind, "name": name}, "configs": configs}, ensure_ascii=False)


def parse_change(text: str) -> KeyChange:
    """Of KEY=VALUE, KEY+=VALUE, KEY-=VALUE. ValueError."""
    key, equals, value = text.partition("=")
    operation = {"+": AlterConfigOp.APPEND, "-": AlterConfigOp.SUBTRACT}.get(key[-1:], AlterConfigOp.SET)
    key = (key if operation is AlterConfigOp.SET else key[:-1]).strip()
    if not equals or not key:
        raise ValueError(f"{text!r}: expected KEY=VALUE, or KEY+=VALUE and KEY-=VALUE for lists")
    return KeyChange(key=key, operation=operation, value=value.strip())


def parse_changes(texts: Iterable[str]) -> list[KeyChange]:
    """ValueError: one is none, or a key comes twice."""
    found: dict[str, KeyChange] = {}
    for text in texts:
        change = parse_change(text)
        if change.key in found:
            raise ValueError(f"{change.key} comes twice: expected each key once")
        found[change.key] = change
    return list(found.values())


def parse_keys(keys: Iterable[str]) -> list[KeyChange]:
    """What unset does to each. ValueError: one is no key, or comes with a value."""
    found = {}
    for key in keys:
        if "=" in key or not key.strip():
            raise ValueError(f"{key!r}: expected a KEY alone")
        found[key] = KeyChange(key=key, operation=AlterConfigOp.DELETE)
    return list(found.values())


def value_after(change: KeyChange, target: ConfigTarget, present: ConfigValue | None) -> str | None:
    """What the key has when the change is made; None where only the broker can tell.

    A list operation begins with what is in force. Whoever works it out does not know the file of another broker.
    """
    if change.operation is AlterConfigOp.DELETE:
        if present is None or target == ConfigTarget():
            return NOT_SET  # what brokers have in their files, only they know
        below = [s for s in present.synonyms if s.source != target.layer]
        return (SENSITIVE if present.sensitive else below[0].value) if below else None
    if present is not None and present.sensitive:
        return SENSITIVE
    if change.operation is AlterConfigOp.SET:
        return change.value
    if present is None or (target.topic is None and target.layer not in _layers(present)):
        return None
    items = [item for item in (present.value or "").split(",") if item]
    wanted = [item.strip() for item in (change.value or "").split(",") if item.strip()]
    if change.operation is AlterConfigOp.APPEND:
        items += [item for item in wanted if item not in items]
    else:
        items = [item for item in items if item not in wanted]
    return ",".join(items)


def change_line(
    target: ConfigTarget, change: KeyChange, present: ConfigValue | None, after: str | None, *, dry_run: bool
) -> str:
    """``topic t: retention.ms: 604800000 -> 3600000``; ``after``: as ``value_after`` has it."""
    begin = f"{target}: {change.key}: "
    end = " (dry run)" if dry_run else ""
    if change.operation is AlterConfigOp.DELETE and (present is None or target.layer not in _layers(present)):
        return f"{begin}was not set{'' if present is None else f', it is {_quoted(shown(present))}'}{end}"
    before = NOT_SET if present is None else shown(present)
    return f"{begin}{_quoted(before)} -> {_UNTOLD[change.operation](change) if after is None else _quoted(after)}{end}"


_UNTOLD: Final[Mapping[AlterConfigOp, Callable[[KeyChange], str]]] = {
    AlterConfigOp.DELETE: lambda _: "its default",
    AlterConfigOp.APPEND: lambda change: f"with {change.value}",
    AlterConfigOp.SUBTRACT: lambda change: f"without {change.value}",
}
"""What is said of a value that only the broker can tell, and a dry run does not ask for."""


def _layers(value: ConfigValue) -> set[str]:
    """Those that give the key a value; a broker key behind a topic's is of other layers."""
    return {s.source for s in value.synonyms} or {value.source}


def shown(value: ConfigValue) -> str:
    """The value in a line."""
    if value.sensitive:
        return SENSITIVE
    return NULL if value.value is None else value.value


def _quoted(text: str) -> str:
    """So that nothing is seen as nothing."""
    return text or "''"
