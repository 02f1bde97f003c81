"""SyncGroup, Heartbeat, LeaveGroup, static members."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.groups.states import GroupState
from holdfast.model.errors import NotEnoughReplicasError, RequestTimedOutError
from holdfast.model.group_errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

# -- SyncGroup -------------------------------------------------------------------------------------------------


def joined(world: Any, count: int, **fields: Any) -> list[str]:
    """Members of a group that waits for its leader's assignment."""
    members: list[str] = world.stable(count, **fields)
    answers = [world.join(m, strategies={"range": b"again"}, **fields) for m in members]
    assert all(a.value.error is None for a in answers)
    return members


def test_followers_wait_for_the_leaders_word(world: Any) -> None:
    first, second = joined(world, 2)
    generation = world.group().generation
    waiting = world.sync(second, generation)
    assert not waiting.came
    own = world.sync(first, generation, {first: b"1", second: b"2"})
    assert (own.value.assignment, waiting.value.assignment) == (b"1", b"2")
    assert (own.value.protocol_type, own.value.protocol_name) == ("consumer", "range")
    assert world.sync(second, generation).value.assignment == b"2"


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment(world: Any) -> None:
    first, second = joined(world, 2)
    generation = world.group().generation
    waiting = world.sync(second, generation)
    world.sync(first, generation, {first: b"1", "stranger": b"x"})
    assert waiting.value.error is None
    assert waiting.value.assignment == b""


def test_an_assignment_is_told_once_it_is_written(world: Any) -> None:
    first, second = joined(world, 2)
    generation = world.group().generation
    world.log.hold()
    own = world.sync(first, generation, {first: b"1", second: b"2"})
    repeated = world.sync(first, generation, {first: b"changed", second: b"2"})
    assert isinstance(own.value.error, RebalanceInProgressError)  # its connection is gone
    assert not repeated.came
    assert world.log.held == 1
    world.log.complete()
    assert repeated.value.assignment == b"1"


def test_an_assignment_that_cannot_be_written_starts_again(world: Any) -> None:
    first, second = joined(world, 2)
    generation = world.group().generation
    waiting = world.sync(second, generation)
    world.log.fail_with = NotEnoughReplicasError()
    own = world.sync(first, generation, {first: b"1", second: b"2"})
    assert isinstance(own.value.error, CoordinatorNotAvailableError)
    assert isinstance(waiting.value.error, CoordinatorNotAvailableError)
    assert world.group().state is GroupState.PREPARING_REBALANCE


def test_an_assignment_overtaken_by_a_newcomer_is_not_told(world: Any) -> None:
    first, second = joined(world, 2)
    generation = world.group().generation
    waiting = world.sync(second, generation)
    world.log.hold()
    own = world.sync(first, generation, {first: b"1", second: b"2"})
    world.join_new()
    for answer in (waiting, own):
        assert isinstance(answer.value.error, RebalanceInProgressError)
    world.log.complete()
    assert world.group().state is GroupState.PREPARING_REBALANCE


def test_sync_refusals(world: Any) -> None:
    first, _ = joined(world, 2)
    generation = world.group().generation
    assert isinstance(world.sync(first, generation, group_id="no").value.error, UnknownMemberIdError)
    assert isinstance(world.sync("who", generation).value.error, UnknownMemberIdError)
    assert isinstance(world.sync(first, 1).value.error, IllegalGenerationError)
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "other"}):
        error = world.sync(first, generation, **wrong).value.error
        assert isinstance(error, InconsistentGroupProtocolError)
    world.join_new()
    assert isinstance(world.sync(first, generation).value.error, RebalanceInProgressError)


def test_who_does_not_sync_in_time_is_out(world: Any) -> None:
    first, second, third = joined(world, 3, session_timeout_ms=200_000)
    generation = world.group().generation
    waiting = world.sync(second, generation)
    world.pass_ms(30_000)
    assert isinstance(waiting.value.error, RebalanceInProgressError)
    assert set(world.group().members) == {second}
    again = world.join(second, session_timeout_ms=200_000)
    assert again.value.leader == second
    assert isinstance(world.heartbeat(first, generation), UnknownMemberIdError)
    assert isinstance(world.heartbeat(third, generation), UnknownMemberIdError)


def test_a_follower_that_never_syncs_is_out_although_the_leader_assigned(world: Any) -> None:
    first, second = joined(world, 2, session_timeout_ms=200_000)
    world.sync(first, world.group().generation, {first: b"1"})
    assert world.group().state is GroupState.STABLE
    world.pass_ms(30_000)
    assert second not in world.group().members


