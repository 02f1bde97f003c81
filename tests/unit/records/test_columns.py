"""records/columns.py against the record decoder, with compiled kernels and with plain ones."""

import importlib.util
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast.records.kernels as kernel_package
from holdfast.model.errors import CorruptRecordError, UnsupportedCompressionTypeError
from holdfast.records.batch import TimestampType, stamp_crc
from holdfast.records.columns import COLUMN_TYPES, AbortedTransaction, Chunk, ColumnDecoder
from holdfast.records.compression import Codec
from holdfast.records.kernels import decode
from holdfast.records.record import BatchBuilder, Record, decode_batch

END = 1 << 60


def load_plain_kernels(name: str) -> ModuleType:
    """The module ``holdfast.records.kernels.<name>`` as it is where numba is not installed."""
    directory = Path(kernel_package.__file__).parent
    hidden = {each: sys.modules.get(each) for each in ("numba", "holdfast.records.kernels.jit")}
    sys.modules["numba"] = None  # type: ignore[assignment]
    try:
        for each in ("jit", name):
            qualified = f"holdfast.records.kernels.{each if each == 'jit' else 'plain_' + each}"
            spec = importlib.util.spec_from_file_location(qualified, directory / f"{each}.py")
            assert spec and spec.loader
            module = importlib.util.module_from_spec(spec)
            if each == "jit":
                sys.modules[qualified] = module
            spec.loader.exec_module(module)
    finally:
        for each, known in hidden.items():
            sys.modules.pop(each)
            if known is not None:
                sys.modules[each] = known
    return module


PLAIN = load_plain_kernels("decode")
KERNELS = pytest.mark.parametrize("kernels", [None, PLAIN], ids=["compiled", "plain"])


def batch(
    records: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]],
    base: int = 0,
    **options: Any,
) -> bytes:
    builder = BatchBuilder(base_offset=base, **options)
    for key, value, timestamp, headers in records:
        builder.append(key, value, timestamp, headers)
    return bytes(builder.build())


def simple(count: int, base: int = 0, **options: Any) -> bytes:
    rows = [(b"k%d" % i, b"v%d" % i, 1000 + i, [("h", b"x")] if i % 2 else []) for i in range(base, base + count)]
    return batch(rows, base, **options)


def rows_of(data: Any, *, start: int = 0, end: int = END, kernels: Any = None, **options: Any) -> list[dict[str, Any]]:
    names = options.pop("columns", list(COLUMN_TYPES))
    decoder = ColumnDecoder(names, kernels=kernels, rows_per_batch=options.pop("rows_per_batch", 16))
    rows: list[dict[str, Any]] = []
    for columns in decoder.decode(Chunk.scan(data, kernels), start=start, end=end, **options):
        for name, array in columns.arrays.items():
            array.validate(full=True)
            assert array.type == COLUMN_TYPES[name]
            assert len(array) == columns.rows
        table = {
            name: (array.cast(pa.int64()) if name == "timestamp" else array).to_pylist()
            for name, array in columns.arrays.items()
        }
        rows += [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    return rows


def expected(record: Record, timestamp_type: int = 0) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": "t",
        "partition": 3,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": timestamp_type,
        "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
    }


blobs = st.none() | st.binary(max_size=40) | st.binary(min_size=100, max_size=300)
header_lists = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
times = st.integers(-1, 2**45)
record_lists = st.lists(st.tuples(blobs, blobs, times, header_lists), min_size=1, max_size=20)


@KERNELS
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=st.lists(
        st.tuples(record_lists, st.sampled_from(list(Codec)), st.sampled_from(list(TimestampType)), st.integers(0, 5)),
        max_size=5,
    ),
    cut=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    tail=st.integers(0, 90),
)
def test_columns_hold_what_the_record_decoder_finds(kernels: Any, batches: Any, cut: Any, tail: int) -> None:
    data, base, wanted = b"", 0, []
    for rows, codec, timestamp_type, gap in batches:
        base += gap
        one = batch(rows, base, codec=codec, timestamp_type=timestamp_type)
        wanted += [expected(record, timestamp_type.value) for record in decode_batch(one)]
        data += one
        base += len(rows)
    start, end = cut
    if tail:
        data += simple(3, base)[:tail]  # a cut off batch, as the end of a fetch has it
    found = rows_of(data, start=start, end=end, kernels=kernels, topic="t", partition=3)
    assert found == [row for row in wanted if start <= row["offset"] < end]


