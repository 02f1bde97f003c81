"""What an operator asks of one broker and Kafka has no request for: its log directories as they are, and changes.

One request of ours, ManageLogDirs 0, of a key far outside Kafka's. It is not told by ApiVersions, since clients take
that list for Kafka's; who wants it asks a broker that speaks it, and any other closes the connection. kio's reader and
writer take these classes as they take its own. Nothing here decides anything.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

MANAGE_LOG_DIRS: Final = 18_502
"""The API's key: no key of Kafka's comes near."""

_BOOL: Final = {"kafka_type": "bool"}
_INT8: Final = {"kafka_type": "int8"}
_INT32: Final = {"kafka_type": "int32"}
_INT64: Final = {"kafka_type": "int64"}
_STRING: Final = {"kafka_type": "string"}
_UUID: Final = {"kafka_type": "uuid"}
_ERROR: Final = {"kafka_type": "error_code"}


class DirAction(IntEnum):
    """What is asked for."""

    DESCRIBE = 0
    OFFLINE = 1
    ONLINE = 2
    ADD = 3
    REMOVE = 4


class _Message:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __flexible__: ClassVar[bool] = True
    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(MANAGE_LOG_DIRS)


class _Request(_Message):
    __slots__ = ()
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _Response(_Message):
    __slots__ = ()
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class ManageLogDirsRequest(_Request):
    """``action``: a DirAction. ``path`` of the directory; None only to describe. ``force``: remove it although the
    other directories have too little room for what it held, take it out or away although it has the last copy of
    something, or add it although it does not exist."""

    __type__: ClassVar = EntityType.request
    action: i8 = field(metadata=_INT8, default=i8(DirAction.DESCRIBE))
    path: str | None = field(metadata=_STRING, default=None)
    force: bool = field(metadata=_BOOL, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedReplica(_Response):
    """``size`` in bytes; ``lag`` in records, -1: not known."""

    topic_name: str = field(metadata=_STRING)
    partition_index: i32 = field(metadata=_INT32)
    size: i64 = field(metadata=_INT64)
    lag: i64 = field(metadata=_INT64)
    is_future: bool = field(metadata=_BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedLogDir(_Response):
    """One directory; bytes, ``probe_us`` and ``device`` (of the file system) are -1 where they are not known.
    ``state``: that of its health, for the ``reason`` and since the time given. ``replicas`` of an offline one: what was
    there."""

    path: str = field(metadata=_STRING)
    directory_id: UUID | None = field(metadata=_UUID)
    state: str = field(metadata=_STRING)
    reason: str | None = field(metadata=_STRING)
    since_ms: i64 = field(metadata=_INT64)
    total_bytes: i64 = field(metadata=_INT64)
    usable_bytes: i64 = field(metadata=_INT64)
    probe_us: i64 = field(metadata=_INT64)
    cordoned: bool = field(metadata=_BOOL)
    replicas: tuple[ManagedReplica, ...]
    device: i64 = field(metadata=_INT64, default=i64(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedMove(_Response):
    """A replica on its way from one directory to another; ``lag``: records that its copy has not got yet."""

    topic_name: str = field(metadata=_STRING)
    partition_index: i32 = field(metadata=_INT32)
    source: str = field(metadata=_STRING)
    target: str = field(metadata=_STRING)
    lag: i64 = field(metadata=_INT64)
    bytes_per_s: i64 = field(metadata=_INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManageLogDirsResponse(_Response):
    """How it went, and how all directories are afterwards, also after an error."""

    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = field(metadata=_ERROR)
    error_message: str | None = field(metadata=_STRING, default=None)
    log_dirs: tuple[ManagedLogDir, ...] = ()
    moves: tuple[ManagedMove, ...] = ()
