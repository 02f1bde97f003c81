"""Records as JSON lines: any bytes come back as they were, and what is not understood is refused."""

import base64
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.cli.record_json import FIELDS, InputRecord, json_line, record_of
from holdfast.cli.record_lines import InputError, json_record
from holdfast.records.batch import TimestampType
from holdfast.records.record import Record

DATA = st.none() | st.binary() | st.text().map(str.encode)
NAMES = st.text().filter(lambda name: not any("\ud800" <= letter <= "\udfff" for letter in name))
HEADERS = st.lists(st.tuples(NAMES, DATA), max_size=4)


@given(DATA, DATA, HEADERS, st.integers(-1, (1 << 63) - 2), st.sampled_from(TimestampType), st.integers(0, 1 << 40))
@example(b"a\nb", b"", [("h", None), ("h", b"")], -1, TimestampType.CREATE_TIME, 0)
@example(b"\xff", b"\x00\r\n\xe2\x80\xa8", [("", b"\xff")], 0, TimestampType.LOG_APPEND_TIME, 7)
def test_any_record_is_one_line_that_parses_and_gives_the_same_bytes_back(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp: int,
    kind: TimestampType,
    offset: int,
) -> None:
    line = json_line("t", 3, kind, Record(offset, timestamp, key, value, headers))
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    found = json.loads(line)
    assert found.keys() <= FIELDS
    assert [found[name] for name in ("topic", "partition", "offset")] == ["t", 3, offset]
    for name, data in (("key", key), ("value", value)):
        assert bytes_in(found, name) == data
    assert [(one["key"], bytes_in(one, "value")) for one in found["headers"]] == headers
    back = record_of(line.rstrip(b"\n"))
    assert (back.key, back.value, list(back.headers), back.timestamp) == (key, value, headers, timestamp)
    assert back.partition == 3


def bytes_in(found: dict[str, Any], name: str) -> bytes | None:
    """As somebody reads it who knows the docs and none of our code."""
    if name + "Base64" in found:
        assert name not in found
        return base64.b64decode(found[name + "Base64"])
    text = found[name]
    return None if text is None else str(text).encode()


def test_the_line_as_it_is() -> None:
    record = Record(7, 1767225600000, b"k", None, [("h", b"v"), ("n", None), ("b", b"\xff")])
    assert json_line("t", 0, TimestampType.CREATE_TIME, record).decode() == (
        '{"topic":"t","partition":0,"offset":7,"timestamp":1767225600000,"timestampType":"CreateTime","key":"k",'
        '"value":null,"headers":[{"key":"h","value":"v"},{"key":"n","value":null},{"key":"b","valueBase64":"/w=="}]}\n'
    )
    line = json_line("t", 0, TimestampType.LOG_APPEND_TIME, Record(7, -1, b"\xff", "ü\n".encode())).decode()
    assert '"timestamp":null,"timestampType":"LogAppendTime","keyBase64":"/w==","value":"ü\\n"' in line


def test_little_is_enough_for_a_record() -> None:
    assert record_of(b'{"value":"v"}') == InputRecord(None, b"v")
    assert record_of(b'{"key":"k","value":null,"headers":null,"timestamp":5}') == InputRecord(b"k", None, (), 5)
    assert record_of(b'{"value":null,"timestamp":null}').timestamp == -1  # it had none, and gets none


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "no JSON: Expecting value at character 1, expected one JSON object a line"),
        ("nope", "no JSON"),
        ('{"value":"v"} {}', "no JSON: Extra data at character 15"),
        ("[1]", r"\[1\], expected one JSON object a line"),
        ('{"value":"v","valeu":1}', "unknown field 'valeu', expected headers, key, keyBase64, offset"),
        ('{"key":"k"}', "no value, expected a field value or valueBase64; null is a tombstone"),
        ('{"value":1}', "value 1, expected a string or null"),
        ('{"value":{"a":1}}', 'value {"a": 1}, expected a string or null'),
        ('{"value":"v","valueBase64":"dg=="}', "value and valueBase64, expected one of them"),
        ('{"valueBase64":"%%"}', 'valueBase64 "%%", expected base64'),
        ('{"valueBase64":null}', "valueBase64 null, expected base64"),
        ('{"value":"a","value":"b"}', "field 'value' is there twice"),
        ('{"value":"\\ud800"}', "half a surrogate pair"),
        ('{"value":"v","timestamp":"now"}', 'timestamp "now", expected a number from 0 on'),
        ('{"value":"v","timestamp":-5}', "timestamp -5, expected"),
        ('{"value":"v","timestamp":true}', "timestamp true, expected"),
        ('{"value":"v","timestamp":9223372036854775807}', "timestamp 9223372036854775807, expected"),
        ('{"value":"v","partition":1.5}', "partition 1.5, expected"),
        ('{"value":"v","offset":null}', "offset null, expected"),
        ('{"value":"v","topic":7}', "topic 7, expected a string"),
        ('{"value":"v","timestampType":"Mine"}', 'timestampType "Mine", expected CreateTime or LogAppendTime'),
        ('{"value":"v","headers":{"a":"b"}}', 'headers {"a": "b"}, expected a list'),
        ('{"value":"v","headers":["a"]}', 'header "a", expected'),
        ('{"value":"v","headers":[{"value":"a"}]}', "header .*, expected"),
        ('{"value":"v","headers":[{"key":"\\udc00","value":"a"}]}', "half a surrogate pair"),
        ("[" * 100_000, "JSON in JSON in JSON"),
        ('{"value":"' + "x" * 500 + '","offset":"y"}', 'offset "y"'),
    ],
)
def test_what_is_no_record_is_refused_with_the_number_of_its_line(line: str, words: str) -> None:
    with pytest.raises(InputError, match=rf"^line 12: .*{words}"):
        json_record(line.encode(), 12)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match="line 1: no UTF-8 at byte 10"):
        json_record(b'{"value":"\xff"}', 1)


def test_a_long_value_is_not_shown_whole() -> None:
    with pytest.raises(InputError) as refused:
        json_record(b'{"value":[' + b"1," * 5000 + b"1]}", 1)
    assert len(str(refused.value)) < 150
