"""Which patterns for transactional ids are taken."""

from __future__ import annotations

import pytest

from holdfast.model.errors import InvalidRegularExpressionError
from holdfast.transactions.patterns import compiled


@pytest.mark.parametrize(
    "pattern", ["a", "a.*", "^app-[0-9+*]+$", r"a\+\*.?", "a|b", "(a|b)c", "(?:a)b", ".*x.*", "[]()+]"]
)
def test_quick_patterns_are_taken(pattern: str) -> None:
    assert compiled(pattern).pattern == pattern


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(a+)+", "repeated group"),
        ("(a|b)*", "repeated group"),
        ("(a|b){2}", "repeated group"),
        (r"(a)\1", "no reference"),
        ("(?=a)b", "no reference"),
        ("a*b*c*", "expected 2 of"),
        ("a" * 257, "257 characters, expected 256"),
        ("a(", "pattern 'a\\('"),
        ("[", "pattern"),
    ],
)
def test_others_are_refused(pattern: str, says: str) -> None:
    with pytest.raises(InvalidRegularExpressionError, match=says):
        compiled(pattern)
