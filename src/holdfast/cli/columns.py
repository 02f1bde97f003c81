"""Tables of plain text, for terminals and for pipes.

A pipe gets one line a row, which tools can cut at blanks; a terminal gets lines that fit, where the column that may be
folded goes on below itself. No colours and no boxes, so nothing has to be imported for them.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

GAP: Final = "  "
NARROWEST: Final = 11
"""Narrower a folded column does not become: then lines are too long, and whole."""
USUAL: Final = 80
"""What lines of a pipe fit into where their values do; a longer value makes its own line longer, and no other."""


def terminal_width() -> int | None:
    """How many columns a line may have; None where nobody looks at them."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table_lines(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    folded: int | None = None,
    right: Sequence[int] = (),
    most: Mapping[int, int] | None = None,
) -> Iterator[str]:
    """``width``: of the terminal; None: a pipe. ``folded``: the column that gives way where lines would be longer,
    ``right`` those of numbers, ``most``: what a column is given at most; what is longer makes its own line longer.
    Pure."""
    every = [header, *rows]
    widths = [max(len(row[at]) for row in every) for at in range(len(header))]
    for at, limit in (most or {}).items():
        widths[at] = min(widths[at], limit)
    if folded is not None:
        others = sum(widths) - widths[folded] + len(GAP) * (len(widths) - 1)
        widths[folded] = min(widths[folded], max((width or USUAL) - others, NARROWEST))
    for row in every:
        rest = list(row)
        while True:
            left = "" if width is None or folded is None else rest[folded][widths[folded] :]
            cells = [cell[: widths[at]] if left and at == folded else cell for at, cell in enumerate(rest)]
            yield GAP.join(
                cell.rjust(widths[at]) if at in right else cell.ljust(widths[at]) for at, cell in enumerate(cells)
            ).rstrip()
            if not left:
                break
            rest = [left if at == folded else "" for at in range(len(rest))]
