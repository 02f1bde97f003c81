"""How a broker that starts without an id gets one, and how an operator sees and changes which host has which (KIP-426).

Two requests of ours, of keys far outside Kafka's, that ApiVersions does not tell: ClaimBrokerId 0, which brokers ask
the controller, and ManageBrokerIds 0, which operators ask any broker. kio's reader and writer take these classes as
they take its own. Nothing here decides anything.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32

CLAIM_BROKER_ID: Final = 18_503
MANAGE_BROKER_IDS: Final = 18_504
"""The APIs' keys: no key of Kafka's comes near."""

_BOOL: Final = {"kafka_type": "bool"}
_INT8: Final = {"kafka_type": "int8"}
_INT32: Final = {"kafka_type": "int32"}
_STRING: Final = {"kafka_type": "string"}
_UUID: Final = {"kafka_type": "uuid"}
_ERROR: Final = {"kafka_type": "error_code"}


class ClaimResult(IntEnum):
    """What came of a claim."""

    HOST = 0
    """``broker_id`` is the id that the host has had."""
    MISSING = 1
    """``broker_id`` is that of the only missing broker."""
    NEW = 2
    """``broker_id`` is new."""
    AWAITED = 3
    """Another start has taken ``broker_id`` and is not alive yet: ask again."""
    SEVERAL_MISSING = 4
    """More than one broker is missing: none of their ids is given, and no new one."""
    NAMELESS = 5
    """The host has no id that is free, and another one would not do."""


class HostAction(IntEnum):
    """What an operator asks for."""

    LIST = 0
    SET = 1
    FORGET = 2


class _Message:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __flexible__: ClassVar[bool] = True
    __version__: ClassVar[i16] = i16(0)


class _Claim(_Message):
    __slots__ = ()
    __api_key__: ClassVar[i16] = i16(CLAIM_BROKER_ID)


class _Manage(_Message):
    __slots__ = ()
    __api_key__: ClassVar[i16] = i16(MANAGE_BROKER_IDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimBrokerIdRequest(_Claim):
    """The fields of broker_ids.Applicant, and the cluster that the broker takes this for."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    cluster_id: str = field(metadata=_STRING)
    host: str = field(metadata=_STRING)
    claimant: UUID | None = field(metadata=_UUID)
    address: str | None = field(metadata=_STRING, default=None)
    adopts: bool = field(metadata=_BOOL, default=False)
    may_be_new: bool = field(metadata=_BOOL, default=True)
    insists: bool = field(metadata=_BOOL, default=False)
    reserved_max: i32 = field(metadata=_INT32, default=i32(1000))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimBrokerIdResponse(_Claim):
    """``result``: a ClaimResult. ``broker_id``: -1 where there is none."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata=_ERROR)
    error_message: str | None = field(metadata=_STRING, default=None)
    result: i8 = field(metadata=_INT8, default=i8(ClaimResult.NAMELESS))
    broker_id: i32 = field(metadata=_INT32, default=i32(-1))
    missing: tuple[i32, ...] = field(metadata=_INT32, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ManageBrokerIdsRequest(_Manage):
    """``action``: a HostAction. ``host``: to change something. ``broker_id``: to set it."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    action: i8 = field(metadata=_INT8, default=i8(HostAction.LIST))
    host: str | None = field(metadata=_STRING, default=None)
    broker_id: i32 = field(metadata=_INT32, default=i32(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedHost(_Manage):
    """One host. ``is_awaited``: a broker has taken the id and was not alive since. ``is_registered``, ``is_alive``: of
    the broker of that id."""

    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    host: str = field(metadata=_STRING)
    broker_id: i32 = field(metadata=_INT32)
    is_awaited: bool = field(metadata=_BOOL)
    is_registered: bool = field(metadata=_BOOL)
    is_alive: bool = field(metadata=_BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManageBrokerIdsResponse(_Manage):
    """How it went, and all hosts as they are then. ``sequence``: the number of the last new id."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata=_ERROR)
    error_message: str | None = field(metadata=_STRING, default=None)
    sequence: i32 = field(metadata=_INT32, default=i32(0))
    hosts: tuple[ManagedHost, ...] = ()
