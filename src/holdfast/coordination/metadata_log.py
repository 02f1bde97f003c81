"""One copy of the metadata log on disk: segments and snapshots in a directory, in Kafka's format.

    00000000000000000000-0000000001.log          batches of metadata records, one a commit, by the claim of epoch 1
    00000000000000004711-0000000003.checkpoint   a snapshot: everything before offset 4711, taken in epoch 3
    00000000000000004711-0000000003.log          what was committed since
    00000000000000000000.log                     a segment of before 0.2, whose name had no epoch: read, never made

Owns the files; only the holder of the claim may have one open. What ``append`` returned for is synced. Knows nothing
of claims and of other copies but that a claim has an epoch of its own.

Every claim begins a segment that is a new file, under a name that no other claim has. A write or a rename of an earlier
process that hung in the kernel may land when the disk answers again: in a file that nobody appends to any more, under
the name of its own claim. Reading takes, of several batches at one offset, the one in the segment of the latest claim,
and ends where there is none: so what landed late, or was written by a controller that had lost its claim, is not taken
for a decision. A claim's segment begins with the last batch that it found, the only one that may not have counted yet:
so it says what the claim took for decided. A claim never removes files of a later one.

Only the last write can be torn, for each is synced before the next one begins. So where whole batches of the same or a
later epoch follow behind a hole, decisions that counted are gone: that is damage and no end, and reading fails.

A write or a flush that failed is never tried again (H-28): the system may have dropped what it could not write and
call the next flush a success. The log takes nothing more until it is recovered. Recovery may find in memory the batch
whose flush failed, whole, so the new segment begins with the last batch once more.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.metadata.codec import decode_record, encode_record
from holdfast.metadata.records import MetadataRecord
from holdfast.model.errors import CorruptRecordError, HoldfastError, KafkaStorageError
from holdfast.model.types import ControllerEpoch, Offset, TimestampMs
from holdfast.records.batch import crc_ok, iter_headers, parse_header
from holdfast.records.record import BatchBuilder, decode_batch
from holdfast.storage.files import FileHandle, FileSystem

log = logging.getLogger(__name__)

SNAPSHOT_BATCH = 1000
"""Records in one batch of a snapshot."""
MAX_SEGMENTS = 50
"""Each recovery adds one; with more a snapshot is wanted, which leaves one."""
LAST_EPOCH: Final = (1 << 31) - 2
"""No batch has a greater one: a claim after it would need one that a batch cannot hold."""
_SEGMENT = re.compile(r"(\d{20})(?:-(\d{10}))?\.log")
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_ANY = re.compile(r"\d{20}(?:-(\d{10}))?\.(?:log|checkpoint)(?:\.tmp)?")
_TEMPORARY = ".tmp"
_MAY_BEGIN = re.compile(rb"(?=\0\0.{6}\0.{7}\x02)", re.DOTALL)
"""Where a batch may begin: an offset below 2^48, a length below 2^24, the magic."""
Confirm = Callable[[], None]
"""Raises when the claim is lost, or the directory is another one."""


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """One whole batch as it lies on disk."""

    base_offset: Offset
    next_offset: Offset
    epoch: ControllerEpoch
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What one copy holds: a snapshot of everything before ``base`` (empty: none), and the batches since."""

    base: Offset = 0
    snapshot_epoch: ControllerEpoch = 0
    snapshot: bytes = b""
    batches: tuple[LoggedBatch, ...] = ()

    @property
    def end_offset(self) -> Offset:
        """The offset of the next record."""
        return self.batches[-1].next_offset if self.batches else self.base

    @property
    def last_epoch(self) -> ControllerEpoch:
        """Of the last batch."""
        return self.batches[-1].epoch if self.batches else self.snapshot_epoch

    @property
    def is_empty(self) -> bool:
        return not self.batches and not self.snapshot

    def records(self) -> list[MetadataRecord]:
        """Every record, those before ``base`` as the snapshot tells them. CorruptRecordError for one that is whole and
        that we do not understand: leaving it out would lose a commit."""
        found = [record for batch in _whole_batches(self.snapshot, 0) for record in _decoded(batch)]
        for batch in self.batches:
            found += _decoded(batch)
        return found

    def after(self, offset: Offset, epoch: ControllerEpoch) -> tuple[LoggedBatch, ...] | None:
        """What another copy lacks that ends at ``offset`` with a batch of ``epoch``; None: it is no part of this."""
        if offset == self.base:
            return self.batches if epoch == self.snapshot_epoch or not self.base else None
        for number, batch in enumerate(self.batches):
            if batch.next_offset == offset:
                return self.batches[number + 1 :] if batch.epoch == epoch else None
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """What was read of one segment. ``batches``: those before the first that is torn or damaged."""

    name: str
    data: bytes
    base: Offset
    claim: ControllerEpoch
    batches: tuple[LoggedBatch, ...]

    @property
    def whole_bytes(self) -> int:
        return sum(len(batch.data) for batch in self.batches)

    @property
    def end_offset(self) -> Offset:
        return self.batches[-1].next_offset if self.batches else self.base


