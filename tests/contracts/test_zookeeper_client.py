"""What a ZooKeeperClient promises, and what ZooKeeper does behind it: kazoo with a real server, and the model that the
simulation has. What only one of them can show: tests/zookeeper, tests/unit/simulation/test_ensemble.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.coordination.zookeeper_client import (
    MAX_REQUEST_BYTES,
    AccessError,
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    Done,
    NodeAclEntry,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Put,
    RequestTooLargeError,
    SessionExpiredError,
    SessionState,
    Stat,
    ZooKeeperClient,
    ZooKeeperError,
    request_bytes,
)
from tests.contracts.ensembles import Ensembles, ModelEnsemble, RealEnsemble
from tests.zookeeper.server import ZooKeeperServer

chroots = (f"/contract/{number}" for number in itertools.count())
CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    folder: Path = tmp_path_factory.mktemp("zookeeper")
    with ZooKeeperServer(folder) as started:
        yield started


@pytest.fixture(params=["model", pytest.param("real", marks=pytest.mark.system)])
def zk(request: pytest.FixtureRequest) -> Iterator[Ensembles]:
    made: Ensembles
    if request.param == "model":
        made = ModelEnsemble()
    else:
        made = RealEnsemble(request.getfixturevalue("server"), next(chroots))
    yield made
    made.close()


@dataclass(slots=True)
class Heard:
    """What a listener or a watch was told."""

    states: list[SessionState] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def watch(self, name: str = "") -> Callable[[], None]:
        return lambda: self.calls.append(name)


def done(client: ZooKeeperClient, *operations: Operation) -> list[Done]:
    return client.write(operations).result(60)


def refused(client: ZooKeeperClient, *operations: Operation) -> ZooKeeperError:
    with pytest.raises(ZooKeeperError) as caught:
        client.write(operations).result(60)
    return caught.value


def stat_of(client: ZooKeeperClient, path: str) -> Stat:
    node = client.get(path)
    assert node is not None, path
    return node.stat


def data_of(client: ZooKeeperClient, *paths: str) -> list[bytes | None]:
    return [None if node is None else node.data for node in client.get_all(paths)]


def heard_by(zk: Ensembles, client: ZooKeeperClient) -> Heard:
    heard = Heard()
    client.listen(heard.states.append)
    return heard


def lost(client: ZooKeeperClient, operation: Operation) -> ConnectionLostError:
    error = refused(client, operation)
    assert isinstance(error, ConnectionLostError), error
    return error


# -- nodes and their stats -------------------------------------------------------------------------------------


def test_a_node_is_made_written_and_deleted(zk: Ensembles) -> None:
    client = zk.client()
    assert client.get("/a") is None and client.children("/a") is None
    (made,) = done(client, Create(path="/a", data=b"one"))
    assert made.path == "/a" and made.stat is not None
    assert made.stat == stat_of(client, "/a")
    assert made.stat.version == made.stat.cversion == made.stat.ephemeral_owner == 0
    assert made.stat.czxid == made.stat.mzxid > 0
    (put,) = done(client, Put(path="/a", data=b"two"))
    assert put.stat == stat_of(client, "/a")
    assert (put.stat.version, put.stat.czxid) == (1, made.stat.czxid) and put.stat.mzxid > made.stat.mzxid
    assert data_of(client, "/a") == [b"two"]
    assert done(client, Delete(path="/a", version=1)) == [Done(path="/a")]
    assert client.get("/a") is None


def test_czxids_tell_the_order_in_which_nodes_were_made_anew_too(zk: Ensembles) -> None:
    one, two = zk.client(), zk.client()
    done(one, Create(path="/a"))
    done(two, Create(path="/b"))
    first, second = stat_of(one, "/a").czxid, stat_of(one, "/b").czxid
    done(one, Delete(path="/a"))
    done(one, Create(path="/a"))
    assert first < second < stat_of(one, "/a").czxid
    together = done(one, Create(path="/c"), Create(path="/d"))
    assert len({each.stat.czxid for each in together if each.stat is not None}) == 1


def test_the_version_of_children_counts_those_that_came_and_went(zk: Ensembles) -> None:
    client = zk.client()
    done(client, Create(path="/a"))
    for name in ("x", "y"):
        done(client, Create(path=f"/a/{name}"))
    assert stat_of(client, "/a").cversion == 2
    done(client, Delete(path="/a/x"))
    assert stat_of(client, "/a").cversion == 3
    done(client, Put(path="/a/y", data=b"1"))
    found = stat_of(client, "/a")
    assert (found.cversion, found.version, found.mzxid) == (3, 0, found.czxid)


def test_data_may_be_empty_and_large(zk: Ensembles) -> None:
    client = zk.client()
    large = bytes(range(256)) * 4000
    done(client, Create(path="/a"), Create(path="/b", data=large))
    assert data_of(client, "/a", "/b") == [b"", large]


def test_children_are_sorted_names(zk: Ensembles) -> None:
    client = zk.client()
    assert client.children("/") == []
    for name in ("b", "ä", "a", "10", "9"):
        done(client, Create(path=f"/{name}"))
    assert client.children("/") == ["10", "9", "a", "b", "ä"]
    assert client.children("/a") == []


def test_many_nodes_are_read_in_the_order_asked_for_and_missing_ones_are_none(zk: Ensembles) -> None:
    client = zk.client()
    done(client, *(Create(path=f"/{number}", data=b"%d" % number) for number in range(60) if number % 3))
    found = data_of(client, *(f"/{number}" for number in reversed(range(60))))
    assert found == [b"%d" % number if number % 3 else None for number in reversed(range(60))]
    assert client.get_all([]) == []


# -- sequences and ephemeral nodes -----------------------------------------------------------------------------


def test_a_sequence_has_ten_digits_counts_all_children_and_survives_deletes(zk: Ensembles) -> None:
    client = zk.client()
    done(client, Create(path="/a"), Create(path="/b"))
    made = [done(client, Create(path=f"/a/{name}", sequence=True))[0].path for name in ("n_", "m_", "n_")]
    assert made == ["/a/n_0000000000", "/a/m_0000000001", "/a/n_0000000002"]
    for path in made:
        done(client, Delete(path=path))
    done(client, Create(path="/a/plain"))
    assert done(client, Create(path="/a/n_", sequence=True))[0].path == "/a/n_0000000004"
    assert done(client, Create(path="/b/", sequence=True))[0].path == "/b/0000000000"
    two = done(client, Create(path="/b/x", sequence=True), Create(path="/b/x", sequence=True))
    assert [each.path for each in two] == ["/b/x0000000001", "/b/x0000000002"]


def test_a_write_that_is_refused_uses_up_no_number(zk: Ensembles) -> None:
    client = zk.client()
    done(client, Create(path="/a"))
    refused(client, Create(path="/a/n", sequence=True), Delete(path="/none"))
    assert done(client, Create(path="/a/n", sequence=True))[0].path == "/a/n0000000000"


def test_an_ephemeral_node_has_its_session_and_no_children(zk: Ensembles) -> None:
    client = zk.client()
    assert client.session_id != 0 and client.session_timeout_s == 8.0
    (made,) = done(client, Create(path="/e", data=b"1", ephemeral=True))
    assert made.stat is not None and made.stat.ephemeral_owner == client.session_id
    error = refused(client, Create(path="/e/child"))
    assert type(error) is ZooKeeperError and (error.path, error.index) == ("/e/child", 0)
    (numbered,) = done(client, Create(path="/n-", ephemeral=True, sequence=True))
    assert stat_of(client, numbered.path).ephemeral_owner == client.session_id


def test_ephemeral_nodes_go_with_close_at_once_and_nobody_elses(zk: Ensembles) -> None:
    one, two = zk.client(), zk.client()
    done(one, Create(path="/one", ephemeral=True), Create(path="/stays"))
    done(two, Create(path="/two", ephemeral=True))
    heard = Heard()
    two.get("/one", watch=heard.watch())
    one.close()
    zk.until(lambda: bool(heard.calls), "the watch")
    assert data_of(two, "/one", "/stays", "/two") == [None, b"", b""]


# -- writes of several operations ------------------------------------------------------------------------------


def test_operations_of_one_write_see_those_before_them(zk: Ensembles) -> None:
    client = zk.client()
    made = done(
        client,
        Create(path="/a", data=b"0"),
        Put(path="/a", data=b"1", version=0),
        Check(path="/a", version=1),
        Create(path="/a/b"),
        Delete(path="/a/b"),
        Delete(path="/a"),
        Create(path="/a", data=b"2"),
    )
    assert [each.path for each in made] == ["/a", "/a", "/a", "/a/b", "/a/b", "/a", "/a"]
    assert [each.stat is None for each in made] == [False, False, True, False, True, True, False]
    assert data_of(client, "/a") == [b"2"]
    assert made[-1].stat == stat_of(client, "/a")


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (Create(path="/missing/x"), NoNodeError),
        (Put(path="/missing", data=b""), NoNodeError),
        (Delete(path="/missing"), NoNodeError),
        (Check(path="/missing", version=0), NoNodeError),
        (Create(path="/a"), NodeExistsError),
        (Create(path="/a", ephemeral=True), NodeExistsError),
        (Delete(path="/a"), NotEmptyError),
        (Delete(path="/a", version=7), BadVersionError),
        (Put(path="/a", data=b"", version=1), BadVersionError),
        (Check(path="/a", version=1), BadVersionError),
    ],
    ids=str,
)
def test_of_a_write_that_is_refused_nothing_is_done_and_the_first_reason_is_told(
    zk: Ensembles, operation: Operation, expected: type[ZooKeeperError]
) -> None:
    client = zk.client()
    done(client, Create(path="/a", data=b"0"), Create(path="/a/b"))
    before = stat_of(client, "/a"), stat_of(client, "/")
    prefix = [Create(path="/new"), Create(path="/new/x"), Put(path="/a/b", data=b"1"), Create(path="/a/c")]
    error = refused(client, *prefix, operation, Delete(path="/none"))
    assert type(error) is expected and (error.path, error.index) == (operation.path, 4)
    assert operation.path in str(error)
    assert (stat_of(client, "/a"), stat_of(client, "/")) == before
    assert data_of(client, "/a", "/a/b", "/a/c", "/new") == [b"0", b"", None, None]
    alone = refused(client, operation)
    assert type(alone) is expected and (alone.path, alone.index) == (operation.path, 0)


def test_a_version_of_another_is_seen(zk: Ensembles) -> None:
    one, two = zk.client(), zk.client()
    done(one, Create(path="/epoch", data=b"1"))
    done(two, Put(path="/epoch", data=b"2", version=0))
    error = refused(one, Check(path="/epoch", version=0), Create(path="/a"))
    assert isinstance(error, BadVersionError) and (error.path, error.index) == ("/epoch", 0)
    assert done(one, Check(path="/epoch", version=1), Create(path="/a"))[1].path == "/a"


def test_writes_happen_in_the_order_of_the_calls_without_waiting_for_answers(zk: Ensembles) -> None:
    client = zk.client()
    done(client, Create(path="/a"))
    futures = [client.write([Put(path="/a", data=b"%d" % n, version=n)]) for n in range(50)]
    found = [future.result(60)[0].stat for future in futures]
    assert [stat.version for stat in found if stat is not None] == list(range(1, 51))
    assert data_of(client, "/a") == [b"49"]


def test_one_of_several_writes_under_way_is_refused_and_those_behind_it_are_done(zk: Ensembles) -> None:
    client = zk.client()
    futures = [client.write([Create(path=path)]) for path in ("/a", "/a", "/b")]
    assert futures[0].result(60)[0].path == "/a" and futures[2].result(60)[0].path == "/b"
    assert isinstance(futures[1].exception(60), NodeExistsError)


# -- size ------------------------------------------------------------------------------------------------------


def creates(total: int, data: bytes) -> list[Operation]:
    """As many as a request of ``total`` bytes takes."""
    one = Create(path="/0000", data=data)
    alone, two = (request_bytes([one] * count, chroot="/contract/1000") for count in (1, 2))
    return [Create(path=f"/{number:04d}", data=data) for number in range(1 + (total - alone) // (two - alone))]


@pytest.mark.parametrize("data", [b"", b"x" * 5000, b"x" * 300_000], ids=len)
def test_a_write_of_the_size_that_is_allowed_is_taken(zk: Ensembles, data: bytes) -> None:
    client = zk.client(user="holdfast")
    operations = creates(MAX_REQUEST_BYTES if data else 200_000, data)
    assert request_bytes([*operations, operations[0]], chroot="/contract/1000") > MAX_REQUEST_BYTES or not data
    assert len(done(client, *operations)) == len(operations)


def test_a_larger_write_is_refused_before_it_is_sent(zk: Ensembles) -> None:
    client = zk.client()
    states = heard_by(zk, client).states
    error = refused(client, Create(path="/a"), Create(path="/b", data=bytes(MAX_REQUEST_BYTES)))
    assert type(error) is RequestTooLargeError and error.path == "/a"
    done(client, Create(path="/c"))
    assert client.children("/") == ["c"] and SUSPENDED not in states


def test_a_server_hangs_up_on_a_write_that_is_larger_than_it_takes(zk: Ensembles) -> None:
    client = zk.client(max_request_bytes=10 * MAX_REQUEST_BYTES)
    session = client.session_id
    lost(client, Create(path="/b", data=bytes(MAX_REQUEST_BYTES)))
    client.sync()
    assert client.children("/") == [] and client.session_id == session


# -- watches ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "event"),
    [
        ([], Create(path="/a")),
        ([Create(path="/a")], Put(path="/a", data=b"1")),
        ([Create(path="/a")], Delete(path="/a")),
    ],
    ids=["made", "written", "deleted"],
)
@pytest.mark.parametrize("own", [True, False], ids=["by itself", "by another"])
def test_a_watch_on_a_node_is_called_once(
    zk: Ensembles, before: Sequence[Operation], event: Operation, own: bool
) -> None:
    client, other, heard = zk.client(), zk.client(), Heard()
    if before:
        done(client, *before)
    client.get("/a", watch=heard.watch("a"))
    done(client, Create(path="/b"))  # that of another is none of it
    done(client if own else other, event)
    zk.until(lambda: bool(heard.calls), "the watch")
    done(client, Delete(path="/a") if not isinstance(event, Delete) else Create(path="/a"))
    client.get("/b", watch=heard.watch("b"))
    done(client, Put(path="/b", data=b"1"))
    zk.until(lambda: "b" in heard.calls, "a later watch")
    assert heard.calls == ["a", "b"]


@pytest.mark.parametrize(
    ("event", "is_news"),
    [
        (Create(path="/a/y"), True),
        (Delete(path="/a/x"), True),
        (Put(path="/a/x", data=b"1"), False),
        (Put(path="/a", data=b"1"), False),
        (Create(path="/a/x/z"), False),
    ],
    ids=str,
)
def test_a_watch_on_children_is_called_when_one_comes_or_goes(zk: Ensembles, event: Operation, is_news: bool) -> None:
    client, heard = zk.client(), Heard()
    done(client, Create(path="/a"), Create(path="/a/x"))
    assert client.children("/a", watch=heard.watch("a")) == ["x"]
    client.get("/end", watch=heard.watch("end"))
    done(client, event)
    done(client, Create(path="/end"))
    zk.until(lambda: "end" in heard.calls, "the last watch")
    assert heard.calls == (["a", "end"] if is_news else ["end"])


def test_a_watch_on_the_children_of_a_missing_node_waits_for_it(zk: Ensembles) -> None:
    client, heard = zk.client(), Heard()
    assert client.children("/a", watch=heard.watch()) is None
    done(client, Create(path="/a"))
    zk.until(lambda: heard.calls == [""], "the watch")


def test_a_watch_on_children_is_called_when_the_node_goes(zk: Ensembles) -> None:
    client, heard = zk.client(), Heard()
    done(client, Create(path="/a"))
    client.children("/a", watch=heard.watch())
    client.get("/a", watch=heard.watch())
    done(client, Delete(path="/a"))
    zk.until(lambda: len(heard.calls) == 2, "both watches")


def test_a_write_that_is_refused_is_no_news(zk: Ensembles) -> None:
    client, heard = zk.client(), Heard()
    done(client, Create(path="/a"))
    client.get("/a", watch=heard.watch("a"))
    client.children("/", watch=heard.watch("/"))
    refused(client, Put(path="/a", data=b"1"), Create(path="/b"), Delete(path="/none"))
    done(client, Create(path="/c"))
    zk.until(lambda: "/" in heard.calls, "the last watch")
    assert heard.calls == ["/"]


def test_several_watches_on_one_node_are_all_called(zk: Ensembles) -> None:
    client, heard = zk.client(), Heard()
    for name in ("1", "2", "3"):
        client.get("/a", watch=heard.watch(name))
    done(client, Create(path="/a"))
    zk.until(lambda: len(heard.calls) == 3, "all watches")
    assert sorted(heard.calls) == ["1", "2", "3"]


# -- connections that are lost ---------------------------------------------------------------------------------


def test_a_session_outlives_its_connection_with_its_ephemeral_nodes(zk: Ensembles) -> None:
    client, other = zk.client(is_brief=True), zk.client()
    states, session = heard_by(zk, client).states, client.session_id
    done(client, Create(path="/e", ephemeral=True))
    zk.reset(client)
    zk.until(lambda: states[-2:] == [SUSPENDED, CONNECTED], "the session to go on")
    assert client.session_id == session and stat_of(client, "/e").ephemeral_owner == session
    zk.pass_session()
    assert stat_of(other, "/e").ephemeral_owner == session and EXPIRED not in states


def test_watches_are_called_after_a_lost_connection_as_they_may_have_missed_something(zk: Ensembles) -> None:
    client, other, heard = zk.client(), zk.client(), Heard()
    states = heard_by(zk, client).states
    client.get("/a", watch=heard.watch("a"))
    client.children("/", watch=heard.watch("/"))
    zk.cut(client)
    done(other, Create(path="/a"))
    zk.reset(client)
    zk.until(lambda: SUSPENDED in states, "the loss")
    assert heard.calls == []
    zk.mend(client)
    zk.until(lambda: len(heard.calls) == 2, "the watches")
    assert sorted(heard.calls) == ["/", "a"] and states[-1] is CONNECTED
    done(client, Put(path="/a", data=b"1"))
    client.get("/b", watch=heard.watch("b"))
    done(client, Create(path="/b"))
    zk.until(lambda: "b" in heard.calls, "a later watch")
    assert len(heard.calls) == 3


def test_an_answer_that_was_lost_leaves_its_write_done(zk: Ensembles) -> None:
    client, other = zk.client(), zk.client()
    zk.cut(client, to_server=False)
    future = client.write([Create(path="/a")])
    zk.until(lambda: other.get("/a") is not None, "the write")
    zk.reset(client)
    zk.mend(client)
    assert isinstance(future.exception(60), ConnectionLostError)
    client.sync()
    assert data_of(client, "/a") == [b""]


def test_a_request_that_was_lost_leaves_nothing(zk: Ensembles) -> None:
    client = zk.client()
    zk.cut(client, to_client=False)
    future = client.write([Create(path="/a")])
    zk.reset(client)
    zk.mend(client)
    assert isinstance(future.exception(60), ConnectionLostError)
    client.sync()
    assert data_of(client, "/a") == [None]


def test_after_a_lost_write_nothing_is_sent_until_sync_has_returned(zk: Ensembles) -> None:
    """What was done of a pipeline is its first part, whoever has not looked at the first error yet."""
    client = zk.client()
    states = heard_by(zk, client).states
    done(client, Create(path="/0"))
    zk.cut(client, to_client=False)
    futures = [client.write([Create(path=f"/{n}")]) for n in (1, 2)]
    zk.reset(client)
    zk.mend(client)
    zk.until(lambda: states[-2:] == [SUSPENDED, CONNECTED], "the session to go on")
    futures += [client.write([Create(path=f"/{n}")]) for n in (3, 4)]
    assert all(isinstance(future.exception(60), ConnectionLostError) for future in futures)
    assert client.children("/") == ["0"]
    lost(client, Create(path="/5"))
    client.sync()
    done(client, Create(path="/6"))
    assert client.children("/") == ["0", "6"]


def test_a_write_without_a_connection_fails_at_once_and_is_not_done_later(zk: Ensembles) -> None:
    client = zk.client()
    states = heard_by(zk, client).states
    zk.cut(client)
    zk.reset(client)
    zk.until(lambda: SUSPENDED in states, "the loss")
    lost(client, Create(path="/a"))
    zk.mend(client)
    client.sync()
    assert client.children("/") == []


def test_a_connection_that_is_lost_with_no_write_under_way_costs_no_write(zk: Ensembles) -> None:
    client = zk.client()
    states = heard_by(zk, client).states
    zk.reset(client)
    zk.until(lambda: states[-2:] == [SUSPENDED, CONNECTED], "the session to go on")
    done(client, Create(path="/a"))


def test_silence_is_noticed_within_the_time_of_the_session(zk: Ensembles) -> None:
    client = zk.client(is_brief=True)
    states = heard_by(zk, client).states
    zk.cut(client)
    future = client.write([Create(path="/a")])
    zk.until(lambda: SUSPENDED in states, "the loss")
    assert EXPIRED not in states and isinstance(future.exception(60), ConnectionLostError)


def test_who_reads_waits_for_a_connection_and_then_gives_up(zk: Ensembles) -> None:
    client = zk.client(is_brief=True)
    done(client, Create(path="/a"))
    zk.reset(client)
    assert data_of(client, "/a") == [b""]
    zk.cut(client)
    for call in (client.sync, lambda: client.get_all(["/a"])):
        with pytest.raises(ConnectionLostError, match="in time"):
            call()  # type: ignore[no-untyped-call]


# -- sessions that end -----------------------------------------------------------------------------------------


def test_a_session_whose_client_is_cut_off_expires_and_never_comes_back(zk: Ensembles) -> None:
    client, other = zk.client(is_brief=True), zk.client()
    heard = heard_by(zk, client)
    done(client, Create(path="/e", ephemeral=True))
    client.get("/e", watch=heard.watch("e"))
    client.children("/", watch=heard.watch("/"))
    session = client.session_id
    zk.cut(client)
    zk.until(lambda: other.get("/e") is None, "the session to expire")
    assert EXPIRED not in heard.states  # no server has said so
    zk.mend(client)
    zk.until(lambda: EXPIRED in heard.states, "the news")
    zk.until(lambda: len(heard.calls) == 2, "the watches")
    assert isinstance(refused(client, Create(path="/a")), SessionExpiredError)
    for call in (lambda: client.get("/a"), lambda: client.children("/"), client.sync, lambda: client.get_all(["/a"])):
        with pytest.raises(SessionExpiredError):
            call()  # type: ignore[no-untyped-call]
    zk.pass_session()
    assert heard.states[-1] is EXPIRED and heard.states.count(EXPIRED) == 1
    assert CONNECTED not in heard.states and client.session_id == session
    again = zk.client()
    assert again.session_id != session


def test_a_watch_of_another_sees_a_session_expire(zk: Ensembles) -> None:
    client, other, heard = zk.client(is_brief=True), zk.client(), Heard()
    done(client, Create(path="/e", ephemeral=True), Create(path="/f", ephemeral=True))
    other.get("/e", watch=heard.watch("e"))
    other.children("/", watch=heard.watch("/"))
    zk.cut(client)
    zk.until(lambda: len(heard.calls) == 2, "the watches")
    assert sorted(heard.calls) == ["/", "e"] and other.children("/") == []


def test_a_session_outlives_an_ensemble_that_is_down_for_longer_than_it(zk: Ensembles) -> None:
    """An ensemble that comes back gives every session its whole time again: no clock of ours ends one."""
    client, other = zk.client(is_brief=True), zk.client()
    states, session = heard_by(zk, client).states, client.session_id
    done(client, Create(path="/e", ephemeral=True))
    zk.down()
    zk.until(lambda: SUSPENDED in states, "the loss")
    zk.pass_session()
    with pytest.raises(ConnectionLostError):
        client.get("/e")
    assert EXPIRED not in states
    zk.up()
    zk.until(lambda: states[-1] is CONNECTED, "the session to go on")
    other.sync()
    assert client.session_id == session == stat_of(other, "/e").ephemeral_owner
    done(client, Put(path="/e", data=b"1"))


def test_a_closed_client_answers_nothing_more(zk: Ensembles) -> None:
    client, other = zk.client(is_brief=True), zk.client()
    heard = heard_by(zk, client)
    client.get("/a", watch=heard.watch())
    client.close()
    client.close()
    done(other, Create(path="/a"))
    assert isinstance(refused(client, Create(path="/b")), SessionExpiredError)
    for call in (lambda: client.get("/a"), lambda: client.children("/"), client.sync):
        with pytest.raises(SessionExpiredError):
            call()  # type: ignore[no-untyped-call]
    zk.pass_session()
    assert heard.calls == [] and EXPIRED not in heard.states


def test_who_waits_when_a_client_is_closed_hears_of_it(zk: Ensembles) -> None:
    client = zk.client(is_brief=True)
    zk.cut(client)
    future = client.write([Create(path="/a")])
    client.close()
    assert isinstance(future.exception(60), SessionExpiredError)


# -- the start, the chroot, other servers ----------------------------------------------------------------------


def test_a_start_that_no_server_answers_says_so_in_time(zk: Ensembles) -> None:
    client = zk.client(start=False)
    assert (client.session_id, client.session_timeout_s) == (0, 8.0)
    zk.down()
    with pytest.raises(ConnectionLostError, match=r"answered within 0\.5 s"):
        client.start(0.5)
    zk.up()
    assert isinstance(refused(client, Create(path="/a")), SessionExpiredError)


def test_a_chroot_is_made_with_all_above_it_and_seen_by_nobody_below(zk: Ensembles) -> None:
    outside = zk.client(chroot="")
    deep = f"{zk.chroot}/deep/er"
    inside, twin = zk.client(chroot=deep), zk.client(chroot=deep)
    (made,) = done(inside, Create(path="/a", data=b"1"))
    assert made.path == "/a" and data_of(twin, "/a") == [b"1"]
    assert data_of(outside, f"{deep}/a", "/a") == [b"1", None]
    assert inside.children("/") == ["a"] and outside.children(deep) == ["a"]
    assert stat_of(inside, "/") == stat_of(outside, deep)
    assert "zookeeper" in (outside.children("/") or [])
    heard = Heard()
    inside.get("/b", watch=heard.watch())
    done(outside, Create(path=f"{deep}/b"))
    zk.until(lambda: bool(heard.calls), "the watch")
    error = refused(inside, Create(path="/x/y"))
    assert error.path == "/x/y" and deep not in str(error)


def test_after_sync_what_others_have_written_is_read(zk: Ensembles) -> None:
    one, two = zk.client(), zk.client()
    for number in range(20):
        done(one, Create(path=f"/{number}"))
        two.sync()
        assert two.get(f"/{number}") is not None


# -- access ----------------------------------------------------------------------------------------------------


def test_what_is_made_with_credentials_others_may_read_and_not_write(zk: Ensembles) -> None:
    owner, twin, stranger = zk.client(user="holdfast"), zk.client(user="holdfast"), zk.client()
    done(owner, Create(path="/a", data=b"1"))
    assert data_of(stranger, "/a") == [b"1"] and stranger.children("/a") == []
    for operation in (Put(path="/a", data=b"2"), Create(path="/a/b"), Create(path="/b"), Delete(path="/a")):
        error = refused(stranger, Check(path="/a", version=0), operation)
        assert type(error) is AccessError and (error.path, error.index) == (operation.path, 1)
    assert data_of(twin, "/a") == [b"1"]
    done(twin, Put(path="/a", data=b"2"), Create(path="/a/b"))


def test_what_is_secret_others_may_not_even_read(zk: Ensembles) -> None:
    owner, stranger = zk.client(user="holdfast"), zk.client(user="other")
    done(owner, Create(path="/config"), Create(path="/config/users", data=b"hush"))
    with pytest.raises(AccessError, match="/config/users"):
        stranger.get("/config/users")
    with pytest.raises(AccessError):
        stranger.children("/config/users")
    with pytest.raises(AccessError):
        stranger.get_all(["/config", "/config/users"])
    assert type(refused(stranger, Check(path="/config/users", version=0))) is AccessError
    assert stranger.children("/config") == ["users"]
    assert data_of(owner, "/config/users") == [b"hush"]


def test_who_may_do_what_with_a_node_is_told_where_it_may_be_known(zk: Ensembles) -> None:
    owner, stranger = zk.client(user="holdfast"), zk.client()
    done(owner, Create(path="/config"), Create(path="/config/users"), Create(path="/consumers"))
    paths = ["/config", "/config/users", "/consumers", "/none"]
    config, users, consumers, none = owner.acls(paths)
    assert config is not None and users is not None
    assert {(each.scheme, each.rights) for each in config} == {("digest", 31), ("world", 1)}
    assert {(each.scheme, each.rights) for each in users} == {("digest", 31)}
    assert consumers == {NodeAclEntry("world", "anyone", 31)}, "anybody's, as with Kafka"
    assert none is None
    config, users, consumers, none = stranger.acls(paths)
    assert config is not None and {(each.scheme, each.rights) for each in config} == {("digest", 31), ("world", 1)}
    assert users == frozenset() and none is None
    done(stranger, Put(path="/consumers", data=b"1"), Create(path="/consumers/c"))
    assert stranger.acls(["/consumers/c"]) == [{NodeAclEntry("world", "anyone", 31)}]
