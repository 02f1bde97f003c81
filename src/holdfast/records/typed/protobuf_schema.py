"""Protobuf descriptors: a compiled descriptor set read, a message found in it, and what Arrow type each field is.

What is read is what ``protoc --include_imports --descriptor_set_out=FILE`` writes. The files of google/protobuf that
every protoc brings may be left out. Recursive messages and groups are refused by name: no column can hold them.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final

import pyarrow as pa

from holdfast.records.typed.schema_error import SchemaError

UTC: Final = pa.timestamp("us", tz="UTC")
TIMESTAMP: Final = "google.protobuf.Timestamp"
MAX_FIELDS: Final = 10_000
"""In a message with all messages inside it."""
_BUNDLED: Final = (
    "any",
    "api",
    "duration",
    "empty",
    "field_mask",
    "source_context",
    "struct",
    "timestamp",
    "type",
    "wrappers",
)

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

Descriptor = Any
"""Of a message, as the library ``protobuf`` has it."""
Field = Any


def _library(name: str) -> Any:
    try:
        return import_module(f"google.protobuf.{name}")
    except ImportError as error:
        raise SchemaError(f"Protobuf needs the package protobuf (pip install 'holdfast[schemas]'): {error}") from None


def message_of(descriptor_set: bytes, message: str) -> Descriptor:
    """The descriptor of a message by its full name. SchemaError says which there are."""
    library = _library("descriptor_pb2")
    read = library.FileDescriptorSet()
    try:
        read.ParseFromString(descriptor_set)
    except Exception as error:  # the library's own DecodeError, of which not all versions say where it is
        raise SchemaError(
            f"this is no compiled descriptor set, as protoc --descriptor_set_out writes it: {error}"
        ) from None
    pool = _pool(read.file)
    try:
        found = pool.FindMessageTypeByName(message)
    except KeyError:
        names = [f"{file.package}.{each.name}".lstrip(".") for file in read.file for each in file.message_type]
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise SchemaError(f"the descriptor set has no message {message!r}; it has {shown or 'none'}") from None
    check(found)
    return found


def registered_message(text: str, references: Sequence[tuple[str, str]], index: Sequence[int]) -> Descriptor:
    """From what a registry calls ``serialized``: the message by its place in the file, and then in that message.

    A registry's name of a reference is the name by which files import it. Nothing is checked: it may have no columns.
    """
    files = _registered_files(text, references)
    file = _pool(files).FindFileByName(files[-1].name)
    messages = list(file.message_types_by_name.values())
    found = None
    for at in index:
        if not 0 <= at < len(messages):
            raise SchemaError(f"it has no message with the index {', '.join(map(str, index))}")
        found = messages[at]
        messages = list(found.nested_types)
    return found


def registered_set(text: str, references: Sequence[tuple[str, str]]) -> bytes:
    """The same as a descriptor set, for ``message_of``."""
    made = _library("descriptor_pb2").FileDescriptorSet()
    made.file.extend(_registered_files(text, references))
    return bytes(made.SerializeToString())


def _registered_files(text: str, references: Sequence[tuple[str, str]]) -> list[Any]:
    files = []
    for name, each in (*references, ("", text)):
        proto = _library("descriptor_pb2").FileDescriptorProto()
        try:
            proto.ParseFromString(base64.b64decode(each, validate=True))
        except (binascii.Error, ValueError) as error:
            raise SchemaError(f"it is no FileDescriptorProto in base64: {error}") from None
        except Exception as error:
            raise SchemaError(f"it is no FileDescriptorProto: {error}") from None
        proto.name = name or "the value's own file"
        files.append(proto)
    return files


def _pool(files: Iterable[Any]) -> Any:
    pool = _library("descriptor_pool").DescriptorPool()
    left = {file.name: file for file in files}
    for name in _BUNDLED:
        bundled = _library(f"{name}_pb2").DESCRIPTOR
        if bundled.name not in left:
            proto = _library("descriptor_pb2").FileDescriptorProto()
            bundled.CopyToProto(proto)
            left[bundled.name] = proto
    added: set[str] = set()

    def add(name: str, inside: tuple[str, ...]) -> None:
        if name in added:
            return
        if name not in left or name in inside:
            raise SchemaError(
                f"file {inside[-1]!r} imports {name!r}, which is not there: expected a set made with --include_imports"
            )
        for needed in left[name].dependency:
            add(needed, (*inside, name))
        try:
            pool.Add(left[name]) if hasattr(pool, "Add") else pool.AddSerializedFile(left[name].SerializeToString())
            pool.FindFileByName(name)
        except (TypeError, KeyError, ValueError) as error:
            raise SchemaError(f"file {name!r} is no valid descriptor: {error}") from None
        added.add(name)

    for name in left:
        add(name, ())
    return pool


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
    made = _library("descriptor_pb2").FileDescriptorSet()
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
