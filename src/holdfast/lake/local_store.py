"""A directory as a store: create-if-absent by link(2), which is atomic and never replaces.

A file is written under a name of its own beside its place, synced, linked to its place, and the directory is synced.
A writer that is killed leaves ``.NAME.RANDOM.partial``, which no reader takes and the sweep removes.
"""

import errno
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final

from holdfast.lake.errors import AlreadyThereError, FileMissingError, StoreError
from holdfast.lake.store import FolderEntry

NO_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class LocalStore:
    """A directory of this machine, or one that is mounted and has hard links."""

    def __init__(self, location: str) -> None:
        self._root = os.path.abspath(location)

    @property
    def location(self) -> str:
        return self._root

    def url(self, path: str) -> str:
        return f"file://{self._place(path)}"

    def _place(self, path: str) -> str:
        return os.path.join(self._root, path)

    # -- writing ---------------------------------------------------------------------------------------------

    def create(self, path: str, content: bytes) -> None:
        with self.creating(path) as sink:
            sink.write(content)

    @contextmanager
    def creating(self, path: str) -> Iterator[BinaryIO]:
        place = self._place(path)
        folder, name = os.path.split(place)
        _make_folders(folder)
        partial = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.partial")
        try:
            with open(partial, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            self._put(partial, place)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(partial)
        _sync(folder)

    def _put(self, partial: str, place: str) -> None:
        try:
            os.link(partial, place)
        except FileExistsError:
            raise AlreadyThereError(f"{place} is there already") from None
        except OSError as error:
            if error.errno in NO_LINKS:
                raise StoreError(
                    f"{self._root} has no hard links ({error.strerror}), so that no file can be made only if absent: "
                    "use a directory of another file system"
                ) from error
            raise

    def link(self, source: str, path: str) -> None:
        """A second name for a file of the same file system, durably. AlreadyThereError, StoreError."""
        place = self._place(path)
        folder = os.path.dirname(place)
        _make_folders(folder)
        self._put(source, place)
        _sync(folder)

    # -- reading ---------------------------------------------------------------------------------------------

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        self.size(path)
        with open(self._place(path), "rb") as file:
            yield file

    def read(self, path: str) -> bytes:
        try:
            with open(self._place(path), "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise _missing(self._place(path)) from None

    def size(self, path: str) -> int:
        try:
            return os.stat(self._place(path)).st_size
        except FileNotFoundError:
            raise _missing(self._place(path)) from None

    def list(self, folder: str) -> Iterator[FolderEntry]:
        for place, _, names in os.walk(self._place(folder)):
            for name in names:
                full = os.path.join(place, name)
                try:
                    status = os.stat(full)
                except FileNotFoundError:  # removed meanwhile
                    continue
                path = os.path.relpath(full, self._root).replace(os.sep, "/")
                yield FolderEntry(path=path, size=status.st_size, changed_ms=status.st_mtime_ns // 1_000_000)

    def names(self, folder: str) -> Sequence[str]:
        try:
            return os.listdir(self._place(folder))
        except FileNotFoundError:
            return []

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._place(path))


def _missing(place: str) -> FileMissingError:
    return FileMissingError(f"{place} is not there")


def _make_folders(folder: str) -> None:
    """With parents, each synced into the one above it: a file is durable only if its folders are."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    _make_folders(above)
    with suppress(FileExistsError):
        os.mkdir(folder)
    _sync(above)


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
