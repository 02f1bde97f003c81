"""Regular expressions that were written for Java, as Python's: with the same meaning, or refused.

Most of both languages is the same. What differs is given Java's meaning where that is easy (``.``, ``$``, ``\\Z``,
``\\z``, ``(?<name>``), and refused otherwise, as what Python alone takes: a rule that maps a certificate to another
principal than in Kafka is worse than none. ``\\b`` is left: it differs for letters beyond ASCII alone, and between
versions of Java.
"""

from __future__ import annotations

import re
from typing import Final

_TERMINATOR: Final = r"\n\r\x85\u2028\u2029"
_ANY: Final = f"[^{_TERMINATOR}]"
"""Java's dot: no line ends in it, of which Python knows one."""
_END: Final = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)"
"""At the end, or before the line terminator there."""
_COUNT: Final = re.compile(r"\{[0-9]{1,9}(,[0-9]{0,9})?\}")
_GROUP: Final = re.compile(r"\(\?(?:(<[A-Za-z][A-Za-z0-9]*>)|(:|>|=|!|<=|<!)|(-?i:))?")
_FLAGS: Final = re.compile(r"\(\?(i?s?|si)\)")
_ESCAPED: Final = frozenset("wWdDsStrnfa")
"""Letters that a backslash makes the same of in both, in a class too."""
_HEX: Final = re.compile(r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}")


class JavaPatternError(ValueError):
    """It is no regular expression, or not the same one."""


def compiled(pattern: str) -> re.Pattern[str]:
    """JavaPatternError says what cannot be taken."""
    try:
        return re.compile(_Translation(pattern).text, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise JavaPatternError(str(error) or type(error).__name__) from None


class _Translation:
    """One pattern; ``text`` is Python's."""

    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0
        made = list[str]()
        flags = _FLAGS.match(pattern)
        if flags is not None:
            self._at = flags.end()
            made.append(flags[0])
        self._dot = "." if flags is not None and "s" in flags[1] else _ANY
        while self._at < len(pattern):
            made.append(self._next())
        self.text = "".join(made)

    def _wrong(self, what: str) -> JavaPatternError:
        return JavaPatternError(f"{what} at position {self._at}")

    def _next(self) -> str:
        pattern, at = self._pattern, self._at
        match pattern[at]:
            case "\\":
                return self._escape()
            case "[":
                return self._class()
            case "(" if pattern.startswith("(?", at):
                return self._group()
            case "{":
                count = _COUNT.match(pattern, at)
                if count is None:
                    raise self._wrong("{ that is no count: expected {n}, {n,} or {n,m}, or \\{")
                self._at = count.end()
                return count[0]
            case character:
                self._at += 1
                return {".": self._dot, "$": _END}.get(character, character)

    def _group(self) -> str:
        found = _GROUP.match(self._pattern, self._at)
        assert found is not None, "it begins so"
        name, plain, flags = found.groups()
        if name is None and plain is None and flags is None:
            raise self._wrong(
                "a group of a kind that is not taken: expected (?:, (?<name>, (?=, (?!, (?<=, (?<!, (?>, (?i: or "
                "(?-i:, and (?i), (?s) or (?is) at the start alone"
            )
        self._at = found.end()
        return found[0] if name is None else f"(?P{name}"

    def _escape(self) -> str:
        pattern, at = self._pattern, self._at + 1
        character = pattern[at : at + 1]
        if character in ("Z", "z", "A", "b", "B"):
            self._at += 2
            return {"Z": _END, "z": r"\Z"}.get(character, f"\\{character}")
        if character in "123456789" and character and not pattern[at + 1 : at + 2].isdigit():
            self._at += 2
            return f"\\{character}"
        return self._character_escape()

    def _character_escape(self) -> str:
        """One that a class may have, too."""
        pattern, at = self._pattern, self._at + 1
        character = pattern[at : at + 1]
        if (found := _HEX.match(pattern, at)) is not None:
            self._at = found.end()
        elif character and (character in _ESCAPED or not (character.isascii() and character.isalnum())):
            self._at += 2
        else:
            raise self._wrong(f"\\{character} is not taken, or not the same in Java and here: expected another escape")
        return pattern[at - 1 : self._at]

    def _class(self) -> str:
        pattern = self._pattern
        begin = re.compile(r"\[\^?\]?").match(pattern, self._at)
        assert begin is not None, "it begins so"
        made = [begin[0].replace("]", "\\]")]
        self._at = begin.end()
        while self._at < len(pattern):
            character = pattern[self._at]
            if character == "]":
                self._at += 1
                return "".join([*made, "]"])
            if character == "\\":
                made.append(self._character_escape())
                continue
            if character == "[" or pattern.startswith(("&&", "--"), self._at):
                raise self._wrong(
                    "operations on classes of characters ([a[b]], &&, --) are not taken: expected \\[, &, -"
                )
            made.append(f"\\{character}" if character in "&|~" else character)
            self._at += 1
        raise self._wrong("a class of characters without ]")
