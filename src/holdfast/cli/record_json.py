"""A record as a JSON object on a line, and back: what ``consume --json`` writes and ``produce --json`` reads. Pure.

    {"topic":"t","partition":0,"offset":7,"timestamp":1767225600000,"timestampType":"CreateTime",
     "key":"k","value":null,"headers":[{"key":"h","value":"v"}]}

Bytes that are UTF-8 are a string; others are base64 in ``keyBase64`` or ``valueBase64``, instead of ``key`` or
``value``. Null is null. A record without a timestamp has null there. Nothing is lost on the way: the bytes that come
back are those that were written. ``record_of`` is strict: what it does not know, it refuses.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.records.batch import NO_TIMESTAMP, TimestampType
from holdfast.records.record import Header, Record

TYPE_NAMES: Final = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
"""Kafka's words for whose clock it was."""
LATEST_TIMESTAMP: Final = (1 << 63) - 2
"""A batch holds times as distances from its first one, which may be -1: one more and the distance would not fit."""
BYTES_FIELDS: Final = ("key", "keyBase64", "value", "valueBase64")
FIELDS: Final = frozenset(("topic", "partition", "offset", "timestamp", "timestampType", "headers", *BYTES_FIELDS))
SHOWN: Final = 60

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class InputRecord(NamedTuple):
    """What a line of input says of a record. ``timestamp`` is None where it says nothing."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    timestamp: int | None = None
    partition: int | None = None


# -- out ---------------------------------------------------------------------------------------------------


def json_line(topic: str, partition: int, kind: TimestampType, record: Record) -> bytes:
    """The object, and a newline."""
    found: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp == NO_TIMESTAMP else record.timestamp,
        "timestampType": TYPE_NAMES[kind],
    }
    _put(found, "key", record.key)
    _put(found, "value", record.value)
    found["headers"] = [_header(name, value) for name, value in record.headers]
    return _encode(found).encode() + b"\n"


def _header(name: str, value: bytes | None) -> dict[str, Any]:
    found: dict[str, Any] = {"key": name}
    _put(found, "value", value)
    return found


def _put(found: dict[str, Any], name: str, data: bytes | None) -> None:
    found.update(encoded(name, data))


def encoded(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes under their name, or under that of their base64."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name + "Base64": base64.b64encode(data).decode()}


# -- in ----------------------------------------------------------------------------------------------------


def record_of(line: bytes) -> InputRecord:
    """ValueError says what is wrong with the line."""
    found = _object(line)
    unknown = sorted(found.keys() - FIELDS)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}, expected {', '.join(sorted(FIELDS))}")
    if "value" not in found and "valueBase64" not in found:
        raise ValueError("no value, expected a field value or valueBase64; null is a tombstone")
    for name in ("partition", "offset"):
        if name in found:
            _whole(found, name, (1 << 63) - 1)
    kind = found.get("timestampType")
    if kind is not None and kind not in TYPE_NAMES.values():
        raise ValueError(f"timestampType {_shown(kind)}, expected {' or '.join(TYPE_NAMES.values())}")
    if not isinstance(found.get("topic", ""), str):
        raise ValueError(f"topic {_shown(found['topic'])}, expected a string")
    return InputRecord(
        _bytes(found, "key"), _bytes(found, "value"), _headers(found), _timestamp(found), found.get("partition")
    )


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line.decode(), object_pairs_hook=_once)
    except UnicodeDecodeError as e:
        raise ValueError(f"no UTF-8 at byte {e.start}, expected one JSON object a line") from None
    except RecursionError:
        raise ValueError("JSON in JSON in JSON, expected one flat object a line") from None
    except json.JSONDecodeError as e:
        raise ValueError(f"no JSON: {e.msg} at character {e.pos + 1}, expected one JSON object a line") from None
    if not isinstance(found, dict):
        raise ValueError(f"{_shown(found)}, expected one JSON object a line")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field {twice!r} is there twice")
    return found


def _timestamp(found: Mapping[str, Any]) -> int | None:
    if "timestamp" not in found:
        return None
    return NO_TIMESTAMP if found["timestamp"] is None else _whole(found, "timestamp", LATEST_TIMESTAMP)


def _whole(found: Mapping[str, Any], name: str, largest: int) -> int:
    value = found[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise ValueError(f"{name} {_shown(value)}, expected a number from 0 on")
    return value


def _headers(found: Mapping[str, Any]) -> Sequence[Header]:
    listed = found.get("headers")
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise ValueError(f'headers {_shown(listed)}, expected a list of {{"key": ..., "value": ...}}')
    return [_header_of(one) for one in listed]


def _header_of(one: Any) -> Header:
    if not isinstance(one, dict) or not isinstance(one.get("key"), str) or one.keys() - {"key", "value", "valueBase64"}:
        raise ValueError(f'header {_shown(one)}, expected {{"key": ..., "value": ...}} or valueBase64')
    name: str = one["key"]
    _text(name, "header")
    return name, _bytes(one, "value")


def _bytes(found: Mapping[str, Any], name: str) -> bytes | None:
    packed = name + "Base64"
    if name in found and packed in found:
        raise ValueError(f"{name} and {packed}, expected one of them")
    if packed in found:
        value = found[packed]
        try:
            if isinstance(value, str):
                return base64.b64decode(value, validate=True)
        except ValueError:
            pass
        raise ValueError(f"{packed} {_shown(value)}, expected base64")
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{name} {_shown(value)}, expected a string or null")
    return _text(value, name)


def _text(value: str, name: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} {_shown(value)}, expected text: half a surrogate pair is none") from None


def _shown(value: Any) -> str:
    r"""The value as JSON has it, in the beginning; never more than a line."""
    text = json.dumps(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."
