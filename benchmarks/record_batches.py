"""CPU of decoding a fetched chunk to columns, by the number of records in its record batches.

python -m benchmarks.record_batches                1, 10, 100 and 1,000 records of 100 B in each
"""

from __future__ import annotations

import argparse
import json
import time

from benchmarks import machine
from holdfast.records.columns import COLUMN_TYPES, Chunk, ColumnDecoder
from holdfast.records.compression import Codec
from holdfast.records.record import BatchBuilder

COLUMNS = tuple(name for name in COLUMN_TYPES if name != "headers")


def chunk_of(records: int, in_batch: int, codec: Codec) -> bytes:
    parts = []
    for base in range(0, records, in_batch):
        builder = BatchBuilder(base_offset=base, codec=codec)
        for offset in range(base, min(records, base + in_batch)):
            builder.append(b"key-%012d" % offset, (b"value-%d" % offset).ljust(100, b"x"), 1_700_000_000_000, [])
        parts.append(bytes(builder.build()))
    return b"".join(parts)


def measure(records: int, in_batch: int, codec: Codec, passes: int) -> float:
    """Microseconds of CPU a record: the best pass."""
    data, decoder, best = chunk_of(records, in_batch, codec), ColumnDecoder(COLUMNS), float("inf")
    for _ in range(passes):
        began = time.process_time()
        rows = sum(each.rows for each in decoder.decode(Chunk.scan(data), start=0, end=records))
        best = min(best, time.process_time() - began)
        assert rows == records
    return best / records * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--passes", type=int, default=20)
    args = parser.parse_args()
    print(json.dumps({"commit": machine.commit(), **machine.describe()}))
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        found = {n: measure(args.records, n, codec, args.passes) for n in (1, 10, 100, 1_000)}
        print(f"{codec.name.lower():>5}: " + ", ".join(f"{n}: {cost:.3f} us" for n, cost in found.items()))


if __name__ == "__main__":
    main()
