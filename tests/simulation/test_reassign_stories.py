"""Stories of replicas that move between brokers, each found by thinking and told once: late orders, dead disks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.client.admin import AdminClient
from holdfast.client.views import NewTopic
from holdfast.model.types import TopicPartition
from tests.simulation.test_disk_stories import busy_dir, state_of
from tests.simulation.test_scenarios import Story, told

STOP_REPLICA, LEADER_AND_ISR = b"\0\5", b"\0\4"


def image_of(story: Story, tp: TopicPartition) -> Any:
    return story._reign().image.topics[tp.topic].partitions[tp.partition]


def overheard(story: Story, api: bytes, words: bytes = b"") -> list[tuple[str, str, bytes]]:
    """Requests of that API from now on: whoever gives up a connection may leave one on its way (``network._ghost``)."""
    found: list[tuple[str, str, bytes]] = []

    def listen(end: Any, data: Any) -> None:
        if end.target is not None and bytes(data[4:6]) == api and words in data:
            found.append((end.machine, end.target, bytes(data)))

    story.network.maybe_ghost = listen  # type: ignore[method-assign]
    return found


def moved(story: Story, tp: TopicPartition, *replicas: int) -> Callable[[], bool]:
    """Ask for it; whether it is over."""
    story._as_client(story.workload.reassign(tp, list(replicas)))
    return lambda: set(image_of(story, tp).replicas) == set(replicas) and not image_of(story, tp).is_reassigned


def test_a_late_order_to_delete_a_replica_does_not_take_the_one_that_was_made_anew() -> None:
    """With it the only copy of what was committed would be an empty one, in the ISR."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        tp = TopicPartition("safe", 0)
        leader = image_of(story, tp).leader
        victim = next(b for b in image_of(story, tp).replicas if b != leader)
        others = [b for b in (1, 2, 3) if b != victim]
        await story.until(lambda: story.nodes[leader - 1].broker.replicas.high_watermark(tp) > 5)
        late = overheard(story, STOP_REPLICA)
        await story.until(moved(story, tp, *others))
        await asyncio.sleep(1)
        assert late
        await story.until(moved(story, tp, *others, victim))
        end = story.nodes[victim - 1].broker.logs.get(tp).view.end_offset
        for one in late:
            story.network._ghost(*one)
        await asyncio.sleep(1)
        assert story.nodes[victim - 1].broker.logs.get(tp).view.end_offset >= end > 5
        for other in others:
            story.down(story.nodes[other - 1], 20.0)
        await story.until(lambda: image_of(story, tp).leader == victim)

    told(tell)


def test_a_late_order_to_lead_makes_no_second_leader_of_a_replica_that_went() -> None:
    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        tp, late = TopicPartition("one", 0), overheard(story, LEADER_AND_ISR, b"one")
        client = AdminClient(story.workload.bootstrap, client_id="admin")
        made = story._as_client(client.create_topics([NewTopic(name="one", partitions=1, replication_factor=1)]))
        await story.until(made.done)
        await asyncio.sleep(1)
        first = image_of(story, tp).leader
        orders = list(late)
        assert orders
        await story.until(moved(story, tp, first % 3 + 1))
        await asyncio.sleep(1)
        for one in orders:
            story.network._ghost(*one)
        await asyncio.sleep(1)
        replicas = story.nodes[first - 1].broker.replicas
        assert not replicas.is_leader(tp) and tp not in replicas.partitions
        client.close()

    told(tell)


@pytest.mark.parametrize("mended", [True, False])
def test_K112_71_a_replica_that_was_taken_off_a_dead_disk_may_come_back(mended: bool) -> None:
    """The disk is mended meanwhile, or taken away."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        node, index, name = busy_dir(story)
        topic, _, number = name.rpartition("-")
        tp, me = TopicPartition(topic, int(number)), node.broker_id
        others = [b for b in (1, 2, 3) if b != me]
        story.break_disk(node, index)
        await story.until(lambda: state_of(node, index) == "offline")
        await story.until(lambda: image_of(story, tp).leader not in (None, me))
        await story.until(moved(story, tp, *others))
        if mended:
            await story.mend_disk(node, index)
        else:
            broker: Any = node.broker
            await broker.disks.remove(f"/n{me}/d{index}", force=True)
            node.disks[index].trouble = None
        await story.until(lambda: tp not in node.broker.replicas.partitions)
        await story.until(moved(story, tp, *others, me))

    told(tell)
