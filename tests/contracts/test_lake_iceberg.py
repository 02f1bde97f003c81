"""What is Iceberg's alone: pyiceberg's own retries, and the catalog beside the table."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from holdfast.lake.data_files import attempt_of, described
from holdfast.lake.errors import LakeError, PositionMovedError, TableError
from holdfast.lake.evolution import evolve
from holdfast.lake.iceberg_metadata import transaction
from holdfast.lake.iceberg_table import RETRIES
from holdfast.lake.opening import CATALOG_FILE, make_table, open_table
from holdfast.lake.position import Position
from holdfast.lake.table import MOST_AGE_MS, CommitConflict, land, now_ms
from holdfast.lake.upkeep import compact
from tests.contracts.lake_killed import killed_inside
from tests.contracts.lake_tables import (
    batch_of,
    count_by_own_library,
    library_table,
    made,
    offsets,
    offsets_by_duckdb,
    opened,
)


def test_spark_D2_pyicebergs_retries_are_taken_off_wherever_somebody_set_them(tmp_path: Path) -> None:
    table = made(tmp_path, "iceberg")
    with library_table(table).transaction() as change:
        change.set_properties({RETRIES: "4"})
    ours, late = opened(tmp_path, "iceberg"), opened(tmp_path, "iceberg")
    theirs = batch_of(late, Position(), (0, 0, 20))
    land(ours, batch_of(ours, Position(), (0, 0, 10)))
    assert library_table(ours).properties[RETRIES] == "0"
    with pytest.raises(CommitConflict):  # with four retries this append would be in as well
        late.put((), theirs.after)
    with pytest.raises(PositionMovedError):
        land(late, theirs)
    assert offsets_by_duckdb(ours) == offsets((0, 0, 10))


def moved_on(folder: Path) -> None:
    """Another process lands, compacts, and expires all states but the newest, with their manifests."""
    other = opened(folder, "iceberg")
    land(other, batch_of(other, other.position(), (0, 20, 30)))
    assert compact(other, attempt_of(now_ms()), target_bytes=1 << 20).files_before == 3
    assert other.expire(older_than_ms=now_ms() + 1_000) > 0


@pytest.mark.parametrize("what", ["put", "replace", "files", "whole", "rows", "referenced"])
def test_a_state_that_anothers_upkeep_took_away_is_a_conflict_or_read_anew(tmp_path: Path, what: str) -> None:
    """As happened to two writers: one's compaction looked for the manifests of a snapshot that the other expired."""
    table = made(tmp_path, "iceberg")
    for start in (0, 10):
        land(table, batch_of(table, table.position(), (0, start, start + 10)))
    removed, planned = table.files(), batch_of(table, table.position(), (0, 20, 30))
    files = tuple(described(table.store, path) for path in planned.files)
    moved_on(tmp_path)
    late: dict[str, Callable[[], object]] = {
        "put": lambda: table.put(files, planned.after),
        "replace": lambda: table.replace(removed, ()),
    }
    if what in late:
        with pytest.raises(CommitConflict):
            late[what]()
        assert table.position() == opened(tmp_path, "iceberg").position()
    else:
        newest = opened(tmp_path, "iceberg")
        assert getattr(table, what)() == getattr(newest, what)()
        assert table.rows() == 30
    assert offsets_by_duckdb(table) == offsets((0, 0, 30))


@pytest.mark.parametrize("whose", ["ours", "of another engine"])
def test_expiry_takes_no_file_of_a_commit_that_is_under_way(tmp_path: Path, whose: str) -> None:
    """Its lists and manifests are there and named by nothing yet: with ``maintain --keep-hours 0`` beside it they were
    removed, the commit went through, and nobody could read the table."""
    table = made(tmp_path, "iceberg")
    land(table, batch_of(table, table.position(), (0, 0, 10)))  # one state: to forget others would be a commit, too
    late = opened(tmp_path, "iceberg")
    planned, rows = batch_of(late, late.position(), (0, 10, 20)), library_table(late).scan().to_arrow()
    expired: list[int] = []

    def upkeep_of_another() -> None:
        expired.append(opened(tmp_path, "iceberg").expire(older_than_ms=now_ms() + 1_000))

    with killed_inside(late, upkeep_of_another):
        if whose == "ours":
            land(late, planned)
        else:
            library_table(late).append(rows)
    assert expired == [0]
    after = opened(tmp_path, "iceberg")
    if whose == "ours":
        assert offsets_by_duckdb(after) == offsets((0, 0, 20))
    assert after.rows() == count_by_own_library(after) == 20


def test_what_nothing_names_goes_when_no_attempt_can_be_so_old(tmp_path: Path) -> None:
    table = made(tmp_path, "iceberg")
    for start in (0, 10):
        land(table, batch_of(table, table.position(), (0, start, start + 10)))
    folder = tmp_path / "table/metadata"
    lists = {path.name for path in folder.glob("snap-*.avro")}
    young, old = folder / "young-m0.avro", folder / "old-m0.avro"
    for path in (young, old):
        path.write_bytes(b"of a commit that never came")
    hour_ago = (now_ms() - MOST_AGE_MS) / 1000 - 1
    os.utime(old, (hour_ago, hour_ago))
    assert table.expire(older_than_ms=now_ms() + 1_000) == 1
    assert (young.exists(), old.exists()) == (True, False)
    assert len({path.name for path in folder.glob("snap-*.avro")}) == len(lists) - 1, "the list of what was forgotten"
    assert offsets_by_duckdb(table) == offsets((0, 0, 20))


