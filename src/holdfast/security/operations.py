"""The one table: which right each API asks for, of what, and who asks it.

An API whose whole right is one of the cluster (``Asked.BEFORE``) is judged before its handler runs, by what stands
here. The others name topics, groups and transactional ids, and their handlers judge each one (broker/handlers). What a
right is missing for has the error of ``MISSING``. An API without a row fails when a broker is loaded
(broker/dispatch.py), so none comes into being that everybody may call. Rights are Kafka's, as its code asks for them,
which is not always what its documentation says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from holdfast.model.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    HoldfastError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from holdfast.security.resources import Operation, ResourceKind

MISSING: Final[Mapping[ResourceKind, type[HoldfastError]]] = {
    ResourceKind.TOPIC: TopicAuthorizationFailedError,
    ResourceKind.GROUP: GroupAuthorizationFailedError,
    ResourceKind.CLUSTER: ClusterAuthorizationFailedError,
    ResourceKind.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailedError,
}
"""The error of a right that somebody does not have."""
_TEXTS: Final = {
    ResourceKind.TOPIC: "Topic authorization failed.",
    ResourceKind.GROUP: "Group authorization failed.",
    ResourceKind.CLUSTER: "Cluster authorization failed.",
    ResourceKind.TRANSACTIONAL_ID: "Transactional Id authorization failed.",
}


def refusal(kind: ResourceKind) -> HoldfastError:
    """What is told to who lacks a right to a thing of this kind: Kafka's words, which do not say whether it exists."""
    return MISSING[kind](_TEXTS[kind])


class Asked(Enum):
    """Who judges a request."""

    NOBODY = "nobody"
    """Everybody may, as in Kafka: what is told is no secret, or is the way to become somebody."""
    BEFORE = "before"
    """The broker, before the handler runs. One of the rights is enough; without any the request is refused whole."""
    BY_NAME = "by name"
    """The handler, for each thing that the request names."""


@dataclass(frozen=True, slots=True)
class Right:
    """An operation on things of one kind."""

    operation: Operation
    kind: ResourceKind

    def __str__(self) -> str:
        words = "".join(word.capitalize() for word in self.kind.name.split("_"))
        return f"{self.operation.acl_name} {words}"


@dataclass(frozen=True, slots=True)
class Row:
    """What one API asks for. ``note`` says how, where the rights alone do not."""

    asked: Asked
    rights: tuple[Right, ...] = ()
    note: str = ""


def _rights(*rights: tuple[Operation, ResourceKind]) -> tuple[Right, ...]:
    return tuple(Right(operation, kind) for operation, kind in rights)


def _before(*operations: Operation, note: str = "") -> Row:
    return Row(Asked.BEFORE, tuple(Right(operation, ResourceKind.CLUSTER) for operation in operations), note)


def _by_name(*rights: tuple[Operation, ResourceKind], note: str = "") -> Row:
    return Row(Asked.BY_NAME, _rights(*rights), note)


_O, _K = Operation, ResourceKind
_FREE: Final = Row(Asked.NOBODY)
_BROKERS: Final = "only on the listener of brokers"
_DIRECTED: Final = _before(_O.CLUSTER_ACTION, note=_BROKERS)

