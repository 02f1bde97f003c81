"""Files of Protobuf descriptors made into a pool, and those that a registry has. Needs the library, not pyarrow.

The files of google/protobuf that every protoc brings may be left out.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final

from holdfast.records.typed.schema_error import SchemaError

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

Descriptor = Any
"""Of a message, as the library ``protobuf`` has it."""


def library(name: str) -> Any:
    try:
        return import_module(f"google.protobuf.{name}")
    except ImportError as error:
        raise SchemaError(f"Protobuf needs the package protobuf (pip install 'holdfast[schemas]'): {error}") from None


def registered_message(text: str, references: Sequence[tuple[str, str]], index: Sequence[int]) -> Descriptor:
    """From what a registry calls ``serialized``: the message by its place in the file, and then in that message.

    A registry's name of a reference is the name by which files import it. Nothing is checked: it may have no columns.
    """
    files = _registered_files(text, references)
    file = pool_of(files).FindFileByName(files[-1].name)
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
    made = library("descriptor_pb2").FileDescriptorSet()
    made.file.extend(_registered_files(text, references))
    return bytes(made.SerializeToString())


def _registered_files(text: str, references: Sequence[tuple[str, str]]) -> list[Any]:
    files = []
    for name, each in (*references, ("", text)):
        proto = library("descriptor_pb2").FileDescriptorProto()
        try:
            proto.ParseFromString(base64.b64decode(each, validate=True))
        except (binascii.Error, ValueError) as error:
            raise SchemaError(f"it is no FileDescriptorProto in base64: {error}") from None
        except Exception as error:
            raise SchemaError(f"it is no FileDescriptorProto: {error}") from None
        proto.name = name or "the value's own file"
        files.append(proto)
    return files


def pool_of(files: Iterable[Any]) -> Any:
    pool = library("descriptor_pool").DescriptorPool()
    left = {file.name: file for file in files}
    for name in _BUNDLED:
        bundled = library(f"{name}_pb2").DESCRIPTOR
        if bundled.name not in left:
            proto = library("descriptor_pb2").FileDescriptorProto()
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
