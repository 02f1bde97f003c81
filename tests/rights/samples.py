"""One request or more of every API, with the rights that it needs: what the page of rights is walked with.

A sample names things by ``Names``: those that all share, and its own where the request uses them up. ``seen`` is what
an answer without an error tells that depends on rights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from uuid import UUID

from kio.static.primitive import Records

from holdfast.records.record import Record, encode_batch
from holdfast.security.resources import CLUSTER_NAME, Operation, ResourceKind

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
TRANSACTIONAL_ID = ResourceKind.TRANSACTIONAL_ID
NO_ID: Final = UUID(int=0)
PREFIX: Final = "own-"
"""Of names that a sample has for itself."""


@dataclass(frozen=True, slots=True)
class Names:
    """What a request may name. Topics have one partition, on the broker that is asked."""

    topic: str = "shared-topic"
    absent: str = "absent-topic"
    """Neither it nor ``new`` exists; samples make ``new``."""
    new: str = "new-topic"
    group: str = "shared-group"
    transaction: str = "shared-transaction"
    topic_id: UUID = NO_ID
    broker: int = 1
    log_dir: str = "/"


Need: TypeAlias = tuple[Operation, ResourceKind, str]
"""The last is a field of Names, or empty for the cluster."""


@dataclass(frozen=True, slots=True)
class Sample:
    """``needs`` are all needed at once; without one of ``partly`` the request is done, and told less of. ``spends``: it
    uses up what it names when it is allowed."""

    api: str
    version: int
    values: Callable[[Names], Mapping[str, Any]]
    needs: tuple[Need, ...]
    label: str = ""
    spends: bool = False
    partly: tuple[Need, ...] = ()
    seen: Callable[[Any], str] | None = None

    @property
    def is_by_id(self) -> bool:
        """Whether it names a topic by its id, which is no secret."""
        return self.label.endswith("id") and self.api in ("METADATA", "DELETE_TOPICS")

    @property
    def title(self) -> str:
        """Of the page."""
        words = "".join(word.capitalize() for word in self.api.split("_"))
        return f"{words}, {self.label}" if self.label else words


def name_of(need: Need, names: Names) -> str:
    """The name of the resource."""
    return getattr(names, need[2]) if need[2] else CLUSTER_NAME


def text_of(need: Need) -> str:
    """As pages have it."""
    kind = "".join(word.capitalize() for word in need[1].name.split("_"))
    return f"{need[0].acl_name} {kind}"


def _batch(*, transactional: bool = False) -> Records:
    record = Record(offset=0, timestamp=1, key=None, value=b"v")
    if not transactional:
        return Records(bytes(encode_batch([record])))
    return Records(bytes(encode_batch([record], producer_id=77, producer_epoch=0, base_sequence=0, transactional=True)))


def _produced(names: Names, *, transactional: bool = False) -> dict[str, Any]:
    data = {"index": 0, "records": _batch(transactional=transactional)}
    return {
        "transactional_id": names.transaction if transactional else None, "acks": 1, "timeout": 5000,
        "topic_data": [{"name": names.topic, "partition_data": [data]}],
    }  # fmt: skip


def _fetched(names: Names, replica_id: int) -> dict[str, Any]:
    partition = {
        "partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1,
        "last_fetched_epoch": -1, "log_start_offset": -1,
    }  # fmt: skip
    return {
        "replica_id": replica_id, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_epoch": -1,
        "topics": [{"topic": names.topic, "partitions": [partition]}],
    }  # fmt: skip


def produced_to(topic: str, partition: int) -> dict[str, Any]:
    """A Produce of one record, version 9."""
    data = {"index": partition, "records": _batch()}
    return {"acks": 1, "timeout": 5000, "topic_data": [{"name": topic, "partition_data": [data]}]}


def fetched_from(topic: str, partition: int) -> dict[str, Any]:
    """A full Fetch that wants a session, version 12."""
    values = _fetched(Names(topic=topic), -1)
    values["topics"][0]["partitions"][0]["partition"] = partition
    return values | {"session_id": 0, "session_epoch": 0}


def _new_topic(names: Names) -> dict[str, Any]:
    return {"topics": [{"name": names.new, "num_partitions": 1, "replication_factor": 1}], "timeout": 5000}


def _config(kind: int, name: str, key: str, value: str) -> dict[str, Any]:
    configs = [{"name": key, "config_operation": 0, "value": value}]
    return {"resources": [{"resource_type": kind, "resource_name": name, "configs": configs}], "validate_only": True}


def _described_config(kind: int, name: str) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]}


def _commit(names: Names) -> dict[str, Any]:
    partition = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    return {
        "group_id": names.group, "generation_id_or_member_epoch": -1, "generation_id": -1, "member_id": "",
        "topics": [{"name": names.topic, "partitions": [partition]}],
    }  # fmt: skip


def _transaction(names: Names) -> dict[str, Any]:
    return {"transactional_id": names.transaction, "producer_id": 77, "producer_epoch": 0}


def _added(names: Names) -> dict[str, Any]:
    return {
        "v3_and_below_transactional_id": names.transaction, "v3_and_below_producer_id": 77,
        "v3_and_below_producer_epoch": 0, "v3_and_below_topics": [{"name": names.topic, "partitions": [0]}],
    }  # fmt: skip


def _added_by_brokers(names: Names) -> dict[str, Any]:
    topics = [{"name": names.topic, "partitions": [0]}]
    return {"transactions": [_transaction(names) | {"verify_only": True, "topics": topics}]}


def _markers(names: Names) -> dict[str, Any]:
    topics = [{"name": names.absent, "partition_indexes": [0]}]
    return {
        "markers": [
            {
                "producer_id": 77,
                "producer_epoch": 0,
                "transaction_result": False,
                "topics": topics,
                "coordinator_epoch": 0,
            }
        ]
    }


_EVERY_ACL: Final = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
_NEW_ACL: Final = {
    "resource_type": 2, "resource_name": "of-nobody", "resource_pattern_type": 3, "principal": "User:nobody",
    "host": "*", "operation": 3, "permission_type": 3,
}  # fmt: skip
_NO_ACL: Final = _EVERY_ACL | {"principal_filter": "User:of-no-acl"}


def _names(attribute: str, *, name: str = "name") -> Callable[[Any], str]:
    """Whether what all share is told of."""

    def seen(answer: Any) -> str:
        told = [getattr(each, name) for each in getattr(answer, attribute)]
        return "told of" if any(str(each).startswith("shared-") for each in told) else "not told of"

    return seen


def _operations(answer: Any) -> str:
    topics = [t.topic_authorized_operations for t in answer.topics]
    return f"operations {', '.join(map(str, topics))}"


def _described_topics(answer: Any) -> str:
    topics = [t.topic for state in answer.transaction_states for t in state.topics]
    return "with its topics" if topics else "without its topics"


def _offsets(answer: Any) -> str:
    return "told of" if any(group.topics for group in answer.groups) else "not told of"


_O = Operation
_SHOWN: Final = ((_O.DESCRIBE_CONFIGS, TOPIC, "new"),)
_CLIENTS: Final = (
    Sample("METADATA", 13, lambda n: {
        "topics": [{"name": n.topic}], "include_topic_authorized_operations": True,
    }, ((_O.DESCRIBE, TOPIC, "topic"),), "a topic", seen=_operations),
    Sample("METADATA", 13, lambda n: {"topics": [{"name": n.absent}], "allow_auto_topic_creation": False},
           ((_O.DESCRIBE, TOPIC, "absent"),), "a topic that does not exist"),
    Sample("METADATA", 13, lambda n: {"topics": [{"name": None, "topic_id": n.topic_id}]},
           ((_O.DESCRIBE, TOPIC, "topic"),), "a topic by its id"),
    Sample("METADATA", 13, lambda n: {"topics": [{"name": n.new}], "allow_auto_topic_creation": True},
           ((_O.DESCRIBE, TOPIC, "new"), (_O.CREATE, TOPIC, "new")), "a topic that is made", spends=True),
    Sample("METADATA", 13, lambda n: {"topics": None}, ((_O.DESCRIBE, TOPIC, "topic"),), "all topics",
           seen=_names("topics")),
    Sample("DESCRIBE_CLUSTER", 1, lambda n: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
           ((_O.DESCRIBE, CLUSTER, ""),), seen=lambda a: f"operations {a.cluster_authorized_operations}"),
    Sample("DESCRIBE_TOPIC_PARTITIONS", 0, lambda n: {
        "topics": [{"name": n.topic}], "response_partition_limit": 10, "cursor": None,
    }, ((_O.DESCRIBE, TOPIC, "topic"),), "a topic"),
    Sample("DESCRIBE_TOPIC_PARTITIONS", 0, lambda n: {"topics": [], "response_partition_limit": 2000, "cursor": None},
           ((_O.DESCRIBE, TOPIC, "topic"),), "all topics", seen=_names("topics")),
    Sample("PRODUCE", 9, _produced, ((_O.WRITE, TOPIC, "topic"),), spends=True),
    Sample("PRODUCE", 9, lambda n: _produced(n, transactional=True),
           ((_O.WRITE, TRANSACTIONAL_ID, "transaction"), (_O.WRITE, TOPIC, "topic")), "records of a transaction",
           spends=True),
    Sample("FETCH", 12, lambda n: _fetched(n, -1), ((_O.READ, TOPIC, "topic"),)),
    Sample("FETCH", 12, lambda n: _fetched(n, 1), ((_O.CLUSTER_ACTION, CLUSTER, ""),), "in the name of a replica"),
    Sample("LIST_OFFSETS", 7, lambda n: {
        "replica_id": -1, "topics": [{"name": n.topic, "partitions": [
            {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]}],
    }, ((_O.DESCRIBE, TOPIC, "topic"),)),
    *(
        Sample("OFFSET_FOR_LEADER_EPOCH", 4, lambda n: {"replica_id": -2, "topics": [{"topic": n.topic, "partitions": [
            {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]}, (need,), f"by {text_of(need)}")
        for need in ((_O.DESCRIBE, TOPIC, "topic"), (_O.CLUSTER_ACTION, CLUSTER, ""))
    ),
    Sample("DELETE_RECORDS", 2, lambda n: {
        "topics": [{"name": n.topic, "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout": 5000,
    }, ((_O.DELETE, TOPIC, "topic"),), spends=True),
    Sample("FIND_COORDINATOR", 4, lambda n: {"key_type": 0, "coordinator_keys": [n.group]},
           ((_O.DESCRIBE, GROUP, "group"),), "of a group"),
    Sample("FIND_COORDINATOR", 4, lambda n: {"key_type": 1, "coordinator_keys": [n.transaction]},
           ((_O.DESCRIBE, TRANSACTIONAL_ID, "transaction"),), "of a transactional id"),
    Sample("JOIN_GROUP", 9, lambda n: {
        "group_id": n.group, "session_timeout": 10_000, "rebalance_timeout": 10_000, "member_id": "",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
    }, ((_O.READ, GROUP, "group"),), spends=True),
    Sample("SYNC_GROUP", 5, lambda n: {
        "group_id": n.group, "generation_id": 1, "member_id": "m", "protocol_type": "consumer",
        "protocol_name": "range", "assignments": [],
    }, ((_O.READ, GROUP, "group"),)),
    Sample("HEARTBEAT", 4, lambda n: {"group_id": n.group, "generation_id": 1, "member_id": "m"},
           ((_O.READ, GROUP, "group"),)),
    Sample("LEAVE_GROUP", 5, lambda n: {"group_id": n.group, "members": [{"member_id": "m"}]},
           ((_O.READ, GROUP, "group"),)),
    Sample("OFFSET_COMMIT", 9, _commit, ((_O.READ, GROUP, "group"), (_O.READ, TOPIC, "topic")), spends=True),
    Sample("OFFSET_FETCH", 9, lambda n: {"groups": [{
        "group_id": n.group, "member_epoch": -1, "topics": [{"name": n.topic, "partition_indexes": [0]}]}]},
           ((_O.DESCRIBE, GROUP, "group"), (_O.DESCRIBE, TOPIC, "topic")), "of a topic"),
    Sample("OFFSET_FETCH", 9, lambda n: {"groups": [{"group_id": n.group, "member_epoch": -1, "topics": None}]},
           ((_O.DESCRIBE, GROUP, "group"), (_O.DESCRIBE, TOPIC, "topic")), "of all topics", seen=_offsets),
    Sample("OFFSET_DELETE", 0, lambda n: {
        "group_id": n.group, "topics": [{"name": n.topic, "partitions": [{"partition_index": 0}]}],
    }, ((_O.DELETE, GROUP, "group"), (_O.READ, TOPIC, "topic")), spends=True),
    Sample("DESCRIBE_GROUPS", 5, lambda n: {"groups": [n.group], "include_authorized_operations": True},
           ((_O.DESCRIBE, GROUP, "group"),),
           seen=lambda a: f"operations {', '.join(str(g.authorized_operations) for g in a.groups)}"),
    *(
        Sample("LIST_GROUPS", 5, lambda n: {}, (need,), f"by {text_of(need)}", seen=_names("groups", name="group_id"))
        for need in ((_O.DESCRIBE, GROUP, "group"), (_O.DESCRIBE, CLUSTER, ""))
    ),
    Sample("DELETE_GROUPS", 2, lambda n: {"groups_names": [n.group]}, ((_O.DELETE, GROUP, "group"),), spends=True),
)  # fmt: skip

_TRANSACTIONS: Final = (
    Sample("INIT_PRODUCER_ID", 4, lambda n: {
        "transactional_id": n.transaction, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1,
    }, ((_O.WRITE, TRANSACTIONAL_ID, "transaction"),), "with a transactional id", spends=True),
    *(
        Sample("INIT_PRODUCER_ID", 4, lambda n: {
            "transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1,
        }, (need,), f"without, by {text_of(need)}")
        for need in ((_O.IDEMPOTENT_WRITE, CLUSTER, ""), (_O.WRITE, TOPIC, "topic"))
    ),
    Sample("ADD_PARTITIONS_TO_TXN", 3, _added,
           ((_O.WRITE, TRANSACTIONAL_ID, "transaction"), (_O.WRITE, TOPIC, "topic")), "of a client"),
    Sample("ADD_PARTITIONS_TO_TXN", 4, _added_by_brokers, ((_O.CLUSTER_ACTION, CLUSTER, ""),), "of a broker"),
    Sample("ADD_OFFSETS_TO_TXN", 4, lambda n: _transaction(n) | {"group_id": n.group},
           ((_O.WRITE, TRANSACTIONAL_ID, "transaction"), (_O.READ, GROUP, "group"))),
    Sample("TXN_OFFSET_COMMIT", 3, lambda n: _transaction(n) | _commit(n), (
        (_O.WRITE, TRANSACTIONAL_ID, "transaction"), (_O.READ, GROUP, "group"), (_O.READ, TOPIC, "topic"),
    ), spends=True),
    Sample("END_TXN", 4, lambda n: _transaction(n) | {"committed": False},
           ((_O.WRITE, TRANSACTIONAL_ID, "transaction"),), spends=True),
    *(
        Sample("WRITE_TXN_MARKERS", 1, _markers, (need,), f"by {text_of(need)}")
        for need in ((_O.ALTER, CLUSTER, ""), (_O.CLUSTER_ACTION, CLUSTER, ""))
    ),
    Sample("DESCRIBE_PRODUCERS", 0, lambda n: {"topics": [{"name": n.topic, "partition_indexes": [0]}]},
           ((_O.READ, TOPIC, "topic"),)),
    Sample("DESCRIBE_TRANSACTIONS", 0, lambda n: {"transactional_ids": [n.transaction]},
           ((_O.DESCRIBE, TRANSACTIONAL_ID, "transaction"), (_O.DESCRIBE, TOPIC, "topic")), seen=_described_topics),
    Sample("LIST_TRANSACTIONS", 0, lambda n: {}, ((_O.DESCRIBE, TRANSACTIONAL_ID, "transaction"),),
           seen=_names("transaction_states", name="transactional_id")),
)  # fmt: skip

_OPERATORS: Final = (
    Sample("CREATE_TOPICS", 7, _new_topic, ((_O.CREATE, TOPIC, "new"), (_O.DESCRIBE_CONFIGS, TOPIC, "new")),
           "by Create Topic", spends=True, partly=_SHOWN),
    Sample("CREATE_TOPICS", 7, _new_topic, ((_O.CREATE, CLUSTER, ""), (_O.DESCRIBE_CONFIGS, TOPIC, "new")),
           "by Create Cluster", spends=True, partly=_SHOWN),
    Sample("DELETE_TOPICS", 6, lambda n: {"topics": [{"name": n.topic}], "timeout": 5000},
           ((_O.DELETE, TOPIC, "topic"),), "by name", spends=True),
    Sample("DELETE_TOPICS", 6, lambda n: {"topics": [{"name": None, "topic_id": n.topic_id}], "timeout": 5000},
           ((_O.DELETE, TOPIC, "topic"),), "by id", spends=True),
    Sample("DELETE_TOPICS", 6, lambda n: {"topics": [{"name": n.topic}], "timeout": 5000},
           ((_O.DELETE, CLUSTER, ""),), "by Delete Cluster", spends=True),
    Sample("DELETE_TOPICS", 6, lambda n: {"topics": [{"name": n.absent}], "timeout": 5000},
           ((_O.DESCRIBE, TOPIC, "absent"),), "a topic that does not exist"),
    Sample("CREATE_PARTITIONS", 3, lambda n: {
        "topics": [{"name": n.topic, "count": 2, "assignments": None}], "timeout": 5000,
    }, ((_O.ALTER, TOPIC, "topic"),), spends=True),
    Sample("DESCRIBE_CONFIGS", 4, lambda n: _described_config(2, n.topic),
           ((_O.DESCRIBE_CONFIGS, TOPIC, "topic"),), "of a topic"),
    Sample("DESCRIBE_CONFIGS", 4, lambda n: _described_config(4, str(n.broker)),
           ((_O.DESCRIBE_CONFIGS, CLUSTER, ""),), "of a broker"),
    Sample("DESCRIBE_CONFIGS", 4, lambda n: _described_config(32, n.group),
           ((_O.DESCRIBE_CONFIGS, GROUP, "group"),), "of a group"),
    *(
        sample
        for api, version in (("ALTER_CONFIGS", 2), ("INCREMENTAL_ALTER_CONFIGS", 1))
        for sample in (
            Sample(api, version, lambda n: _config(2, n.topic, "retention.ms", "1000000"),
                   ((_O.ALTER_CONFIGS, TOPIC, "topic"),), "of a topic"),
            Sample(api, version, lambda n: _config(4, str(n.broker), "log.cleaner.threads", "1"),
                   ((_O.ALTER_CONFIGS, CLUSTER, ""),), "of a broker"),
        )
    ),
    Sample("LIST_CONFIG_RESOURCES", 1, lambda n: {"resource_types": []}, ((_O.DESCRIBE_CONFIGS, CLUSTER, ""),)),
    Sample("DESCRIBE_ACLS", 3, lambda n: _NO_ACL, ((_O.DESCRIBE, CLUSTER, ""),)),
    Sample("CREATE_ACLS", 3, lambda n: {"creations": [_NEW_ACL]}, ((_O.ALTER, CLUSTER, ""),)),
    Sample("DELETE_ACLS", 3, lambda n: {"filters": [_NO_ACL]}, ((_O.ALTER, CLUSTER, ""),)),
    Sample("DESCRIBE_USER_SCRAM_CREDENTIALS", 0, lambda n: {"users": None}, ((_O.DESCRIBE, CLUSTER, ""),)),
    Sample("ALTER_USER_SCRAM_CREDENTIALS", 0, lambda n: {
        "deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": [],
    }, ((_O.ALTER, CLUSTER, ""),)),
    Sample("DESCRIBE_CLIENT_QUOTAS", 1, lambda n: {"components": [], "strict": False},
           ((_O.DESCRIBE_CONFIGS, CLUSTER, ""),)),
    Sample("ALTER_CLIENT_QUOTAS", 1, lambda n: {"validate_only": True, "entries": [{
        "entity": [{"entity_type": "user", "entity_name": "nobody"}],
        "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]}]},
           ((_O.ALTER_CONFIGS, CLUSTER, ""),)),
    Sample("DESCRIBE_LOG_DIRS", 4, lambda n: {"topics": None}, ((_O.DESCRIBE, CLUSTER, ""),)),
    Sample("ALTER_REPLICA_LOG_DIRS", 2, lambda n: {
        "dirs": [{"path": n.log_dir, "topics": [{"name": n.absent, "partitions": [0]}]}],
    }, ((_O.ALTER, CLUSTER, ""),)),
    Sample("ELECT_LEADERS", 2, lambda n: {
        "election_type": 0, "topic_partitions": [{"topic": n.topic, "partitions": [0]}], "timeout": 5000,
    }, ((_O.ALTER, CLUSTER, ""),)),
    Sample("ALTER_PARTITION_REASSIGNMENTS", 0, lambda n: {"timeout": 5000, "topics": [{
        "name": n.topic, "partitions": [{"partition_index": 0, "replicas": None}]}]}, ((_O.ALTER, CLUSTER, ""),)),
    Sample("LIST_PARTITION_REASSIGNMENTS", 0, lambda n: {"timeout": 5000, "topics": None},
           ((_O.DESCRIBE, CLUSTER, ""),)),
    Sample("UNREGISTER_BROKER", 0, lambda n: {"broker_id": 99}, ((_O.ALTER, CLUSTER, ""),)),
    Sample("UPDATE_FEATURES", 1, lambda n: {"timeout": 5000, "validate_only": True, "feature_updates": [
        {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1}]}, ((_O.ALTER, CLUSTER, ""),)),
    Sample("DESCRIBE_QUORUM", 2, lambda n: {"topics": [{
        "topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}, ((_O.DESCRIBE, CLUSTER, ""),)),
)  # fmt: skip
KAFKAS: Final = (*_CLIENTS, *_TRANSACTIONS, *_OPERATORS)
"""What Apache Kafka takes on a listener of clients, too."""

_STALE: Final = {"controller_id": 99, "controller_epoch": 0, "broker_epoch": 0}
_BROKERS_RIGHT: Final = ((_O.CLUSTER_ACTION, CLUSTER, ""),)
BROKERS: Final = (
    Sample("LEADER_AND_ISR", 7, lambda n: _STALE, _BROKERS_RIGHT),
    Sample("STOP_REPLICA", 4, lambda n: _STALE, _BROKERS_RIGHT),
    Sample("UPDATE_METADATA", 8, lambda n: _STALE, _BROKERS_RIGHT),
    Sample("ALTER_PARTITION", 3, lambda n: {"broker_id": 99, "broker_epoch": 0}, _BROKERS_RIGHT),
    Sample("BROKER_REGISTRATION", 4, lambda n: {"broker_id": 99, "cluster_id": "another"}, _BROKERS_RIGHT),
    Sample(
        "BROKER_HEARTBEAT", 2, lambda n: {"broker_id": 99, "broker_epoch": 0, "want_shut_down": True}, _BROKERS_RIGHT
    ),
    Sample("ALLOCATE_PRODUCER_IDS", 0, lambda n: {"broker_id": 99, "broker_epoch": 0}, _BROKERS_RIGHT),
    Sample("CLAIM_BROKER_ID", 0, lambda n: {"cluster_id": "another", "host": "h"}, _BROKERS_RIGHT),
    Sample("MANAGE_LOG_DIRS", 0, lambda n: {"action": 0, "path": None}, ((_O.DESCRIBE, CLUSTER, ""),), "describe"),
    Sample("MANAGE_LOG_DIRS", 0, lambda n: {"action": 1, "path": "/no/such"}, ((_O.ALTER, CLUSTER, ""),), "change"),
    Sample("MANAGE_BROKER_IDS", 0, lambda n: {"action": 0}, ((_O.DESCRIBE, CLUSTER, ""),), "list"),
    Sample(
        "MANAGE_BROKER_IDS", 0, lambda n: {"action": 2, "host": "no-such-host"}, ((_O.ALTER, CLUSTER, ""),), "change"
    ),
)
"""What brokers say to each other, and operators of Holdfast to them; by the listener of brokers."""

SENT_ON: Final = frozenset((
    "CREATE_TOPICS", "DELETE_TOPICS", "CREATE_PARTITIONS", "ALTER_CONFIGS", "INCREMENTAL_ALTER_CONFIGS", "CREATE_ACLS",
    "DELETE_ACLS", "ALTER_USER_SCRAM_CREDENTIALS", "ALTER_CLIENT_QUOTAS", "ELECT_LEADERS",
    "ALTER_PARTITION_REASSIGNMENTS", "LIST_PARTITION_REASSIGNMENTS", "UNREGISTER_BROKER", "UPDATE_FEATURES",
    "DESCRIBE_QUORUM", "MANAGE_BROKER_IDS",
))  # fmt: skip
"""What a broker sends on to the controller, in an envelope."""
