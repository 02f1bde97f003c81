"""When a certificate begins to be valid and when it ends. Source: RFC 5280 4.1.2.5."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

from holdfast.security.der import SEQUENCE, Der, DerError
from holdfast.security.dn import certificate_fields

_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """``begins_s`` and ``ends_s``: seconds since 1970; it is valid at both."""

    begins_s: int
    ends_s: int


def validity(certificate: bytes) -> Validity:
    """Of a certificate in DER. DerError: it is none."""
    times = certificate_fields(certificate)[3].inside(SEQUENCE)
    if len(times) != 2:
        raise DerError(f"a validity of {len(times)} times, expected two")
    begins_s, ends_s = map(_seconds, times)
    return Validity(begins_s=begins_s, ends_s=ends_s)


def _seconds(value: Der) -> int:
    text = value.content.decode("ascii", "replace")
    if value.tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif value.tag != _GENERALIZED_TIME:
        raise DerError(f"tag {value.tag:#x}, expected a time")
    try:
        time = dt.datetime.strptime(text, "%Y%m%d%H%M%SZ")
    except ValueError:
        raise DerError(f"{text!r} is no time of a certificate") from None
    return int(time.replace(tzinfo=dt.UTC).timestamp())


def shown_time(seconds: int) -> str:
    """``2025-01-01T00:00:00Z``."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
