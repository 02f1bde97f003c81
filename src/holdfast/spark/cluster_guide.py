"""What a task that reads asks the cluster when something has changed since it was planned."""

from typing import Any
from uuid import UUID

from holdfast.model.types import BrokerId, LeaderEpoch, TopicPartition
from holdfast.spark.options import ReadOptions
from holdfast.spark.ranges import Leader


class ClusterGuide:
    """Asks the cluster from an executor; imports what that takes only when something has changed."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._topics: Any = None

    def _asked(self) -> Any:
        if self._topics is None:
            from holdfast.spark.topics import Topics

            self._topics = Topics(self._options)
        return self._topics

    def leader(self, tp: TopicPartition) -> Leader:
        found: Leader = self._asked().leader(tp)
        return found

    def broker(self, broker_id: BrokerId, epoch: LeaderEpoch | None) -> Leader | None:
        found: Leader | None = self._asked().broker(broker_id, epoch)
        return found

    def bounds(self, tp: TopicPartition) -> tuple[int, int]:
        found: tuple[int, int] = self._asked().bounds(tp)
        return found

    def is_gone(self, tp: TopicPartition, topic_id: UUID) -> bool:
        topics = self._asked()
        topics.leaders([tp])
        gone: bool = topics.topic_ids({tp.topic: topic_id}).get(tp.topic, topic_id) != topic_id
        return gone

    def data_loss(self, text: str) -> None:
        self._asked().data_loss(text)
