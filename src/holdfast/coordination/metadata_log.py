"""The metadata log on disk: segments and snapshots in one directory, under Kafka's names and in its batch format.

    00000000000000000000.log                     batches of metadata records, one a commit
    00000000000000004711-0000000003.checkpoint   a snapshot: everything before offset 4711, taken in epoch 3
    00000000000000004711.log                     what was committed since

Owns the files; only the holder of the claim may have one open. What ``append`` returned for is synced. Recovery takes
the newest whole snapshot and the batches after it, and cuts off what follows the last whole one: it was never
acknowledged. Knows nothing of claims, epochs are just written down.

A write or a flush that failed is never tried again (H-28): the system may have dropped what it could not write and
call the next flush a success. The log takes nothing more until it is recovered. Recovery may find in memory the batch
whose flush failed, whole, so it writes the last batch once more: then the flush after it is true of that one too.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from holdfast.metadata.codec import decode_record, encode_record
from holdfast.metadata.records import MetadataRecord
from holdfast.model.errors import CorruptRecordError, HoldfastError, KafkaStorageError
from holdfast.model.types import ControllerEpoch, Offset, TimestampMs
from holdfast.records.batch import crc_ok, iter_headers
from holdfast.records.record import BatchBuilder, decode_batch
from holdfast.storage.files import FileHandle, FileSystem

log = logging.getLogger(__name__)

SNAPSHOT_BATCH = 1000
"""Records in one batch of a snapshot."""
_SEGMENT = re.compile(r"(\d{20})\.log")
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class MetadataLog:
    """See the module's docstring. ``recover`` comes first, then ``append`` and ``snapshot``."""

    def __init__(self, directory: str, files: FileSystem, clock: Callable[[], TimestampMs]) -> None:
        self._directory = directory
        self._files = files
        self._clock = clock
        self._segment: FileHandle | None = None
        self._position = 0
        self._failure: KafkaStorageError | None = None
        self.end_offset: Offset = 0
        """The offset of the next record."""

    @property
    def tail_bytes(self) -> int:
        """Bytes since the last snapshot: what the next recovery must read besides it."""
        return self._position

    def recover(self) -> list[MetadataRecord]:
        """Every record, those before the newest snapshot as it tells them. Cuts off what is not whole."""
        self.close()
        try:
            records = self._recover()
        except OSError as e:
            self.close()
            raise KafkaStorageError(f"Metadata log {self._directory} cannot be read: {e}") from e
        self._failure = None
        return records

    def _recover(self) -> list[MetadataRecord]:
        names = self._files.listdir(self._directory)
        base, records = self._newest_snapshot(names)
        path = self._path(base)
        data = self._files.read_bytes(path) if self._files.exists(path) else b""
        offset, last, end = base, 0, 0
        for batch in _whole_batches(data, base):
            records += batch.records
            offset, last, end = batch.next_offset, end, batch.end
        self._segment = self._files.open(path, create=True)
        if end < len(data):
            log.warning("%s: %d bytes after offset %d are not whole: cut off", path, len(data) - end, offset)
            self._segment.truncate(end)
        if data:
            if last < end:
                self._segment.pwritev((data[last:end],), last)
            self._segment.fsync()
        else:
            self._files.fsync_dir(self._directory)
        self.end_offset, self._position = offset, end
        self._remove_older(names, base)
        return records

    def _newest_snapshot(self, names: Iterable[str]) -> tuple[Offset, list[MetadataRecord]]:
        found = sorted((m for name in names if (m := _SNAPSHOT.fullmatch(name))), key=lambda m: m[0], reverse=True)
        for match in found:
            data = self._files.read_bytes(f"{self._directory}/{match[0]}")
            batches = list(_whole_batches(data, 0))
            if batches and batches[-1].end == len(data):
                return int(match[1]), [record for batch in batches for record in batch.records]
            log.error("%s/%s is not whole: the one before it is used", self._directory, match[0])
        if found:
            raise KafkaStorageError(f"Metadata log {self._directory}: no snapshot can be read, expected one or more")
        return 0, []

    def append(self, records: Sequence[MetadataRecord], epoch: ControllerEpoch) -> Offset:
        """Write one batch, synced; the offset of its first record. After an error nobody knows whether it is there:
        every further ``append`` is refused until ``recover`` has found out."""
        segment = self._writable()
        batch = _batch(records, self.end_offset, epoch, self._clock())
        try:
            segment.pwritev((batch,), self._position)
            segment.fsync()
        except OSError as e:
            raise self._failed(f"Metadata log {segment.path}: {e}") from e
        base = self.end_offset
        self.end_offset += len(records)
        self._position += len(batch)
        return base

    def snapshot(self, records: Iterable[MetadataRecord], epoch: ControllerEpoch) -> None:
        """Keep ``records`` in place of everything so far; appending goes on in a new segment. After an error as after
        one of ``append``: the snapshot may count already, and what came after it in the old segment would not."""
        old = self._writable()
        everything = list(records)
        now_ms = self._clock()
        data = bytearray()
        for start in range(0, len(everything), SNAPSHOT_BATCH):
            data += _batch(everything[start : start + SNAPSHOT_BATCH], start, epoch, now_ms)
        base = self.end_offset
        try:
            segment = self._files.open(self._path(base), create=True)
            self._files.write_atomic(f"{self._directory}/{base:020d}-{epoch:010d}.checkpoint", bytes(data))
            self._files.fsync_dir(self._directory)
            old.close()
            self._segment, self._position = segment, 0
            self._remove_older(self._files.listdir(self._directory), base)
        except OSError as e:
            raise self._failed(f"Metadata snapshot in {self._directory}: {e}") from e

    def _writable(self) -> FileHandle:
        if self._failure is not None:
            raise self._failure
        assert self._segment is not None, "recover first"
        return self._segment

    def _failed(self, what: str) -> KafkaStorageError:
        self.close()
        self._failure = KafkaStorageError(f"{what}: it takes nothing more before it is recovered")
        return KafkaStorageError(what)

    def close(self) -> None:
        """Close the file."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def _path(self, base: Offset) -> str:
        return f"{self._directory}/{base:020d}.log"

    def _remove_older(self, names: Iterable[str], base: Offset) -> None:
        """What a snapshot has made superfluous. Segments after ``base`` are of a snapshot that did not get whole."""
        for name in names:
            segment, snapshot = _SEGMENT.fullmatch(name), _SNAPSHOT.fullmatch(name)
            if (segment and int(segment[1]) != base) or (snapshot and int(snapshot[1]) != base):
                self._files.unlink(f"{self._directory}/{name}")


class _Batch:
    __slots__ = ("end", "next_offset", "records")

    def __init__(self, records: list[MetadataRecord], next_offset: Offset, end: int) -> None:
        self.records = records
        self.next_offset = next_offset
        self.end = end


def _whole_batches(data: bytes, offset: Offset) -> Iterator[_Batch]:
    """The batches from ``offset`` on, up to the first that is torn, damaged or out of order.

    A batch that is whole but has a record we do not understand is CorruptRecordError: cutting it off would lose a
    commit.
    """
    position = 0
    headers = iter_headers(data)
    while True:
        try:
            found = next(headers, None)
        except CorruptRecordError:
            return
        if found is None:
            return
        position, header = found
        if header.base_offset != offset or not crc_ok(data, position, header):
            return
        end = position + header.size
        try:
            records = [decode_record(r.value or b"") for r in decode_batch(memoryview(data)[position:end])]
        except HoldfastError as e:
            raise CorruptRecordError(f"Metadata batch at offset {offset}: {e}") from e
        if not records or header.next_offset != offset + len(records):
            raise CorruptRecordError(
                f"Metadata batch at offset {offset} has {len(records)} records up to {header.last_offset}"
            )
        offset = header.next_offset
        yield _Batch(records, offset, end)


def _batch(
    records: Sequence[MetadataRecord], base_offset: Offset, epoch: ControllerEpoch, now_ms: TimestampMs
) -> bytearray:
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=epoch)
    for record in records:
        builder.append(None, encode_record(record), now_ms)
    return builder.build()
