"""What the simulation found, each as a story of its own: found first, told here, then fixed."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import random
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from holdfast.model.types import TopicPartition
from tests.simulation.cluster import Simulation
from tests.simulation.contents import error
from tests.simulation.node import Node
from tests.simulation.trouble import DiskTrouble, Wrong
from tests.simulation.watch import Violation


class Story(Simulation):
    """A cluster under load to which just the things happen that ``tell`` says."""

    has_bare = False
    group_share = 0.0
    txn_share = 0.0

    def __init__(self, tell: Callable[[Story], Coroutine[Any, Any, None]]) -> None:
        super().__init__(1, duration_s=20.0, faults=[])
        self.network.ghost_share = 0.0
        self._tell = tell

    async def _faults(self) -> None:
        await self._tell(self)

    async def until(self, condition: Callable[[], bool], within_s: float = 30.0) -> None:
        """Wait in virtual time. While nobody reigns, what is asked of the reign is not so."""
        deadline = self.loop.time() + within_s

        def holds() -> bool:
            try:
                return condition()
            except AttributeError:
                if self._reign() is None:
                    return False
                raise

        while not holds():
            if self.loop.time() > deadline:
                raise Violation(f"not within {within_s:g} s")
            await asyncio.sleep(0.05)

    def isr_is_whole(self) -> bool:
        """Every replica of every partition is in sync."""
        reign = self._reign()
        return reign is not None and all(
            set(p.isr) == set(p.replicas) for t in reign.image.topics.values() for _, p in t.numbered()
        )

    def break_disk(self, node: Node, index: int, how: Wrong = Wrong.DEAD) -> None:
        """Every call on one log directory fails from now on, or every one that changes something."""
        told = node.dirs.told
        node.disks[index].trouble = DiskTrouble(how, random.Random(1), 0, lambda what, _: told(index, what))

    def break_in_flush(self, node: Node, index: int) -> None:
        """As ``break_disk``, from the next flush of batches on."""
        disk = node.disks[index]

        def fault(operation: str, path: str) -> None:
            if operation == "fsync" and path.endswith(".log"):
                disk.fault = None
                disk.rng = AllIsLost()
                self.break_disk(node, index)
                node.dirs.told(index, "a flush")
                raise error(errno.EIO, path)

        disk.fault = fault

    def flip_bit(self, node: Node, log_dir: str, byte: int | None) -> None:
        """The first read of a log that can show it returns a flipped bit."""
        index = int(log_dir.split("/")[2][1])
        trouble = DiskTrouble(Wrong.FLIPPED, random.Random(1), 0, lambda what, _: self.note(what))
        trouble.within, trouble.byte = log_dir, byte
        node.disks[index].trouble = trouble

    def mend_disk(self, node: Node, index: int) -> asyncio.Task[Any]:
        """It works again, and its broker is told so."""
        node.disks[index].trouble = None
        assert node.process is not None
        return node.process.spawn(node.dirs.heal(index))

    async def restart(self, node: Node) -> None:
        """kill -9, start; until the controller counts it as alive."""
        node.kill()
        self._start(node)
        await self.until(lambda: node.broker is not None and hasattr(node.broker, "membership"))
        assert node.broker is not None
        await node.broker.membership.unfenced.wait()

    def fail_read(self, node: Node, log_dir: str) -> None:
        """The next read in a log's directory fails, and no other."""
        index = int(log_dir.split("/")[2][1])
        disk = node.disks[index]

        def fault(operation: str, path: str) -> None:
            if operation == "read" and path.startswith(log_dir):
                disk.fault = None
                raise error(errno.EIO, path)

        disk.fault = fault

    def trace_has(self, words: str, *, times: int) -> bool:
        """Whether that many lines have these words."""
        return sum(words in line for line in self.trace) >= times

    def safe(self, number: int) -> Any:
        """A partition of the topic ``safe``."""
        return self._reign()._durable.topics["safe"].partitions[number]

    def late(self) -> Any:
        """The partition of the topic that was made under load; None before it is recorded."""
        reign = self._reign()
        topic = None if reign is None else reign._durable.topics.get("late-0")
        return None if topic is None else topic.partitions[0]


class AllIsLost(random.Random):
    """Of what was not flushed nothing is on the device."""

    def random(self) -> float:
        return 0.2


LAST_OFFSET_DELTA = 26
"""Its last byte, in a batch."""
LATE = TopicPartition("late-0", 0)


def told(tell: Callable[[Story], Coroutine[Any, Any, None]]) -> None:
    """Run it; all that the simulation checks must hold as well."""
    outcome = Story(tell).run()
    assert outcome.ok, "\n".join(outcome.trace)


