"""The fields of a metadata record as bytes: numbers, strings, arrays and tagged fields, both ways.

Strings and arrays are compact: length + 1 as an unsigned varint, 0 is null. Which fields a record has is codec.py's.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final
from uuid import UUID

from holdfast.metadata.records import UNASSIGNED_DIRECTORY

I8, I16, U16, I32, I64 = Struct(">b"), Struct(">h"), Struct(">H"), Struct(">i"), Struct(">q")
F64 = Struct(">d")
I32_I64 = Struct(">iq")
THREE_I32 = Struct(">iii")
_ARRAYS: Final = tuple(Struct(f">{count}i") for count in range(17))

# What the directories of nearly every partition are; one tuple for all keeps an image small.
_UNASSIGNED: Final = {UNASSIGNED_DIRECTORY.bytes * count: (UNASSIGNED_DIRECTORY,) * count for count in range(9)}

FRAME_VERSION: Final = 1
Tagged = tuple[int, bytes]


# -- writing ---------------------------------------------------------------------------------------------------


def put_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def put_head(out: bytearray, key: int, version: int) -> None:
    """What every record begins with."""
    out.append(FRAME_VERSION)
    put_uvarint(out, key)
    out.append(version)


def put_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
        return
    data = value.encode()
    put_uvarint(out, len(data) + 1)
    out += data


def put_bytes(out: bytearray, value: bytes) -> None:
    put_uvarint(out, len(value) + 1)
    out += value


def string_field(value: str) -> bytes:
    out = bytearray()
    put_string(out, value)
    return bytes(out)


def int_array(values: Sequence[int]) -> bytes:
    count = len(values)
    if count < 17:
        return bytes((count + 1,)) + _ARRAYS[count].pack(*values)
    out = bytearray()
    put_uvarint(out, count + 1)
    return bytes(out) + b"".join(I32.pack(value) for value in values)


def uuid_array(values: Sequence[UUID]) -> bytes:
    out = bytearray()
    put_uvarint(out, len(values) + 1)
    return bytes(out) + b"".join(value.bytes for value in values)


def put_tags(out: bytearray, tagged: Sequence[Tagged]) -> None:
    """Tagged fields; they come in the order of their tags."""
    put_uvarint(out, len(tagged))
    for tag, data in tagged:
        put_uvarint(out, tag)
        put_uvarint(out, len(data))
        out += data


# -- reading ---------------------------------------------------------------------------------------------------


class Reader:
    """A position in one record; reads beyond its end raise IndexError or struct.error."""

    __slots__ = ("data", "pos")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.pos]
            self.pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise ValueError("varint of more than 5 bytes")

    def take(self, size: int) -> bytes:
        end = self.pos + size
        if end > len(self.data):
            raise IndexError(f"{size} bytes wanted at byte {self.pos} of {len(self.data)}")
        data = self.data[self.pos : end]
        self.pos = end
        return data

    def number(self, kind: Struct) -> int:
        value: int = kind.unpack_from(self.data, self.pos)[0]
        self.pos += kind.size
        return value

    def uuid(self) -> UUID:
        return UUID(bytes=self.take(16))

    def nullable_string(self) -> str | None:
        length = self.uvarint()
        return None if length == 0 else self.take(length - 1).decode()

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise ValueError("null where a string is expected")
        return value

    def bytes(self) -> bytes:
        length = self.uvarint()
        if length == 0:
            raise ValueError("null where bytes are expected")
        return self.take(length - 1)

    def ints(self) -> tuple[int, ...]:
        count = max(0, self.uvarint() - 1)
        if count < 17:
            kind = _ARRAYS[count]
            values: tuple[int, ...] = kind.unpack_from(self.data, self.pos)
            self.pos += kind.size
            return values
        return tuple(value for (value,) in I32.iter_unpack(self.take(4 * count)))

    def uuids(self) -> tuple[UUID, ...]:
        data = self.take(16 * max(0, self.uvarint() - 1))
        shared = _UNASSIGNED.get(data)
        if shared is not None:
            return shared
        return tuple(UUID(bytes=data[i : i + 16]) for i in range(0, len(data), 16))

    def tags(self) -> dict[int, "Reader"]:
        """The tagged fields, each with a reader of its own."""
        return {self.uvarint(): Reader(self.take(self.uvarint())) for _ in range(self.uvarint())}
