"""Known bugs of the lake's tables, put back one at a time, and the contract tests that find each.

Each replaces one function of the product for the time of a test; nothing of them is in the product.
"""

import os
from collections.abc import Callable
from typing import Any, Final

import pyarrow.compute as pc
import pytest
from pyiceberg.io.pyarrow import parquet_file_to_data_file

from holdfast.lake import iceberg_table, opening, partitioning, side, upkeep
from holdfast.lake.data_files import Attempt, DataFile
from holdfast.lake.iceberg_table import IcebergTable
from holdfast.lake.local_store import LocalStore
from holdfast.lake.parquet_table import ParquetTable
from holdfast.lake.partitioning import Cell
from holdfast.lake.position import Position
from tests.contracts import test_lake_columns, test_lake_iceberg, test_lake_partitions, test_lake_side, test_lake_table

Patch = pytest.MonkeyPatch


def landed_by_number_only(patch: Patch) -> None:
    """A batch counts as landed if the table has a commit of its number, whatever its offsets (D1)."""
    patch.setattr(Position, "__eq__", lambda self, other: self.sequence == other.sequence)


def retries_of_pyiceberg(patch: Patch) -> None:
    """pyiceberg repeats an append on the new head by itself."""
    patch.setitem(iceberg_table.SETTINGS, iceberg_table.RETRIES, "4")
    patch.setattr(IcebergTable, "_refuse_retries", lambda self: None)


def sweep_of_files_about_to_be_committed(patch: Patch) -> None:
    """Every file that no commit names is swept, however young its attempt is."""
    found = upkeep._begun
    patch.setattr(upkeep, "_begun", lambda table: ((path, 0) for path, _ in found(table)))


def sweep_without_a_fence(patch: Patch) -> None:
    """Only old files go, and the table does not know of it: a writer that stood still commits what is gone."""
    patch.setattr(upkeep, "fence", lambda table, **_named: table.position())


def one_name_for_two_attempts(patch: Patch) -> None:
    """Files are named by offsets alone, and the later one replaces the earlier."""
    patch.setattr(Attempt, "__str__", lambda self: "0000000000000-000000000000")
    _replacing(patch)


def made_though_it_is_there(patch: Patch) -> None:
    """Who makes a name last wins, as in a store without create-if-absent."""
    _replacing(patch)


def side_skipped_by_its_end(patch: Patch) -> None:
    """Bad records below the side table's end are taken to be in it, also those that only this attempt finds bad."""
    patch.setattr(side.SidePlan, "lacks", _beyond_the_end)


def side_not_asked(patch: Patch) -> None:
    """Bad records of a batch that was cut off are written again."""
    patch.setattr(side, "_known", lambda *_given: {})


def side_table_last(patch: Patch) -> None:
    """The rows are committed before the bad records, which are lost if the writer is killed in between."""

    def land_both(main: Any, batch: Any, aside: Any, bad: Any, *, on_step: Any = lambda _step: None) -> Position:
        after = side.land(main, batch, on_step=lambda step: on_step(f"side {step}"))
        side.land(aside, bad, on_step=on_step)
        return after

    patch.setattr(test_lake_side, "land_both", land_both)


def days_cut_towards_1970(patch: Patch) -> None:
    """The last day before 1970 is taken for the first one of it."""
    found = partitioning._keys

    def keys(batch: Any, by: Any) -> Any:
        days = found(batch, by)
        return pc.if_else(pc.less(days, partitioning.EPOCH), partitioning.EPOCH, days) if by.by_day else days

    patch.setattr(partitioning, "_keys", keys)


def partition_guessed(patch: Patch) -> None:
    """pyiceberg's guess, from bounds, which a file has not for a text of more than 4 KiB."""

    def guessed(self: Any, file: DataFile) -> Any:
        return parquet_file_to_data_file(self._table.io, self._table.metadata, self._store.url(file.path))

    patch.setattr(IcebergTable, "_data_file", guessed)


def compaction_across_partitions(patch: Patch) -> None:
    """Small files are put together whatever their value is."""

    def groups(table: Any, whole: Any, target_bytes: int) -> Any:
        for group in upkeep.groups_of({path: size for path, (size, _) in whole.items()}, target_bytes):
            yield Cell(by=str(table.partitioning), value=None), group

    patch.setattr(upkeep, "_groups", groups)


def columns_end_the_position(patch: Patch) -> None:
    """A commit that adds columns has none of the position."""
    found = ParquetTable._append

    def append(self: Any, added: Any, removed: Any, position: str, schema: str | None = None) -> None:
        found(self, added, removed, position if schema is None else Position().to_text(), schema)

    patch.setattr(ParquetTable, "_append", append)


def _replacing(patch: Patch) -> None:
    patch.setattr(opening, "prove", lambda store: None)
    patch.setattr(LocalStore, "_put", lambda self, partial, place: os.replace(partial, place))


def _beyond_the_end(plan: side.SidePlan, topic: str, partition: int, offsets: side.Offsets) -> Any:
    known = plan.noted.topics.get(topic)
    end = known.partitions.get(partition) if known is not None else None
    return offsets >= (end.offset if end is not None else 0)


FOUND_BY: Final[tuple[tuple[Callable[[Patch], None], Callable[..., None], tuple[Any, ...]], ...]] = (
    (
        landed_by_number_only,
        test_lake_table.test_spark_D1_a_batch_planned_anew_and_wider_is_refused_whatever_its_number,
        ("parquet",),
    ),
    (
        landed_by_number_only,
        test_lake_table.test_spark_D1_a_batch_planned_anew_and_wider_is_refused_whatever_its_number,
        ("delta",),
    ),
    (
        retries_of_pyiceberg,
        test_lake_table.test_spark_D2_of_two_writers_that_saw_one_position_exactly_one_wins,
        ("iceberg",),
    ),
    (
        retries_of_pyiceberg,
        test_lake_iceberg.test_spark_D2_pyicebergs_retries_are_taken_off_wherever_somebody_set_them,
        (),
    ),
    (
        sweep_of_files_about_to_be_committed,
        test_lake_table.test_the_sweep_takes_what_no_commit_can_name_any_more,
        ("parquet",),
    ),
    (
        sweep_without_a_fence,
        test_lake_table.test_an_attempt_that_stood_still_is_refused_though_it_had_passed_its_checks,
        ("parquet",),
    ),
    (one_name_for_two_attempts, test_lake_table.test_two_attempts_of_one_range_share_no_file, ("parquet",)),
    (
        made_though_it_is_there,
        test_lake_table.test_spark_D2_of_two_writers_that_saw_one_position_exactly_one_wins,
        ("parquet",),
    ),
    (side_skipped_by_its_end, test_lake_side.test_what_another_attempt_takes_for_bad_is_added, ("parquet",)),
    (side_not_asked, test_lake_side.test_what_another_attempt_takes_for_bad_is_added, ("parquet",)),
    (side_table_last, test_lake_side.test_a_batch_that_was_cut_off_between_the_commits_is_finished, ()),
    (days_cut_towards_1970, test_lake_partitions.test_each_type_has_its_values, ("parquet", "day(local)")),
    (
        partition_guessed,
        test_lake_partitions.test_a_text_beyond_what_statistics_have_is_a_value,
        ("iceberg",),
    ),
    (
        compaction_across_partitions,
        test_lake_partitions.test_rows_are_in_the_file_of_their_value_and_all_engines_read_them,
        ("parquet", "carrier"),
    ),
    (columns_end_the_position, test_lake_columns.test_a_batch_and_new_columns_at_one_moment_both_land, ("parquet",)),
)
"""Bug, the test that finds it, and what that is called with after its folder."""
