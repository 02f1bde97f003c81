"""A module of the sources has 500 lines at most and a function 70: what is longer does more than one thing.

Who has to pass a limit all the same gets an entry here, with the reason.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
MODULE_LINES = 500
FUNCTION_LINES = 70
LONGER: dict[str, str] = {}
"""``holdfast/x/y.py`` or ``holdfast/x/y.py:name`` -> why it is longer."""


def lines_of(source: str, name: str) -> Iterator[tuple[str, int, int]]:
    """Module and functions of a source: name, lines, the limit. Decorators, as a command's options, do not count."""
    yield name, len(source.splitlines()), MODULE_LINES
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{name}:{node.name}", node.end_lineno - node.lineno + 1, FUNCTION_LINES


def too_long(source: str, name: str) -> dict[str, str]:
    """What passes its limit."""
    return {
        what: f"{lines} lines, expected {limit} at most"
        for what, lines, limit in lines_of(source, name)
        if lines > limit
    }


def test_no_module_and_no_function_is_too_long() -> None:
    found: dict[str, str] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        found |= too_long(path.read_text(encoding="utf-8"), str(path.relative_to(SOURCES)))
    assert {what: why for what, why in found.items() if what not in LONGER} == {}
    assert LONGER.keys() - found.keys() == set(), "these are not too long any more: take their entries out"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1\n" * 500, {}),
        ("x = 1\n" * 501, {"m.py": "501 lines, expected 500 at most"}),
        ("def f():\n" + "    x = 1\n" * 69, {}),
        (
            "class C:\n    @d\n    async def f(self):\n" + "        x = 1\n" * 70,
            {"m.py:f": "71 lines, expected 70 at most"},
        ),
    ],
)
def test_what_is_longer_is_found(source: str, expected: dict[str, str]) -> None:
    assert too_long(source, "m.py") == expected
