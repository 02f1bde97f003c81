"""Disks that fail, fill and come back under a whole cluster in virtual time, as stories."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest

from holdfast.broker.disk_io import DEFAULT_LIMIT
from holdfast.model.types import TopicPartition
from holdfast.replication.types import Role
from holdfast.storage.log_dir import LogDir
from tests.simulation.node import Node
from tests.simulation.test_scenarios import LATE, Story, told
from tests.simulation.trouble import Wrong


def failing(code: int, in_path: str = "", operations: tuple[str, ...] = ()) -> Callable[[str, str], None]:
    """A fault hook."""

    def fault(operation: str, path: str) -> None:
        if in_path in path and (not operations or operation in operations):
            raise OSError(code, "injected", path)

    return fault


def busy_dir(story: Story) -> tuple[Node, int, str]:
    """A node that leads something, the index of the log directory it is on, and the name of the partition."""
    for node in story.nodes:
        assert node.broker is not None
        for tp, partition in node.broker.replicas.partitions.items():
            if partition.is_open and partition.log is not None:
                return node, int(partition.log.dir.path[-1]), str(tp)
    raise AssertionError("nobody leads anything")


async def unasked_dir(story: Story) -> tuple[Node, int, LogDir]:
    """A directory of a node that leads something, and its index; none of its probes is under way."""
    await story.until(story.isr_is_whole)
    node, index, _ = busy_dir(story)
    assert node.broker is not None
    directory = node.broker.logs.dirs[index]
    await story.until(lambda: not node.broker.disks._probes.is_asked(directory))  # type: ignore[union-attr]
    return node, index, directory


def state_of(node: Node, index: int) -> str:
    assert node.broker is not None
    return node.broker.disks.describe()[index].state


def test_K112_25_a_dir_dies_others_lead_and_it_comes_back_without_a_restart() -> None:
    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        node, index, _ = busy_dir(story)
        story.break_disk(node, index)
        await story.until(lambda: state_of(node, index) == "offline")
        reign = story._reign()
        await story.until(lambda: bool(reign.controller.offline_replicas()))
        assert state_of(node, 1 - index) == "online"
        await story.mend_disk(node, index)
        await story.until(story.isr_is_whole)
        assert state_of(node, index) == "online"

    told(tell)


def test_K18_09_one_log_fails_and_is_made_anew_on_another_dir() -> None:
    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        node, index, name = busy_dir(story)
        assert node.broker is not None
        node.disks[index].fault = failing(errno.EIO, f"{name}/", ("pwritev", "fsync", "pread", "preadv_nowait"))
        logs = node.broker.logs
        elsewhere = f"/n{node.broker_id}/d{1 - index}/{name}"
        await story.until(lambda: any(each.path == elsewhere for each in logs.logs()))
        assert state_of(node, index) == "online"
        await story.until(story.isr_is_whole)
        assert not logs.standings.failed

    told(tell)


def test_a_full_dir_gives_its_leaders_away_and_takes_writes_again() -> None:
    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        node, index, _ = busy_dir(story)
        assert node.broker is not None
        node.disks[index].fault = failing(errno.ENOSPC, "", ("pwritev", "write_atomic", "create"))
        await story.until(lambda: state_of(node, index) == "full")
        replicas, me = node.broker.replicas, node.broker_id

        def leads_nothing_there() -> bool:
            return not any(
                p.is_open and p.log is not None and p.log.dir.path.endswith(f"d{index}")
                for p in replicas.partitions.values()
                if len(p.replicas) > 1 and p.leader == me
            )

        await story.until(leads_nothing_there)
        node.disks[index].fault = None
        await story.until(lambda: state_of(node, index) == "online")
        await story.until(story.isr_is_whole)

    told(tell)


def test_K112_41_a_dead_dir_is_taken_away_and_its_replicas_are_made_on_the_others() -> None:
    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        node, index, _ = busy_dir(story)
        assert node.broker is not None
        story.break_disk(node, index)
        await story.until(lambda: state_of(node, index) == "offline")
        await node.broker.disks.remove(f"/n{node.broker_id}/d{index}", force=False)
        assert len(node.broker.disks.describe()) == 1
        await story.until(story.isr_is_whole)
        node.disks[index].trouble = None

    told(tell)


@pytest.mark.parametrize("operation", ["mkdir", "write", "fsync_dir"])
def test_H_16_a_dir_that_dies_between_the_choice_of_it_and_the_answer_keeps_no_leader(operation: str) -> None:
    """The leader's broker has chosen it for a new replica, and it dies before the controller has the answer. Made on
    the other directory or led by another broker: what counts is that the leader has a log that works."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        struck: list[tuple[Node, str]] = []

        def strike(node: Node, index: int) -> Callable[[str, str], None]:
            def fault(asked: str, path: str) -> None:
                late = story.late()
                if not struck and asked == operation and "/late-0-0" in path and late.leader == node.broker_id:
                    struck.append((node, path))
                    story.break_disk(node, index)
                    node.dirs.told(index, path)
                    raise OSError(errno.EIO, "injected", path)

            return fault

        def leader_works() -> bool:
            leader = story.nodes[story.late().leader - 1].broker if story.late().leader else None
            log = None if leader is None else leader.logs.get(LATE)
            return log is not None and log.is_online and not struck[0][1].startswith(log.dir.path + "/")

        for node in story.nodes:
            for index, disk in enumerate(node.disks):
                disk.fault = strike(node, index)
        story._new_topic(None)
        await story.until(lambda: bool(struck))
        await story.until(leader_works)
        await story.until(lambda: len(story.late().isr) == 3 or struck[0][0].broker_id not in story.late().isr)
        assert len(story.late().isr) >= 2

    told(tell)


