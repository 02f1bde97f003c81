"""Readers of batches as columns: the compiled kernels alone, and the decoder that Spark's tasks use."""

from functools import cache
from typing import Any

from holdfast.model.errors import HoldfastError
from tests.fuzz.fixups import Fixup
from tests.fuzz.reader import Reader, Run
from tests.fuzz.readers.records import batches_corpus

_ROWS = 256
_BYTES = 2048
_GUARD = 64
_CANARY = 0xA5


@cache
def _probe() -> Any:
    """Compiled: batches to columns of just the sizes that the decoder gives them, with guards behind."""
    from numba import njit

    from holdfast.records.kernels import decode as k

    scan_batches, decode_records, as_is = k.scan_batches, k.decode_records, k.MIN_RECORD
    POSITION, SIZE, COUNT, BASE, LAST = k.POSITION, k.SIZE, k.COUNT, k.BASE_OFFSET, k.LAST_OFFSET

    @njit
    def probe(source: Any, table: Any, plan: Any, counts: Any, longs: Any, ints: Any, bits: Any, data: Any) -> Any:
        status, batches, _ = scan_batches(source, 0, len(source), table)
        if status != 0:
            return 10 + status
        rows = 0
        size = 0
        planned = 0
        for b in range(batches):
            first, last = table[b, POSITION] + 61, table[b, POSITION] + table[b, SIZE]
            count = table[b, COUNT]
            if count < 0 or count > (last - first) // as_is:
                return 20
            row = plan[planned]
            row[0] = first
            row[1] = last
            row[2] = table[b, BASE]
            row[3] = table[b, LAST]
            row[4] = table[b, 5]
            row[5] = table[b, 6]
            row[6] = (table[b, 4] >> 3) & 1
            row[7] = count
            rows += count
            size += last - first
            planned += 1
        if rows > 256 or size > 2048:
            return 30
        counts[:] = 0
        longs[:] = -6510615555426900571
        ints[:] = -1515870811
        data[:] = 0xA5
        bits[:] = 0xA5
        items = size // 2
        bit_bytes = (rows + 7) // 8
        item_bytes = (items + 7) // 8
        for i in range(2):
            ints[i, 0] = 0
            bits[i, :bit_bytes] = 255
        for i in range(2, 5):
            ints[i, 0] = 0
        ints[4, : rows + 1] = 0
        bits[2, :item_bytes] = 255
        bits[3, :item_bytes] = 255
        columns = (
            (longs[0, :rows], longs[1, :rows], ints[5, :rows]),
            (ints[0, : rows + 1], bits[0, :bit_bytes], data[0, :size]),
            (ints[1, : rows + 1], bits[1, :bit_bytes], data[1, :size]),
            (
                ints[4, : rows + 1],
                (ints[2, : items + 1], bits[2, :item_bytes], data[2, :size]),
                (ints[3, : items + 1], bits[3, :item_bytes], data[3, :size]),
            ),
        )
        status, _ = decode_records(source, plan[:planned], 0, 1 << 62, columns, counts)
        for i in range(2):
            for at in range(rows, longs.shape[1]):
                if longs[i, at] != -6510615555426900571:
                    return -1
        for i in range(6):
            used = items + 1 if i == 2 or i == 3 else rows + 1
            if i == 5:
                used = rows
            for at in range(used, ints.shape[1]):
                if ints[i, at] != -1515870811:
                    return -2
        for i in range(4):
            used = bit_bytes if i < 2 else item_bytes
            for at in range(used, bits.shape[1]):
                if bits[i, at] != 0xA5:
                    return -3
            for at in range(size, data.shape[1]):
                if data[i, at] != 0xA5:
                    return -4
        return 40 if status != 0 else counts[0] & 7

    return probe


def _make_kernels() -> Run:
    """Compiled kernels write nothing behind the columns, whatever the bytes; they check no bounds by themselves."""
    import numpy as np

    from holdfast.records.kernels import decode as k

    probe = _probe()
    table, plan = np.zeros((64, k.SCAN_FIELDS), np.int64), np.zeros((64, k.PLAN_FIELDS), np.int64)
    counts = np.zeros(k.COUNT_FIELDS, np.int64)
    longs = np.zeros((2, _ROWS + _GUARD), np.int64)
    ints = np.zeros((6, _BYTES // 2 + _GUARD), np.int32)
    bits, data_out = np.zeros((4, _BYTES // 16 + _GUARD), np.uint8), np.zeros((4, _BYTES + _GUARD), np.uint8)

    def run(data: bytes) -> Any:
        found = probe(np.frombuffer(data, np.uint8), table, plan, counts, longs, ints, bits, data_out)
        assert found >= 0, f"a guard is broken: {found}"
        return int(found)

    return run


def _kernel_corpus() -> list[bytes]:
    """Uncompressed only: the kernels see what is decompressed."""
    from holdfast.records.batch import parse_header

    return [item for item in batches_corpus() if not parse_header(item).compression and len(item) < 600]


def _make_columns() -> Run:
    """The decoder's columns, checked in full by Arrow, are what decoding record by record gives."""
    from holdfast.records.columns import Chunk, ColumnDecoder
    from holdfast.records.record import decode_batches

    decoders = (
        ColumnDecoder(["key", "value", "offset", "timestamp", "headers"]),
        ColumnDecoder(["value"], rows_per_batch=4),
        ColumnDecoder(["offset", "timestampType", "topic", "partition"], rows_per_batch=2),
        ColumnDecoder(["key", "headers"]),
    )

    def run(data: bytes) -> Any:
        if not data:
            return None
        which, data = data[0] & 3, data[1:]
        chunk = Chunk.scan(data)
        rows = 0
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for columns in decoders[which].decode(chunk, start=0, end=1 << 62, topic="t", partition=3):
            rows += columns.rows
            for array in columns.arrays.values():
                assert len(array) == columns.rows
                array.validate(full=True)
            if which == 0:
                keys += columns.arrays["key"].to_pylist()
                values += columns.arrays["value"].to_pylist()
        if which == 0:
            try:
                wanted = list(decode_batches(data, 1 << 20))
            except HoldfastError:
                return "strict"  # record by record more is refused: what comes after the last record, say
            assert [r.key for r in wanted if r.offset < 1 << 62] == keys
            assert [r.value for r in wanted if r.offset < 1 << 62] == values
        return rows & 7

    return run


def _columns_corpus() -> list[bytes]:
    return [bytes((i & 3,)) + item for i, item in enumerate(batches_corpus())]


READERS = (
    Reader(
        name="kernels",
        reads="uncompressed batches by the compiled kernels, with guards around what they write",
        make=_make_kernels,
        corpus=_kernel_corpus,
        refusals=(),
        fixup=Fixup.BATCHES,
        max_size=420,
        headroom=512 << 20,
    ),
    Reader(
        name="columns",
        reads="batches as Arrow columns",
        make=_make_columns,
        corpus=_columns_corpus,
        fixup=Fixup.BATCHES,
        prefix=1,
        max_size=360,
        memory_base=128 << 20,
        headroom=6 << 30,
    ),
)
