"""Text that somebody else has chosen, as it is shown in lines of the log and errors: a name may have 64 KB, and a line
that grows with it fills a disk at the price of a failed login."""

from __future__ import annotations

from typing import Final

MOST_SHOWN: Final = 255
"""Characters."""


def cut(text: str, most: int = MOST_SHOWN) -> str:
    """The text, or its first characters and how many it has."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def shown(name: str, most: int = MOST_SHOWN) -> str:
    """In quotes, on one line, with what cannot be printed as escapes; they count."""
    quoted = repr(name[:most])
    if len(name) <= most and len(quoted) <= most + 2:
        return quoted
    return f"{quoted[:most]}... ({len(name)} characters)"