@KERNELS
def test_only_the_wanted_columns_are_made_in_the_asked_order(kernels: Any) -> None:
    rows = rows_of(simple(3), kernels=kernels, columns=["offset", "value"])
    assert rows == [{"offset": i, "value": b"v%d" % i} for i in range(3)]
    assert list(rows[0]) == ["offset", "value"]


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(ValueError, match="'colour'"):
        ColumnDecoder(["value", "colour"])


@KERNELS
def test_large_runs_come_in_pieces(kernels: Any) -> None:
    decoder = ColumnDecoder(["offset"], rows_per_batch=10, kernels=kernels)
    sizes = [columns.rows for columns in decoder.decode(Chunk.scan(simple(35), kernels), start=0, end=END)]
    assert sizes == [10, 10, 10, 5]


@KERNELS
def test_chunk_says_where_to_go_on(kernels: Any) -> None:
    data = simple(3) + simple(4, 3)
    assert Chunk.scan(data + data[:50], kernels).next_offset == 7
    assert Chunk.scan(data + data[:50], kernels).size == len(data)
    assert Chunk.scan(data[:60], kernels).next_offset is None
    assert len(Chunk.scan(b"".join(simple(1, i) for i in range(100)), kernels).table) == 100


@KERNELS
def test_control_batches_and_aborted_transactions_are_left_out(kernels: Any) -> None:
    def marker(offset: int, kind: int, producer: int) -> bytes:
        row = (b"\0\0\0" + bytes([kind]), b"\0\0\0\0\0\0", 0, [])
        return batch([row], offset, producer_id=producer, producer_epoch=0, transactional=True, control=True)

    transaction = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    data = (
        simple(2, 0, producer_id=7, **transaction)
        + simple(2, 2, producer_id=8, **transaction)
        + marker(4, 0, 7)
        + marker(5, 1, 8)
        + simple(2, 6, producer_id=7, **transaction)
        + marker(8, 1, 7)
        + simple(1, 9)
    )
    everything = [row["offset"] for row in rows_of(data, kernels=kernels)]
    assert everything == [0, 1, 2, 3, 6, 7, 9]
    aborted = (AbortedTransaction(producer_id=7, first_offset=0),)
    committed = [row["offset"] for row in rows_of(data, kernels=kernels, aborted=aborted)]
    assert committed == [2, 3, 6, 7, 9]


