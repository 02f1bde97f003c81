"""A reign: what is told when, what happens at its end, and to whoever waits then."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from holdfast.broker import controller_loop
from holdfast.broker.controller_loop import ControllerLoop
from holdfast.broker.disk_io import DiskThread
from holdfast.broker.meters import Meters
from holdfast.broker.platform import Platform
from holdfast.client.outgoing import Outgoing
from holdfast.controller import events
from holdfast.controller.settings import ControllerSettings
from holdfast.metadata.broker_ids import Applicant, Step, Taken
from holdfast.metadata.store import Candidate, InMemoryStore
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import (
    DuplicateBrokerRegistrationError,
    FencedControllerError,
    KafkaStorageError,
    NotControllerError,
    RequestTimedOutError,
    StaleBrokerEpochError,
)
from holdfast.model.listeners import Endpoints
from holdfast.protocol.apis import ApiKey
from tests.unit.broker.conftest import DEADLINE_S, Listener, until


class Surroundings:
    """The broker that the reign is in."""

    broker_id = 1
    broker_epoch = -1

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.platform = Platform.real()
        self.config = BrokerConfig.parse(settings or {})
        self.suspected: list[int | None] = []
        self.meters = Meters()
        self.outgoing = Outgoing()

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def controller_settings(self) -> ControllerSettings:
        return ControllerSettings()

    def suspect(self, broker_id: int | None) -> None:
        self.suspected.append(broker_id)


class Reign:
    """A controller with its store, and the brokers that it tells."""

    def __init__(self, brokers: int, max_records: int | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.store = InMemoryStore(max_records=max_records)
        self.thread = DiskThread("metadata", asyncio.get_running_loop())
        self.commits_may_go_on = threading.Event()
        self.commits_may_go_on.set()
        self.commits_fail = False
        self.store.on_commit = self._on_commit
        self.brokers = {i: Listener() for i in range(1, brokers + 1)}
        self.epochs: dict[int, int] = {}
        claim = self.store.claim(Candidate(broker_id=1, host="127.0.0.1", port=self.brokers[1].port))
        self.broker = Surroundings(settings)
        self.loop = ControllerLoop(self.broker, self.store, self.thread, claim, self.store.load(claim))
        self.loop.start()

    def _on_commit(self, records: Sequence[Any]) -> None:
        assert self.commits_may_go_on.wait(DEADLINE_S)
        if self.commits_fail:
            raise FencedControllerError("another one is the controller")

    async def join(self, broker_id: int) -> None:
        """Register the broker and let it heartbeat."""
        reply = await self.loop.submit(
            events.BrokerRegister(
                broker_id=broker_id,
                incarnation_id=UUID(int=broker_id),
                endpoints=Endpoints.one("127.0.0.1", self.brokers[broker_id].port),
            )
        )
        self.epochs[broker_id] = reply.broker_epoch
        await self.loop.submit(events.BrokerHeartbeat(broker_id=broker_id, broker_epoch=reply.broker_epoch))
        await self.loop.told_everybody(DEADLINE_S)

    def topics_told(self, broker_id: int) -> list[list[str]]:
        """The topics of each UpdateMetadata, in order."""
        return [[t.topic_name for t in r.topic_states] for r in self.brokers[broker_id].of(ApiKey.UPDATE_METADATA)]


@asynccontextmanager
async def reign(
    brokers: int = 2, max_records: int | None = None, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Reign]:
    one = Reign(brokers, max_records, settings)
    try:
        for broker_id in one.brokers:
            await one.join(broker_id)
        yield one
    finally:
        one.commits_may_go_on.set()
        one.loop.close()
        one.thread.close()
        for listener in one.brokers.values():
            listener.close()


def create(name: str) -> events.CreateTopics:
    return events.CreateTopics(topics=(events.TopicToCreate(name=name, partitions=1, replication_factor=2),))


def test_a_decision_is_told_and_answered_once_it_is_durable() -> None:
    async def check() -> None:
        async with reign() as one:
            one.commits_may_go_on.clear()
            waiting = asyncio.ensure_future(one.loop.submit(create("t")))
            await until(lambda: one.thread.waiting)
            # A broker whose connection ends now gets the full state: without what may never have been decided.
            before = len(one.topics_told(2))
            one.brokers[2].hang_up()
            await until(lambda: len(one.topics_told(2)) >= before + 2)
            assert ["t"] not in one.topics_told(2)
            assert not waiting.done()
            one.commits_may_go_on.set()
            reply = await waiting
            assert reply.topics[0].error is None
            await one.loop.told_everybody(DEADLINE_S)
            assert one.topics_told(2)[-1] == ["t"]
            assert [t.topic_name for t in one.brokers[2].of(ApiKey.LEADER_AND_ISR)[-1].topic_states] == ["t"]

    asyncio.run(check())


@pytest.mark.parametrize("lives", [False, True])
def test_a_killed_broker_registers_at_another_port_with_a_controller_that_is_new(lives: bool) -> None:
    """Its old port refuses, and a controller that has only just begun asks there before it calls the id in use."""

    async def check() -> None:
        async with reign(3) as one:
            one.loop.close()
            moved = events.BrokerRegister(
                broker_id=2, incarnation_id=UUID(int=22), endpoints=Endpoints.one("127.0.0.1", one.brokers[3].port)
            )
            if not lives:
                one.brokers[2].close()
            claim = one.store.claim(Candidate(broker_id=1, host="127.0.0.1", port=one.brokers[1].port))
            one.loop = ControllerLoop(Surroundings(), one.store, one.thread, claim, one.store.load(claim))
            one.loop.start()
            if lives:
                with pytest.raises(DuplicateBrokerRegistrationError):
                    await one.loop.submit(moved)
            else:
                assert (await one.loop.submit(moved)).broker_epoch > one.epochs[2]

    asyncio.run(check())


@pytest.mark.parametrize("how", ["killed", "lives", "registered, not active yet"])
def test_K426_04_whether_the_hosts_id_is_free_its_port_is_asked(how: str) -> None:
    """A broker that was killed a moment ago counts as alive still, one that is about to be does not yet."""

    async def check() -> None:
        async with reign(2) as one:
            await one.loop.submit(events.ManageBrokerIds(host="h", broker_id=2))
            if how == "registered, not active yet":
                one.loop.post(events.BrokerConnectionLost(broker_id=2, broker_epoch=one.epochs[2], refused=True))
            if how == "killed":
                one.brokers[2].close()
                one.loop.close()
                claim = one.store.claim(Candidate(broker_id=1, host="127.0.0.1", port=one.brokers[1].port))
                one.loop = ControllerLoop(Surroundings(), one.store, one.thread, claim, one.store.load(claim))
                one.loop.start()
            applicant = Applicant(host="h", claimant=UUID(int=9))
            found = await one.loop.submit(events.ClaimBrokerId(applicant=applicant))
            new = Taken(broker_id=1001, step=Step.NEW, sequence=1)
            assert found == (Taken(broker_id=2, step=Step.HOST) if how == "killed" else new)

    asyncio.run(check())


@pytest.mark.parametrize("end", ["commit fails", "closed while the commit is under way"])
def test_at_the_end_of_a_reign_everybody_who_waits_hears_of_it(end: str) -> None:
    async def check() -> None:
        async with reign() as one:
            one.commits_may_go_on.clear()
            in_commit = asyncio.ensure_future(one.loop.submit(create("a")))
            await until(lambda: one.thread.waiting)
            behind = asyncio.ensure_future(one.loop.submit(create("b")))
            told = len(one.topics_told(2))
            if end == "commit fails":
                one.commits_fail = True
            else:
                await asyncio.sleep(0)
                one.loop.close()
            one.commits_may_go_on.set()
            async with asyncio.timeout(DEADLINE_S):
                for waiting in (in_commit, behind):
                    with pytest.raises(NotControllerError):
                        await waiting
                await one.loop.ended.wait()
            with pytest.raises(NotControllerError):
                await one.loop.submit(create("c"))
            assert len(one.topics_told(2)) == told

    asyncio.run(check())


def test_H_08_a_claim_that_is_lost_ends_the_reign_and_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that was frozen past its session is not the controller any more: nothing for a person to look after.
    Found by chaos on hosts."""

    async def check() -> None:
        async with reign() as one:
            one.loop.lost("the session has expired")
            with pytest.raises(NotControllerError):
                await one.loop.submit(create("a"))

    asyncio.run(check())
    said = [record for record in caplog.records if "the claim is lost: the session has expired" in record.getMessage()]
    assert [record.levelname for record in said] == ["WARNING"]


