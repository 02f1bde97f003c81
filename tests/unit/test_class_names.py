"""Two things never share one class name: who reads ``Position`` in a traceback or a search knows which one it is."""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"


def shared(sources: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Public classes of modules (name, text) that more than one has, with those that have them."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, text in sources:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name)
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def test_no_two_public_classes_share_a_name() -> None:
    paths = sorted(SOURCES.rglob("*.py"))
    assert len(paths) > 500, "these are the sources"
    assert shared((str(path.relative_to(SOURCES)), path.read_text(encoding="utf-8")) for path in paths) == {}


def test_one_that_is_shared_would_be_found() -> None:
    sources = [("a", "class Plan: ..."), ("b", "class Plan: ...\nclass _Own: ..."), ("c", "class _Own: ...")]
    assert shared(sources) == {"Plan": ["a", "b"]}
