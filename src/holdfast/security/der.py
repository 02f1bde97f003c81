"""As much of DER as the names in a certificate need: what X.509 is written in. Bytes in, pieces of them out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_ID: Final = 0x06
BOOLEAN: Final = 0x01
OCTETS: Final = 0x04


class DerError(ValueError):
    """Bytes that are no DER, or not what was expected there."""


@dataclass(frozen=True, slots=True)
class Der:
    """One value: its tag, what is in it, and all of its bytes."""

    tag: int
    content: bytes
    encoded: bytes

    def inside(self, tag: int | None = None) -> list[Der]:
        """The values that it consists of; ``tag``: which it must have. DerError."""
        if tag is not None and self.tag != tag:
            raise DerError(f"tag {self.tag:#x}, expected {tag:#x}")
        return list(values(self.content))

    @property
    def object_id(self) -> str:
        """``2.5.4.3``. DerError: it is none."""
        if self.tag != OBJECT_ID or not self.content or self.content[-1] & 0x80:
            raise DerError(f"tag {self.tag:#x}, expected an object identifier")
        numbers, number = [], 0
        for byte in self.content:
            number = number << 7 | byte & 0x7F
            if not byte & 0x80:
                numbers.append(number)
                number = 0
        first = min(numbers[0] // 40, 2)
        return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def values(data: bytes) -> Iterator[Der]:
    """One after the other. DerError."""
    at = 0
    while at < len(data):
        begin = at
        if len(data) - at < 2:
            raise DerError("a value is cut off")
        tag, size = data[at], data[at + 1]
        at += 2
        if tag & 0x1F == 0x1F:
            raise DerError("a tag of more than one byte")
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or len(data) - at < count:
                raise DerError("a length that cannot be")
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if len(data) - at < size:
            raise DerError("a value is cut off")
        yield Der(tag, data[at : at + size], data[begin : at + size])
        at += size


def one(data: bytes) -> Der:
    """The only value there. DerError."""
    found = list(values(data))
    if len(found) != 1:
        raise DerError(f"{len(found)} values, expected one")
    return found[0]
