"""Loading, failover, lists and descriptions; the small parts."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.coordinators.deadlines import Deadlines
from holdfast.coordinators.partitioning import java_hash, partition_for
from holdfast.groups.consumer_protocol import subscribed_topics
from holdfast.groups.producer_ids import MAX_WAITERS, ProducerIdBlock, ProducerIds
from holdfast.groups.settings import GroupSettings
from holdfast.groups.states import GroupState
from holdfast.groups.types import OffsetDeleteResult
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import NotControllerError
from holdfast.model.group_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    NotCoordinatorError,
    RebalanceInProgressError,
)
from holdfast.model.types import TopicPartition

TP = TopicPartition("t", 0)


def each_error(world: Any, group_id: str = "g") -> dict[str, Any]:
    """What every request is answered with."""
    deleted: list[OffsetDeleteResult] = []
    gone: list[Any] = []
    world.coordinator.delete_offsets(group_id, [TP], world.now_ms, deleted.append)
    world.coordinator.delete_group(group_id, world.now_ms, gone.append)
    return {
        "join": world.join("m", group_id=group_id).value.error,
        "sync": world.sync("m", 1, group_id=group_id).value.error,
        "heartbeat": world.heartbeat("m", 1, group_id=group_id),
        "leave": world.leave("m", group_id=group_id).error,
        "commit": world.commit(group_id=group_id).value[TP],
        "fetch": world.coordinator.fetch_offsets(group_id, [TP], world.now_ms).error,
        "delete offsets": deleted[0].error,
        "describe": world.coordinator.describe_group(group_id, world.now_ms).error,
        "delete": gone[0],
    }


# -- leadership ------------------------------------------------------------------------------------------------


def test_groups_of_others_are_refused(world: Any) -> None:
    world = type(world)(lead=False)
    assert {type(e) for e in each_error(world).values()} == {NotCoordinatorError}


def test_groups_that_load_are_asked_for_again(world: Any) -> None:
    world = type(world)(lead=False)
    world.coordinator.on_elected(world.partition("g"), 3)
    errors = each_error(world)
    assert errors.pop("heartbeat") is None  # nothing is known against it
    assert isinstance(errors.pop("sync"), RebalanceInProgressError)
    assert {type(e) for e in errors.values()} == {CoordinatorLoadInProgressError}
    assert isinstance(world.coordinator.list_groups().error, CoordinatorLoadInProgressError)


def test_what_is_loaded_too_late_is_not_served(world: Any) -> None:
    world = type(world)(lead=False)
    partition = world.partition("g")
    world.coordinator.on_elected(partition, 3)
    world.coordinator.on_elected(partition, 4)
    world.coordinator.load(partition, 3, [], world.now_ms)
    assert isinstance(each_error(world)["fetch"], CoordinatorLoadInProgressError)
    world.coordinator.load(partition, 4, [], world.now_ms)
    assert each_error(world)["fetch"] is None
    world.coordinator.on_resigned(partition)
    world.coordinator.on_resigned(partition)
    world.coordinator.load(partition, 4, [], world.now_ms)
    assert isinstance(each_error(world)["fetch"], NotCoordinatorError)


def test_hearing_twice_of_one_election_changes_nothing(world: Any) -> None:
    world.commit(5)
    world.coordinator.on_elected(world.partition("g"), 1)
    assert world.committed() == 5


def test_the_next_coordinator_knows_members_assignments_and_offsets(world: Any) -> None:
    first, second = world.stable(2)
    world.commit(5, member_id=first, generation=2)
    other = world.again()
    assert other.committed() == 5
    assert other.heartbeat(first, 2) is None
    assert other.heartbeat(second, 2) is None
    assert other.sync(second, 2).value.assignment == f"for {second}".encode()
    assert other.group().leader == first
    other.pass_ms(10_000)
    assert other.group().members == {}


def test_C_10_a_coordinator_that_is_moved_ends_no_session(world: Any) -> None:
    """While it loads a heartbeat is no error, and then every member has a whole session, however long that took."""
    first, second = world.stable(2)
    world.coordinator.on_resigned(world.partition("g"))
    assert isinstance(world.heartbeat(first, 2), NotCoordinatorError)
    other = type(world)(world.log, lead=False)
    partition = other.partition("g")
    other.coordinator.on_elected(partition, 2)
    other.pass_ms(60_000)
    assert other.heartbeat(first, 2) is None
    other.coordinator.load(partition, 2, world.log.chunks(partition), other.now_ms)
    other.pass_ms(9_999)
    assert other.heartbeat(first, 2) is None
    assert set(other.group().members) == {first, second}
    other.pass_ms(1)
    assert set(other.group().members) == {first}, "the session of who said nothing is as long as ever"


def test_the_next_coordinator_goes_on_with_the_generation(world: Any) -> None:
    [member] = world.stable()
    world.leave(member)
    other = world.again()
    assert other.group().state is GroupState.EMPTY
    assert other.join_new().value.generation == 3


def test_the_next_coordinator_makes_room_where_its_limit_is_lower(world: Any) -> None:
    world.stable(3)
    other = world.again(max_size=2)
    assert other.group().state is GroupState.PREPARING_REBALANCE


def test_who_waits_is_sent_away_when_another_broker_coordinates(world: Any) -> None:
    first, second = world.stable(2)
    joining = world.join(first)
    world.log.hold()
    committing = world.commit(6, member_id=second, generation=2)
    world.coordinator.on_resigned(world.partition("g"))
    assert isinstance(joining.value.error, NotCoordinatorError)
    world.log.complete()
    assert isinstance(committing.value[TP], NotCoordinatorError)
    assert world.coordinator._deadlines.at(("session", "g", first)) is None


@pytest.mark.parametrize("step", ["join", "sync", "static", "delete"])
def test_what_is_being_written_at_a_resignation_is_refused(world: Any, step: str) -> None:
    answers: list[Any] = []
    if step == "join":
        world.log.hold()
        waiting = world.join()
    elif step == "sync":
        member = world.join_new().value.member_id
        world.log.hold()
        waiting = world.sync(member, 1, {member: b"a"})
    elif step == "static":
        world.stable(2, instances=True)
        world.log.hold()
        waiting = world.join(instance_id="i1")
    else:
        world.commit()
        world.log.hold()
        world.coordinator.delete_group("g", world.now_ms, answers.append)
        waiting = None
    world.coordinator.on_resigned(world.partition("g"))
    world.log.complete()
    error = answers[0] if waiting is None else waiting.value.error
    assert isinstance(error, NotCoordinatorError)


def test_a_new_election_without_a_resignation_starts_over(world: Any) -> None:
    [member] = world.stable()
    partition = world.partition("g")
    world.coordinator.on_elected(partition, 2)
    world.coordinator.load(partition, 2, world.log.chunks(partition), world.now_ms)
    assert world.heartbeat(member, 1) is None


def test_the_real_number_of_partitions_counts(world: Any) -> None:
    world.coordinator.partition_count = 50
    errors = {type(world.coordinator.fetch_offsets(f"g{i}", [TP], world.now_ms).error) for i in range(50)}
    assert errors == {type(None), NotCoordinatorError}


# -- administration --------------------------------------------------------------------------------------------


def test_requests_of_members_and_the_removal_of_offsets_need_a_name(world: Any) -> None:
    errors = each_error(world, "")
    named = {k: errors.pop(k) for k in ("join", "sync", "heartbeat", "leave", "delete offsets")}
    assert {type(e) for e in named.values()} == {InvalidGroupIdError}
    assert errors["commit"] is None
    assert errors["fetch"] is None


def test_lists_can_be_narrowed(world: Any) -> None:
    world.stable(group_id="s")
    world.commit(group_id="e")

    def names(**filters: Any) -> list[str]:
        found = world.coordinator.list_groups(**filters)
        assert found.error is None
        return [g.group_id for g in found.groups]

    assert names() == ["e", "s"]
    assert names(states=["stable"]) == ["s"]
    assert names(states=["Empty", "Dead"]) == ["e"]
    assert names(states=["nonsense"]) == []
    assert names(types=["Classic"]) == ["e", "s"]
    assert names(types=["consumer"]) == []


def test_descriptions(world: Any) -> None:
    first, second = world.stable(2, strategies={"range": b"topics"})
    described = world.coordinator.describe_group("g", world.now_ms)
    assert (described.state, described.protocol_type, described.protocol_name) == ("Stable", "consumer", "range")
    assert [(m.member_id, m.metadata, m.assignment) for m in described.members] == [
        (first, b"topics", f"for {first}".encode()),
        (second, b"topics", f"for {second}".encode()),
    ]
    world.join(first)
    described = world.coordinator.describe_group("g", world.now_ms)
    assert (described.state, described.protocol_name) == ("PreparingRebalance", "")
    assert described.members[0].metadata == b""
    missing = world.coordinator.describe_group("no", world.now_ms)
    assert isinstance(missing.error, GroupIdNotFoundError)
    assert missing.state == "Dead"


def test_states_that_the_table_does_not_have_are_a_bug(world: Any) -> None:
    world.commit()
    with pytest.raises(AssertionError, match="cannot become"):
        world.group().become(GroupState.STABLE, world.now_ms)


# -- parts -----------------------------------------------------------------------------------------------------


def test_partitions_are_javas() -> None:
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0
    assert java_hash("😀") == 1772899
    assert all(0 <= partition_for(f"group-{i}", 50) < 50 for i in range(200))


def test_settings_are_the_configurations() -> None:
    config = BrokerConfig.parse(
        {"node.id": "1", "log.dirs": "/tmp/x", "offsets.retention.minutes": "2", "group.max.size": "7"}
    )
    settings = GroupSettings.of(config)
    assert (settings.offsets_retention_ms, settings.max_size) == (120_000, 7)
    assert settings == GroupSettings(offsets_retention_ms=120_000, max_size=7)


def test_subscriptions_that_cannot_be_read_are_none() -> None:
    good = bytes.fromhex("0003000000020001610002c3a4ffffffff")
    assert subscribed_topics(good) == {"a", "ä"}
    for bad in (b"", b"\0\1\0\0\0\1", good[:8], b"\0\1\0\0\0\1\xff\xff", b"\0\1\0\0\0\1\0\1\xff"):
        assert subscribed_topics(bad) is None


def test_deadlines_run_in_order_and_move() -> None:
    ran: list[tuple[str, int]] = []
    deadlines = Deadlines()

    def at(key: str, at_ms: int) -> None:
        deadlines.set(key, at_ms, lambda now_ms: ran.append((key, now_ms)))

    at("a", 10)
    at("b", 5)
    at("c", 7)
    at("a", 20)  # later: the heap still has 10
    at("c", 6)  # earlier
    deadlines.cancel("b")
    deadlines.cancel("never set")
    assert deadlines.next_ms() == 6
    assert deadlines.at("a") == 20
    assert deadlines.at("b") is None
    deadlines.run_due(10)
    assert ran == [("c", 10)]
    assert deadlines.next_ms() == 20
    deadlines.run_due(25)
    assert ran == [("c", 10), ("a", 25)]
    assert deadlines.next_ms() is None
    assert len(deadlines) == 0


def test_a_deadline_may_set_itself_again() -> None:
    deadlines = Deadlines()
    ran: list[int] = []

    def again(now_ms: int) -> None:
        ran.append(now_ms)
        deadlines.set("k", now_ms + 10, again)

    deadlines.set("k", 0, again)
    deadlines.run_due(5)
    deadlines.run_due(20)
    assert ran == [5, 20]


def test_producer_ids_never_repeat() -> None:
    blocks: list[Any] = []
    ids = ProducerIds(blocks.append)
    given: list[Any] = []
    for _ in range(3):
        ids.next_id(given.append)
    assert given == []
    assert len(blocks) == 1
    blocks[0](ProducerIdBlock(1000, 2))
    assert given == [1000, 1001]
    blocks[1](ProducerIdBlock(5000, 10))
    assert given == [1000, 1001, 5000]
    ids.next_id(given.append)
    assert given[-1] == 5001
    assert len(blocks) == 2


def test_producers_try_again_when_no_block_can_be_had() -> None:
    ids = ProducerIds(lambda reply: reply(NotControllerError("moved")))
    given: list[Any] = []
    ids.next_id(given.append)
    assert isinstance(given[0], CoordinatorLoadInProgressError)


def test_producers_that_wait_are_bounded() -> None:
    ids = ProducerIds(lambda reply: None)
    given: list[Any] = []
    for _ in range(MAX_WAITERS + 1):
        ids.next_id(given.append)
    assert len(given) == 1
    assert isinstance(given[0], CoordinatorNotAvailableError)
