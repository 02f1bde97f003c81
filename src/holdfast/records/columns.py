"""Record batches to Arrow columns, in bulk: no Python object per record.

Owns: which records of a run of batches a reader sees (offset range, control batches, aborted transactions), the
CRC, decompression, and the shape of the columns. Never does I/O and never guesses: bytes that are no valid
batches are a CorruptRecordError that names the offset.

    chunk = Chunk.scan(buffer)            headers only; chunk.next_offset says where to fetch on
    for columns in decoder.decode(chunk, start=.., end=..):   about ROWS_PER_BATCH rows each
        columns.arrays["value"]           pyarrow arrays of the types that Spark's Kafka source has

Decompressed records go to one buffer of the decoder that is used again; columns never point into it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import cramjam
import numpy as np
import pyarrow as pa
from crc32c import crc32c

from holdfast.model.errors import CorruptRecordError, HoldfastError
from holdfast.model.types import Offset
from holdfast.records.batch import CONTROL_BIT, CRC_START, HEADER_SIZE, TRANSACTIONAL_BIT, Buffer
from holdfast.records.compression import Codec, decompress, snappy_size

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

HEADER_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
COLUMN_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADER_TYPE,
}
"""Name and Arrow type of every column that there is, in the order of Spark's Kafka source."""

ROWS_PER_BATCH: Final = 16_384
BYTES_PER_BATCH: Final = 8 << 20
"""A run of batches ends when it has this many bytes of records (a larger batch is a run of its own)."""
MAX_DECOMPRESSED: Final = (1 << 31) - 1
"""Arrow's binary arrays have 32-bit offsets, and no batch can be larger before compression either."""
MAX_RATIO: Final = 64.0
"""More room than this per compressed byte is not kept ready."""

_INTO: Final = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
_CODEC_BITS: Final = 0x07
_LOG_APPEND_BIT: Final = 0x08
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
_EMPTY: Final = np.empty(0, np.uint8)
_NO_ENDS: Final = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """A producer's transaction that was aborted: its records from here to its abort marker do not count."""

    producer_id: int
    first_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Whole batches in a buffer, as far as their headers tell. Nothing is verified yet except the framing."""

    buffer: Buffer
    table: Array
    """One row per batch, fields as records/kernels/decode.py names them."""
    size: int
    """Bytes up to the end of the last whole batch."""

    @classmethod
    def scan(cls, buffer: Buffer, kernels: Any = None) -> "Chunk":
        """Finds the whole batches; a cut off last one is left out. CorruptRecordError where none can start."""
        kernels = kernels or _kernels()
        source = kernels.as_source(buffer)
        table = np.empty((max(16, len(source) // 8192), kernels.SCAN_FIELDS), np.int64)
        while True:
            status, batches, stop = kernels.scan_batches(source, 0, len(source), table)
            if status != kernels.TABLE_FULL:
                break
            table = np.empty((len(table) * 4, kernels.SCAN_FIELDS), np.int64)
        if status != kernels.OK:
            what = "magic is not 2" if status == kernels.BAD_MAGIC else "length or offset is impossible"
            before = f" after offset {table[batches - 1, kernels.LAST_OFFSET]}" if batches else ""
            raise CorruptRecordError(f"no record batch at byte {stop}{before}: its {what}")
        return cls(buffer=buffer, table=table[:batches], size=stop)

    @property
    def next_offset(self) -> Offset | None:
        """The offset after the last whole batch; None if there is none."""
        return int(self.table[-1, 3]) + 1 if len(self.table) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Some rows as Arrow arrays by column name."""

    rows: int
    arrays: dict[str, pa.Array]