@pytest.mark.parametrize(("max_records", "commits"), [(None, [2, 8]), (2, [2, 2, 2, 2, 2]), (3, [2, 4, 4])])
def test_decisions_are_committed_together_up_to_what_the_store_takes_at_once(
    max_records: int | None, commits: list[int]
) -> None:
    """Each topic is two records. A decision is never cut by the loop: the store does that where it must."""

    async def check() -> None:
        async with reign(max_records=max_records) as one:
            seen: list[int] = []
            plain = one.store.commit

            def commit(records: Sequence[Any], *args: Any, **images: Any) -> int:
                seen.append(len(records))
                return plain(records, *args, **images)

            one.loop._store = Recorded(one.store, commit)  # type: ignore[assignment]
            one.commits_may_go_on.clear()
            waiting = [asyncio.ensure_future(one.loop.submit(create(f"t{n}"))) for n in range(1)]
            await until(lambda: one.thread.waiting)
            waiting += [asyncio.ensure_future(one.loop.submit(create(f"t{n}"))) for n in range(1, 5)]
            await asyncio.sleep(0)
            one.commits_may_go_on.set()
            async with asyncio.timeout(DEADLINE_S):
                for reply in await asyncio.gather(*waiting):
                    assert reply.topics[0].error is None
            assert seen == commits

    asyncio.run(check())


