"""The checker of cleaned logs: what a replica may lack, and what it must not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.model.types import Offset
from holdfast.records.markers import EndMarker, encode_marker
from holdfast.records.record import Record, encode_batch
from tests.simulation.compacted import KeyTruth, whats_wrong

KEPT_S = 20.0
Write = tuple[int, str, str | None]
"""Producer id (0: of no transaction), key, value."""


class Piece:
    """What a log gives to read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        return self._data


class Shown:
    """A log with these batches, as far as the checker reads it: also its own view."""

    def __init__(self, batches: Sequence[bytes], end: Offset, aborted: Sequence[tuple[int, Offset]] = ()) -> None:
        self.view = self
        self.start_offset, self._end = 0, end
        self._batches, self._aborted = batches, list(aborted)

    def last_stable(self, high_watermark: Offset) -> Offset:
        return min(high_watermark, self._end)

    def read(self, offset: Offset, max_bytes: int, limit: Offset, *, blocking: bool) -> Piece | None:
        left = [b for b in self._batches if int.from_bytes(b[:8], "big") >= offset]
        return Piece(b"".join(left)) if left else None

    def aborted(self, piece: Piece, limit: Offset, *, blocking: bool) -> list[tuple[int, Offset]]:
        return self._aborted


def written(offset: Offset, producer_id: int, key: str, value: str | None) -> bytes:
    record = Record(
        offset=offset, timestamp=0, key=key.encode(), value=None if value is None else value.encode(), headers=()
    )
    if not producer_id:
        return bytes(encode_batch([record], base_offset=offset))
    return bytes(
        encode_batch(
            [record], base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
        )
    )


def ended(offset: Offset, producer_id: int, *, commit: bool) -> bytes:
    batch = encode_marker(producer_id, 0, EndMarker(commit, 0), 0)
    batch[:8] = offset.to_bytes(8, "big")
    return bytes(batch)


BATCHES = [
    written(0, 0, "a", "1"),
    written(1, 7, "a", "2"),
    written(2, 8, "b", "3"),
    ended(3, 7, commit=True),
    ended(4, 8, commit=False),
    written(5, 0, "c", "4"),
    written(6, 0, "c", None),
]
ABORTED = [(8, 2)]


def wrong(kept: Sequence[int], now_s: float = 5.0, aborted: Sequence[tuple[int, Offset]] = ABORTED) -> str | None:
    """What the checker says of a log that has these batches left."""
    truth = KeyTruth()
    truth.take(b"".join(BATCHES), 0.0)
    return whats_wrong(truth, Shown([BATCHES[i] for i in kept], 7, aborted), 7, now_s, KEPT_S)


@pytest.mark.parametrize("kept", [(0, 1, 2, 3, 4, 5, 6), (1, 3, 4, 5, 6), (1, 3, 6), (1, 2, 3, 4, 6)])
def test_what_is_superseded_or_aborted_may_go(kept: Sequence[int]) -> None:
    assert wrong(kept) is None


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ((0, 3, 6), "a reader sees what stood at 0, the newest is at 1"),
        ((3, 6), "a reader sees nothing, the newest is at 1"),
        ((1, 6), "lacks its marker"),
        ((1, 2, 3, 6), "lacks its marker"),
        ((1, 3, 5), "a reader sees what stood at 5, the newest is at 6"),
        ((1, 3), "the tombstone of key b'c' at 6 is gone"),
    ],
)
def test_what_is_the_newest_stays(kept: Sequence[int], words: str) -> None:
    assert words in str(wrong(kept))


def test_a_tombstone_may_go_in_the_end_and_nothing_of_its_key_comes_back() -> None:
    assert wrong((1, 3), now_s=KEPT_S) is None
    assert "a reader sees what stood at 5" in str(wrong((1, 3, 5), now_s=KEPT_S))


def test_what_was_aborted_does_not_come_back() -> None:
    assert "is not what is committed there" in str(wrong((1, 2, 3, 4, 6), aborted=()))
