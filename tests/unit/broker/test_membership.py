"""The link to the controller: registration, heartbeats, lanes, and the next controller."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from holdfast.broker.membership import Identity, Membership
from holdfast.client.outgoing import Outgoing
from holdfast.metadata.store import Candidate, ControllerLocation, InMemoryStore, SharedMemory
from holdfast.model.errors import BrokerIdNotRegisteredError, NotControllerError, StaleBrokerEpochError
from holdfast.model.fates import ReplicaTurn
from holdfast.model.listeners import Endpoints
from holdfast.model.types import TopicPartition
from holdfast.protocol.apis import ApiKey
from holdfast.storage.incarnation import Past
from tests.unit.broker.conftest import DEADLINE_S, Listener, Values, until


class Told:
    """The directories of the broker."""

    def __init__(self) -> None:
        self.file: tuple[UUID, ...] = (UUID(int=7),)
        self.now: tuple[UUID, ...] | None = None

    def all(self) -> tuple[UUID, ...]:
        return UUID(int=7), UUID(int=9)

    def known_cordoned(self) -> tuple[UUID, ...]:
        return self.file

    def cordoned(self) -> tuple[UUID, ...] | None:
        return self.now


class Member:
    """A membership, and the controllers that it may find."""

    def __init__(self) -> None:
        self.shared = SharedMemory()
        self.store = InMemoryStore(self.shared)
        self.fatal: list[str] = []
        self.lost: list[int] = []
        self.refused: list[ControllerLocation] = []
        self.registrations: list[int] = []
        self.turns: dict[TopicPartition, ReplicaTurn] = {}
        self.told: list[Mapping[TopicPartition, ReplicaTurn]] = []
        self.directories = Told()
        identity = Identity(
            broker_id=2,
            endpoints=Endpoints.one("127.0.0.1", 1),
            rack=None,
            cluster_id=self.shared.cluster_id,
            incarnation_id=UUID(int=8),
        )
        self.membership = Membership(
            identity, self.locate, heartbeat_interval_ms=5, session_timeout_ms=DEADLINE_S * 1000,
            on_fatal=self.fatal.append, offline_dirs=lambda: (), on_lost=self.lost.append,
            on_registered=lambda: self.registrations.append(self.membership.broker_epoch), past=Past((), None),
            turns=lambda: self.turns, on_told=self.told.append, directories=self.directories,
            on_refused=self.refused.append, outgoing=Outgoing(),
        )  # fmt: skip

    async def locate(self) -> ControllerLocation | None:
        return self.store.active()

    def elect(self, broker_id: int, listener: Listener) -> None:
        """``listener`` is the controller from now on."""
        InMemoryStore(self.shared).claim(Candidate(broker_id=broker_id, host="127.0.0.1", port=listener.port))


class ControllerPort(Listener):
    """A controller that registers everybody; ``special`` may answer otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.reply = self._reply
        self.epoch = 40
        self.special: dict[int, Values | None] = {}

    def _reply(self, request: Any) -> Values | None:
        api = int(request.__api_key__)
        if api in self.special:
            return self.special[api]
        if api == ApiKey.BROKER_REGISTRATION:
            self.epoch += 1
            return {"broker_epoch": self.epoch}
        if api == ApiKey.BROKER_HEARTBEAT:
            return {"is_caught_up": True, "is_fenced": False, "should_shut_down": False}
        return {}

    @property
    def heartbeats(self) -> int:
        return len(self.of(ApiKey.BROKER_HEARTBEAT))


@asynccontextmanager
async def member() -> AsyncIterator[tuple[Member, ControllerPort]]:
    one, controller = Member(), ControllerPort()
    one.elect(1, controller)
    one.membership.start()
    async with asyncio.timeout(DEADLINE_S):
        await one.membership.unfenced.wait()
    try:
        yield one, controller
    finally:
        await one.membership.close()
        controller.close()


def test_a_broker_registers_once_and_then_heartbeats() -> None:
    async def check() -> None:
        async with member() as (one, controller):
            assert one.registrations == [41]
            await until(lambda: controller.heartbeats >= 3)
            assert len(controller.of(ApiKey.BROKER_REGISTRATION)) == 1
            assert {r.broker_epoch for r in controller.of(ApiKey.BROKER_HEARTBEAT)} == {41}

    asyncio.run(check())


