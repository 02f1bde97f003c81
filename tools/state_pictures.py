"""Makes the pictures of state machines in docs/ from the tables that the code goes by.

Usage: state_pictures.py [--check]. With --check nothing is written; exit 1 says that a picture is not up to date.
A picture stands between <!-- picture: NAME --> and <!-- end -->; what is between them is replaced.
"""

import re
import sys
from enum import Enum
from pathlib import Path
from typing import Any

from holdfast.broker.admission import START
from holdfast.controller.transitions import BROKER, LEADERSHIP
from holdfast.model.transitions import Transitions
from holdfast.replication.transitions import FETCHING, PROPOSAL, REPLICA
from holdfast.security.oauth import BEARER_LOGIN
from holdfast.security.sasl_server import LOGIN
from holdfast.security.scram_server import SCRAM
from holdfast.storage.dir_state import DIRECTORY
from holdfast.storage.move_state import MOVE
from holdfast.storage.standings import STANDING
from holdfast.transactions.states import TRANSACTION

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "replication.md"
ELSEWHERE: dict[str, dict[str, Transitions[Any, Any]]] = {
    "security.md": {"login": LOGIN, "scram": SCRAM, "bearer": BEARER_LOGIN},
    "transactions.md": {"transaction": TRANSACTION},
}
"""Pages that have pictures of their own."""
TABLES: dict[str, Transitions[Any, Any]] = {
    "replica": REPLICA,
    "proposal": PROPOSAL,
    "followed": FETCHING,
    "broker": BROKER,
    "start": START,
    "leadership": LEADERSHIP,
    "directory": DIRECTORY,
    "standing": STANDING,
    "move": MOVE,
}
PLACE = re.compile(r"(<!-- picture: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def identifier(state: Enum) -> str:
    return state.name.lower()


def picture(table: Transitions[Any, Any]) -> str:
    """The table as a Mermaid diagram: one arrow for each pair of states, with all that leads along it."""
    lines = ["stateDiagram-v2"]
    for state in table.states():
        words = state.value if isinstance(state.value, str) else state.name.lower()
        if words != identifier(state):
            lines.append(f'    state "{words}" as {identifier(state)}')
    lines += [f"    [*] --> {identifier(state)}" for state in table.starts]
    arrows: dict[tuple[Enum, Enum], list[str]] = {}
    for (before, event), after in table.moves.items():
        arrows.setdefault((before, after), []).append(event.value)
    for (before, after), events in arrows.items():
        lines.append(f"    {identifier(before)} --> {identifier(after)}: {' / '.join(events)}")
    return "\n".join(["```mermaid", *lines, "```", ""])


def page(text: str, tables: dict[str, Transitions[Any, Any]] = TABLES) -> str:
    """The page with its pictures as the tables have them now."""
    shown = [name for _, name, _ in PLACE.findall(text)]
    if sorted(shown) != sorted(tables):
        raise SystemExit(f"pictures {shown}, expected each of {sorted(tables)} once")
    return PLACE.sub(lambda place: place[1] + picture(tables[place[2]]) + place[3], text)


def main() -> int:
    pages = {PAGE: TABLES} | {DOCS / name: tables for name, tables in ELSEWHERE.items()}
    made = {path: page(path.read_text(), tables) for path, tables in pages.items()}
    if "--check" in sys.argv[1:]:
        return int(any(path.read_text() != text for path, text in made.items()))
    for path, text in made.items():
        path.write_text(text)
        print(f"wrote the pictures in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
