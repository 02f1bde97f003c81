"""Which Arrow types JSON is decoded into. Loads no kernels: planning asks this, and decodes nothing."""

import pyarrow as pa

from holdfast.records.typed.schema_error import SchemaError


def check_target(column: pa.Field) -> None:
    """SchemaError for a field of a type that no JSON is decoded into."""
    kind = column.type
    if pa.types.is_list(kind):
        check_target(kind.value_field)
    elif pa.types.is_struct(kind):
        for each in kind:
            check_target(each)
    elif not _is_scalar(kind):
        raise SchemaError(
            f"field {column.name}: no JSON is decoded into {kind}; expected string, bool, a number, a decimal, date32, "
            "timestamp[us], timestamp[us, tz=UTC], or a list or struct of those"
        )


def _is_scalar(kind: pa.DataType) -> bool:
    plain = (pa.types.is_string, pa.types.is_boolean, pa.types.is_integer, pa.types.is_decimal, pa.types.is_date32)
    if any(each(kind) for each in plain) or kind in (pa.float32(), pa.float64()):
        return True
    return bool(pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"))
