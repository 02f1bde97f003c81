"""One replica's segment files, read batch by batch, for the audit.

Owns reading and what a single replica can have wrong on its own. Never compares replicas, never writes.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from crc32c import crc32c

from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import Offset
from holdfast.records.batch import CRC_START, HEADER_SIZE, BatchHeader, iter_headers

Row: TypeAlias = tuple[Offset, Offset, int, int, int, str | None]
"""base offset, last offset, records, bytes, digest, problem (None: the row is a batch)."""

BLOCK_BYTES: Final = 4 << 20


def scan_replica(directory: Path, start: Offset, high_watermark: Offset, *, compacted: bool) -> Iterator[Row]:
    """The batches with offsets in ``start <= offset < high_watermark``, and the replica's own problems."""
    segments = segment_files(directory)
    if not segments:
        if high_watermark > start:
            yield _problem(start, f"no segment files, expected offsets {start} to {high_watermark - 1}")
        return
    expected: Offset | None = None
    epoch = -1
    for number, (base, path) in enumerate(segments):
        after = segments[number + 1][0] if number + 1 < len(segments) else None
        if after is not None and after <= start:
            continue  # all below the log's start
        try:
            for position, block, at, header in read_batches(path):
                if header.base_offset >= high_watermark:
                    return
                if header.last_offset < start:
                    continue
                batch = block[at : at + header.size]
                where = f"{path.name}, byte {position + at}"
                if crc32c(batch[CRC_START:]) != header.crc:
                    yield _problem(header.base_offset, f"batch at offset {header.base_offset} fails its CRC ({where})")
                if expected is None and header.base_offset > start and not compacted:
                    yield _problem(start, f"begins at offset {header.base_offset}, expected {start} ({where})")
                if expected is not None and (
                    header.base_offset < expected or (header.base_offset > expected and not compacted)
                ):
                    yield _problem(expected, f"offset {header.base_offset} follows {expected - 1} ({where})")
                if header.partition_leader_epoch < epoch:
                    yield _problem(
                        header.base_offset, f"leader epoch {header.partition_leader_epoch} follows {epoch} ({where})"
                    )
                if header.base_offset < base:
                    yield _problem(header.base_offset, f"offset {header.base_offset} in segment {path.name}")
                expected, epoch = header.next_offset, max(epoch, header.partition_leader_epoch)
                digest = int.from_bytes(hashlib.blake2b(batch, digest_size=8).digest(), "big", signed=True)
                yield header.base_offset, header.last_offset, header.record_count, header.size, digest, None
        except CorruptRecordError as error:
            yield _problem(expected or base, f"{path.name} cannot be read on after offset {expected}: {error}")
            return
    reached = expected if expected is not None else start
    if reached < high_watermark and not compacted:
        yield _problem(reached, f"ends at offset {reached}, before the high watermark {high_watermark}")


def segment_files(directory: Path) -> list[tuple[Offset, Path]]:
    """Base offset and path of each segment, in order."""
    found = [(int(each.stem), each) for each in directory.glob("*.log") if each.stem.isdecimal()]
    return sorted(found)


def read_batches(path: Path) -> Iterator[tuple[int, memoryview, int, BatchHeader]]:
    """(position of the block, block, place in the block, header) of each whole batch of a file."""
    handle = os.open(path, os.O_RDONLY)
    try:
        position, wanted = 0, BLOCK_BYTES
        while True:
            block = memoryview(os.pread(handle, wanted, position))
            if len(block) < HEADER_SIZE or not any(block[:HEADER_SIZE]):
                return  # the end, or space that was reserved for what comes
            done = 0
            for at, header in iter_headers(block):
                yield position, block, at, header
                done = at + header.size
            if not done:
                if len(block) < wanted:
                    return  # a batch that is being written
                wanted *= 4  # a batch larger than the block
                continue
            position, wanted = position + done, BLOCK_BYTES
    finally:
        os.close(handle)


def _problem(offset: Offset, text: str) -> Row:
    return offset, offset, 0, 0, 0, text
