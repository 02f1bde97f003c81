"""What brokers say to each other and kio does not have: LeaderAndIsr 7, StopReplica 4, UpdateMetadata 8; and what
Holdfast adds to BrokerRegistration 4, BrokerHeartbeat 2 and AlterPartition 3.

Fields, order and versions are those of Apache Kafka 3.9; kio's reader and writer take these classes as they
take its own. Tagged fields from 0x1000 on are ours: a Kafka broker would skip them.

* UpdateMetadata: ``cluster_id``, ``metadata_offset`` (the controller's last committed record),
  ``topic_configs`` and ``broker_configs`` (the overrides; broker -1 is the cluster-wide default), ``acls`` (access
  control entries, all or those that changed, as codec_acls.py writes them; empty: nothing is said of them),
  ``scram_users`` and ``client_quotas`` (records of users and of quotas, as codec_news.py writes them; likewise).
* UpdateMetadata for each broker, and BrokerRegistration: ``inter_broker`` and ``control_plane``, the names of the
  listeners that brokers and the controller use; empty: the first one, and that of the brokers.
* LeaderAndIsr and the answer to AlterPartition: ``eligible``, the eligible leader replicas of a partition, which
  its leader must not leave behind (KIP-966).
* The answer to LeaderAndIsr: ``last_epoch`` and ``end_offset`` of a partition of which nobody has everything.
* BrokerRegistration: ``rest`` and ``fates``, what became of the broker's replicas (model/fates.py); ``host``, on which
  it runs (KIP-426); and ``cordoned_log_dirs``, which KIP-1066 gives to version 4 and Kafka gave to nothing else.
* BrokerHeartbeat: ``turns``, what happened to replicas of a broker that lives; ``log_dirs``, which may grow while it
  lives. The cordoned ones are Kafka's own tag 1.
* StopReplica: ``topic_id`` of each topic, so that a replica of an earlier topic of the same name is told
  apart.

Nothing here decides anything.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from uuid import UUID

from kio.schema.alter_partition.v3 import response as alter_partition
from kio.schema.alter_partition.v3.request import AlterPartitionRequest
from kio.schema.broker_heartbeat.v2 import request as broker_heartbeat
from kio.schema.broker_heartbeat.v2.response import BrokerHeartbeatResponse
from kio.schema.broker_registration.v4 import request as broker_registration
from kio.schema.broker_registration.v4.response import BrokerRegistrationResponse
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

from holdfast.model.errors import InvalidRequestError
from holdfast.model.listeners import Endpoint, Endpoints, SecurityProtocol
from holdfast.model.types import TopicPartition

DELETED_LEADER: Final = -2
"""Leader of a partition in UpdateMetadata when its topic is being deleted."""
DEFAULT_BROKER: Final = -1
"""Broker of the cluster-wide defaults in ``broker_configs``."""
TYPE_INCREMENTAL: Final = 1
TYPE_FULL: Final = 2
"""LeaderAndIsr and UpdateMetadata of this type name everything there is; what is not named is gone."""

_INT8: Final = {"kafka_type": "int8"}
_INT16: Final = {"kafka_type": "int16"}
_INT32: Final = {"kafka_type": "int32"}
_INT64: Final = {"kafka_type": "int64"}
_BOOL: Final = {"kafka_type": "bool"}
_STRING: Final = {"kafka_type": "string"}
_UUID: Final = {"kafka_type": "uuid"}
_ERROR: Final = {"kafka_type": "error_code"}

_TAG_CLUSTER_ID, _TAG_METADATA_OFFSET, _TAG_TOPIC_CONFIGS, _TAG_BROKER_CONFIGS = (
    0x1000,
    0x1001,
    0x1002,
    0x1003,
)
_TAG_FEATURES = 0x1004
_TAG_ACLS, _TAG_SCRAM_USERS, _TAG_CLIENT_QUOTAS = 0x1005, 0x1006, 0x1007
_TAG_TOPIC_ID = 0x1000
TAG_ELIGIBLE: Final = 0x1000
_TAG_REST, _TAG_FATES, _TAG_CORDONED = 0x1000, 0x1001, 0x1002
_TAG_USED_BY_BROKERS, _TAG_USED_BY_CONTROLLER, _TAG_HOST = 0x1003, 0x1004, 0x1005
_TAG_INTER_BROKER, _TAG_CONTROL_PLANE = 0x1000, 0x1001
_TAG_TURNS = 0x1000
_TAG_NUMBER, _TAG_LOG_DIRS = 0x1001, 0x1002
_TAG_LAST_EPOCH, _TAG_END_OFFSET = 0x1000, 0x1001

__all__ = ["AlterPartitionRequest", "BrokerHeartbeatResponse", "BrokerRegistrationResponse"]  # beside ours


class _Message:
    """What kio wants to know of every class; subclasses only say which API and version."""

    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __flexible__: ClassVar[bool] = True
    __version__: ClassVar[i16]
    __api_key__: ClassVar[i16]


class _LeaderAndIsrRequest(_Message):
    __slots__ = ()
    __version__ = i16(7)
    __api_key__ = i16(4)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _LeaderAndIsrResponse(_Message):
    __slots__ = ()
    __version__ = i16(7)
    __api_key__ = i16(4)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


class _StopReplicaRequest(_Message):
    __slots__ = ()
    __version__ = i16(4)
    __api_key__ = i16(5)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _StopReplicaResponse(_Message):
    __slots__ = ()
    __version__ = i16(4)
    __api_key__ = i16(5)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


class _UpdateMetadataRequest(_Message):
    __slots__ = ()
    __version__ = i16(8)
    __api_key__ = i16(6)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


# -- LeaderAndIsr ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionState(_LeaderAndIsrRequest):
    """What one partition shall be. ``is_new`` only when this broker has never had the replica (KIP-112)."""

    partition_index: i32 = field(metadata=_INT32)
    controller_epoch: i32 = field(metadata=_INT32)
    leader: i32 = field(metadata=_INT32)
    leader_epoch: i32 = field(metadata=_INT32)
    isr: tuple[i32, ...] = field(metadata=_INT32)
    partition_epoch: i32 = field(metadata=_INT32)
    replicas: tuple[i32, ...] = field(metadata=_INT32)
    adding_replicas: tuple[i32, ...] = field(metadata=_INT32, default=())
    removing_replicas: tuple[i32, ...] = field(metadata=_INT32, default=())
    is_new: bool = field(metadata=_BOOL, default=False)
    leader_recovery_state: i8 = field(metadata=_INT8, default=i8(0))
    eligible: tuple[i32, ...] = field(metadata={**_INT32, "tag": TAG_ELIGIBLE}, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicState(_LeaderAndIsrRequest):
    topic_name: str = field(metadata=_STRING)
    topic_id: UUID | None = field(metadata=_UUID)
    partition_states: tuple[LeaderAndIsrPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrLiveLeader(_LeaderAndIsrRequest):
    """Where to fetch from: the address of a broker that leads one of the partitions."""

    broker_id: i32 = field(metadata=_INT32)
    host_name: str = field(metadata=_STRING)
    port: i32 = field(metadata=_INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(_LeaderAndIsrRequest):
    __type__: ClassVar = EntityType.request
    controller_id: i32 = field(metadata=_INT32)
    is_kraft_controller: bool = field(metadata=_BOOL, default=False)
    controller_epoch: i32 = field(metadata=_INT32)
    broker_epoch: i64 = field(metadata=_INT64, default=i64(-1))
    type: i8 = field(metadata=_INT8, default=i8(TYPE_INCREMENTAL))
    topic_states: tuple[LeaderAndIsrTopicState, ...]
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionError(_LeaderAndIsrResponse):
    """``last_epoch`` and ``end_offset``: how far the log goes, where that was asked by naming nobody at all; -1: not
    asked, and for the epoch, that there is no batch."""

    partition_index: i32 = field(metadata=_INT32)
    error_code: ErrorCode = field(metadata=_ERROR)
    last_epoch: i32 = field(metadata={**_INT32, "tag": _TAG_LAST_EPOCH}, default=i32(-1))
    end_offset: i64 = field(metadata={**_INT64, "tag": _TAG_END_OFFSET}, default=i64(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicError(_LeaderAndIsrResponse):
    topic_id: UUID | None = field(metadata=_UUID)
    partition_errors: tuple[LeaderAndIsrPartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(_LeaderAndIsrResponse):
    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = field(metadata=_ERROR)
    topics: tuple[LeaderAndIsrTopicError, ...] = ()


# -- StopReplica -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionState(_StopReplicaRequest):
    partition_index: i32 = field(metadata=_INT32)
    leader_epoch: i32 = field(metadata=_INT32, default=i32(-1))
    """-2: whatever the epoch, the topic is being deleted."""
    delete_partition: bool = field(metadata=_BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopicState(_StopReplicaRequest):
    topic_name: str = field(metadata=_STRING)
    partition_states: tuple[StopReplicaPartitionState, ...]
    topic_id: UUID | None = field(metadata={**_UUID, "tag": _TAG_TOPIC_ID}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(_StopReplicaRequest):
    __type__: ClassVar = EntityType.request
    controller_id: i32 = field(metadata=_INT32)
    is_kraft_controller: bool = field(metadata=_BOOL, default=False)
    controller_epoch: i32 = field(metadata=_INT32)
    broker_epoch: i64 = field(metadata=_INT64, default=i64(-1))
    topic_states: tuple[StopReplicaTopicState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionError(_StopReplicaResponse):
    topic_name: str = field(metadata=_STRING)
    partition_index: i32 = field(metadata=_INT32)
    error_code: ErrorCode = field(metadata=_ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(_StopReplicaResponse):
    __type__: ClassVar = EntityType.response
    error_code: ErrorCode = field(metadata=_ERROR)
    partition_errors: tuple[StopReplicaPartitionError, ...] = ()


# -- UpdateMetadata ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartitionState(_UpdateMetadataRequest):
    """What clients may be told of one partition. Kafka calls the partition epoch zk_version here."""

    partition_index: i32 = field(metadata=_INT32)
    controller_epoch: i32 = field(metadata=_INT32)
    leader: i32 = field(metadata=_INT32)
    leader_epoch: i32 = field(metadata=_INT32)
    isr: tuple[i32, ...] = field(metadata=_INT32)
    zk_version: i32 = field(metadata=_INT32)
    replicas: tuple[i32, ...] = field(metadata=_INT32)
    offline_replicas: tuple[i32, ...] = field(metadata=_INT32, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataTopicState(_UpdateMetadataRequest):
    topic_name: str = field(metadata=_STRING)
    topic_id: UUID | None = field(metadata=_UUID)
    partition_states: tuple[UpdateMetadataPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint(_UpdateMetadataRequest):
    port: i32 = field(metadata=_INT32)
    host: str = field(metadata=_STRING)
    listener: str = field(metadata=_STRING, default="PLAINTEXT")
    security_protocol: i16 = field(metadata=_INT16, default=i16(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker(_UpdateMetadataRequest):
    id: i32 = field(metadata=_INT32)
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = field(metadata=_STRING, default=None)
    inter_broker: str = field(metadata={**_STRING, "tag": _TAG_INTER_BROKER}, default="")
    control_plane: str = field(metadata={**_STRING, "tag": _TAG_CONTROL_PLANE}, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPair(_UpdateMetadataRequest):
    key: str = field(metadata=_STRING)
    value: str = field(metadata=_STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOverrides(_UpdateMetadataRequest):
    """All overrides of one topic; none is a topic that has no more overrides."""

    topic: str = field(metadata=_STRING)
    configs: tuple[ConfigPair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfigs(_UpdateMetadataRequest):
    """All dynamic configurations of one broker, or of all (DEFAULT_BROKER)."""

    broker: i32 = field(metadata=_INT32)
    configs: tuple[ConfigPair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevel(_UpdateMetadataRequest):
    """A feature that is in force (KIP-584)."""

    name: str = field(metadata=_STRING)
    level: i16 = field(metadata=_INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(_UpdateMetadataRequest):
    __type__: ClassVar = EntityType.request
    controller_id: i32 = field(metadata=_INT32)
    is_kraft_controller: bool = field(metadata=_BOOL, default=False)
    type: i8 = field(metadata={**_INT8, "tag": 0}, default=i8(0))
    controller_epoch: i32 = field(metadata=_INT32)
    broker_epoch: i64 = field(metadata=_INT64, default=i64(-1))
    topic_states: tuple[UpdateMetadataTopicState, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]
    cluster_id: str = field(metadata={**_STRING, "tag": _TAG_CLUSTER_ID}, default="")
    metadata_offset: i64 = field(metadata={**_INT64, "tag": _TAG_METADATA_OFFSET}, default=i64(-1))
    topic_configs: tuple[TopicOverrides, ...] = field(metadata={"tag": _TAG_TOPIC_CONFIGS}, default=())
    broker_configs: tuple[BrokerConfigs, ...] = field(metadata={"tag": _TAG_BROKER_CONFIGS}, default=())
    features: tuple[FeatureLevel, ...] = field(metadata={"tag": _TAG_FEATURES}, default=())
    acls: bytes = field(metadata={"kafka_type": "bytes", "tag": _TAG_ACLS}, default=b"")
    scram_users: bytes = field(metadata={"kafka_type": "bytes", "tag": _TAG_SCRAM_USERS}, default=b"", repr=False)
    client_quotas: bytes = field(metadata={"kafka_type": "bytes", "tag": _TAG_CLIENT_QUOTAS}, default=b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse(_Message):
    __type__: ClassVar = EntityType.response
    __version__ = i16(8)
    __api_key__ = i16(6)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata=_ERROR)


# -- what is added to kio's --------------------------------------------------------------------------------


class _BrokerRegistration(_Message):
    __slots__ = ()
    __version__ = i16(4)
    __api_key__ = i16(62)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFateState(_BrokerRegistration):
    """Partitions of one topic whose replicas had the same fate (a ReplicaFate's value)."""

    fate: i8 = field(metadata=_INT8)
    topic_name: str = field(metadata=_STRING)
    partitions: tuple[i32, ...] = field(metadata=_INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationRequest(broker_registration.BrokerRegistrationRequest):
    """``rest``: the fate of replicas that are not in ``fates``; -1: it follows from previous_broker_epoch alone, as
    in Kafka. ``cordoned_log_dirs``: those of the properties file (KIP-1066); None: nothing is said of them. ``host``:
    the key of the host (KIP-426), empty where there is none."""

    rest: i8 = field(metadata={**_INT8, "tag": _TAG_REST}, default=i8(-1))
    fates: tuple[ReplicaFateState, ...] = field(metadata={"tag": _TAG_FATES}, default=())
    cordoned_log_dirs: tuple[UUID | None, ...] | None = field(metadata={**_UUID, "tag": _TAG_CORDONED}, default=None)
    inter_broker: str = field(metadata={**_STRING, "tag": _TAG_USED_BY_BROKERS}, default="")
    control_plane: str = field(metadata={**_STRING, "tag": _TAG_USED_BY_CONTROLLER}, default="")
    host: str = field(metadata={**_STRING, "tag": _TAG_HOST}, default="")


class _BrokerHeartbeat(_Message):
    __slots__ = ()
    __version__ = i16(2)
    __api_key__ = i16(63)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTurnState(_BrokerHeartbeat):
    """Partitions of one topic to whose replicas the same happened (a ReplicaTurn's value)."""

    turn: i8 = field(metadata=_INT8)
    topic_name: str = field(metadata=_STRING)
    partitions: tuple[i32, ...] = field(metadata=_INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequest(broker_heartbeat.BrokerHeartbeatRequest):
    """``number`` grows with every heartbeat of a process: one that a cut held up may come after the next ones.
    ``log_dirs``: all that have an id now; None: those of the registration."""

    turns: tuple[ReplicaTurnState, ...] = field(metadata={"tag": _TAG_TURNS}, default=())
    number: i64 = field(metadata={**_INT64, "tag": _TAG_NUMBER}, default=i64(-1))
    log_dirs: tuple[UUID | None, ...] | None = field(metadata={**_UUID, "tag": _TAG_LOG_DIRS}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionData(alter_partition.PartitionData):
    eligible: tuple[i32, ...] = field(metadata={**_INT32, "tag": TAG_ELIGIBLE}, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicData(alter_partition.TopicData):
    partitions: tuple[PartitionData, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResponse(alter_partition.AlterPartitionResponse):
    topics: tuple[TopicData, ...]


def listener_choice(endpoints: Endpoints) -> dict[str, str]:
    """The fields ``inter_broker`` and ``control_plane`` of a broker."""
    inter_broker, control_plane = endpoints.choice
    return {"inter_broker": inter_broker or "", "control_plane": control_plane or ""}


def endpoints_of(broker: Any, named: Iterable[tuple[str, Any]]) -> Endpoints:
    """Where a broker of UpdateMetadata or BrokerRegistration listens; ``named``: its addresses, each by the name of its
    listener. InvalidRequestError for what cannot be."""
    try:
        found = [
            Endpoint(name=name, host=e.host, port=int(e.port), security_protocol=SecurityProtocol(e.security_protocol))
            for name, e in named
        ]
        return Endpoints.of(found, broker.inter_broker or None, broker.control_plane or None)
    except ValueError as e:
        raise InvalidRequestError(str(e)) from e


def partition_states(
    request: LeaderAndIsrRequest,
) -> Iterator[tuple[TopicPartition, UUID | None, LeaderAndIsrPartitionState]]:
    """Partition, topic id and wanted state of everything in the request, in its order."""
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, int(state.partition_index)), topic.topic_id, state


def config_pairs(configs: Any) -> tuple[ConfigPair, ...]:
    """The overrides of a mapping, in the order of their keys."""
    return tuple(ConfigPair(key=key, value=configs[key]) for key in sorted(configs))
