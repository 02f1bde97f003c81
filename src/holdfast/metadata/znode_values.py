"""What the nodes say that hold the cluster's state: JSON as Kafka 3.9 writes it, both ways, and that of nodes of ours.

Timestamps, producer ids and the version of the cluster's id are strings, and a leader that there is not is -1, because
Kafka has it so. What Kafka's nodes have no key for stands under ``holdfast`` in them (znode_json.py). Everything that
reads takes the path, for its errors: MetadataError.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from holdfast.metadata.image import BrokerImage, PartitionImage, TopicImage
from holdfast.metadata.records import UNASSIGNED_DIRECTORY, PartitionRecord, RecoveryState, RegisterBrokerRecord
from holdfast.metadata.znode_json import INT32, INT64, OUR_KEY, Fields, encode, id_text, wrong
from holdfast.model.listeners import Endpoint, Endpoints, SecurityProtocol
from holdfast.model.types import BrokerId, ControllerEpoch, DirectoryId, Offset, TopicId

_NO_LEADER: Final = -1
MAX_PARTITIONS: Final = 200_000
"""Of a topic that is made or removed in several multis: one with more has a node of several MB."""
_RECOVERY: Final = {int(state): state for state in RecoveryState}
_FEATURES_NEW: Final = 2
_MAX_LEVEL: Final = 32767
_ENABLED: Final = 1

# -- brokers ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdsNode:
    """What a broker that lives says of itself in /brokers/ids/N. ``incarnation_id``: None of a broker of Kafka's.
    ``host``: what its host is called (KIP-426), None: nothing is kept of it."""

    endpoints: Endpoints
    timestamp_ms: int
    rack: str | None = None
    features: tuple[tuple[str, int, int], ...] = ()
    incarnation_id: UUID | None = None
    host: str | None = None


def broker_node(node: BrokerIdsNode) -> bytes:
    """Registration of version 5. ``host`` and ``port``: of the first PLAINTEXT listener, for clients that know one."""
    listeners = node.endpoints.listeners
    plain = next((e for e in listeners if e.security_protocol is SecurityProtocol.PLAINTEXT), None)
    values: dict[str, Any] = {
        "features": {name: {"min_version": low, "max_version": high} for name, low, high in node.features},
        "listener_security_protocol_map": {e.name: e.security_protocol.name for e in listeners},
        "endpoints": [str(e) for e in listeners],
        "jmx_port": -1,
        "port": -1 if plain is None else plain.port,
        "host": None if plain is None else plain.host,
        "version": 5,
        "timestamp": str(node.timestamp_ms),
    }
    if node.rack is not None:
        values["rack"] = node.rack
    if node.incarnation_id is not None:
        values[OUR_KEY] = {
            "incarnation": id_text(node.incarnation_id),
            "inter_broker": node.endpoints.inter_broker,
            "control_plane": node.endpoints.control_plane,
            **({} if node.host is None else {"host": node.host}),
        }
    return encode(values)


def read_broker_node(path: str, data: bytes) -> BrokerIdsNode:
    """Of versions 4 and 5, which name endpoints."""
    fields = Fields.of(path, data)
    protocols = fields.texts("listener_security_protocol_map")
    ours = fields.object(OUR_KEY, required=False)
    endpoints = [_endpoint(fields, text, protocols) for text in fields.strings("endpoints")]
    features = fields.object("features", required=False)
    return BrokerIdsNode(
        endpoints=_endpoints(
            fields, endpoints, ours.optional_text("inter_broker"), ours.optional_text("control_plane")
        ),
        timestamp_ms=fields.number_text("timestamp"),
        rack=fields.optional_text("rack"),
        features=_levels(features),
        incarnation_id=ours.uuid("incarnation") if "incarnation" in ours else None,
        host=ours.optional_text("host"),
    )


def _levels(features: Fields) -> tuple[tuple[str, int, int], ...]:
    found = ((name, features.object(name)) for name in features.names)
    return tuple((name, levels.integer("min_version"), levels.integer("max_version")) for name, levels in found)


def _endpoint(fields: Fields, text: str, protocols: Mapping[str, str]) -> Endpoint:
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    protocol = protocols.get(name, "")
    if not (separator and colon and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65536):
        raise fields.wrong("endpoints", "NAME://HOST:PORT of each")
    if protocol not in SecurityProtocol.__members__:
        raise fields.wrong("listener_security_protocol_map", f"a security protocol of {name}")
    return Endpoint(name=name, host=host.strip("[]"), port=int(port), security_protocol=SecurityProtocol[protocol])


def _endpoints(fields: Fields, found: Sequence[Endpoint], brokers: str | None, controller: str | None) -> Endpoints:
    try:
        return Endpoints.of(found, brokers, controller)
    except ValueError as e:
        raise wrong(fields.path, str(e), "listeners that a broker can have") from e


def our_broker_node(broker: BrokerImage) -> bytes:
    """All that the cluster knows of a broker."""
    return encode(
        {
            "version": 1,
            "epoch": broker.epoch,
            "incarnation": id_text(broker.incarnation_id),
            "endpoints": [
                {"name": e.name, "host": e.host, "port": e.port, "security_protocol": e.security_protocol.name}
                for e in broker.endpoints.listeners
            ],
            "inter_broker": broker.endpoints.inter_broker,
            "control_plane": broker.endpoints.control_plane,
            "rack": broker.rack,
            "fenced": broker.fenced,
            "in_controlled_shutdown": broker.in_controlled_shutdown,
            "log_dirs": [id_text(directory) for directory in broker.log_dirs],
            "cordoned": [id_text(directory) for directory in broker.cordoned],
            "features": {name: {"min_version": low, "max_version": high} for name, low, high in broker.features},
        }
    )


def read_our_broker_node(path: str, data: bytes, broker_id: BrokerId) -> RegisterBrokerRecord:
    """The same as the record that makes it."""
    fields = Fields.of(path, data)
    found = []
    for endpoint in fields.objects("endpoints"):
        protocol = endpoint.text("security_protocol")
        if protocol not in SecurityProtocol.__members__:
            raise endpoint.wrong("security_protocol", f"one of {', '.join(SecurityProtocol.__members__)}")
        found.append(
            Endpoint(
                name=endpoint.text("name"),
                host=endpoint.text("host"),
                port=endpoint.integer("port", high=65535),
                security_protocol=SecurityProtocol[protocol],
            )
        )
    endpoints = _endpoints(fields, found, fields.text("inter_broker"), fields.text("control_plane"))
    features = fields.object("features", required=False)
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=fields.uuid("incarnation"),
        broker_epoch=fields.integer("epoch", low=-1, high=INT64),
        endpoints=endpoints.listeners,
        rack=fields.optional_text("rack"),
        fenced=fields.flag("fenced"),
        in_controlled_shutdown=fields.flag("in_controlled_shutdown"),
        log_dirs=fields.uuids("log_dirs"),
        cordoned=fields.uuids("cordoned"),
        features=_levels(features),
        inter_broker=endpoints.inter_broker,
        control_plane=endpoints.control_plane,
    )


# -- topics ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNode:
    """What a topic's node says: of each partition its replicas, and those of them that come and that go."""

    topic_id: TopicId
    replicas: tuple[tuple[BrokerId, ...], ...]
    adding: Mapping[int, tuple[BrokerId, ...]]
    removing: Mapping[int, tuple[BrokerId, ...]]


