"""Offsets within transactions: what is served is what the log says, whatever was written in which order."""

import random
from typing import Any

import pytest

from holdfast.groups.coordinator import GroupCoordinator
from holdfast.groups.newest import NewestOfGroups
from holdfast.groups.replay import Replay
from holdfast.groups.types import CommitRequest, CommitResult, OffsetsTransaction, OffsetToCommit
from holdfast.model.errors import InvalidRequestError, UnstableOffsetCommitError
from holdfast.model.group_errors import CoordinatorLoadInProgressError, InvalidGroupIdError
from holdfast.model.types import TopicPartition
from holdfast.protocol.error_codes import code_of
from tests.unit.groups.conftest import Answer, World
from tests.unit.groups.test_handlers import Wire

GROUPS = ("g", "h")
PRODUCERS = (7, 8, 9)


def within(world: World, producer: int, offset: int, *, group: str = "g", partition: int = 0) -> CommitResult:
    answer: Answer[CommitResult] = Answer()
    offsets = (OffsetToCommit(TopicPartition("t", partition), offset, None, ""),)
    transaction = OffsetsTransaction("tx", producer, 0, 3)
    world.coordinator.commit_within(
        CommitRequest(group_id=group, offsets=offsets, transaction=transaction), world.now_ms, answer
    )
    return answer.value


def end(world: World, producer: int, commit: bool) -> None:
    for partition in range(world.settings.offsets_partitions):
        world.log.mark(partition, producer, commit=commit)
        world.coordinator.complete_transaction(partition, producer, commit)


def stand(coordinator: GroupCoordinator) -> dict[str, object]:
    return {
        group.group_id: (group.offsets, {tp: list(waiting.items()) for tp, waiting in group.in_transactions.items()})
        for shard in coordinator._shards.active()
        for group in shard.groups.values()
        if group.offsets or group.in_transactions
    }


@pytest.mark.parametrize("seed", range(30))
def test_what_is_served_is_what_the_log_says(world: World, seed: int) -> None:
    rng = random.Random(seed)
    for offset in range(120):
        group, partition, producer = rng.choice(GROUPS), rng.randrange(3), rng.choice(PRODUCERS)
        match rng.randrange(9):
            case 0 | 1 | 2 | 3:
                assert list(within(world, producer, offset, group=group, partition=partition).values()) == [None]
            case 4 | 5:
                world.commit(offset, tp=TopicPartition("t", partition), group_id=group)
            case 6 | 7:
                end(world, producer, rng.random() < 0.6)
            case _ if rng.random() < 0.5:
                world.coordinator.delete_group(group, world.now_ms, lambda _: None)
            case _:
                tp = TopicPartition("t", partition)
                world.coordinator.delete_offsets(group, [tp], world.now_ms, lambda _: None)
        assert stand(world.again().coordinator) == stand(world.coordinator)
    for producer in PRODUCERS:
        end(world, producer, commit=True)
    other = world.again()
    assert stand(other.coordinator) == stand(world.coordinator)
    assert not any(group.in_transactions for s in other.coordinator._shards.active() for group in s.groups.values())


@pytest.mark.parametrize("seed", range(5))
def test_what_another_process_found_is_the_same(world: World, seed: int) -> None:
    rng = random.Random(seed)
    for offset in range(60):
        within(world, rng.choice(PRODUCERS), offset, partition=rng.randrange(9))
        if not rng.randrange(6):
            end(world, rng.choice(PRODUCERS), commit=True)
        if not rng.randrange(5):
            world.commit(offset, tp=TopicPartition("t", rng.randrange(9)))
    data = b"".join(world.log.chunks(world.partition("g")))
    found, here, there = NewestOfGroups(), Replay(), Replay()
    found.feed(data)
    here.feed(data)
    there.take(found.pairs, {})
    for key, waiting in found.open.items():  # in as many pieces as there are keys
        there.take({}, {key: waiting})
    ours, theirs = here.groups()["g"], there.groups()["g"]
    assert (ours.offsets, ours.in_transactions) == (theirs.offsets, theirs.in_transactions)
    assert [list(w) for w in ours.in_transactions.values()] == [list(w) for w in theirs.in_transactions.values()]


def test_who_may_write_within_a_transaction(world: World) -> None:
    [member] = world.stable()
    wire = Wire(world)
    told = []
    cases: tuple[tuple[int, dict[str, Any]], ...] = (
        (0, {}),
        (2, {}),
        (3, {"generation_id": 1, "member_id": member}),
        (3, {"generation_id": 2, "member_id": member}),
        (3, {"generation_id": 1, "member_id": "nobody"}),
        (5, {"generation_id": -1, "member_id": ""}),
        (5, {"generation_id": 1, "member_id": member, "group_instance_id": "i"}),
    )
    for version, fields in cases:
        topics = [{"name": "t", "partitions": [{"partition_index": i, "committed_offset": 5} for i in (0, 9)]}]
        request = {"transactional_id": "tx", "group_id": "g", "producer_id": 7, "producer_epoch": 0, "topics": topics}
        [topic] = wire.ask(28, version, **{**request, **fields}).topics
        told.append([int(p.error_code.value) for p in topic.partitions])
    assert [first for first, _ in told] == [0, 0, 0, 22, 25, 0, 25]
    assert {second for _, second in told} == {3}
    assert world.committed() is None


def test_what_the_transaction_coordinator_calls_invalid_is_told_so(world: World) -> None:
    world.log.fail_with = InvalidRequestError("a transactional id of 0 characters")
    [error] = within(world, 7, 1).values()
    assert isinstance(error, InvalidRequestError)


def test_a_group_needs_a_name_and_old_producers_are_not_told_that_it_loads(world: World) -> None:
    [error] = within(world, 7, 1, group="").values()
    assert isinstance(error, InvalidGroupIdError)
    loading = World(lead=False)
    for partition in range(loading.settings.offsets_partitions):
        loading.coordinator.on_elected(partition, 1)
    [error] = within(loading, 7, 1).values()
    assert isinstance(error, CoordinatorLoadInProgressError)
    wire = Wire(loading)
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 5}]}]
    request = {"transactional_id": "tx", "group_id": "g", "producer_id": 7, "producer_epoch": 0, "topics": topics}
    codes = [wire.ask(28, v, **request).topics[0].partitions[0].error_code.value for v in (0, 1, 2, 5)]
    assert codes == [15, 15, 14, 14]


def test_unstable_offsets_are_told_to_who_asks_for_stable_ones(world: World) -> None:
    world.commit(3)
    within(world, 7, 5)
    wire = Wire(world)
    answers = {}
    for version in (7, 8, 9):
        for stable in (False, True):
            asked = {"name": "t", "partition_indexes": [0, 1]}
            body: dict[str, Any] = (
                {"group_id": "g", "topics": [asked], "require_stable": stable}
                if version < 8
                else {"groups": [{"group_id": "g", "topics": [asked]}], "require_stable": stable}
            )
            answer = wire.ask(9, version, **body)
            topics = answer.topics if version < 8 else answer.groups[0].topics
            answers[version, stable] = [
                (int(p.committed_offset), int(p.error_code.value)) for p in topics[0].partitions
            ]
    unstable = code_of(UnstableOffsetCommitError)
    assert {tuple(a) for (_, stable), a in answers.items() if stable} == {((-1, unstable), (-1, 0))}
    assert {tuple(a) for (_, stable), a in answers.items() if not stable} == {((3, 0), (-1, 0))}
    end(world, 7, commit=True)
    assert world.committed() == 5
