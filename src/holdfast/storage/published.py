"""The published part of a log, read from its files by path: on any thread, and in any process.

Owns a list of files and how far each may be read, and a place in it. Uses no segment, index or descriptor of the log:
those belong to the foreground thread of its directory. A file that was renamed, removed or cut meanwhile is an error,
and the reader of no more use: take another view of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.model.errors import CorruptRecordError, LogReadError
from holdfast.model.types import Offset
from holdfast.records.batch import HEADER_SIZE, parse_header
from holdfast.storage.files import FileHandle, FileSystem
from holdfast.storage.segment_names import LOG

if TYPE_CHECKING:
    from holdfast.storage.log import Log


class PublishedFile(NamedTuple):
    """A segment's file, and how many of its bytes are published."""

    path: str
    size: int


def published_files(log: Log) -> tuple[PublishedFile, ...]:
    """The files of the log as it is now, from the one with its start on. On the loop."""
    view = log.view
    parts = (PublishedFile(segment.path(LOG), size) for segment, size in view.segments_from(view.start_offset))
    return tuple(part for part in parts if part.size)


class PublishedReader:
    """See the module's docstring. ``start_offset``: batches that end before it are left out."""

    __slots__ = ("_at", "_files", "_handle", "_left", "_more", "_start_offset")

    def __init__(self, files: FileSystem, parts: Sequence[PublishedFile], start_offset: Offset) -> None:
        self._files = files
        self._left = list(parts)
        self._start_offset = start_offset
        self._at = 0
        self._more = 0
        self._handle: FileHandle | None = None

    def read(self, size: int) -> bytes:
        """About ``size`` bytes, which begin with a batch and may end within one; say ``took`` before the next read.
        Empty at the end. OSError, LogReadError."""
        while self._left:
            part = self._left[0]
            if self._at == part.size:
                self._left.pop(0)
                self._at, self._handle = 0, None
                continue
            data = self._read(part, min(max(size, self._more), part.size - self._at))
            skip = self._before_start(data) if self._start_offset else 0
            self._at += skip
            if skip < len(data):
                return data[skip:] if skip else data
        return b""

    def _read(self, part: PublishedFile, size: int) -> bytes:
        if self._handle is None:
            self._handle = self._files.open(part.path, readonly=True)
        data = self._handle.pread(size, self._at)
        if len(data) < size:
            raise LogReadError(f"{part.path} ends at {self._at + len(data)}: it was cut while it was read")
        return data

    def _before_start(self, data: bytes) -> int:
        """Bytes of whole batches that end before the start."""
        at = 0
        while at + HEADER_SIZE <= len(data):
            header = parse_header(data, at)
            if header.last_offset >= self._start_offset:
                self._start_offset = 0
                break
            if at + header.size > len(data):
                break
            at += header.size
        return at

    def took(self, size: int, data: bytes) -> None:
        """Of ``data``, which was read, so many bytes were whole batches; the next read begins after them."""
        self._at += size
        self._more = 0
        if not size and data:  # a batch that is larger than the piece
            self._more = parse_header(data).size if len(data) >= HEADER_SIZE else HEADER_SIZE
            part = self._left[0]
            if self._more <= len(data) or self._at + self._more > part.size:
                raise CorruptRecordError(f"{part.path}: the batch at {self._at} is torn")

    def close(self) -> None:
        """Give the file back."""
        self._handle = None
