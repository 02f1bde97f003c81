"""The demo's picture: by how much flights were late, by carrier and hour of the day. Pure: numbers in, SVG out."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

CELL_W: Final = 34
CELL_H: Final = 24
LEFT: Final = 60
TOP: Final = 64
WORST_MIN: Final = 40.0
"""Minutes from which on a cell is as dark as it gets."""
LEGEND: Final = "minutes late on arrival, on average, by hour of departure"
NONE: Final = "#f2f2f2"


def heat_map(delays: Mapping[tuple[str, int], float], title: str) -> str:
    """A row for each carrier, a column for each hour; early is blue, late is red, and no flight is grey."""
    carriers = sorted({carrier for carrier, _ in delays})
    hours = sorted({hour for _, hour in delays})
    width, height = LEFT + CELL_W * len(hours) + 20, TOP + CELL_H * len(carriers) + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
        f'<text x="{LEFT}" y="{height - 12}" fill="#555">{escape(LEGEND)}</text>',
    ]
    for column, hour in enumerate(hours):
        x = LEFT + CELL_W * column + CELL_W // 2
        lines.append(f'<text x="{x}" y="{TOP - 8}" text-anchor="middle">{hour}</text>')
    for row, carrier in enumerate(carriers):
        y = TOP + CELL_H * row
        lines.append(f'<text x="{LEFT - 8}" y="{y + 16}" text-anchor="end">{escape(carrier)}</text>')
        for column, hour in enumerate(hours):
            lines += _cell(LEFT + CELL_W * column, y, delays.get((carrier, hour)))
    return "\n".join([*lines, "</svg>", ""])


def _cell(x: int, y: int, minutes: float | None) -> list[str]:
    lines = [f'<rect x="{x}" y="{y}" width="{CELL_W - 2}" height="{CELL_H - 2}" fill="{_colour(minutes)}"/>']
    if minutes is not None:
        ink = "white" if abs(minutes) > WORST_MIN * 0.6 else "black"
        lines.append(
            f'<text x="{x + CELL_W // 2 - 1}" y="{y + 15}" text-anchor="middle" fill="{ink}">{minutes:.0f}</text>'
        )
    return lines


def _colour(minutes: float | None) -> str:
    if minutes is None:
        return NONE
    share = min(abs(minutes) / WORST_MIN, 1.0)
    fade = round(255 * (1 - 0.75 * share))
    return f"#ff{fade:02x}{fade:02x}" if minutes >= 0 else f"#{fade:02x}{fade:02x}ff"
