"""The one thing the coordinator reads in a consumer's own metadata: which topics it subscribes to.

Members of type ``consumer`` put a version (i16) and an array of topic names in front; what follows is theirs.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

CONSUMER: Final = "consumer"
_HEAD: Final = Struct(">hi")
_SHORT: Final = Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics, or None when the bytes are something else."""
    try:
        _, count = _HEAD.unpack_from(metadata)
        position = _HEAD.size
        topics = set()
        for _ in range(count):
            (size,) = _SHORT.unpack_from(metadata, position)
            start, position = position + _SHORT.size, position + _SHORT.size + size
            if size < 0 or position > len(metadata):
                return None
            topics.add(metadata[start:position].decode())
    except (error, UnicodeDecodeError):
        return None
    return frozenset(topics)