class MetadataLog:
    """See the module's docstring. ``recover`` (or ``read`` and ``begin``) comes first."""

    def __init__(self, directory: str, files: FileSystem, clock: Callable[[], TimestampMs]) -> None:
        self._directory = directory
        self._files = files
        self._clock = clock
        self._segment: FileHandle | None = None
        self._place: tuple[str, int | None] = ("", None)
        """Of the open segment: its path, and the inode that it had there."""
        self._epoch: ControllerEpoch = 0
        """Of the claim that appends here."""
        self._position = 0
        self._tail = 0
        self._segments = 0
        self.snapshot_bytes = 0
        """Of the last snapshot."""
        self._failure: KafkaStorageError | None = None
        self._parsed: dict[str, _Segment] = {}
        """What the last reading found, for the next one."""
        self.end_offset: Offset = 0
        """The offset of the next record."""

    @property
    def tail_bytes(self) -> int:
        """Bytes since the last snapshot: what the next recovery must read besides it."""
        return self._tail

    @property
    def has_many_segments(self) -> bool:
        """Whether a snapshot would leave far fewer files."""
        return self._segments > MAX_SEGMENTS

    # -- reading -----------------------------------------------------------------------------------------------

    def recover(self) -> list[MetadataRecord]:
        """Every record, and a new segment to append to, of an epoch above all that are here."""
        contents = self.read()
        records = contents.records()
        epochs = (
            int(found[1] or 0) for name in self._files.listdir(self._directory) if (found := _ANY.fullmatch(name))
        )
        self.begin(contents, 1 + max((contents.last_epoch, *epochs)))
        return records

    def read(self, *, keep: bool = False) -> Contents:
        """What is there and whole. Changes nothing. KafkaStorageError when it cannot be read or is damaged.

        ``keep``: it will be read once more, which then parses only what is other than now."""
        try:
            return self._read(keep=keep)
        except OSError as e:
            raise KafkaStorageError(f"Metadata log {self._directory} cannot be read: {e}") from e

    def _read(self, *, keep: bool) -> Contents:
        names = self._files.listdir(self._directory)
        best: dict[Offset, LoggedBatch] = {}
        claims: dict[Offset, tuple[ControllerEpoch, ControllerEpoch]] = {}
        segments = [self._segment_of(base, claim, name) for base, claim, name in sorted(_segments(names))]
        self._parsed = {segment.name: segment for segment in segments} if keep else {}
        for segment in segments:
            for batch in segment.batches:
                rank = (segment.claim, batch.epoch)
                if rank >= claims.get(batch.base_offset, rank):
                    best[batch.base_offset], claims[batch.base_offset] = batch, rank
        base, epoch, snapshot, broken = self._newest_snapshot(names, best)
        batches: list[LoggedBatch] = []
        offset, last_epoch = base, -1
        while (found := best.get(offset)) is not None and found.epoch >= last_epoch:
            batches.append(found)
            offset, last_epoch = found.next_offset, found.epoch
        contents = Contents(base=base, snapshot_epoch=epoch, snapshot=snapshot, batches=tuple(batches))
        self._refuse_damage(contents, segments, best, broken)
        return contents

    def _segment_of(self, base: Offset, claim: ControllerEpoch, name: str) -> _Segment:
        data = self._files.read_bytes(f"{self._directory}/{name}")
        before = self._parsed.get(name)
        if before is not None and before.data == data:
            return before
        batches = tuple(_whole_batches(data, base, claim or LAST_EPOCH))
        found = _Segment(name=name, data=data, base=base, claim=claim, batches=batches)
        log.debug("%s/%s: %d bytes, whole to offset %d", self._directory, name, len(data), found.end_offset)
        return found

    def _refuse_damage(
        self,
        contents: Contents,
        segments: Sequence[_Segment],
        best: Mapping[Offset, LoggedBatch],
        broken: Mapping[str, LoggedBatch],
    ) -> None:
        """KafkaStorageError when there is a decision behind the end of ``contents``, with a hole before it. What is of
        an earlier epoch was written by a controller that had lost its claim."""
        end, last_epoch = contents.end_offset, contents.last_epoch
        behind = [segment for segment in segments if segment.whole_bytes < len(segment.data)]
        for found in (*best.values(), *broken.values(), *(b for segment in behind for b in _behind_damage(segment))):
            if found.base_offset > end and found.epoch >= last_epoch:
                break
        else:
            return
        where = f"no file holds offset {end}"
        for segment in behind:
            if segment.end_offset == end:
                where = f"{segment.name} is not whole at byte {segment.whole_bytes} (offset {end})"
        where = "".join(f"{name} is not whole, " for name in broken) + where
        raise KafkaStorageError(
            f"Metadata log {self._directory} is damaged: {where}, and what follows goes on to offset "
            f"{found.next_offset} or farther"
        )

    def _newest_snapshot(
        self, names: Iterable[str], best: Mapping[Offset, LoggedBatch]
    ) -> tuple[Offset, int, bytes, dict[str, LoggedBatch]]:
        """Its offset, epoch and bytes; and those that are not whole, by name, each as if it were a batch at its end."""
        broken: dict[str, LoggedBatch] = {}
        found = sorted((m for name in names if (m := _SNAPSHOT.fullmatch(name))), key=lambda m: m[0], reverse=True)
        for match in found:
            base, epoch = int(match[1]), int(match[2])
            data = self._files.read_bytes(f"{self._directory}/{match[0]}")
            batches = list(_whole_batches(data, 0))
            if not batches or sum(len(batch.data) for batch in batches) != len(data):
                log.error("%s/%s is not whole: the one before it is used", self._directory, match[0])
                broken[match[0]] = LoggedBatch(base, base, epoch, b"")
            elif any(b.epoch > epoch for b in best.values() if b.base_offset < base):
                log.error("%s/%s is of a controller that had lost its claim", self._directory, match[0])
            else:
                return base, epoch, data, broken
        if found:
            raise KafkaStorageError(f"Metadata log {self._directory}: no snapshot can be read, expected one or more")
        return 0, 0, b"", broken

    # -- writing -----------------------------------------------------------------------------------------------

    def begin(self, contents: Contents, epoch: ControllerEpoch, confirm: Confirm | None = None) -> None:
        """Be ready to append to ``contents``, which this directory holds, as the claim of ``epoch``: in a segment that
        is a new file. ``confirm`` is called before anything is removed and raises when the claim is lost."""
        self.close()
        self._epoch = epoch
        last = contents.batches[-1:]
        base = last[0].base_offset if last else contents.base
        try:
            names = self._files.listdir(self._directory)
            self._open_segment(base, last[0].data if last else b"")
            self._remove_useless(names, base, contents, confirm)
        except OSError as e:
            self.close()
            raise KafkaStorageError(f"Metadata log {self._directory} cannot be written: {e}") from e
        self.end_offset = contents.end_offset
        self._tail = sum(len(batch.data) for batch in contents.batches)
        self.snapshot_bytes = len(contents.snapshot)
        self._failure = None

    def replace(self, contents: Contents, epoch: ControllerEpoch) -> None:
        """Hold ``contents`` and nothing else, in files that are all new, and append as the claim of ``epoch``."""
        self.close()
        self._epoch = epoch
        try:
            self._files.rmtree(self._directory)
            self._files.makedirs(self._directory)
            if contents.snapshot:
                name = f"{contents.base:020d}-{contents.snapshot_epoch:010d}.checkpoint"
                self._files.write_atomic(f"{self._directory}/{name}", contents.snapshot)
            self._open_segment(contents.base, b"".join(batch.data for batch in contents.batches))
        except OSError as e:
            self.close()
            raise KafkaStorageError(f"Metadata log {self._directory} cannot be written: {e}") from e
        self.end_offset = contents.end_offset
        self._segments = 1
        self._tail = self._position
        self.snapshot_bytes = len(contents.snapshot)
        self._failure = None

    def _open_segment(self, base: Offset, data: bytes) -> None:
        """A new file under the name of the segment; one of that name before it is our own, without a commit."""
        path = self._path(base)
        self._files.unlink(path + _TEMPORARY)
        segment = self._files.open(path + _TEMPORARY, create=True)
        if data:
            segment.pwritev((data,), 0)
        segment.fsync()
        self._files.rename(path + _TEMPORARY, path)
        self._files.fsync_dir(self._directory)
        self._segment, self._position = segment, len(data)
        self._place = path, self._files.inode(path)

    def append(self, records: Sequence[MetadataRecord], epoch: ControllerEpoch) -> Offset:
        """Write one batch, synced; the offset of its first record. After an error nobody knows whether it is there:
        every further ``append`` is refused until ``recover`` has found out."""
        return self.append_batch(make_batch(records, self.end_offset, epoch, self._clock()))

    def append_batch(self, batch: LoggedBatch) -> Offset:
        """As ``append``, for a batch that was made for all copies; it begins where this copy ends."""
        segment = self._writable()
        assert batch.base_offset == self.end_offset, f"batch at {batch.base_offset}, log ends at {self.end_offset}"
        try:
            segment.pwritev((batch.data,), self._position)
            segment.fsync()
        except OSError as e:
            raise self._failed(f"Metadata log {self._path(self.end_offset)}: {e}") from e
        self.end_offset = batch.next_offset
        self._position += len(batch.data)
        self._tail += len(batch.data)
        return batch.base_offset

    def confirm(self) -> None:
        """That what is appended can be found: a filling of a controller that is over, which hung, may have removed the
        file under us. OSError if not."""
        path, inode = self._place
        if inode is None or self._files.inode(path) != inode:
            raise FileNotFoundError(f"{path} was removed or replaced")

    def snapshot(
        self, records: Iterable[MetadataRecord], epoch: ControllerEpoch, confirm: Confirm | None = None
    ) -> None:
        """Keep ``records`` in place of everything so far; appending goes on in a new segment. After an error as after
        one of ``append``: the snapshot may count already, and what came after it in the old segment would not.

        ``confirm``: as for ``begin``."""
        old = self._writable()
        data, base = encode_snapshot(records, epoch, self._clock()), self.end_offset
        try:
            self._open_segment(base, b"")
            old.close()
            self._files.write_atomic(f"{self._directory}/{base:020d}-{epoch:010d}.checkpoint", data)
            if confirm is not None:
                confirm()  # also where nothing is removed: else this snapshot is not one of that claim
            self._tail, self.snapshot_bytes = 0, len(data)
            names = self._files.listdir(self._directory)
            self._remove_useless(names, base, Contents(base=base, snapshot_epoch=epoch), confirm)
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
        """Close the file, and forget what was read."""
        self._parsed = {}
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def _path(self, base: Offset) -> str:
        return f"{self._directory}/{base:020d}-{self._epoch:010d}.log"

    def _remove_useless(
        self, names: Iterable[str], newest: Offset, contents: Contents, confirm: Confirm | None
    ) -> None:
        """Snapshots but the one that counts, segments that lie wholly before it, and what never got whole: segments
        after the one that is appended to, files under a name for a while. Nothing of a later claim: whoever made it
        may have decided what we have not read."""
        segments = {name: base for base, _, name in _segments(names)}
        bases = {*segments.values(), newest}
        first = max((base for base in bases if base <= contents.base), default=0)
        self._segments = 1 + sum(first <= base <= newest for base in segments.values())
        useless = []
        for name in names:
            found, snapshot = _ANY.fullmatch(name), _SNAPSHOT.fullmatch(name)
            if found is not None and int(found[1] or 0) > self._epoch:
                continue
            if name in segments:
                wanted = first <= segments[name] <= newest
            elif snapshot:
                wanted = (int(snapshot[1]), int(snapshot[2])) == (contents.base, contents.snapshot_epoch)
            else:
                wanted = not name.endswith(_TEMPORARY)
            if not wanted:
                useless.append(name)
        if useless and confirm is not None:
            confirm()
        for name in useless:
            self._files.unlink(f"{self._directory}/{name}")