def test_nobody_is_out_when_all_have_synced(world: Any) -> None:
    members = world.stable(2, session_timeout_ms=200_000)
    world.pass_ms(100_000)
    assert list(world.group().members) == members


def test_a_leader_that_dies_before_assigning_is_replaced(world: Any) -> None:
    first, second = joined(world, 2)
    waiting = world.sync(second, world.group().generation)
    world.pass_ms(10_000)
    assert isinstance(waiting.value.error, RebalanceInProgressError)
    assert world.join(second).value.leader == second
    assert first not in world.group().members


# -- Heartbeat -------------------------------------------------------------------------------------------------


def test_heartbeats_keep_a_session(world: Any) -> None:
    [member] = world.stable()
    for _ in range(5):
        world.pass_ms(9_000)
        assert world.heartbeat(member, 1) is None
    world.pass_ms(10_000)
    assert isinstance(world.heartbeat(member, 1), UnknownMemberIdError)


def test_heartbeat_refusals(world: Any) -> None:
    [member] = world.stable()
    assert isinstance(world.heartbeat(member, 1, group_id="no"), UnknownMemberIdError)
    assert isinstance(world.heartbeat("who", 1), UnknownMemberIdError)
    assert isinstance(world.heartbeat(member, 2), IllegalGenerationError)
    given = world.join().value.member_id
    assert isinstance(world.heartbeat(given, 1), UnknownMemberIdError)


def test_a_member_may_beat_before_it_syncs(world: Any) -> None:
    member = world.join_new().value.member_id
    assert world.heartbeat(member, 1) is None


# -- LeaveGroup ------------------------------------------------------------------------------------------------


def test_leaving_shares_out_anew(world: Any) -> None:
    first, second = world.stable(2)
    assert world.leave(first).members[0].error is None
    assert isinstance(world.heartbeat(second, world.group().generation), RebalanceInProgressError)
    assert world.join(second).value.leader == second


def test_leaving_ends_the_join_phase_if_all_others_are_there(world: Any) -> None:
    first, second = world.stable(2)
    again = world.join(first)
    world.leave(second)
    assert again.value.generation == 3


def test_leaving_refusals(world: Any) -> None:
    first, _ = world.stable(2)
    given = world.join().value.member_id
    assert isinstance(world.leave("m", group_id="no").error, UnknownMemberIdError)
    result = world.leave("who", first, given, None)
    assert [type(m.error) for m in result.members] == [
        UnknownMemberIdError,
        type(None),
        type(None),
        UnknownMemberIdError,
    ]


def test_who_leaves_while_it_waits_is_answered(world: Any) -> None:
    first, second = world.stable(2)
    joining = world.join(first)
    world.leave(first)
    assert isinstance(joining.value.error, UnknownMemberIdError)
    world.join(second)
    assert list(world.group().members) == [second]


def test_an_id_given_out_may_leave_without_a_trace(world: Any) -> None:
    given = world.join().value.member_id
    assert world.leave(given).members[0].error is None
    assert world.group().state is GroupState.EMPTY
    assert isinstance(world.join(given).value.error, UnknownMemberIdError)


# -- static members --------------------------------------------------------------------------------------------


def test_a_static_member_needs_no_second_join(world: Any) -> None:
    result = world.join(instance_id="i").value
    assert (result.error, result.member_id) == (None, "i-1")
    assert result.members[0].instance_id == "i"


def test_a_static_member_comes_back_without_a_rebalance(world: Any) -> None:
    leader, follower = world.stable(2, instances=True)
    generation = world.group().generation
    back = world.join(instance_id="i1").value
    assert back.error is None
    assert back.member_id not in (leader, follower)
    assert (back.generation, back.leader, back.skip_assignment) == (generation, leader, False)
    assert isinstance(world.heartbeat(follower, generation, instance_id="i1"), FencedInstanceIdError)
    assert isinstance(world.heartbeat(follower, generation), UnknownMemberIdError)
    assert world.heartbeat(back.member_id, generation, instance_id="i1") is None
    own = world.sync(back.member_id, generation, instance_id="i1").value
    assert own.assignment == f"for {follower}".encode()
    assert world.group().state is GroupState.STABLE


def test_a_static_leader_that_comes_back_is_told_to_leave_the_assignment(world: Any) -> None:
    leader, _ = world.stable(2, instances=True)
    back = world.join(instance_id="i0").value
    assert back.skip_assignment
    assert back.leader == back.member_id != leader
    assert len(back.members) == 2


