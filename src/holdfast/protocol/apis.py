"""The APIs and versions that Holdfast speaks; nothing else names a version.

``SPOKEN`` is what clients are told by ApiVersions; every API in it has a handler. ``INTERNAL`` is spoken
between brokers, and by operators' commands. Message classes are kio's (interbroker.py, operating.py and broker_ids.py
for what kio lacks) and are imported one version at a time, when first used: all of them together would cost a broker
its memory limit.
"""

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple


class ApiKey(IntEnum):
    """Kafka's API keys, as far as they are known here."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    MANAGE_LOG_DIRS = 18_502
    """Ours (protocol/operating.py)."""
    CLAIM_BROKER_ID = 18_503
    MANAGE_BROKER_IDS = 18_504
    """Ours (protocol/broker_ids.py)."""


class VersionRange(NamedTuple):
    """Versions of one API, both ends included."""

    min: int
    max: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.min <= version <= self.max


SPOKEN: Final[Mapping[ApiKey, VersionRange]] = {
    ApiKey.PRODUCE: VersionRange(3, 13),
    ApiKey.FETCH: VersionRange(4, 18),
    ApiKey.LIST_OFFSETS: VersionRange(1, 11),
    ApiKey.METADATA: VersionRange(0, 13),
    ApiKey.OFFSET_COMMIT: VersionRange(2, 10),
    ApiKey.OFFSET_FETCH: VersionRange(1, 10),
    ApiKey.FIND_COORDINATOR: VersionRange(0, 6),
    ApiKey.JOIN_GROUP: VersionRange(0, 9),
    ApiKey.HEARTBEAT: VersionRange(0, 4),
    ApiKey.LEAVE_GROUP: VersionRange(0, 5),
    ApiKey.SYNC_GROUP: VersionRange(0, 5),
    ApiKey.DESCRIBE_GROUPS: VersionRange(0, 6),
    ApiKey.LIST_GROUPS: VersionRange(0, 5),
    ApiKey.SASL_HANDSHAKE: VersionRange(0, 1),
    ApiKey.API_VERSIONS: VersionRange(0, 4),
    ApiKey.CREATE_TOPICS: VersionRange(2, 7),
    ApiKey.DELETE_TOPICS: VersionRange(1, 6),
    ApiKey.DELETE_RECORDS: VersionRange(0, 2),
    ApiKey.INIT_PRODUCER_ID: VersionRange(0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: VersionRange(2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: VersionRange(0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: VersionRange(0, 4),
    ApiKey.END_TXN: VersionRange(0, 5),
    ApiKey.WRITE_TXN_MARKERS: VersionRange(1, 2),
    ApiKey.TXN_OFFSET_COMMIT: VersionRange(0, 5),
    ApiKey.DESCRIBE_ACLS: VersionRange(1, 3),
    ApiKey.CREATE_ACLS: VersionRange(1, 3),
    ApiKey.DELETE_ACLS: VersionRange(1, 3),
    ApiKey.DESCRIBE_CONFIGS: VersionRange(1, 4),
    ApiKey.ALTER_CONFIGS: VersionRange(0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: VersionRange(1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: VersionRange(1, 5),
    ApiKey.SASL_AUTHENTICATE: VersionRange(0, 2),
    ApiKey.CREATE_PARTITIONS: VersionRange(0, 3),
    ApiKey.DELETE_GROUPS: VersionRange(0, 2),
    ApiKey.ELECT_LEADERS: VersionRange(0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: VersionRange(0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: VersionRange(0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: VersionRange(0, 0),
    ApiKey.OFFSET_DELETE: VersionRange(0, 0),
    ApiKey.DESCRIBE_QUORUM: VersionRange(0, 2),
    ApiKey.UPDATE_FEATURES: VersionRange(0, 2),
    ApiKey.DESCRIBE_CLUSTER: VersionRange(0, 2),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: VersionRange(0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: VersionRange(0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: VersionRange(0, 0),
    ApiKey.DESCRIBE_PRODUCERS: VersionRange(0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: VersionRange(0, 0),
    ApiKey.LIST_TRANSACTIONS: VersionRange(0, 2),
    ApiKey.LIST_CONFIG_RESOURCES: VersionRange(0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: VersionRange(0, 0),
    ApiKey.UNREGISTER_BROKER: VersionRange(0, 0),
}
"""What clients may ask for."""

INTERNAL: Final[Mapping[ApiKey, VersionRange]] = {
    ApiKey.LEADER_AND_ISR: VersionRange(7, 7),
    ApiKey.STOP_REPLICA: VersionRange(4, 4),
    ApiKey.UPDATE_METADATA: VersionRange(8, 8),
    ApiKey.ALTER_PARTITION: VersionRange(3, 3),
    ApiKey.BROKER_REGISTRATION: VersionRange(4, 4),
    ApiKey.BROKER_HEARTBEAT: VersionRange(2, 2),
    ApiKey.ALLOCATE_PRODUCER_IDS: VersionRange(0, 0),
    ApiKey.ENVELOPE: VersionRange(0, 0),
    ApiKey.MANAGE_LOG_DIRS: VersionRange(0, 0),
    ApiKey.CLAIM_BROKER_ID: VersionRange(0, 0),
    ApiKey.MANAGE_BROKER_IDS: VersionRange(0, 0),
}
"""What brokers ask each other for, and operators them; not advertised, and not taken on every listener."""

OPERATORS: Final[frozenset[int]] = frozenset((int(ApiKey.MANAGE_LOG_DIRS), int(ApiKey.MANAGE_BROKER_IDS)))
"""What operators ask."""
BETWEEN_BROKERS: Final[frozenset[int]] = frozenset(map(int, INTERNAL)) - OPERATORS
"""What brokers and the controller say to each other."""

ADVERTISED_MIN: Final[Mapping[ApiKey, int]] = {ApiKey.PRODUCE: 0}
"""Where ApiVersions tells a lower version than is spoken, as Kafka does: librdkafka looks for Produce 0 to
decide which compression codecs it may use (KIP-896)."""

_FLEXIBLE_FROM: Final[Mapping[int, int]] = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 9,
    ApiKey.LEADER_AND_ISR: 4,
    ApiKey.STOP_REPLICA: 2,
    ApiKey.UPDATE_METADATA: 6,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 6,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 6,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.SYNC_GROUP: 4,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.LIST_GROUPS: 3,
    ApiKey.API_VERSIONS: 3,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 2,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 3,
    ApiKey.END_TXN: 3,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.TXN_OFFSET_COMMIT: 3,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 2,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 2,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.OFFSET_DELETE: 32767,
    ApiKey.DESCRIBE_ACLS: 2,
    ApiKey.CREATE_ACLS: 2,
    ApiKey.DELETE_ACLS: 2,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 0,
    ApiKey.LIST_CONFIG_RESOURCES: 0,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
    ApiKey.DESCRIBE_QUORUM: 0,
    ApiKey.SASL_HANDSHAKE: 32767,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.ALTER_PARTITION: 0,
    ApiKey.ENVELOPE: 0,
    ApiKey.UPDATE_FEATURES: 0,
    ApiKey.DESCRIBE_CLUSTER: 0,
    ApiKey.BROKER_REGISTRATION: 0,
    ApiKey.BROKER_HEARTBEAT: 0,
    ApiKey.UNREGISTER_BROKER: 0,
    ApiKey.ALLOCATE_PRODUCER_IDS: 0,
    ApiKey.MANAGE_LOG_DIRS: 0,
    ApiKey.CLAIM_BROKER_ID: 0,
    ApiKey.MANAGE_BROKER_IDS: 0,
}

_OURS: Final[Mapping[ApiKey, str]] = {
    **dict.fromkeys(
        (
            ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.ALTER_PARTITION,
            ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT,
        ),
        "interbroker",
    ),
    ApiKey.MANAGE_LOG_DIRS: "operating",
    ApiKey.CLAIM_BROKER_ID: "broker_ids",
    ApiKey.MANAGE_BROKER_IDS: "broker_ids",
}  # fmt: skip
"""API -> module of this package that has its classes."""
_INSTEAD: Final = {(ApiKey.DESCRIBE_TRANSACTIONS, 0, "Response"): "holdfast.protocol.described_transactions"}
"""Classes of ours for a message of which kio cannot read every one."""
_RANGES: Final[dict[int, VersionRange]] = {int(k): v for m in (SPOKEN, INTERNAL) for k, v in m.items()}


def is_spoken(api_key: int, version: int) -> bool:
    """Whether a request of this API and version is answered at all, clients' or brokers'."""
    span = _RANGES.get(api_key)
    return span is not None and span.min <= version <= span.max


def advertised() -> list[tuple[ApiKey, int, int]]:
    """(API, lowest, highest version) as ApiVersions tells them, in the order of keys."""
    return [(key, ADVERTISED_MIN.get(key, span.min), span.max) for key, span in sorted(SPOKEN.items())]


def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version has compact strings and tagged fields (KIP-482); False for an unknown API."""
    return version >= _FLEXIBLE_FROM.get(api_key, 32767)


