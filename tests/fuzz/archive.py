"""Several files in one input, so that a directory can be fuzzed: kind u8, size u16, contents, again and again.

Any bytes are an archive: a size beyond the end means all that is left. The kind modulo 8 says what a file is; the
first two are what the mutator puts right (batches, a producer snapshot).
"""

from collections.abc import Iterable, Iterator
from typing import Final

BATCHES: Final = 0
SNAPSHOT: Final = 1
KINDS: Final = 8
MAX_FILES: Final = 8
"""What comes after so many is not looked at: more files make no more paths, only slower ones."""


def pack(files: Iterable[tuple[int, bytes]]) -> bytes:
    """The archive of (kind, contents)."""
    return b"".join(bytes((kind,)) + len(data).to_bytes(2, "big") + data for kind, data in files)


def unpack(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(kind, contents) of each file."""
    at, end, count = 0, len(data), 0
    while end - at >= 3 and count < MAX_FILES:
        count += 1
        size = data[at + 1] << 8 | data[at + 2]
        yield data[at] % KINDS, data[at + 3 : at + 3 + size]
        at += 3 + size
