"""The JSON of what has no column: an object for each row that has such members.

A field with a column of objects in which something is unknown stands there as a whole: nothing is lost, and what the
text means does not depend on the column.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.records.kernels import json_fill as fill
from holdfast.records.kernels import json_scan as k
from holdfast.records.kernels.jit import as_target
from holdfast.records.typed.json_spans import MOST_BYTES, Array, MemberSpans, spans_text


def has_objects(kind: pa.DataType) -> bool:
    """Whether something can be unknown within values of this type."""
    return bool(pa.types.is_struct(kind)) or (bool(pa.types.is_list(kind)) and has_objects(kind.value_type))


def rest_of(found: list[MemberSpans]) -> pa.Array:
    """Of values and what is within them, as MemberSpans.all() has it; null where nothing is unknown. ValueError if
    it is more than a column can hold."""
    spans, within = found[0], found[1:]
    rows = len(spans.status)
    lost: dict[int, Array] = {}
    for each in within:
        if len(each.unknown):
            lost.setdefault(each.column, np.zeros(rows, bool))[each.within(each.unknown[:, 0])] = True
    plain = _of_members(spans.unknown, spans, rows)
    if not lost:
        return plain
    pieces = [pc.utf8_slice_codeunits(plain, 1, -1)]
    for column, chosen in lost.items():
        kinds = np.where(chosen, spans.kinds[column], np.uint8(k.ABSENT))
        text = spans_text(spans.source, spans.starts[column], spans.ends[column], kinds)
        name = json.dumps(spans.names[column], ensure_ascii=False)
        pieces.append(pc.binary_join_element_wise(pa.scalar(f",{name}:"), text, ""))
    joined = pc.binary_join_element_wise(*(pc.fill_null(each, "") for each in pieces), "")
    whole = pc.binary_join_element_wise(pa.scalar("{"), pc.utf8_ltrim(joined, ","), pa.scalar("}"), "")
    some = np.logical_or.reduce([np.asarray(plain.is_valid().to_numpy(zero_copy_only=False)), *lost.values()])
    return pc.if_else(pa.array(some), whole, pa.scalar(None, pa.string()))


def _of_members(unknown: Array, spans: MemberSpans, rows: int) -> pa.Array:
    # Name and value with quotes, colon, and comma or brace.
    size = int((unknown[:, 2] - unknown[:, 1] + unknown[:, 4] - unknown[:, 3] + 7).sum(dtype=np.int64)) + 1
    if size > MOST_BYTES:
        raise ValueError(f"{rows} values have {size} bytes that no column is for: decode fewer at a time")
    out, ends, present = np.empty(size, np.uint8), np.zeros(rows + 1, np.int32), np.zeros(rows, np.uint8)
    used = fill.fill_rest(spans.source, unknown, len(unknown), rows, as_target(out), ends, present)
    valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [valid, pa.py_buffer(ends), pa.py_buffer(out[:used])]
    return pa.Array.from_buffers(pa.string(), rows, buffers, rows - int(present.sum()))
