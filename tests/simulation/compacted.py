"""What is committed of a compacted partition, and whether a replica's log, cleaned or not, still says it.

    truth    every committed batch as its leader had it before any cleaning: the newest of each key, transactions
    check    one replica as a reader of committed records sees it, against that

What must be so: nothing is read that is not committed, or that was aborted; the newest record of each key is there, or,
if it is a tombstone that was kept for delete.retention.ms, nothing of its key; a batch of a transaction that has ended
has its marker. Independent of the code that cleans.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.model.types import Offset
from holdfast.records.batch import iter_headers
from holdfast.records.markers import decode_committed, decode_marker
from holdfast.records.record import Record, iter_batch

PIECE = 1 << 20


class Newest(NamedTuple):
    """The newest committed record of a key, and since when it is committed."""

    offset: Offset
    value: bytes | None
    at_s: float


class Ended(NamedTuple):
    """A transaction with its marker."""

    first: Offset
    marker: Offset


@dataclass(slots=True)
class KeyTruth:
    """See the module's docstring. ``end``: all before it is known."""

    end: Offset = 0
    is_lost: bool = False
    """Some of it could not be read when it was committed."""
    visible: dict[Offset, tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    """What a reader of committed records may see."""
    newest: dict[bytes, Newest] = field(default_factory=dict)
    ended: dict[int, list[Ended]] = field(default_factory=dict)
    """By producer id, in order."""
    _open: dict[int, tuple[Offset, list[Record]]] = field(default_factory=dict)

    def take(self, data: bytes, now_s: float) -> None:
        """The batches that follow."""
        view = memoryview(data)
        for at, header in iter_headers(view):
            if header.base_offset < self.end:
                continue
            self.end = header.next_offset
            batch = view[at : at + header.size]
            if header.is_control:
                marker = decode_marker(batch, header)
                if marker is not None:
                    self._finish(header.producer_id, header.base_offset, marker.is_commit, now_s)
                continue
            records = list(iter_batch(batch))
            if header.is_transactional:
                self._open.setdefault(header.producer_id, (header.base_offset, []))[1].extend(records)
            else:
                self._commit(records, now_s)

    def _finish(self, producer_id: int, offset: Offset, is_commit: bool, now_s: float) -> None:
        found = self._open.pop(producer_id, None)
        if found is None:
            return
        first, records = found
        self.ended.setdefault(producer_id, []).append(Ended(first, offset))
        if is_commit:
            self._commit(records, now_s)

    def _commit(self, records: list[Record], now_s: float) -> None:
        for record in records:
            key = None if record.key is None else bytes(record.key)
            value = None if record.value is None else bytes(record.value)
            self.visible[record.offset] = key, value
            if key is None:
                continue
            known = self.newest.get(key)
            if known is None or known.offset < record.offset:
                self.newest[key] = Newest(record.offset, value, now_s)

    def stable(self) -> Offset:
        """Where the oldest transaction begins that is open."""
        return min((first for first, _ in self._open.values()), default=self.end)


def whats_wrong(
    truth: KeyTruth, log: Any, high_watermark: Offset, now_s: float, retention_s: float | None
) -> str | None:
    """The first thing that a reader of this replica would see and must not, or would miss; None: nothing.
    ``retention_s`` None: clocks jumped, so tombstones may be gone at any time."""
    view = log.view
    limit = min(view.last_stable(high_watermark), truth.stable())
    seen: dict[bytes, Record] = {}
    batches: list[tuple[int, Offset]] = []
    markers: dict[int, list[Offset]] = {}
    at = view.start_offset
    while at < limit:
        piece = log.read(at, PIECE, limit, blocking=True)
        if piece is None:
            break
        aborted = log.aborted(piece, limit, blocking=True)
        data = piece.read()
        for _, header in iter_headers(data):
            if header.next_offset <= at:
                continue
            if header.is_control:
                markers.setdefault(header.producer_id, []).append(header.base_offset)
            elif header.is_transactional:
                batches.append((header.producer_id, header.base_offset))
        for record in decode_committed(data, aborted):
            if not at <= record.offset < limit:
                continue
            key = None if record.key is None else bytes(record.key)
            value = None if record.value is None else bytes(record.value)
            if truth.visible.get(record.offset) != (key, value):
                return f"offset {record.offset} is read as {key!r}: {value!r}, which is not what is committed there"
            if key is not None:
                seen[key] = record
        at = max(h.next_offset for _, h in iter_headers(data))
    return _markers_missing(truth, batches, markers, limit) or _keys_missing(
        truth, seen, view.start_offset, limit, now_s, retention_s
    )


def _markers_missing(
    truth: KeyTruth, batches: list[tuple[int, Offset]], markers: dict[int, list[Offset]], limit: Offset
) -> str | None:
    for producer_id, offset in batches:
        ends = [e for e in truth.ended.get(producer_id, ()) if e.first <= offset < e.marker < limit]
        if ends and ends[0].marker not in markers.get(producer_id, ()):
            return f"the batch at {offset} of producer {producer_id} lacks its marker, which stood at {ends[0].marker}"
    return None


def _keys_missing(
    truth: KeyTruth, seen: dict[bytes, Record], start: Offset, limit: Offset, now_s: float, retention_s: float | None
) -> str | None:
    for key, newest in truth.newest.items():
        if not start <= newest.offset < limit:
            continue
        found = seen.get(key)
        if found is not None and found.offset == newest.offset:
            continue
        if newest.value is None and found is None:
            if retention_s is None or now_s - newest.at_s >= retention_s:
                continue
            return (
                f"the tombstone of key {key!r} at {newest.offset} is gone {now_s - newest.at_s:.1f} s after it was "
                f"committed, delete.retention.ms is {retention_s:g} s"
            )
        there = "nothing" if found is None else f"what stood at {found.offset}"
        return f"of key {key!r} a reader sees {there}, the newest is at {newest.offset}: {newest.value!r}"
    return None