@dataclass(slots=True, kw_only=True)
class _Sized:
    """Buffers of one binary column: where each item ends, which are not null, the bytes."""

    ends: Array = field(default_factory=lambda: _NO_ENDS)
    valid: Array = field(default_factory=lambda: _EMPTY)
    data: Array = field(default_factory=lambda: _EMPTY)

    @classmethod
    def room(cls, items: int, size: int) -> "_Sized":
        ends = np.empty(items + 1, np.int32)
        ends[0] = 0
        return cls(ends=ends, valid=np.full((items + 7) // 8, 255, np.uint8), data=np.empty(size, np.uint8))

    def as_kernel(self, kernels: Any) -> tuple[Any, Any, Any]:
        return self.ends, self.valid, kernels.as_target(self.data)

    def array(self, kind: pa.DataType, items: int, nulls: int) -> pa.Array:
        size = int(self.ends[items])
        valid = pa.py_buffer(self.valid) if nulls else None
        buffers = [valid, pa.py_buffer(self.ends[: items + 1]), pa.py_buffer(self.data[:size])]
        return pa.Array.from_buffers(kind, items, buffers, nulls)


class ColumnDecoder:
    """Decodes chunks of one partition, or of several one after the other, to the wanted columns.

    Not for two threads at once: the buffer for decompressed records is its own.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        check_crc: bool = True,
        rows_per_batch: int = ROWS_PER_BATCH,
        kernels: Any = None,
    ) -> None:
        unknown = [name for name in columns if name not in COLUMN_TYPES]
        if unknown:
            raise ValueError(f"no such column: {unknown[0]!r}; there are {', '.join(COLUMN_TYPES)}")
        self._columns = tuple(columns)
        self._check_crc = check_crc
        self._rows_per_batch = rows_per_batch
        self._kernels = kernels or _kernels()
        self._scratch = bytearray()
        self._decompressed_ratio = 4.0
        self.replaced_header_keys = 0
        """How many headers had a key that was no UTF-8, of which U+FFFD has taken the place of what cannot be read."""

    def decode(
        self,
        chunk: Chunk,
        *,
        start: Offset,
        end: Offset,
        topic: str = "",
        partition: int = 0,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> Iterator[Columns]:
        """The records with ``start <= offset < end``, control records and aborted transactions left out."""
        k = self._kernels
        batches = chunk.table[_visible(chunk, start, end, aborted, k)]
        view = memoryview(chunk.buffer)
        codecs = batches[:, k.ATTRIBUTES] & _CODEC_BITS
        rows, sizes = np.cumsum(batches[:, k.COUNT]), np.cumsum(batches[:, k.SIZE])
        changes = np.flatnonzero(np.diff(codecs)) + 1
        at = rows_before = size_before = 0
        while at < len(batches):
            codec = int(codecs[at])
            room = BYTES_PER_BATCH // (1 if codec == 0 else int(self._decompressed_ratio) + 1)
            change = int(np.searchsorted(changes, at, "right"))
            stop = min(
                int(changes[change]) if change < len(changes) else len(batches),
                int(np.searchsorted(rows, rows_before + self._rows_per_batch)) + 1,
                int(np.searchsorted(sizes, size_before + room)) + 1,
            )
            yield from self._decode_run(view, batches[at:stop], codec, start, end, topic, partition)
            at, rows_before, size_before = stop, int(rows[stop - 1]), int(sizes[stop - 1])

    def _decode_run(
        self,
        view: memoryview,
        run: Array,
        codec: int,
        start: Offset,
        end: Offset,
        topic: str,
        partition: int,
    ) -> Iterator[Columns]:
        """``run`` is rows of a chunk's table, all of one codec."""
        k = self._kernels
        if self._check_crc:
            self._check_crcs(view, run)
        plan = np.empty((len(run), k.PLAN_FIELDS), np.int64)
        plan[:, k.FROM] = run[:, k.POSITION] + HEADER_SIZE
        plan[:, k.TO] = run[:, k.POSITION] + run[:, k.SIZE]
        filled = 0
        if codec:
            for row, batch in zip(plan, run, strict=True):
                payload, row[k.FROM] = view[int(row[k.FROM]) : int(row[k.TO])], filled
                row[k.TO] = filled = self._decompress(payload, codec, filled, int(batch[k.BASE_OFFSET]))
        sizes, counts = plan[:, k.TO] - plan[:, k.FROM], run[:, k.COUNT]
        wrong = np.flatnonzero((counts < 0) | (counts > sizes // k.MIN_RECORD))
        if len(wrong):
            batch = run[wrong[0]]
            raise CorruptRecordError(
                f"batch at offset {batch[k.BASE_OFFSET]} says it has {batch[k.COUNT]} records "
                f"in {sizes[wrong[0]]} bytes"
            )
        plan[:, k.PLAN_BASE_OFFSET] = run[:, k.BASE_OFFSET]
        plan[:, k.PLAN_LAST_OFFSET] = run[:, k.LAST_OFFSET]
        plan[:, k.PLAN_BASE_TIMESTAMP] = run[:, k.BASE_TIMESTAMP]
        plan[:, k.PLAN_LOG_APPEND_TIMESTAMP] = run[:, k.MAX_TIMESTAMP]
        plan[:, k.PLAN_TIMESTAMP_TYPE] = run[:, k.ATTRIBUTES] & _LOG_APPEND_BIT != 0
        plan[:, k.PLAN_COUNT] = counts
        source = k.as_source(memoryview(self._scratch)[:filled] if codec else view)
        yield from self._spread(source, plan, start, end, topic, partition)

    def _check_crcs(self, view: memoryview, run: Array) -> None:
        """CorruptRecordError for the first that fails. Small batches are checked by one call for all: a call of the
        library for each costs as much as the kernel does for SMALL_BATCH bytes."""
        k = self._kernels
        small = run[:, k.SIZE] <= k.SMALL_BATCH
        bad = -1
        if small.any():
            bad = k.first_bad_crc(k.as_source(view), run, k.SMALL_BATCH)
        for index in np.flatnonzero(~small):
            if 0 <= bad < index:
                break
            _check_crc(view, int(run[index, k.POSITION]), int(run[index, k.SIZE]), int(run[index, k.BASE_OFFSET]))
        if bad >= 0:  # and the library says how
            _check_crc(view, int(run[bad, k.POSITION]), int(run[bad, k.SIZE]), int(run[bad, k.BASE_OFFSET]))

    def _spread(
        self, source: Any, plan: Array, start: Offset, end: Offset, topic: str, partition: int
    ) -> Iterator[Columns]:
        k = self._kernels
        rows = int(plan[:, k.PLAN_COUNT].sum())
        size = int((plan[:, k.TO] - plan[:, k.FROM]).sum())
        if size > MAX_DECOMPRESSED:  # small looking batches turned out to be more than Arrow can address
            half = len(plan) // 2
            if half:
                yield from self._spread(source, plan[:half], start, end, topic, partition)
                yield from self._spread(source, plan[half:], start, end, topic, partition)
                return
            offset = plan[0, k.PLAN_BASE_OFFSET]
            raise CorruptRecordError(f"batch at offset {offset} has {size} bytes of records")
        buffers = _Buffers(self._columns, rows, size)
        counts = np.zeros(k.COUNT_FIELDS, np.int64)
        status, bad = k.decode_records(source, plan, start, end, buffers.as_kernel(k), counts)
        if status != k.OK:
            offset = plan[bad, k.PLAN_BASE_OFFSET]
            raise CorruptRecordError(f"batch at offset {offset} holds a malformed record")
        total = int(counts[k.ROWS])
        if total:
            columns = buffers.columns(k, counts, topic, partition)
            self.replaced_header_keys += buffers.replaced_header_keys
            yield from _sliced(columns, total, self._rows_per_batch)

    def _decompress(self, payload: memoryview, codec: int, at: int, base_offset: Offset) -> int:
        """Puts the decompressed payload at ``at`` of the scratch buffer; answers where it ends."""
        try:
            kind = Codec.numbered(codec)
            if kind is Codec.SNAPPY:
                return self._decompress_snappy(payload, at)
            self._reserve(at + int(len(payload) * self._decompressed_ratio) + 1024)
            try:
                size = int(_INTO[kind](payload, memoryview(self._scratch)[at:]))
            except cramjam.DecompressionError:  # too little room, or bad bytes: this tells which
                content = decompress(kind, payload, MAX_DECOMPRESSED)
                size = len(content)
                self._reserve(at + size)
                self._scratch[at : at + size] = content
        except (cramjam.DecompressionError, HoldfastError) as error:
            kind_of = type(error) if isinstance(error, HoldfastError) else CorruptRecordError
            raise kind_of(f"batch at offset {base_offset} cannot be decompressed: {error}") from None
        ratio = min(MAX_RATIO, 1.2 * size / max(1, len(payload)))
        self._decompressed_ratio = max(self._decompressed_ratio, ratio)
        return at + size

    def _decompress_snappy(self, payload: memoryview, at: int) -> int:
        if bytes(payload[: len(_XERIAL)]) != _XERIAL:
            return self._decompress_block(payload, at)
        position = _XERIAL_HEADER
        while position < len(payload):
            size = int.from_bytes(payload[position : position + 4], "big")
            position += 4
            if size > len(payload) - position:
                raise cramjam.DecompressionError("a snappy block is cut off")
            at = self._decompress_block(payload[position : position + size], at)
            position += size
        return at

    def _decompress_block(self, block: memoryview, at: int) -> int:
        size = snappy_size(block)
        self._reserve(at + size)
        return at + int(cramjam.snappy.decompress_raw_into(block, memoryview(self._scratch)[at : at + size]))

    def _reserve(self, size: int) -> None:
        if size > len(self._scratch):
            # A new object, since the older one may still be looked at; what is decompressed so far moves along.
            larger = bytearray(max(size, 2 * len(self._scratch)))
            larger[: len(self._scratch)] = self._scratch
            self._scratch = larger


class _Buffers:
    """Column buffers for at most ``rows`` rows whose records have ``size`` bytes in all."""

    def __init__(self, columns: tuple[str, ...], rows: int, size: int) -> None:
        def fixed(name: str, kind: type) -> Array:
            return np.empty(rows if name in columns else 0, kind)

        def sized(name: str) -> _Sized:
            return _Sized.room(rows, size) if name in columns else _Sized()

        self._columns = columns
        self.replaced_header_keys = 0
        self.offset = fixed("offset", np.int64)
        self.timestamp = fixed("timestamp", np.int64)
        self.timestamp_type = fixed("timestampType", np.int32)
        self.key = sized("key")
        self.value = sized("value")
        headers = "headers" in columns
        self.header_ends = np.zeros(rows + 1, np.int32) if headers else _NO_ENDS
        # A header has two bytes or more, so there cannot be more of them; unused pages cost nothing.
        self.header_name = _Sized.room(size // 2, size) if headers else _Sized()
        self.header_value = _Sized.room(size // 2, size) if headers else _Sized()

    def as_kernel(self, k: Any) -> Any:
        return (
            (self.offset, self.timestamp, self.timestamp_type),
            self.key.as_kernel(k),
            self.value.as_kernel(k),
            (self.header_ends, self.header_name.as_kernel(k), self.header_value.as_kernel(k)),
        )

    def columns(self, k: Any, counts: Array, topic: str, partition: int) -> dict[str, pa.Array]:
        rows = int(counts[k.ROWS])
        return {name: self._column(name, rows, k, counts, topic, partition) for name in self._columns}

    def _column(self, name: str, rows: int, k: Any, counts: Array, topic: str, partition: int) -> pa.Array:
        kind = COLUMN_TYPES[name]
        match name:
            case "key":
                return self.key.array(kind, rows, int(counts[k.KEY_NULLS]))
            case "value":
                return self.value.array(kind, rows, int(counts[k.VALUE_NULLS]))
            case "topic":
                return _repeated(topic.encode(), rows)
            case "partition":
                return _plain(kind, np.full(rows, partition, np.int32), rows)
            case "offset":
                return _plain(kind, self.offset, rows)
            case "timestamp":
                return _plain(kind, self.timestamp, rows)
            case "timestampType":
                return _plain(kind, self.timestamp_type, rows)
            case _:
                return self._headers(rows, k, counts)

    def _headers(self, rows: int, k: Any, counts: Array) -> pa.Array:
        """A list per record; null where a record has none, as Spark's own source has it."""
        items = int(counts[k.HEADERS])
        names = self.header_name.array(pa.string(), items, 0)
        try:
            names.validate(full=True)  # UTF-8 by the protocol, not by every producer's word
        except pa.ArrowInvalid:
            names, self.replaced_header_keys = _readable(self.header_name.array(pa.binary(), items, 0))
        contents = self.header_value.array(pa.binary(), items, int(counts[k.HEADER_VALUE_NULLS]))
        elements = pa.StructArray.from_arrays([names, contents], names=["key", "value"])
        present = self.header_ends[1 : rows + 1] > self.header_ends[:rows]
        valid = pa.py_buffer(np.packbits(present, bitorder="little"))
        ends = pa.py_buffer(self.header_ends[: rows + 1])
        nulls = rows - int(present.sum())
        return pa.Array.from_buffers(HEADER_TYPE, rows, [valid, ends], nulls, children=[elements])


def _readable(names: pa.Array) -> tuple[pa.Array, int]:
    """Bytes as text, and how many are none: U+FFFD stands for what cannot be read, as in the JVM. One producer must not
    be able to end everybody's reads. Each different name is looked at once."""
    coded = names.dictionary_encode()
    distinct = coded.dictionary.to_pylist()
    texts = [name.decode(errors="replace") for name in distinct]
    bad = np.array([text.encode() != name for text, name in zip(texts, distinct, strict=True)])
    indices = coded.indices.to_numpy()
    return pa.array(texts, pa.string()).take(coded.indices), int(bad[indices].sum())


def _plain(kind: pa.DataType, values: Array, rows: int) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(values[:rows])], 0)


def _repeated(text: bytes, rows: int) -> pa.Array:
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(text))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(text * rows)], 0)


def _sliced(arrays: dict[str, pa.Array], rows: int, limit: int) -> Iterator[Columns]:
    """Pieces of about ``limit`` rows; a piece up to half as large again is not cut."""
    if rows <= limit + limit // 2:
        yield Columns(rows=rows, arrays=arrays)
        return
    for first in range(0, rows, limit):
        count = min(limit, rows - first)
        yield Columns(rows=count, arrays={name: array.slice(first, count) for name, array in arrays.items()})


def _check_crc(view: memoryview, position: int, size: int, base_offset: Offset) -> None:
    stored = int.from_bytes(view[position + 17 : position + CRC_START], "big")
    found = crc32c(view[position + CRC_START : position + size])
    if found != stored:
        raise CorruptRecordError(
            f"batch at offset {base_offset} fails its CRC: {found:#010x} computed, {stored:#010x} stored"
        )


def _visible(chunk: Chunk, start: Offset, end: Offset, aborted: Sequence[AbortedTransaction], k: Any) -> Array:
    """Numbers of the batches that hold records in the range, in order."""
    table = chunk.table
    beyond = np.flatnonzero(table[:, k.BASE_OFFSET] >= end)
    table = table[: int(beyond[0])] if len(beyond) else table
    attributes, last = table[:, k.ATTRIBUTES], table[:, k.LAST_OFFSET]
    # A compacted batch may have lost all its records.
    wanted = (last >= start) & (attributes & CONTROL_BIT == 0) & (table[:, k.COUNT] > 0)
    for each in aborted:
        mine = table[:, k.PRODUCER_ID] == each.producer_id
        # One without a record is left by compaction, and says nothing.
        markers = mine & (attributes & CONTROL_BIT != 0) & (table[:, k.COUNT] > 0) & (last >= each.first_offset)
        stop = next(
            (at for at in np.flatnonzero(markers) if _is_abort_marker(chunk.buffer, int(table[at, k.POSITION]))),
            len(table),
        )
        dead = mine & (attributes & TRANSACTIONAL_BIT != 0) & (last >= each.first_offset)
        dead[stop:] = False
        wanted &= ~dead
    return np.flatnonzero(wanted)


def _is_abort_marker(buffer: Buffer, position: int) -> bool:
    """True if the control batch at ``position`` ends a transaction by abort (type 0 in its record's key).

    A control record starts with size, attributes, timestamp delta, offset delta, key size (all varints but the
    attributes), then in its key version i16 and type i16.
    """
    at = position + HEADER_SIZE
    view = memoryview(buffer)
    for index in range(5):
        while index != 1 and view[at] & 0x80:  # number 1 is a plain byte
            at += 1
        at += 1
    return int.from_bytes(view[at + 2 : at + 4], "big") == 0


def _kernels() -> Any:
    """The kernels, imported when first used: numba takes a quarter of a second to load."""
    from holdfast.records.kernels import decode

    return decode
