"""What only the model of an ensemble can show: servers that are behind or slow, a minority, processes that die."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.coordination.zookeeper_client import (
    ConnectionLostError,
    Create,
    Operation,
    Put,
    SessionExpiredError,
    SessionState,
    ZooKeeperClient,
)
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings
from tests.simulation.ensemble import Ensemble
from tests.simulation.ensemble_client import ManualClock, ModelZooKeeper
from tests.simulation.ensemble_tree import Author


class World:
    """An ensemble and its clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ensemble = Ensemble(self.clock)

    def client(self, server: int = 0, *, max_in_flight: int = 10) -> ModelZooKeeper:
        settings = ZooKeeperSettings(servers="m:1", session_timeout_ms=2000, max_in_flight=max_in_flight)
        made = ModelZooKeeper(self.ensemble, settings, self.clock, self.clock, server=server)
        made.start(10)
        return made


@pytest.fixture
def world() -> World:
    return World()


def done(client: ZooKeeperClient, *operations: Operation) -> None:
    client.write(operations).result(10)


def data(client: ZooKeeperClient, path: str) -> bytes | None:
    node = client.get(path)
    return None if node is None else node.data


def test_a_follower_that_is_behind_shows_the_past_until_sync(world: World) -> None:
    leader, follower = world.client(0), world.client(1)
    done(leader, Create(path="/a", data=b"0"))
    world.ensemble.lag(1)
    done(leader, Put(path="/a", data=b"1"), Create(path="/b"))
    assert (data(follower, "/a"), data(follower, "/b"), follower.children("/")) == (b"0", None, ["a", "zookeeper"])
    follower.sync()
    assert (data(follower, "/a"), data(follower, "/b")) == (b"1", b"")


def test_a_follower_that_is_behind_knows_what_its_own_client_has_written_and_all_before(world: World) -> None:
    leader, follower = world.client(0), world.client(1)
    world.ensemble.lag(1)
    done(leader, Create(path="/a"))
    assert data(follower, "/a") is None
    done(follower, Create(path="/b"))
    assert data(follower, "/a") == b""


def test_a_check_is_made_by_the_leader_whatever_the_follower_knows(world: World) -> None:
    leader, follower = world.client(0), world.client(1)
    done(leader, Create(path="/epoch"))
    world.ensemble.lag(1)
    done(leader, Put(path="/epoch", data=b"1", version=0))
    node = follower.get("/epoch")
    assert node is not None and node.stat.version == 0
    error = follower.write([Put(path="/epoch", data=b"2", version=0)]).exception(10)
    assert type(error).__name__ == "BadVersionError"


def test_watches_at_a_follower_are_called_when_it_learns_of_it(world: World) -> None:
    leader, follower = world.client(0), world.client(1)
    calls: list[str] = []
    follower.get("/a", watch=lambda: calls.append("a"))
    world.ensemble.lag(1)
    done(leader, Create(path="/a"))
    world.clock.pass_s(1.0)
    assert calls == []
    world.ensemble.lag(1, False)
    world.clock.pass_s(0.0)
    assert calls == ["a"]


def test_answers_of_a_slow_ensemble_come_later_and_in_order(world: World) -> None:
    client = world.client(max_in_flight=3)
    world.ensemble.slow(0.5)
    start_s = world.clock.now_s()
    futures = [client.write([Create(path=f"/{number}")]) for number in range(3)]
    assert not any(future.done() for future in futures) and world.clock.now_s() == start_s
    fourth = client.write([Create(path="/3")])  # waits for room
    assert world.clock.now_s() == start_s + 0.5
    fourth.result(10)
    assert world.clock.now_s() == start_s + 1.0
    czxids = [future.result(10)[0].stat.czxid for future in (*futures, fourth)]
    assert czxids == sorted(czxids)


@pytest.mark.parametrize("is_done", [True, False], ids=["answer", "request"])
def test_the_third_of_five_writes_loses_its_answer_or_itself(world: World, is_done: bool) -> None:
    client = world.client()
    client.link.fate = (2, is_done)
    futures = [client.write([Create(path=f"/{number}")]) for number in range(5)]
    lost = [isinstance(future.exception(10), ConnectionLostError) for future in futures]
    assert lost == [False, False, True, True, True]
    client.sync()
    assert client.children("/") == ["0", "1", *(["2"] if is_done else []), "zookeeper"]


