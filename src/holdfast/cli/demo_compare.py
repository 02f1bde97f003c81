"""What landed against what was sent: every flight, every column, by the offset that was acknowledged for it.

Reads the Iceberg table by its newest metadata file, without Spark and without what made it, and the flights anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.demo_flights import frames
from holdfast.cli.demo_ledger import NOT_ACKED, Ledger
from holdfast.cli.demo_report import Aggregates

if TYPE_CHECKING:
    import numpy
    import pandas

Delays = dict[tuple[str, int], float]
"""Carrier and hour of the day -> minutes by which its flights arrived late, on average."""
PARTITION_BITS = 48
"""A place as one number: partition above, offset below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """The comparison's result, and the table's own aggregates."""

    rows: int
    different: int
    by_carrier: Aggregates
    by_hour: Aggregates
    orphans: tuple[str, ...]
    """Data files beside the table that its newest state does not name."""
    delays: Delays
    """As they landed."""


def newest_metadata(lake: Path) -> str:
    """The metadata file of the table's newest state: the one with the highest number."""
    files = list((lake / "metadata").glob("*.metadata.json"))
    return str(max(files, key=lambda each: int(each.name.split("-")[0])))


def orphans(lake: Path) -> list[str]:
    """Data files that are in the table's directory and not in its newest state."""
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(newest_metadata(lake))
    live = {task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()}
    return sorted(str(each) for each in lake.rglob("*.parquet*") if str(each) not in live)


def compare(lake: Path, ledger: Ledger, file: str) -> Landed:
    """Counts landed rows that are at no acknowledged place, at one that another row has, or not the flight sent."""
    import numpy
    import pandas
    from pyiceberg.table import StaticTable

    table = pandas.concat(list(frames(file)), ignore_index=True)
    there = StaticTable.from_metadata(newest_metadata(lake)).scan().to_arrow()
    partitions, offsets = (there.column(name).to_numpy() for name in ("_kafka_partition", "_offset"))
    rows = rows_of(ledger, partitions, offsets)
    known = rows >= 0
    _, first = numpy.unique(rows, return_index=True)
    wrong = numpy.ones(len(rows), dtype=bool)
    wrong[first] = False
    wrong |= ~known
    for name in table.columns:
        landed = there.column(name).to_pandas()
        sent = table[name].take(numpy.where(known, rows, 0)).reset_index(drop=True)
        wrong |= ~equal(landed, sent)
    return Landed(
        rows=len(rows),
        different=int(wrong.sum()),
        by_carrier=totals(table, "carrier"),
        by_hour=totals(table, "hour"),
        orphans=tuple(orphans(lake)),
        delays=mean_delays(there),
    )


def mean_delays(landed: Any) -> Delays:
    """Of an Arrow table of flights; what has no flight that arrived is left out."""
    groups = landed.group_by(["carrier", "hour"]).aggregate([("arr_delay", "mean")]).to_pylist()
    return {(row["carrier"], row["hour"]): row["arr_delay_mean"] for row in groups if row["arr_delay_mean"] is not None}


def rows_of(ledger: Ledger, partitions: Sequence[int], offsets: Sequence[int]) -> numpy.ndarray[Any, Any]:
    """Row number of the record at each place; -1 where nothing was acknowledged."""
    import numpy

    acked_at = numpy.flatnonzero(_of(ledger.partitions, "int8") != NOT_ACKED)
    acked = (_of(ledger.partitions, "int8").astype("int64") << PARTITION_BITS) | _of(ledger.offsets, "int64")
    acked = acked[acked_at]
    order = numpy.argsort(acked, kind="stable")
    wanted = (numpy.asarray(partitions, dtype="int64") << PARTITION_BITS) | numpy.asarray(offsets, dtype="int64")
    if not len(acked):
        return numpy.full(len(wanted), -1)
    at = numpy.minimum(numpy.searchsorted(acked[order], wanted), len(acked) - 1)
    return numpy.where(acked[order][at] == wanted, acked_at[order][at], -1)


def _of(values: array[Any], kind: str) -> numpy.ndarray[Any, Any]:
    import numpy

    return numpy.frombuffer(values, dtype=kind)


def equal(landed: pandas.Series[Any], sent: pandas.Series[Any]) -> numpy.ndarray[Any, Any]:
    """Element by element; absent equals absent. Times that Spark has recognised as such are compared as times."""
    import numpy
    import pandas

    if pandas.api.types.is_datetime64_any_dtype(landed):
        sent, landed = (pandas.to_datetime(column, utc=True) for column in (sent, landed))
    absent = landed.isna().to_numpy(), sent.isna().to_numpy()
    there = ~(absent[0] | absent[1])
    same = absent[0] & absent[1]
    if pandas.api.types.is_numeric_dtype(sent):
        a, b = (column.to_numpy(dtype="float64", na_value=numpy.nan) for column in (landed, sent))
    else:
        a, b = (column.to_numpy(dtype=object) for column in (landed, sent))
    same[there] = a[there] == b[there]
    result: numpy.ndarray[Any, Any] = same
    return result


def totals(table: pandas.DataFrame, by: str) -> Aggregates:
    """Flights that arrived and the sum of their delays, per group."""
    grouped = table.groupby(by)["arr_delay"].agg(["count", "sum"])
    return {str(name): (int(row["count"]), int(row["sum"])) for name, row in grouped.iterrows()}