def topic_node(topic: TopicImage) -> bytes:
    """An assignment of version 3."""
    partitions, adding, removing = {}, {}, {}
    for number, partition in topic.numbered():
        key = str(number)
        partitions[key] = partition.replicas
        if partition.adding:
            adding[key] = partition.adding
        if partition.removing:
            removing[key] = partition.removing
    return encode(
        {
            "partitions": partitions,
            "topic_id": id_text(topic.topic_id),
            "adding_replicas": adding,
            "removing_replicas": removing,
            "version": 3,
        }
    )


def read_topic_node(path: str, data: bytes) -> TopicNode:
    """Of a topic that has an id, as those of Kafka 2.8 and newer have."""
    fields = Fields.of(path, data)
    partitions = fields.object("partitions")
    count = len(partitions.names)
    replicas = tuple(partitions.brokers(str(number)) for number in range(count))
    return TopicNode(
        topic_id=fields.uuid("topic_id"),
        replicas=replicas,
        adding=_some(fields, "adding_replicas", count),
        removing=_some(fields, "removing_replicas", count),
    )


def _some(fields: Fields, key: str, count: int) -> dict[int, tuple[BrokerId, ...]]:
    found = fields.object(key, required=False)
    if not found.names:
        return {}
    some = {number: found.brokers(str(number)) for number in range(count) if str(number) in found}
    if len(some) != len(found.names):
        raise fields.wrong(key, f"partitions from 0 to {count - 1} alone")
    return some