def request_header_version(api_key: int, version: int) -> int:
    """2 has tagged fields, 1 has not."""
    return 2 if is_flexible(api_key, version) else 1


def response_header_version(api_key: int, version: int) -> int:
    """1 has tagged fields, 0 has not: ApiVersions answers always, so that any client can read them."""
    return 1 if api_key != ApiKey.API_VERSIONS and is_flexible(api_key, version) else 0


@cache
def request_type(api_key: int, version: int) -> type[Any]:
    """The class of this request. KeyError for an API or version that has none."""
    return _message_type(api_key, version, "Request")


@cache
def response_type(api_key: int, version: int) -> type[Any]:
    """The class of this response. KeyError for an API or version that has none."""
    return _message_type(api_key, version, "Response")


def _message_type(api_key: int, version: int, side: str) -> type[Any]:
    try:
        key = ApiKey(api_key)
    except ValueError:
        raise KeyError(f"API key {api_key} is not known") from None
    name = "".join(word.capitalize() for word in key.name.split("_")) + side
    if key in _OURS:
        module = f"holdfast.protocol.{_OURS[key]}"
        if version not in INTERNAL[key]:
            raise KeyError(f"{key.name} version {version} is not spoken: expected {INTERNAL[key]}")
    else:
        module = _INSTEAD.get((key, version, side), f"kio.schema.{key.name.lower()}.v{version}.{side.lower()}")
    try:
        found: type[Any] = getattr(import_module(module), name)
    except ModuleNotFoundError:
        raise KeyError(f"{key.name} has no version {version}") from None
    return found
