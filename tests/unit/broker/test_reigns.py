"""Reigns one after the other: what the store tells of its own accord, and which errors end the process."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from holdfast.broker.controller_loop import ControllerLoop
from holdfast.broker.disk_io import DiskThread
from holdfast.broker.platform import Platform
from holdfast.broker.reigns import Reigns
from holdfast.controller import events
from holdfast.controller.settings import ControllerSettings
from holdfast.metadata.store import Candidate, Fatal, InMemoryStore, Judgement, SharedMemory
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import KafkaStorageError, NotControllerError
from holdfast.model.listeners import Endpoints
from tests.unit.broker.conftest import DEADLINE_S, Listener, until

TWO = Candidate(broker_id=2, host="127.0.0.1", port=1)


class Surroundings:
    """The broker that claims and reigns."""

    broker_id = 1
    broker_epoch = -1
    meters = None

    def __init__(self) -> None:
        self.platform = Platform.real()
        self.config = BrokerConfig.parse({"node.id": "1"})
        self.controller: ControllerLoop | None = None
        self.stopping = asyncio.Event()
        self.threads: list[DiskThread] = []
        self.ended_by: list[str] = []

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def controller_settings(self) -> ControllerSettings:
        return ControllerSettings()

    def suspect(self, broker_id: int | None) -> None:
        """Nobody reads what this broker would tell."""

    def thread(self, name: str) -> DiskThread:
        self.threads.append(DiskThread(name, asyncio.get_running_loop()))
        return self.threads[-1]

    def fatal(self, reason: str) -> None:
        self.ended_by.append(reason)
        self.stopping.set()

    async def reigns(self, epoch: int) -> ControllerLoop:
        """The reign of this epoch, once it has begun."""
        await until(lambda: self.controller is not None and self.controller.epoch == epoch)
        assert self.controller is not None
        return self.controller


@asynccontextmanager
async def reigning(store: InMemoryStore) -> AsyncIterator[Surroundings]:
    broker, listener = Surroundings(), Listener()
    reigns = Reigns(broker, store)
    running = asyncio.ensure_future(reigns.run(Candidate(broker_id=1, host="127.0.0.1", port=listener.port)))
    try:
        yield broker
    finally:
        broker.stopping.set()
        running.cancel()
        await asyncio.wait([running])
        await reigns.close()
        listener.close()
        for thread in broker.threads:
            thread.close()


def test_H_08_a_reign_ends_when_the_store_tells_that_its_claim_is_lost() -> None:
    """Nothing is committed meanwhile that could fail: the news alone ends it, and the next claim follows."""

    async def check() -> None:
        shared = SharedMemory()
        async with reigning(InMemoryStore(shared)) as broker:
            first = await broker.reigns(1)
            news = threading.Thread(target=lambda: InMemoryStore(shared).claim(TWO))  # of any thread
            news.start()
            async with asyncio.timeout(DEADLINE_S):
                await first.ended.wait()
            news.join()
            with pytest.raises(NotControllerError):
                await first.submit(events.DeleteTopics(topics=()))
            assert (await broker.reigns(3)) is not first

    asyncio.run(check())


def test_H_08_who_waits_for_a_commit_that_hangs_hears_at_once_that_the_claim_is_lost() -> None:
    async def check() -> None:
        shared, goes_on = SharedMemory(), threading.Event()
        store = InMemoryStore(shared)
        store.on_commit = lambda records: _wait(goes_on)
        async with reigning(store) as broker:
            first = await broker.reigns(1)
            waiting = asyncio.ensure_future(first.submit(_register(2, 1)))
            await until(lambda: broker.threads[0].waiting)
            InMemoryStore(shared).claim(TWO)
            async with asyncio.timeout(DEADLINE_S):
                with pytest.raises(NotControllerError):
                    await waiting
            assert not goes_on.is_set()
            goes_on.set()
            await broker.reigns(3)

    asyncio.run(check())


def test_H_08_news_that_comes_before_the_reign_has_begun_ends_it_too() -> None:
    class Late(InMemoryStore):
        """Another broker claims while this one loads, and the load does not see it."""

        def load(self, claim: Any) -> Any:
            loaded = super().load(claim)
            if claim.epoch == 1:
                InMemoryStore(self._shared).claim(TWO)
            return loaded

    async def check() -> None:
        async with reigning(Late()) as broker:
            await broker.reigns(3)

    asyncio.run(check())


def test_a_broker_whose_session_in_the_store_is_over_is_fenced_at_once() -> None:
    """Its port is open and its connections are: the store knows better."""

    async def check() -> None:
        store, listener = InMemoryStore(), Listener()
        async with reigning(store) as broker:
            reign = await broker.reigns(1)
            epoch = (await reign.submit(_register(2, listener.port))).broker_epoch
            await reign.submit(events.BrokerHeartbeat(broker_id=2, broker_epoch=epoch))
            assert not reign.image.brokers[2].fenced
            store.end_session(2, epoch - 1)  # an earlier incarnation's
            await reign.submit(events.BrokerHeartbeat(broker_id=2, broker_epoch=epoch))
            assert not reign.image.brokers[2].fenced
            store.end_session(2, epoch)
            await until(lambda: reign.image.brokers[2].fenced)
        listener.close()

    asyncio.run(check())


def test_H_23_a_process_ends_when_the_store_says_that_no_claim_can_work() -> None:
    class Bad(InMemoryStore):
        """Neither can be read nor written."""

        def claim(self, candidate: Any, news: Any = None) -> Any:
            raise KafkaStorageError("an error")

        def judge(self) -> Judgement:
            return Fatal(reason="the last line")

    async def check() -> None:
        async with reigning(Bad()) as broker:
            await until(broker.stopping.is_set)
            assert broker.ended_by == ["the last line"]

    asyncio.run(check())


def _register(broker_id: int, port: int) -> events.BrokerRegister:
    return events.BrokerRegister(
        broker_id=broker_id, incarnation_id=UUID(int=9), endpoints=Endpoints.one("127.0.0.1", port)
    )


def _wait(goes_on: threading.Event) -> None:
    assert goes_on.wait(DEADLINE_S)
