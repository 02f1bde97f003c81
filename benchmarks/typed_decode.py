"""Values to typed columns: CPU per record of each decoder, one thread, beside Python's own way record by record.

    python -m benchmarks.typed_decode                         100 B and 1 KiB; Avro is in typed_decode_avro.py
    python -m benchmarks.typed_decode --records 200000 --only json

Nothing is read from a disk or a broker: it is the decoder alone. Passes take turns, the best of them counts, in CPU
time of the thread, so that others on the machine disturb less. Each pass's columns must have the same sums.

A format is an entry of FORMATS: how to make a value of so many bytes, one that is bad, what decodes it in bulk, and
what does so one by one.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from benchmarks import machine
from holdfast.records.typed.decoding import ValueDecoder
from holdfast.records.typed.json import JsonDecoder

DISTINCT = 20_000
BAD_SHARE = 0.01
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("text", pa.string())])
Sums = tuple[int, float, int]
"""Of id, of price, and the bytes of name and text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    value: Callable[[random.Random, int], bytes]
    """Makes a value of so many bytes with the fields of COLUMNS."""
    bad: bytes
    decoder: Callable[[], ValueDecoder]
    one_by_one: Callable[[bytes], dict[str, Any]]
    """Raises ValueError for a bad value."""
    others: tuple[tuple[str, Callable[[pa.Array], pa.Table]], ...] = ()
    """Other ways, which need not stand bad values."""


def json_value(source: random.Random, size: int) -> bytes:
    value = {
        "id": source.getrandbits(40),
        "name": f"n{source.randrange(10**6)}",
        "price": source.randrange(10**6) / 100,
    }
    room = size - len(json.dumps({**value, "text": ""}, separators=(",", ":")))
    padding = f"{source.getrandbits(4 * room):0{room}x}"[: room // 2].ljust(room, "x")
    return json.dumps({**value, "text": padding}, separators=(",", ":")).encode()


def arrow_json(values: pa.Array) -> pa.Table:
    """pyarrow.json over one buffer of lines; values without newlines only."""
    lines = pa.py_buffer(b"\n".join(values.to_pylist()))
    options = pa.json.ParseOptions(explicit_schema=COLUMNS)
    read = pa.json.ReadOptions(use_threads=False, block_size=max(1 << 20, lines.size))
    return pa.json.read_json(pa.BufferReader(lines), read, options)


FORMATS = {
    "json": Format(
        value=json_value,
        bad=b'{"id":"x","name":"n","price":1.5,"text":"' + b"x" * 60 + b'"}',
        decoder=lambda: JsonDecoder(COLUMNS),
        one_by_one=json.loads,
        others=(("pyarrow.json", arrow_json),),
    ),
}


def sums(columns: Any) -> Sums:
    """Of columns by name: a mapping or a table."""
    text = sum(pc.sum(pc.binary_length(columns[name])).as_py() for name in ("name", "text"))
    return pc.sum(columns["id"]).as_py(), round(pc.sum(columns["price"]).as_py(), 2), text


def one_by_one(form: Format, values: pa.Array) -> Sums:
    """A Python object per record, as user code does it."""
    ids, price, text = 0, 0.0, 0
    for value in values.to_pylist():
        try:
            row = form.one_by_one(value)
            number = row["id"] + 0
        except (ValueError, TypeError):
            continue
        ids += number
        price += row["price"]
        text += len(row["name"]) + len(row["text"])
    return ids, round(price, 2), text


def measured(work: dict[str, Callable[[], Sums]], records: int, passes: int) -> dict[str, float]:
    """Microseconds of CPU per record, the best pass of each, in turn."""
    best: dict[str, float] = {}
    answers = {}
    for _ in range(passes + 1):  # the first one compiles
        for name, run in work.items():
            started = time.thread_time()
            answer = run()
            spent = (time.thread_time() - started) / records * 1e6
            best[name] = min(best.get(name, spent), spent)
            ids, price, text = answers.setdefault(name, answer)
            assert (ids, text) == (answer[0], answer[2]) and abs(price - answer[1]) < 1
    return best


def run_format(name: str, form: Format, records: int, sizes: list[int], passes: int) -> None:
    decoder = form.decoder()
    source = random.Random(12)
    for size in sizes:
        distinct = [form.value(source, size) for _ in range(DISTINCT)]
        clean = [distinct[i % DISTINCT] for i in range(records)]
        every = int(1 / BAD_SHARE)
        dirty = [form.bad if i % every == 7 else value for i, value in enumerate(clean)]
        batches = {"clean": pa.array(clean, pa.binary()), "1 % bad": pa.array(dirty, pa.binary())}
        for what, values in batches.items():
            work: dict[str, Callable[[], Sums]] = {
                "holdfast": lambda values=values: sums(decoder.decode(values).columns),  # type: ignore[misc]
                "one by one": lambda values=values: one_by_one(form, values),  # type: ignore[misc]
            }
            for other, run in form.others if what == "clean" else ():
                work[other] = lambda run=run, values=values: sums(run(values))  # type: ignore[misc]
            best = measured(work, records, passes)
            told = ", ".join(f"{way} {spent:.2f}" for way, spent in best.items())
            print(f"{name} {size} B, {what}: us of CPU per record: {told}")
            same = {(run()[0], run()[2]) for run in work.values()}
            assert len(same) == 1, f"the ways differ: {same}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--value-bytes", type=int, nargs="+", default=[100, 1024])
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--only", choices=FORMATS, action="append")
    asked = parser.parse_args()
    print(json.dumps(machine.describe()))
    for name in asked.only or FORMATS:
        run_format(name, FORMATS[name], asked.records, asked.value_bytes, asked.passes)


if __name__ == "__main__":
    main()