def test_what_clients_ask_does_not_hold_up_heartbeats_nor_alter_partition() -> None:
    async def check() -> None:
        async with member() as (one, controller):
            controller.special[ApiKey.DELETE_TOPICS] = None  # it waits for a broker that does not answer
            forwarding = one.membership.forward(ApiKey.DELETE_TOPICS, 1, 9, bytes(8), DEADLINE_S)
            forward = asyncio.ensure_future(forwarding)
            await until(lambda: controller.unanswered)
            before = controller.heartbeats
            await until(lambda: controller.heartbeats >= before + 3)
            answer = await one.membership.ask(ApiKey.ALTER_PARTITION, 3, DEADLINE_S, broker_id=2, broker_epoch=41)
            assert int(answer.error_code) == 0
            assert not forward.done()
            controller.answer_all()
            assert (await forward)[4:8] == (9).to_bytes(4, "big")

    asyncio.run(check())


def test_the_next_controller_is_found_when_the_connection_to_the_old_one_ends() -> None:
    async def check() -> None:
        async with member() as (one, old):
            new = ControllerPort()
            one.elect(3, new)
            old.close()
            await until(lambda: new.heartbeats >= 2)
            assert one.lost == [1]
            # The registration is the cluster's, not the controller's.
            assert new.of(ApiKey.BROKER_REGISTRATION) == []
            answer = await one.membership.ask(ApiKey.ALTER_PARTITION, 3, DEADLINE_S, broker_id=2, broker_epoch=41)
            assert int(answer.error_code) == 0
            assert len(new.of(ApiKey.ALTER_PARTITION)) == 1
            new.close()

    asyncio.run(check())


def test_a_controller_whose_port_refuses_is_told_to_the_store() -> None:
    """There its session may go on for long; whoever claims need not wait for that."""

    async def run() -> None:
        async with member() as (one, controller):
            location = one.store.active()
            assert one.refused == []
            controller.close()
            await until(lambda: bool(one.refused))
            assert one.refused[0] == location

    asyncio.run(run())


def test_a_controller_whose_connection_is_cut_and_who_lives_is_not_told_to_be_dead() -> None:
    async def check() -> None:
        async with member() as (one, controller):
            beats = controller.heartbeats
            controller.hang_up()
            await until(lambda: controller.heartbeats > beats + 1)
            assert one.lost == [1] and one.refused == []

    asyncio.run(check())


def test_H_08_a_newer_controller_that_gives_orders_is_looked_up_though_the_old_one_still_answers() -> None:
    async def check() -> None:
        async with member() as (one, old):
            new = ControllerPort()
            one.elect(3, new)
            one.membership.controller_seen(1)
            before = old.heartbeats
            await until(lambda: old.heartbeats > before)
            assert new.requests == []
            one.membership.controller_seen(2)
            await until(lambda: new.heartbeats >= 2)
            assert one.lost == [], "it was closed by this side"
            new.close()

    asyncio.run(check())


@pytest.mark.parametrize("error", [StaleBrokerEpochError(""), BrokerIdNotRegisteredError("")])
def test_a_broker_that_the_controller_does_not_know_registers_again(error: Exception) -> None:
    async def check() -> None:
        async with member() as (one, controller):
            controller.special[ApiKey.BROKER_HEARTBEAT] = {"error_code": error}
            await until(lambda: len(one.registrations) >= 2)
            # Until the new epoch is known the old one stands: orders for it are still refused or obeyed by it.
            assert one.registrations[:2] == [41, 42]
            del controller.special[ApiKey.BROKER_HEARTBEAT]
            async with asyncio.timeout(DEADLINE_S):
                await one.membership.unfenced.wait()

    asyncio.run(check())


def test_nothing_is_asked_while_there_is_no_controller() -> None:
    async def check() -> None:
        async with member() as (one, controller):
            controller.close()
            await until(lambda: not one.membership._connected.is_set())
            with pytest.raises(NotControllerError):
                await one.membership.ask(ApiKey.ALTER_PARTITION, 3, DEADLINE_S, broker_id=2, broker_epoch=41)

    asyncio.run(check())


def test_an_answer_that_cannot_be_true_does_not_end_the_link() -> None:
    async def check() -> None:
        async with member() as (one, controller):
            monkeyed = one.membership._offline_dirs
            one.membership._offline_dirs = lambda: 1 / 0  # type: ignore[assignment, return-value]
            await until(lambda: not one.membership._connected.is_set())
            one.membership._offline_dirs = monkeyed
            before = controller.heartbeats
            await until(lambda: controller.heartbeats > before)
            assert one.membership._task is not None
            assert not one.membership._task.done()

    asyncio.run(check())


