"""Files in a dictionary, for readers of directories: as few instructions as possible, and no faults.

Directories are not kept: a path's directory is what stands before its last slash, and a few are always there.
"""

from collections.abc import Sequence
from typing import Any, Final

DIRECTORIES: Final = frozenset(("/", "/d", "/d/t-0", "/m", "/m/__cluster_metadata-0", "/p"))


class MemoryHandle:
    """FileHandle on one bytearray."""

    __slots__ = ("_data", "path")

    def __init__(self, path: str, data: bytearray) -> None:
        self.path = path
        self._data = data

    def fileno(self) -> int:
        return -1

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self._data[offset : offset + size])

    def preadv_nowait(self, size: int, offset: int) -> bytearray | None:
        data = self._data[offset : offset + size]
        return data if len(data) == size else None

    def pwritev(self, buffers: Sequence[Any], offset: int) -> int:
        data = b"".join(buffers)
        if offset > len(self._data):
            self._data.extend(bytes(offset - len(self._data)))
        self._data[offset : offset + len(data)] = data
        return len(data)

    def fsync(self) -> None: ...

    def truncate(self, size: int) -> None:
        if size < len(self._data):
            del self._data[size:]
        else:
            self._data.extend(bytes(size - len(self._data)))

    def size(self) -> int:
        return len(self._data)

    def drop_cache(self) -> None: ...

    def close(self) -> None: ...


class MemoryFiles:
    """FileSystem. ``contents`` is all there is of it."""

    __slots__ = ("contents",)

    def __init__(self, contents: dict[str, bytearray] | None = None) -> None:
        self.contents: dict[str, bytearray] = {} if contents is None else contents

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> Any:
        data = self.contents.get(path)
        if data is None:
            if not create:
                raise FileNotFoundError(2, "no such file", path)
            data = self.contents[path] = bytearray()
        return MemoryHandle(path, data)

    def mkdir(self, path: str) -> None:
        if path in DIRECTORIES:
            raise FileExistsError(17, "there is one", path)

    def makedirs(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None:
        if old not in self.contents:
            raise FileNotFoundError(2, "no such file", old)
        self.contents[new] = self.contents.pop(old)

    def unlink(self, path: str) -> None:
        self.contents.pop(path, None)

    def listdir(self, path: str) -> list[str]:
        start = path + "/"
        cut = len(start)
        return [name[cut:] for name in self.contents if name.startswith(start) and "/" not in name[cut:]]

    def exists(self, path: str) -> bool:
        return path in self.contents or path in DIRECTORIES

    def is_dir(self, path: str) -> bool:
        return path in DIRECTORIES

    def file_size(self, path: str) -> int:
        data = self.contents.get(path)
        if data is None:
            raise FileNotFoundError(2, "no such file", path)
        return len(data)

    def modified_ms(self, path: str) -> int:
        return 0

    def identity(self, path: str) -> tuple[int, int, int] | None:
        data = self.contents.get(path)
        return None if data is None else (id(data), 0, len(data))

    def inode(self, path: str) -> int | None:
        data = self.contents.get(path)
        return None if data is None else id(data)

    def kind(self, path: str) -> str:
        return "memory"

    def device(self, path: str) -> int:
        return 0

    def fsync_dir(self, path: str) -> None: ...

    def read_bytes(self, path: str) -> bytes:
        data = self.contents.get(path)
        if data is None:
            raise FileNotFoundError(2, "no such file", path)
        return bytes(data)

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        self.contents[path] = bytearray(data)
