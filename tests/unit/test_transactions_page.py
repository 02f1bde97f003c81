"""docs/transactions.md is true: its picture is the table of the code, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.transactions.states import NUMBERS, TRANSACTION
from tests.unit.test_replication_page import ARROW, ROOT, START, TOOL

PAGE = (ROOT / "docs/transactions.md").read_text()


def test_the_picture_is_up_to_date_and_has_every_move() -> None:
    assert TOOL.page(PAGE, TOOL.ELSEWHERE["transactions.md"]) == PAGE, "run `make docs`"
    drawn = {(before, event, after) for before, after, events in ARROW.findall(PAGE) for event in events.split(" / ")}
    assert drawn == {(s.name.lower(), e.value, after.name.lower()) for (s, e), after in TRANSACTION.moves.items()}
    assert START.findall(PAGE) == ["empty"]
    assert {state for before, after, _ in ARROW.findall(PAGE) for state in (before, after)} == {
        state.name.lower() for state in NUMBERS
    }


def test_every_scenario_that_the_page_names_exists() -> None:
    named = re.findall(r"scenario `(\w+)`", PAGE)
    assert len(named) >= 2
    folder = Path(__file__).parents[1] / "scenarios/transactions"
    assert {name for name in named if not (folder / f"{name}.txt").exists()} == set()
