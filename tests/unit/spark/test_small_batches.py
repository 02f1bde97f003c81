"""Small batches are put together, large ones pass; rows and their order are as before."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.spark.small_batches import JOINED_ROWS, SMALL_BYTES, SMALL_ROWS, joined


def numbers(*sizes: int) -> list[pa.RecordBatch]:
    found, at = [], 0
    for size in sizes:
        found.append(pa.record_batch({"n": pa.array(range(at, at + size), pa.int64())}))
        at += size
    return found


@settings(deadline=None)
@given(st.lists(st.integers(0, 2 * SMALL_ROWS), max_size=40))
def test_rows_and_their_order_stay(sizes: list[int]) -> None:
    found = list(joined(numbers(*sizes)))
    assert [n for batch in found for n in batch["n"].to_pylist()] == list(range(sum(sizes)))


def test_thousands_of_small_batches_become_few() -> None:
    found = list(joined(numbers(*[5] * 5_000)))
    assert [each.num_rows for each in found] == [JOINED_ROWS, JOINED_ROWS, 5_000]


def test_a_large_batch_passes_as_it_is_after_those_before_it() -> None:
    first, second, large, last = numbers(1, 2, SMALL_ROWS, 3)
    found = list(joined([first, second, large, last]))
    assert [each.num_rows for each in found] == [3, SMALL_ROWS, 3]
    assert found[1] is large
    heavy = pa.record_batch({"n": pa.array([b"x" * SMALL_BYTES])})
    assert next(iter(joined([heavy]))) is heavy
