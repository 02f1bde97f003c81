"""The fields of coordinators' records, in both encodings of Kafka: fixed sizes, and the compact one."""

from struct import Struct
from typing import Final

from holdfast.model.errors import CorruptRecordError

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")


class FieldReader:
    """Walks one key or value. ``noun``: of what, for errors; ``compact``: which encoding its strings and arrays have.
    CorruptRecordError where the bytes end too soon or are no text."""

    __slots__ = ("_at", "_noun", "_raw", "compact")

    def __init__(self, raw: bytes, noun: str) -> None:
        self._raw = raw
        self._noun = noun
        self._at = 0
        self.compact = False

    def take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._raw):
            raise CorruptRecordError(f"{self._noun} ends at byte {len(self._raw)}, expected {end}")
        piece, self._at = self._raw[self._at : end], end
        return bytes(piece)

    def _number(self, form: Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def i16(self) -> int:
        return self._number(_I16)

    def i32(self) -> int:
        return self._number(_I32)

    def i64(self) -> int:
        return self._number(_I64)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def optional_string(self) -> str | None:
        size = self.uvarint() - 1 if self.compact else self.i16()
        if size < 0:
            return None
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as e:
            raise CorruptRecordError(f"{self._noun} holds a text that is not UTF-8: {e}") from e

    def string(self) -> str:
        return self.optional_string() or ""

    def blob(self) -> bytes:
        size = self.uvarint() - 1 if self.compact else self.i32()
        return self.take(size) if size >= 0 else b""

    def count(self) -> int:
        """Of an array; 0 for none."""
        return max(0, self.uvarint() - 1 if self.compact else self.i32())

    def tags(self) -> dict[int, bytes]:
        """Tagged fields; none before the compact encoding."""
        if not self.compact:
            return {}
        found = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            found[tag] = self.take(self.uvarint())
        return found


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
