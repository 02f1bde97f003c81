"""Protobuf messages behind a schema registry's prefix.

Behind the id stands which message of the schema's file the value is: its place in the file, then its place in that
message, and so on (a count and the places, zigzag varints; one 0 for the file's first message). Values say themselves
which field is which, so they are decoded by the reader's message, whatever the id; the writer's schema tells which
message it is, and the names of the fields that the reader has not.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.records.typed.confluent import (
    Array,
    Latest,
    Prefixed,
    SchemaGroup,
    Together,
    same_reason,
)
from holdfast.records.typed.decoding import Decoded
from holdfast.records.typed.protobuf import ProtobufDecoder
from holdfast.records.typed.protobuf_files import Descriptor, registered_message
from holdfast.records.typed.registered import Lookup
from holdfast.records.typed.schema_error import SchemaError
from holdfast.records.typed.spans import Spans

_NO_INDEX = "there are no message indexes behind the schema id"


class RegistryProtobufDecoder:
    """Values of any schemas of a registry that are the same message, as the columns of a message of our own."""

    def __init__(self, decoder: ProtobufDecoder, lookup: Lookup) -> None:
        """``decoder`` has the columns, and is of the message (by its full name) that values have to be."""
        from holdfast.records.kernels import indexes

        self._decoder, self._lookup, self._sizes = decoder, lookup, indexes
        self.schema = decoder.schema
        self._writers: Latest[tuple[int, bytes], Descriptor | str] = Latest()

    def __reduce__(self) -> tuple[Any, ...]:
        return RegistryProtobufDecoder, (self._decoder, self._lookup)

    def decode(self, values: pa.Array) -> Decoded:
        """Decodes a binary array (32-bit offsets, as records/columns.py makes it; slices too).

        What the lookup raises is raised: then nothing is said of the values.
        """
        prefixed = Prefixed.of(Spans.of(values))
        rows = np.flatnonzero(prefixed.ids >= 0)
        spans = prefixed.spans.rows(rows)
        sizes = np.zeros(max(1, len(rows)), np.int64)
        view = self._sizes.as_target
        self._sizes.index_sizes(self._sizes.as_source(spans.source), view(spans.starts), view(spans.stops), view(sizes))
        sizes = sizes[: len(rows)]
        lost = rows[sizes == 0].astype(np.int64)
        together = Together(
            self.schema, len(values), [], [(prefixed.bad, prefixed.why), (lost, partial(same_reason, _NO_INDEX))]
        )
        for number, index, which in _groups(prefixed.ids[rows], spans, sizes):
            writer = self._writer(number, index)
            if isinstance(writer, str):
                together.wrong.append((rows[which], partial(same_reason, writer)))
                continue
            found = spans.rows(which)
            inner = Spans(
                source=found.source, starts=found.starts + len(index), stops=found.stops, present=found.present
            )
            together.groups.append(SchemaGroup(rows=rows[which], decoded=self._decoder.decode_spans(inner, writer)))
        return together.decoded()

    def narrowed(self, names: Sequence[str]) -> "RegistryProtobufDecoder":
        """One that answers these columns only. KeyError for a name that the message has not."""
        return RegistryProtobufDecoder(self._decoder.narrowed(names), self._lookup)

    def _writer(self, number: int, index: bytes) -> Descriptor | str:
        """The message of the values with this id and these indexes, or why they are bad."""
        kept = self._writers.get((number, index))
        if kept is not None:
            return kept
        found = self._lookup(number)
        if found is None:
            return f"the registry knows no schema {number}"  # not kept: it may be registered in a moment
        made: Descriptor | str
        try:
            if found.kind != "PROTOBUF":
                raise SchemaError(f"it is of type {found.kind}, expected PROTOBUF")
            made = registered_message(found.text, found.references, _places(index))
            wanted = self._decoder.message.full_name
            if made.full_name != wanted:
                raise SchemaError(f"the value is a {made.full_name}, expected {wanted}")
        except SchemaError as error:
            made = f"schema {number}: {error}"
        self._writers.put((number, index), made)
        return made


def _groups(ids: Array, spans: Spans, sizes: Array) -> Iterator[tuple[int, bytes, Array]]:
    """Rows with the same id and the same bytes of indexes: (id, bytes, rows)."""
    for size in np.unique(sizes[sizes > 0]).tolist():
        rows = np.flatnonzero(sizes == size)
        heads = spans.source[spans.starts[rows][:, None] + np.arange(size)].astype(np.int64)
        keys, which = np.unique(np.column_stack([ids[rows], heads]), axis=0, return_inverse=True)
        for at, key in enumerate(keys.tolist()):
            yield key[0], bytes(key[1:]), rows[which.reshape(-1) == at]


def _places(index: bytes) -> list[int]:
    """The numbers in the bytes, which the kernel has found to be whole."""
    numbers, value, shift = [], 0, 0
    for byte in index:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append((value >> 1) ^ -(value & 1))
            value = shift = 0
    return numbers[1:] or [0]
