"""What tools ask of the controller through the metadata store: the same decisions as by requests to it.

Nobody waits for the answer: what is refused is a line in the log, and the request is over by that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from holdfast.controller import events
from holdfast.controller.settings import ControllerSettings
from holdfast.metadata.store import Asked, DeletionAsked, ElectionAsked
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import ElectionNotNeededError, HoldfastError, NotControllerError, RequestTimedOutError

log = logging.getLogger(__name__)

AGAIN_S: Final = 1.0
MAX_LINES: Final = 20
"""Of refusals in the log, for one request."""


class Reign(Protocol):
    """Where it is decided (ControllerLoop)."""

    async def submit(self, event: Any) -> Any: ...


async def obey(reign: Reign, config: BrokerConfig, asked: Asked, decided: Callable[[], None]) -> None:
    """Have it decided; ``decided`` is called then, and not when the reign is over before."""
    try:
        if isinstance(asked, DeletionAsked):
            await _delete(reign, config, asked)
        elif isinstance(asked, ElectionAsked):
            partitions = tuple((tp.topic, tp.partition) for tp in asked.partitions)
            elected = await _submit(reign, events.ElectLeaders(partitions=partitions))
            _refused((f"{r.topic}-{r.partition}", r.error) for r in elected.partitions)
        else:
            limit = ControllerSettings.of(config).max_partitions_per_request
            moves = [
                events.Reassignment(topic=tp.topic, partition=tp.partition, replicas=replicas)
                for tp, replicas in asked.replicas.items()
            ]
            for first in range(0, len(moves), limit):
                event = events.AlterReassignments(partitions=tuple(moves[first : first + limit]))
                moved = await _submit(reign, event)
                _refused((f"{r.topic}-{r.partition}", r.error) for r in moved.partitions)
    except NotControllerError:
        return  # the next controller finds it
    except HoldfastError as e:
        log.warning("what a tool asks is refused: %s", e)
    decided()


async def _delete(reign: Reign, config: BrokerConfig, asked: DeletionAsked) -> None:
    if not config.bool("delete.topic.enable"):
        log.warning("the deletion of %d topics is refused: delete.topic.enable is false", len(asked.topics))
        return
    reply = await _submit(reign, events.DeleteTopics(topics=tuple((name, None) for name in asked.topics)))
    _refused((str(r.name), r.error) for r in reply.topics)


async def _submit(reign: Reign, event: Any) -> Any:
    while True:
        try:
            return await reign.submit(event)
        except RequestTimedOutError as e:  # its queue is full
            log.warning("what a tool asks waits: %s", e)
            await asyncio.sleep(AGAIN_S)


def _refused(results: Iterable[tuple[str, HoldfastError | None]]) -> None:
    refused = [(name, e) for name, e in results if e is not None and not isinstance(e, ElectionNotNeededError)]
    for name, error in refused[:MAX_LINES]:
        log.warning("what a tool asks of %s is refused: %s", name, error)
    if len(refused) > MAX_LINES:
        log.warning("and so is what it asks of %d others", len(refused) - MAX_LINES)
