"""What is in the files of a replica's directory: batches, records, entries of indexes, producers; one by one.

Owns reading them for people: never writes, knows no broker, and holds one batch, or one block, in memory. What is none
of that is a Damage, with its byte.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import IO, Final, NamedTuple, TypeAlias

from crc32c import crc32c

from holdfast.model.errors import CorruptRecordError, HoldfastError
from holdfast.model.types import Offset, TimestampMs
from holdfast.records.batch import HEADER_SIZE, BatchHeader, crc_ok, parse_header
from holdfast.records.markers import EndMarker, decode_marker
from holdfast.records.record import Record, iter_batch
from holdfast.storage.segment_names import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, offset_of

SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT)
BLOCK_ENTRIES: Final = 4096
_INDEX = Struct(">II")
_TIME = Struct(">qI")
_TXN = Struct(">hqqqq")
_SNAPSHOT_HEAD = Struct(">hI")
_SNAPSHOT_COUNT = Struct(">i")
_PRODUCER = Struct(">qhiqiqiq")
_SNAPSHOT_VERSION: Final = 1


class BatchAt(NamedTuple):
    """A batch of a .log file, at that byte; ``is_valid``: its CRC is that of its bytes."""

    position: int
    header: BatchHeader
    is_valid: bool


class RecordRow(NamedTuple):
    """A record of the batch before it. ``marker``: what a record of a control batch says."""

    header: BatchHeader
    record: Record
    marker: EndMarker | None


class PositionRow(NamedTuple):
    """Of an .index file."""

    offset: Offset
    position: int


class TimeRow(NamedTuple):
    """Of a .timeindex file."""

    timestamp: TimestampMs
    offset: Offset


class AbortRow(NamedTuple):
    """Of a .txnindex file."""

    version: int
    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class ProducerRow(NamedTuple):
    """Of a .snapshot file, as it stands there: -1 is none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: TimestampMs
    coordinator_epoch: int
    txn_first_offset: Offset


class Torn(NamedTuple):
    """Half a batch, or half an entry, at the end of a file: of an append that is under way, or was cut short."""

    size: int


class Damage(NamedTuple):
    """What no broker has written. ``fatal``: nothing more of the file can be read."""

    text: str
    fatal: bool


Row: TypeAlias = BatchAt | RecordRow | PositionRow | TimeRow | AbortRow | ProducerRow | Torn | Damage


def files_of(path: Path) -> list[Path]:
    """The file itself, or those of a directory that can be told of, by name. ValueError: there are none; OSError."""
    if not path.is_dir():
        if offset_of(path.name, path.suffix) is None or path.suffix not in SUFFIXES:
            expected = ", ".join(f"OFFSET{suffix}" for suffix in SUFFIXES)
            raise ValueError(f"{path}: expected a file with one of the names {expected}; OFFSET has 20 digits")
        return [path]
    found = sorted(each for each in path.iterdir() if offset_of(each.name, each.suffix) is not None)
    found = [each for each in found if each.suffix in SUFFIXES and each.is_file()]
    if not found:
        raise ValueError(f"{path}: no segment in it: expected the directory of a replica, like .../orders-0")
    return found


def rows_of(path: Path, *, records: bool = False) -> Iterator[Row]:
    """What is in the file, which has one of the names of ``files_of``. OSError."""
    base = offset_of(path.name, path.suffix)
    assert base is not None, path
    with open(path, "rb") as file:
        if path.suffix == LOG:
            yield from _batches(file, records)
        elif path.suffix == INDEX:
            for offset, position in _entries(file, _INDEX):
                yield PositionRow(base + offset, position)
        elif path.suffix == TIME_INDEX:
            for timestamp, offset in _entries(file, _TIME):
                yield TimeRow(timestamp, base + offset)
        elif path.suffix == TXN_INDEX:
            yield from map(AbortRow._make, _entries(file, _TXN, zeros_end=False))
        else:
            yield from _producers(file)
        yield from _left_over(path.suffix, os.fstat(file.fileno()).st_size)


def _left_over(suffix: str, size: int) -> Iterator[Torn]:
    entry = {INDEX: _INDEX, TIME_INDEX: _TIME, TXN_INDEX: _TXN}.get(suffix)
    if entry is not None and size % entry.size:
        yield Torn(size % entry.size)


def _entries(file: IO[bytes], entry: Struct, *, zeros_end: bool = True) -> Iterator[tuple[int, ...]]:
    """Whole entries. The file of an active segment has zeros behind the last one."""
    while block := file.read(entry.size * BLOCK_ENTRIES):
        for found in entry.iter_unpack(block[: len(block) - len(block) % entry.size]):
            if zeros_end and not any(found):
                return
            yield found


def _batches(file: IO[bytes], records: bool) -> Iterator[Row]:
    position, size = 0, os.fstat(file.fileno()).st_size
    while size - position >= HEADER_SIZE:
        head = file.read(HEADER_SIZE)
        if len(head) < HEADER_SIZE:  # it was cut meanwhile
            size = position + len(head)
            break
        try:
            header = parse_header(head)
        except CorruptRecordError as e:
            yield Damage(f"byte {position}: no batch: {e.message}", fatal=True)
            return
        if header.size > size - position:
            break
        batch = head + file.read(header.size - HEADER_SIZE)
        if len(batch) < header.size:
            size = position + len(batch)
            break
        is_valid = crc_ok(batch, 0, header)
        yield BatchAt(position, header, is_valid)
        if not is_valid:
            yield Damage(f"byte {position}: the batch at offset {header.base_offset} fails its CRC", fatal=False)
        elif records:
            yield from _records(batch, header, position)
        position += header.size
    if size > position:
        yield Torn(size - position)


def _records(batch: bytes, header: BatchHeader, position: int) -> Iterator[Row]:
    marker = decode_marker(batch, header) if header.is_control else None
    try:
        for record in iter_batch(batch):
            yield RecordRow(header, record, marker)
    except HoldfastError as e:
        yield Damage(f"byte {position}: records cannot be read: {e.message}", fatal=False)


def _producers(file: IO[bytes]) -> Iterator[Row]:
    """The CRC is read first, so that nothing is told of a file that is torn."""
    head = file.read(_SNAPSHOT_HEAD.size)
    if len(head) < _SNAPSHOT_HEAD.size:
        yield Damage(f"{len(head)} bytes: expected a producer snapshot, which has more", fatal=True)
        return
    version, expected = _SNAPSHOT_HEAD.unpack(head)
    if version != _SNAPSHOT_VERSION:
        yield Damage(f"version {version} of a producer snapshot: expected {_SNAPSHOT_VERSION}", fatal=True)
        return
    crc = 0
    while block := file.read(_PRODUCER.size * BLOCK_ENTRIES):
        crc = crc32c(block, crc)
    if crc != expected:
        yield Damage("the CRC of the producer snapshot is not that of its bytes", fatal=True)
        return
    file.seek(_SNAPSHOT_HEAD.size + _SNAPSHOT_COUNT.size)
    yield from map(ProducerRow._make, _entries(file, _PRODUCER, zeros_end=False))
