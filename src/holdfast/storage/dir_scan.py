"""What lies in a log directory, by name.

Owns the rules of names: ``<topic>-<partition>`` is a replica, ``.<32 hex>-delete`` a replica on its way out,
``-future`` one on its way in, ``-stray`` one that nobody asked for. Touches no disk.
"""

import re
from enum import Enum
from typing import NamedTuple

from holdfast.model.types import TopicPartition
from holdfast.storage import checkpoints, incarnation, remembered, topic_configs

DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX = "-delete", "-future", "-stray"

_REPLICA = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]{1,10})")
_MARKED = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>[0-9]+)\.[0-9a-f]{32}(?P<mark>-[a-z]+)")
_PROBE = re.compile(r"\.probe(-[0-9]+)?")
"""What a probe of a directory writes: left behind where it failed half way."""
_OWN_FILES = frozenset(
    {
        ".lock",
        "meta.properties",
        checkpoints.RECOVERY_POINT,
        checkpoints.LOG_START,
        checkpoints.HIGH_WATERMARK,
        checkpoints.CLEAN_SHUTDOWN,
        incarnation.FILE_NAME,
        remembered.FILE_NAME,
        checkpoints.CLEANER,
        "bootstrap.checkpoint",
        topic_configs.FILE_NAME,
        topic_configs.RECOVERED,
        "__cluster_metadata-0",
        "metadata-reigns",
        "metadata-witnesses",
    }
)


def marked_name(tp: TopicPartition, unique: str, suffix: str) -> str:
    """The name of a replica's directory with a mark; ``unique``: 32 hex digits."""
    end = f"-{tp.partition}.{unique}{suffix}"
    # A topic's name may be long: a file's name may not be longer than 255.
    return tp.topic[: 255 - len(end)] + end


class NameKind(Enum):
    """What a name in a log directory stands for."""

    REPLICA = "replica"
    DELETED = "deleted"
    FUTURE = "future"
    STRAY = "stray"
    OWN = "own"
    UNKNOWN = "unknown"


class DirName(NamedTuple):
    """A name and what it stands for."""

    name: str
    kind: NameKind
    topic_partition: TopicPartition | None


_KINDS = {
    DELETE_SUFFIX: NameKind.DELETED,
    FUTURE_SUFFIX: NameKind.FUTURE,
    STRAY_SUFFIX: NameKind.STRAY,
}


def classify(name: str) -> DirName:
    """What ``name`` is."""
    if name in _OWN_FILES or name.endswith(".tmp") or _PROBE.fullmatch(name):
        return DirName(name, NameKind.OWN, None)
    marked = _MARKED.fullmatch(name)
    if marked is not None and marked["mark"] in _KINDS:
        tp = TopicPartition(marked["topic"], int(marked["partition"]))
        return DirName(name, _KINDS[marked["mark"]], tp)
    plain = _REPLICA.fullmatch(name)
    if plain is not None:
        tp = TopicPartition(plain["topic"], int(plain["partition"]))
        if str(tp) == name and tp.partition < 2**31:
            return DirName(name, NameKind.REPLICA, tp)
    return DirName(name, NameKind.UNKNOWN, None)
