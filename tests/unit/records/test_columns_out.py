"""records/columns_out.py: what it writes, the record decoder reads; partitions as the client's own partitioner."""

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.client.partitioner import partition_of
from holdfast.records.batch import crc_ok, parse_header
from holdfast.records.columns_out import BatchProducer, ColumnEncoder, EncodedBatch, stamp_producer
from holdfast.records.compression import Codec
from holdfast.records.record import Record, decode_batch
from tests.unit.records.test_columns import load_plain_kernels

PLAIN = load_plain_kernels("encode")
KERNELS = pytest.mark.parametrize("kernels", [None, PLAIN], ids=["compiled", "plain"])
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOBODY = BatchProducer()

blobs = st.none() | st.binary(max_size=40) | st.binary(min_size=100, max_size=200)
header_lists = st.none() | st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=3)
row_lists = st.lists(st.tuples(blobs, blobs, header_lists, st.none() | st.integers(0, 2)), max_size=30)


def encode(rows: Any, *, kernels: Any = None, batch_bytes: int = 500, **options: Any) -> list[EncodedBatch]:
    codec, pieces = options.pop("codec", Codec.NONE), options.pop("pieces", 1)
    encoder = ColumnEncoder(partitions=3, batch_bytes=batch_bytes, codec=codec, kernels=kernels)
    skip = options.pop("skip", 0)
    padded = [(b"never", b"never", [("never", b"never")], None)] * skip + list(rows)
    key = pa.array([row[0] for row in padded], pa.binary())[skip:]
    value = pa.array([row[1] for row in padded], pa.binary())[skip:]
    headers = pa.array(
        [None if row[2] is None else [{"key": k, "value": v} for k, v in row[2]] for row in padded], HEADERS
    )[skip:]
    partition = pa.array([row[3] for row in padded], pa.int32())[skip:]
    batches = []
    for first, after in itertools.pairwise([len(rows) * piece // pieces for piece in range(pieces + 1)]):
        some = slice(first, after)
        batches += encoder.encode(
            value=value[some],
            key=key[some],
            headers=headers[some],
            partition=partition[some],
            without_key=1,
            now_ms=77,
        )
    batches += encoder.rest(77)
    assert encoder.waiting_bytes == 0 and list(encoder.rest(77)) == []
    for batch in batches:
        stamp_producer(batch.data, NOBODY, -1)
    return batches


@KERNELS
@settings(max_examples=60, deadline=None)
@given(rows=row_lists, codec=st.sampled_from(list(Codec)), skip=st.integers(0, 2), pieces=st.integers(1, 4))
def test_what_is_encoded_is_decoded(kernels: Any, rows: Any, codec: Codec, skip: int, pieces: int) -> None:
    found: dict[int, list[Record]] = {0: [], 1: [], 2: []}
    for batch in encode(rows, kernels=kernels, codec=codec, skip=skip, pieces=pieces):
        assert crc_ok(batch.data, 0, parse_header(batch.data))
        records = decode_batch(batch.data)
        assert [record.offset for record in records] == list(range(batch.records))
        found[batch.partition] += records
    wanted: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    for key, value, headers, partition in rows:
        home = partition if partition is not None else 1 if key is None else partition_of(key, 3)
        wanted[home].append((77, key, value, headers or []))
    got = {p: [(r.timestamp, r.key, r.value, list(r.headers)) for r in records] for p, records in found.items()}
    assert got == wanted


@KERNELS
def test_batches_stay_near_their_limit(kernels: Any) -> None:
    rows = [(None, b"x" * 90, None, None)] * 50
    batches = encode(rows, kernels=kernels, batch_bytes=500)
    assert [batch.records for batch in batches] == [6] * 8 + [2]
    assert [batch.records for batch in encode(rows, kernels=kernels, batch_bytes=500, pieces=7)] == [6] * 8 + [2]
    assert [batch.records for batch in encode([(None, b"x" * 9000, None, None)] * 2, kernels=kernels)] == [1, 1]


def test_strings_and_columns_that_are_not_there() -> None:
    encoder = ColumnEncoder(partitions=2, batch_bytes=100)
    value = pa.array(["a", "ü", None])
    options: dict[str, Any] = {"key": None, "headers": None, "partition": None, "now_ms": 5}
    assert list(encoder.encode(value=value, without_key=0, **options)) == []
    (batch,) = encoder.rest(5)
    stamp_producer(batch.data, NOBODY, -1)
    assert [r.value for r in decode_batch(batch.data)] == [b"a", "ü".encode(), None]
    assert list(encoder.encode(value=value.cast(pa.large_string()), without_key=1, **options)) == []
    (batch,) = encoder.rest(5)
    assert (batch.partition, batch.records) == (1, 3)
    assert list(encoder.encode(value=value[:0], without_key=0, **options)) == [] == list(encoder.rest(5))


def test_the_producer_and_its_sequence_are_stamped() -> None:
    (batch,) = encode([(None, b"x", None, None)])
    stamp_producer(batch.data, BatchProducer(producer_id=9, epoch=2), 41)
    header = parse_header(batch.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 41)
    assert crc_ok(batch.data, 0, header)


def test_impossible_rows_are_named() -> None:
    with pytest.raises(ValueError, match="partition has 3: the topic has 3 partitions"):
        encode([(None, b"x", None, 3)])
    bad = pa.array([[{"key": None, "value": b"x"}]], HEADERS)
    with pytest.raises(ValueError, match="key is null"):
        list(
            ColumnEncoder(partitions=1, batch_bytes=10).encode(
                value=pa.array([b"v"]),
                key=None,
                headers=bad,
                partition=None,
                without_key=0,
                now_ms=0,
            )
        )