def state_node(partition: PartitionImage, controller_epoch: ControllerEpoch) -> bytes:
    """A state of version 1, and below ``holdfast`` what Kafka has not: directories only where they are not all
    unassigned, the epoch of the partition because several changes may be one write of the node."""
    ours: dict[str, Any] = {"partition_epoch": partition.partition_epoch}
    if partition.created >= 0:
        ours["created"] = partition.created
    if partition.elr:
        ours["elr"] = partition.elr
    if partition.last_known_elr:
        ours["last_known_elr"] = partition.last_known_elr
    if partition.directories != _unassigned(len(partition.replicas)):
        ours["directories"] = [id_text(directory) for directory in partition.directories]
    values: dict[str, Any] = {
        "controller_epoch": controller_epoch,
        "leader": _NO_LEADER if partition.leader is None else partition.leader,
        "version": 1,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        OUR_KEY: ours,
    }
    if partition.recovery_state is not RecoveryState.RECOVERED:
        values["leader_recovery_state"] = int(partition.recovery_state)
    return encode(values)


def read_state_node(path: str, data: bytes, version: int, topic: TopicNode, number: int) -> PartitionRecord:
    """The partition, together with what its topic's node says of it. ``version``: the node's, which is the partition's
    epoch where none is written."""
    fields = Fields.of(path, data)
    ours = fields.object(OUR_KEY, required=False)
    replicas, isr = topic.replicas[number], fields.brokers("isr")
    leader = fields.integer("leader", low=_NO_LEADER)
    recovery = _RECOVERY.get(fields.integer("leader_recovery_state", 0))
    if recovery is None:
        raise fields.wrong("leader_recovery_state", "0 or 1")
    return PartitionRecord(
        partition=number,
        topic_id=topic.topic_id,
        replicas=replicas,
        isr=replicas if isr == replicas else isr,
        leader=None if leader == _NO_LEADER else leader,
        leader_epoch=fields.integer("leader_epoch"),
        partition_epoch=ours.integer("partition_epoch", version),
        adding=topic.adding.get(number, ()),
        removing=topic.removing.get(number, ()),
        directories=ours.uuids("directories") if "directories" in ours else _unassigned(len(replicas)),
        recovery_state=recovery,
        elr=ours.brokers("elr", ()),
        last_known_elr=ours.brokers("last_known_elr", ()),
        created=ours.integer("created", -1, high=INT64),
    )


def stateless(topic: TopicNode, number: int) -> PartitionRecord:
    """A partition that Kafka's controller has not made yet: nobody leads it, and nobody has anything of it."""
    return PartitionRecord(
        partition=number,
        topic_id=topic.topic_id,
        replicas=topic.replicas[number],
        isr=topic.replicas[number],
        leader=None,
        adding=topic.adding.get(number, ()),
        removing=topic.removing.get(number, ()),
        directories=_unassigned(len(topic.replicas[number])),
    )


_UNASSIGNED: Final = tuple((UNASSIGNED_DIRECTORY,) * count for count in range(9))
"""What the directories of nearly every partition are; one tuple for all keeps an image small."""


def _unassigned(count: int) -> tuple[DirectoryId, ...]:
    return _UNASSIGNED[count] if count < len(_UNASSIGNED) else (UNASSIGNED_DIRECTORY,) * count


# -- the rest --------------------------------------------------------------------------------------------------


def config_node(values: Mapping[str, str]) -> bytes:
    """The configurations of one resource."""
    return encode({"version": 1, "config": dict(sorted(values.items()))})


def read_config_node(path: str, data: bytes) -> dict[str, str]:
    """A node without data has none."""
    if not data:
        return {}
    fields = Fields.of(path, data)
    return fields.texts("config") if "config" in fields else {}


def features_node(levels: Mapping[str, int]) -> bytes:
    """The features that are in force (KIP-584), of version 2: with the highest level of each and no lowest one."""
    said = {name: {"max_version_level": level} for name, level in sorted(levels.items())}
    return encode({"features": said, "version": _FEATURES_NEW, "status": _ENABLED})


def read_features_node(path: str, data: bytes) -> dict[str, int]:
    """None where the node says that it does not count; of version 1 the highest levels. A number in the place of an
    object is how Holdfast wrote a level before, which no reader of Kafka's takes."""
    if not data:
        return {}
    fields = Fields.of(path, data)
    if fields.integer("status") != _ENABLED:
        return {}
    levels = fields.object("features", required=False)
    return {name: _level(levels, name) for name in levels.names}


def _level(levels: Fields, name: str) -> int:
    if levels.is_number(name):
        return levels.integer(name, low=1, high=_MAX_LEVEL)
    return levels.object(name).integer("max_version_level", low=1, high=_MAX_LEVEL)


def producer_ids_node(broker_id: BrokerId, first: int, end: int) -> bytes:
    """The block of producer ids from ``first`` to below ``end``, which a broker was given."""
    return encode({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(end - 1)})