RIGHTS: Final[Mapping[str, Row]] = {
    "API_VERSIONS": _FREE,
    "SASL_HANDSHAKE": _FREE,
    "SASL_AUTHENTICATE": _FREE,
    "PRODUCE": _by_name(
        (_O.WRITE, _K.TOPIC),
        (_O.WRITE, _K.TRANSACTIONAL_ID),
        note="the transactional id, of transactional records, for the whole request",
    ),
    "FETCH": _by_name(
        (_O.READ, _K.TOPIC),
        (_O.CLUSTER_ACTION, _K.CLUSTER),
        note="in the name of a replica: ClusterAction instead, and only on the listener of brokers",
    ),
    "LIST_OFFSETS": _by_name((_O.DESCRIBE, _K.TOPIC)),
    "METADATA": _by_name(
        (_O.DESCRIBE, _K.TOPIC),
        (_O.CREATE, _K.CLUSTER),
        (_O.CREATE, _K.TOPIC),
        (_O.DESCRIBE, _K.CLUSTER),
        note="Create, of either, for a topic that it makes; Describe Cluster for the operations on the cluster alone",
    ),
    "DESCRIBE_CLUSTER": _by_name((_O.DESCRIBE, _K.CLUSTER), note="for the operations on the cluster alone"),
    "DESCRIBE_TOPIC_PARTITIONS": _by_name((_O.DESCRIBE, _K.TOPIC)),
    "OFFSET_FOR_LEADER_EPOCH": _by_name(
        (_O.DESCRIBE, _K.TOPIC),
        (_O.CLUSTER_ACTION, _K.CLUSTER),
        note="one of both; in the name of a replica only on the listener of brokers",
    ),
    "OFFSET_COMMIT": _by_name((_O.READ, _K.GROUP), (_O.READ, _K.TOPIC)),
    "TXN_OFFSET_COMMIT": _by_name((_O.WRITE, _K.TRANSACTIONAL_ID), (_O.READ, _K.GROUP), (_O.READ, _K.TOPIC)),
    "OFFSET_FETCH": _by_name((_O.DESCRIBE, _K.GROUP), (_O.DESCRIBE, _K.TOPIC)),
    "OFFSET_DELETE": _by_name((_O.DELETE, _K.GROUP), (_O.READ, _K.TOPIC)),
    "FIND_COORDINATOR": _by_name((_O.DESCRIBE, _K.GROUP), (_O.DESCRIBE, _K.TRANSACTIONAL_ID), note="by kind of key"),
    "JOIN_GROUP": _by_name((_O.READ, _K.GROUP)),
    "SYNC_GROUP": _by_name((_O.READ, _K.GROUP)),
    "HEARTBEAT": _by_name((_O.READ, _K.GROUP)),
    "LEAVE_GROUP": _by_name((_O.READ, _K.GROUP)),
    "CONSUMER_GROUP_HEARTBEAT": _by_name((_O.READ, _K.GROUP), (_O.DESCRIBE, _K.TOPIC)),
    "CONSUMER_GROUP_DESCRIBE": _by_name((_O.DESCRIBE, _K.GROUP), (_O.DESCRIBE, _K.TOPIC)),
    "DESCRIBE_GROUPS": _by_name((_O.DESCRIBE, _K.GROUP)),
    "LIST_GROUPS": _by_name(
        (_O.DESCRIBE, _K.CLUSTER), (_O.DESCRIBE, _K.GROUP), note="of the cluster all, else those that one may describe"
    ),
    "DELETE_GROUPS": _by_name((_O.DELETE, _K.GROUP)),
    "CREATE_TOPICS": _by_name(
        (_O.CREATE, _K.CLUSTER),
        (_O.CREATE, _K.TOPIC),
        (_O.DESCRIBE_CONFIGS, _K.TOPIC),
        note="Create of one of both; DescribeConfigs for the configuration in the answer alone",
    ),
    "DELETE_TOPICS": _by_name(
        (_O.DELETE, _K.CLUSTER),
        (_O.DELETE, _K.TOPIC),
        (_O.DESCRIBE, _K.TOPIC),
        note="Delete of one of both; without Describe the answer does not tell whether there is such a topic",
    ),
    "DELETE_RECORDS": _by_name((_O.DELETE, _K.TOPIC)),
    "CREATE_PARTITIONS": _by_name((_O.ALTER, _K.TOPIC)),
    "DESCRIBE_CONFIGS": _by_name(
        (_O.DESCRIBE_CONFIGS, _K.TOPIC), (_O.DESCRIBE_CONFIGS, _K.GROUP), (_O.DESCRIBE_CONFIGS, _K.CLUSTER),
        note="by kind of resource: of brokers and client metrics those of the cluster",
    ),
    "ALTER_CONFIGS": _by_name(
        (_O.ALTER_CONFIGS, _K.TOPIC), (_O.ALTER_CONFIGS, _K.GROUP), (_O.ALTER_CONFIGS, _K.CLUSTER),
        note="as DescribeConfigs",
    ),
    "INCREMENTAL_ALTER_CONFIGS": _by_name(
        (_O.ALTER_CONFIGS, _K.TOPIC), (_O.ALTER_CONFIGS, _K.GROUP), (_O.ALTER_CONFIGS, _K.CLUSTER),
        note="as DescribeConfigs",
    ),
    "LIST_CONFIG_RESOURCES": _before(_O.DESCRIBE_CONFIGS),
    "INIT_PRODUCER_ID": _by_name(
        (_O.WRITE, _K.TRANSACTIONAL_ID),
        (_O.IDEMPOTENT_WRITE, _K.CLUSTER),
        (_O.WRITE, _K.TOPIC),
        note="without a transactional id: IdempotentWrite, or Write of any topic",
    ),
    "ADD_PARTITIONS_TO_TXN": _by_name(
        (_O.WRITE, _K.TRANSACTIONAL_ID),
        (_O.WRITE, _K.TOPIC),
        (_O.CLUSTER_ACTION, _K.CLUSTER),
        note="from version 4 on, of brokers: ClusterAction instead",
    ),
    "ADD_OFFSETS_TO_TXN": _by_name((_O.WRITE, _K.TRANSACTIONAL_ID), (_O.READ, _K.GROUP)),
    "END_TXN": _by_name((_O.WRITE, _K.TRANSACTIONAL_ID)),
    "WRITE_TXN_MARKERS": _before(_O.ALTER, _O.CLUSTER_ACTION),
    "DESCRIBE_PRODUCERS": _by_name((_O.READ, _K.TOPIC)),
    "DESCRIBE_TRANSACTIONS": _by_name(
        (_O.DESCRIBE, _K.TRANSACTIONAL_ID), (_O.DESCRIBE, _K.TOPIC), note="topics without Describe are left out"
    ),
    "LIST_TRANSACTIONS": _by_name((_O.DESCRIBE, _K.TRANSACTIONAL_ID), note="the others are left out"),
    "DESCRIBE_ACLS": _before(_O.DESCRIBE),
    "CREATE_ACLS": _before(_O.ALTER),
    "DELETE_ACLS": _before(_O.ALTER),
    "DESCRIBE_USER_SCRAM_CREDENTIALS": _before(_O.DESCRIBE),
    "ALTER_USER_SCRAM_CREDENTIALS": _before(_O.ALTER),
    "DESCRIBE_CLIENT_QUOTAS": _before(_O.DESCRIBE_CONFIGS),
    "ALTER_CLIENT_QUOTAS": _before(_O.ALTER_CONFIGS),
    "DESCRIBE_LOG_DIRS": _before(_O.DESCRIBE),
    "ALTER_REPLICA_LOG_DIRS": _before(_O.ALTER),
    "ELECT_LEADERS": _before(_O.ALTER),
    "ALTER_PARTITION_REASSIGNMENTS": _before(_O.ALTER),
    "LIST_PARTITION_REASSIGNMENTS": _before(_O.DESCRIBE),
    "UNREGISTER_BROKER": _before(_O.ALTER),
    "UPDATE_FEATURES": _before(_O.ALTER),
    "DESCRIBE_QUORUM": _before(_O.DESCRIBE),
    "LEADER_AND_ISR": _DIRECTED,
    "STOP_REPLICA": _DIRECTED,
    "UPDATE_METADATA": _DIRECTED,
    "ALTER_PARTITION": _DIRECTED,
    "BROKER_REGISTRATION": _DIRECTED,
    "BROKER_HEARTBEAT": _DIRECTED,
    "ALLOCATE_PRODUCER_IDS": _DIRECTED,
    "CLAIM_BROKER_ID": _DIRECTED,
    "ENVELOPE": _before(
        _O.CLUSTER_ACTION, note=f"{_BROKERS}; the request within is judged as its client's, by the row of its own API"
    ),
    "MANAGE_LOG_DIRS": _by_name(
        (_O.DESCRIBE, _K.CLUSTER), (_O.ALTER, _K.CLUSTER), note="Describe to see them, Alter to change them"
    ),
    "MANAGE_BROKER_IDS": _by_name(
        (_O.DESCRIBE, _K.CLUSTER), (_O.ALTER, _K.CLUSTER), note="Describe to see them, Alter to change them"
    ),
}  # fmt: skip
"""API, by its name in protocol/apis.py -> what it asks for."""


def check_complete(apis: Iterable[str]) -> None:
    """RuntimeError for an API that has no row: everybody could call it."""
    without = [name for name in apis if name not in RIGHTS]
    if without:
        raise RuntimeError(f"no right is said for {', '.join(without)}: expected a row in security/operations.py")


OF_TOPICS: Final = (
    _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
)  # fmt: skip
OF_GROUPS: Final = (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)
OF_CLUSTER: Final = (
    _O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE,
)  # fmt: skip
SUPPORTED: Final[Mapping[ResourceKind, tuple[Operation, ...]]] = {
    _K.TOPIC: OF_TOPICS, _K.GROUP: OF_GROUPS, _K.CLUSTER: OF_CLUSTER,
}  # fmt: skip
"""What can be done with a thing of each kind, for the answers that tell what one may do with it."""


def bits(operations: Iterable[Operation]) -> int:
    """Operations as these answers have them: a bit each."""
    found = 0
    for operation in operations:
        found |= 1 << operation
    return found