def test_an_old_static_leader_learns_its_old_name_as_leader(world: Any) -> None:
    leader, _ = world.stable(2, instances=True)
    back = world.join(instance_id="i0", version=7).value
    assert (back.leader, back.members, back.skip_assignment) == (leader, (), False)
    assert world.group().leader == back.member_id


def test_a_static_member_that_came_back_is_remembered_by_the_next_coordinator(world: Any) -> None:
    world.stable(2, instances=True)
    back = world.join(instance_id="i1").value.member_id
    other = world.again()
    assert other.group().static_members["i1"] == back
    assert other.heartbeat(back, other.group().generation, instance_id="i1") is None


def test_a_static_member_with_another_strategy_starts_a_rebalance(world: Any) -> None:
    both = {"range": b"r", "sticky": b"s"}
    leader, _ = world.stable(2, instances=True, strategies=both)
    assert not world.join(instance_id="i1", strategies={"sticky": b"s"}).came
    again = world.join(leader, instance_id="i0", strategies=both).value
    assert again.protocol_name == "sticky"


def test_a_static_member_that_comes_back_during_the_sync_starts_again(world: Any) -> None:
    first, second = world.stable(2, instances=True)
    world.join(first, instance_id="i0")
    world.join(second, instance_id="i1")
    waiting = world.sync(second, world.group().generation, instance_id="i1")
    back = world.join(instance_id="i1")
    assert isinstance(waiting.value.error, FencedInstanceIdError)
    assert not back.came
    world.join(first, instance_id="i0")
    assert back.value.error is None


def test_a_static_member_that_joins_twice_fences_its_first_join(world: Any) -> None:
    world.stable(2, instances=True)
    world.join(instance_id="i2")
    first = world.join(instance_id="i3")
    second = world.join(instance_id="i3")
    assert isinstance(first.value.error, FencedInstanceIdError)
    assert not second.came


@pytest.mark.parametrize("kept", [False, True])
def test_a_return_that_cannot_be_written_is_taken_back(world: Any, kept: bool) -> None:
    _, follower = world.stable(2, instances=True)
    world.log.keep_failed = kept
    world.log.fail_with = RequestTimedOutError() if kept else NotEnoughReplicasError()
    refused = world.join(instance_id="i1").value
    assert isinstance(refused.error, CoordinatorNotAvailableError)
    world.log.fail_with = None
    alive = world.group().static_members["i1"]
    assert (alive == follower) is not kept
    assert world.heartbeat(alive, world.group().generation, instance_id="i1") is None


def test_a_return_is_answered_by_the_rebalance_that_overtakes_it(world: Any) -> None:
    leader, _ = world.stable(2, instances=True)
    world.log.hold()
    back = world.join(instance_id="i1")
    assert not back.came
    world.join(leader, instance_id="i0", strategies={"range": b"changed"})
    world.log.complete()
    assert back.value.generation == world.group().generation


def test_static_members_keep_their_place_without_joining_again(world: Any) -> None:
    leader, follower = world.stable(2, instances=True, session_timeout_ms=100_000)
    third = world.join(instance_id="i2", session_timeout_ms=100_000)
    world.pass_ms(30_000)
    assert third.value.error is None
    assert set(world.group().members) == {leader, follower, third.value.member_id}
    assert third.value.leader == third.value.member_id  # the leader of before is not here to assign


def test_a_rebalance_of_absent_static_members_waits_for_them(world: Any) -> None:
    leader, follower = world.stable(2, instances=True, session_timeout_ms=100_000)
    world.leave(leader)
    world.pass_ms(40_000)
    assert list(world.group().members) == [follower]
    assert world.group().state is GroupState.PREPARING_REBALANCE
    assert world.join(follower, instance_id="i1").value.error is None


def test_an_operator_sends_a_static_member_away_by_its_instance(world: Any) -> None:
    first, _ = world.stable(2, instances=True)
    assert world.leave(None, instance_id="i1").members[0].error is None
    assert isinstance(world.leave(None, instance_id="i1").members[0].error, UnknownMemberIdError)
    assert isinstance(world.leave("other", instance_id="i0").members[0].error, FencedInstanceIdError)
    assert list(world.group().members) == [first]


def test_an_unknown_instance_is_an_unknown_member(world: Any) -> None:
    [member] = world.stable()
    assert isinstance(world.heartbeat(member, 1, instance_id="i9"), UnknownMemberIdError)
    assert isinstance(world.join(member, instance_id="i9").value.error, UnknownMemberIdError)
