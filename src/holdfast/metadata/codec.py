"""Metadata records as bytes: Kafka's binary format, one record a value of the metadata log.

    frame version (1) | API key | version | fields | tagged fields        all three numbers unsigned varints

Strings and arrays are compact (length + 1 as an unsigned varint, 0 is null). Field order, keys and versions are
those of Apache Kafka 4.3; ControllerClaimRecord is ours, with a key far outside Kafka's range. A record of an
unknown key or version is CorruptRecordError: a log that is only half understood must not be applied.

The wire's sentinels (leader -1 and -2, 0 / -1 / 1 of a registration change) end here.
"""

from collections.abc import Callable, Mapping
from struct import error as struct_error
from typing import Any, Final

from holdfast.metadata.codec_acls import get_acl, get_remove_acl, put_acl, put_remove_acl
from holdfast.metadata.codec_fields import (
    FRAME_VERSION,
    I8,
    I16,
    I32,
    I32_I64,
    I64,
    THREE_I32,
    U16,
    Reader,
    Tagged,
    int_array,
    put_head,
    put_string,
    put_tags,
    put_uvarint,
    string_field,
    uuid_array,
)
from holdfast.metadata.codec_users import (
    SECRET_KEY,
    get_quota,
    get_remove_scram,
    get_scram,
    get_secret,
    put_quota,
    put_remove_scram,
    put_scram,
    put_secret,
)
from holdfast.metadata.records import (
    NO_CHANGE,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerClaimRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoChange,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RecoveryState,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    ScramSecretRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from holdfast.model.errors import CorruptRecordError
from holdfast.model.listeners import Endpoint, SecurityProtocol

CLAIM_KEY: Final = 20_000
_NO_LEADER, _NO_LEADER_CHANGE = -1, -2
_CREATED, _INTER_BROKER, _CONTROL_PLANE = 10_000, 10_001, 10_002
"""Tagged fields of our own, far from those that Kafka may come to use."""


def encode_record(record: MetadataRecord) -> bytes:
    """The record as the value of a log record."""
    out = bytearray()
    _ENCODE[type(record)](out, record)
    return bytes(out)


def decode_record(data: bytes | bytearray | memoryview) -> MetadataRecord:
    """The record of a value; CorruptRecordError when it is not one."""
    try:
        reader = Reader(bytes(data))
        frame, key, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
        if frame != FRAME_VERSION:
            raise CorruptRecordError(f"Metadata record has frame version {frame}: expected {FRAME_VERSION}")
        decode = _DECODE.get((key, version))
        if decode is None:
            raise CorruptRecordError(f"Metadata record has key {key} version {version}, which is not known")
        record = decode(reader)
        if reader.pos != len(reader.data):
            raise CorruptRecordError(
                f"Metadata record {type(record).__name__} ends at byte {reader.pos} of {len(reader.data)}"
            )
    except (IndexError, struct_error, ValueError) as e:
        raise CorruptRecordError(f"Metadata record cannot be read: {e}") from e
    return record


# -- writing ---------------------------------------------------------------------------------------------------


def _put_register(out: bytearray, r: RegisterBrokerRecord) -> None:
    put_head(out, 0, 4)
    out += I32.pack(r.broker_id)
    out.append(0)  # never a migrating ZooKeeper broker
    out += r.incarnation_id.bytes
    out += I64.pack(r.broker_epoch)
    put_uvarint(out, len(r.endpoints) + 1)
    for endpoint in r.endpoints:
        put_string(out, endpoint.name)
        put_string(out, endpoint.host)
        out += U16.pack(endpoint.port)
        out += I16.pack(endpoint.security_protocol)
        out.append(0)
    put_uvarint(out, len(r.features) + 1)
    for name, low, high in r.features:
        put_string(out, name)
        out += I16.pack(low) + I16.pack(high)
        out.append(0)
    put_string(out, r.rack)
    out += bytes((r.fenced, r.in_controlled_shutdown))
    tagged: list[Tagged] = []
    if r.log_dirs:
        tagged.append((0, uuid_array(r.log_dirs)))
    if r.cordoned:
        tagged.append((1, uuid_array(r.cordoned)))
    chosen = ((_INTER_BROKER, r.inter_broker), (_CONTROL_PLANE, r.control_plane))
    tagged += [(tag, string_field(listener)) for tag, listener in chosen if listener is not None]
    put_tags(out, tagged)


def _put_unregister(out: bytearray, r: UnregisterBrokerRecord) -> None:
    put_head(out, 1, 0)
    out += I32_I64.pack(r.broker_id, r.broker_epoch)
    out.append(0)


def _put_registration_change(out: bytearray, r: BrokerRegistrationChangeRecord) -> None:
    tagged: list[Tagged] = []
    version = 0
    if r.fenced is not None:
        tagged.append((0, I8.pack(1 if r.fenced else -1)))
    if r.in_controlled_shutdown is not None:
        tagged.append((1, I8.pack(1 if r.in_controlled_shutdown else -1)))
        version = 1
    if r.log_dirs is not None:
        tagged.append((2, uuid_array(r.log_dirs)))
        version = 2
    if r.cordoned is not None:
        tagged.append((3, uuid_array(r.cordoned)))
        version = 3
    put_head(out, 17, version)
    out += I32_I64.pack(r.broker_id, r.broker_epoch)
    put_tags(out, tagged)


def _put_topic(out: bytearray, r: TopicRecord) -> None:
    put_head(out, 2, 0)
    put_string(out, r.name)
    out += r.topic_id.bytes
    out.append(0)


def _put_remove_topic(out: bytearray, r: RemoveTopicRecord) -> None:
    put_head(out, 9, 0)
    out += r.topic_id.bytes
    out.append(0)


def _put_partition(out: bytearray, r: PartitionRecord) -> None:
    put_head(out, 3, 2)
    out += I32.pack(r.partition)
    out += r.topic_id.bytes
    out += int_array(r.replicas) + int_array(r.isr) + int_array(r.removing) + int_array(r.adding)
    out += THREE_I32.pack(_NO_LEADER if r.leader is None else r.leader, r.leader_epoch, r.partition_epoch)
    out += uuid_array(r.directories)
    tagged: list[Tagged] = []
    if r.recovery_state is not RecoveryState.RECOVERED:
        tagged.append((0, I8.pack(r.recovery_state)))
    if r.elr is not None:
        tagged.append((1, int_array(r.elr)))
    if r.last_known_elr is not None:
        tagged.append((2, int_array(r.last_known_elr)))
    if r.created >= 0:
        tagged.append((_CREATED, I64.pack(r.created)))
    put_tags(out, tagged)


def _put_partition_change(out: bytearray, r: PartitionChangeRecord) -> None:
    tagged: list[Tagged] = []
    if r.isr is not None:
        tagged.append((0, int_array(r.isr)))
    if not isinstance(r.leader, NoChange):
        tagged.append((1, I32.pack(_NO_LEADER if r.leader is None else r.leader)))
    for tag, values in ((2, r.replicas), (3, r.removing), (4, r.adding)):
        if values is not None:
            tagged.append((tag, int_array(values)))
    if r.recovery_state is not None:
        tagged.append((5, I8.pack(r.recovery_state)))
    for tag, values in ((6, r.elr), (7, r.last_known_elr)):
        if values is not None:
            tagged.append((tag, int_array(values)))
    if r.directories is not None:
        tagged.append((8, uuid_array(r.directories)))
    put_head(out, 5, 2)
    out += I32.pack(r.partition)
    out += r.topic_id.bytes
    put_tags(out, tagged)


def _put_config(out: bytearray, r: ConfigRecord) -> None:
    put_head(out, 4, 0)
    out += I8.pack(r.resource_type)
    put_string(out, r.resource_name)
    put_string(out, r.name)
    put_string(out, r.value)
    out.append(0)


def _put_producer_ids(out: bytearray, r: ProducerIdsRecord) -> None:
    put_head(out, 15, 0)
    out += I32_I64.pack(r.broker_id, r.broker_epoch) + I64.pack(r.next_producer_id)
    out.append(0)


def _put_feature_level(out: bytearray, r: FeatureLevelRecord) -> None:
    put_head(out, 12, 0)
    put_string(out, r.name)
    out += I16.pack(r.level)
    out.append(0)


def _put_no_op(out: bytearray, r: NoOpRecord) -> None:
    put_head(out, 20, 0)
    out.append(0)


def _put_begin(out: bytearray, r: BeginTransactionRecord) -> None:
    put_head(out, 23, 0)
    name = bytearray()
    put_string(name, r.name)
    put_tags(out, [] if r.name is None else [(0, bytes(name))])


def _put_end(out: bytearray, r: EndTransactionRecord) -> None:
    put_head(out, 24, 0)
    out.append(0)


def _put_claim(out: bytearray, r: ControllerClaimRecord) -> None:
    put_head(out, CLAIM_KEY, 0)
    out += I32.pack(r.controller_epoch) + I32.pack(r.broker_id)
    put_string(out, r.host)
    out += U16.pack(r.port)
    out.append(0)


_ENCODE: Final[Mapping[type, Callable[[bytearray, Any], None]]] = {
    RegisterBrokerRecord: _put_register,
    UnregisterBrokerRecord: _put_unregister,
    BrokerRegistrationChangeRecord: _put_registration_change,
    TopicRecord: _put_topic,
    RemoveTopicRecord: _put_remove_topic,
    PartitionRecord: _put_partition,
    PartitionChangeRecord: _put_partition_change,
    ConfigRecord: _put_config,
    ProducerIdsRecord: _put_producer_ids,
    FeatureLevelRecord: _put_feature_level,
    AccessControlEntryRecord: put_acl,
    RemoveAccessControlEntryRecord: put_remove_acl,
    UserScramCredentialRecord: put_scram,
    RemoveUserScramCredentialRecord: put_remove_scram,
    ScramSecretRecord: put_secret,
    ClientQuotaRecord: put_quota,
    NoOpRecord: _put_no_op,
    BeginTransactionRecord: _put_begin,
    EndTransactionRecord: _put_end,
    ControllerClaimRecord: _put_claim,
}


# -- reading ---------------------------------------------------------------------------------------------------


def _get_register(r: Reader) -> RegisterBrokerRecord:
    broker_id = r.number(I32)
    r.take(1)
    incarnation_id, broker_epoch = r.uuid(), r.number(I64)
    endpoints = []
    for _ in range(r.uvarint() - 1):
        endpoints.append(
            Endpoint(
                name=r.string(),
                host=r.string(),
                port=r.number(U16),
                security_protocol=SecurityProtocol(r.number(I16)),
            )
        )
        r.tags()
    features = []
    for _ in range(r.uvarint() - 1):
        features.append((r.string(), r.number(I16), r.number(I16)))
        r.tags()
    rack, fenced, draining, tags = r.nullable_string(), r.take(1), r.take(1), r.tags()
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=incarnation_id,
        broker_epoch=broker_epoch,
        endpoints=tuple(endpoints),
        features=tuple(features),
        rack=rack,
        fenced=fenced != b"\0",
        in_controlled_shutdown=draining != b"\0",
        log_dirs=tags[0].uuids() if 0 in tags else (),
        cordoned=tags[1].uuids() if 1 in tags else (),
        inter_broker=tags[_INTER_BROKER].string() if _INTER_BROKER in tags else None,
        control_plane=tags[_CONTROL_PLANE].string() if _CONTROL_PLANE in tags else None,
    )


