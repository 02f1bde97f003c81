"""Code that blocks in virtual time: it waits as with threads, in the same order every time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.coordination.zookeeper_client import ConnectionLostError, Create, Put
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings
from tests.simulation.device import ProcessGone
from tests.simulation.ensemble import Ensemble
from tests.simulation.ensemble_client import ManualClock, ModelZooKeeper
from tests.simulation.fibers import Fiber, FiberLanes, FiberThreading, FiberWaiter, Life


class Runs:
    """Fibers on one clock, and what came of them in order."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ended: list[Any] = []
        self.said: list[Any] = []
        self.life = Life(self.ended.append)

    def start(self, work: Callable[[], Any]) -> Fiber:
        fiber = Fiber(self.clock, work, lambda result, error: self.ended.append(result if error is None else error))
        self.life.start(fiber)
        return fiber

    def say(self, what: Any) -> None:
        self.said.append((self.clock.now_s() - 1000.0, what))


@pytest.fixture
def runs() -> Runs:
    return Runs()


def test_what_does_not_wait_is_done_at_once_with_its_error(runs: Runs) -> None:
    runs.start(lambda: 1)
    runs.start(lambda: 1 // 0)
    assert runs.ended[0] == 1 and isinstance(runs.ended[1], ZeroDivisionError)


def test_who_waits_lets_time_pass_for_all(runs: Runs) -> None:
    ended = FiberThreading.Event()

    def sleeper(name: str, seconds: float) -> None:
        assert not ended.wait(seconds)
        runs.say(name)

    for name, seconds in (("late", 2.0), ("soon", 0.5), ("later", 2.0)):
        runs.start(lambda name=name, seconds=seconds: sleeper(name, seconds))
    assert runs.said == []
    runs.clock.pass_s(5)
    assert runs.said == [(0.5, "soon"), (2.0, "late"), (2.0, "later")]


def test_an_event_wakes_all_who_wait_and_no_time_passes(runs: Runs) -> None:
    event = FiberThreading.Event()
    for name in "ab":
        runs.start(lambda name=name: (event.wait(10), runs.say(name)))
    runs.clock.pass_s(1)
    event.set()
    runs.clock.pass_s(0)
    assert runs.said == [(1.0, "a"), (1.0, "b")] and event.wait(10)


def test_a_condition_is_waited_for_without_its_lock(runs: Runs) -> None:
    condition, numbers = FiberThreading.Condition(), list[int]()

    def take() -> None:
        with condition:
            while not numbers:
                condition.wait()
            runs.say(numbers.pop())

    def put() -> None:
        with condition:
            numbers.append(7)
            condition.notify_all()

    runs.start(take)
    runs.start(take)
    runs.start(put)
    runs.clock.pass_s(1)
    assert runs.said == [(0.0, 7)]
    put()  # by the loop, as a callback of a client
    runs.clock.pass_s(1)
    assert runs.said == [(0.0, 7), (1.0, 7)]


def test_a_condition_may_be_waited_for_in_vain(runs: Runs) -> None:
    condition = FiberThreading.Condition()

    def wait() -> bool:
        with condition:
            return condition.wait_for(lambda: False, 0.25)

    runs.start(wait)
    runs.clock.pass_s(1)
    assert runs.ended == [False]


def test_a_lock_that_is_held_by_who_waits_is_waited_for(runs: Runs) -> None:
    lock, event = FiberThreading.RLock(), FiberThreading.Event()

    def hold() -> None:
        with lock, lock:
            event.wait(1.0)
        runs.say("held")

    def want() -> None:
        with lock:
            runs.say("got")

    runs.start(hold)
    runs.start(want)
    with pytest.raises(RuntimeError, match="only a fiber may wait"):
        lock.acquire()
    assert not lock.acquire(blocking=False)
    runs.clock.pass_s(2)
    assert runs.said == [(1.0, "held"), (1.0, "got")]


def test_a_killed_process_ends_where_it_waits_and_says_nothing_more(runs: Runs) -> None:
    event = FiberThreading.Event()
    fates: list[type[BaseException]] = []

    def wait() -> None:
        try:
            event.wait()
        except BaseException as e:
            fates.append(type(e))
            event.wait()  # as a careless finally clause

    before = threading.active_count()
    runs.start(wait)
    runs.life.end()
    event.set()
    runs.clock.pass_s(1)
    assert fates == [ProcessGone] and runs.ended == []
    assert threading.active_count() == before


def test_lanes_do_one_thing_of_a_key_after_the_other(runs: Runs) -> None:
    lanes, event = FiberLanes(runs.clock, runs.life), FiberThreading.Event()

    def slow() -> None:
        event.wait(1.0)
        runs.say("slow")

    lanes.begin("a", slow)
    lanes.begin("a", lambda: runs.say("behind it"))
    lanes.begin("b", lambda: runs.say("beside it"))
    lanes.begin("b", lambda: 1 // 0)
    runs.clock.pass_s(2)
    assert runs.said == [(0.0, "beside it"), (1.0, "slow"), (1.0, "behind it")]
    assert [type(each) for each in runs.ended] == [ZeroDivisionError]
    lanes.begin("a", lambda: runs.say("again"))
    runs.clock.pass_s(0)
    assert runs.said[-1] == (2.0, "again")


def client_of(runs: Runs, ensemble: Ensemble) -> ModelZooKeeper:
    settings = ZooKeeperSettings(servers="m:1", session_timeout_ms=4000, max_in_flight=2)
    return ModelZooKeeper(ensemble, settings, runs.clock, FiberWaiter())


def test_calls_of_a_client_wait_in_fibers(runs: Runs) -> None:
    ensemble = Ensemble(runs.clock)
    client = client_of(runs, ensemble)

    def work() -> None:
        client.start(10)
        ensemble.slow(0.5)
        futures = [client.write([Create(path=f"/{number}")]) for number in range(3)]
        runs.say("sent")
        for future in futures:
            future.result()
        runs.say("done")
        ensemble.slow(0.0)
        ensemble.cut(client.session_id)
        with pytest.raises(ConnectionLostError):
            client.get("/0")
        runs.say("nobody answers")
        ensemble.mend(client.link)
        assert client.children("/") == ["0", "1", "2", "zookeeper"]
        runs.say("again")

    runs.start(work)
    runs.clock.pass_s(60)
    assert runs.ended == [None]
    assert [what for _, what in runs.said] == ["sent", "done", "nobody answers", "again"]
    times_s = [round(when_s, 2) for when_s, _ in runs.said]
    assert times_s[:3] == [0.5, 1.0, 5.0] and times_s[3] <= 5.1


def test_two_processes_on_one_ensemble_run_the_same_every_time() -> None:
    def run() -> list[Any]:
        runs = Runs()
        ensemble = Ensemble(runs.clock)

        def work(name: str) -> None:
            client = client_of(runs, ensemble)
            client.start(10)
            for number in range(5):
                error = client.write([Create(path="/a")]).exception()
                node = client.get("/a")
                assert node is not None
                again = client.write([Put(path="/a", data=b"", version=node.stat.version)]).exception()
                runs.say((name, number, type(error), type(again)))

        ensemble.slow(0.1)
        for name in "abc":
            runs.start(lambda name=name: work(name))
        runs.clock.pass_s(60)
        assert len(runs.said) == 15
        return runs.said

    assert run() == run()
