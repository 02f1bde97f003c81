"""Lines as kafka-console-producer takes them, and where reading begins as people write it."""

import pytest

from holdfast.cli.record_lines import HeaderForm, InputError, LineForm, header_of
from holdfast.cli.start_at import Exactly, FromTime, LastOf, Start, parse_start, parse_time
from holdfast.client.views import OffsetSpec

WHOLE = LineForm(key_separator=b"\t", null_marker=b"NULL", headers=HeaderForm())


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b"h1:v1,h2:v2\tk\tv", (b"k", b"v", [("h1", b"v1"), ("h2", b"v2")])),
        (b"h:a:b\tk\tv\tw", (b"k", b"v\tw", [("h", b"a:b")])),
        (b"h:NULL,g:\tNULL\tNULL", (None, None, [("h", None), ("g", b"")])),
        (b"\tk\t", (b"k", b"", [])),
        (b"NULL\tk\tv", (b"k", b"v", [])),
    ],
)
def test_headers_key_and_value(line: bytes, record: tuple[bytes | None, bytes | None, list[object]]) -> None:
    key, value, headers, timestamp, partition = WHOLE(line, 1)
    assert (key, value, list(headers), timestamp, partition) == (*record, None, None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"abc", "no headers delimiter on line 9: 'abc', expected HEADERS"),
        (b"h:v\tabc", "no key separator on line 9: 'h:v.tabc', expected KEY"),
        (b"h\tk\tv", "no header key separator in 'h' on line 9, expected NAME:VALUE"),
        (b"\xff:v\tk\tv", "header name .* on line 9: expected UTF-8"),
    ],
)
def test_what_is_missing_is_named_with_the_line(line: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        WHOLE(line, 9)


def test_other_signs_and_no_headers() -> None:
    form = LineForm(headers=HeaderForm(delimiter=b"|", separator=b";", key_separator=b"="))
    assert form(b"a=1;b=2|v:w", 1)[:3] == (None, b"v:w", [("a", b"1"), ("b", b"2")])
    assert LineForm(null_marker=b"")(b"", 1)[:3] == (None, None, ())
    assert LineForm()(b"NULL", 1).value == b"NULL"
    with pytest.raises(InputError, match=r"expected KEY\\xffVALUE"):
        LineForm(key_separator=b"\xff")(b"v", 1)


def test_a_header_for_all() -> None:
    assert header_of("a=b=c", None) == ("a", b"b=c")
    assert header_of("a=", None) == ("a", b"")
    assert header_of("a=NULL", b"NULL") == ("a", None)
    for wrong in ("a", "\udcff=b"):
        with pytest.raises(ValueError, match=r"NAME=VALUE|surrogates"):
            header_of(wrong, None)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", OffsetSpec.EARLIEST),
        ("latest", OffsetSpec.LATEST),
        ("0", Exactly(0)),
        ("-5", LastOf(5)),
        ("@1767225600000", FromTime(1767225600000)),
        ("@2026-01-01T00:00:00", FromTime(1767225600000)),
        ("@2026-01-01", FromTime(1767225600000)),
        ("@2026-01-01T00:00:00.250Z", FromTime(1767225600250)),
        ("@2026-01-01T02:00:00+02:00", FromTime(1767225600000)),
    ],
)
def test_where_to_begin(text: str, start: Start) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize(
    "text", ["", "five", "-", "--5", "1.5", "²", "9" * 40, "@", "@x", "@1969-01-01", "@" + "9" * 40]
)
def test_what_is_no_beginning_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_start(text)


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_time("1970-01-01T00:00:01") == 1000