def test_a_minority_that_is_gone_costs_a_connection_and_a_majority_everything(world: World) -> None:
    client, other = world.client(0), world.client(2)
    states: list[SessionState] = []
    client.listen(states.append)
    done(client, Create(path="/e", ephemeral=True))
    world.ensemble.down(0)
    done_elsewhere = other.write([Create(path="/a")])
    assert done_elsewhere.result(10) and data(client, "/a") == b""
    world.ensemble.down(1)
    world.clock.pass_s(60.0)
    with pytest.raises(ConnectionLostError):
        client.get("/a")
    world.ensemble.up(1)
    assert data(client, "/e") == b"" and SessionState.EXPIRED not in states


def test_a_session_expires_at_the_first_tick_behind_its_time(world: World) -> None:
    client, other = world.client(), world.client()
    done(client, Create(path="/e", ephemeral=True))
    client.die()
    world.clock.pass_s(1.9)
    assert data(other, "/e") == b""
    world.clock.pass_s(0.6)
    assert data(other, "/e") is None


def test_a_frozen_process_does_not_keep_its_session(world: World) -> None:
    client, other = world.client(), world.client()
    done(client, Create(path="/e", ephemeral=True))
    world.ensemble.freeze(client.session_id)
    world.clock.pass_s(1.5)
    world.ensemble.freeze(client.session_id, False)
    world.clock.pass_s(60.0)
    assert data(other, "/e") == b""
    world.ensemble.freeze(client.session_id)
    world.clock.pass_s(3.0)
    assert data(other, "/e") is None
    assert isinstance(client.write([Create(path="/x")]).exception(10), SessionExpiredError)


def test_a_server_may_end_a_session_and_everything_of_it_is_one_change(world: World) -> None:
    client, other = world.client(), world.client()
    done(client, *(Create(path=f"/{name}", ephemeral=True) for name in "abc"))
    zxid = world.ensemble.zxid
    world.ensemble.end_session(client.session_id)
    assert world.ensemble.zxid == zxid + 1 and other.children("/") == ["zookeeper"]
    world.clock.pass_s(1.0)
    with pytest.raises(SessionExpiredError):
        client.get("/")


def test_every_write_that_was_done_is_told_with_its_author(world: World) -> None:
    client = world.client()
    told: list[tuple[int, list[str], int]] = []

    def note(zxid: int, operations: Sequence[Operation], author: Author) -> None:
        told.append((zxid, [operation.path for operation in operations], author.session))

    world.ensemble.on_commit = note
    done(client, Create(path="/a"), Create(path="/a/b"))
    client.write([Create(path="/a")])
    client.link.fate = (0, True)
    client.write([Create(path="/c")])
    assert [(paths, session) for _, paths, session in told] == [
        (["/a", "/a/b"], client.session_id),
        (["/c"], client.session_id),
    ]
    assert told[0][0] < told[1][0]


def test_what_was_sent_into_a_cut_arrives_when_it_is_mended_in_time_and_never_after_the_connection(
    world: World,
) -> None:
    client, other = world.client(), world.client()
    world.ensemble.cut(client.session_id)
    first = client.write([Create(path="/a")])
    world.clock.pass_s(0.5)
    assert not first.done() and data(other, "/a") is None
    world.ensemble.mend(client.link)
    assert first.done() and data(other, "/a") == b""
    world.ensemble.cut(client.session_id)
    second = client.write([Create(path="/b")])
    world.clock.pass_s(1.5)
    assert isinstance(second.exception(10), ConnectionLostError)
    world.ensemble.mend(client.link)
    world.clock.pass_s(60.0)
    assert data(other, "/b") is None


def test_the_same_calls_give_the_same_run() -> None:
    def run() -> list[object]:
        world = World()
        one, two = world.client(0), world.client(1)
        world.ensemble.lag(1)
        done(one, Create(path="/a"), Create(path="/a/n", sequence=True))
        one.link.fate = (1, True)
        futures = [one.write([Create(path="/a/n", sequence=True)]) for _ in range(3)]
        errors = [repr(future.exception(10)) for future in futures]
        one.sync()
        return [errors, one.children("/a"), two.get("/a"), one.session_id, world.ensemble.zxid, world.clock.now_s()]

    assert run() == run()
