"""Requests that few clients send, and which error each is answered with: as Apache Kafka 4.3.0 answers the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.security.resources import Operation, Permission, ResourceKind
from tests.rights.brokers import SecuredBrokers
from tests.rights.walk import ADMIN, Walk, codes_of, entry

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("brokers of its own")]

NOBODY, ALICE = "nobody", "alice"
RIGHTS: Final = (
    (Operation.READ, ResourceKind.TOPIC), (Operation.READ, ResourceKind.GROUP),
    (Operation.WRITE, ResourceKind.TRANSACTIONAL_ID),
)  # fmt: skip
"""What alice has, of everything of the kind."""
NOT_TOLD: Final = -(1 << 31)
TWICE: Final = (42, "Duplicate topic name.")
GONE, OFFSETS = "gone", "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class Asked:
    """``seen``: what is looked at of the answer."""

    title: str
    user: str
    api: str
    version: int
    values: Mapping[str, Any]
    expected: Any
    seen: Callable[[Any], Any] = codes_of


def _metadata(title: str, user: str, name: str, expected: list[int], *, creates: bool = False) -> Asked:
    values = {
        "topics": [{"name": name}], "allow_auto_topic_creation": creates, "include_topic_authorized_operations": True,
    }  # fmt: skip
    return Asked(
        f"Metadata, {title}", user, "METADATA", 8, values, expected,
        lambda a: [*codes_of(a), *(t.topic_authorized_operations for t in a.topics)],
    )  # fmt: skip


def _pages(title: str, cursor: tuple[str, int] | None, limit: int, topics: list[str], expected: Any) -> Asked:
    values = {
        "topics": [{"name": name} for name in topics], "response_partition_limit": limit,
        "cursor": None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    }  # fmt: skip
    return Asked(
        f"DescribeTopicPartitions, {title}", ALICE, "DESCRIBE_TOPIC_PARTITIONS", 0, values, expected,
        lambda a: [(t.name, int(t.error_code)) for t in a.topics],
    )  # fmt: skip


def _altered(api: str, user: str, kind: int, expected: int) -> Asked:
    config = {"name": "a", "value": "b", **({"config_operation": 0} if api == "INCREMENTAL_ALTER_CONFIGS" else {})}
    resource = {"resource_type": kind, "resource_name": "1", "configs": [config]}
    return Asked(
        f"{api} of a resource of type {kind}",
        user,
        api,
        1,
        {"resources": [resource], "validate_only": True},
        [expected],
    )


def _found(version: int, kind: int, expected: tuple[int, str]) -> Asked:
    return Asked(
        f"FindCoordinator {version}", NOBODY, "FIND_COORDINATOR", version,
        {"key_type": kind, **({"key": "g"} if version < 4 else {"coordinator_keys": ["g"]})}, [expected],
        lambda a: [(int(each.error_code), each.error_message) for each in getattr(a, "coordinators", (a,))],
    )  # fmt: skip


_FETCH: Final = {
    "partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1,
    "last_fetched_epoch": -1, "log_start_offset": -1,
}  # fmt: skip
_COMMIT: Final = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
_CASES: Final = (
    *(
        Asked(
            f"TxnOffsetCommit {version} without a transactional id", ALICE, "TXN_OFFSET_COMMIT", version,
            {
                "transactional_id": "", "group_id": "g", "producer_id": 77, "producer_epoch": 0, "generation_id": -1,
                "member_id": "", "topics": [{"name": "t", "partitions": [_COMMIT]}],
            },
            [42],
        )
        for version in (0, 3, 5)
    ),
    _metadata("one that is not there", ALICE, GONE, [3, 264]),
    _metadata("no name of a topic", ALICE, "a b", [17, 264]),
    _metadata("one that is not there, to be made", ALICE, GONE, [29, NOT_TOLD], creates=True),
    _metadata("no name of a topic, to be made", ALICE, "a b", [29, NOT_TOLD], creates=True),
    _metadata("the empty name, to be made", ALICE, "", [29, NOT_TOLD], creates=True),
    _metadata("no name of a topic, to be made by who may", ADMIN, "a b", [17, 3576], creates=True),
    _metadata("one that may not be described", NOBODY, "t", [29, NOT_TOLD]),
    *(
        Asked(
            "Fetch of the empty name", user, "FETCH", 12,
            {
                "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_epoch": -1,
                "topics": [{"topic": name, "partitions": [_FETCH]} for name in ("", GONE)],
            }, [0, code, code],
        )
        for user, code in ((NOBODY, 29), (ALICE, 3))
    ),
    _altered("ALTER_CONFIGS", NOBODY, 8, 42),
    _altered("ALTER_CONFIGS", NOBODY, 64, 42),
    _altered("ALTER_CONFIGS", NOBODY, 4, 31),
    _altered("INCREMENTAL_ALTER_CONFIGS", NOBODY, 8, 31),
    _altered("INCREMENTAL_ALTER_CONFIGS", NOBODY, 64, 42),
    _found(3, 0, (30, "Group authorization failed.")),
    _found(4, 0, (30, "")),
    _found(6, 1, (53, "")),
    *(
        Asked(
            "CreateTopics, a name twice", user, "CREATE_TOPICS", 7,
            {"topics": [{"name": "d", "num_partitions": 1, "replication_factor": 1}] * 2, "validate_only": True},
            [TWICE], lambda a: [(int(t.error_code), t.error_message) for t in a.topics],
        )
        for user in (NOBODY, ADMIN)
    ),
    Asked(
        "CreatePartitions, a name twice", NOBODY, "CREATE_PARTITIONS", 3,
        {"topics": [{"name": name, "count": 9} for name in ("t", "t", "u")], "validate_only": True},
        [("t", *TWICE), ("u", 29, None)], lambda a: [(t.name, int(t.error_code), t.error_message) for t in a.results],
    ),
    Asked(
        "DeleteRecords of what coordinators keep", ADMIN, "DELETE_RECORDS", 2,
        {"timeout": 5000, "topics": [
            {"name": name, "partitions": [{"partition_index": index, "offset": -5}]}
            for name, index in ((OFFSETS, 0), (OFFSETS, 5), (GONE, 0), ("t", 0))
        ]},
        [17, 3, 3, 1],
    ),
    _pages("a cursor outside of the topics", ("a", 0), 5, ["t", GONE], [(GONE, 42), ("t", 42)]),
    _pages("a cursor at a topic that is not there", (GONE, 0), 5, [GONE], [(GONE, 3)]),
    _pages("a cursor before the first partition", ("t", -1), 5, ["t"], [("t", 42)]),
    _pages("no room", None, 0, ["t"], [("t", 0)]),
    Asked("OffsetDelete without a group", ADMIN, "OFFSET_DELETE", 0, {"group_id": "", "topics": []}, [24]),
    Asked(
        "LeaveGroup of a group that is not there", ALICE, "LEAVE_GROUP", 5,
        {"group_id": GONE, "members": [{"member_id": "m"}]}, [0, 25],
    ),
    Asked(
        "DescribeGroups of a group that is not there", ALICE, "DESCRIBE_GROUPS", 6,
        {"groups": [GONE], "include_authorized_operations": True}, [(69, NOT_TOLD)],
        lambda a: [(int(g.error_code), g.authorized_operations) for g in a.groups],
    ),
)  # fmt: skip


def test_unusual_requests_are_answered_as_by_kafka(tmp_path: Path) -> None:
    with SecuredBrokers(tmp_path, (NOBODY, ALICE), 1) as brokers:
        told = asyncio.run(_answers(Walk(*brokers.address(1))))
    assert told == [(case.title, case.user, case.expected) for case in _CASES]


async def _answers(walk: Walk) -> list[tuple[str, str, Any]]:
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    assert codes_of(await walk.ask(ADMIN, "CREATE_TOPICS", 7, {"topics": [topic], "timeout": 30_000})) == [0, 0]
    await walk.found(0, "g")
    await walk.found(1, "tx")
    commit = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    await walk.done("OFFSET_COMMIT", 8, commit | {"topics": [{"name": "t", "partitions": [_COMMIT]}]})
    begin = {"transactional_id": "tx", "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    await walk.done("INIT_PRODUCER_ID", 4, begin)
    entries = [entry((operation, kind, ""), "*", ALICE, Permission.ALLOW) for operation, kind in RIGHTS]
    assert set(codes_of(await walk.ask(ADMIN, "CREATE_ACLS", 3, {"creations": entries}))) == {0}
    told = []
    for case in _CASES:
        answer = await walk.ask(case.user, case.api, case.version, case.values)
        told.append((case.title, case.user, None if answer is None else case.seen(answer)))
    return told
