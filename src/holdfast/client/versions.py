"""Which API versions the client speaks, and which of them one broker takes.

One pinned version per API, chosen so that Apache Kafka 2.8 to 4.x and Holdfast speak it; ``PINNED`` is the whole
list. Two versions of an API are spoken only where code outside this client asks for it by ``request_raw``.
"""

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.model.errors import UnsupportedVersionError

PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
METADATA = 3
OFFSET_COMMIT = 8
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
JOIN_GROUP = 11
HEARTBEAT = 12
LEAVE_GROUP = 13
SYNC_GROUP = 14
DESCRIBE_GROUPS = 15
LIST_GROUPS = 16
API_VERSIONS = 18
CREATE_TOPICS = 19
DELETE_TOPICS = 20
DELETE_RECORDS = 21
INIT_PRODUCER_ID = 22
WRITE_TXN_MARKERS = 27
OFFSET_FOR_LEADER_EPOCH = 23
DESCRIBE_ACLS = 29
CREATE_ACLS = 30
DELETE_ACLS = 31
DESCRIBE_CONFIGS = 32
ALTER_REPLICA_LOG_DIRS = 34
DESCRIBE_LOG_DIRS = 35
CREATE_PARTITIONS = 37
DELETE_GROUPS = 42
INCREMENTAL_ALTER_CONFIGS = 44
ALTER_PARTITION_REASSIGNMENTS = 45
LIST_PARTITION_REASSIGNMENTS = 46
OFFSET_DELETE = 47
DESCRIBE_CLIENT_QUOTAS = 48
ALTER_CLIENT_QUOTAS = 49
DESCRIBE_USER_SCRAM_CREDENTIALS = 50
ALTER_USER_SCRAM_CREDENTIALS = 51
DESCRIBE_CLUSTER = 60
DESCRIBE_PRODUCERS = 61
UPDATE_FEATURES = 57
UNREGISTER_BROKER = 64
DESCRIBE_TRANSACTIONS = 65
LIST_TRANSACTIONS = 66

PINNED: Mapping[int, int] = {
    PRODUCE: 9,
    FETCH: 12,
    LIST_OFFSETS: 7,
    METADATA: 12,
    OFFSET_COMMIT: 8,
    OFFSET_FETCH: 8,
    FIND_COORDINATOR: 4,
    JOIN_GROUP: 7,
    HEARTBEAT: 4,
    LEAVE_GROUP: 4,
    SYNC_GROUP: 5,
    DESCRIBE_GROUPS: 5,
    LIST_GROUPS: 4,
    API_VERSIONS: 3,
    CREATE_TOPICS: 7,
    DELETE_TOPICS: 6,
    DELETE_RECORDS: 2,
    INIT_PRODUCER_ID: 4,
    WRITE_TXN_MARKERS: 1,
    OFFSET_FOR_LEADER_EPOCH: 4,
    DESCRIBE_ACLS: 2,
    CREATE_ACLS: 2,
    DELETE_ACLS: 2,
    DESCRIBE_CONFIGS: 4,
    ALTER_REPLICA_LOG_DIRS: 2,
    DESCRIBE_LOG_DIRS: 4,
    CREATE_PARTITIONS: 3,
    DELETE_GROUPS: 2,
    INCREMENTAL_ALTER_CONFIGS: 1,
    ALTER_PARTITION_REASSIGNMENTS: 0,
    LIST_PARTITION_REASSIGNMENTS: 0,
    DESCRIBE_CLUSTER: 0,
    OFFSET_DELETE: 0,
    DESCRIBE_CLIENT_QUOTAS: 1,
    ALTER_CLIENT_QUOTAS: 1,
    DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ALTER_USER_SCRAM_CREDENTIALS: 0,
    DESCRIBE_PRODUCERS: 0,
    UPDATE_FEATURES: 1,
    UNREGISTER_BROKER: 0,
    DESCRIBE_TRANSACTIONS: 0,
    LIST_TRANSACTIONS: 1,
}


class UsableVersions(NamedTuple):
    low: int
    high: int


def require(ranges: Mapping[int, UsableVersions], api_key: int, version: int, address: str) -> None:
    """UnsupportedVersionError, in words, when the broker at ``address`` does not take the request."""
    offered = ranges.get(api_key)
    if offered is None:
        raise UnsupportedVersionError(f"the broker at {address} does not know API {api_key}")
    if not offered.low <= version <= offered.high:
        raise UnsupportedVersionError(
            f"the broker at {address} speaks versions {offered.low} to {offered.high} of API {api_key},"
            f" this client speaks {version}"
        )
