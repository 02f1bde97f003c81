"""A consumer group while its coordinator goes, as stories in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.model.types import TopicPartition
from tests.simulation.node import Node
from tests.simulation.planted import groups_not_loaded
from tests.simulation.test_scenarios import Story

OFFSETS = TopicPartition("__consumer_offsets", 0)


class GroupStory(Story):
    """A story with a consumer group."""

    group_share = 1.0
    has_bare = True

    def coordinator(self) -> Node | None:
        """Who leads ``__consumer_offsets-0``; None while nobody does."""
        reign = self._reign()
        topic = None if reign is None else reign._durable.topics.get("__consumer_offsets")
        leader = None if topic is None else topic.partitions[0].leader
        return None if leader is None else self.nodes[leader - 1]

    async def apart(self) -> Node:
        """The coordinator, when it is not the controller as well: nobody could take the place of that one."""
        await self.until(self.isr_is_whole, within_s=120)
        while (node := self.coordinator()) is not None and node.broker_id == self._reign()._broker.broker_id:
            self.down(node, 1.0)
            await self.until(lambda gone=node: self.coordinator() not in (None, gone))
            await self.until(self.isr_is_whole, within_s=120)
        assert node is not None
        return node

    def commits(self) -> int:
        """Acknowledged so far."""
        assert self.group is not None
        return sum(c.acked_s is not None for r in self.group.judge.registers.values() for c in r.commits)

    async def until_commits_go_on(self) -> None:
        """Some more are acknowledged."""
        before = self.commits()
        await self.until(lambda: self.commits() >= before + 3, within_s=60)


def killed(story: GroupStory, node: Node) -> None:
    story.down(node, 1.0)


def isolated(story: GroupStory, node: Node) -> None:
    for one in (*(n.machine for n in story.nodes), story.client.machine):
        if one != node.machine:
            story._cut(one, node.machine, 15.0)
            story._cut(node.machine, one, 15.0)


def stopped(story: GroupStory, node: Node) -> None:
    assert node.process is not None
    node.process.stop()
    story.network.later(15.0, story._go_on, node.process)


def hung(story: GroupStory, node: Node) -> None:
    for index in range(2):
        node.hang_disk(index, 40.0)


def goes(how: Callable[[GroupStory, Node], None]) -> Callable[[GroupStory], Coroutine[Any, Any, None]]:
    """The coordinator goes twice, in this way; commits are acknowledged in between and afterwards."""

    async def tell(story: GroupStory) -> None:
        await story.until_commits_go_on()
        for _ in range(2):
            node = await story.apart()
            how(story, node)
            await story.until(lambda gone=node: story.coordinator() not in (None, gone), within_s=40)
            await story.until_commits_go_on()
            await asyncio.sleep(2.0)

    return tell


@pytest.mark.parametrize("how", [killed, isolated, stopped, hung])
def test_acknowledged_offsets_outlive_their_coordinator(how: Callable[[GroupStory, Node], None]) -> None:
    outcome = GroupStory(goes(how)).run()  # type: ignore[arg-type]
    assert outcome.ok, "\n".join(outcome.trace)


def test_a_coordinator_tells_nothing_that_is_not_committed() -> None:
    """Seed 1253170697: a member was told its share out of a record that one replica had; the group began anew when that
    was gone. A follower is stopped and in sync still, so that what the next leader has read is not committed yet."""

    async def tell(story: GroupStory) -> None:
        await story.until_commits_go_on()
        node = await story.apart()
        controller = story.nodes[story._reign()._broker.broker_id - 1]
        [other] = [each for each in story.nodes if each not in (node, controller)]
        story.stop(other, 12.0)

        def ahead() -> bool:
            """A commit is in the log, and at the controller's broker, and not at the one that is stopped."""
            assert node.broker is not None and controller.broker is not None
            there = controller.broker.replicas.log_end(OFFSETS)
            return there is not None and there.end_offset > (node.broker.replicas.high_watermark(OFFSETS) or 0)

        await asyncio.sleep(0.5)  # virtual: what was on its way has come
        await story.until(ahead)
        story.down(node, 20.0)
        await story.until(lambda: story.coordinator() is controller)
        broker = controller.broker
        assert broker is not None
        await story.until(lambda: broker.replicas.is_leader(OFFSETS))
        read = broker.replicas.log_end(OFFSETS)
        assert read is not None and (broker.replicas.high_watermark(OFFSETS) or 0) < read.end_offset
        looks = 0
        while broker.groups._shards.loads:
            looks += 1
            await asyncio.sleep(0.001)
        assert looks and (broker.replicas.high_watermark(OFFSETS) or 0) >= read.end_offset
        await story.until_commits_go_on()

    outcome = GroupStory(tell).run()  # type: ignore[arg-type]
    assert outcome.ok, "\n".join(outcome.trace)


def test_a_coordinator_that_does_not_read_its_groups_is_found_out() -> None:
    with groups_not_loaded():
        outcome = GroupStory(goes(killed)).run()  # type: ignore[arg-type]
    assert not outcome.ok
    assert "the group has no offset" in str(outcome.violation)
