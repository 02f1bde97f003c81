"""How many replicas the topics of coordinators are made with, and what they wait for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.broker.entity import build
from holdfast.broker.metadata_cache import MetadataCache
from holdfast.broker.topic_creation import TopicCreation
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import InvalidReplicationFactorError
from holdfast.protocol.apis import ApiKey, response_type
from tests.unit.broker.test_metadata_cache import partition, topic, update

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
FACTORS = {OFFSETS: "offsets.topic.replication.factor", TRANSACTIONS: "transaction.state.log.replication.factor"}


class Broker:
    """Asks a controller that makes each topic for which there are enough brokers."""

    def __init__(self, alive: tuple[int, ...], **settings: str) -> None:
        self.config = BrokerConfig.parse(settings)
        self.metadata = MetadataCache()
        update(self.metadata, brokers=alive, full=True)
        self.creation = TopicCreation(self)
        self.made: dict[str, int] = {}

    async def ask_controller(self, api: ApiKey, version: int, request: Any, timeout_s: float) -> Any:
        answers = []
        for wanted in request.topics:
            fits = wanted.replication_factor <= len(self.metadata.brokers)
            if fits:
                self.made[wanted.name] = int(wanted.replication_factor)
            answers.append(
                {"name": wanted.name, "error_code": None if fits else InvalidReplicationFactorError("too few brokers")}
            )
        return build(response_type(api, version), {"topics": answers})

    def wanted(self, *names: str) -> dict[str, int]:
        """Somebody asks for them; which are there after that, and with how many replicas."""

        async def run() -> None:
            self.creation.auto_create(names)
            await asyncio.gather(*self.creation._tasks)

        asyncio.run(run())
        return self.made


@pytest.mark.parametrize("name", [OFFSETS, TRANSACTIONS])
def test_the_factor_of_the_file_is_waited_for(name: str, caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker((1, 2), **{FACTORS[name]: "3"})
    assert broker.wanted(name) == {}
    assert broker.wanted(name) == {}, "asked again, and told once"
    assert [record.getMessage() for record in caplog.records] == [
        f"topic {name} waits for brokers, and clients with it: {FACTORS[name]}=3, and 2 are alive"
    ]
    update(broker.metadata, brokers=(1, 2, 3))
    assert broker.wanted(name) == {name: 3}


@pytest.mark.parametrize("name", [OFFSETS, TRANSACTIONS])
def test_without_a_factor_in_the_file_a_small_cluster_gets_what_it_can_hold(name: str) -> None:
    assert Broker((1, 2)).wanted(name) == {name: 2}
    assert Broker((1,)).wanted(name) == {name: 1}
    assert Broker((1, 2, 3, 4)).wanted(name) == {name: 3}


def test_one_that_waits_does_not_keep_the_other() -> None:
    broker = Broker((1, 2), **{FACTORS[OFFSETS]: "3"})
    assert broker.wanted(OFFSETS, TRANSACTIONS) == {TRANSACTIONS: 2}


def test_without_a_factor_nothing_is_made_while_a_broker_that_has_replicas_is_down() -> None:
    broker = Broker((1, 2))
    update(broker.metadata, topic("t", partition(0, 1, replicas=(1, 3))), brokers=(1, 2))
    assert broker.wanted(OFFSETS) == {}