def test_H_13_a_broker_whose_disks_hang_hears_at_once_that_it_leads_no_more() -> None:
    """Chaos with disks, seed 20261122: the order waited behind one to make a replica on the disk that hung, and clients
    were told the end of a log that others had written on."""

    async def tell(story: Story) -> None:
        tp = TopicPartition("safe", 1)
        await story.until(story.isr_is_whole)
        node = story.nodes[story.safe(1).leader - 1]
        for index in range(2):
            node.hang_disk(index, 12.0)
        story._new_topic(None)
        await story.until(lambda: story.safe(1).leader not in (None, node.broker_id))
        await asyncio.sleep(1.0)
        assert node.broker is not None
        assert node.broker.replicas.partitions[tp].role is Role.FOLLOWER
        assert node.broker.logs.get(LATE) is None, "that order waits still"
        await story.until(story.isr_is_whole, within_s=60)

    told(tell)


def test_D4_a_broker_starts_with_a_directory_that_hangs_and_takes_it_up_when_it_answers() -> None:
    """K112-34: whatever is wrong with one directory, the others are served."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        node, index, name = busy_dir(story)
        node.kill()
        node.hang_disk(index, 90.0)
        began_s = node.loop.time()
        await story.restart(node)
        assert node.loop.time() - began_s < 5.0
        assert (state_of(node, index), state_of(node, 1 - index)) == ("silent", "online")
        assert node.broker is not None
        topic, number = name.rsplit("-", 1)
        hung, safe = TopicPartition(topic, int(number)), story.safe
        await story.until(lambda: all(node.broker_id not in safe(p).isr for p in (hung.partition,)))
        await asyncio.sleep(30.0)
        assert state_of(node, index) == "silent"
        assert node.broker.logs.get(hung) is None, "not made on the other one: it may be there"
        await story.until(lambda: state_of(node, index) == "online", within_s=120)
        await story.until(story.isr_is_whole, within_s=60)

    told(tell)


def test_D4_a_broker_waits_for_a_directory_that_hangs_when_it_has_no_other_that_can_be_used() -> None:
    """One is read-only, one hangs: what is silent may be good, so the start does not end for lack of directories."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        node = story.nodes[2]
        story.break_disk(node, 0, Wrong.READ_ONLY)
        node.kill()
        node.hang_disk(1, 90.0)
        began_s = node.loop.time()
        story._start(node)
        await story.until(lambda: node.broker is not None and hasattr(node.broker, "membership"), within_s=120)
        assert 85.0 < node.loop.time() - began_s < 100.0
        assert (state_of(node, 0), state_of(node, 1)) == ("offline", "online")

    told(tell)