class Recorded:
    """A store whose commits go another way."""

    def __init__(self, store: InMemoryStore, commit: Callable[..., int]) -> None:
        self.store, self.commit = store, commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def test_an_error_that_nobody_foresaw_ends_the_reign_instead_of_stopping_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with reign() as one:
            monkeypatch.setattr("holdfast.controller.broadcast.plan", lambda *a, **k: 1 / 0)
            async with asyncio.timeout(DEADLINE_S):
                with pytest.raises(NotControllerError):
                    await one.loop.submit(create("t"))
                await one.loop.ended.wait()

    asyncio.run(check())


def test_a_heartbeat_that_is_in_the_commit_that_waits_is_answered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is decided, and no longer among the events: the broker hears that it lives, and no error."""
    monkeypatch.setattr(controller_loop, "PULSE_S", 0.05)

    async def check() -> None:
        async with reign() as one:
            one.commits_may_go_on.clear()
            waiting = asyncio.ensure_future(one.loop.submit(create("t")))
            beat = asyncio.ensure_future(
                one.loop.submit(events.BrokerHeartbeat(broker_id=2, broker_epoch=one.epochs[2]))
            )
            async with asyncio.timeout(DEADLINE_S):
                assert not (await beat).is_fenced
            assert not waiting.done()
            one.commits_may_go_on.set()
            assert (await waiting).topics[0].error is None

    asyncio.run(check())


def test_a_broker_hears_that_it_lives_while_a_commit_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is behind the store hangs: nobody is elected meanwhile. Of the heartbeat nothing else was heard."""
    monkeypatch.setattr(controller_loop, "PULSE_S", 0.05)

    async def check() -> None:
        async with reign() as one:
            one.commits_may_go_on.clear()
            waiting = asyncio.ensure_future(one.loop.submit(create("t")))
            await until(lambda: one.thread.waiting)
            unknown = UUID(int=70)
            beat = events.BrokerHeartbeat(broker_id=2, broker_epoch=one.epochs[2], offline_dirs=(unknown,))
            async with asyncio.timeout(DEADLINE_S):
                reply = await one.loop.submit(beat)
            assert (reply.is_caught_up, reply.is_fenced, waiting.done()) == (False, False, False)
            # Not one that wants something, or whose registration is another one.
            leaving = events.BrokerHeartbeat(broker_id=2, broker_epoch=one.epochs[2], want_shutdown=True)
            stale = events.BrokerHeartbeat(broker_id=1, broker_epoch=one.epochs[1] + 100)
            others = [asyncio.ensure_future(one.loop.submit(each)) for each in (leaving, stale)]
            assert not (await asyncio.wait(others, timeout=0.3))[0]
            one.commits_may_go_on.set()
            assert (await waiting).topics[0].error is None
            assert (await others[0]).should_shut_down
            with pytest.raises(StaleBrokerEpochError):
                await others[1]

    asyncio.run(check())


def test_nobody_waits_for_a_broker_that_is_found_dead() -> None:
    async def check() -> None:
        async with reign(brokers=3) as one:
            one.brokers[3].reply = lambda request: None  # it hangs
            await one.loop.submit(create("t"))
            telling = asyncio.ensure_future(one.loop.told_everybody(DEADLINE_S * 10))
            await until(lambda: one.brokers[3].unanswered)
            assert not telling.done()
            one.brokers[3].close()  # it dies
            async with asyncio.timeout(DEADLINE_S):
                await telling
            assert one.loop.image.brokers[3].fenced

    asyncio.run(check())


def test_H_13_a_fenced_broker_has_been_told_though_more_is_decided_meanwhile() -> None:
    """It stayed fenced as long as topics came and went faster than it answered."""

    async def check() -> None:
        async with reign(brokers=3) as one:
            three = one.brokers[3]
            three.reply = lambda request: None
            await one.loop.submit(create("t0"))
            await until(lambda: three.unanswered)
            epoch = one.loop.image.brokers[3].epoch
            await one.loop.submit(events.BrokerConnectionLost(broker_id=3, broker_epoch=epoch, refused=True))
            assert one.loop.image.brokers[3].fenced
            told = asyncio.ensure_future(one.loop.has_told(3, epoch))
            await asyncio.sleep(0)
            channel = one.loop._channels[3]
            await until(lambda: not channel._queue)  # all there was so far is sent
            await one.loop.submit(create("t1"))
            await until(lambda: "t1" in str(three.requests[-1]) and not channel._queue)
            assert not told.done()
            newest = three.unanswered.pop()
            three.answer_all()
            assert await told
            assert one.loop.image.brokers[3].fenced
            three.answer(newest, {})

    asyncio.run(check())


