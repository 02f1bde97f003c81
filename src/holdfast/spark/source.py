"""The data source ``holdfast`` for batch and stream, reading and writing.

Loads almost nothing by itself: Spark imports it in several processes only to learn its name.

    spark.read.format("holdfast").option("kafka.bootstrap.servers", "...").option("subscribe", "t").load()
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from holdfast.spark.options import ReadOptions
    from holdfast.spark.reader import HoldfastReader, HoldfastStreamReader
    from holdfast.spark.typed_columns import TypedColumns
    from holdfast.spark.writer import HoldfastStreamWriter, HoldfastWriter


class HoldfastDataSource(DataSource):
    """Options and columns are those of Spark's Kafka source and sink: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> Any:
        """A StructType, or DDL."""
        from holdfast.spark.typed_options import parse_typed

        headers = self.options.get("includeHeaders", "false").strip().lower() == "true"
        typed = parse_typed(self.options, streaming=False)
        if typed is None:
            from holdfast.spark.reader import schema_text

            return schema_text(headers)
        from holdfast.spark.options import parse_read
        from holdfast.spark.typed_columns import schema_of, settled

        # Which of the two a query is, nobody says here; a stream's own options are checked by its reader.
        return schema_of(settled(typed, parse_read(_for_either(self.options), streaming=False), None), headers)

    def reader(self, schema: Any) -> "HoldfastReader":
        from holdfast.spark.filtering_reader import FilteringReader
        from holdfast.spark.options import parse_read
        from holdfast.spark.reader import HoldfastReader

        options = parse_read(self.options, streaming=False)
        if options.push_filters:
            return FilteringReader(schema, options, self._typed(schema, options, streaming=False))
        return HoldfastReader(schema, options, self._typed(schema, options, streaming=False))

    def streamReader(self, schema: Any) -> "HoldfastStreamReader":
        from holdfast.spark.options import parse_read
        from holdfast.spark.reader import HoldfastStreamReader

        options = parse_read(self.options, streaming=True)
        return HoldfastStreamReader(schema, options, self._typed(schema, options, streaming=True))

    def _typed(self, schema: Any, options: "ReadOptions", *, streaming: bool) -> "TypedColumns | None":
        from holdfast.spark.typed_options import parse_typed

        typed = parse_typed(self.options, streaming=streaming)
        if typed is None:
            return None
        from holdfast.spark.typed_columns import check_typed_schema, settled

        columns = settled(typed, options, schema)
        check_typed_schema(schema, columns)
        return columns

    def writer(self, schema: Any, overwrite: bool) -> "HoldfastWriter":
        from holdfast.spark.options import OptionError, parse_write
        from holdfast.spark.writer import HoldfastWriter

        if overwrite:
            raise OptionError("mode overwrite is not possible: a log is only appended to; use mode append")
        return HoldfastWriter(schema, parse_write(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> "HoldfastStreamWriter":
        from holdfast.spark.options import parse_write
        from holdfast.spark.writer import HoldfastStreamWriter

        return HoldfastStreamWriter(schema, parse_write(self.options))


def _for_either(options: Mapping[str, str]) -> dict[str, str]:
    """Without the position, which a batch read and a stream may not say alike."""
    return {name: value for name, value in options.items() if not name.lower().startswith(("starting", "ending"))}
