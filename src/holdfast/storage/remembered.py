"""What each log directory of a broker held, as the others remember it: ``holdfast.replicas`` in each of them.

A directory that is bad when the broker starts cannot say what it has. Without this its replicas would be in no list and
its bytes in no sum (K112-43). Nothing else is decided by the note: it may be some seconds old, or missing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.model.types import TimestampMs, TopicPartition
from holdfast.storage.files import FileSystem

log = logging.getLogger(__name__)

FILE_NAME = "holdfast.replicas"
_CHANGE_BYTES, _CHANGE_SHARE = 4096, 0.1
"""A size is written again when it has changed by this much, and by this share."""
Sizes: TypeAlias = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeNote:
    """Bytes of each replica, by path of the log directory. ``written_ms``: wall clock."""

    written_ms: TimestampMs = 0
    directories: Mapping[str, Sizes] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The file's text."""
        directories = {path: {str(tp): size for tp, size in held.items()} for path, held in self.directories.items()}
        return json.dumps({"version": 1, "writtenMs": self.written_ms, "directories": directories}).encode()

    def says_as_much_as(self, other: SizeNote) -> bool:
        """The same replicas in the same directories, of about the same size."""
        if self.directories.keys() != other.directories.keys():
            return False
        for path, held in self.directories.items():
            there = other.directories[path]
            if held.keys() != there.keys():
                return False
            if any(abs(size - there[tp]) > max(_CHANGE_BYTES, _CHANGE_SHARE * size) for tp, size in held.items()):
                return False
        return True


def read(files: FileSystem, directory: str) -> SizeNote | None:
    """The note in a directory; None when there is none that can be read. OSError."""
    try:
        data = files.read_bytes(f"{directory}/{FILE_NAME}")
    except FileNotFoundError:
        return None
    try:
        value = json.loads(data)
        if value["version"] != 1 or type(value["writtenMs"]) is not int:
            raise ValueError("expected version 1, and a time")
        return SizeNote(
            written_ms=value["writtenMs"],
            directories={path: dict(map(_size, held.items())) for path, held in value["directories"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        log.warning("%s/%s cannot be read: %s", directory, FILE_NAME, e)
        return None


def _size(item: tuple[str, int]) -> tuple[TopicPartition, int]:
    name, size = item
    topic, _, number = name.rpartition("-")
    if not topic or type(size) is not int or not 0 <= size < 2**63:
        raise ValueError(f"expected a replica and its bytes, found {name!r}: {size!r}")
    return TopicPartition(topic, int(number)), size


def newest(notes: Iterable[SizeNote | None]) -> SizeNote:
    """Of those of several directories; an empty one if there is none."""
    return max((note for note in notes if note is not None), key=lambda note: note.written_ms, default=SizeNote())