def _get_unregister(r: Reader) -> UnregisterBrokerRecord:
    record = UnregisterBrokerRecord(broker_id=r.number(I32), broker_epoch=r.number(I64))
    r.tags()
    return record


def _get_registration_change(r: Reader) -> BrokerRegistrationChangeRecord:
    broker_id, broker_epoch, tags = r.number(I32), r.number(I64), r.tags()
    flags = {1: True, -1: False}
    return BrokerRegistrationChangeRecord(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        fenced=flags.get(tags[0].number(I8)) if 0 in tags else None,
        in_controlled_shutdown=flags.get(tags[1].number(I8)) if 1 in tags else None,
        log_dirs=tags[2].uuids() if 2 in tags else None,
        cordoned=tags[3].uuids() if 3 in tags else None,
    )


def _get_topic(r: Reader) -> TopicRecord:
    record = TopicRecord(name=r.string(), topic_id=r.uuid())
    r.tags()
    return record


def _get_remove_topic(r: Reader) -> RemoveTopicRecord:
    record = RemoveTopicRecord(topic_id=r.uuid())
    r.tags()
    return record


def _get_partition(r: Reader) -> PartitionRecord:
    number, topic_id = r.number(I32), r.uuid()
    replicas, isr, removing, adding = r.ints(), r.ints(), r.ints(), r.ints()
    leader, leader_epoch, partition_epoch = THREE_I32.unpack_from(r.data, r.pos)
    r.pos += THREE_I32.size
    directories, tags = r.uuids(), r.tags()
    return PartitionRecord(
        partition=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas if isr == replicas else isr,
        leader=None if leader < 0 else leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        removing=removing,
        adding=adding,
        directories=directories,
        recovery_state=RecoveryState(tags[0].number(I8)) if 0 in tags else RecoveryState.RECOVERED,
        elr=tags[1].ints() if 1 in tags else None,
        last_known_elr=tags[2].ints() if 2 in tags else None,
        created=max(-1, tags[_CREATED].number(I64)) if _CREATED in tags else -1,
    )


