"""What a broker tells the controller of its replicas, and what the controller holds of them, in virtual time."""

from __future__ import annotations

import dataclasses
import errno
from uuid import UUID

from holdfast.model.types import TopicPartition
from tests.simulation.test_disk_stories import failing, state_of
from tests.simulation.test_scenarios import Story, told


def test_D14_a_broker_that_was_given_up_tells_again_that_its_full_dir_has_room() -> None:
    """Chaos with disks, seed 77123: heartbeats of a broker that the controller had given up are answered without a look
    at what they tell, as long as it has orders to answer. The broker took it for told all the same that the directory
    has room, and the controller let none of its replicas into an ISR again, for ever."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        reign = story._reign()
        node = story.nodes[reign._broker.broker_id % 3]
        assert node.broker is not None and node.process is not None
        node.disks[0].fault = failing(errno.ENOSPC, "", ("pwritev", "write_atomic", "create", "write"))
        await story.until(lambda: state_of(node, 0) == "full")
        await story.until(lambda: bool(reign.controller._state.strained.get(node.broker_id)))
        node.process.stop()
        story._new_topic(None)  # an order that it cannot answer for a while
        await story.until(lambda: story.late() is not None and node.broker_id not in story.late().isr)
        node.hang_disk(1, 18.0)
        node.disks[0].fault = None
        node.process.go_on()
        await story.until(lambda: state_of(node, 0) == "online")
        await story.until(story.isr_is_whole, within_s=90)

    told(tell)


def test_D14_a_broker_that_registers_anew_says_again_which_of_its_replicas_are_strained() -> None:
    """The controller forgets what it knew of the replicas of a broker that registers. Before the next probe it took
    those on a full directory into the ISR, and the next write waited for them."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        reign = story._reign()
        node = story.nodes[reign._broker.broker_id % 3]
        assert node.broker is not None
        strained = reign.controller._state.strained
        node.disks[0].fault = failing(errno.ENOSPC, "", ("pwritev", "write_atomic", "create", "write"))
        await story.until(lambda: bool(strained.get(node.broker_id)))
        before, membership = set(strained[node.broker_id]), node.broker.membership
        epoch = membership.broker_epoch
        membership.identity = dataclasses.replace(membership.identity, incarnation_id=UUID(int=1))
        membership._is_registered = False
        assert membership._connection is not None
        membership._connection.close()
        await story.until(lambda: membership.broker_epoch > epoch)
        await story.until(lambda: strained.get(node.broker_id, set()) >= before, within_s=1.0)
        node.disks[0].fault = None
        await story.until(story.isr_is_whole)

    told(tell)


def test_K18_03_a_damaged_batch_costs_the_replica_that_has_it_and_no_other() -> None:
    """On its disk for good, and the disk works. A follower that is made anew cannot take it from its leader; another in
    the ISR can give it."""

    async def tell(story: Story) -> None:
        tp = TopicPartition("safe", 1)
        await story.until(lambda: story.isr_is_whole() and story.watch.end_of(story.nodes[0], tp) > 5)
        leader = story.nodes[story.safe(1).leader - 1]
        assert leader.broker is not None
        log = leader.broker.logs.get(tp)
        assert log is not None
        disk = leader.disks[int(log.dir.path[-1])]
        disk.was_bad = True  # who is damaged is not eligible when it leaves the ISR
        files = disk.mount("a stray write")
        handle = files.open(f"{log.path}/{0:020d}.log")
        handle.pwritev((bytes([handle.pread(1, 80)[0] ^ 1]),), 80)
        follower = story.nodes[(leader.broker_id + 1) % 3]
        await story.until(lambda: story.watch.may_lose(follower.broker_id))
        follower.wipe()
        story.watch.ended(follower, power=True)
        story.down(follower, 0.2)
        await story.until(lambda: leader.broker.logs.get(tp) not in (log, None), within_s=60)
        await story.until(story.isr_is_whole, within_s=60)
        assert not leader.broker.logs.standings.failed

    told(tell)
