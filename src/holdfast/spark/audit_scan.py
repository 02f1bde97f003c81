"""Reads one segment of one replica, batch by batch, and says what is wrong with it on its own.

Owns reading segment files for the audit: headers, CRCs, offsets, a digest of each batch. Never decodes records, never
compares replicas, never writes; knows no Spark. Only what is below the high watermark counts: a file may grow, and may
end in half a batch, while it is read.

    end of the batch before == base offset of the next one      else: GAP (forward; fine where compaction runs)
                                                                      ORDER (backward)
    a header that is none                                       CORRUPT, and the rest of the segment cannot be read
    a CRC that is not that of the bytes                         CORRUPT, and the next header says where it goes on
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import IO, Final, NamedTuple

from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import LeaderEpoch, Offset
from holdfast.records.batch import DELETE_HORIZON_BIT, HEADER_SIZE, BatchHeader, crc_ok, parse_header
from holdfast.spark.audit_result import ProblemKind

BLOCK_BYTES: Final = 8 << 20
MAX_FLAWS: Final = 20
"""Of one segment that are told; the rest is counted."""
MAX_RUNS: Final = 200
"""A segment with more holes than this is not read on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """One segment as it was listed. ``next_base``: where the next one begins, None for the last."""

    path: str
    base_offset: Offset
    next_base: Offset | None
    size: int

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


class BatchRow(NamedTuple):
    """One batch below the high watermark. ``digest``: 64 bits over all its bytes, as a signed number."""

    base_offset: Offset
    last_offset: Offset
    records: int
    bytes: int
    crc_ok: bool
    digest: int


class Flaw(NamedTuple):
    """Something wrong in one segment; ``kind`` is a ProblemKind's value."""

    kind: str
    offset: Offset
    what: str


@dataclass(slots=True, kw_only=True)
class SegmentReport:
    """What a segment has, up to the high watermark."""

    base_offset: Offset
    end_offset: Offset
    batches: int = 0
    records: int = 0
    bytes: int = 0
    gaps: int = 0
    """Holes that compaction may have left."""
    torn_bytes: int = 0
    """Of half a batch at the end."""
    gone: bool = False
    """The file went between listing and opening: retention took it."""
    runs: list[tuple[Offset, Offset]] = field(default_factory=list)
    """Offsets that are there without a hole, as (first, end)."""
    flaws: list[Flaw] = field(default_factory=list)
    more_flaws: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SegmentReport:
        found = cls(**json.loads(text))
        found.runs = [(first, end) for first, end in found.runs]
        found.flaws = [Flaw(*flaw) for flaw in found.flaws]
        return found


class BatchFile:
    """A segment file through one buffer, which is as large as a block or the largest batch."""

    def __init__(self, file: IO[bytes], block_bytes: int) -> None:
        self._file = file
        self.buffer = bytearray(block_bytes)
        self.at = 0
        """Where in the buffer the next batch begins."""
        self._end = 0
        self.position = 0
        """Where in the file the next batch begins."""

    @property
    def available(self) -> int:
        """Bytes from the next batch on that have been read."""
        return self._end - self.at

    def has(self, size: int) -> bool:
        """Whether the file has ``size`` more bytes; they are in the buffer then."""
        if self.available >= size:
            return True
        if size > len(self.buffer) and size > os.fstat(self._file.fileno()).st_size - self.position:
            return False  # a length that no file of this size can hold: do not make room for it
        rest = self.buffer[self.at : self._end]
        if size > len(self.buffer):
            self.buffer = bytearray(size)
        self.buffer[: len(rest)] = rest
        self.at, self._end = 0, len(rest)
        view = memoryview(self.buffer)
        while self._end < size:
            read: int = self._file.readinto(view[self._end :])  # type: ignore[attr-defined]
            if not read:
                return False
            self._end += read
        return True

    def skip(self, size: int) -> None:
        """On to the next batch."""
        self.at += size
        self.position += size


