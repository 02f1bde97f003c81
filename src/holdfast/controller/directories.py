"""Replicas of live brokers that are offline because their log dir is dead (KIP-112), or strained because it is full or
slow.

Soft state: brokers tell it by KAFKA_STORAGE_ERROR in the answer to LeaderAndIsr, or with a heartbeat; it is never in
the metadata log, and it ends when the broker says so or registers anew. Which dir a replica is in is the broker's
business.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TypeAlias

from holdfast.model.types import BrokerId, TopicId

Replicas: TypeAlias = Set[tuple[TopicId, int]]
"""Partitions of which one broker's replica is meant."""


class BrokerReplicas(Mapping[BrokerId, Replicas]):
    """Broker -> those of its replicas to which the same happened."""

    __slots__ = ("_by_broker",)

    def __init__(self) -> None:
        self._by_broker: dict[BrokerId, set[tuple[TopicId, int]]] = {}

    def __getitem__(self, broker: BrokerId) -> Replicas:
        return self._by_broker[broker]

    def __iter__(self) -> Iterator[BrokerId]:
        return iter(self._by_broker)

    def __len__(self) -> int:
        return len(self._by_broker)

    def holds(self, broker: BrokerId, topic_id: TopicId, partition: int) -> bool:
        """Whether the broker's replica of the partition is one of them."""
        replicas = self._by_broker.get(broker)
        return replicas is not None and (topic_id, partition) in replicas

    def add(self, broker: BrokerId, replicas: Iterable[tuple[TopicId, int]]) -> None:
        """These replicas of the broker are among them from now on."""
        more = set(replicas)
        if more:
            self._by_broker.setdefault(broker, set()).update(more)

    def discard(self, broker: BrokerId, replica: tuple[TopicId, int]) -> bool:
        """This replica is as it should be; whether it was not before."""
        replicas = self._by_broker.get(broker)
        if replicas is None or replica not in replicas:
            return False
        replicas.discard(replica)
        if not replicas:
            del self._by_broker[broker]
        return True

    def forget_broker(self, broker: BrokerId) -> None:
        """The broker starts anew: nothing is known of its dirs."""
        self._by_broker.pop(broker, None)

    def forget_topic(self, topic_id: TopicId) -> None:
        """The topic is gone."""
        for broker in list(self._by_broker):
            left = {replica for replica in self._by_broker[broker] if replica[0] != topic_id}
            if left:
                self._by_broker[broker] = left
            else:
                del self._by_broker[broker]
