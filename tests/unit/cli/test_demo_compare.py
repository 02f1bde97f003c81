"""The demo's comparison finds each kind of difference between what was sent and what landed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from holdfast.cli.demo_compare import Landed, compare
from holdfast.cli.demo_flights import chunks, frames
from holdfast.cli.demo_ledger import Ledger

HEADER = "carrier,hour,tailnum,dep_time,dep_delay,arr_time,arr_delay,air_time,time_hour"
ROWS = [
    "UA,5,N1,517,2,830,11,227,2013-01-01T10:00:00Z",
    "AA,5,NA,NA,NA,NA,NA,NA,2013-01-01T11:00:00Z",
    "UA,6,N2,600,-3,700,-20,50,2013-01-01T12:00:00Z",
]
PLACES = [(0, 0), (1, 0), (0, 1)]


class Run:
    """A table, its ledger, and a lake that may be spoiled."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "flights.csv"
        self.file.write_text("\n".join((HEADER, *ROWS)) + "\n")
        self.lake = folder / "lake"
        self.ledger = Ledger(rows=len(ROWS))
        for row, (partition, offset) in enumerate(PLACES):
            self.ledger.record(row, partition, offset, 0.0)
        (chunk,) = chunks(str(self.file))
        self.rows = [
            {**json.loads(value), "_kafka_partition": partition, "_offset": offset}
            for value, (partition, offset) in zip(chunk.values, PLACES, strict=True)
        ]

    def compare(self) -> Landed:
        landed = pandas.DataFrame(self.rows)
        for name in ("dep_time", "arr_delay"):
            landed[name] = landed[name].astype("Int64")
        arrow = pa.Table.from_pandas(landed, preserve_index=False)
        self.lake.parent.mkdir(exist_ok=True)
        catalog = SqlCatalog(
            "of", uri=f"sqlite:///{self.lake.parent}/catalog.db", warehouse=f"file://{self.lake.parent}"
        )
        catalog.create_namespace("lake")
        catalog.create_table("lake.flights", arrow.schema, location=f"file://{self.lake}").append(arrow)
        return compare(self.lake, self.ledger, str(self.file))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_equal_flights_in_any_order_are_equal(run: Run) -> None:
    run.rows.reverse()
    landed = run.compare()
    assert (landed.rows, landed.different) == (3, 0)
    assert landed.by_carrier == {"UA": (2, -9), "AA": (0, 0)}
    assert landed.by_hour == {"5": (1, 11), "6": (1, -20)}


def test_what_the_table_does_not_name_is_an_orphan_and_no_row(run: Run) -> None:
    assert run.compare().orphans == ()
    [file] = run.lake.rglob("*.parquet")
    stray = file.with_name("stray.parquet")
    shutil.copyfile(file, stray)
    found = compare(run.lake, run.ledger, str(run.file))
    assert (found.rows, found.orphans) == (3, (str(stray),))


def test_mean_delays_are_of_flights_that_arrived(run: Run) -> None:
    assert run.compare().delays == {("UA", 5): 11.0, ("UA", 6): -20.0}


def test_a_changed_value_is_found(run: Run) -> None:
    run.rows[2]["arr_delay"] = -21
    assert run.compare().different == 1


def test_a_value_where_there_was_none_is_found(run: Run) -> None:
    run.rows[1]["tailnum"] = "N9"
    assert run.compare().different == 1


def test_a_row_that_landed_twice_is_found(run: Run) -> None:
    run.rows.append(dict(run.rows[0]))
    landed = run.compare()
    assert (landed.rows, landed.different) == (4, 1)


def test_a_row_at_a_place_that_nobody_acknowledged_is_found(run: Run) -> None:
    run.rows[0]["_offset"] = 77
    assert run.compare().different == 1


def test_rows_that_changed_places_are_found(run: Run) -> None:
    run.rows[0]["_offset"], run.rows[2]["_offset"] = run.rows[2]["_offset"], run.rows[0]["_offset"]
    assert run.compare().different == 2


def test_times_that_are_times_in_the_table_are_compared_as_times(run: Run) -> None:
    for row in run.rows:
        row["time_hour"] = pandas.Timestamp(row["time_hour"])
    assert run.compare().different == 0


def test_the_table_of_the_test_has_the_columns_that_may_be_absent(run: Run) -> None:
    (frame,) = frames(str(run.file))
    assert frame["dep_time"].isna().tolist() == [False, True, False]