def test_metadata_is_copied_once_per_staged_change(tmp_path: Path) -> None:
    """pyiceberg's own transaction copies all snapshots at every look, so that commits grow slower with their number."""
    change = transaction(library_table(made(tmp_path, "iceberg")))
    first = change.table_metadata
    assert change.table_metadata is first
    change.set_properties({"a": "b"})
    second = change.table_metadata
    assert second is not first and second.properties["a"] == "b" and "a" not in first.properties
    assert change.table_metadata is second


def test_snapshots_are_not_copied_with_the_metadata(tmp_path: Path) -> None:
    """A deep copy of each of 600 snapshots is most of a commit."""
    table = made(tmp_path, "iceberg")
    land(table, batch_of(table, Position(), (0, 0, 10)))
    before = library_table(table).metadata
    change = transaction(library_table(table))
    change.set_properties({"a": "b"})
    staged = change.table_metadata
    assert staged.snapshots[0] is before.snapshots[0] and staged.snapshots is not before.snapshots
    assert staged.snapshot_log[0] is before.snapshot_log[0]
    change.commit_transaction()
    assert opened(tmp_path, "iceberg").rows() == 10


def test_lists_and_manifests_are_read_once(tmp_path: Path) -> None:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    class Noting(PyArrowFileIO):
        read: ClassVar[list[str]] = []

        def new_input(self, location: str) -> Any:
            self.read.append(location)
            return super().new_input(location)

    table = made(tmp_path, "iceberg")
    for start in (0, 10):
        land(table, batch_of(table, table.position(), (0, start, start + 10)))
    library_table(table).io = Noting({})
    named = table.referenced()
    assert len(named) == 2
    avro = [each for each in Noting.read if each.endswith(".avro")]
    assert avro and len(avro) == len(set(avro))
    Noting.read.clear()
    assert table.referenced() == named and Noting.read == []


def test_a_catalog_that_is_gone_is_named_and_no_table_begins_anew(tmp_path: Path) -> None:
    table = made(tmp_path, "iceberg")
    land(table, batch_of(table, Position(), (0, 0, 10)))
    (tmp_path / CATALOG_FILE).unlink()
    with pytest.raises(TableError, match=f"{CATALOG_FILE} is not there: put it back"):
        open_table(str(tmp_path / "table"), "iceberg")
    (tmp_path / "other").mkdir()
    made(tmp_path / "other", "iceberg")
    (tmp_path / "other" / CATALOG_FILE).rename(tmp_path / CATALOG_FILE)
    with pytest.raises(TableError, match="expected file://"):
        open_table(str(tmp_path / "table"), "iceberg")


def test_a_catalog_is_for_iceberg_only(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is for tables of format iceberg, not delta"):
        open_table(str(tmp_path / "table"), "delta", catalog="name")
    with pytest.raises(LakeError, match="format 'orc': expected one of delta, iceberg, parquet"):
        open_table(str(tmp_path / "table"), "orc")


def test_a_table_that_was_partitioned_since_keeps_the_files_of_before(tmp_path: Path) -> None:
    table = made(tmp_path, "iceberg")
    land(table, batch_of(table, Position(), (0, 0, 10), (1, 0, 10)))
    with library_table(table).update_spec() as change:
        change.add_identity("_kafka_partition")
    table = opened(tmp_path, "iceberg")
    assert str(table.partitioning) == "_kafka_partition" and table.values() == {}
    assert compact(table, attempt_of(now_ms()), target_bytes=1 << 20).files_before == 0
    with pytest.raises(TableError, match="written for no partitions, the table has partition by _kafka_partition"):
        land(table, batch_of(table, table.position(), (0, 10, 20)))
    with library_table(table).update_spec() as change:
        change.add_identity("name")
    with pytest.raises(TableError, match="expected one column at most, as it is or by its day"):
        opened(tmp_path, "iceberg")


@pytest.mark.parametrize("name", ["_partition", "_POS", "_row_id"])
def test_columns_that_icebergs_readers_keep_for_themselves_are_refused(tmp_path: Path, name: str) -> None:
    """Spark with Iceberg's runtime reads no table that has one."""
    column = pa.field(name, pa.int32())
    with pytest.raises(TableError, match=f"a column {name} would hide one of Iceberg's own"):
        make_table(str(tmp_path / "other"), "iceberg", pa.schema([column]))
    table = made(tmp_path, "iceberg")
    with pytest.raises(TableError, match=f"a column {name} would hide one of Iceberg's own"):
        evolve(table, [column])
    assert name not in opened(tmp_path, "iceberg").schema().names
