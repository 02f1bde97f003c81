"""Values in Avro's binary form to typed Arrow columns, in bulk.

    decoder = AvroDecoder.parse(written, read)     texts of schemas (.avsc); the second may be left out
    decoder.decode(columns.arrays["value"])        Decoded: columns of the schema that is read

One value is one datum without a header; values behind a schema registry's prefix: confluent.py. Types: avro_schema.py.
What is said by the writer and the reader each: avro_program.py.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from holdfast.records.kernels.avro import OP_FIELDS
from holdfast.records.typed.avro_program import compile_program
from holdfast.records.typed.avro_schema import MAX_PRECISION, AvroType, arrow_type, parse
from holdfast.records.typed.decoding import Decoded, UnknownField
from holdfast.records.typed.filling import decoded, fill
from holdfast.records.typed.spans import Spans

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


@cache
def decimal_limits() -> Array:
    """uint8, 32 bytes for each precision from 0: 10^p - 1 and 10^p - 2, big-endian (negative: the second)."""
    numbers = ((10**p - 1, max(0, 10**p - 2)) for p in range(MAX_PRECISION + 1))
    return np.frombuffer(b"".join(n.to_bytes(16, "big") for pair in numbers for n in pair), np.uint8).copy()


class AvroDecoder:
    """Of values of one writer's schema. Pure; may be used by several threads at once."""

    def __init__(
        self, writer: AvroType, reader: AvroType, names: Sequence[str] | None = None, kernels: Any = None
    ) -> None:
        """SchemaError if values of the one can never be read as the other."""
        if kernels is None:
            from holdfast.records.kernels import avro as kernels
        self._writer, self._reader, self._names, self._kernels = writer, reader, names, kernels
        self._program = compile_program(writer, reader, names)
        chosen = {each.name: each.type for each in reader.fields}
        wanted = chosen if names is None else names
        self.schema = pa.schema([(name, arrow_type(chosen[name], name)) for name in wanted])
        self._code = np.array(self._program.code, np.int64).reshape(-1)
        self._tables = np.array(self._program.tables or [0], np.int64)
        assert len(self._code) == OP_FIELDS * len(self._program.paths)

    @classmethod
    def parse(cls, writer: str, reader: str | None = None, kernels: Any = None) -> "AvroDecoder":
        """From the texts of the schemas. Without ``reader`` all is read as it was written."""
        written = parse(writer)
        return cls(written, written if reader is None else parse(reader), kernels=kernels)

    def __reduce__(self) -> tuple[Any, ...]:
        # Kernels are a module: other processes have theirs.
        return AvroDecoder, (self._writer, self._reader, self._names)

    def decode(self, values: pa.Array) -> Decoded:
        """Decodes a binary array (32-bit offsets, as records/columns.py makes it; slices too)."""
        return self.decode_spans(Spans.of(values))

    def decode_spans(self, spans: Spans) -> Decoded:
        program, view = self._program, self._kernels.as_target
        left = view(np.zeros(max(1, program.depth), np.int64))
        fixed = (view(self._code), view(self._tables), view(decimal_limits()))

        def call(source: Any, starts: Any, stops: Any, present: Any, *filled: Any) -> int:
            *buffers, unknown, faults = filled
            done: int = self._kernels.decode_values(
                source, starts, stops, present, *fixed, *buffers, left, unknown, faults
            )
            return done

        run = fill(
            program.layout, spans, self._kernels, np.tile(np.array([0, -1], np.int64), len(program.unknown)), call
        )
        unknown = {
            name: UnknownField(rows=int(rows), type=kind)
            for (name, kind), rows in zip(program.unknown.items(), run.unknown[::2], strict=True)
            if rows
        }
        return decoded(run, program.outputs, program.paths.__getitem__, unknown)

    def narrowed(self, names: Sequence[str]) -> "AvroDecoder":
        """One that answers these columns only. What is behind the last of them in a value is not looked at, and unknown
        fields are not counted. KeyError for a name that the schema has not."""
        known = [each.name for each in self._reader.fields]
        missing = [name for name in names if name not in known]
        if missing:
            raise KeyError(f"the schema has no field {missing[0]!r}; it has {', '.join(known)}")
        return AvroDecoder(self._writer, self._reader, names, self._kernels)
