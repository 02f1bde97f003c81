"""What the start does with a log that a crash left in the middle of a cleaning (cleaned_log.py has the steps).

Owns the rules, which are Kafka's, so that a directory that Kafka left opens here and the other way round: ``.cleaned``
files are of no use, nor is a ``.swap`` that begins where one of them does or later: not all of its files had that name
yet. Any other ``.swap`` counts, and the segments that it was made of go.
"""

import logging
from collections.abc import Iterable

from holdfast.model.types import Offset
from holdfast.records.batch import HEADER_SIZE
from holdfast.storage.files import FileSystem
from holdfast.storage.segment import Segment
from holdfast.storage.segment_names import CLEANED, INDEX, LOG, SNAPSHOT, SWAP, TIME_INDEX, TXN_INDEX, offset_of

log = logging.getLogger(__name__)

_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)


class _Swapped(Segment):
    __slots__ = ()

    def path(self, suffix: str) -> str:
        return super().path(suffix) + SWAP


def complete_swaps(files: FileSystem, path: str) -> set[str]:
    """Complete or take back what was under way in the directory; the names in it then. OSError, CorruptRecordError."""
    names = set(files.listdir(path))
    begun = _offsets(names, CLEANED)
    first_begun = min(begun, default=None)
    for name in sorted(names):
        base = _offset(name, SWAP)
        is_incomplete = base is not None and first_begun is not None and base >= first_begun
        if name.endswith(CLEANED) or is_incomplete:
            files.unlink(f"{path}/{name}")
            names.discard(name)
    swapped = _offsets(names, SWAP)
    for base in sorted(swapped):
        if f"{base:020d}{LOG}{SWAP}" in names:
            _remove_covered(files, path, names, base)
    for name in sorted((n for n in names if n.endswith(SWAP)), key=lambda n: (not n.endswith(LOG + SWAP), n)):
        files.rename(f"{path}/{name}", f"{path}/{name.removesuffix(SWAP)}")
        names.discard(name)
        names.add(name.removesuffix(SWAP))
    if begun or swapped:
        log.warning("%s: a cleaning was interrupted: it is %s", path, "completed" if swapped else "begun again later")
        files.fsync_dir(path)
    return names


def _remove_covered(files: FileSystem, path: str, names: set[str], base: Offset) -> None:
    """The segments that the swap at ``base`` was made of go. The producers' snapshot at its base stays."""
    made = _Swapped(files, path, base, created_ms=0)
    made.size = files.file_size(made.path(LOG))
    end = base + 1
    if made.size >= HEADER_SIZE:
        for _, header in made.headers(made.load_indexes()[0].position_at_most(made.size), made.size):
            end = header.next_offset
    made.close_file()
    for name in sorted(names):
        for suffix in (*_SUFFIXES, SNAPSHOT):
            found = offset_of(name, suffix)
            if found is not None and base <= found < end and not (suffix == SNAPSHOT and found == base):
                files.unlink(f"{path}/{name}")
                names.discard(name)


def _offsets(names: Iterable[str], mark: str) -> set[Offset]:
    return {found for name in names if (found := _offset(name, mark)) is not None}


def _offset(name: str, mark: str) -> Offset | None:
    """The offset of a file of a segment that has this mark."""
    if not name.endswith(mark):
        return None
    stem = name.removesuffix(mark)
    return next((found for suffix in _SUFFIXES if (found := offset_of(stem, suffix)) is not None), None)
