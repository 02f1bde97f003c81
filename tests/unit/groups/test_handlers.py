"""The wire side of groups at every version that is spoken."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from holdfast.broker.access import Access
from holdfast.broker.entity import build
from holdfast.broker.handlers import group_offsets, groups, txn_offsets
from holdfast.broker.handlers.base import RequestContext
from holdfast.broker.metadata_cache import MetadataCache, PartitionInfo
from holdfast.model.errors import NotEnoughReplicasError
from holdfast.protocol.apis import request_type
from holdfast.protocol.framing import decode_request, decode_response, encode_body

COMMIT, FETCH, JOIN, BEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE, OFFSET_DELETE = 8, 9, 11, 12, 13, 14, 15, 16, 42, 47
T_ID, UNKNOWN_ID = UUID(int=7), UUID(int=8)


class Wire:
    """Requests as dictionaries, through kio's bytes both ways."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.metadata = MetadataCache()
        info = PartitionInfo(leader=1, leader_epoch=0, isr=(1,), replicas=(1,), offline=())
        self.metadata.topics = {"t": {0: info, 1: info}}
        self.metadata.topic_ids, self.metadata.topic_names = {"t": T_ID}, {T_ID: "t"}

    async def start(self, key: int, version: int, client_id: str | None = "c", **fields: Any) -> Any:
        body = encode_body(build(request_type(key, version), fields))
        world = self.world
        ctx = RequestContext(
            broker=SimpleNamespace(  # type: ignore[arg-type]
                access=Access(),
                groups=world.coordinator,
                metadata=self.metadata,
                now_ms=lambda: world.now_ms,
                membership=SimpleNamespace(is_current=True),
            ),
            connection=SimpleNamespace(peer=("127.0.0.1", 1)),  # type: ignore[arg-type]
            api_key=key,
            version=version,
            correlation_id=1,
            client_id=client_id,
            body=bytes(body),
        )
        names = {
            COMMIT: "offset_commit", FETCH: "offset_fetch", JOIN: "join_group", BEAT: "heartbeat",
            LEAVE: "leave_group", SYNC: "sync_group", DESCRIBE: "describe_groups", LIST: "list_groups",
            DELETE: "delete_groups", OFFSET_DELETE: "offset_delete", 28: "txn_offset_commit",
        }  # fmt: skip
        name = f"handle_{names[key]}"
        handler = next(getattr(m, name) for m in (groups, group_offsets, txn_offsets) if hasattr(m, name))
        response = await handler(ctx, decode_request(key, version, body))
        return decode_response(key, version, encode_body(response))

    def ask(self, key: int, version: int, client_id: str | None = "c", **fields: Any) -> Any:
        return asyncio.run(asyncio.wait_for(self.start(key, version, client_id, **fields), 5))

    def join(self, version: int = 9, **fields: Any) -> Any:
        fields = {
            "group_id": "g",
            "session_timeout": 10_000,
            "rebalance_timeout": 20_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"m"}],
            **fields,
        }
        return self.ask(JOIN, version, **fields)

    def member(self) -> str:
        """The one member of the stable group g."""
        member_id: str = self.join(3).member_id
        assignments = [{"member_id": member_id, "assignment": b"a"}]
        synced = self.ask(SYNC, 5, group_id="g", generation_id=1, member_id=member_id, assignments=assignments)
        assert synced.error_code is ErrorCode.none
        return member_id


@pytest.fixture
def wire(world: Any) -> Wire:
    return Wire(world)


@pytest.mark.parametrize("version", range(10))
def test_join(wire: Wire, version: int) -> None:
    refused = wire.join(version, group_id="")
    assert refused.error_code is ErrorCode.invalid_group_id
    assert refused.generation_id == -1
    assert refused.protocol_name == (None if version >= 7 else "")
    result = wire.join(version)
    if version >= 4:
        assert result.error_code is ErrorCode.member_id_required
        result = wire.join(version, member_id=result.member_id)
    assert result.error_code is ErrorCode.none
    assert (result.generation_id, result.protocol_name, result.leader) == (1, "range", result.member_id)
    assert [m.member_id for m in result.members] == [result.member_id]
    member = wire.world.group().members[result.member_id]
    assert member.rebalance_timeout_ms == (20_000 if version else 10_000)
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")


@pytest.mark.parametrize("version", range(6))
def test_sync(wire: Wire, version: int) -> None:
    member = wire.join(3).member_id
    assignments = [{"member_id": member, "assignment": b"a"}]
    ask = {"group_id": "g", "generation_id": 1, "member_id": member, "assignments": assignments}
    result = wire.ask(SYNC, version, **ask)
    assert (result.error_code, result.assignment) == (ErrorCode.none, b"a")
    assert wire.ask(SYNC, version, **ask | {"member_id": "x"}).error_code is ErrorCode.unknown_member_id


