r"""Records as bytes on standard output: plain, as kafka-console-consumer prints them, by a format, as JSON. Pure.

A ``RecordForm`` writes all the records of a batch, so that the plain one costs nothing a record but what it writes. The
format is kcat's:

    %t topic      %p partition   %o offset    %T timestamp in ms, -1: none   %h headers, NAME=VALUE,NAME=VALUE
    %k key        %s or %v value              %K and %S or %V their lengths, -1: null
    %% a percent sign            \n \t \r \e \0 \a \\ \xNN

Null is written as the null marker: nothing, unless there is one; ``%K`` and ``%S`` tell it from what is empty.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from holdfast.cli.escapes import as_passed, escape_at
from holdfast.cli.record_json import TYPE_NAMES, json_line
from holdfast.model.types import Offset
from holdfast.records.batch import NO_TIMESTAMP, TimestampType
from holdfast.records.record import Header, Record


class BatchPlace(NamedTuple):
    """What the records of a batch have in common."""

    topic: str
    partition: int
    timestamp_type: TimestampType


class RecordForm(Protocol):
    """Writes records; returns how many, and the offset of the last one."""

    def __call__(
        self, out: bytearray, place: BatchPlace, records: Iterable[Record], /
    ) -> tuple[int, Offset | None]: ...  # pragma: no cover


Part: TypeAlias = Callable[[BatchPlace, Record], bytes]


def plain(separator: bytes | None, null: bytes) -> RecordForm:
    """Values on a line each, behind their keys where there is a separator."""

    def write(out: bytearray, place: BatchPlace, records: Iterable[Record]) -> tuple[int, Offset | None]:
        count, last = 0, None
        for count, record in enumerate(records, 1):  # noqa: B007  # the number of the last one
            if separator is not None:
                out += null if record.key is None else record.key
                out += separator
            out += null if record.value is None else record.value
            out += b"\n"
            last = record
        return count, None if last is None else last.offset

    return write


def one_by_one(part: Part) -> RecordForm:
    """Each record is what ``part`` makes of it."""

    def write(out: bytearray, place: BatchPlace, records: Iterable[Record]) -> tuple[int, Offset | None]:
        count, last = 0, None
        for record in records:
            out += part(place, record)
            count += 1
            last = record.offset
        return count, last

    return write


def as_json() -> RecordForm:
    """One object a line."""
    return one_by_one(lambda place, record: json_line(place.topic, place.partition, place.timestamp_type, record))


# -- as kafka-console-consumer -----------------------------------------------------------------------------


class Properties(NamedTuple):
    """What of a record is printed, as its properties print.timestamp and so on say it."""

    timestamp: bool = False
    partition: bool = False
    offset: bool = False
    headers: bool = False
    key: bool = False

    @property
    def plain(self) -> bool:
        return not (self.timestamp or self.partition or self.offset or self.headers)


def as_console_consumer(shown: Properties, separator: bytes, null: bytes) -> RecordForm:
    """``CreateTime:1767225600000<TAB>Partition:0<TAB>Offset:7<TAB>h:v,g:w<TAB>key<TAB>value``."""
    parts: list[Part] = []
    if shown.timestamp:
        parts.append(_console_timestamp)
    if shown.partition:
        parts.append(lambda place, record: b"Partition:%d" % place.partition)
    if shown.offset:
        parts.append(lambda place, record: b"Offset:%d" % record.offset)
    if shown.headers:
        parts.append(lambda place, record: _console_headers(record.headers, null))
    if shown.key:
        parts.append(lambda place, record: null if record.key is None else record.key)
    parts.append(lambda place, record: null if record.value is None else record.value)
    return one_by_one(lambda place, record: separator.join([part(place, record) for part in parts]) + b"\n")


def _console_timestamp(place: BatchPlace, record: Record) -> bytes:
    if record.timestamp == NO_TIMESTAMP:
        return b"NO_TIMESTAMP"
    return b"%s:%d" % (TYPE_NAMES[place.timestamp_type].encode(), record.timestamp)


def _console_headers(headers: Sequence[Header], null: bytes) -> bytes:
    if not headers:
        return b"NO_HEADERS"
    return b",".join(name.encode() + b":" + (null if value is None else value) for name, value in headers)


# -- by a format -------------------------------------------------------------------------------------------


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def _parts(null: bytes) -> dict[str, Part]:
    """Letter -> what it stands for."""

    def value(place: BatchPlace, record: Record) -> bytes:
        return null if record.value is None else record.value

    def value_size(place: BatchPlace, record: Record) -> bytes:
        return _size(record.value)

    def headers(place: BatchPlace, record: Record) -> bytes:
        return b",".join(name.encode() + b"=" + (null if found is None else found) for name, found in record.headers)

    return {
        "t": lambda place, record: place.topic.encode(),
        "p": lambda place, record: b"%d" % place.partition,
        "o": lambda place, record: b"%d" % record.offset,
        "T": lambda place, record: b"%d" % record.timestamp,
        "k": lambda place, record: null if record.key is None else record.key,
        "K": lambda place, record: _size(record.key),
        "s": value,
        "v": value,
        "S": value_size,
        "V": value_size,
        "h": headers,
        "%": lambda place, record: b"%",
    }


LETTERS: Final = "%t %p %o %T %k %K %s %S %v %V %h or %%"


def by_format(text: str, null: bytes = b"") -> RecordForm:
    """Nothing is written that the format does not say, no newline either. ValueError names what it is that cannot be
    read, and where."""
    known = _parts(null)
    parts: list[Part] = []
    literal = bytearray()
    at = 0
    while at < len(text):
        if text[at] == "\\":
            escaped, at = escape_at(text, at)
            literal += escaped
        elif text[at] == "%":
            part = known.get(text[at + 1 : at + 2])
            if part is None:
                raise ValueError(f"{text[at : at + 2]} at character {at + 1}: expected {LETTERS}")
            _close(parts, literal)
            parts.append(part)
            at += 2
        else:
            literal += as_passed(text[at])
            at += 1
    _close(parts, literal)
    return one_by_one(lambda place, record: b"".join([part(place, record) for part in parts]))


def _close(parts: list[Part], literal: bytearray) -> None:
    if literal:
        fixed = bytes(literal)
        parts.append(lambda place, record: fixed)
        literal.clear()