def _segments(names: Iterable[str]) -> Iterator[tuple[Offset, ControllerEpoch, str]]:
    """Offset and claim of each segment, and its name; epoch 0: its name has none."""
    for name in names:
        if match := _SEGMENT.fullmatch(name):
            yield int(match[1]), int(match[2] or 0), name


def _whole_batches(data: bytes, offset: Offset, claim: ControllerEpoch = LAST_EPOCH) -> Iterator[LoggedBatch]:
    """The batches from ``offset`` on, up to the first that is torn, damaged or out of order. Their epochs, which the
    CRC does not cover, only grow, up to the one of the claim that wrote them."""
    headers, last_epoch = iter_headers(data), -1
    while True:
        try:
            found = next(headers, None)
        except CorruptRecordError:
            return
        if found is None:
            return
        position, header = found
        epoch = header.partition_leader_epoch
        if header.base_offset != offset or header.next_offset <= offset or not crc_ok(data, position, header):
            return
        if not last_epoch <= epoch <= claim:
            return
        offset, last_epoch = header.next_offset, epoch
        yield LoggedBatch(header.base_offset, offset, epoch, data[position : position + header.size])


def _behind_damage(segment: _Segment) -> Iterator[LoggedBatch]:
    """Whole batches of a segment behind the first bytes of it that are none."""
    data = segment.data
    for match in _MAY_BEGIN.finditer(data, segment.whole_bytes):
        position = match.start()
        try:
            header = parse_header(data, position)
        except CorruptRecordError:
            continue
        if header.next_offset > header.base_offset and crc_ok(data, position, header):
            whole = data[position : position + header.size]
            yield LoggedBatch(header.base_offset, header.next_offset, header.partition_leader_epoch, whole)


