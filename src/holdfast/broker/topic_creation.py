"""Topics that come into being by being asked for: automatic creation, and the topics of coordinators.

Owns the set of names under way, so that a client that asks a hundred times makes one request to the controller.

A topic of coordinators keeps the number of replicas that it is made with for good. So the factor that the file says is
waited for, as in Kafka: until there are as many brokers, a client hears COORDINATOR_NOT_AVAILABLE. Where the file says
none, nobody has asked for more than the cluster has, and it gets what it can hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from holdfast.broker.entity import build
from holdfast.model.errors import HoldfastError, InvalidReplicationFactorError
from holdfast.protocol.apis import ApiKey, request_type
from holdfast.protocol.error_codes import error_of

if TYPE_CHECKING:
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.model.config import BrokerConfig

log = logging.getLogger(__name__)


class _Keys(NamedTuple):
    """The keys by which the topic of a coordinator is made, and what is said of it beside them."""

    partitions: str
    factor: str
    segment: str
    configs: Mapping[str, str]
    min_isr: str | None = None


OF_COORDINATORS: Final = {
    "__consumer_offsets": _Keys(
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
        {"compression.type": "producer"},
    ),
    "__transaction_state": _Keys(
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        "transaction.state.log.segment.bytes",
        {"compression.type": "uncompressed", "unclean.leader.election.enable": "false"},
        "transaction.state.log.min.isr",
    ),
}
CREATE_VERSION = 7
CREATE_TIMEOUT_S = 10.0
MAX_UNDER_WAY = 1000


class CreatingHost(Protocol):
    """What the creation of topics asks of the broker."""

    config: BrokerConfig
    metadata: MetadataCache

    async def ask_controller(self, api: ApiKey, version: int, request: Any, timeout_s: float) -> Any: ...


class TopicCreation:
    """See the module's docstring."""

    def __init__(self, broker: CreatingHost) -> None:
        self._broker = broker
        self._under_way: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[str] = set()
        """Topics of coordinators that wait for brokers, which was told once."""

    def auto_create(self, names: Iterable[str]) -> None:
        """Ask the controller for these topics, unless that is under way already. Failures are logged."""
        new = [n for n in names if n not in self._under_way][: MAX_UNDER_WAY - len(self._under_way)]
        if not new:
            return
        self._under_way.update(new)
        task = asyncio.get_running_loop().create_task(self._create(new))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create(self, names: list[str]) -> None:
        try:
            too_few = await self._ask([self._topic(name) for name in names])
            self._waiting.difference_update(set(names).difference(too_few))
            smaller = [name for name in too_few if not self._waits(name)]
            fewer = self._copies_now() if smaller else None
            if fewer is not None:
                await self._ask([self._topic(name, fewer) for name in smaller])
        except HoldfastError as e:
            log.warning("topics %s were not made: %s", ", ".join(names), e)
        finally:
            self._under_way.difference_update(names)

    async def _ask(self, topics: list[dict[str, Any]]) -> list[str]:
        """Have them made. Those of coordinators for which the cluster has too few brokers."""
        request = build(
            request_type(ApiKey.CREATE_TOPICS, CREATE_VERSION),
            {"topics": topics, "timeout": 5000, "validate_only": False},
        )
        answer = await self._broker.ask_controller(ApiKey.CREATE_TOPICS, CREATE_VERSION, request, CREATE_TIMEOUT_S)
        too_few = []
        for topic in answer.topics:
            error = error_of(int(topic.error_code), topic.error_message or "")
            if isinstance(error, InvalidReplicationFactorError) and topic.name in OF_COORDINATORS:
                too_few.append(str(topic.name))
            elif error is not None:
                log.info("topic %s was not made: %s", topic.name, error)
        return too_few

    def _waits(self, name: str) -> bool:
        """Whether it is not made until there are as many brokers as the file says."""
        config, factor = self._broker.config, OF_COORDINATORS[name].factor
        if factor not in config.static:
            return False
        if name not in self._waiting:
            self._waiting.add(name)
            log.warning(
                "topic %s waits for brokers, and clients with it: %s=%d, and %d are alive", name, factor,
                config.int(factor), len(self._broker.metadata.brokers),
            )  # fmt: skip
        return True

    def _copies_now(self) -> int | None:
        """How many replicas the cluster can hold; None while a broker that has some is down. A topic that is made then
        would keep the smaller number for good, and stop with the next broker that dies."""
        metadata = self._broker.metadata
        alive = set(metadata.brokers)
        for partitions in metadata.topics.values():
            for info in partitions.values():
                if not alive.issuperset(info.replicas):
                    return None
        return max(1, len(alive))

    def _topic(self, name: str, most: int | None = None) -> dict[str, Any]:
        config = self._broker.config
        keys = OF_COORDINATORS.get(name)
        if keys is None:
            return {"name": name, "num_partitions": -1, "replication_factor": -1}
        factor = config.int(keys.factor) if most is None else min(config.int(keys.factor), most)
        configs = {"cleanup.policy": "compact", "segment.bytes": str(config.int(keys.segment)), **keys.configs}
        if keys.min_isr is not None:
            configs["min.insync.replicas"] = str(config.int(keys.min_isr))
        return {
            "name": name,
            "num_partitions": config.int(keys.partitions),
            "replication_factor": factor,
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
