"""Cordoned directories (KIP-1066) under a whole cluster in virtual time, as stories."""

from __future__ import annotations

from tests.simulation.node import Node
from tests.simulation.test_scenarios import Story, told


def cordoned_at_controller(story: Story, node: Node) -> int:
    """How many directories of the broker the controller knows to be cordoned."""
    return len(story._reign().image.brokers[node.broker_id].cordoned)


async def cordon(story: Story, node: Node, *paths: str) -> None:
    await story._as_client(story.workload.cordon(node.broker_id, *paths))


def test_K1066_04_a_cordoned_broker_that_lost_everything_gets_it_back_when_the_cordon_is_gone() -> None:
    """Its disks are replaced by empty ones: its replicas have no place, and the controller goes on without them."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        reign = story._reign()
        node = next(n for n in story.nodes if n.broker is not None and n.broker.controller is not reign)
        await cordon(story, node, "*")
        assert cordoned_at_controller(story, node) == 2, "it is known when the answer is there"
        node.wipe()
        story.watch.ended(node, power=True)
        story._start(node)
        await story.until(lambda: bool(reign.controller.offline_replicas().get(node.broker_id)))
        assert node.broker is not None
        assert list(node.broker.logs.logs()) == []
        await cordon(story, node)
        await story.until(story.isr_is_whole)

    told(tell)


def test_K1066_12_the_next_controller_knows_of_a_cordon_whose_broker_is_down() -> None:
    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        first = story._reign()
        others = [n for n in story.nodes if n.broker is not None and n.broker.controller is not first]
        down, _ = others
        await cordon(story, down, "*")
        down.kill()
        (reigning,) = (n for n in story.nodes if n not in others)
        await story.restart(reigning)
        await story.until(lambda: story._reign() is not None and story._reign() is not first)
        assert cordoned_at_controller(story, down) == 2
        story._start(down)
        await story.until(story.isr_is_whole)
        assert cordoned_at_controller(story, down) == 2, "it starts with what was set at run time"
        await cordon(story, down)
        assert cordoned_at_controller(story, down) == 0

    told(tell)


def test_K1066_16_the_controller_dies_while_a_broker_is_cordoned() -> None:
    """The cordon is whole or not there, and the broker and the controller agree on it."""

    async def tell(story: Story) -> None:
        await story.until(story.isr_is_whole)
        first = story._reign()
        (reigning,) = (n for n in story.nodes if n.broker is not None and n.broker.controller is first)
        node = next(n for n in story.nodes if n is not reigning)
        for delay_s in (0.0005, 0.001, 0.002, 0.004, 0.008):
            story.network.later(delay_s, story.down, reigning, 0.5)
            await cordon(story, node, "*")
            await story.until(lambda: story._reign() is not None)
            await story.until(lambda: agree(story, node))
            await story.until(story.isr_is_whole)
            await cordon(story, node)
            (reigning,) = (n for n in story.nodes if n.broker is not None and n.broker.controller is story._reign())
            if reigning is node:
                break
            await story.until(lambda: agree(story, node))

    told(tell)


def agree(story: Story, node: Node) -> bool:
    assert node.broker is not None
    here = sum(d.cordoned for d in node.broker.logs.dirs)
    return story._reign() is not None and here == cordoned_at_controller(story, node)
