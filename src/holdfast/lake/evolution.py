"""How a table gets more columns: a commit of its own, which keeps the position and stops no writer.

Columns come at the end and may be null. A column's type changes only to one that holds every value of it, and only
where the format has that; any other change is refused by name. Owns what may change; the commit is the table's.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from holdfast.lake.data_files import check_schema, holds
from holdfast.lake.errors import ConflictError, TableError
from holdfast.lake.table import TRIES, CommitConflict, Steps, Table, pause


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """From the columns that a table has to those that are wanted."""

    added: tuple[pa.Field, ...] = ()
    widened: tuple[pa.Field, ...] = ()
    """Columns that are there, with their new type."""

    def __bool__(self) -> bool:
        return bool(self.added or self.widened)


def evolve(table: Table, wanted: Iterable[pa.Field], *, on_step: Steps = lambda _step: None) -> pa.Schema:
    """Sees to it that the table has the columns, and answers its schema, in which files are to be written from now on.

    Nothing is committed if it has them, or has them wider. Files that lack a new column, and with Iceberg and Parquet
    also those of a narrower type, go on landing. TableError, naming the column, for a change that would not keep what
    is there; ConflictError if commits of others never stop.
    """
    wanted = tuple(wanted)
    for tried in range(TRIES):
        table.refresh()
        change = change_of(table.schema(), wanted, table.store.location, widens=table.widens)
        if not change:
            return table.schema()
        on_step("evolve")
        try:
            table.change_columns(change.added, change.widened)
        except CommitConflict:
            pause(tried)
            continue
        table.refresh()
        return table.schema()
    raise ConflictError(f"{table.store.location}: {TRIES} commits of others came before this one: stop some of them")


def change_of(schema: pa.Schema, wanted: Iterable[pa.Field], location: str, *, widens: bool) -> ColumnChange:
    """What is to be done so that a table with ``schema`` has what is wanted. TableError as with ``evolve``."""
    added: list[pa.Field] = []
    widened: list[pa.Field] = []
    for column in wanted:
        if column.name not in schema.names:
            if not column.nullable:
                raise TableError(f"{location}: new column {column.name} must be nullable: rows of before have none")
            added.append(column)
            continue
        known = schema.field(column.name)
        if holds(known.type, column.type):
            continue
        if not holds(column.type, known.type):
            raise TableError(
                f"{location}: column {column.name} is {known.type}, wanted as {column.type}, which does not hold "
                "every value of it: give the new values a column of another name"
            )
        if not widens:
            raise TableError(
                f"{location}: column {column.name} is {known.type}, wanted as {column.type}: a Delta table's column "
                "keeps its type (deltalake cannot widen one); give the new values a column of another name"
            )
        widened.append(pa.field(column.name, column.type, known.nullable))
    check_schema(pa.schema([*schema, *added]), location)
    return ColumnChange(added=tuple(added), widened=tuple(widened))
