"""OffsetCommit, OffsetFetch, OffsetDelete, expiry, DeleteGroups."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.groups.offset_records import OffsetKey, decode_key
from holdfast.groups.states import GroupState
from holdfast.groups.types import OffsetAndMetadata, OffsetDeleteResult, OffsetToCommit
from holdfast.model.errors import (
    HoldfastError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
)
from holdfast.model.group_errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from holdfast.model.types import TopicPartition

TP = TopicPartition("t", 0)
OTHER = TopicPartition("other", 1)
DAY_MS = 24 * 3_600_000
SUBSCRIBES_TO_T = bytes.fromhex("0001 00000001 0001 74 ffffffff".replace(" ", ""))


def delete(world: Any, *tps: TopicPartition, group_id: str = "g") -> OffsetDeleteResult:
    answers: list[OffsetDeleteResult] = []
    world.coordinator.delete_offsets(group_id, tps, world.now_ms, answers.append)
    return answers[0]


def delete_group(world: Any, group_id: str = "g") -> HoldfastError | None:
    answers: list[HoldfastError | None] = []
    world.coordinator.delete_group(group_id, world.now_ms, answers.append)
    return answers[0]


# -- commit and fetch ------------------------------------------------------------------------------------------


def test_a_commit_is_seen_when_it_is_written(world: Any) -> None:
    world.log.hold()
    answer = world.commit(5)
    assert not answer.came
    assert world.committed() is None
    world.log.complete()
    assert answer.value == {TP: None}
    assert world.committed() == 5


def test_section_3_10_metadata_comes_back(world: Any) -> None:
    world.commit(5, metadata="where I was: ünïcode")
    found = world.coordinator.fetch_offsets("g", None, world.now_ms)
    assert found.offsets == {TP: OffsetAndMetadata(5, None, "where I was: ünïcode", world.now_ms)}


def test_what_is_not_committed_is_none(world: Any) -> None:
    assert world.committed(group_id="no") is None
    world.commit()
    assert world.committed(OTHER) is None


@pytest.mark.parametrize(
    ("failure", "told", "kept"),
    [
        (NotEnoughReplicasError(), CoordinatorNotAvailableError, False),
        (NotEnoughReplicasAfterAppendError(), CoordinatorNotAvailableError, True),
        (NotLeaderOrFollowerError(), NotCoordinatorError, False),
    ],
)
def test_a_commit_that_failed_is_seen_only_if_the_log_has_it(
    world: Any, failure: HoldfastError, told: type, kept: bool
) -> None:
    world.log.fail_with, world.log.keep_failed = failure, kept
    assert isinstance(world.commit(5).value[TP], told)
    assert world.committed() == (5 if kept else None)
    assert (world.group() is not None) is kept
    assert world.again().committed() == world.committed()


def test_metadata_has_a_limit(world: Any) -> None:
    assert world.commit(metadata="x" * 4096).value == {TP: None}
    assert isinstance(world.commit(metadata="x" * 4097).value[TP], OffsetMetadataTooLargeError)


def test_one_partition_too_large_does_not_stop_the_others(world: Any) -> None:
    from holdfast.groups.types import CommitRequest

    answers: list[Any] = []
    offsets = (OffsetToCommit(TP, 1, None, "x" * 5000), OffsetToCommit(OTHER, 2))
    world.coordinator.commit(CommitRequest(group_id="g", offsets=offsets), world.now_ms, answers.append)
    assert isinstance(answers[0][TP], OffsetMetadataTooLargeError)
    assert answers[0][OTHER] is None
    assert (world.committed(), world.committed(OTHER)) == (None, 2)


def test_members_commit_in_their_generation(world: Any) -> None:
    [member] = world.stable()
    assert world.commit(member_id=member, generation=1).value == {TP: None}
    assert isinstance(world.commit(member_id=member, generation=2).value[TP], IllegalGenerationError)
    assert isinstance(world.commit(member_id="who", generation=1).value[TP], UnknownMemberIdError)
    assert isinstance(world.commit().value[TP], UnknownMemberIdError)
    assert isinstance(world.commit(generation=1).value[TP], UnknownMemberIdError)


def test_a_commit_while_the_others_join_is_good_and_before_the_assignment_is_not(world: Any) -> None:
    [member] = world.stable()
    world.join_new()
    assert world.commit(9, member_id=member, generation=1).value == {TP: None}
    world.join(member)
    assert isinstance(world.commit(member_id=member, generation=1).value[TP], IllegalGenerationError)
    assert isinstance(world.commit(member_id=member, generation=2).value[TP], RebalanceInProgressError)
    assert world.committed() == 9


def test_a_commit_counts_as_a_heartbeat(world: Any) -> None:
    [member] = world.stable()
    for _ in range(3):
        world.pass_ms(9_000)
        world.commit(member_id=member, generation=1)
    assert list(world.group().members) == [member]


def test_a_generation_of_an_unknown_group_is_refused_in_the_words_of_the_version(world: Any) -> None:
    assert isinstance(world.commit(generation=1, member_id="m").value[TP], GroupIdNotFoundError)
    old = world.commit(generation=1, member_id="m", knows_group_not_found=False)
    assert isinstance(old.value[TP], IllegalGenerationError)


def test_a_simple_consumer_commits_to_an_empty_group_of_its_own(world: Any) -> None:
    world.commit(3)
    group = world.group()
    assert group.state is GroupState.EMPTY
    assert group.protocol_type is None
    world.stable()
    assert world.committed() == 3


# -- OffsetDelete ----------------------------------------------------------------------------------------------


def test_offsets_of_a_live_subscription_cannot_be_deleted(world: Any) -> None:
    [member] = world.stable(strategies={"range": SUBSCRIBES_TO_T})
    world.commit(1, member_id=member, generation=1)
    world.commit(2, tp=OTHER, member_id=member, generation=1)
    result = delete(world, TP, OTHER)
    assert isinstance(result.partitions[TP], GroupSubscribedToTopicError)
    assert result.partitions[OTHER] is None
    assert (world.committed(), world.committed(OTHER)) == (1, None)
    assert world.again().committed(OTHER) is None


def test_deleting_offsets_refusals(world: Any) -> None:
    assert isinstance(delete(world, TP).error, GroupIdNotFoundError)
    world.stable(protocol_type="connect")
    assert isinstance(delete(world, TP).error, NonEmptyGroupError)


def test_deleting_what_is_not_there_is_fine(world: Any) -> None:
    world.commit()
    assert delete(world, OTHER) == OffsetDeleteResult(partitions={OTHER: None})


def test_a_delete_that_cannot_be_written_keeps_the_offset(world: Any) -> None:
    world.commit(4)
    world.log.fail_with = NotEnoughReplicasError()
    assert isinstance(delete(world, TP).partitions[TP], CoordinatorNotAvailableError)
    assert world.committed() == 4


def test_offsets_of_deleted_topics_go(world: Any) -> None:
    world.commit(1)
    world.commit(2, tp=OTHER)
    world.coordinator.on_topics_deleted(["t", "unheard of"], world.now_ms)
    assert (world.committed(), world.committed(OTHER)) == (None, 2)
    assert world.again().committed() is None


# -- DeleteGroups ----------------------------------------------------------------------------------------------


def test_only_empty_groups_can_be_deleted(world: Any) -> None:
    assert isinstance(delete_group(world), GroupIdNotFoundError)
    [member] = world.stable()
    world.commit(member_id=member, generation=1)
    assert isinstance(delete_group(world), NonEmptyGroupError)
    world.leave(member)
    assert delete_group(world) is None
    assert world.group() is None
    assert world.again().group() is None


def test_a_group_that_is_being_deleted_is_not_there_for_anybody(world: Any) -> None:
    given = world.join().value.member_id
    world.commit(1)
    world.log.hold()
    late = world.commit(2, tp=OTHER)
    answers: list[Any] = []
    world.coordinator.delete_group("g", world.now_ms, answers.append)
    assert isinstance(world.join().value.error, CoordinatorNotAvailableError)
    assert isinstance(world.join(given).value.error, CoordinatorNotAvailableError)
    assert isinstance(world.sync(given, 1).value.error, CoordinatorNotAvailableError)
    assert isinstance(world.heartbeat(given, 1), CoordinatorNotAvailableError)
    assert isinstance(world.leave(given).error, CoordinatorNotAvailableError)
    assert isinstance(world.commit().value[TP], CoordinatorNotAvailableError)
    assert isinstance(delete(world, TP).error, GroupIdNotFoundError)
    assert isinstance(delete_group(world), GroupIdNotFoundError)
    assert world.coordinator.describe_group("g", world.now_ms).state == "Dead"
    world.pass_ms(20_000)
    world.log.complete()
    assert answers == [None]
    assert late.value == {OTHER: None}
    assert world.group() is None
    assert world.again().group() is None


def test_a_deletion_that_cannot_be_written_did_not_happen(world: Any) -> None:
    world.commit(1)
    world.log.fail_with = NotEnoughReplicasError()
    assert isinstance(delete_group(world), CoordinatorNotAvailableError)
    world.log.fail_with = None
    assert world.committed() == 1
    assert isinstance(world.join().value.error, MemberIdRequiredError)


def test_tombstones_of_a_large_group_come_in_several_batches(world: Any) -> None:
    world = type(world)(max_batch_bytes=1_000)
    for partition in range(100):
        world.commit(1, tp=TopicPartition("t", partition))
    before = len(world.log.batches)
    assert delete_group(world) is None
    assert 3 < len(world.log.batches) - before < 20
    assert world.again().group() is None


def test_a_deletion_of_which_a_part_failed_is_answered_with_the_failure(world: Any) -> None:
    world = type(world)(max_batch_bytes=100)
    for partition in range(6):
        world.commit(1, tp=TopicPartition("t", partition))
    world.log.hold()
    answers: list[Any] = []
    world.coordinator.delete_group("g", world.now_ms, answers.append)
    world.log.complete(1)
    world.log.fail_with = NotEnoughReplicasAfterAppendError()
    world.log.complete(1)
    world.log.fail_with = NotEnoughReplicasError()
    world.log.complete(1)
    world.log.fail_with = None
    assert answers == []
    world.log.complete()
    assert isinstance(answers[0], CoordinatorNotAvailableError)
    assert world.group() is not None


# -- expiry ----------------------------------------------------------------------------------------------------


def test_offsets_of_a_simple_consumer_expire_after_their_commit(world: Any) -> None:
    world.commit(1)
    world.pass_ms(4 * DAY_MS)
    world.commit(2, tp=OTHER)
    world.pass_ms(3 * DAY_MS + 600_000)
    assert (world.committed(), world.committed(OTHER)) == (None, 2)
    world.pass_ms(4 * DAY_MS)
    assert world.group() is None
    assert world.again().group() is None


def test_offsets_of_a_group_expire_after_it_became_empty(world: Any) -> None:
    [member] = world.stable()
    world.commit(1, member_id=member, generation=1)
    world.pass_ms(5_000)
    world.leave(member)
    world.pass_ms(7 * DAY_MS - 600_000)
    assert world.committed() == 1
    world.pass_ms(1_200_000)
    assert world.group() is None
    assert world.again().group() is None


def test_a_live_group_keeps_offsets_of_its_topics_only(world: Any) -> None:
    [member] = world.stable(strategies={"range": SUBSCRIBES_TO_T}, session_timeout_ms=1_800_000)
    world.commit(1, member_id=member, generation=1)
    world.commit(2, tp=OTHER, member_id=member, generation=1)
    for _ in range(8 * 24 * 3):
        world.pass_ms(20 * 60_000)
        world.heartbeat(member, 1)
    assert (world.committed(), world.committed(OTHER)) == (1, None)


@pytest.mark.parametrize("fields", [{"protocol_type": "connect"}, {"strategies": {"range": b"?"}}])
def test_a_live_group_that_cannot_be_read_keeps_all(world: Any, fields: dict[str, Any]) -> None:
    [member] = world.stable(session_timeout_ms=1_800_000, **fields)
    world.commit(1, member_id=member, generation=1)
    for _ in range(8 * 24 * 3):
        world.pass_ms(20 * 60_000)
        world.heartbeat(member, 1)
    assert world.committed() == 1


def test_old_clients_say_how_long_a_commit_lives(world: Any) -> None:
    world.commit(1, retention_ms=DAY_MS)
    world.commit(2, tp=OTHER)
    world.pass_ms(DAY_MS - 1)
    assert world.committed() == 1
    world.pass_ms(600_001)
    assert (world.committed(), world.committed(OTHER)) == (None, 2)


def test_nothing_expires_under_a_commit_that_is_being_written(world: Any) -> None:
    world.commit(1)
    world.commit(1, tp=OTHER)
    world.log.hold()
    world.pass_ms(7 * DAY_MS - 1_000)
    world.commit(2)
    world.pass_ms(700_000)
    world.log.complete()
    assert world.committed() == 2


def test_an_empty_group_with_an_id_given_out_is_not_removed(world: Any) -> None:
    world = type(world)(offsets_check_interval_ms=1_000)
    given = world.join().value.member_id
    world.pass_ms(5_000)
    assert world.join(given).value.error is None


def test_tombstones_have_the_keys_of_what_they_end(world: Any) -> None:
    world.commit(1)
    delete(world, TP)
    last = world.log.records()[-1]
    assert last.value is None
    assert decode_key(last.key) == OffsetKey("g", TP)
