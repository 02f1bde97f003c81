"""A batch read that takes the query's filters: partitions, offsets and times that no row is wanted of are not read.

Only with pushDownFilters=true. Spark 4.2 keeps one plan of reading for all that a DataFrame is used for, that of the
filters which it handed over last: a DataFrame that is used twice would miss rows, and nothing here could tell.
"""

from collections.abc import Iterable
from typing import Any

from pyspark.sql.datasource import Filter

from holdfast.spark.filters import Narrowing, narrowed
from holdfast.spark.ranges import Range
from holdfast.spark.reader import HoldfastReader


class FilteringReader(HoldfastReader):
    """As HoldfastReader, narrowed by filters."""

    _narrowing = Narrowing()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Called once, before ``partitions``."""
        self._narrowing, rest = narrowed(filters)
        self._times_us = self._narrowing.bounds_us
        return rest

    def _narrowed(self, ranges: list[Range], topics: Any) -> list[Range]:
        """ListOffsets by time tells the first record that is as young: all before it are older, whoever set their
        timestamps. Nothing of that kind is true of what follows a record, so an upper bound cuts no range."""
        found = self._narrowing.ranges(ranges)
        since_ms = self._narrowing.since_ms
        if since_ms is None or not found:
            return found
        first = topics.first_since(since_ms, sorted({each.tp for each in found}))
        return Narrowing().ranges(
            Range(
                tp=each.tp,
                start=max(each.start, first.get(each.tp, each.end)),
                end=each.end,
                leader=each.leader,
                topic_id=each.topic_id,
            )
            for each in found
        )