def test_a_broker_that_dies_is_noticed_by_its_closed_connection() -> None:
    async def check() -> None:
        async with reign(brokers=3) as one:
            await one.loop.submit(create("t"))
            # Its channel hears of it, and its heartbeat connection: each is enough, both together are not too many.
            one.brokers[3].close()
            one.loop.connection_closed(3, one.epochs[3])
            await until(lambda: one.loop.image.brokers[3].fenced)
            # A connection that ends while the port is open says nothing.
            one.loop.connection_closed(2, one.epochs[2])
            await until(lambda: not one.loop._probes)
            assert not one.loop.image.brokers[2].fenced
            # Nor does the end of a connection of an earlier incarnation.
            one.loop.connection_closed(2, one.epochs[2] - 1)
            assert not one.loop._probes

    asyncio.run(check())


def test_a_broker_that_comes_back_is_told_what_was_decided_since_another_one_did() -> None:
    """What is the same for all brokers is made once for each decision."""

    async def check() -> None:
        async with reign() as one:

            async def comes_back(broker_id: int) -> list[str]:
                before = len(one.topics_told(broker_id))
                one.brokers[broker_id].hang_up()
                await until(lambda: len(one.topics_told(broker_id)) >= before + 2)
                return one.topics_told(broker_id)[-1]

            assert (await comes_back(1), await comes_back(2)) == ([], [])
            await one.loop.submit(create("t"))
            assert (await comes_back(1), await comes_back(2)) == (["t"], ["t"])

    asyncio.run(check())


def test_a_new_incarnation_gets_a_channel_of_its_own() -> None:
    async def check() -> None:
        async with reign() as one:
            old = one.brokers[2]
            old.close()
            new = one.brokers[2] = Listener(old.port)
            reply = await one.loop.submit(
                events.BrokerRegister(
                    broker_id=2, incarnation_id=UUID(int=99), endpoints=Endpoints.one("127.0.0.1", new.port)
                )
            )
            await until(lambda: [r for r in new.of(ApiKey.UPDATE_METADATA) if r.broker_epoch == reply.broker_epoch])
            # The channel of the one before may have found the new process first; the process refuses those by epoch.
            told_before = [r.broker_epoch for r in new.requests if r.broker_epoch != reply.broker_epoch]
            await one.loop.told_everybody(DEADLINE_S)
            assert [r.broker_epoch for r in new.requests[: len(told_before)]] == told_before

    asyncio.run(check())


def test_K112_05_a_56_in_an_answer_to_leader_and_isr_makes_the_replica_offline() -> None:
    """The answer alone says so: there is no heartbeat here that could."""

    def bad_disk(request: Any) -> dict[str, Any]:
        if int(request.__api_key__) != ApiKey.LEADER_AND_ISR:
            return {}
        return {
            "topics": [
                {
                    "topic_id": topic.topic_id,
                    "partition_errors": [
                        {"partition_index": p.partition_index, "error_code": KafkaStorageError("bad disk")}
                        for p in topic.partition_states
                    ],
                }
                for topic in request.topic_states
            ]
        }

    async def check() -> None:
        async with reign(2) as one:
            one.brokers[1].reply = bad_disk
            topic = events.TopicToCreate(name="t", assignments=((0, (1, 2)),))
            await one.loop.submit(events.CreateTopics(topics=(topic,)))
            await until(lambda: one.loop.image.topics["t"].partitions[0].leader == 2)
            assert one.loop.image.topics["t"].partitions[0].isr == (2,)
            topic_id = one.loop.image.topics["t"].topic_id
            assert one.loop.controller.offline_replicas().holds(1, topic_id, 0)
            await until(lambda: any(p for p in offline_told(one, 2) if p == [1]))

    asyncio.run(check())


def offline_told(one: Reign, broker_id: int) -> list[list[int]]:
    """The offline replicas of each partition that the broker was told of, in order."""
    return [
        list(p.offline_replicas)
        for request in one.brokers[broker_id].of(ApiKey.UPDATE_METADATA)
        for topic in request.topic_states
        for p in topic.partition_states
    ]


def test_D13_a_controller_with_too_much_to_decide_does_not_send_everybody_to_look_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check() -> None:
        async with reign() as one:
            monkeypatch.setattr("holdfast.broker.controller_loop.MAX_WAITING", 0)
            with pytest.raises(RequestTimedOutError, match="0 requests to decide before this one"):
                await one.loop.submit(create("t"))
            one.loop.close()
            with pytest.raises(NotControllerError):
                await one.loop.submit(create("t"))

    asyncio.run(check())