@pytest.mark.parametrize("version", range(5))
def test_heartbeat(wire: Wire, version: int) -> None:
    member = wire.member()
    for generation, code in ((1, ErrorCode.none), (2, ErrorCode.illegal_generation)):
        result = wire.ask(BEAT, version, group_id="g", generation_id=generation, member_id=member)
        assert result.error_code is code


@pytest.mark.parametrize("version", range(6))
def test_leave(wire: Wire, version: int) -> None:
    member = wire.member()
    for code in (ErrorCode.none, ErrorCode.unknown_member_id):
        if version < 3:
            assert wire.ask(LEAVE, version, group_id="g", member_id=member).error_code is code
        else:
            result = wire.ask(LEAVE, version, group_id="g", members=[{"member_id": member}])
            assert result.error_code is ErrorCode.none
            assert [(m.member_id, m.error_code) for m in result.members] == [(member, code)]
    if version < 3:
        assert wire.ask(LEAVE, version, group_id="no", member_id="x").error_code is ErrorCode.unknown_member_id
    else:
        result = wire.ask(LEAVE, version, group_id="no", members=[{"member_id": "x"}, {"member_id": "y"}])
        assert result.error_code is ErrorCode.none
        unknown = ErrorCode.unknown_member_id
        assert [(m.member_id, m.error_code) for m in result.members] == [("x", unknown), ("y", unknown)]
    refused = wire.ask(LEAVE, version, group_id="", **({"member_id": "x"} if version < 3 else {"members": []}))
    assert refused.error_code is ErrorCode.invalid_group_id


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_and_fetch(wire: Wire, version: int) -> None:
    def topic(name: str, topic_id: UUID, *partitions: Any) -> dict[str, Any]:
        return {"name": name, "topic_id": topic_id, "partitions": list(partitions)}

    one = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": 3, "committed_metadata": None}
    missing = one | {"partition_index": 9}
    result = wire.ask(
        COMMIT,
        version,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time=-1,
        topics=[topic("t", T_ID, one, missing), topic("no", UNKNOWN_ID, one)],
    )
    codes = [[p.error_code for p in t.partitions] for t in result.topics]
    none, unknown = ErrorCode.none, ErrorCode.unknown_topic_or_partition
    assert codes == [[none, unknown], [ErrorCode.unknown_topic_id if version >= 10 else unknown]]
    stored = wire.world.group().offsets
    assert [(c.offset, c.metadata, c.topic_id, c.expire_ms) for c in stored.values()] == [(5, "", T_ID, None)]
    assert [c.leader_epoch for c in stored.values()] == [3 if version >= 6 else None]

    read = min(version, 10)
    topics = [
        {"name": "t", "topic_id": T_ID, "partition_indexes": [0, 1]},
        {"name": "no", "topic_id": UNKNOWN_ID, "partition_indexes": [0]},
    ]
    for asked in (topics, None):
        ask = {"group_id": "g", "topics": asked} if read < 8 else {"groups": [{"group_id": "g", "topics": asked}]}
        found = wire.ask(FETCH, read, **ask)
        group = found if read < 8 else found.groups[0]
        values = [[(p.committed_offset, p.metadata) for p in t.partitions] for t in group.topics]
        assert values == ([[(5, "")]] if asked is None else [[(5, ""), (-1, "")], [(-1, "")]])
        if read >= 10:
            assert [t.topic_id for t in group.topics] == [T_ID, UNKNOWN_ID][: len(values)]
            codes = [p.error_code for t in group.topics for p in t.partitions]
            assert codes == [none] if asked is None else codes == [none, none, ErrorCode.unknown_topic_id]


def test_a_commit_of_nothing_that_exists_does_not_reach_the_group(wire: Wire) -> None:
    one = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    topics = [{"name": "no", "partitions": [one]}]
    wire.ask(COMMIT, 9, group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics)
    assert wire.world.group() is None


def test_old_commits_may_say_how_long_they_live(wire: Wire) -> None:
    one = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    wire.ask(
        COMMIT, 2, group_id="g", generation_id_or_member_epoch=-1, member_id="",
        retention_time=timedelta(seconds=9), topics=[{"name": "t", "partitions": [one]}],
    )  # fmt: skip
    [committed] = wire.world.group().offsets.values()
    assert committed.expire_ms == wire.world.now_ms + 9_000


