"""What a table asks of the place that keeps it: files that are made once, whole or not at all.

All of the lake's safety stands on ``create``: of two who make one name, one is told AlreadyThereError. A place that
cannot promise this is refused before anything is written (opening.py).
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from holdfast.model.types import TimestampMs


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderEntry:
    """One file of a folder."""

    path: str
    """Below the location, with /."""
    size: int
    changed_ms: TimestampMs


class Store(Protocol):
    """Paths are relative to ``location``, with /, and never leave it."""

    @property
    def location(self) -> str:
        """Where the table is, as a person names it and as other engines take it."""
        ...

    def url(self, path: str) -> str:
        """The whole name of a file, as it stands in a table's metadata."""
        ...

    def create(self, path: str, content: bytes) -> None:
        """All of the file at once and durably, or AlreadyThereError and nothing changed."""
        ...

    def creating(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A sink; the file is there when the body has ended well, and then whole. AlreadyThereError at the end."""
        ...

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """To read and seek. FileMissingError."""
        ...

    def read(self, path: str) -> bytes:
        """All of a file. FileMissingError."""
        ...

    def size(self, path: str) -> int:
        """In bytes. FileMissingError."""
        ...

    def list(self, folder: str) -> Iterator[FolderEntry]:
        """Files below a folder, at any depth, in no order; also those that a killed writer left half made."""
        ...

    def names(self, folder: str) -> Sequence[str]:
        """Of the files that lie in a folder itself, in no order: without a question for each, so for long folders."""
        ...

    def remove(self, path: str) -> None:
        """The file is gone; it may have been so before."""
        ...
