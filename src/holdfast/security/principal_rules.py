"""``ssl.principal.mapping.rules``: how the subject of a certificate becomes the name of a principal.

Rules by commas, the first that fits: ``RULE:pattern/replacement/`` with ``L`` or ``U`` behind it for small or capital
letters, and ``DEFAULT``, which leaves the name as it is. A pattern fits the whole name. In a replacement ``$1`` is a
group; a number beyond the groups stays as it is written. Source: KIP-371; what Kafka makes of names is in
tests/golden/security. Patterns are an operator's, so they may take their time; they mean what they mean in Java, or are
refused (java_patterns.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from holdfast.model.shown import cut
from holdfast.security.java_patterns import JavaPatternError, compiled

_PART: Final = r"((?:\\[^\n\r\x85\u2028\u2029]|[^\\/])*)"
_RULE: Final = re.compile(rf"RULE:{_PART}/{_PART}/([LU]?)")
_END: Final = re.compile(r"\s*(,\s*|$)")
_REFERENCE: Final = re.compile(r"\$([0-9]+)")
_MOST: Final = 2**31 - 1


class RuleError(ValueError):
    """Rules that cannot be read, or a name that none of them fits."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """``pattern`` None: DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def name(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        written = _escaped(self.replacement, self.pattern.groups)
        made = _replaced_all(self.pattern, written, subject)
        if self.case:
            made = made.lower() if self.case == "L" else made.upper()
        return made


def _escaped(replacement: str, groups: int) -> str:
    """References beyond the groups made literal, as Kafka does it: where a second one follows, its mark goes astray,
    and the rule fails on it."""
    if not groups:
        return replacement
    value = replacement
    for reference in _REFERENCE.finditer(replacement):
        digits = reference[1]
        if digits.startswith("0"):
            continue
        number = int(digits)
        if number > _MOST:
            raise RuleError(f"${digits} is no group")
        while number > groups and number >= 10:
            number //= 10
        if number > groups:
            at = reference.start()
            value = f"{value[:at]}\\{value[at:]}"
    return value


def _replaced_all(pattern: re.Pattern[str], replacement: str, subject: str) -> str:
    """As Java goes on behind a match: one that is empty is not tried again for more, as Python does."""
    made, copied, at = list[str](), 0, 0
    while at <= len(subject) and (found := pattern.search(subject, at)) is not None:
        made += subject[copied : found.start()], _replaced(replacement, found)
        copied = found.end()
        at = copied + (found.start() == copied)
    return "".join([*made, subject[copied:]])


def _replaced(replacement: str, found: re.Match[str]) -> str:
    """As Java puts groups into a replacement. RuleError: it would not."""
    made, at = [], 0
    while at < len(replacement):
        character = replacement[at]
        at += 1
        if character == "\\":
            if at == len(replacement):
                raise RuleError("a replacement ends in the middle of an escape")
            made.append(replacement[at])
            at += 1
        elif character == "$":
            text, at = _group(replacement, at, found)
            made.append(text)
        else:
            made.append(character)
    return "".join(made)


def _group(replacement: str, at: int, found: re.Match[str]) -> tuple[str, int]:
    """What a reference says, and where it ends: ``$12`` is group 12, or group 1 and a ``2`` where there are fewer."""
    groups = found.re.groups
    named = re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}").match(replacement, at)
    if named is not None and named[1] in found.re.groupindex:
        return found[named[1]] or "", named.end()
    if at == len(replacement) or replacement[at] not in "0123456789":
        raise RuleError(f"a replacement with a $ that is no group: {replacement}")
    number = int(replacement[at])
    at += 1
    if number > groups:
        raise RuleError(f"No group {number}")
    while at < len(replacement) and replacement[at] in "0123456789":
        more = 10 * number + int(replacement[at])
        if more > groups:
            break
        number = more
        at += 1
    return found[number] or "", at


class PrincipalRules:
    """See the module's docstring. RuleError: they cannot be read."""

    def __init__(self, text: str = "DEFAULT") -> None:
        self._rules = tuple(_parsed(text.strip()))

    def name(self, subject: str) -> str:
        """RuleError: no rule fits."""
        for rule in self._rules:
            made = rule.name(subject)
            if made is not None:
                return made
        raise RuleError(f"no rule of ssl.principal.mapping.rules fits {cut(subject)}")


def _parsed(text: str) -> list[_Rule]:
    rules, at = [], 0
    while at < len(text):
        rule, end = _rule_at(text, at)
        if rule is not None:
            rules.append(rule)
        behind = _END.match(text, end)
        if behind is None:
            raise RuleError(f"{text[at:]!r}: expected DEFAULT or RULE:PATTERN/REPLACEMENT/[LU], by commas")
        at = behind.end()
    return rules


def _rule_at(text: str, at: int) -> tuple[_Rule | None, int]:
    if text.startswith("DEFAULT", at):
        return _Rule(None), at + len("DEFAULT")
    found = _RULE.match(text, at)
    if found is None:
        return None, at
    pattern, replacement, case = found.groups()
    try:
        return _Rule(compiled(pattern), replacement, case), found.end()
    except JavaPatternError as error:
        raise RuleError(f"{pattern!r} is no regular expression: {error}") from None