@pytest.mark.parametrize("version", range(1, 10))
def test_fetch_at_another_broker(world: Any, version: int) -> None:
    wire = Wire(type(world)(lead=False))
    topics = [{"name": "t", "partition_indexes": [0]}]
    ask = {"group_id": "g", "topics": topics} if version < 8 else {"groups": [{"group_id": "g", "topics": topics}]}
    found = wire.ask(FETCH, version, **ask)
    if version == 1:
        [[partition]] = [t.partitions for t in found.topics]
        assert (partition.error_code, partition.committed_offset) == (ErrorCode.not_coordinator, -1)
    else:
        group = found if version < 8 else found.groups[0]
        assert (group.error_code, group.topics) == (ErrorCode.not_coordinator, ())


@pytest.mark.parametrize("version", range(6))
def test_list(wire: Wire, version: int) -> None:
    wire.member()
    result = wire.ask(LIST, version, states_filter=["Stable"], types_filter=["classic"])
    assert result.error_code is ErrorCode.none
    [group] = result.groups
    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    assert version < 4 or group.group_state == "Stable"
    assert version < 5 or group.group_type == "classic"


@pytest.mark.parametrize("version", range(7))
def test_describe(wire: Wire, version: int) -> None:
    member = wire.member()
    result = wire.ask(DESCRIBE, version, groups=["g", "no"], include_authorized_operations=True)
    known, missing = result.groups
    assert (known.error_code, known.group_state, known.protocol_data) == (ErrorCode.none, "Stable", "range")
    [m] = known.members
    assert (m.member_id, m.client_id, m.client_host, m.member_metadata, m.member_assignment) == (
        member, "c", "/127.0.0.1", b"m", b"a",
    )  # fmt: skip
    assert missing.group_state == "Dead"
    assert missing.error_code is (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)
    assert version < 3 or known.authorized_operations == 3400
    assert version < 3 or missing.authorized_operations == (-(1 << 31) if version >= 6 else 3400)


@pytest.mark.parametrize("version", range(3))
def test_delete(wire: Wire, version: int) -> None:
    wire.member()
    wire.world.commit(group_id="e")
    result = wire.ask(DELETE, version, groups_names=["g", "e", "no"])
    assert [(r.group_id, r.error_code) for r in result.results] == [
        ("g", ErrorCode.non_empty_group),
        ("e", ErrorCode.none),
        ("no", ErrorCode.group_id_not_found),
    ]


def test_offset_delete(wire: Wire) -> None:
    wire.world.commit()
    topics = [
        {"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 5}]},
        {"name": "no", "partitions": [{"partition_index": 0}]},
    ]
    result = wire.ask(OFFSET_DELETE, 0, group_id="g", topics=topics)
    unknown = ErrorCode.unknown_topic_or_partition
    assert [[p.error_code for p in t.partitions] for t in result.topics] == [[ErrorCode.none, unknown], [unknown]]
    assert wire.world.committed() is None
    assert wire.ask(OFFSET_DELETE, 0, group_id="no", topics=topics).error_code is ErrorCode.group_id_not_found
    assert wire.ask(OFFSET_DELETE, 0, group_id="", topics=topics).error_code is ErrorCode.invalid_group_id


def test_a_client_may_have_no_name(wire: Wire) -> None:
    fields = {"session_timeout": 10_000, "rebalance_timeout": 1, "member_id": "", "protocol_type": "consumer"}
    protocols = [{"name": "range", "metadata": b""}]
    result = wire.ask(JOIN, 3, None, group_id="g", protocols=protocols, **fields)
    assert result.member_id.startswith("-")


def test_a_commit_that_cannot_be_written_says_so_per_partition(wire: Wire) -> None:
    wire.world.log.fail_with = NotEnoughReplicasError()
    one = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    topics = [{"name": "t", "partitions": [one]}]
    result = wire.ask(COMMIT, 9, group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics)
    assert result.topics[0].partitions[0].error_code is ErrorCode.coordinator_not_available


def test_an_answer_that_nobody_waits_for_is_dropped(wire: Wire) -> None:
    async def go() -> None:
        wire.world.log.hold()
        task = asyncio.ensure_future(
            wire.start(
                JOIN, 3, group_id="g", session_timeout=10_000, rebalance_timeout=1, member_id="",
                protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}],
            )
        )  # fmt: skip
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        wire.world.log.complete()

    asyncio.run(go())
    assert len(wire.world.group().members) == 1


def test_the_offsets_topic_says_how_many_partitions_there_are(wire: Wire) -> None:
    info = wire.metadata.topics["t"][0]
    wire.metadata.topics["__consumer_offsets"] = dict.fromkeys(range(7), info)
    wire.ask(LIST, 5)
    assert wire.world.coordinator.partition_count == 7
