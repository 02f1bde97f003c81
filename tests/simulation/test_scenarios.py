"""What the simulation found, each as a story of its own: found first, told here, then fixed."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from tests.simulation.cluster import Simulation
from tests.simulation.watch import Violation


class Story(Simulation):
    """A cluster under load to which just the things happen that ``tell`` says."""

    def __init__(self, tell: Callable[[Story], Coroutine[Any, Any, None]]) -> None:
        super().__init__(1, duration_s=20.0, faults=[])
        self.network.ghost_share = 0.0
        self._tell = tell

    async def _faults(self) -> None:
        await self._tell(self)

    async def until(self, condition: Callable[[], bool], within_s: float = 30.0) -> None:
        """Wait in virtual time."""
        deadline = self.loop.time() + within_s
        while not condition():
            if self.loop.time() > deadline:
                raise Violation(f"not within {within_s:g} s")
            await asyncio.sleep(0.05)

    def isr_is_whole(self) -> bool:
        """Every replica of every partition is in sync."""
        reign = self._reign()
        return reign is not None and all(
            set(p.isr) == set(p.replicas) for t in reign.image.topics.values() for _, p in t.numbered()
        )


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
