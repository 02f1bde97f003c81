"""Protobuf descriptors: a compiled descriptor set read, a message found in it, and what Arrow type each field is.

What is read is what ``protoc --include_imports --descriptor_set_out=FILE`` writes. Recursive messages and groups are
refused by name: no column can hold them.
"""

from typing import Any, Final

import pyarrow as pa

from holdfast.records.typed.protobuf_files import Descriptor, library, pool_of
from holdfast.records.typed.schema_error import SchemaError

UTC: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP: Final = "google.protobuf.Timestamp"
MAX_FIELDS: Final = 10_000
"""In a message with all messages inside it."""

# Numbers of types, as FieldDescriptorProto.Type has them.
DOUBLE, FLOAT, INT64, UINT64, INT32, FIXED64, FIXED32, BOOL, STRING, GROUP, MESSAGE, BYTES, UINT32, ENUM = range(1, 15)
SFIXED32, SFIXED64, SINT32, SINT64 = range(15, 19)
_UNSIGNED: Final = pa.decimal128(20, 0)
_PLAIN: Final = {
    DOUBLE: pa.float64(), FLOAT: pa.float32(), BOOL: pa.bool_(), STRING: pa.string(), BYTES: pa.binary(),
    INT32: pa.int32(), SINT32: pa.int32(), SFIXED32: pa.int32(), UINT32: pa.int64(), FIXED32: pa.int64(),
    INT64: pa.int64(), SINT64: pa.int64(), SFIXED64: pa.int64(), UINT64: _UNSIGNED, FIXED64: _UNSIGNED,
    ENUM: pa.string(),
}  # fmt: skip

Field = Any


def message_of(descriptor_set: bytes, message: str) -> Descriptor:
    """The descriptor of a message by its full name. SchemaError says which there are."""
    read = library("descriptor_pb2").FileDescriptorSet()
    try:
        read.ParseFromString(descriptor_set)
    except Exception as error:  # the library's own DecodeError, of which not all versions say where it is
        raise SchemaError(
            f"this is no compiled descriptor set, as protoc --descriptor_set_out writes it: {error}"
        ) from None
    pool = pool_of(read.file)
    try:
        found = pool.FindMessageTypeByName(message)
    except KeyError:
        names = [f"{file.package}.{each.name}".lstrip(".") for file in read.file for each in file.message_type]
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise SchemaError(f"the descriptor set has no message {message!r}; it has {shown or 'none'}") from None
    check(found)
    return found


def is_map(field: Field) -> bool:
    message = field.message_type
    return bool(field.is_repeated and message is not None and message.GetOptions().map_entry)


def field_type(field: Field, path: str) -> pa.DataType:
    """The type of a field's column."""
    one = value_type(field, path)
    if is_map(field):
        return pa.map_(one[0].type, one[1].type)
    return pa.list_(pa.field("element", one)) if field.is_repeated else one


def value_type(field: Field, path: str) -> pa.DataType:
    """The type of one item of a field; of a map the struct of its key and value."""
    if field.type == GROUP:
        raise SchemaError(f"field {path!r} is a group, which has no column")
    if field.type != MESSAGE:
        return _PLAIN[field.type]
    if field.message_type.full_name == TIMESTAMP:
        return UTC
    return pa.struct([(each.name, field_type(each, f"{path}.{each.name}")) for each in field.message_type.fields])


def set_of(message: Descriptor) -> bytes:
    """A descriptor set with the message, for another process."""
    made = library("descriptor_pb2").FileDescriptorSet()
    seen: set[str] = set()

    def add(file: Any) -> None:
        if file.name not in seen:
            seen.add(file.name)
            for needed in file.dependencies:
                add(needed)
            file.CopyToProto(made.file.add())

    add(message.file)
    return bytes(made.SerializeToString())


def check(message: Descriptor) -> None:
    """SchemaError for what has no columns, or too many."""
    count = 0

    def walk(each: Descriptor, path: str, inside: tuple[str, ...]) -> None:
        nonlocal count
        for field in each.fields:
            below = f"{path}{field.name}"
            count += 1
            if count > MAX_FIELDS:
                raise SchemaError(f"message {message.full_name} has more than {MAX_FIELDS} fields with those inside it")
            if field.type == MESSAGE and field.message_type.full_name != TIMESTAMP:
                name = field.message_type.full_name
                if name in inside:
                    raise SchemaError(
                        f"field {below!r} is of type {name}, which it is part of: recursion has no column"
                    )
                walk(field.message_type, f"{below}.", (*inside, name))
            elif field.type == GROUP:
                raise SchemaError(f"field {below!r} is a group, which has no column")

    walk(message, "", (message.full_name,))
