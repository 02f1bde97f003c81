"""docs/replication.md is true: its pictures are the tables of the code, and what it names exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast.model.transitions import Transitions

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/replication.md").read_text()
ARROW = re.compile(r"^    (\w+) --> (\w+): (.+)$", re.MULTILINE)
START = re.compile(r"^    \[\*\] --> (\w+)$", re.MULTILINE)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = load(ROOT / "tools/state_pictures.py")
TABLES: dict[str, Transitions[Any, Any]] = TOOL.TABLES


def pictures() -> dict[str, str]:
    """Name -> the diagram that the page has."""
    return dict(re.findall(r"<!-- picture: (\w+) -->\n(.*?)<!-- end -->", PAGE, re.DOTALL))


def test_every_table_in_the_code_has_its_picture() -> None:
    made = set()
    for path in (ROOT / "src/holdfast").rglob("*.py"):
        made |= set(re.findall(r"^(\w+): Final = Transitions\(", path.read_text(), re.MULTILINE))
    shown = {name for name, value in vars(TOOL).items() if isinstance(value, Transitions)}
    assert made == shown
    assert len(TABLES) + sum(map(len, TOOL.ELSEWHERE.values())) == len(shown)
    assert set(pictures()) == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_a_picture_has_the_arrows_of_its_table_and_no_others(name: str) -> None:
    """Read from the page, not made again by the tool: each event of each arrow."""
    table, text = TABLES[name], pictures()[name]
    drawn = {(before, event, after) for before, after, events in ARROW.findall(text) for event in events.split(" / ")}
    moves = {(s.name.lower(), e.value, after.name.lower()) for (s, e), after in table.moves.items()}
    assert drawn == moves, "run `make docs`"
    assert set(START.findall(text)) == {state.name.lower() for state in table.starts}


@pytest.mark.parametrize("name", TABLES)
def test_a_picture_shows_every_state_that_the_code_knows(name: str) -> None:
    table, text = TABLES[name], pictures()[name]
    states = type(table.starts[0])
    words = dict(re.findall(r'^    state "(.+)" as (\w+)$', text, re.MULTILINE))
    drawn = {state for before, after, _ in ARROW.findall(text) for state in (before, after)}
    assert drawn == {state.name.lower() for state in states}
    assert set(words.values()) <= drawn
    # Nothing leads out of a state that is not drawn as left, and every state but the first is reached.
    reached = {after for before, after, _ in ARROW.findall(text) if before != after} | set(START.findall(text))
    assert reached == drawn


def test_the_pictures_are_up_to_date() -> None:
    assert TOOL.page(PAGE) == PAGE, "run `make docs`"


def test_every_test_that_the_page_names_exists() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert {name for name in named if f"def {name}(" not in sources} == set()


def test_every_file_that_the_page_names_exists() -> None:
    named = {name for name in re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE) if not name.startswith("test_")}
    files = [str(path.relative_to(ROOT)) for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert {name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)} == set()
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


@pytest.mark.parametrize("name", TOOL.ELSEWHERE)
def test_pictures_of_other_pages_are_up_to_date(name: str) -> None:
    text = (ROOT / "docs" / name).read_text()
    assert TOOL.page(text, TOOL.ELSEWHERE[name]) == text, "run `make docs`"