def _get_partition_change(r: Reader) -> PartitionChangeRecord:
    number, topic_id, tags = r.number(I32), r.uuid(), r.tags()

    def ints(tag: int) -> tuple[int, ...] | None:
        return tags[tag].ints() if tag in tags else None

    leader = tags[1].number(I32) if 1 in tags else _NO_LEADER_CHANGE
    state = tags[5].number(I8) if 5 in tags else None
    return PartitionChangeRecord(
        partition=number,
        topic_id=topic_id,
        isr=ints(0),
        leader=NO_CHANGE if leader == _NO_LEADER_CHANGE else None if leader < 0 else leader,
        replicas=ints(2),
        removing=ints(3),
        adding=ints(4),
        recovery_state=None if state is None or state < 0 else RecoveryState(state),
        directories=tags[8].uuids() if 8 in tags else None,
        elr=ints(6),
        last_known_elr=ints(7),
    )


def _get_config(r: Reader) -> ConfigRecord:
    record = ConfigRecord(
        resource_type=r.number(I8), resource_name=r.string(), name=r.string(), value=r.nullable_string()
    )
    r.tags()
    return record


def _get_producer_ids(r: Reader) -> ProducerIdsRecord:
    record = ProducerIdsRecord(broker_id=r.number(I32), broker_epoch=r.number(I64), next_producer_id=r.number(I64))
    r.tags()
    return record


