"""A prefix of an S3 bucket as a store: create-if-absent by a PUT with ``If-None-Match: *``.

Endpoint, region and keys come from the usual AWS_... variables. Nothing is cached: each question goes to the bucket.
Files are built in memory and sent whole, since only their last request can be conditional.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from holdfast.lake.errors import AlreadyThereError, FileMissingError, StoreError
from holdfast.lake.store import FolderEntry


class S3Store:
    """``s3://BUCKET/PREFIX``."""

    def __init__(self, location: str) -> None:
        try:
            import s3fs
        except ImportError:
            raise StoreError(f"{location}: S3 is reached by s3fs, which is not installed: pip install s3fs") from None
        self._url = location.rstrip("/")
        self._root = self._url.split("://", 1)[1]
        self._files: Any = s3fs.S3FileSystem(
            use_listings_cache=False, skip_instance_cache=True, default_cache_type="none"
        )

    @property
    def location(self) -> str:
        return self._url

    def url(self, path: str) -> str:
        return f"{self._url}/{path}"

    def _key(self, path: str) -> str:
        return f"{self._root}/{path}"

    def create(self, path: str, content: bytes) -> None:
        try:
            self._files.pipe_file(self._key(path), content, mode="create")
        except FileExistsError:
            raise AlreadyThereError(f"{self.url(path)} is there already") from None
        except OSError as error:
            # 412 by its text where s3fs has no class for it; 409 is another who makes the same name at this moment.
            if "PreconditionFailed" in str(error) or "pre-conditions" in str(error) or "Conflict" in str(error):
                raise AlreadyThereError(f"{self.url(path)} is there already, or another one is making it") from None
            raise

    @contextmanager
    def creating(self, path: str) -> Iterator[BinaryIO]:
        sink = io.BytesIO()
        yield sink
        self.create(path, sink.getvalue())

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        self.size(path)
        with self._files.open(self._key(path), "rb") as file:
            yield cast(BinaryIO, file)

    def read(self, path: str) -> bytes:
        try:
            return cast(bytes, self._files.cat_file(self._key(path)))
        except FileNotFoundError:
            raise FileMissingError(f"{self.url(path)} is not there") from None

    def size(self, path: str) -> int:
        try:
            return int(self._files.info(self._key(path))["size"])
        except FileNotFoundError:
            raise FileMissingError(f"{self.url(path)} is not there") from None

    def list(self, folder: str) -> Iterator[FolderEntry]:
        found = self._files.find(self._key(folder), detail=True)
        for key, info in found.items():
            changed = info["LastModified"]
            yield FolderEntry(
                path=key[len(self._root) + 1 :], size=int(info["size"]), changed_ms=int(changed.timestamp() * 1000)
            )

    def names(self, folder: str) -> Sequence[str]:
        depth = folder.count("/") + 1
        return [entry.path.rsplit("/", 1)[-1] for entry in self.list(folder) if entry.path.count("/") == depth]

    def remove(self, path: str) -> None:
        self._files.rm_file(self._key(path))
