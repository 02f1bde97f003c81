"""Windows of tables, the pace of looking, and numbers in words."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.console.pacing import IDLE_S, LONGEST_OPEN_S, OPEN_S, is_full, pause_s
from holdfast.console.windows import ROWS, WindowAsked, text_of, window
from holdfast.console.words import age_words, bytes_words, count_words, moment_words

ROWS_OF_TOPICS = [{"name": f"topic-{n}", "size": n % 7} for n in range(1000)]
SORTS: dict[str, Any] = {"name": lambda row: row["name"], "size": lambda row: (row["size"], row["name"])}


def asked(**query: str) -> Any:
    return window(ROWS_OF_TOPICS, WindowAsked.of(query), text=text_of("name"), sorts=SORTS, default="name")


def test_a_window_has_200_rows_of_those_that_match() -> None:
    first = asked()
    assert (len(first.rows), first.total, first.matching, first.pages) == (ROWS, 1000, 1000, 5)
    assert (first.first, first.last) == (1, 200)
    last = asked(page="99")
    assert (last.asked.page, last.first, last.last) == (5, 801, 1000)
    assert asked(q="TOPIC-99").matching == 11


def test_every_word_of_a_search_has_to_be_there() -> None:
    assert {row["name"] for row in asked(q="77 topic-7").rows} == {
        f"topic-{n}" for n in range(1000) if "77" in str(n) and str(n).startswith("7")
    }
    nothing = asked(q="<script>")
    assert (list(nothing.rows), nothing.first, nothing.last, nothing.pages) == ([], 0, 0, 1)


def test_rows_are_sorted_both_ways_and_an_unknown_column_is_the_default() -> None:
    assert asked(sort="size").rows[0] == {"name": "topic-0", "size": 0}
    assert asked(sort="-size").rows[0]["size"] == 6
    assert asked(sort="__class__").asked.sort == "name"


@pytest.mark.parametrize("page", ["0", "-1", "x", "", "9" * 40, "²"])
def test_a_page_that_makes_no_sense_is_the_first(page: str) -> None:
    assert asked(page=page).asked.page == 1


def test_an_address_says_only_what_is_not_so_by_itself() -> None:
    one = WindowAsked.of({"q": "a&b", "sort": "-size", "page": "3"})
    assert one.address() == "?q=a%26b&sort=-size&page=3"
    assert one.address(page=1, q="") == "?sort=-size"
    assert WindowAsked().address() == "?"


def test_the_pace_follows_who_looks_and_what_a_look_costs() -> None:
    assert pause_s(looked_at=False, took_s=0.1, cpu_s=0.1, failures=0) == IDLE_S
    assert pause_s(looked_at=True, took_s=0.01, cpu_s=0.01, failures=0) == OPEN_S < 1
    assert pause_s(looked_at=True, took_s=0.3, cpu_s=0.3, failures=0) == 3.0
    assert pause_s(looked_at=True, took_s=1.5, cpu_s=0.01, failures=0) == 1.5
    assert pause_s(looked_at=True, took_s=2.0, cpu_s=2.0, failures=0) == LONGEST_OPEN_S - 2.0
    assert pause_s(looked_at=True, took_s=9.0, cpu_s=8.0, failures=0) == 9.0, "no more than half of the time"
    pauses = [pause_s(looked_at=True, took_s=9.0, cpu_s=8.0, failures=n) for n in (1, 2, 3, 9)]
    assert pauses == [OPEN_S, 2 * OPEN_S, 4 * OPEN_S, 10.0]
    assert is_full(looked_at=True, since_full_s=None, full_took_s=0.0)
    assert not is_full(looked_at=True, since_full_s=4.0, full_took_s=0.1)
    assert is_full(looked_at=True, since_full_s=5.0, full_took_s=0.1)
    assert not is_full(looked_at=True, since_full_s=8.0, full_took_s=1.0)
    assert is_full(looked_at=False, since_full_s=1.0, full_took_s=0.1)


def test_numbers_and_times_are_words() -> None:
    assert [bytes_words(n) for n in (None, 0, 1023, 1536, 3 << 40)] == ["–", "0 B", "1023 B", "1.5 KiB", "3.0 TiB"]
    assert [count_words(n) for n in (None, 12345, 0.25, 1234.5, 0.0)] == ["–", "12,345", "0.2", "1,234", "0"]
    assert moment_words(1_700_000_000_000) == "2023-11-14 22:13:20"
    assert moment_words(1 << 62) == f"{1 << 62} ms"
    assert [age_words(s) for s in (-1, 59, 60, 7200, 200_000)] == ["0 s", "59 s", "1 min", "2 h", "2 d"]


def test_the_first_of_very_many_are_those_of_all_sorted() -> None:
    rows = [{"name": f"t{n:05}", "size": n * 7919 % 1000} for n in range(10_000)]
    for sort in ("size", "-size", "name", "-name"):
        key = SORTS[sort.lstrip("-")]
        whole = sorted(rows, key=key, reverse=sort.startswith("-"))
        for page in (1, 2, 40):
            found = window(rows, WindowAsked(sort=sort, page=page), text=text_of("name"), sorts=SORTS, default="name")
            assert (found.rows, found.matching) == (whole[(page - 1) * ROWS : page * ROWS], 10_000)
