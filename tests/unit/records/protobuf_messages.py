"""Random Protobuf messages with values for them, and what the library ``protobuf`` reads of them."""

import datetime
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import strategies as st

FieldProto = descriptor_pb2.FieldDescriptorProto
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SCALARS = [n for n in range(1, 19) if n not in (10, 11)]
KEYS = [n for n in SCALARS if n not in (1, 2, 12, 14)]


def random_file(draw: st.DrawFn, syntax: str = "proto3", depth: int = 2) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="random.proto", package="p", syntax=syntax)
    file.dependency.append("google/protobuf/timestamp.proto")
    colour = file.enum_type.add(name="Colour")
    for name, number in (("NONE", 0), ("RED", 1), ("BLUE", -5), ("GREEN", 1 << 20)):
        colour.value.add(name=name, number=number)
    _message(draw, file.message_type.add(name="M"), ".p.M", depth, syntax)
    return file


def _message(draw: st.DrawFn, message: Any, full: str, depth: int, syntax: str) -> None:
    numbers = draw(st.lists(st.integers(1, 40) | st.integers(1, 18_999), min_size=1, max_size=5, unique=True))
    if draw(st.booleans()):
        message.oneof_decl.add(name="choice")
    for number in numbers:
        name = f"f{number}"
        field = message.field.add(name=name, number=number, label=FieldProto.LABEL_OPTIONAL)
        shape = draw(st.sampled_from(["scalar"] * 4 + ["time", "optional", "oneof"] + ["message", "map"] * (depth > 0)))
        if shape == "time":
            _is_of(field, ".google.protobuf.Timestamp")
        elif shape == "message":
            _message(draw, message.nested_type.add(name=f"N{number}"), f"{full}.N{number}", depth - 1, syntax)
            _is_of(field, f"{full}.N{number}")
        elif shape == "map":
            _map(draw, message, full, field, depth, syntax)
            continue
        else:
            _scalar(draw, field)
        if shape == "oneof" and message.oneof_decl:
            field.oneof_index = 0
        elif shape == "optional" and syntax == "proto3":
            field.proto3_optional = True
        elif draw(st.integers(0, 2)) == 0:
            field.label = FieldProto.LABEL_REPEATED
            if field.type not in (FieldProto.TYPE_STRING, FieldProto.TYPE_BYTES, FieldProto.TYPE_MESSAGE):
                field.options.packed = draw(st.booleans())
        elif syntax == "proto2" and draw(st.integers(0, 3)) == 0:
            field.label = FieldProto.LABEL_REQUIRED
    if message.oneof_decl and not any(field.HasField("oneof_index") for field in message.field):
        del message.oneof_decl[:]
    for field in message.field:  # what is optional in proto3 is a oneof of its own, behind the others
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _is_of(field: Any, name: str) -> None:
    field.type, field.type_name = FieldProto.TYPE_MESSAGE, name


def _scalar(draw: st.DrawFn, field: Any) -> None:
    field.type = draw(st.sampled_from(SCALARS))
    if field.type == FieldProto.TYPE_ENUM:
        field.type_name = ".p.Colour"


def _map(draw: st.DrawFn, message: Any, full: str, field: Any, depth: int, syntax: str) -> None:
    name = f"F{field.number}Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=draw(st.sampled_from(KEYS)), label=FieldProto.LABEL_OPTIONAL)
    value = entry.field.add(name="value", number=2, label=FieldProto.LABEL_OPTIONAL)
    if draw(st.booleans()):
        _scalar(draw, value)
    else:
        inner = f"V{field.number}"
        _message(draw, message.nested_type.add(name=inner), f"{full}.{inner}", depth - 1, syntax)
        _is_of(value, f"{full}.{inner}")
    _is_of(field, f"{full}.{name}")
    field.label = FieldProto.LABEL_REPEATED


def message_class(file: descriptor_pb2.FileDescriptorProto, name: str = "p.M") -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def descriptor_set(*files: Any) -> bytes:
    return descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()


def scalar_of(field: Any) -> st.SearchStrategy[Any]:
    match field.type:
        case FieldProto.TYPE_DOUBLE:
            return st.floats()
        case FieldProto.TYPE_FLOAT:
            return st.floats(width=32)
        case FieldProto.TYPE_BOOL:
            return st.booleans()
        case FieldProto.TYPE_STRING:
            return st.text(max_size=8)
        case FieldProto.TYPE_BYTES:
            return st.binary(max_size=8)
        case FieldProto.TYPE_ENUM:
            return st.sampled_from([each.number for each in field.enum_type.values])
        case FieldProto.TYPE_UINT32 | FieldProto.TYPE_FIXED32:
            return st.integers(0, (1 << 32) - 1)
        case FieldProto.TYPE_UINT64 | FieldProto.TYPE_FIXED64:
            return st.integers(0, (1 << 64) - 1)
        case FieldProto.TYPE_INT32 | FieldProto.TYPE_SINT32 | FieldProto.TYPE_SFIXED32:
            return st.integers(-(1 << 31), (1 << 31) - 1)
        case _:
            return st.integers(-(1 << 63), (1 << 63) - 1)


def is_time(field: Any) -> bool:
    return field.message_type is not None and field.message_type.full_name == "google.protobuf.Timestamp"


def is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def fill(draw: st.DrawFn, message: Any) -> Any:
    """Gives a message random values, in all of its required fields and some others."""
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and draw(st.integers(0, 3)) == 0:
            continue
        if is_map(field):
            key, value = field.message_type.fields
            for each in draw(st.lists(scalar_of(key), max_size=3)):
                if value.message_type is not None:
                    fill(draw, getattr(message, field.name)[each])
                else:
                    getattr(message, field.name)[each] = draw(scalar_of(value))
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, 3))):
                if field.message_type is not None:
                    _one(draw, field, getattr(message, field.name).add())
                else:
                    getattr(message, field.name).append(draw(scalar_of(field)))
        elif field.message_type is not None:
            _one(draw, field, getattr(message, field.name))
            getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, draw(scalar_of(field)))
    return message


def _one(draw: st.DrawFn, field: Any, inner: Any) -> None:
    if is_time(field):
        inner.seconds = draw(st.integers(-62_135_596_800, 253_402_300_799))
        inner.nanos = draw(st.integers(0, 999_999_999))
    else:
        fill(draw, inner)


def plain(message: Any) -> dict[str, Any]:
    """A message in the form that Arrow's rows have."""
    return {field.name: _plain_field(message, field) for field in message.DESCRIPTOR.fields}


def _plain_field(message: Any, field: Any) -> Any:
    found = getattr(message, field.name)
    if is_map(field):
        value = field.message_type.fields[1]
        key = field.message_type.fields[0]
        return {_plain_value(each, key): _plain_value(found[each], value) for each in found}
    if field.is_repeated:
        return [_plain_value(each, field) for each in found]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain_value(found, field)


def _plain_value(value: Any, field: Any) -> Any:
    if is_time(field):
        return EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if field.message_type is not None:
        return plain(value)
    if field.type == FieldProto.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.type in (FieldProto.TYPE_UINT64, FieldProto.TYPE_FIXED64):
        return Decimal(value).normalize()
    return value
