"""The offsets of a stream as they stand in Spark's checkpoint. Pure: no cluster, no Spark.

The JSON is that of Spark's Kafka source, {"topic":{"0":123}}, and one key more, which no topic can have for a name:

    "@holdfast": {"topics": {"t": "8c4b..."},        the topic's id, in hexadecimal digits with hyphens
                  "epochs": {"t": {"0": 5}},         the leader epoch of the log's end when the offset was planned
                  "begins": {"t": {"0": 10}}}        where the batch that ends here begins, if elsewhere

A checkpoint of Spark's own source, or of an older version of this one, has no such key: then nothing is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from holdfast.model.types import LeaderEpoch, TopicPartition
from holdfast.spark.ranges import Positions, from_json, to_json

OWN_KEY: Final = "@holdfast"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """How far a batch goes, and what else must be known when it is read again or the next one is planned."""

    positions: Positions
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    epochs: dict[TopicPartition, LeaderEpoch] = field(default_factory=dict)
    begins: Positions = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> "StreamOffset":
        own = text.get(OWN_KEY, {})
        return cls(
            positions=from_json(text),
            topic_ids={topic: UUID(each) for topic, each in own.get("topics", {}).items()},
            epochs=from_json(own.get("epochs", {})),
            begins=from_json(own.get("begins", {})),
        )

    def to_json(self) -> dict[str, Any]:
        """Equal offsets are equal text."""
        own: dict[str, Any] = {}
        if self.topic_ids:
            own["topics"] = {topic: str(self.topic_ids[topic]) for topic in sorted(self.topic_ids)}
        if self.epochs:
            own["epochs"] = to_json(self.epochs)
        if self.begins:
            own["begins"] = to_json(self.begins)
        return {**to_json(self.positions), **({OWN_KEY: own} if own else {})}
