"""Bugs that are put back into the source are found, each by a test of this folder.

Those of the lake's tables are in ``tests/contracts/lake_planted.py``. Each replaces one function for the time of a
test; nothing of them is in the product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.records import columns
from holdfast.spark import lake, reader, stream_plan
from holdfast.spark.fetching import RangeFetcher
from holdfast.spark.stream_offsets import StreamOffset
from tests.unit.records import test_columns
from tests.unit.spark import test_fetching, test_lake_values, test_stream_reader
from tests.unit.spark.log_cluster import LogCluster

Patch = pytest.MonkeyPatch


def batch_0_asked_again(patch: Patch) -> None:
    """The first batch begins where the log ends when it is read again, not where it began (D9)."""
    found = StreamOffset.from_json.__func__  # type: ignore[attr-defined]
    patch.setattr(StreamOffset, "from_json", classmethod(lambda cls, text: replace(found(cls, text), begins={})))


def a_range_cut_out_of_order(patch: Patch) -> None:
    """A partition of a stream is cut into two tasks, though its order counts (D10)."""
    cut = reader.tasks_of
    patch.setattr(reader, "tasks_of", lambda ranges, **named: cut(ranges, **{**named, "ordered": False}))


def epoch_ignored(patch: Patch) -> None:
    """A log that was cut and has grown again is read on from the old offset (D4, KIP-320)."""
    patch.setattr(stream_plan, "_where_cut", lambda *_: {})


def skip_on_out_of_range(patch: Patch) -> None:
    """An offset that is out of range is gone on from where the log starts, and nobody hears of it (D5)."""

    def elsewhere(self: Any, wanted: Any, offset: int) -> int | None:
        start, end = self._guide.bounds(wanted.tp)
        return None if start <= offset < end else int(start if offset < start else wanted.end)

    patch.setattr(RangeFetcher, "_elsewhere", elsewhere)


def uncommitted_reads(patch: Patch) -> None:
    """Records of aborted transactions count (D11)."""
    visible = columns._visible
    patch.setattr(columns, "_visible", lambda chunk, start, end, _, kernels: visible(chunk, start, end, (), kernels))


def a_lake_of_uncommitted_records(patch: Patch) -> None:
    """The lake asks as a plain read does (D11)."""
    asked = lake.source_options

    def options(job: Any) -> dict[str, str]:
        return asked(job) | {"kafka.isolation.level": "read_uncommitted"}

    patch.setattr(lake, "source_options", options)


FOUND_BY: Final[tuple[tuple[Callable[[Patch], None], Callable[..., None], tuple[Any, ...]], ...]] = (
    (
        batch_0_asked_again,
        test_stream_reader.test_spark_D9_a_first_batch_without_records_has_none_when_it_is_read_again,
        (LogCluster,),
    ),
    (
        batch_0_asked_again,
        test_stream_reader.test_spark_D9_partitions_that_are_new_begin_where_they_did_when_they_are_read_again,
        (LogCluster,),
    ),
    (
        a_range_cut_out_of_order,
        test_stream_reader.test_spark_D10_a_stream_cuts_no_partition_unless_asked,
        (LogCluster, {}, 1, Patch),
    ),
    (
        epoch_ignored,
        test_stream_reader.test_spark_D4_a_log_that_was_cut_and_has_grown_again_is_told,
        (LogCluster,),
    ),
    (
        skip_on_out_of_range,
        test_fetching.test_spark_D5_only_what_is_outside_of_the_log_is_skipped,
        (LogCluster,),
    ),
    (uncommitted_reads, test_columns.test_control_batches_and_aborted_transactions_are_left_out, (None,)),
    (
        a_lake_of_uncommitted_records,
        test_lake_values.test_spark_D11_a_lake_reads_committed_records_unless_it_is_told_otherwise,
        (Path,),
    ),
)
"""Bug, the test that finds it, and what that is called with: a class stands for one of it."""


@pytest.mark.parametrize(
    ("bug", "test", "given"), FOUND_BY, ids=[f"{bug.__name__}-{n}" for n, (bug, *_) in enumerate(FOUND_BY)]
)
def test_bugs_that_are_put_back_into_the_source_are_found(
    tmp_path: Path, bug: Callable[[Patch], None], test: Callable[..., None], given: tuple[Any, ...]
) -> None:
    def passes(*, planted: bool) -> bool:
        with LogCluster(2) as cluster, Patch.context() as patch:
            if planted:
                bug(patch)
            stand_for = {LogCluster: cluster, Patch: patch, Path: tmp_path}
            try:
                test(*(stand_for.get(each, each) if isinstance(each, type) else each for each in given))
            except (AssertionError, pytest.fail.Exception, HoldfastError):
                return False
        return True

    assert passes(planted=False)
    assert not passes(planted=True), f"{test.__name__} passes with {bug.__name__}"