def _decoded(batch: LoggedBatch) -> list[MetadataRecord]:
    try:
        records = [decode_record(r.value or b"") for r in decode_batch(memoryview(batch.data))]
    except HoldfastError as e:
        raise CorruptRecordError(f"Metadata batch at offset {batch.base_offset}: {e}") from e
    if not records or batch.next_offset != batch.base_offset + len(records):
        raise CorruptRecordError(
            f"Metadata batch at offset {batch.base_offset} has {len(records)} records up to {batch.next_offset - 1}"
        )
    return records


def make_batch(
    records: Sequence[MetadataRecord], base_offset: Offset, epoch: ControllerEpoch, now_ms: TimestampMs
) -> LoggedBatch:
    """The batch of one commit, the same bytes for every copy."""
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=epoch)
    for record in records:
        builder.append(None, encode_record(record), now_ms)
    return LoggedBatch(base_offset, base_offset + len(records), epoch, bytes(builder.build()))


def encode_snapshot(records: Iterable[MetadataRecord], epoch: ControllerEpoch, now_ms: TimestampMs) -> bytes:
    """A snapshot's file."""
    everything = list(records)
    data = bytearray()
    for start in range(0, len(everything), SNAPSHOT_BATCH):
        data += make_batch(everything[start : start + SNAPSHOT_BATCH], start, epoch, now_ms).data
    return bytes(data)
