"""What a line of the log looks like: text for people, or one JSON object for machines (``log.format``).

    text  [2026-11-25T20:48:27.250Z] INFO [broker-1] topic orders is there (event=topic.created topic=orders ...)
    json  {"ts": "2026-11-25T20:48:27.250Z", "level": "INFO", "broker": 1, "event": "topic.created", "fields": {...},
           "message": "topic orders is there", "logger": "holdfast...", "trace": ...}

Times are UTC. ``event`` is null and ``fields`` is empty where a line tells no event (model/log_events.py); a line that
does not come from the code of a broker, such as what Python itself writes to standard error, is text in either format.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Final

from holdfast.model.log_events import KEY, FieldValue, Told
from holdfast.model.shown import cut

FORMATS: Final = ("text", "json")
_PLAIN: Final = re.compile(r"[^\s\"=()]+")
"""A value that needs no quotes."""
_MAX_TEXT: Final = 2000
"""Characters of one field."""
MOST_MESSAGE: Final = 4000
"""Characters of a message, whatever it tells."""


def make_formatter(kind: str, broker_id: int | None) -> logging.Formatter:
    """``kind``: one of FORMATS. ``broker_id`` None: it is not known yet."""
    assert kind in FORMATS, kind
    return JsonLines(broker_id) if kind == "json" else TextLines(broker_id)


def utc(seconds: float) -> str:
    """A moment of the wall clock, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLines(logging.Formatter):
    """One readable line, which ends with the fields; a trace follows it."""

    def __init__(self, broker_id: int | None) -> None:
        super().__init__()
        self._name = "broker" if broker_id is None else f"broker-{broker_id}"

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        found = told_by(record)
        message = cut(record.message, MOST_MESSAGE)
        if found is not None:
            message = " ".join(message.splitlines())
        return f"[{utc(record.created)}] {record.levelname} [{self._name}] {message} ({_end(record, found)})"


class JsonLines(logging.Formatter):
    """One object a line, with the same keys in each; a trace is one of them."""

    def __init__(self, broker_id: int | None) -> None:
        super().__init__()
        self._broker_id = broker_id

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        found = told_by(record)
        line: dict[str, object] = {
            "ts": utc(record.created),
            "level": record.levelname,
            "broker": self._broker_id,
            "event": None if found is None else found.event.value.name,
            "fields": {} if found is None else {name: _bounded(value) for name, value in found.fields.items()},
            "message": cut(record.getMessage(), MOST_MESSAGE),
            "logger": record.name,
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


def told_by(record: logging.LogRecord) -> Told | None:
    """The event that a record tells."""
    found = getattr(record, KEY, None)
    return found if isinstance(found, Told) else None


def _end(record: logging.LogRecord, found: Told | None) -> str:
    if found is None:
        return record.name
    fields = "".join(f" {name}={_text(value)}" for name, value in found.fields.items())
    return f"event={found.event.value.name}{fields}"


def _bounded(value: FieldValue) -> FieldValue:
    return value[:_MAX_TEXT] if isinstance(value, str) else value


def _text(value: FieldValue) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case tuple():
            text = ",".join(map(str, value))
        case _:
            text = str(value)[:_MAX_TEXT]
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
