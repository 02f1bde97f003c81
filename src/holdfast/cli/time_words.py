"""Times and durations as Kafka's tools take them, and a little more freely: seconds need no fraction. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from holdfast.client.views import OffsetSpec
from holdfast.model.types import TimestampMs

LATEST_MS: Final = 2**63 - 1
DATETIME_FORM: Final = "YYYY-MM-DDTHH:mm:SS.sss, with a zone like Z or +02:00 unless it is UTC"
DURATION_FORM: Final = "PnDTnHnMnS, as P1D or PT1H30M"
SPEC_FORM: Final = f"latest, earliest, max-timestamp, milliseconds since 1970, or {DATETIME_FORM}"

_DATETIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d(:?\d\d)?)?")
_DURATION: Final = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<d>[+-]?\d+)D)?"
    r"(?:T(?=[+\-\d])(?:(?P<h>[+-]?\d+)H)?(?:(?P<m>[+-]?\d+)M)?(?:(?P<s>[+-]?\d+)(?:[.,](?P<f>\d{0,9}))?S)?)?",
    re.IGNORECASE,
)
_SPECS: Final = {
    "latest": OffsetSpec.LATEST, "-1": OffsetSpec.LATEST,
    "earliest": OffsetSpec.EARLIEST, "-2": OffsetSpec.EARLIEST,
    "max-timestamp": OffsetSpec.MAX_TIMESTAMP, "-3": OffsetSpec.MAX_TIMESTAMP,
}  # fmt: skip


def parse_datetime(text: str) -> TimestampMs:
    """Of ``2026-11-24T10:00:00.000+02:00``; ValueError says what was expected. What was before 1970 is 0: smaller
    numbers are no times to a broker."""
    try:
        if not _DATETIME.fullmatch(text):
            raise ValueError(text)
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r}: expected {DATETIME_FORM}") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    since = found - datetime.fromtimestamp(0, UTC)
    return max(0, since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000)


def parse_duration(text: str) -> int:
    """Milliseconds of an ISO 8601 duration of days and less, as Java reads it; ValueError says what was expected."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found[part] for part in "dhms"):
        raise ValueError(f"{text!r}: expected {DURATION_FORM}")
    days, hours, minutes, seconds = (int(found[part] or 0) for part in "dhms")
    fraction_ms = int((found["f"] or "").ljust(3, "0")[:3])
    if (found["s"] or "").startswith("-"):
        fraction_ms = -fraction_ms
    milliseconds = ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000 + fraction_ms
    return -milliseconds if found["sign"] == "-" else milliseconds


def time_before(now_ms: TimestampMs, duration_ms: int) -> TimestampMs:
    """So long before now, or after it with a negative duration, within what a broker takes for a time."""
    return min(LATEST_MS, max(0, now_ms - duration_ms))


def parse_time(text: str) -> TimestampMs:
    """Milliseconds since 1970, or a date and time."""
    if re.fullmatch(r"\d{1,19}", text) and int(text) <= LATEST_MS:
        return int(text)
    try:
        return parse_datetime(text)
    except ValueError:
        raise ValueError(f"{text!r}: expected milliseconds since 1970, or {DATETIME_FORM}") from None


def parse_spec(text: str) -> OffsetSpec | TimestampMs:
    """What kafka-get-offsets.sh takes for ``--time``, and a date and time."""
    named = _SPECS.get(text)
    if named is not None:
        return named
    try:
        return parse_time(text)
    except ValueError:
        raise ValueError(f"{text!r}: expected {SPEC_FORM}") from None
