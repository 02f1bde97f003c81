"""Leaders, ISRs and epochs after failures, as Apache Kafka 4.3.0 chose them for the same partitions."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from uuid import UUID

from holdfast.controller import events
from holdfast.controller.controller import Controller
from holdfast.controller.settings import ControllerSettings
from holdfast.metadata.image import ClusterImage
from holdfast.model.listeners import Endpoints
from holdfast.model.types import TopicPartition

GOLDEN = Path(__file__).parents[2] / "golden" / "placement" / "leaders_after_failures_4.3.0.json"
STEPS: dict[str, dict[str, dict[str, Any]]] = {
    step["label"]: step["partitions"] for step in json.loads(GOLDEN.read_text()) if "label" in step
}


class Cluster:
    def __init__(self) -> None:
        self.controller = Controller(ClusterImage.empty("c"), ControllerSettings(), random.Random(7))

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def ask(self, event: Any) -> Any:
        decision = self.controller.handle(event, 0)
        self.controller.replay(decision.records, self.image.next_offset)
        return decision.reply

    def start(self, broker: int, incarnation: int) -> None:
        reply = self.ask(
            events.BrokerRegister(
                broker_id=broker, incarnation_id=UUID(int=incarnation), endpoints=Endpoints.one("h", broker)
            )
        )
        self.ask(events.BrokerHeartbeat(broker_id=broker, broker_epoch=reply.broker_epoch))

    def rejoin(self, broker: int) -> None:
        """Every leader finds the broker in sync again."""
        for topic in self.image.sorted_topics():
            for number, p in topic.numbered():
                if broker in p.replicas and broker not in p.isr and p.leader is not None:
                    state = events.AlterPartitionState(
                        topic_id=topic.topic_id,
                        partition=number,
                        leader_epoch=p.leader_epoch,
                        partition_epoch=p.partition_epoch,
                        isr=tuple((member, None) for member in sorted((*p.isr, broker))),
                    )
                    leader = self.image.brokers[p.leader]
                    reply = self.ask(
                        events.AlterPartition(broker_id=leader.id, broker_epoch=leader.epoch, partitions=(state,))
                    )
                    assert reply.partitions[0].error is None

    def compare(self, label: str) -> int:
        compared = 0
        for name, expected in STEPS[label].items():
            topic, _, number = name.rpartition("-")
            p = self.image.partition(topic, int(number))
            assert p is not None
            assert p.leader == expected["leader"], (label, name)
            assert set(p.isr) == set(expected["isr"]), (label, name)
            assert p.leader_epoch == expected["leader_epoch"], (label, name)
            compared += 1
        return compared


def test_C25_leaders_after_failures_are_kafkas() -> None:
    cluster = Cluster()
    for broker in (1, 2, 3):
        cluster.start(broker, broker)
    topics: dict[str, dict[int, tuple[int, ...]]] = {}
    for name, p in STEPS["all alive"].items():
        where = TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2]))
        topics.setdefault(where.topic, {})[where.partition] = tuple(p["replicas"])
    cluster.ask(
        events.CreateTopics(
            topics=tuple(
                events.TopicToCreate(name=name, assignments=tuple(sorted(parts.items())))
                for name, parts in topics.items()
            )
        )
    )
    assert cluster.compare("all alive") >= 40
    epoch = cluster.image.brokers[1].epoch
    cluster.ask(events.BrokerConnectionLost(broker_id=1, broker_epoch=epoch, refused=True))
    cluster.compare("broker 1 killed")
    cluster.start(1, 11)
    cluster.rejoin(1)
    cluster.compare("broker 1 back, in the isr again, before any preferred election")
    cluster.ask(events.ElectLeaders())
    cluster.compare("after ElectLeaders preferred, all partitions")
    two = cluster.image.brokers[2]
    cluster.ask(events.BrokerHeartbeat(broker_id=2, broker_epoch=two.epoch, want_shutdown=True))
    cluster.ask(events.BrokerConnectionLost(broker_id=2, broker_epoch=two.epoch, refused=True))
    cluster.compare("broker 2 stopped by SIGTERM (exit code 143)")
