"""Numbers of two systems side by side: the table that people read and the ratios in the JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

HIGHER_IS_BETTER = ("MB/s", "records/s", "rows/s")
NOT_COMPARED = ("rounds", "other CPU s", "client cores", "acked but lost", "errors", "partitions")


def ratios(results: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """First system / second system for every number that both have; empty with one system."""
    if len(results) < 2:
        return {}
    ours, theirs = list(results.values())[:2]
    return {
        case: {
            name: round(value / theirs[case][name], 4)
            for name, value in numbers.items()
            if theirs[case].get(name) and not name.endswith(NOT_COMPARED)
        }
        for case, numbers in ours.items()
        if case in theirs
    }


def shown(value: float | None) -> str:
    """Three significant figures, thousands apart."""
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def show(document: dict[str, Any], console: Console) -> None:
    """The whole report as one table."""
    about, names = document["machine"], list(document["results"])
    console.print(
        f"commit {document['commit']}, {document['at']}; {about['cpu']}, {about['cores']} cores, "
        f"{about['memory_gib']} GiB, Linux {about['kernel']}, Python {about['python']}"
        + (" (quick run: indicative only)" if document["quick"] else "")
    )
    table = Table("case", "number", *names)
    if document["ratios"]:
        table.add_column("ratio")
        table.caption = "ratio = first / second; ↑ more is better, ↓ less is better"
    for column in table.columns[2:]:
        column.justify = "right"
    cases = dict.fromkeys(case for results in document["results"].values() for case in results)
    for case in cases:
        numbers = dict.fromkeys(n for name in names for n in document["results"][name].get(case, ()))
        for position, number in enumerate(numbers):
            cells = [shown(document["results"][name].get(case, {}).get(number)) for name in names]
            if document["ratios"]:
                ratio = document["ratios"].get(case, {}).get(number)
                arrow = "↑" if number.endswith(HIGHER_IS_BETTER) else "↓"
                cells.append("" if ratio is None else f"{shown(ratio)} {arrow}")
            table.add_row("" if position else case, number, *cells)
        table.add_section()
    console.print(table)