class SegmentScan:
    """Iterate for the batches; ``report`` is complete after that."""

    def __init__(
        self,
        segment: SegmentFile,
        high_watermark: Offset,
        *,
        compacted: bool = False,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._segment = segment
        self._high_watermark = high_watermark
        self._compacted = compacted
        self._block_bytes = block_bytes
        self._expected = segment.base_offset
        self._epoch: LeaderEpoch = -1
        self._run_start = segment.base_offset
        self._blind = False  # the CRC of the batch before was wrong: where it ends is not known
        self._claimed_end = segment.base_offset  # of the batch before, by its own header
        self._jumped = False  # the batch before was not where it was expected
        self._broken = False  # the rest of the file cannot be read
        self.report = SegmentReport(base_offset=segment.base_offset, end_offset=segment.base_offset)

    def __iter__(self) -> Iterator[BatchRow]:
        if self._expected < self._high_watermark:
            try:
                with open(self._segment.path, "rb", buffering=0) as file:
                    yield from self._batches(self._reader(file))
            except FileNotFoundError:
                self.report.gone = True
                return
            except OSError as error:
                self._lost(ProblemKind.UNREADABLE, f"{self._segment.name} cannot be read: {error.strerror}")
        self._finish()

    def _reader(self, file: IO[bytes]) -> BatchFile:
        return BatchFile(file, self._block_bytes)

    def _sound(self, file: BatchFile, header: BatchHeader) -> bool:
        """Whether the batch is what was written."""
        return crc_ok(memoryview(file.buffer)[: file.at + header.size], file.at, header)

    def _digested(self, file: BatchFile, header: BatchHeader) -> memoryview:
        """What of the batch is compared."""
        return memoryview(file.buffer)[file.at : file.at + header.size]

    def _batches(self, file: BatchFile) -> Iterator[BatchRow]:
        while self._expected < self._high_watermark and not self._broken:
            header = self._header(file)
            if header is None:
                return
            if header.base_offset >= self._high_watermark and (self._compacted or self._jumped):
                return
            good = self._sound(file, header)
            where = f"{self._segment.name}, byte {file.position}"
            in_place = self._compacted or header.base_offset == self._expected
            if good and in_place and header.base_offset < self._high_watermark < header.next_offset:
                return  # not below the high watermark as a whole: ends here, as the verdict will say
            row = self._take(header, good, where, file)
            file.skip(header.size)
            if row is not None:
                yield row

    def _header(self, file: BatchFile) -> BatchHeader | None:
        """The next batch's; it is in the buffer as a whole. None at the end and where there is no sense."""
        if not file.has(HEADER_SIZE):
            self.report.torn_bytes = file.available
            return None
        try:
            header = parse_header(file.buffer, file.at)
        except CorruptRecordError as error:
            self._lost(ProblemKind.CORRUPT, f"no batch at {self._segment.name}, byte {file.position}: {error.message}")
            return None
        if not file.has(header.size):
            self.report.torn_bytes = file.available
            return None
        return header

    def _take(self, header: BatchHeader, good: bool, where: str, file: BatchFile) -> BatchRow | None:
        """Counts the batch and looks whether it is where it should be."""
        base = header.base_offset
        if self._blind and base >= self._expected:
            self._expected = min(base, self._high_watermark)
            if base >= self._high_watermark:
                return None
        if base >= self._high_watermark or (good and base > self._expected and self._exceeds(header)):
            # What comes next tells whether offsets are missing or only this batch's are wrong.
            self._flaw(ProblemKind.GAP, self._expected, f"the batch at {where} begins at {base}, too far on")
            self._jumped = True
            return None
        if not good:
            self._flaw(ProblemKind.CORRUPT, base, f"the batch at {where} fails its CRC")
        self._place(header, where)
        if header.partition_leader_epoch < self._epoch:
            epoch = header.partition_leader_epoch
            self._flaw(ProblemKind.ORDER, base, f"leader epoch {epoch} follows {self._epoch} ({where})")
        self._epoch = max(self._epoch, header.partition_leader_epoch)
        # Counts of a batch with a wrong CRC are not to be believed: it holds one offset until the next header.
        following = header.next_offset if good else base + 1
        self._expected = following if self._jumped else max(self._expected, following)
        self._blind = not good
        self._claimed_end = header.next_offset
        self.report.batches += 1
        self.report.records += header.record_count if good else 0
        self.report.bytes += header.size
        digest = int.from_bytes(
            hashlib.blake2b(self._digested(file, header), digest_size=8).digest(), "big", signed=True
        )
        if self._compacted and header.attributes & DELETE_HORIZON_BIT:
            digest = 0  # when a tombstone may go each broker has decided by itself
        return BatchRow(base, following - 1, header.record_count if good else 0, header.size, good, digest)

    def _exceeds(self, header: BatchHeader) -> bool:
        return not self._compacted and header.next_offset > self._high_watermark

    def _place(self, header: BatchHeader, where: str) -> None:
        """Is the batch where it is expected?"""
        base, expected = header.base_offset, self._expected
        if base == expected:
            self._jumped = False
            return
        if base > expected:
            if self._compacted:
                self.report.gaps += 1
                return
            self._jumped = True
            self._flaw(ProblemKind.GAP, expected, f"offsets {expected} to {base - 1} are in no batch ({where})")
            self._end_run(base)
            return
        back = "before its segment" if base < self._segment.base_offset else f"where {expected} was expected"
        self._flaw(ProblemKind.ORDER, base, f"a batch begins at {base}, {back} ({where})")
        if self._jumped:  # that jump was wrong, not this batch
            self._end_run(base)

    def _end_run(self, next_start: Offset) -> None:
        """A hole: what was read up to here is one run, the next begins after it."""
        if self._expected > self._run_start:
            self.report.runs.append((self._run_start, self._expected))
        self._run_start = next_start
        if len(self.report.runs) >= MAX_RUNS and not self._broken:
            self._lost(ProblemKind.GAP, f"{self._segment.name} has more than {MAX_RUNS} holes")

    def _lost(self, kind: ProblemKind, what: str) -> None:
        """The rest of the segment cannot be read; what is there counts."""
        self._broken = True
        following = self._segment.next_base
        rest = "" if following is None else f": offsets {self._expected} to {following - 1} could not be read"
        self._flaw(kind, self._expected, what + rest)

    def _finish(self) -> None:
        """Does the segment reach the next one?"""
        following = self._segment.next_base
        if self._blind:
            end = self._claimed_end if following is None else following
            if self._expected < end and (following is not None or end <= self._high_watermark):
                self._expected = end
        if following is not None and self._compacted and not self._broken and not self.report.torn_bytes:
            self.report.gaps += self._expected < min(following, self._high_watermark)
            self._expected = max(self._expected, following)
        if following is not None and not self._broken:
            torn = f" and {self.report.torn_bytes} bytes of half a batch" if self.report.torn_bytes else ""
            what = f"{self._segment.name} ends at offset {self._expected}{torn}, the next segment begins at {following}"
            if self._expected < min(following, self._high_watermark):
                self._flaw(ProblemKind.GAP, self._expected, what)
            elif self._expected > following:
                self._flaw(ProblemKind.ORDER, following, what)
        if self._expected > self._run_start:
            self.report.runs.append((self._run_start, self._expected))
        self.report.end_offset = self._expected

    def _flaw(self, kind: ProblemKind, offset: Offset, what: str) -> None:
        if len(self.report.flaws) < MAX_FLAWS:
            self.report.flaws.append(Flaw(kind.value, offset, what))
        else:
            self.report.more_flaws += 1