def _get_feature_level(r: Reader) -> FeatureLevelRecord:
    record = FeatureLevelRecord(name=r.string(), level=r.number(I16))
    r.tags()
    return record


def _get_no_op(r: Reader) -> NoOpRecord:
    r.tags()
    return NoOpRecord()


def _get_begin(r: Reader) -> BeginTransactionRecord:
    tags = r.tags()
    return BeginTransactionRecord(name=tags[0].nullable_string() if 0 in tags else None)


def _get_end(r: Reader) -> EndTransactionRecord:
    r.tags()
    return EndTransactionRecord()


def _get_claim(r: Reader) -> ControllerClaimRecord:
    record = ControllerClaimRecord(
        controller_epoch=r.number(I32), broker_id=r.number(I32), host=r.string(), port=r.number(U16)
    )
    r.tags()
    return record


_DECODE: Final[Mapping[tuple[int, int], Callable[[Reader], MetadataRecord]]] = {
    (0, 4): _get_register,
    (1, 0): _get_unregister,
    (2, 0): _get_topic,
    (3, 2): _get_partition,
    (4, 0): _get_config,
    **dict.fromkeys(((5, version) for version in range(3)), _get_partition_change),
    (9, 0): _get_remove_topic,
    (11, 0): get_scram,
    (12, 0): _get_feature_level,
    (14, 0): get_quota,
    (15, 0): _get_producer_ids,
    (18, 0): get_acl,
    (19, 0): get_remove_acl,
    **dict.fromkeys(((17, version) for version in range(4)), _get_registration_change),
    (20, 0): _get_no_op,
    (22, 0): get_remove_scram,
    (23, 0): _get_begin,
    (24, 0): _get_end,
    (CLAIM_KEY, 0): _get_claim,
    (SECRET_KEY, 0): get_secret,
}
