"""Records out of batches, for a page: those from an offset on, those that contain a text. Pure.

A batch is looked through whole for the text before any record of it is made, so that a search costs a record nothing
where nothing is found.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holdfast.model.types import Offset
from holdfast.records.batch import HEADER_SIZE, BatchHeader
from holdfast.records.compression import DEFAULT_LIMIT, Codec, decompress
from holdfast.records.markers import committed_batches
from holdfast.records.record import Record, iter_batch


@dataclass(slots=True)
class Scanned:
    """What one answer of a fetch had: ``records`` that are wanted, how many there were, where the next begins."""

    records: list[Record]
    seen: int
    following: Offset


def scan(
    data: memoryview,
    aborted: Iterable[tuple[int, Offset]],
    start: Offset,
    *,
    needle: bytes,
    most: int,
    end: Offset | None = None,
) -> Scanned:
    """The first ``most`` records from ``start`` on and before ``end`` with ``needle`` in key, value or headers.

    ``following`` is behind the last record that was looked at. Errors of batches that cannot be read are raised.
    """
    found = Scanned([], 0, start)
    for header, batch in committed_batches(data, aborted):
        if header.next_offset <= start:
            continue
        if end is not None and header.base_offset >= end:
            found.following = end
            return found
        count = header.record_count
        if not _may_contain(header, batch, needle):
            found.seen += count
            found.following = header.next_offset
            continue
        for record in _between(iter_batch(batch), start, end):
            found.seen += 1
            if contains(record, needle):
                found.records.append(record)
                if len(found.records) == most:
                    found.following = record.offset + 1
                    return found
        found.following = header.next_offset if end is None else min(end, header.next_offset)
    return found


def _may_contain(header: BatchHeader, batch: memoryview, needle: bytes) -> bool:
    if not needle:
        return True
    payload = decompress(Codec.numbered(header.compression), batch[HEADER_SIZE : header.size], DEFAULT_LIMIT)
    return needle in bytes(payload)


def _between(records: Iterable[Record], start: Offset, end: Offset | None) -> Iterator[Record]:
    for record in records:
        if record.offset >= start and (end is None or record.offset < end):
            yield record


def contains(record: Record, needle: bytes) -> bool:
    """In its key, its value, the name or the value of a header; nothing is in everything."""
    if not needle or needle in (record.key or b"") or needle in (record.value or b""):
        return True
    return any(needle in name.encode() or needle in (value or b"") for name, value in record.headers)
