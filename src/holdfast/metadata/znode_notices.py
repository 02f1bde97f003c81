"""What brokers and tools tell the controller through nodes, and what is told of changed configurations.

Requests of tools: /admin/reassign_partitions and /admin/preferred_replica_election (a topic to delete has its name in
the path and no data). News: a failed log directory (KIP-112), changed ISRs of brokers that know no AlterPartition, a
changed configuration. Everything that reads takes the path, for its errors: MetadataError.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.metadata import znode_acls
from holdfast.metadata import znode_paths as paths
from holdfast.metadata.znode_json import Fields, encode
from holdfast.metadata.znode_writes import CreateNode, DeleteNode
from holdfast.model.types import BrokerId, TopicPartition

LOG_DIR_FAILURE: Final = 1
MAX_CHANGES: Final = 1000
"""Changes of configurations that are kept for who looks for them, and changes of access control lists likewise."""
CHANGES: Final = {
    paths.CONFIG_CHANGES: paths.name_of(paths.CONFIG_CHANGE),
    znode_acls.LITERAL_CHANGES: znode_acls.CHANGE,
    znode_acls.PREFIXED_CHANGES: znode_acls.CHANGE,
}
"""The nodes below which such news are, and what the names of these begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirEvent:
    """Something happened to a directory of a broker; ``event`` LOG_DIR_FAILURE is all that there is."""

    broker_id: BrokerId
    event: int = LOG_DIR_FAILURE


def log_dir_event(event: LogDirEvent) -> CreateNode:
    """What a broker tells when a log directory fails: a node that stays (K112-22)."""
    data = encode({"version": 1, "broker": event.broker_id, "event": event.event})
    return CreateNode(path=paths.LOG_DIR_EVENT, data=data, sequence=True)


def read_log_dir_event(path: str, data: bytes) -> LogDirEvent:
    """Likewise."""
    fields = Fields.of(path, data)
    return LogDirEvent(broker_id=fields.integer("broker"), event=fields.integer("event"))


def isr_change(partitions: Iterable[TopicPartition]) -> CreateNode:
    """ISRs that a leader has written itself, as those of a protocol before 2.7 do."""
    return CreateNode(path=paths.ISR_CHANGE, data=_partitions(partitions), sequence=True)


def read_isr_change(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    """Likewise."""
    return _read_partitions(path, data)


def preferred_election(partitions: Iterable[TopicPartition]) -> bytes:
    """The partitions whose first replica shall lead."""
    return _partitions(partitions)


def read_preferred_election(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    """Likewise."""
    return _read_partitions(path, data)


def reassignment(replicas: Mapping[TopicPartition, Sequence[BrokerId]]) -> bytes:
    """Which replicas partitions shall have: what a tool asks, or what is left of it."""
    return encode(
        {
            "version": 1,
            "partitions": [
                {"topic": tp.topic, "partition": tp.partition, "replicas": list(wanted)}
                for tp, wanted in replicas.items()
            ],
        }
    )


def read_reassignment(path: str, data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Likewise; of a partition that is named twice the last."""
    return {_partition(entry): entry.brokers("replicas") for entry in Fields.of(path, data).objects("partitions")}


def config_change(entity: str) -> CreateNode:
    """The news that the configuration of an entity (znode_paths.config_entity) changed, of version 2."""
    data = encode({"version": 2, "entity_path": entity})
    return CreateNode(path=paths.CONFIG_CHANGE, data=data, sequence=True)


def surplus_changes(names: Mapping[str, Iterable[str]], keep: int = MAX_CHANGES) -> list[DeleteNode]:
    """The oldest of the nodes below each of CHANGES, which are too many; ``names`` by parent. Nobody of ours reads
    them: brokers are told of configurations and access control lists by the controller."""
    surplus: list[DeleteNode] = []
    for parent, below in names.items():
        found = sorted(
            path
            for path in (f"{parent}/{name}" for name in below)
            if paths.sequence_of(path, f"{parent}/{CHANGES[parent]}") is not None
        )
        surplus += [DeleteNode(path=path) for path in found[: max(0, len(found) - keep)]]
    return surplus


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    named = [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
    return encode({"version": 1, "partitions": named})


def _read_partitions(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    return tuple(_partition(entry) for entry in Fields.of(path, data).objects("partitions"))


def _partition(entry: Fields) -> TopicPartition:
    return TopicPartition(entry.text("topic"), entry.integer("partition"))
