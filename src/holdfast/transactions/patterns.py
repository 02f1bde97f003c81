"""Patterns for transactional ids (KIP-1152). Kafka's are RE2's, which cannot be made slow. Python's can: a pattern is
taken only where matching is quick whatever the name is, that is without repeated groups, references and look-around,
and with two repetitions without end at most."""

from __future__ import annotations

import re
from typing import Final

from holdfast.model.errors import InvalidRegularExpressionError

MAX_LENGTH: Final = 256
MAX_REPETITIONS: Final = 2
_CLASS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""An escaped character or a class: what is in it repeats nothing."""
_LOOK: Final = re.compile(r"\(\?(?!:)|\\[1-9]")
_REPEATED_GROUP: Final = re.compile(r"\)[*+{?]")
_REPETITION: Final = re.compile(r"[*+]|\{")


def compiled(pattern: str) -> re.Pattern[str]:
    """InvalidRegularExpressionError: it is none, or one that is not taken here."""
    plain = _CLASS.sub("x", pattern)
    if len(pattern) > MAX_LENGTH:
        raise InvalidRegularExpressionError(f"a pattern of {len(pattern)} characters, expected {MAX_LENGTH} at most")
    if _LOOK.search(pattern) or _REPEATED_GROUP.search(plain):
        raise InvalidRegularExpressionError(f"pattern {pattern!r}: expected no reference and no repeated group")
    if len(_REPETITION.findall(plain)) > MAX_REPETITIONS:
        raise InvalidRegularExpressionError(f"pattern {pattern!r}: expected {MAX_REPETITIONS} of * + {{}} at most")
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as e:
        raise InvalidRegularExpressionError(f"pattern {pattern!r}: {e}") from e
