"""Arrow columns to record batches, in bulk: no Python object per record.

Owns where rows go (partition column, else the key's hash as Kafka's clients compute it, else one partition for all
rows without a key) and the bytes of the batches, compression and CRC included. Never sends anything, never reads a
clock: the caller says the time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from holdfast.model.types import TimestampMs
from holdfast.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, NO_SEQUENCE, stamp_crc
from holdfast.records.compression import Codec, compress

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Sized: TypeAlias = tuple[Array, Array, Any]
"""One binary column for the kernels: where items start and end, which are null, the bytes."""

_EMPTY: Final = np.empty(0, np.uint8)
_NOTHING: Final = np.empty(0, np.int32)
_PRODUCER: Final = Struct(">qhi")
MOST_BEGUN: Final = 64
"""Of a topic with more partitions none keeps the memory of its last batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProducer:
    """Who writes, for batches that a broker takes once only; none by default."""

    producer_id: int = -1
    epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """A batch for a partition. Its base offset is 0; who writes it and its CRC are still to be stamped."""

    partition: int
    data: bytearray
    records: int


@dataclass(slots=True)
class _Begun:
    """Records of a partition that are no batch yet."""

    content: Array
    size: int = 0
    records: int = 0


class ColumnEncoder:
    """Encodes rows of one topic, as they come; a batch is yielded when it is full.

    Rows are encoded while the processor has them in its cache: the rows of a partition wait as bytes of a batch, not as
    columns that are joined first.
    """

    def __init__(self, *, partitions: int, batch_bytes: int, codec: Codec = Codec.NONE, kernels: Any = None) -> None:
        self._partitions = partitions
        self._batch_bytes = batch_bytes
        self._codec = codec
        self._kernels = kernels or _kernels()
        self._begun: dict[int, _Begun] = {}
        self.waiting_bytes = 0
        """Of records that are in no batch yet."""

    def encode(
        self,
        *,
        value: pa.Array,
        key: pa.Array | None,
        headers: pa.Array | None,
        partition: pa.Array | None,
        without_key: int,
        now_ms: TimestampMs,
    ) -> Iterator[EncodedBatch]:
        """Takes rows, and yields the batches that are full with them, each partition's in the order of its rows. What
        is left waits for more, or for ``rest``. ValueError for a partition out of range."""
        k = self._kernels
        rows = len(value)
        values = self._sized(value)
        keys = self._sized(key) if key is not None else (_NOTHING, np.ones(rows, np.uint8), k.as_target(_EMPTY))
        if key is None:
            keys = (np.zeros(rows + 1, np.int32), keys[1], keys[2])
        given = np.empty(0, np.int32)
        if partition is not None:
            given = partition.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
            wrong = given[(given < -1) | (given >= self._partitions)]
            if len(wrong):
                raise ValueError(f"column partition has {wrong[0]}: the topic has {self._partitions} partitions")
        homes, order = np.empty(rows, np.int32), np.empty(rows, np.int64)
        starts = np.zeros(self._partitions + 1, np.int64)
        k.partitions_of_keys(*keys, self._partitions, without_key, given, homes)
        k.group_rows(homes, starts, order)
        listed, widest = self._headers(headers)
        sizes = np.diff(values[0]).max(initial=0) + np.diff(keys[0]).max(initial=0) + widest
        room = self._batch_bytes + int(sizes) + k.MAX_OVERHEAD
        for home in np.flatnonzero(np.diff(starts)).tolist():
            mine, begun = order[starts[home] : starts[home + 1]], self._with_room(home, room)
            target = k.as_target(begun.content)
            first = 0
            while first < len(mine):
                following, size = k.encode_records(
                    mine, first, self._batch_bytes, begun.size, begun.records, keys, values, listed, target
                )
                self.waiting_bytes += size - begun.size
                begun.size, begun.records, first = size, begun.records + following - first, following
                if size >= self._batch_bytes:
                    yield self._finished(home, begun, now_ms)

    def rest(self, now_ms: TimestampMs) -> Iterator[EncodedBatch]:
        """What ``encode`` has left, as batches that are not full."""
        for home, begun in self._begun.items():
            if begun.records:
                yield self._finished(home, begun, now_ms)
        if self._partitions > MOST_BEGUN:
            self._begun.clear()

    def _with_room(self, home: int, room: int) -> _Begun:
        """What is begun of the partition, in ``room`` bytes at least."""
        begun = self._begun.get(home)
        if begun is None:
            begun = self._begun[home] = _Begun(np.empty(room, np.uint8))
        elif len(begun.content) < room:
            larger = np.empty(room, np.uint8)
            larger[: begun.size] = begun.content[: begun.size]
            begun.content = larger
        return begun

    def _finished(self, home: int, begun: _Begun, now_ms: TimestampMs) -> EncodedBatch:
        data = _batch(begun.content[: begun.size].data, self._codec, begun.records, now_ms)
        batch = EncodedBatch(partition=home, data=data, records=begun.records)
        self.waiting_bytes -= begun.size
        begun.size = begun.records = 0
        return batch

    def _sized(self, array: pa.Array) -> Sized:
        """A string or binary array as the kernels read it, whatever slice it is of."""
        if pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type):
            array = array.cast(pa.binary())
        _, ends, data = array.buffers()
        rows = len(array)
        if ends is None:
            starts = np.zeros(rows + 1, np.int32)
        else:
            starts = np.frombuffer(ends, np.int32)[array.offset : array.offset + rows + 1]
        nulls = array.is_null().to_numpy(zero_copy_only=False).view(np.uint8)
        return starts, nulls, self._kernels.as_source(data if data is not None and data.size else _EMPTY)

    def _headers(self, array: pa.Array | None) -> tuple[Any, int]:
        """Headers for the kernel, and the most bytes that those of one row may take."""
        if array is None:
            nothing = (np.zeros(1, np.int32), np.zeros(0, np.uint8), self._kernels.as_source(_EMPTY))
            return (_NOTHING, _NOTHING, nothing, nothing), 0
        ends = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
        absent = array.is_null().to_numpy(zero_copy_only=False)
        starts = np.ascontiguousarray(ends[:-1])
        stops = np.where(absent, starts, ends[1:]).astype(np.int32)
        names, contents = array.values.field(0), array.values.field(1)
        if names.null_count:
            raise ValueError("column headers has a header whose key is null")
        named, contained = self._sized(names), self._sized(contents)
        item = np.diff(named[0]).astype(np.int64) + np.diff(contained[0]) + self._kernels.MAX_OVERHEAD
        total = np.concatenate(([0], np.cumsum(item)))
        return (starts, stops, named, contained), int((total[stops] - total[starts]).max(initial=0))


def _batch(payload: memoryview, codec: Codec, count: int, now_ms: TimestampMs) -> bytearray:
    content = payload if codec is Codec.NONE else compress(codec, payload)
    out = bytearray(HEADER_SIZE + len(content))
    HEADER.pack_into(
        out, 0,
        0, len(out) - LENGTH_OVERHEAD, -1, MAGIC, 0, codec, count - 1, now_ms, now_ms, -1, -1, NO_SEQUENCE, count,
    )  # fmt: skip
    out[HEADER_SIZE:] = content
    return out


def stamp_producer(batch: bytearray, producer: BatchProducer, sequence: int) -> None:
    """Sets who writes the batch, the sequence number of its first record, and the CRC: it can be sent then."""
    _PRODUCER.pack_into(batch, 43, producer.producer_id, producer.epoch, sequence)
    stamp_crc(batch, 0)


def _kernels() -> Any:
    """The kernels, imported when first used: numba takes a quarter of a second to load."""
    from holdfast.records.kernels import encode

    return encode