def read_producer_ids_node(path: str, data: bytes) -> int:
    """All producer ids below it have been given out. A node without data: none have."""
    if not data:
        return 0
    fields = Fields.of(path, data)
    end = fields.number_text("block_end")
    if not 0 <= end < INT64:
        raise fields.wrong("block_end", "no negative number")
    return end + 1


def cluster_id_node(cluster_id: str) -> bytes:
    """The cluster's id."""
    return encode({"version": "1", "id": cluster_id})


def read_cluster_id_node(path: str, data: bytes) -> str:
    """The cluster's id."""
    return Fields.of(path, data).text("id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerNode:
    """Who the controller is. ``address`` and ``epoch``: None of a controller of Kafka's."""

    broker_id: BrokerId
    timestamp_ms: int
    address: tuple[str, int] | None = None
    epoch: ControllerEpoch | None = None
    listener: str = SecurityProtocol.PLAINTEXT.name
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


def controller_node(node: ControllerNode) -> bytes:
    """Of version 2. Kafka's readers look the address up in the broker's registration."""
    values: dict[str, Any] = {
        "version": 2,
        "brokerid": node.broker_id,
        "timestamp": str(node.timestamp_ms),
        "kraftControllerEpoch": -1,
    }
    if node.address is not None and node.epoch is not None:
        host, port = node.address
        ours: dict[str, Any] = {"host": host, "port": port, "epoch": node.epoch}
        if node.security_protocol is not SecurityProtocol.PLAINTEXT:
            ours |= {"listener": node.listener, "security_protocol": node.security_protocol.name}
        values[OUR_KEY] = ours
    return encode(values)


def read_controller_node(path: str, data: bytes) -> ControllerNode:
    """Of any version."""
    fields = Fields.of(path, data)
    ours = fields.object(OUR_KEY, required=False)
    protocol = ours.text("security_protocol") if "security_protocol" in ours else SecurityProtocol.PLAINTEXT.name
    if protocol not in SecurityProtocol.__members__:
        raise ours.wrong("security_protocol", f"one of {', '.join(SecurityProtocol.__members__)}")
    return ControllerNode(
        broker_id=fields.integer("brokerid"),
        timestamp_ms=fields.number_text("timestamp"),
        address=(ours.text("host"), ours.integer("port", high=65535)) if "host" in ours else None,
        epoch=ours.integer("epoch") if "epoch" in ours else None,
        listener=ours.text("listener") if "listener" in ours else protocol,
        security_protocol=SecurityProtocol[protocol],
    )


def controller_epoch_node(epoch: ControllerEpoch) -> bytes:
    """The epoch of the last claim, in digits."""
    return str(epoch).encode()


def read_controller_epoch_node(path: str, data: bytes) -> ControllerEpoch:
    """The epoch of the last claim."""
    text = data.decode("ascii", "replace")
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= INT32):
        raise wrong(path, repr(data[:40]), "a number")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNode:
    """Where the metadata log ends, and whose claim is the last in it."""

    end_offset: Offset
    controller_id: BrokerId | None
    controller_epoch: ControllerEpoch


def log_node(node: LogNode) -> bytes:
    """Written in every multi that a commit makes."""
    return encode(
        {
            "version": 1,
            "end_offset": node.end_offset,
            "controller": node.controller_id,
            "controller_epoch": node.controller_epoch,
        }
    )


def read_log_node(path: str, data: bytes) -> LogNode | None:
    """None of a tree in which nothing of ours was committed."""
    if not data:
        return None
    fields = Fields.of(path, data)
    return LogNode(
        end_offset=fields.integer("end_offset", high=INT64),
        controller_id=fields.integer("controller") if "controller" in fields else None,
        controller_epoch=fields.integer("controller_epoch"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedNode:
    """The partitions of a topic from ``first`` to below ``end`` are being made, or removed, and do not count.
    ``whole``: neither does the topic."""

    topic: str
    whole: bool
    first: int
    end: int


def unfinished_node(node: UnfinishedNode) -> bytes:
    """Written in the first multi of several, and emptied in the last."""
    return encode({"version": 1, "topic": node.topic, "whole": node.whole, "first": node.first, "end": node.end})


def read_unfinished_node(path: str, data: bytes) -> UnfinishedNode | None:
    """None when nothing is."""
    if not data:
        return None
    fields = Fields.of(path, data)
    return UnfinishedNode(
        topic=fields.text("topic"),
        whole=fields.flag("whole"),
        first=fields.integer("first"),
        end=fields.integer("end", high=MAX_PARTITIONS),
    )
