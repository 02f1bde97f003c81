"""Moves between log directories, step by step: names, refusals, cancelling, dead and hanging disks, crashes."""

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.broker.moves import PARALLEL, THROTTLE
from holdfast.model.config import LogConfig
from holdfast.model.errors import (
    HoldfastError,
    InvalidTopicError,
    KafkaStorageError,
    LogDirNotFoundError,
    OutOfOrderSequenceError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.types import TopicPartition
from holdfast.records.batch import iter_headers
from holdfast.records.record import Record, encode_batch
from holdfast.replication.throttle import ByteRate
from holdfast.replication.types import Role, StopReplica
from holdfast.storage.dir_scan import NameKind
from holdfast.storage.dir_state import DirNews
from holdfast.storage.future_log import PIECE_BATCHES, last_look, look
from holdfast.storage.move import HOLD_MS, LAST_PIECE_BYTES, PIECE_BYTES
from holdfast.storage.move_state import MoveState
from tests.property.machine import CONFIG, D0, D1, TP, Machine, batches_of, values_of
from tests.simulation.disk import CrashNow

D2 = "/disk2/d"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def made(*, records: int = 20, **options: Any) -> Machine:
    """A broker that leads a partition of one replica, with some records."""
    machine = Machine(7, **options)
    machine.start()
    machine.lead(is_new=True)
    machine.settle()
    for i in range(records):
        machine.produce(b"%03d" % i + b"v" * 200)
    machine.settle()
    assert machine.log.dir.path == D0
    assert len(machine.acked) == records
    return machine


def step_until(machine: Machine, condition: Any) -> None:
    for _ in range(5000):
        if condition():
            return
        if not machine.step():
            machine.tick()
    raise AssertionError(f"not reached: {machine.moves.describe()}")


def state_of(machine: Machine) -> str | None:
    return next((m.state for m in machine.moves.describe()), None)


def test_K113_01_a_wish_is_answered_at_once_and_carried_out_in_the_background() -> None:
    machine = made()
    before = batches_of(machine.log)
    machine.moves.alter(TP, D1)
    assert machine.log.dir.path == D0
    machine.finish()
    assert machine.log.dir.path == D1
    assert batches_of(machine.log) == before


def test_K113_02_the_copy_is_a_future_directory_and_takes_the_name_by_one_rename() -> None:
    machine = made()
    seen: list[list[str]] = []
    old = machine.log
    machine.moves.alter(TP, D1)

    def look() -> bool:
        names = machine.names(NameKind.FUTURE)
        if names and (not seen or seen[-1] != names):
            seen.append(names)
        assert len(machine.names(NameKind.REPLICA)) <= 2
        assert len(values_of(machine.log)) == 20  # reads never fail
        return not machine.moves.describe()

    step_until(machine, look)
    assert len(seen) == 1
    assert re.fullmatch(D1 + r"/t-0\.[0-9a-f]{32}-future", seen[0][0])
    machine.settle()
    assert machine.names(NameKind.REPLICA) == [f"{D1}/t-0"]
    (left,) = machine.names(NameKind.DELETED)
    assert re.fullmatch(D0 + r"/t-0\.[0-9a-f]{32}-delete", left)
    assert values_of(old), "the old log is read by who began before"
    machine.logs.upkeep.purge(machine.ms + CONFIG.file_delete_delay_ms)
    machine.settle()
    assert machine.names(NameKind.DELETED) == []


def test_K113_02_the_copy_is_on_the_device_before_it_has_the_name() -> None:
    machine = made()
    told: list[tuple[str, str]] = []
    machine.disks[1].fault = lambda operation, path: told.append((operation, path))
    machine.moves.alter(TP, D1)
    machine.finish()
    rename = next(i for i, (op, path) in enumerate(told) if op == "rename" and path.endswith("-future"))
    written = [i for i, (op, path) in enumerate(told[:rename]) if op == "write" and path.endswith(".log")]
    synced = [i for i, (op, path) in enumerate(told[:rename]) if op == "fsync" and path.endswith(".log")]
    assert synced[-1] > written[-1]
    assert any(op == "fsync" and path.endswith("partition.metadata") for op, path in told[:rename])
    assert told[rename + 1] == ("fsync_dir", D1)


@pytest.mark.parametrize(
    ("tp", "path", "error"),
    [
        (TP, "/nowhere", LogDirNotFoundError),
        (TP, "d", LogDirNotFoundError),
        (TopicPartition("n" * 249, 0), D1, InvalidTopicError),
        (TopicPartition("unknown", 0), D1, UnknownTopicOrPartitionError),
    ],
)
def test_C24_K113_03_each_refusal_is_kafkas(tp: TopicPartition, path: str, error: type[HoldfastError]) -> None:
    with pytest.raises(error):
        made().moves.alter(tp, path)


def test_K113_03_nothing_moves_to_from_or_beside_a_dead_disk() -> None:
    machine = made(disks=3)
    machine.dirs[1].mark_offline(KafkaStorageError("dead"))
    machine.settle()
    for path in (D1, D2):  # there may be a copy on the dead one
        with pytest.raises(KafkaStorageError, match="offline"):
            machine.moves.alter(TP, path)
    machine.moves.alter(TP, D0)  # it is there
    machine = made()
    machine.dirs[0].mark_offline(KafkaStorageError("dead"))
    machine.step()
    with pytest.raises(KafkaStorageError, match="offline"):
        machine.moves.alter(TP, D1)


def test_K113_03_a_wish_for_a_replica_that_is_not_here_is_remembered() -> None:
    machine = Machine(7)
    machine.start()
    with pytest.raises(ReplicaNotAvailableError):
        machine.moves.alter(TP, D1)
    machine.lead(is_new=True)
    machine.settle()
    assert machine.log.dir.path == D1


@pytest.mark.parametrize("tp", [TP, TopicPartition("unknown", 0)])
def test_C1_K1066_09_nothing_moves_to_a_cordoned_dir(tp: TopicPartition) -> None:
    machine = made()
    machine.dirs[1].cordoned = True
    with pytest.raises(KafkaStorageError, match="cordoned"):
        machine.moves.alter(tp, D1)
    assert all(machine.logs.standings.wish_of(each.topic_partition) is None for each in machine.logs.held)


def test_K1066_09_what_is_there_or_on_its_way_there_may_stay() -> None:
    machine = made(disks=3)
    machine.moves.alter(TP, D1)
    machine.dirs[0].cordoned = machine.dirs[1].cordoned = True
    machine.moves.alter(TP, D1)
    machine.finish()
    assert machine.log.dir.path == D1
    machine.moves.alter(TP, D2)
    machine.moves.alter(TP, D1)  # taken back
    machine.finish()
    assert machine.log.dir.path == D1


def test_K1066_04_a_wish_for_a_directory_that_was_cordoned_since_does_not_count() -> None:
    machine = Machine(7)
    machine.start()
    with pytest.raises(ReplicaNotAvailableError):
        machine.moves.alter(TP, D1)
    machine.dirs[1].cordoned = True
    machine.lead(is_new=True)
    machine.settle()
    assert machine.log.dir.path == D0


def test_K113_04_another_target_cancels_the_running_move() -> None:
    machine = made(disks=3)
    machine.moves.alter(TP, D1)
    step_until(machine, lambda: state_of(machine) == MoveState.COPYING.value)
    machine.moves.alter(TP, D2)
    machine.finish()
    assert machine.log.dir.path == D2
    assert machine.names(NameKind.FUTURE) == []
    assert machine.names(NameKind.REPLICA) == [f"{D2}/t-0"]
    assert len(values_of(machine.log)) == 20


def test_K113_04_the_current_dir_as_target_cancels_the_running_move() -> None:
    for steps in range(60):
        machine = made(records=5)
        machine.moves.alter(TP, D1)
        for _ in range(steps):
            machine.step()
        machine.moves.alter(TP, machine.log.dir.path)
        machine.finish()
        assert machine.names(NameKind.FUTURE) == []
        assert len(machine.names(NameKind.REPLICA)) == 1
        assert len(values_of(machine.log)) == 5


def test_K113_05_the_copy_is_shown_with_its_lag() -> None:
    machine = made(properties={THROTTLE: "1000"})
    machine.moves.alter(TP, D1)
    assert machine.moves.being_made(D1) == [TP]
    step_until(machine, lambda: 0 < machine.moves.lag_of(TP) < 20)
    shown = {d.path: d.replicas for d in machine.logs.describe()}
    assert [is_future for _, _, is_future in shown[D0]] == [False]
    ((tp, size, is_future),) = shown[D1]
    assert (tp, is_future, size) == (TP, True, next(iter(machine.logs.copies)).view.size)
    (status,) = machine.moves.describe()
    assert (status.from_path, status.to_path, status.lag) == (D0, D1, machine.moves.lag_of(TP))
    machine.finish()
    assert machine.moves.lag_of(TP) == -1


def test_K113_06_the_target_dies_and_the_replica_stays_where_it_is() -> None:
    machine = made()
    machine.moves.alter(TP, D1)
    step_until(machine, lambda: state_of(machine) == MoveState.COPYING.value)
    machine.disks[1].die()
    machine.dirs[1].mark_offline(KafkaStorageError("dead"))
    machine.produce(b"more")
    machine.finish()
    assert machine.log.dir.path == D0
    assert len(values_of(machine.log)) == 21
    assert machine.refused == []


def test_K113_06_the_source_dies_and_the_copy_goes_with_it() -> None:
    machine = made()
    machine.moves.alter(TP, D1)
    step_until(machine, lambda: state_of(machine) == MoveState.COPYING.value)
    machine.dirs[0].mark_offline(KafkaStorageError("dead"))
    machine.finish()
    assert machine.replicas.partitions[TP].role is Role.OFFLINE
    assert machine.names(NameKind.FUTURE) == []
    assert machine.names(NameKind.REPLICA) == []


def test_K113_06_a_target_that_fills_ends_the_move_and_gets_its_room_back() -> None:
    machine = made()
    used = machine.disks[1].used
    machine.moves.alter(TP, D1)
    step_until(machine, lambda: state_of(machine) == MoveState.COPYING.value)
    machine.disks[1].capacity = used + 2_000
    machine.produce(b"more")
    machine.finish()
    assert machine.log.dir.path == D0
    assert all(d.is_online for d in machine.dirs)
    assert machine.names(NameKind.FUTURE) == []
    assert machine.disks[1].used <= used + 100
    assert len(values_of(machine.log)) == 21
    with pytest.raises(KafkaStorageError, match="full"):
        machine.moves.alter(TP, D1)


def crash_at(machine: Machine, number: int) -> bool:
    """The process dies in that operation on either disk; whether it got there."""
    count = 0

    def fault(operation: str, path: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise CrashNow

    for disk in machine.disks:
        disk.fault = fault
    try:
        machine.finish()
    except CrashNow:
        return True
    finally:
        for disk in machine.disks:
            disk.fault = None
    return False


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_K113_07_killed_at_every_operation_of_a_move(power: bool) -> None:
    """One after the other, all of them: whatever is left, one replica comes out with everything."""
    number, resumed, finished = 0, 0, 0
    while True:
        number += 1
        machine = made(records=10)
        machine.log.flush()
        machine.logs.checkpoints.write_all({TP: 10})
        machine.settle()
        before = batches_of(machine.log)
        machine.moves.alter(TP, D1)
        crashed = crash_at(machine, number)
        machine.kill(power=power)
        machine.start()
        assert len(machine.names(NameKind.REPLICA)) == 1, number
        assert batches_of(machine.log) == before, number
        resumed += bool(machine.logs.copies.left())
        machine.lead()
        machine.moves.resume()
        machine.finish()
        assert machine.names(NameKind.FUTURE) == []
        assert batches_of(machine.log) == before, number
        finished += machine.log.dir.path == D1
        machine.kill()
        if not crashed:
            break
    assert number > 60
    assert resumed > 20
    assert finished > 20


def test_K113_07_where_the_log_begins_survives_a_crash_right_after_the_switch() -> None:
    machine = made()
    machine.log.append_as_leader(encode_batch([Record(i, machine.ms, b"k", b"v") for i in range(10)]), 1, machine.ms)
    machine.log.delete_records_before(23)  # in the middle of a batch: no file's name tells it
    machine.moves.alter(TP, D1)
    step_until(machine, lambda: machine.log.dir.path == D1)
    machine.kill()
    machine.start()
    assert machine.log.view.start_offset == 23
    assert machine.log.dir.path == D1


def abandoned() -> Machine:
    """After a crash in a move, and the disk with the replica is empty now."""
    machine = made()
    machine.moves.alter(TP, D1)
    step_until(machine, lambda: machine.moves.lag_of(TP) == 0)
    machine.kill()
    files = machine.disks[0].mount("operator")
    files.rmtree(f"{D0}/t-0")
    machine.disks[0].kill("operator")
    return machine


def test_K113_07_an_abandoned_copy_becomes_the_replica_if_the_controller_has_it_here() -> None:
    machine = abandoned()
    machine.start()
    machine.moves.resume()
    assert machine.logs.get(TP) is None
    machine.lead()
    machine.settle()
    assert machine.names(NameKind.REPLICA) == [f"{D1}/t-0"]
    assert machine.names(NameKind.FUTURE) == []
    assert len(values_of(machine.log)) == 20


def test_K113_07_an_abandoned_copy_goes_if_the_controller_has_it_elsewhere_or_anew() -> None:
    machine = abandoned()
    machine.start(hosted=False)
    machine.moves.resume()
    machine.settle()
    assert machine.names(NameKind.FUTURE) == []
    machine.kill()
    machine = abandoned()
    machine.start()
    machine.lead(is_new=True)
    machine.settle()
    assert machine.names(NameKind.FUTURE) == []
    assert values_of(machine.log) == {}


def test_K113_07_an_abandoned_copy_does_not_count_while_a_disk_is_away() -> None:
    machine = abandoned()
    machine.disks[0].die()
    machine.start()
    machine.moves.resume()
    machine.lead()
    machine.settle()
    assert machine.logs.get(TP) is None
    assert machine.names(NameKind.REPLICA) == []


def test_K113_08_the_throttle_holds_for_all_moves_together() -> None:
    throttle, now_ms, read = ByteRate(1_000_000), 0, 0
    while read < 2_000_000:
        delay_ms = throttle.wait_ms(now_ms)
        if delay_ms:
            now_ms += delay_ms
            continue
        assert throttle.piece_bytes == 100_000
        read += throttle.piece_bytes
        throttle.spent(throttle.piece_bytes, now_ms)
    assert 1_800 <= now_ms <= 2_100
    assert ByteRate(0).wait_ms(now_ms) == 1000


def test_F4_a_throttled_move_takes_its_time_and_the_throttle_may_change() -> None:
    machine = made(properties={THROTTLE: "1000"})
    size = machine.log.view.size
    machine.moves.alter(TP, D1)
    began_ms = machine.ms
    machine.finish()
    assert machine.log.dir.path == D1
    assert machine.ms - began_ms >= size  # a byte a millisecond, and the last piece is free
    machine.config = machine.config.with_dynamic(default={}, broker={THROTTLE: "100000000"})
    machine.moves.configured()
    machine.moves.alter(TP, D0)
    began_ms = machine.ms
    step_until(machine, lambda: machine.log.dir.path == D0)
    assert machine.ms - began_ms < 1000


def test_K113_08_copies_are_made_at_once_and_filled_so_many_at_a_time() -> None:
    machine = made(properties={PARALLEL: "1"})
    other = TopicPartition("t", 1)
    machine.lead(is_new=True, tp=other)
    machine.settle()
    at = {tp: machine.logs.dir_of(tp) for tp in (TP, other)}
    for tp, path in at.items():
        machine.moves.alter(tp, D1 if path == D0 else D0)
    most = 0

    def over() -> bool:
        nonlocal most
        states = [m.state for m in machine.moves.describe()]
        most = max(most, sum(s in ("copying", "syncing", "switching") for s in states))
        return not states

    step_until(machine, lambda: len(list(machine.logs.copies)) == 2)
    step_until(machine, over)
    assert most == 1
    assert {tp: machine.logs.dir_of(tp) for tp in at} == {tp: D1 if path == D0 else D0 for tp, path in at.items()}


def hang(machine: Machine, path: str, *, hangs: bool = True) -> None:
    """All threads of a directory do nothing more, and it is known; or they do again."""
    number = next(i for i, each in enumerate(machine.dirs) if each.path == path)
    for queue in machine.queues[2 * number : 2 * number + 2]:
        queue.hangs = hangs
    machine.dirs[number].note_pace(DirNews.HUNG if hangs else DirNews.ANSWERED, "no answer for 1 s")


@pytest.mark.parametrize("began", [True, False], ids=["while it copies", "while it waits for a place"])
@pytest.mark.parametrize("hung", ["source", "target"])
def test_K113_08_a_move_that_hangs_gives_its_place_to_others(hung: str, began: bool) -> None:
    machine = made(disks=3, properties={PARALLEL: "1", THROTTLE: "1000"})
    other = TopicPartition("t", 1)
    machine.lead(is_new=True, tp=other)
    machine.settle()
    assert machine.logs.dir_of(other) == D1
    path = D0 if hung == "source" else D2

    def to(tp: TopicPartition, path: str) -> None:
        machine.moves.alter(tp, path)
        step_until(machine, lambda: tp not in machine.moves.being_made(path))

    if began:
        to(TP, D2)
        assert state_of(machine) == MoveState.COPYING.value
        machine.settle()
        hang(machine, path)
    else:
        to(other, D2 if hung == "source" else D0)
        to(TP, D2)
        hang(machine, path)
        machine.moves.alter(other, D1)  # taken back: its place is free
        step_until(machine, lambda: len(machine.moves.describe()) == 1)
        assert state_of(machine) == MoveState.WAITING.value
    for target in (D2 if hung == "source" else D0, D1):
        to(other, target)
        step_until(machine, lambda: len(machine.moves.describe()) == 1)
        assert machine.logs.dir_of(other) == target
    assert machine.logs.dir_of(TP) == D0
    hang(machine, path, hangs=False)
    machine.finish()
    assert machine.log.dir.path == D2
    assert len(values_of(machine.log)) == 20


def test_H_18_a_copy_that_is_removed_under_a_move_is_no_failure_of_the_disk() -> None:
    for steps in range(0, 60, 3):
        machine = made()
        machine.moves.alter(TP, D1)
        for _ in range(steps):
            machine.step()
        for path in machine.names(NameKind.FUTURE):
            machine.dirs[1].files.rmtree(path)
        machine.produce(b"more")
        machine.finish()
        assert all(d.is_online for d in machine.dirs), steps
        assert len(values_of(machine.log)) == 21
        assert machine.refused == []


def test_H_18_a_topic_that_is_deleted_under_a_move_is_no_failure_of_the_disk() -> None:
    for steps in range(70):
        machine = made(records=5)
        machine.moves.alter(TP, D1)
        for _ in range(steps):
            machine.step()
        machine.replicas.stop_replicas([StopReplica(TP, None, True)], now_ms=machine.ms, done=lambda _: None)
        machine.finish()
        assert all(d.is_online for d in machine.dirs), steps
        assert machine.names(NameKind.FUTURE) == machine.names(NameKind.REPLICA) == [], steps


def test_appends_and_changes_of_leaders_during_a_switch_are_kept_in_order() -> None:
    for seed in range(40):
        machine = Machine(seed)
        machine.start()
        machine.lead(is_new=True)
        machine.settle()
        sent = 0
        for _ in range(3):
            machine.moves.alter(TP, D1 if machine.log.dir.path == D0 else D0)
            while machine.moves.describe():
                if machine.rng.random() < 0.3:
                    machine.produce(b"%d" % sent)
                    sent += 1
                if machine.rng.random() < 0.02:
                    machine.lead()
                if not machine.step():
                    machine.tick()
        machine.settle()
        assert machine.moves.switches == 3
        assert len(machine.acked) + len(machine.refused) == sent
        held = values_of(machine.log)
        assert all(held[offset] == value for offset, value in machine.acked), seed
        assert sorted(held) == list(range(len(held)))


def test_batches_that_are_sent_again_after_a_switch_are_known() -> None:
    machine = made(records=0)

    def batch(sequence: int) -> bytearray:
        return encode_batch(
            [Record(0, machine.ms, b"k", b"v")], producer_id=9, producer_epoch=0, base_sequence=sequence
        )

    for sequence in range(7):
        machine.log.append_as_leader(batch(sequence), 1, machine.ms)
    machine.moves.alter(TP, D1)
    machine.finish()
    for sequence in (2, 6):
        assert machine.log.append_as_leader(batch(sequence), 1, machine.ms).duplicate
    with pytest.raises(OutOfOrderSequenceError):
        machine.log.append_as_leader(batch(9), 1, machine.ms)


def test_a_target_that_hangs_in_the_switch_holds_appends_for_a_moment_only() -> None:
    machine = made()
    machine.moves.alter(TP, D1)
    step_until(machine, lambda: state_of(machine) == MoveState.SWITCHING.value)
    hanging = machine.queues[2]
    machine.produce(b"held")
    began_ms = machine.ms
    while len(machine.acked) == 20:  # the other threads go on, this one does not
        able = [q for q in machine.queues if q is not hanging and q.works]
        for queue in able:
            queue.work()
        for queue in machine.queues:
            queue.complete()
        if not able and not any(q.completions for q in machine.queues):
            assert machine.tick()
    assert machine.ms - began_ms <= HOLD_MS
    machine.finish()
    assert machine.log.dir.path == D1
    assert len(values_of(machine.log)) == 21


def test_D1_a_piece_of_a_copy_has_so_many_batches_and_the_last_one_all() -> None:
    machine = made(records=2 * PIECE_BATCHES + 7, log_config=LogConfig(segment_bytes=1 << 20, retention_ms=None))
    log, whole = machine.log, batches_of(machine.log)
    sizes, found, at = [], b"", 0
    while (piece := look(log, at, PIECE_BYTES)).is_news:
        headers = [header for _, header in iter_headers(piece.data)]
        assert headers[0].base_offset == at
        assert piece.end_offset == log.view.end_offset
        sizes.append(len(headers))
        found += piece.data
        at = headers[-1].next_offset
    assert sizes == [PIECE_BATCHES, PIECE_BATCHES, 7]
    assert found == b"".join(whole)
    last = last_look(log, 1, LAST_PIECE_BYTES).piece
    assert last.data == b"".join(whole[1:])
    machine.moves.alter(TP, D1)
    machine.finish()
    assert machine.log.dir.path == D1
    assert batches_of(machine.log) == whole
