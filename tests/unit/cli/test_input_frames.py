"""Records behind their lengths, lines, and properties of a producer: whatever the pieces are in which input comes."""

from __future__ import annotations

import struct

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.input_frames import MOST_BYTES, Frames, LengthFrames, LineFrames, record_of_lengths
from holdfast.cli.producer_properties import ProducerProperties, properties_of
from holdfast.cli.record_lines import InputError
from holdfast.records.compression import Codec


def packed(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


def all_of(frames: Frames, chunks: list[bytes]) -> list[bytes]:
    found = [frame for chunk in chunks for frame in frames.feed(chunk)]
    return found + list(frames.end())


value = st.none() | st.binary(max_size=20)
places = st.lists(st.integers(0, 1000), max_size=8)


@given(st.lists(st.tuples(value, value), max_size=10), places, st.sampled_from([1, 2]))
def test_records_are_what_was_packed_however_it_comes(
    records: list[tuple[bytes | None, bytes | None]], at: list[int], parts: int
) -> None:
    data = b"".join((packed(key) if parts == 2 else b"") + packed(data) for key, data in records)
    found = [record_of_lengths(frame, 1) for frame in all_of(LengthFrames(parts), cut(data, at))]
    assert [(each.key, each.value) for each in found] == [(key if parts == 2 else None, v) for key, v in records]


@given(st.binary(max_size=60), places)
def test_lines_are_what_is_between_newlines_however_it_comes(data: bytes, at: list[int]) -> None:
    whole = data.split(b"\n")
    assert all_of(LineFrames(), cut(data, at)) == (whole if whole[-1] else whole[:-1])


def test_what_is_whole_comes_before_what_is_none() -> None:
    frames = LengthFrames(1).feed(packed(b"good") + b"none of it")
    assert next(frames) == packed(b"good")
    with pytest.raises(InputError, match=rf"^record 2: a length of \d+ bytes, expected -1 \(null\) to {MOST_BYTES}$"):
        next(frames)
    torn = LengthFrames(2)
    assert list(torn.feed(packed(b"k") + packed(b"v") + packed(b"k") + b"\0\0")) == [packed(b"k") + packed(b"v")]
    with pytest.raises(InputError, match=r"^record 2: standard input ends within it, after 7 bytes$"):
        list(torn.end())


ALL = ("acks", "batch.size", "buffer.memory", "client.id", "compression.type", "delivery.timeout.ms",
       "enable.idempotence", "linger.ms")  # fmt: skip


def test_properties_have_kafkas_names_and_values() -> None:
    said = [
        "acks=1", "batch.size=1000", "buffer.memory=2000", "client.id=me", "compression.type=zstd",
        "delivery.timeout.ms=1500", "enable.idempotence=false", "linger.ms=5",
    ]  # fmt: skip
    assert properties_of(said, ALL) == ProducerProperties(
        acks=1, batch_bytes=1000, buffer_bytes=2000, client_id="me", codec=Codec.ZSTD, delivery_timeout_s=1.5,
        idempotent=False, linger_s=0.005,
    )  # fmt: skip
    assert properties_of([], ALL) == ProducerProperties()


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (["acks"], "'acks': expected KEY=VALUE"),
        (["retries=3"], "retries: expected one of acks, "),
        (["acks=2"], "acks=2: expected one of all, -1, 0, 1"),
        (["batch.size=x"], "batch.size=x: expected 100 to 33554432"),
        (["linger.ms=-1"], "linger.ms=-1: expected 0 to 86400000"),
        (["enable.idempotence=yes"], "enable.idempotence=yes: expected one of true, false"),
        (["acks=1", "acks=1"], "acks comes twice: expected each property once"),
        (["client.id="], "client.id=: expected a name"),
    ],
)
def test_a_property_that_cannot_be_is_named(pairs: list[str], said: str) -> None:
    with pytest.raises(ValueError) as wrong:
        properties_of(pairs, ALL)
    assert str(wrong.value).startswith(said)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--file", "x", "--json"], "--file and --json: expected one of them"),
        (["--length-prefixed", "value", "--key-separator", ":"], "--length-prefixed and --key-separator: expected one"),
        (["--json", "--parse-headers"], "--json and --parse-headers: expected one of them"),
        (["--acks", "1", "--producer-property", "acks=1"], "--acks and acks of --producer-property: expected one of"),
        (["--no-idempotence", "--producer-property", "enable.idempotence=true"], "--no-idempotence and enable.idempot"),
        (["--acks", "1", "--producer-property", "enable.idempotence=true"], "enable.idempotence=true and acks 1: exp"),
        (["--producer-property", "linger.ms=5"], "--producer-property linger.ms: expected one of acks, batch.size, "),
    ],
)
def test_input_and_properties_that_cannot_be_meant_are_refused(args: list[str], said: str) -> None:
    from holdfast.cli.produce import produce

    command: click.Command = produce
    done = CliRunner().invoke(command, ["t", "-b", "127.0.0.1:1", *args])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith(f"holdfast produce: {said}")
