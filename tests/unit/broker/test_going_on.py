"""What goes wrong once keeps nobody from trying again (house.md D13)."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from holdfast.broker import replica_fetcher
from holdfast.broker.outbox import BrokerOutbox
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition
from holdfast.replication.types import IsrOutcome, IsrProposal
from tests.unit.broker.conftest import until

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
UNUSABLE = "x" * 70
"""No name of a host can have so long a part: looking it up raises a UnicodeError."""


class Fetcher:
    """Partitions that want to be fetched from broker 2."""

    source, directory, is_empty = 2, "d", False

    def __init__(self) -> None:
        self.failures: list[HoldfastError] = []

    def on_failure(self, error: HoldfastError, now_ms: int) -> None:
        self.failures.append(error)
        if len(self.failures) == 2:
            raise AssertionError("this one as well")


def test_D13_a_leader_whose_address_is_of_no_use_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_fetcher, "RECONNECT_S", 0.001)

    async def check() -> None:
        where = SimpleNamespace(host=UNUSABLE, port=9)
        metadata = SimpleNamespace(brokers={2: where})
        broker: Any = SimpleNamespace(broker_id=1, metadata=metadata, now_ms=lambda: 0, suspect=lambda _: None)
        fetcher: Any = Fetcher()
        link = replica_fetcher._Link(broker, fetcher)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        link.schedule()
        await until(lambda: len(fetcher.failures) >= 4)
        link.close()

    asyncio.run(check())


class Replicas:
    """Partitions that hear what became of their proposals; the first one fails on it."""

    def __init__(self) -> None:
        self.told: list[TopicPartition] = []

    def alter_partition_result(self, proposal: IsrProposal, outcome: IsrOutcome | HoldfastError, now_ms: int) -> None:
        self.told.append(proposal.topic_partition)
        if proposal.topic_partition == FIRST:
            raise AssertionError("a bug")


class Controller:
    """One that answers for nothing, and takes its time for the first question."""

    broker_epoch = 1

    def __init__(self) -> None:
        self.asked = 0
        self.goes_on = asyncio.Event()

    async def connected(self) -> None:
        return

    async def ask(self, *what: Any, topics: Sequence[Any], **more: Any) -> Any:
        self.asked += 1
        await self.goes_on.wait()
        return SimpleNamespace(error_code=0, topics=())


def proposal(tp: TopicPartition) -> IsrProposal:
    return IsrProposal(tp, UUID(int=1), 0, 0, ((1, None),))


def test_D13_a_partition_that_fails_on_its_answer_keeps_nobody_from_proposing() -> None:
    async def check() -> None:
        controller, replicas = Controller(), Replicas()
        broker: Any = SimpleNamespace(broker_id=1, membership=controller, replicas=replicas, now_ms=lambda: 0)
        outbox = BrokerOutbox(broker)
        outbox.alter_partition((proposal(FIRST), proposal(SECOND)))
        await until(lambda: controller.asked == 1)
        outbox.alter_partition((proposal(SECOND),))
        controller.goes_on.set()
        await until(lambda: replicas.told == [FIRST, SECOND, SECOND])
        assert controller.asked == 2

    asyncio.run(check())
