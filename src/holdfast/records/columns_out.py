"""Arrow columns to record batches, in bulk: no Python object per record.

Owns where rows go (partition column, else the key's hash as Kafka's clients compute it, else one partition for all
rows without a key) and the bytes of the batches, compression and CRC included. Never sends anything, never reads a
clock: the caller says the time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """Who writes, for batches that a broker takes once only; none by default."""

    producer_id: int = -1
    epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """A batch for a partition. Its base offset is 0, and its sequence number is still to be stamped."""

    partition: int
    data: bytearray
    records: int


class ColumnEncoder:
    """Encodes rows of one topic."""

    def __init__(self, *, partitions: int, batch_bytes: int, codec: Codec = Codec.NONE, kernels: Any = None) -> None:
        self._partitions = partitions
        self._batch_bytes = batch_bytes
        self._codec = codec
        self._kernels = kernels or _kernels()
        self._scratch = np.empty(0, np.uint8)

    def encode(
        self,
        *,
        value: pa.Array,
        key: pa.Array | None,
        headers: pa.Array | None,
        partition: pa.Array | None,
        without_key: int,
        now_ms: TimestampMs,
        producer: Producer,
    ) -> Iterator[EncodedBatch]:
        """The rows as batches, each partition's in the order of its rows. ValueError for a partition out of range."""
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
        homes = np.empty(rows, np.int32)
        k.partitions_of_keys(*keys, self._partitions, without_key, given, homes)
        order = np.argsort(homes, kind="stable")
        bounds = np.searchsorted(homes[order], np.arange(self._partitions + 1))
        listed, widest = self._headers(headers)
        sizes = np.diff(values[0]).max(initial=0) + np.diff(keys[0]).max(initial=0) + widest
        room = self._batch_bytes + int(sizes) + k.MAX_OVERHEAD
        if len(self._scratch) < room:
            self._scratch = np.empty(room, np.uint8)
        target = k.as_target(self._scratch)
        for home in range(self._partitions):
            mine = order[bounds[home] : bounds[home + 1]]
            first = 0
            while first < len(mine):
                following, size = k.encode_records(mine, first, self._batch_bytes, keys, values, listed, target)
                payload = self._scratch[:size].data
                count = following - first
                yield EncodedBatch(
                    partition=home, data=_batch(payload, self._codec, count, now_ms, producer), records=count
                )
                first = following

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


def _batch(payload: memoryview, codec: Codec, count: int, now_ms: TimestampMs, producer: Producer) -> bytearray:
    content = payload if codec is Codec.NONE else compress(codec, payload)
    out = bytearray(HEADER_SIZE + len(content))
    HEADER.pack_into(
        out, 0,
        0, len(out) - LENGTH_OVERHEAD, -1, MAGIC, 0, codec, count - 1, now_ms, now_ms,
        producer.producer_id, producer.epoch, NO_SEQUENCE, count,
    )  # fmt: skip
    out[HEADER_SIZE:] = content
    stamp_crc(out, 0)
    return out


def stamp_sequence(batch: bytearray, sequence: int) -> None:
    """Sets the sequence number of a batch's first record, and the CRC."""
    batch[53:57] = sequence.to_bytes(4, "big")
    stamp_crc(batch, 0)


def _kernels() -> Any:
    """The kernels, imported when first used: numba takes a quarter of a second to load."""
    from holdfast.records.kernels import encode

    return encode
