r"""Lines of standard input as records: as kafka-console-producer takes them, or as JSON. Pure.

    HEADERS <headers delimiter> KEY <key separator> VALUE
    h1:v1,h2:v2\tkey\tvalue

Headers only where they are asked for, a key only where there is a separator. What equals the null marker is null: a
value, a key, the value of a header, or all headers, which then are none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.cli.record_json import InputRecord, record_of
from holdfast.records.record import Header

SHOWN = 60
ReadLine: TypeAlias = Callable[[bytes, int], InputRecord]
"""Of a line and its number, from 1 on. Raises InputError."""


class InputError(Exception):
    """The input cannot be a record: names the line and what was expected there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderForm:
    """How headers stand before a record: what ends them, what is between two, what is between name and value."""

    delimiter: bytes = b"\t"
    separator: bytes = b","
    key_separator: bytes = b":"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineForm:
    """How a line is read."""

    key_separator: bytes | None = None
    null_marker: bytes | None = None
    headers: HeaderForm | None = None

    def __call__(self, line: bytes, number: int) -> InputRecord:
        rest = line
        headers: Sequence[Header] = ()
        key = None
        if self.headers is not None:
            sign = self.headers.delimiter
            front, found, rest = line.partition(sign)
            if not found:
                raise InputError(f"no headers delimiter on {place(line, number)}, expected HEADERS{text_of(sign)}...")
            headers = self._headers(front, self.headers, number)
        if self.key_separator is not None:
            key, found, rest = rest.partition(self.key_separator)
            if not found:
                expected = f"KEY{text_of(self.key_separator)}VALUE"
                raise InputError(f"no key separator on {place(line, number)}, expected {expected}")
        return InputRecord(self._or_null(key), self._or_null(rest), headers)

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data == self.null_marker else data

    def _headers(self, front: bytes, form: HeaderForm, number: int) -> Sequence[Header]:
        if not front or front == self.null_marker:
            return ()
        return [self._header(part, form, number) for part in front.split(form.separator)]

    def _header(self, part: bytes, form: HeaderForm, number: int) -> Header:
        name, found, value = part.partition(form.key_separator)
        if not found:
            expected = f"NAME{text_of(form.key_separator)}VALUE"
            raise InputError(f"no header key separator in {shown(part)} on line {number}, expected {expected}")
        try:
            return name.decode(), self._or_null(value)
        except UnicodeDecodeError:
            raise InputError(f"header name {shown(name)} on line {number}: expected UTF-8") from None


def json_record(line: bytes, number: int) -> InputRecord:
    """A line that ``consume --json`` wrote, or one like it."""
    try:
        return record_of(line)
    except ValueError as e:
        raise InputError(f"line {number}: {e}") from None


def header_of(text: str, null_marker: bytes | None) -> Header:
    """``NAME=VALUE`` of --header. ValueError."""
    name, found, value = text.partition("=")
    if not found:
        raise ValueError("expected NAME=VALUE")
    data = value.encode("utf-8", "surrogateescape")
    name.encode()  # a name is text; UnicodeEncodeError is a ValueError
    return name, None if data == null_marker else data


def place(line: bytes, number: int) -> str:
    return f"line {number}: {shown(line)}"


def shown(data: bytes) -> str:
    return repr(data[:SHOWN].decode(errors="replace"))


def text_of(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
