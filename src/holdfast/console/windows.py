"""Windows of a table: at most 200 rows of those that match a search, in an order. Pure.

A row is a mapping from column to what the page shows, or, where there may be very many, a tuple with names. No answer
has more rows than a window, so that a page of 39,000 partitions is as long as one of 200.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from typing import Any, TypeAlias
from urllib.parse import urlencode

ROWS = 200
FEW = 8
LONGEST_SEARCH = 200

Row: TypeAlias = Mapping[str, Any]
AnyRow: TypeAlias = Any
"""A Row, or a tuple with names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAsked:
    """What a page's address says: words to search for, a column to sort by (``-name``: backwards), a page from 1."""

    search: str = ""
    sort: str = ""
    page: int = 1
    only: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "WindowAsked":
        """Of an address; what makes no sense there counts as not said."""
        page = query.get("page", "1")
        return cls(
            search=query.get("q", "").strip()[:LONGEST_SEARCH],
            sort=query.get("sort", ""),
            page=max(1, int(page)) if page.isascii() and page.isdecimal() and len(page) < 9 else 1,
            only=query.get("only", ""),
        )

    def address(self, **changed: str | int) -> str:
        """The query of the same window with something else asked, without what is asked by itself."""
        found = {"q": self.search, "sort": self.sort, "only": self.only, "page": self.page, **changed}
        kept = {k: v for k, v in found.items() if v and not (k == "page" and v == 1)}
        return f"?{urlencode(kept)}" if kept else "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWindow:
    """Rows ``first`` to ``last`` (from 1) of ``matching``, of ``total`` that there are."""

    rows: Sequence[AnyRow]
    asked: WindowAsked
    total: int
    matching: int
    pages: int

    @property
    def first(self) -> int:
        return (self.asked.page - 1) * ROWS + 1 if self.rows else 0

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1 if self.rows else 0


def window(
    rows: Iterable[AnyRow],
    asked: WindowAsked,
    *,
    text: Callable[[AnyRow], str],
    sorts: Mapping[str, Callable[[AnyRow], Any]],
    default: str,
    is_sorted: bool = False,
) -> RowWindow:
    """The rows of which each word of the search is in the ``text``, sorted by one of ``sorts``.

    A page beyond the last is the last; a sort that is none is ``default``. ``is_sorted``: by that they are already.
    """
    everything = rows if isinstance(rows, list) else list(rows)
    words = asked.search.casefold().split()
    found = everything
    for word in words:
        found = [row for row in found if word in text(row).casefold()]
    name = asked.sort.removeprefix("-")
    sort = asked.sort if name in sorts else default
    pages = max(1, -(-len(found) // ROWS))
    page = min(asked.page, pages)
    matching = len(found)
    if not is_sorted or sort != default:
        found = _first(found, page * ROWS, sorts[sort.removeprefix("-")], backwards=sort.startswith("-"))
    return RowWindow(
        rows=found[(page - 1) * ROWS : page * ROWS],
        asked=WindowAsked(search=asked.search, sort=sort, page=page, only=asked.only),
        total=len(everything),
        matching=matching,
        pages=pages,
    )


def _first(rows: list[AnyRow], count: int, key: Callable[[AnyRow], Any], *, backwards: bool) -> list[AnyRow]:
    """The first of sorted rows; of very many they are found without sorting the rest."""
    if count * FEW > len(rows):
        return sorted(rows, key=key, reverse=backwards)
    return nlargest(count, rows, key) if backwards else nsmallest(count, rows, key)


def text_of(*columns: str) -> Callable[[Row], str]:
    """The text of a row that a search looks at."""
    return lambda row: "\n".join(str(row[column]) for column in columns)
