"""Records on pages: their form, what is cut, and what a search finds in batches."""

from __future__ import annotations

import json

import pytest

from holdfast.console.record_text import LIST_BYTES, MOST_HEADERS, hex_dump, shown_bytes, shown_record
from holdfast.console.scanning import contains, scan
from holdfast.records.compression import Codec
from holdfast.records.record import Record, encode_batch


@pytest.mark.parametrize(
    ("data", "form", "expected"),
    [
        (None, "auto", ("null", "null")),
        (b"", "auto", ("", "text")),
        (b'{"a":[1,"\\u00e9"]}', "auto", ('{\n  "a": [\n    1,\n    "é"\n  ]\n}', "json")),
        (b"{not json", "auto", ("{not json", "text")),
        (b"{not json", "json", ("{not json", "text")),
        (b"<script>alert(1)</script>", "auto", ("<script>alert(1)</script>", "text")),
        ("日本".encode(), "auto", ("日本", "text")),
        (b"\x1b[31mred", "text", ("\x1b[31mred", "text")),
        (b"\x1b[31m", "auto", ("00000000  1b 5b 33 31 6d" + " " * 35 + ".[31m", "hex")),
        (b"\xff\xfe", "text", ("00000000  ff fe" + " " * 44 + "..", "hex")),
        (b'{"a":1}', "hex", ("00000000  7b 22 61 22 3a 31 7d" + " " * 29 + '{"a":1}', "hex")),
    ],
)
def test_a_value_is_shown_as_it_looks_or_as_it_is_asked_for(
    data: bytes | None, form: str, expected: tuple[str, str]
) -> None:
    found = shown_bytes(data, form, LIST_BYTES)
    assert (found.text, found.form) == expected
    assert (found.size, found.cut) == (0 if data is None else len(data), 0)


@pytest.mark.parametrize("data", [b"x" * 10_000_000, b"\xff" * 10_000_000, json.dumps([0] * 50_000).encode()])
def test_a_value_of_many_bytes_is_cut(data: bytes) -> None:
    found = shown_bytes(data, "auto", LIST_BYTES)
    assert found.size == len(data)
    assert found.cut > 0
    assert len(found.text) < 1000


def test_a_character_is_not_cut_in_two() -> None:
    found = shown_bytes(("a" + "é" * 600).encode(), "auto", LIST_BYTES)
    assert found.text == "a" + "é" * 299
    assert json.loads(shown_bytes(b'{"deep": 1}', "json", 1000).text) == {"deep": 1}


def test_deep_json_is_text() -> None:
    assert shown_bytes(b"[" * 100_000, "auto", 10).form == "text"


def test_a_hex_line_has_sixteen_bytes() -> None:
    lines = hex_dump(bytes(range(40))).splitlines()
    assert [line[:8] for line in lines] == ["00000000", "00000010", "00000020"]


def test_a_record_has_not_more_headers_than_a_page_takes() -> None:
    record = Record(7, 1000, b"k", b"v", [(f"h{n}", b"x") for n in range(MOST_HEADERS + 3)])
    found = shown_record(2, record, "auto", LIST_BYTES)
    assert (len(found.headers), found.more_headers, found.partition, found.offset) == (MOST_HEADERS, 3, 2, 7)


def batches(codec: Codec = Codec.NONE, each: int = 10, count: int = 5) -> memoryview:
    """Records ``value-N`` at offset N, and one with a header at 33."""
    parts = []
    for first in range(0, each * count, each):
        records = [
            Record(n, 1000 + n, b"key", b"value-%d" % n, [("find", b"me")] if n == 33 else [])
            for n in range(first, first + each)
        ]
        parts.append(bytes(encode_batch(records, base_offset=first, compression=codec)))
    return memoryview(b"".join(parts))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD, Codec.LZ4])
def test_a_search_finds_in_keys_values_and_headers(codec: Codec) -> None:
    data = batches(codec)
    for needle, expected in ((b"value-4", [4, *range(40, 50)]), (b"me", [33]), (b"find", [33]), (b"nothing", [])):
        found = scan(data, (), 0, needle=needle, most=100)
        assert [record.offset for record in found.records] == expected
        assert (found.seen, found.following) == (50, 50)
    assert len(scan(data, (), 0, needle=b"key", most=100).records) == 50


def test_a_search_begins_and_ends_inside_batches_and_stops_when_there_is_enough() -> None:
    data = batches()
    found = scan(data, (), 15, needle=b"", most=100, end=22)
    assert ([r.offset for r in found.records], found.seen, found.following) == ([*range(15, 22)], 7, 22)
    found = scan(data, (), 3, needle=b"value", most=2)
    assert ([r.offset for r in found.records], found.following) == ([3, 4], 5)


def test_nothing_is_in_every_record() -> None:
    assert contains(Record(0, 0, None, None), b"")
    assert not contains(Record(0, 0, None, None, [("h", None)]), b"x")