@KERNELS
@pytest.mark.parametrize("codec", list(Codec))
def test_every_changed_byte_is_noticed(kernels: Any, codec: Codec) -> None:
    data = simple(4, codec=codec)
    for at in range(21, len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x10
        with pytest.raises(CorruptRecordError, match="offset 0 fails its CRC"):
            rows_of(broken, kernels=kernels)


@KERNELS
@pytest.mark.parametrize("codec", list(Codec))
def test_records_with_a_right_crc_and_wrong_content_never_escape_their_bounds(kernels: Any, codec: Codec) -> None:
    data = simple(4, codec=codec)
    for at in range(57, len(data)):
        for bits in (0x01, 0x80, 0xFF):
            broken = bytearray(data)
            broken[at] ^= bits
            stamp_crc(broken, 0)
            try:
                rows_of(broken, kernels=kernels, columns=["key", "value", "offset", "timestamp", "headers"])
            except CorruptRecordError as error:
                assert "offset" in str(error) or "UTF-8" in str(error)


@KERNELS
def test_bad_framing_is_named(kernels: Any) -> None:
    data = simple(2)
    for at, value, text in ((16, 1, "magic"), (11, 3, "length"), (23, 0x80, "offset"), (0, 0x80, "offset")):
        broken = bytearray(data + data)
        broken[len(data) + at] = value
        if at == 11:
            broken[len(data) + 8 : len(data) + 11] = b"\0\0\0"
        with pytest.raises(CorruptRecordError, match=f"after offset 1.*{text}"):
            Chunk.scan(broken, kernels)


def test_unknown_codec_and_broken_compression_are_named() -> None:
    data = bytearray(simple(2, 40))
    data[22] |= 6
    stamp_crc(data, 0)
    with pytest.raises(UnsupportedCompressionTypeError, match=r"offset 40.*codec 6"):
        rows_of(data)
    for codec in (1, 2, 3, 4):
        data[22] = codec
        stamp_crc(data, 0)
        with pytest.raises(CorruptRecordError, match="offset 40 cannot be decompressed"):
            rows_of(data)


def test_a_snappy_payload_without_framing_is_read() -> None:
    import cramjam

    plain = simple(5, 2)
    data = bytearray(plain[:61]) + bytes(cramjam.snappy.compress_raw(plain[61:]))
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[22] = Codec.SNAPPY
    stamp_crc(data, 0)
    assert rows_of(data) == rows_of(plain)


def test_highly_compressed_batches_get_room() -> None:
    for codec in Codec:
        rows = rows_of(batch([(None, b"a" * 3_000_000, 5, [])], codec=codec))
        assert rows[0]["value"] == b"a" * 3_000_000


@KERNELS
def test_times_that_microseconds_cannot_hold_are_clamped(kernels: Any) -> None:
    rows = rows_of(batch([(None, b"x", 2**59, [])]), kernels=kernels)
    assert rows[0]["timestamp"] == ((2**63 // 1000) - 1) * 1000


@KERNELS
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100, 1_900])
def test_small_batches_are_checked_by_the_kernel_as_by_the_library(kernels: Any, size: int) -> None:
    """The library runs where a batch is larger, or nothing is compiled; both must find the same."""
    kernels = kernels or decode
    one = batch([(b"k", bytes(n * 7 & 255 for n in range(size)), 5, [])])
    data = bytearray(one + one)
    chunk = Chunk.scan(data, kernels)
    assert kernels.first_bad_crc(kernels.as_source(data), chunk.table, 4_096) == -1
    for at in (17, 21, 40, 60, len(one) - 1):
        data[len(one) + at] ^= 0x10
        assert kernels.first_bad_crc(kernels.as_source(data), chunk.table, 4_096) == 1
        assert kernels.first_bad_crc(kernels.as_source(data), chunk.table, len(one) - 1) == -1
        data[len(one) + at] ^= 0x10


def test_the_first_batch_that_fails_its_crc_is_named_small_or_large() -> None:
    small, large = simple(1), simple(400, base=1)
    data = small + large + simple(1, base=401) + simple(1, base=402)
    for broken, named in (((0,), 0), ((1,), 1), ((2, 3), 401), ((1, 2), 1), ((3,), 402)):
        damaged = bytearray(data)
        starts = (0, len(small), len(small) + len(large), 2 * len(small) + len(large))
        for number in broken:
            damaged[starts[number] + 70] ^= 1
        with pytest.raises(CorruptRecordError, match=f"batch at offset {named} fails its CRC"):
            rows_of(bytes(damaged))


@KERNELS
def test_a_producer_that_aborts_and_commits_in_turn(kernels: Any) -> None:
    def part(base: int, **options: Any) -> bytes:
        return simple(2, base=base, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True, **options)

    def marker(base: int, kind: int) -> bytes:
        builder = BatchBuilder(
            base_offset=base, producer_id=7, producer_epoch=0, base_sequence=-1, transactional=True, control=True
        )
        builder.append(struct.pack(">hh", 0, kind), b"\0" * 6, 0, [])
        return bytes(builder.build())

    data = part(0) + marker(2, 0) + part(3) + marker(5, 1) + part(6) + marker(8, 0) + part(9) + simple(1, base=11)
    aborted = [AbortedTransaction(producer_id=7, first_offset=offset) for offset in (6, 0, 9)]
    found = [row["offset"] for row in rows_of(data, kernels=kernels, aborted=aborted)]
    assert found == [3, 4, 11]
