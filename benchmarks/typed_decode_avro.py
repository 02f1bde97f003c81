"""Avro values to Arrow columns beside fastavro, one record after the other, in turn and in one process.

    python -m benchmarks.typed_decode_avro [--rows 200000] [--passes 5]

One thread each; CPU time of the process, the best of the passes. fastavro makes Python dictionaries of the same values;
"to Arrow" adds the columns made of them, which is what a pandas_udf needs too. Equality is checked in the same run.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa

from holdfast.records.typed.avro import AvroDecoder

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def values(rows: int) -> list[bytes]:
    """Of 100 bytes, give or take what the numbers need."""
    schema = fastavro.parse_schema(SCHEMA)
    found = []
    for n in range(rows):
        out = io.BytesIO()
        row = {"id": n * 1000, "customer": f"customer-{n:07}", "price": n / 7, "note": "x" * 70 if n % 8 else None}
        fastavro.schemaless_writer(out, schema, row)
        found.append(out.getvalue())
    return found


def cpu(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--passes", type=int, default=5)
    chosen = parser.parse_args()
    raw = values(chosen.rows)
    array, schema = pa.array(raw, pa.binary()), fastavro.parse_schema(SCHEMA)
    decoder = AvroDecoder.parse(json.dumps(SCHEMA))
    narrow = decoder.narrowed(["id"])
    start = time.perf_counter()
    decoder.decode(array.slice(0, 1))
    print(f"first call {time.perf_counter() - start:.2f} s (compiles, or loads what an earlier run compiled)")

    def theirs() -> list[Any]:
        return [fastavro.schemaless_reader(io.BytesIO(value), schema) for value in raw]

    ways: dict[str, Callable[[], Any]] = {
        "holdfast": lambda: decoder.decode(array),
        "holdfast, one column": lambda: narrow.decode(array),
        "fastavro": theirs,
        "fastavro to Arrow": lambda: pa.Table.from_pylist(theirs(), decoder.schema),
    }
    best = {name: min(cpu(work) for _ in range(chosen.passes)) for name, work in ways.items()}
    size = sum(map(len, raw)) / chosen.rows
    print(f"{chosen.rows} records of {size:.0f} bytes on average, 4 fields; CPU of one thread, best of {chosen.passes}")
    for name, seconds in best.items():
        ratio = seconds / best["holdfast"]
        print(f"{name:<22}{seconds / chosen.rows * 1e6:>8.3f} us a record {ratio:>8.1f} times")
    assert pa.table(decoder.decode(array).columns).to_pylist() == theirs(), "what was decoded differs"


if __name__ == "__main__":
    main()
