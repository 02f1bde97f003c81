"""Names of the columns that say where a row was, and those that a format keeps for itself."""

from collections.abc import Iterable
from typing import Final

from holdfast.lake.errors import TableError

TOPIC: Final = "_topic"
OFFSET: Final = "_offset"
PARTITIONS: Final = ("_partition", "_kafka_partition")
"""The second one in Iceberg tables: Spark with Iceberg's runtime refuses to read one with a column ``_partition``."""
RESERVED: Final = {
    "iceberg": frozenset(
        ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
         "_change_type", "_change_ordinal", "_commit_snapshot_id")
    )
}  # fmt: skip
"""Names of Iceberg's metadata columns (MetadataColumns of its library)."""


def partition_column(format: str) -> str:
    """Of a new table."""
    return PARTITIONS[format == "iceberg"]


def check_reserved(names: Iterable[str], format: str, location: str) -> None:
    """TableError for a new column whose name the format keeps for itself."""
    for name in names:
        if name.lower() in RESERVED.get(format, ()):
            raise TableError(
                f"{location}: a column {name} would hide one of {format.capitalize()}'s own: expected another name"
            )
