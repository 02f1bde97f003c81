"""What records look like on standard output, and what of an option can be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.escapes import unescape
from holdfast.cli.record_format import (
    BatchPlace,
    Properties,
    RecordForm,
    as_console_consumer,
    as_json,
    by_format,
    plain,
)
from holdfast.records.batch import TimestampType
from holdfast.records.record import Record

PLACE = BatchPlace("orders", 3, TimestampType.CREATE_TIME)
FULL = Record(7, 1767225600000, b"k", b"v\n", [("h", b"1"), ("g", None)])
NULL = Record(8, -1, None, None)
EMPTY = Record(9, 0, b"", b"")


def written(form: RecordForm, *records: Record) -> bytes:
    out = bytearray()
    count, last = form(out, PLACE, iter(records))
    assert (count, last) == (len(records), records[-1].offset if records else None)
    return bytes(out)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t-%p@%o %T\\n", b"orders-3@7 1767225600000\norders-3@8 -1\norders-3@9 0\n"),
        ("%k=%s;", b"k=v\n;=;=;"),
        ("%K %S|", b"1 2|-1 -1|0 0|"),
        ("%V%v|", b"2v\n|-1|0|"),
        ("[%h]", b"[h=1,g=][][]"),
        ("100%%\\t\\x00\\\\", b"100%\t\0\\" * 3),
        ("ü", "ü".encode() * 3),
        ("", b""),
    ],
)
def test_a_format_writes_what_it_says_and_nothing_more(text: str, expected: bytes) -> None:
    assert written(by_format(text), FULL, NULL, EMPTY) == expected


def test_null_is_written_as_the_marker() -> None:
    assert written(by_format("%k=%s %h;", b"NIL"), FULL, NULL, EMPTY) == b"k=v\n h=1,g=NIL;NIL=NIL ;= ;"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a%q", "%q at character 2: expected %t"),
        ("%", "% at character 1: expected %t"),
        ("%s\\", r"\\ at character 3: expected"),
        ("\\q", r"\\q at character 1: expected"),
        ("%s\\x4", r"\\x4 at character 3: expected"),
        ("\\xzz", r"\\xzz at character 1: expected"),
    ],
)
def test_a_format_that_cannot_be_read_says_where(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        by_format(text)


def test_plain_lines() -> None:
    assert written(plain(None, b"null"), FULL, NULL, EMPTY) == b"v\n\nnull\n\n"
    assert written(plain(b":", b"-"), FULL, NULL, EMPTY) == b"k:v\n\n-:-\n:\n"
    assert written(plain(None, b"null")) == b""
    assert written(as_json()) == b""


def test_properties_print_as_kafkas_console_consumer_does() -> None:
    everything = as_console_consumer(Properties(True, True, True, True, True), b"\t", b"null")
    assert written(everything, FULL._replace(value=b"v"), NULL).decode().splitlines() == [
        "CreateTime:1767225600000\tPartition:3\tOffset:7\th:1,g:null\tk\tv",
        "NO_TIMESTAMP\tPartition:3\tOffset:8\tNO_HEADERS\tnull\tnull",
    ]
    assert written(as_console_consumer(Properties(offset=True), b"|", b""), NULL) == b"Offset:8|\n"
    out = bytearray()
    as_console_consumer(Properties(timestamp=True), b" ", b"")(
        out, PLACE._replace(timestamp_type=TimestampType.LOG_APPEND_TIME), [EMPTY]
    )
    assert out == b"LogAppendTime:0 \n"


@given(st.binary())
def test_any_byte_can_be_written_as_an_escape_and_as_it_is(data: bytes) -> None:
    assert unescape("".join(f"\\x{byte:02x}" for byte in data)) == data
    passed = data.decode("utf-8", "surrogateescape")  # as a shell passes it and Python reads it
    assert unescape(passed.replace("\\", "\\\\")) == data


@given(st.text(alphabet="%tpoTkKsSvVhxn\\0 a1ü"))
def test_a_format_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        form = by_format(text)
    except ValueError as e:
        assert "expected" in str(e)
    else:
        assert written(form, FULL) is not None
