"""What the controller last told this broker about the cluster (UpdateMetadata).

Owns the broker's view: live brokers, topics, leaders, configs. Changed only by ``update``; read by every handler.
Never asks anybody. Requests of an older controller are refused by the caller (handlers/interbroker.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.broker.kept_answers import KeptAnswers
from holdfast.model.types import BrokerId, TopicPartition
from holdfast.protocol.interbroker import DEFAULT_BROKER, DELETED_LEADER, TYPE_FULL, endpoints_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.model.listeners import Endpoints


@dataclasses.dataclass(frozen=True, slots=True)
class LiveBroker:
    """A broker that the controller counts as alive."""

    id: BrokerId
    endpoints: Endpoints
    rack: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition as clients see it."""

    leader: BrokerId | None
    leader_epoch: int
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...]


class MetadataCache:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.me: LiveBroker | None = None
        """The broker that this is of, once it has its addresses."""
        self.cluster_id: str | None = None
        self.controller_id: BrokerId | None = None
        self.controller_epoch = -1
        self.brokers: dict[BrokerId, LiveBroker] = {}
        self.topics: dict[str, dict[int, PartitionInfo]] = {}
        self.topic_ids: dict[str, UUID] = {}
        self.topic_names: dict[UUID, str] = {}
        self.topic_configs: dict[str, Mapping[str, str]] = {}
        self.broker_configs: dict[BrokerId | None, Mapping[str, str]] = {}
        """Dynamic configurations; None is the cluster-wide default."""
        self.features: Mapping[str, int] = {}
        """Levels that are in force (model/features.py)."""
        self.offset = -1
        """Of the metadata, as of which all this is; -1: nothing was told yet."""
        self.suspects: set[BrokerId] = set()
        """Brokers whose connection to us ended and that the controller still counts as alive. Clients are not sent to
        them: a client that learns of a dead leader as leader comes back a second later."""
        self.departed: dict[BrokerId, LiveBroker] = {}
        """Brokers that died a moment ago. Clients still get their address: librdkafka, told in one answer that a
        broker is gone and that another leads, loses the new leader until it asks again a second later."""
        self.updates = 0
        """Number of updates applied; waiters compare it."""
        self.answers = KeptAnswers()
        """To Metadata, encoded; see ``state``."""
        self._waiters: list[Callable[[], None]] = []

    def listed(self, *, with_departed: bool = False) -> list[LiveBroker]:
        """Whom clients hear of: the living; this broker, which answers, if there is nobody. After all brokers have died
        the first one may be back before the controller counts anybody as alive, and a client that hears of nobody has
        nobody left to ask: librdkafka (2.16) ends every connection that it has, and may never read again."""
        found = [*self.brokers.values(), *(self.departed.values() if with_departed else ())]
        return found or ([] if self.me is None else [self.me])

    @property
    def state(self) -> Hashable:
        """Differs where something of what is told of topics and brokers does."""
        return self.updates, frozenset(self.suspects), tuple(self.departed)

    def leads(self, broker: BrokerId | None) -> bool:
        """True for a broker that clients should be sent to."""
        return broker in self.brokers and broker not in self.suspects

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """What is known of a partition, or None."""
        topic = self.topics.get(tp.topic)
        return None if topic is None else topic.get(tp.partition)

    def resolve(self, topic: str | UUID) -> str | None:
        """Topic name of a name or id; None when the id is not known."""
        return topic if isinstance(topic, str) else self.topic_names.get(topic)

    def update(self, request: Any) -> set[str]:
        """Apply one UpdateMetadata request (protocol/interbroker.py). Returns the topics whose configs changed."""
        self.controller_id = request.controller_id
        self.controller_epoch = request.controller_epoch
        self.offset = request.metadata_offset
        self.features = {feature.name: feature.level for feature in request.features}
        if request.cluster_id:
            self.cluster_id = request.cluster_id
        before, self.brokers = self.brokers, {}
        for broker in request.live_brokers:
            endpoints = endpoints_of(broker, ((endpoint.listener, endpoint) for endpoint in broker.endpoints))
            self.brokers[broker.id] = LiveBroker(broker.id, endpoints, broker.rack)
        if request.type == TYPE_FULL:
            named = {topic.topic_name for topic in request.topic_states}
            for name in [n for n in self.topics if n not in named]:
                self._forget(name)
            configured = {config.topic for config in request.topic_configs}
            self.topic_configs = {t: c for t, c in self.topic_configs.items() if t in configured}
            self.broker_configs.clear()
        self.suspects.intersection_update(self.brokers)  # in place: timers hold on to this set
        self.departed |= {b: seen for b, seen in before.items() if b not in self.brokers}
        for broker_id in self.brokers:
            self.departed.pop(broker_id, None)
        for topic in request.topic_states:
            self._update_topic(topic)
        changed = set()
        for config in request.topic_configs:
            new = {entry.key: entry.value for entry in config.configs}
            if self.topic_configs.get(config.topic, {}) != new:
                changed.add(config.topic)
            self.topic_configs[config.topic] = new
        for config in request.broker_configs:
            broker = None if config.broker == DEFAULT_BROKER else config.broker
            self.broker_configs[broker] = {entry.key: entry.value for entry in config.configs}
        self.updates += 1
        waiters, self._waiters = self._waiters, []
        for wake in waiters:
            wake()
        return changed

    def _update_topic(self, topic: Any) -> None:
        name = topic.topic_name
        partitions = dict(self.topics.get(name, {}))
        known_id = self.topic_ids.get(name)
        deleting = [p for p in topic.partition_states if p.leader == DELETED_LEADER]
        if deleting and known_id is not None and topic.topic_id != known_id:
            return  # an earlier topic of the same name
        if known_id is not None and topic.topic_id != known_id:
            partitions.clear()
            self.topic_names.pop(known_id, None)
        for p in topic.partition_states:
            if p.leader == DELETED_LEADER:
                partitions.pop(p.partition_index, None)
                continue
            partitions[p.partition_index] = PartitionInfo(
                leader=None if p.leader < 0 else p.leader,
                leader_epoch=p.leader_epoch,
                isr=tuple(p.isr),
                replicas=tuple(p.replicas),
                offline=tuple(p.offline_replicas),
            )
        if partitions:
            self.topics[name] = partitions
            self.topic_ids[name] = topic.topic_id
            self.topic_names[topic.topic_id] = name
        else:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self.topics.pop(name, None)
        self.topic_configs.pop(name, None)
        topic_id = self.topic_ids.pop(name, None)
        if topic_id is not None:
            self.topic_names.pop(topic_id, None)

    def learn(self, name: str, topic_id: UUID | None) -> None:
        """A topic's id from LeaderAndIsr, which comes before the metadata that has it."""
        if topic_id is not None and self.topic_ids.get(name) != topic_id:
            self.topic_names[topic_id] = name
            if name not in self.topics:
                self.topic_ids[name] = topic_id

    def on_next_update(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once, after the next update."""
        self._waiters.append(wake)
