"""Standard input cut into records: by newlines, or by lengths that stand before them. Pure.

    4 bytes, big-endian: length of the value; the value                    -1 is null, and nothing follows it
    4 bytes: length of the key; the key; 4 bytes: length of the value; the value

Owns what is left of the last piece of input. What is behind a record that is none is never looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Protocol

from holdfast.cli.record_json import InputRecord
from holdfast.cli.record_lines import InputError

MOST_BYTES: Final = 100 << 20
"""Of a key or a value: no request is larger."""
_LENGTH: Final = struct.Struct(">i")
PARTS: Final = {"value": 1, "key-value": 2}
"""What is there of each record, by the name of --length-prefixed."""


class Frames(Protocol):
    """Cuts input as it comes. Both methods yield what is whole before they raise InputError."""

    def feed(self, chunk: bytes) -> Iterator[bytes]: ...

    def end(self) -> Iterator[bytes]: ...


class LineFrames:
    """Each line is one, without its newline; the last one needs none."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        yield from lines

    def end(self) -> Iterator[bytes]:
        if self._rest:
            yield self._rest


class LengthFrames:
    """Each record is one, with its lengths: ``record_of_lengths`` takes it apart. ``parts``: how many there are."""

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._rest = bytearray()
        self._number = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._rest += chunk
        begin = 0
        try:
            while (end := self._end_of(begin)) is not None:
                self._number += 1
                yield bytes(self._rest[begin:end])
                begin = end
        finally:
            del self._rest[:begin]

    def end(self) -> Iterator[bytes]:
        if self._rest:
            raise InputError(f"record {self._number + 1}: standard input ends within it, after {len(self._rest)} bytes")
        yield from ()

    def _end_of(self, begin: int) -> int | None:
        """Of the record that begins there; None while there is not all of it."""
        for _ in range(self._parts):
            if begin + _LENGTH.size > len(self._rest):
                return None
            (length,) = _LENGTH.unpack_from(self._rest, begin)
            if not -1 <= length <= MOST_BYTES:
                raise InputError(
                    f"record {self._number + 1}: a length of {length} bytes, expected -1 (null) to {MOST_BYTES}"
                )
            begin += _LENGTH.size + max(0, length)
        return begin if begin <= len(self._rest) else None


def record_of_lengths(frame: bytes, number: int) -> InputRecord:
    """Key and value of what ``LengthFrames`` has cut off; one part is the value."""
    parts: list[bytes | None] = []
    begin = 0
    while begin < len(frame):
        (length,) = _LENGTH.unpack_from(frame, begin)
        begin += _LENGTH.size
        parts.append(None if length < 0 else frame[begin : begin + length])
        begin += max(0, length)
    return InputRecord(parts[0] if len(parts) > 1 else None, parts[-1])


def record_of_file(content: bytes, number: int) -> InputRecord:
    """All of a file is the value."""
    return InputRecord(None, content)
