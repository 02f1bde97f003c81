"""Pages of the documentation that are made from the code are what the code makes now."""

from __future__ import annotations

from pathlib import Path

from holdfast.model.log_events import LogEvent
from tests.unit.test_docs import load

ROOT = Path(__file__).parents[2]


def test_the_page_of_events_is_up_to_date() -> None:
    page = load(ROOT / "tools/event_page.py").page()
    assert (ROOT / "docs/events.md").read_text() == page, "run `make docs`"
    assert all(f"| `{event.value.name}` |" in page for event in LogEvent)
