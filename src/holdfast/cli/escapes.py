r"""Backslash escapes as people type them in options: ``\t``, ``\n``, ``\x1f``. Pure.

A shell passes ``\t`` on as two characters. What is not escaped is taken as the bytes that the shell passed, whatever
they are; ``\xNN`` is that byte, which need not be text.
"""

import re
from typing import Final

SIMPLE: Final = {"\\": b"\\", "0": b"\0", "a": b"\a", "e": b"\x1b", "n": b"\n", "r": b"\r", "t": b"\t"}
HEX_BYTE: Final = re.compile(r"[0-9a-fA-F]{2}")
EXPECTED: Final = r"\\ \0 \a \e \n \r \t or \xNN"


def escape_at(text: str, at: int) -> tuple[bytes, int]:
    """What the escape says whose backslash is at ``at``, and the position after it. ValueError names the escape."""
    letter = text[at + 1 : at + 2]
    if letter == "x" and HEX_BYTE.fullmatch(text[at + 2 : at + 4]):
        return bytes.fromhex(text[at + 2 : at + 4]), at + 4
    if letter not in SIMPLE:  # '' at the end, too
        shown = text[at : at + 4] if letter == "x" else text[at : at + 2]
        raise ValueError(f"{shown} at character {at + 1}: expected {EXPECTED}")
    return SIMPLE[letter], at + 2


def unescape(text: str) -> bytes:
    """The bytes of an option's value. ValueError."""
    out = bytearray()
    at = 0
    while (backslash := text.find("\\", at)) >= 0:
        out += as_passed(text[at:backslash])
        escaped, at = escape_at(text, backslash)
        out += escaped
    return bytes(out + as_passed(text[at:]))


def as_passed(text: str) -> bytes:
    """The bytes of an argument as the shell passed them: Python marks those that are no UTF-8 by surrogates."""
    return text.encode("utf-8", "surrogateescape")
