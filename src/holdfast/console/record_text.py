"""Keys and values as a page shows them: JSON, text or hex, and never more of one than a page can take. Pure."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from holdfast.console.registered_values import RegisteredText
from holdfast.records.record import Record

FORMS: Final = {"auto": "as it looks", "json": "JSON", "text": "text", "hex": "hex"}
LIST_BYTES: Final = 600
"""Of one value in a list."""
PAGE_BYTES: Final = 64 * 1024
"""Of one value on its own page."""
JSON_BYTES: Final = 256 * 1024
"""A larger value is not parsed."""
HEX_LINE: Final = 16
_PLAIN: Final = frozenset("\t\n\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBytes:
    """``text`` in the form ``form``; ``cut``: bytes that are not shown, of ``size``. A null has form ``null``.
    ``note``: by which schema it was read, or why by none."""

    text: str
    form: str
    size: int
    cut: int = 0
    note: str = ""


Registered = Callable[[bytes], RegisteredText | None]
"""What a schema registry makes of a value (registered_values.py)."""


def shown_bytes(data: bytes | None, form: str, limit: int, registered: Registered | None = None) -> ShownBytes:
    """At most ``limit`` bytes of it; a form that cannot be, as JSON of what is none, is the next one."""
    if data is None:
        return ShownBytes(text="null", form="null", size=0)
    found = registered(data) if registered is not None and form in ("auto", "json") else None
    if found is None:
        return _plain_bytes(data, form, limit)
    if found.text is None:
        plain = _plain_bytes(data, "hex", limit)
        return replace(plain, note=f"schema {found.id}: {found.trouble}")
    cut = found.text.encode(errors="replace")[limit:]
    text = _within(found.text, limit) if cut else found.text
    return ShownBytes(text=text, form=found.kind, size=len(data), cut=len(cut), note=f"schema {found.id}")


def _plain_bytes(data: bytes, form: str, limit: int) -> ShownBytes:
    if form in ("auto", "json"):
        found = _as_json(data, limit)
        if found is not None:
            return found
    if form != "hex":
        text = _as_text(data, limit)
        if text is not None and (form == "text" or _is_readable(text)):
            return ShownBytes(text=text, form="text", size=len(data), cut=max(0, len(data) - limit))
    part = data[: limit // 4]
    return ShownBytes(text=hex_dump(part), form="hex", size=len(data), cut=len(data) - len(part))


def _as_json(data: bytes, limit: int) -> ShownBytes | None:
    if len(data) > JSON_BYTES or data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        text = json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    cut = text.encode(errors="replace")[limit:]
    return ShownBytes(text=_within(text, limit) if cut else text, form="json", size=len(data), cut=len(cut))


def _within(text: str, limit: int) -> str:
    return text.encode(errors="replace")[:limit].decode(errors="ignore")


def _as_text(data: bytes, limit: int) -> str | None:
    """None of what is not UTF-8. A character that the limit cuts in two is left out."""
    part = data[:limit]
    try:
        return part.decode()
    except UnicodeDecodeError as e:
        if len(data) > limit and e.start >= len(part) - 3:
            return part[: e.start].decode()
        return None


def _is_readable(text: str) -> bool:
    return all(char.isprintable() or char in _PLAIN for char in text)


def hex_dump(data: bytes) -> str:
    """As hexdump -C has it: the place, sixteen bytes, and which of them are ASCII."""
    lines = []
    for at in range(0, len(data), HEX_LINE):
        part = data[at : at + HEX_LINE]
        ascii_part = "".join(chr(b) if 32 <= b < 127 else "." for b in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {ascii_part}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    """One record of a list, or of a page."""

    partition: int
    offset: int
    timestamp_ms: int
    key: ShownBytes
    value: ShownBytes
    headers: tuple[tuple[str, ShownBytes], ...]
    more_headers: int = 0


MOST_HEADERS: Final = 20


def shown_record(
    partition: int, record: Record, form: str, limit: int, registered: Registered | None = None
) -> ShownRecord:
    """A record whose parts are cut to ``limit`` bytes each, and which has not more headers than a page can take."""
    return ShownRecord(
        partition=partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=shown_bytes(record.key, form, limit, registered),
        value=shown_bytes(record.value, form, limit, registered),
        headers=tuple(
            (name[:LIST_BYTES], shown_bytes(value, form, limit)) for name, value in record.headers[:MOST_HEADERS]
        ),
        more_headers=max(0, len(record.headers) - MOST_HEADERS),
    )