def test_H_13_a_fenced_broker_knows_that_another_may_lead_what_it_led() -> None:
    async def check() -> None:
        async with member() as (one, controller):
            assert one.membership.is_current
            controller.special[ApiKey.BROKER_HEARTBEAT] = {"is_fenced": True, "should_shut_down": False}
            await until(lambda: not one.membership.is_current)
            del controller.special[ApiKey.BROKER_HEARTBEAT]
            await until(lambda: one.membership.is_current)

    asyncio.run(check())


def test_H_13_a_broker_whose_controller_is_none_any_more_knows_that_another_may_lead_what_it_led() -> None:
    """The controller's own session is over: who was elected in its place may count us as gone."""

    async def check() -> None:
        async with member() as (one, controller):
            assert one.membership.is_current
            controller.special[ApiKey.BROKER_HEARTBEAT] = {"error_code": NotControllerError("not any more")}
            await until(lambda: not one.membership.is_current)
            assert one.membership.unfenced.is_set(), "nobody has given it up, as far as it knows"
            del controller.special[ApiKey.BROKER_HEARTBEAT]
            await until(lambda: one.membership.is_current)

    asyncio.run(check())


def test_H_13_a_broker_that_is_not_the_controller_yet_says_nothing_of_our_session() -> None:
    """It was found by a note of the store, and answers before it reigns."""

    async def check() -> None:
        async with member() as (one, old):
            new = ControllerPort()
            new.special[ApiKey.BROKER_HEARTBEAT] = {"error_code": NotControllerError("not yet")}
            one.elect(3, new)
            old.close()
            await until(lambda: new.heartbeats >= 2)
            assert one.membership.is_current
            new.close()

    asyncio.run(check())


def test_why_a_link_ended_is_logged_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that no controller takes tries again at once, and again."""
    caplog.set_level(logging.INFO, "holdfast.broker.link_troubles")

    async def check() -> None:
        async with member() as (_, controller):
            controller.special[ApiKey.BROKER_HEARTBEAT] = {"error_code": NotControllerError("not any more")}
            before = controller.heartbeats
            await until(lambda: controller.heartbeats >= before + 5)

    asyncio.run(check())
    said = [record.getMessage() for record in caplog.records if "NotControllerError" in record.getMessage()]
    assert len(said) == 1, said


def test_D14_what_a_heartbeat_tells_is_told_only_if_the_controller_took_it() -> None:
    """Of a broker that it has given up, and that has orders to answer, it takes nothing."""

    async def check() -> None:
        async with member() as (one, controller):
            controller.special[ApiKey.BROKER_HEARTBEAT] = {"is_caught_up": False, "is_fenced": True}
            one.turns[TopicPartition("t", 0)] = ReplicaTurn.RELIEVED
            before = controller.heartbeats
            await until(lambda: controller.heartbeats >= before + 3)
            assert one.told == []
            del controller.special[ApiKey.BROKER_HEARTBEAT]
            await until(lambda: {TopicPartition("t", 0): ReplicaTurn.RELIEVED} in one.told)

    asyncio.run(check())


def test_C3_C4_K1066_11_cordoned_directories_go_with_registration_and_heartbeats() -> None:
    async def check() -> None:
        async with member() as (one, controller):
            (registration,) = controller.of(ApiKey.BROKER_REGISTRATION)
            assert (registration.__version__, registration.cordoned_log_dirs) == (4, (UUID(int=7),))
            assert registration.log_dirs == (UUID(int=7), UUID(int=9))
            first = controller.of(ApiKey.BROKER_HEARTBEAT)[0]
            assert (first.__version__, first.cordoned_log_dirs) == (2, None), "it does not know yet"
            one.directories.now = (UUID(int=9),)
            async with asyncio.timeout(DEADLINE_S):
                await one.membership.tell()
            assert controller.of(ApiKey.BROKER_HEARTBEAT)[-1].cordoned_log_dirs == (UUID(int=9),)
            assert controller.of(ApiKey.BROKER_HEARTBEAT)[-1].log_dirs == (UUID(int=7), UUID(int=9))

    asyncio.run(check())
