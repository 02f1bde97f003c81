"""JoinGroup: who gets in, when the join phase ends, who leads."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.groups.states import GroupState
from holdfast.model.errors import (
    InvalidCommitOffsetSizeError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    RequestTimedOutError,
    UnknownServerError,
)
from holdfast.model.group_errors import (
    CoordinatorNotAvailableError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


def test_a_member_without_id_is_given_one_and_has_to_come_back(world: Any) -> None:
    asked = world.join().value
    assert isinstance(asked.error, MemberIdRequiredError)
    assert asked.member_id == "c-1"
    assert asked.generation is None
    joined = world.join(asked.member_id).value
    assert joined.error is None
    assert (joined.member_id, joined.leader, joined.generation) == ("c-1", "c-1", 1)
    assert [m.member_id for m in joined.members] == ["c-1"]


def test_old_clients_join_without_coming_back(world: Any) -> None:
    assert world.join(version=3).value.error is None


def test_a_given_id_that_is_not_used_within_a_session_is_forgotten(world: Any) -> None:
    given = world.join().value.member_id
    world.pass_ms(10_000)
    assert isinstance(world.join(given).value.error, UnknownMemberIdError)


def test_session_timeouts_have_limits(world: Any) -> None:
    for timeout_ms in (5_999, 1_800_001):
        result = world.join(session_timeout_ms=timeout_ms).value
        assert isinstance(result.error, InvalidSessionTimeoutError)
    assert world.group() is None


def test_texts_that_a_groups_record_cannot_hold_are_refused_at_the_door(world: Any) -> None:
    """Newer versions of JoinGroup carry longer ones. Found too late, they would stop a rebalance half way."""
    long = "ä" * 16_384
    assert isinstance(world.join(group_id=long).value.error, InvalidGroupIdError)
    assert isinstance(world.join(protocol_type=long).value.error, InvalidRequestError)
    assert isinstance(world.join(strategies={long: b""}).value.error, InvalidRequestError)
    assert isinstance(world.join(instance_id=long).value.error, InvalidRequestError)
    assert world.group() is None
    fits = "a" * 32_767
    assert world.join_new(strategies={fits: b""}, protocol_type=fits).value.error is None


def test_an_unknown_member_does_not_make_a_group(world: Any) -> None:
    result = world.join("who").value
    assert isinstance(result.error, UnknownMemberIdError)
    assert result.member_id == "who"
    assert world.group() is None


def test_a_group_needs_a_protocol(world: Any) -> None:
    assert isinstance(world.join(strategies={}).value.error, InconsistentGroupProtocolError)
    assert isinstance(world.join(protocol_type="").value.error, InconsistentGroupProtocolError)
    assert world.group() is None


def test_a_new_group_is_in_the_log_before_its_member_hears_of_it(world: Any) -> None:
    world.log.hold()
    asked = world.join()
    assert not asked.came
    world.log.complete()
    assert isinstance(asked.value.error, MemberIdRequiredError)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (NotEnoughReplicasError(), CoordinatorNotAvailableError),
        (MessageTooLargeError(), InvalidCommitOffsetSizeError),
        (RequestTimedOutError(), CoordinatorNotAvailableError),
        (ValueError, UnknownServerError),
    ],
)
def test_a_group_that_cannot_be_written_is_not_made(world: Any, failure: Any, told: type) -> None:
    world.log.fail_with = UnknownServerError() if failure is ValueError else failure
    assert isinstance(world.join().value.error, told)
    # What timed out is in the log, so it stays.
    assert (world.group() is None) == (not isinstance(failure, RequestTimedOutError))
    world.log.fail_with = None
    assert world.join_new().value.error is None


def test_the_first_members_are_waited_for(world: Any) -> None:
    world = type(world)(initial_rebalance_delay_ms=3_000)
    first = world.join_new()
    world.pass_ms(2_999)
    assert not first.came
    world.pass_ms(1)
    assert first.value.generation == 1


def test_newcomers_extend_the_wait_up_to_the_rebalance_timeout(world: Any) -> None:
    world = type(world)(initial_rebalance_delay_ms=3_000)
    answers = [world.join_new(rebalance_timeout_ms=7_000)]
    for _ in range(3):
        world.pass_ms(2_000)
        answers.append(world.join_new(rebalance_timeout_ms=7_000))
    world.pass_ms(999)
    assert not any(a.came for a in answers)
    world.pass_ms(1)  # 3 s, then 3 s more, then the last 1 s of the rebalance timeout
    assert {a.value.generation for a in answers} == {1}
    leaders = [a.value for a in answers if a.value.members]
    assert len(leaders) == 1
    assert len(leaders[0].members) == 4
    assert leaders[0].leader == leaders[0].member_id == answers[0].value.member_id


def test_a_second_member_makes_the_first_join_again(world: Any) -> None:
    [first] = world.stable()
    second = world.join_new()
    assert not second.came
    assert isinstance(world.heartbeat(first, 1), RebalanceInProgressError)
    again = world.join(first)
    assert again.value.generation == second.value.generation == 2
    assert again.value.leader == first
    assert second.value.members == ()
    assert {m.member_id for m in again.value.members} == {first, second.value.member_id}


def test_who_does_not_join_again_in_time_is_out(world: Any) -> None:
    first, second = world.stable(2)
    third = world.join_new(session_timeout_ms=60_000)
    world.heartbeat(first, world.group().generation)
    again = world.join(second, session_timeout_ms=60_000)
    world.pass_ms(5_000)
    world.heartbeat(first, world.group().generation)
    world.pass_ms(5_000)
    for _ in range(4):
        world.heartbeat(first, world.group().generation)
        world.pass_ms(5_000)
    assert set(world.group().members) == {second, third.value.member_id}
    assert again.value.leader == second


def test_waiting_members_need_no_heartbeats(world: Any) -> None:
    first, second = world.stable(2, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    answer = world.join(first, strategies={"range": b"new"}, session_timeout_ms=6_000)
    for _ in range(10):
        world.pass_ms(4_000)
        world.heartbeat(second, world.group().generation)
    assert not answer.came
    world.join(second, session_timeout_ms=6_000)
    assert answer.value.error is None
    assert answer.value.generation == 3


def test_a_new_member_that_waits_too_long_is_let_go(world: Any) -> None:
    world = type(world)(new_member_join_timeout_ms=20_000)
    [first] = world.stable(rebalance_timeout_ms=600_000)
    second = world.join_new(rebalance_timeout_ms=600_000)
    for _ in range(4):
        world.pass_ms(5_000)
        world.heartbeat(first, 1)
    assert isinstance(second.value.error, UnknownMemberIdError)
    assert set(world.group().members) == {first}


def test_every_member_gone_leaves_an_empty_group(world: Any) -> None:
    world.stable(2)
    world.pass_ms(10_000)
    group = world.group()
    assert group.state is GroupState.EMPTY
    assert (group.generation, group.leader, group.protocol_name) == (3, None, None)
    assert world.join_new().value.generation == 4


def test_the_strategy_with_most_votes_that_all_speak_wins(world: Any) -> None:
    world = type(world)(initial_rebalance_delay_ms=100)
    spoken = ({"a": b"", "b": b"", "c": b""}, {"c": b"", "b": b""}, {"c": b"", "a": b"", "b": b""})
    answers = [world.join_new(strategies=s) for s in spoken]
    world.pass_ms(30_000)
    assert {a.value.protocol_name for a in answers} == {"c"}


def test_who_speaks_nothing_in_common_is_refused(world: Any) -> None:
    world.stable(strategies={"a": b"", "b": b""})
    assert isinstance(world.join(strategies={"c": b""}).value.error, InconsistentGroupProtocolError)
    refused = world.join(strategies={"a": b""}, protocol_type="connect").value
    assert isinstance(refused.error, InconsistentGroupProtocolError)
    assert isinstance(world.join(strategies={"b": b""}).value.error, MemberIdRequiredError)


def test_joining_again_unchanged_in_a_stable_group_changes_nothing(world: Any) -> None:
    first, second = world.stable(2)
    generation = world.group().generation
    again = world.join(second).value
    assert (again.generation, again.leader, again.members) == (generation, first, ())
    assert world.group().state is GroupState.STABLE


def test_a_leader_that_joins_again_starts_a_rebalance(world: Any) -> None:
    first, second = world.stable(2)
    again = world.join(first)
    assert not again.came
    world.join(second)
    assert again.value.generation == 3


def test_new_metadata_starts_a_rebalance(world: Any) -> None:
    _, second = world.stable(2)
    assert not world.join(second, strategies={"range": b"other"}).came
    assert world.group().state is GroupState.PREPARING_REBALANCE


def test_a_lost_answer_is_given_again_before_the_sync(world: Any) -> None:
    first = world.join_new().value
    again = world.join(first.member_id).value
    assert again == first
    assert world.group().state is GroupState.COMPLETING_REBALANCE
    changed = world.join(first.member_id, strategies={"range": b"other"}).value
    assert changed.generation == 2


def test_the_older_of_two_joins_of_one_member_is_answered_too(world: Any) -> None:
    first, second = world.stable(2)
    old = world.join(first)
    new = world.join(first)
    assert isinstance(old.value.error, RebalanceInProgressError)
    world.join(second)
    assert new.value.error is None


def test_a_full_group_takes_no_more(world: Any) -> None:
    world = type(world)(max_size=2)
    first, second = world.stable(2)
    refused = world.join().value
    assert isinstance(refused.error, GroupMaxSizeReachedError)
    assert refused.member_id == ""
    assert world.join(second).value.error is None  # members stay members
    world.join(first)
    world.join(second)
    assert isinstance(world.join(version=3).value.error, GroupMaxSizeReachedError)


def test_a_rebalance_takes_the_first_that_come_up_to_the_limit(world: Any) -> None:
    world = type(world)(initial_rebalance_delay_ms=1_000, max_size=2)
    ids = [world.join().value.member_id for _ in range(3)]
    answers = [world.join(i) for i in ids]
    assert isinstance(answers[2].value.error, GroupMaxSizeReachedError)
    world.pass_ms(2_000)
    assert [a.value.error for a in answers[:2]] == [None, None]


def test_a_pending_id_holds_a_rebalance_until_it_comes_or_expires(world: Any) -> None:
    [first] = world.stable()
    world.join(session_timeout_ms=6_000)
    second = world.join_new()
    again = world.join(first)
    assert not again.came
    world.pass_ms(6_000)
    assert again.value.generation == second.value.generation == 2