def test_H_05_a_broker_that_had_to_register_again_comes_back_into_the_isr() -> None:
    """Seed 3044: its fetch session went on with the epoch of its first registration, and every proposal to add it
    named that one, which the controller refused for ever."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        node = story.nodes[2]
        assert node.broker is not None
        membership, before = node.broker.membership, node.broker.membership.broker_epoch
        membership.identity = dataclasses.replace(membership.identity, incarnation_id=UUID(int=1))
        membership._is_registered = False
        assert membership._connection is not None
        membership._connection.close()
        await story.until(lambda: membership.broker_epoch > before)
        await story.until(story.isr_is_whole)

    told(tell)


def test_H_20_a_replica_is_made_though_its_partition_changed_before_its_broker_heard_of_it() -> None:
    """Seed 4 of the faults for H-20: whoever made the topic died at once, which changed its ISR; to the next controller
    a changed partition was an old one, and a broker with a bad directory refused to make its replica, for good."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        controller = story._reign()._broker.broker_id
        node = story.nodes[controller % 3]
        story.break_disk(node, 0)
        await story.restart(node)
        assert node.process is not None
        node.process.stop()
        story._new_topic(2.0)
        await story.until(lambda: story.late() is not None and story.late().partition_epoch > 0)
        assert story._reign()._broker.broker_id != controller
        node.process.go_on()
        await story.until(lambda: node.broker is not None and node.broker.logs.get(LATE) is not None)
        await story.until(lambda: node.broker_id in story.late().isr)

    told(tell)


def test_K112_61_a_replica_that_was_refused_is_made_when_the_bad_directory_is_back() -> None:
    """Seed 4: its broker could not know whether it was on the directory that it could not read. The directory came back
    without it, and nobody said so to the controller, for which it stayed offline."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        controller = story._reign()._broker.broker_id
        node = story.nodes[controller % 3]
        assert node.process is not None
        node.process.stop()  # it is told of the topic, and does not hear it
        story._new_topic(None)
        await story.until(lambda: story.late() is not None)
        story.break_disk(node, 0)
        await story.restart(node)
        await story.until(lambda: node.broker_id not in story.late().isr)
        await asyncio.sleep(5)
        assert node.broker is not None and node.broker.logs.get(LATE) is None
        await story.mend_disk(node, 0)
        await story.until(story.isr_is_whole)

    told(tell)


def test_K18_09_a_log_that_could_not_be_loaded_is_made_anew_and_joins_the_isr() -> None:
    """Seed 5079: it was made anew before the controller had heard that it is back; then nobody told the controller any
    more, which kept it out of the ISR as a replica on an offline directory."""

    async def tell(story: Story) -> None:
        tp = TopicPartition("safe", 1)
        await story.until(story.isr_is_whole)
        node = story.nodes[story._reign()._broker.broker_id % 3]
        assert node.broker is not None
        log = node.broker.logs.get(tp)
        assert log is not None
        node.kill()
        story._start(node)
        story.fail_read(node, log.path)
        await story.until(lambda: node.broker is not None and node.broker_id not in story.safe(1).isr)
        await story.until(lambda: node.broker_id in story.safe(1).isr)
        assert node.broker.logs.get(tp) is not log

    told(tell)


def test_H_28_a_directory_that_is_back_is_read_from_its_disk_and_not_from_memory() -> None:
    """Seed 5030: it was not unmounted, so recovery found whole batches of which the flush had failed. Later they were
    read from the disk, which never had them, and the log had a hole in its middle."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        node = story.nodes[story._reign()._broker.broker_id % 3]
        for index in (0, 1):
            story.break_in_flush(node, index)
        await story.until(lambda: any(disk.trouble is not None for disk in node.disks))
        [index] = [i for i, disk in enumerate(node.disks) if disk.trouble is not None]
        node.disks[1 - index].fault = None
        await story.until(lambda: node.dirs.is_offline(index) and not story.isr_is_whole())
        story.watch.lost(node, node.dirs.replicas(index))
        await asyncio.sleep(1)
        await story.mend_disk(node, index)
        node.disks[index].evict()
        await story.until(story.isr_is_whole)

    told(tell)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_K18_03_a_bit_that_a_read_gets_wrong_at_the_start_does_not_cost_a_log_its_end(how: str) -> None:
    """Seed 13 of many flipped bits: recovery cut the log there. All had been killed, so the replica counted as one that
    has kept everything, and led."""

    async def tell(story: Story) -> None:
        tp = TopicPartition("safe", 1)
        await story.until(lambda: story.isr_is_whole() and story.watch.end_of(story.nodes[0], tp) > 5)
        for node in story.nodes:
            assert node.broker is not None
            log = node.broker.logs.get(tp)
            assert log is not None
            if how == "killed":
                node.kill()
            else:
                node.terminate()
                await story.until(lambda node=node: not node.alive)  # type: ignore[misc]
            story.flip_bit(node, log.path, None if how == "killed" else LAST_OFFSET_DELTA)
        for node in story.nodes:
            story._start(node)
        await story.until(lambda: story.trace_has("flipped", times=3))
        await story.until(story.isr_is_whole)

    told(tell)


@pytest.mark.parametrize("how", [Wrong.READ_ONLY, Wrong.DEAD])
def test_H_19_leaders_move_from_a_directory_on_which_nothing_can_be_written(how: Wrong) -> None:
    """And the broker asks nothing of it any more: the checker sees every call."""

    async def tell(story: Story) -> None:
        tp = TopicPartition("safe", 1)
        await story.until(story.isr_is_whole)
        node = story.nodes[story.safe(1).leader - 1]
        assert node.broker is not None
        log = node.broker.logs.get(tp)
        assert log is not None
        index = int(log.dir.path[-1])
        story.break_disk(node, index, how)
        await story.until(lambda: story.safe(1).leader not in (None, node.broker_id))
        assert node.broker_id not in story.safe(1).isr
        assert node.dirs.is_offline(index)
        assert node.alive

    told(tell)
