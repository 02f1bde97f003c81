"""The data source ``holdfast`` for batch and stream, reading and writing.

Loads almost nothing by itself: Spark imports it in several processes only to learn its name.

    spark.read.format("holdfast").option("kafka.bootstrap.servers", "...").option("subscribe", "t").load()
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from holdfast.spark.reader import HoldfastReader, HoldfastStreamReader
    from holdfast.spark.writer import HoldfastStreamWriter, HoldfastWriter


class HoldfastDataSource(DataSource):
    """Options and columns are those of Spark's Kafka source and sink: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> str:
        from holdfast.spark.reader import schema_text

        return schema_text(self.options.get("includeHeaders", "false").strip().lower() == "true")

    def reader(self, schema: Any) -> "HoldfastReader":
        from holdfast.spark.options import parse_read
        from holdfast.spark.reader import HoldfastReader

        return HoldfastReader(schema, parse_read(self.options, streaming=False))

    def streamReader(self, schema: Any) -> "HoldfastStreamReader":
        from holdfast.spark.options import parse_read
        from holdfast.spark.reader import HoldfastStreamReader

        return HoldfastStreamReader(schema, parse_read(self.options, streaming=True))

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
