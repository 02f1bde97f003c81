"""What can happen between brokers and an ensemble, each as a story of its own (test_scenarios.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.metadata import znode_paths
from tests.simulation.ensemble_cluster import EnsembleSimulation
from tests.simulation.node import Node
from tests.simulation.test_scenarios import Story


class EnsembleStory(Story, EnsembleSimulation):
    """A story (Story) whose cluster has its metadata in an ensemble."""

    def session_id(self, node: Node) -> int:
        """Of its process; 0: it has none."""
        process = self.process_of(node)
        session = None if process is None else process.session
        return 0 if session is None else session.session_id

    def has_its_node(self, node: Node) -> bool:
        """/brokers/ids/N is there, made by the session that its process has now."""
        found = self.ensemble.tree.get(self.ROOT + znode_paths.broker_id(node.broker_id))
        return found is not None and found.session == self.session_id(node) != 0

    def acked(self) -> int:
        """How many records were."""
        return sum(len(ledger.acked) for ledger in self.workload.ledgers.values())


def told(tell: Callable[[EnsembleStory], Coroutine[Any, Any, None]]) -> None:
    """Run it; all that the simulation checks must hold as well."""
    outcome = EnsembleStory(tell).run()  # type: ignore[arg-type]
    assert outcome.ok, "\n".join(outcome.trace)


def test_H_08_a_controller_that_was_frozen_past_its_session_is_none_any_more() -> None:
    """It is frozen between a commit and the answer to it, and finds that answer when it goes on."""

    async def tell(story: EnsembleStory) -> None:
        await story.until(story.isr_is_whole)
        node, epoch = story.controller_node(), story._reign().epoch
        assert node is not None
        session_id = story.session_id(node)
        story.ensemble_faults.cut(node, 2.0, ("to_client",))
        story._new_topic(None)
        await story.until(lambda: f"{story.ROOT}{znode_paths.topic('late-0')}" in story.ensemble.tree)
        story.stop(node, 12.0)
        await story.until(lambda: story._reign().epoch > epoch, within_s=8.0)
        assert session_id not in story.ensemble.sessions
        assert node.broker is not None and node.broker.controller is not None and node.broker.controller.epoch == epoch
        await story.until(lambda: node.broker is not None and node.broker.controller is None)
        await story.until(lambda: story.has_its_node(node) and story.isr_is_whole())
        assert story._reign().epoch > epoch

    told(tell)


def test_H_10_a_broker_that_comes_back_inside_its_old_session_has_its_node_within_two_seconds() -> None:
    async def tell(story: EnsembleStory) -> None:
        await story.until(story.isr_is_whole)
        reign = story._reign()
        for node in (story.nodes[reign._broker.broker_id % 3], story.controller_node()):
            assert node is not None
            await story.until(lambda node=node: story.has_its_node(node))  # type: ignore[misc]
            before = story.session_id(node)
            story.down(node, 0.2)
            await story.until(lambda node=node: story.has_its_node(node), within_s=2.2)  # type: ignore[misc]
            assert story.session_id(node) != before in story.ensemble.sessions
            await story.until(story.isr_is_whole)

    told(tell)


def test_H_11_a_candidate_whose_session_expires_while_it_asks_lets_time_pass() -> None:
    """Seed 12: it asked the session that was over again and again, at full speed, until it had heard that it is."""

    async def tell(story: EnsembleStory) -> None:
        await story.until(story.isr_is_whole)
        for at_s in (0.7, 0.95, 1.2):  # on its way to the claim
            controller = story.controller_node()
            assert controller is not None
            node = story.nodes[controller.broker_id % 3]
            before = story.session_id(node)
            story.ensemble.slow(0.5)
            story.ensemble.take_away(story.ROOT + znode_paths.CONTROLLER)
            await asyncio.sleep(at_s)
            story.ensemble.end_session(before)
            story.ensemble.slow(0.001)
            await story.until(story.isr_is_whole)
            await story.until(lambda node=node: story.has_its_node(node))  # type: ignore[misc]
            assert story.session_id(node) != before

    told(tell)


def test_a_broker_whose_session_expires_while_it_starts_takes_another_one() -> None:
    """Seed 694580439: it ended."""

    async def tell(story: EnsembleStory) -> None:
        await story.until(story.isr_is_whole)
        controller = story.controller_node()
        assert controller is not None
        node = story.nodes[controller.broker_id % 3]
        story.ensemble.slow(0.5)
        story.down(node, 0.2)
        await story.until(lambda: node.process is not None and node.process.alive and story.session_id(node) != 0)
        await asyncio.sleep(0.2)
        before, process = story.session_id(node), node.process
        story.ensemble.end_session(before)
        story.ensemble.slow(0.001)
        await story.until(lambda: story.has_its_node(node) and story.isr_is_whole())
        assert story.session_id(node) != before
        assert node.process is process

    told(tell)


def test_brokers_serve_while_the_ensemble_is_away_and_nobody_is_fenced() -> None:
    async def tell(story: EnsembleStory) -> None:
        await story.until(
            lambda: story.isr_is_whole() and story.acked() > 0
        )  # a producer has its id from the controller
        before = story._reign()
        leaders = [p.leader for t in before.image.topics.values() for _, p in t.numbered()]
        story.ensemble.down()
        acked = story.acked()
        until_s = story.loop.time() + 15.0
        await story.until(lambda: story.loop.time() > until_s)
        assert story.acked() > acked
        story.ensemble.up()
        await story.until(story.isr_is_whole)
        assert story._reign() is before
        assert leaders == [p.leader for t in before.image.topics.values() for _, p in t.numbered()]

    told(tell)