def test_D2_D3_while_a_directory_hangs_for_minutes_topics_come_and_go_elsewhere() -> None:
    """Orders for the hung one are answered; nothing new is put on it; all is whole when it answers again."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        node, index, _ = busy_dir(story)
        assert node.broker is not None
        before = {each.topic_partition for each in node.broker.logs.logs() if each.dir.path.endswith(f"d{index}")}
        node.hang_disk(index, 180.0)
        for _ in range(4):
            story._new_topic(None)
            await asyncio.sleep(20.0)
        logs = node.broker.logs
        await story.until(lambda: state_of(node, index) == "silent")
        assert {each.topic_partition for each in logs.logs() if each.dir.path.endswith(f"d{index}")} <= before
        await story.until(lambda: logs.get(LATE) is not None and story.late().isr and len(story.late().isr) == 3)
        await story.until(lambda: state_of(node, index) == "online", within_s=240)
        await story.until(story.isr_is_whole, within_s=60)

    told(tell)


def test_a_dir_that_dies_as_retention_looks_at_it_is_offline_and_touched_no_more() -> None:
    """Seeds 1052376502 and 1052376506: whether deletions wait for a confirmation was asked without the directory's
    guard. Its error was nobody's, and each further log of the directory asked again."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        node, index, _ = busy_dir(story)

        def fault(operation: str, path: str) -> None:
            if operation == "stat" and path.endswith("/holdfast.recovered"):
                node.disks[index].fault = None
                story.break_disk(node, index)
                node.dirs.told(index, "retention")
                raise OSError(errno.EIO, "injected", path)

        node.disks[index].fault = fault
        await story.until(lambda: node.disks[index].trouble is not None, within_s=60)
        await story.until(lambda: state_of(node, index) == "offline", within_s=0.5)
        await story.mend_disk(node, index)
        await story.until(story.isr_is_whole)

    told(tell)


def test_a_leader_on_a_hung_dir_that_was_alone_leads_no_more_when_another_is_in_sync() -> None:
    """Nobody could take its place when it told that it does not answer. Later a follower was taken into its ISR, which
    needs no disk, and writes waited for as long as the directory hung."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        node = story.nodes[story.safe(1).leader - 1]
        assert node.broker is not None
        log = node.broker.logs.get(TopicPartition("safe", 1))
        assert log is not None
        for other in story.nodes:
            if other is not node:
                other.kill()
        await story.until(lambda: story.safe(1).isr == (node.broker_id,))
        index = int(log.dir.path[-1])
        node.hang_disk(index, 180.0)
        await story.until(lambda: story._reign().controller._state.strained.get(node.broker_id))
        for other in story.nodes:
            story._start(other)
        await story.until(lambda: story.safe(1).leader not in (None, node.broker_id), within_s=60)
        assert node.hung() == {index}
        await story.until(lambda: state_of(node, index) == "online", within_s=240)
        await story.until(story.isr_is_whole, within_s=60)

    told(tell)


def test_D5_a_directory_that_hangs_with_its_queue_full_is_noticed() -> None:
    """A probe that is refused is one without an answer."""

    async def tell(story: Story) -> None:
        node, index, directory = await unasked_dir(story)
        node.hang_disk(index, 60.0)
        for _ in range(DEFAULT_LIMIT):
            directory.queue.submit(lambda: None, lambda *_: None)
        await story.until(lambda: state_of(node, index) == "silent", within_s=20)
        await story.until(story.isr_is_whole, within_s=300)

    told(tell)


@pytest.mark.parametrize(("pieces", "states"), [(6, {"online"}), (30, {"online", "silent"})])
def test_a_directory_that_works_through_what_waits_is_busy_and_not_silent(pieces: int, states: set[str]) -> None:
    """Chaos, seeds 610015 and 610021: a probe waited behind other work for more than a second, on busy machines. Not
    for as long as it may take: a disk with so much to do had better not lead."""

    async def tell(story: Story) -> None:
        node, index, directory = await unasked_dir(story)
        assert node.broker is not None
        node.slow_disk_share, node.slow_disk_s = 1.0, (0.5, 0.6)
        done, seen = [], set()
        for _ in range(pieces):
            directory.queue.submit(lambda: None, lambda *result: done.append(result))
        node.broker.disks.probe()

        def all_are_done() -> bool:
            seen.add(state_of(node, index))
            return len(done) == pieces

        await story.until(all_are_done, within_s=30)
        assert seen == states
        node.hang_disk(index, 60.0)
        await story.until(lambda: state_of(node, index) == "silent", within_s=5)
        node.slow_disk_share = 0.0
        await story.until(story.isr_is_whole, within_s=300)

    told(tell)
