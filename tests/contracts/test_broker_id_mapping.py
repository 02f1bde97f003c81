"""What every place that keeps which host has which broker id must do (BrokerIdMapping)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.broker.platform import Platform
from holdfast.coordination.embedded import EmbeddedStore
from holdfast.coordination.recorded_ids import RecordedBrokerIds
from holdfast.coordination.stores import open_broker_ids
from holdfast.metadata.broker_ids import Applicant, Awaited, BrokerIdMapping, HostEntry, Nameless, Outcome, Step, Taken
from holdfast.metadata.store import Candidate
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import ConfigError, KafkaStorageError
from holdfast.testing import wait_for
from tests.zookeeper.cluster_nodes import ClusterNodes

RACERS = 5
RACES = int(os.environ.get("HOLDFAST_ID_RACES", "10"))
PATIENCE_S = 60.0
"""With a directory that is as slow as the machine: none is to be left out here."""
RACER = """
import json, sys, threading, uuid
from holdfast.broker.platform import Platform
from holdfast.coordination.stores import open_broker_ids
from holdfast.metadata.broker_ids import Applicant, Taken
from holdfast.model.config import BrokerConfig
if sys.argv[2] == "zookeeper":
    import holdfast.coordination.kazoo_client
print("ready", flush=True)
for line in sys.stdin:
    opened = open_broker_ids(BrokerConfig.parse(json.loads(line)), Platform.real())
    opened.open()
    who = Applicant(host=sys.argv[1], claimant=uuid.uuid4(), address="127.0.0.1:" + sys.argv[1])
    while not isinstance(outcome := opened.mapping.take(who), Taken):
        threading.Event().wait(0.01)
    opened.close()
    print(outcome.broker_id, flush=True)
"""
"""Gets an id for its host in the cluster of the properties in each line."""
STORES = ["embedded", pytest.param("zookeeper", marks=pytest.mark.system)]
Open = Callable[[], BrokerIdMapping]


@pytest.fixture
def directories(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "one"), str(tmp_path / "two")]


@pytest.fixture(params=STORES)
def open_ids(request: pytest.FixtureRequest) -> Open:
    """Makes handles on one mapping, as several brokers have them that start."""
    if request.param == "embedded":
        recorded: Open = request.getfixturevalue("open_recorded")
        return recorded
    nodes: ClusterNodes = request.getfixturevalue("cluster_nodes")

    def make() -> BrokerIdMapping:
        store = nodes.store()
        store.cluster_id()
        return store.host_ids

    return make


@pytest.fixture
def open_recorded(directories: list[str]) -> Iterator[Open]:
    """Likewise, of the embedded store."""
    opened: list[EmbeddedStore] = []

    def make() -> BrokerIdMapping:
        opened.append(EmbeddedStore(directories, patience_s=PATIENCE_S))
        return RecordedBrokerIds(opened[-1])

    yield make
    for store in opened:
        store.close()


def applicant(host: str, number: int) -> Applicant:
    return Applicant(host=host, claimant=UUID(int=number))


def asked(mapping: BrokerIdMapping, who: Applicant) -> Outcome:
    """The answer, once there is one."""
    outcome = wait_for(lambda: mapping.take(who), "an answer")
    assert outcome is not None
    return outcome


def test_K426_04_what_was_taken_is_there_for_the_next_handle(open_ids: Open) -> None:
    assert open_ids().take(applicant("a", 1)) == Taken(broker_id=1001, step=Step.NEW, sequence=1)
    kept = HostEntry(broker_id=1001, claimant=UUID(int=1))
    assert open_ids().hosts() == {"a": kept}
    assert open_ids().take(applicant("a", 1)) == Taken(broker_id=1001, step=Step.HOST)
    assert open_ids().take(applicant("b", 2)) == Taken(broker_id=1002, step=Step.NEW, sequence=2)


def test_K426_13_a_tool_may_edit_it_while_no_broker_runs(open_ids: Open) -> None:
    tool = open_ids()
    tool.put("a", 10)
    tool.put("b", 11)
    tool.put("b", 12)
    assert tool.hosts() == {"a": HostEntry(broker_id=10), "b": HostEntry(broker_id=12)}
    assert open_ids().take(applicant("a", 1)) == Taken(broker_id=10, step=Step.HOST)
    assert tool.forget("b")
    assert not tool.forget("b")
    assert sorted(tool.hosts()) == ["a"]
    for host, broker_id in (("", 1), ("a", -1)):
        with pytest.raises(ConfigError):
            tool.put(host, broker_id)
    assert tool.hosts()["a"].broker_id == 10


def test_one_that_may_not_be_new_changes_nothing(open_ids: Open) -> None:
    mapping = open_ids()
    assert mapping.take(replace(applicant("a", 1), may_be_new=False)) == Nameless()
    assert mapping.hosts() == {}


def test_nobody_decides_beside_whoever_reigns(open_recorded: Open, directories: list[str]) -> None:
    """The one who reigns does not answer here: asked again later, it will."""
    reigning = EmbeddedStore(directories)
    claim = reigning.claim(Candidate(broker_id=1, host="127.0.0.1", port=1))
    mapping = open_recorded()
    assert mapping.take(applicant("a", 1)) is None
    with pytest.raises(KafkaStorageError, match="no controller that answers now"):
        mapping.put("a", 1)
    assert reigning.claim(Candidate(broker_id=1, host="127.0.0.1", port=1)).epoch == claim.epoch + 1
    reigning.close()
    assert mapping.take(applicant("a", 1)) == Taken(broker_id=1001, step=Step.NEW, sequence=1)


def test_who_decides_in_passing_is_told_to_nobody_and_in_nobodys_way(
    open_recorded: Open, directories: list[str]
) -> None:
    open_recorded().take(applicant("a", 1))
    store = EmbeddedStore(directories)
    assert store.active() is None
    assert [state.is_good for state in store.copies()] == []
    claim = store.claim(Candidate(broker_id=1001, host="h", port=1))
    assert claim.epoch == 2
    assert [state.is_good for state in store.copies()] == [True, True]
    store.close()


def test_K426_04_an_id_that_another_start_has_taken_is_waited_for(open_ids: Open) -> None:
    """Not by the start that has it, nor by one at its address; and not for ever."""
    one, two = open_ids(), open_ids()
    first = replace(applicant("a", 1), address="127.0.0.1:9")
    taken = Taken(broker_id=1001, step=Step.HOST)
    assert asked(one, first) == Taken(broker_id=1001, step=Step.NEW, sequence=1)
    assert asked(two, applicant("a", 2)) == Awaited(broker_id=1001)
    assert asked(one, first) == taken
    assert asked(two, replace(first, claimant=UUID(int=3))) == taken
    assert asked(one, replace(first, address=None)) == Awaited(broker_id=1001)
    assert asked(one, replace(applicant("a", 2), insists=True)) == taken
    assert one.hosts() == {"a": HostEntry(broker_id=1001, claimant=UUID(int=2))}


def test_a_host_can_be_any_name(open_ids: Open) -> None:
    """The directory of a log, an address, and what is no part of a node's name."""
    mapping = open_ids()
    names = ["/data/d 1", "[::1]:9092", ".", "..", "50%2F", "aä", "x" * 1024]
    for number, name in enumerate(names):
        mapping.put(name, number)
    assert {name: entry.broker_id for name, entry in open_ids().hosts().items()} == {
        name: number for number, name in enumerate(names)
    }
    assert asked(mapping, applicant("..", 1)) == Taken(broker_id=3, step=Step.HOST)
    assert all(mapping.forget(name) for name in names)
    assert mapping.hosts() == {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Processes, one for each host, that wait to be told where to ask. ``properties``: of the cluster of a run."""

    racers: list[subprocess.Popen[str]]
    properties: Callable[[int], dict[str, str]]

    def answers(self, run: int | None = None) -> list[str]:
        """What each says next, after all have been told."""
        for racer in self.racers if run is not None else ():
            assert racer.stdin is not None and run is not None
            racer.stdin.write(json.dumps(self.properties(run)) + "\n")
            racer.stdin.flush()
        found = []
        for racer in self.racers:
            assert racer.stdout is not None
            found.append(racer.stdout.readline().strip())
        return found

    def kept(self, run: int) -> dict[str, str]:
        opened = open_broker_ids(BrokerConfig.parse(self.properties(run)), Platform.real())
        opened.open(may_be_new=False)
        try:
            return {host: str(entry.broker_id) for host, entry in opened.mapping.hosts().items()}
        finally:
            opened.close()


@pytest.fixture(params=STORES)
def race(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Race]:
    made = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(9000 + n), request.param],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for n in range(RACERS)
    ]  # fmt: skip
    common = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "log")}

    def properties(run: int) -> dict[str, str]:
        if request.param == "embedded":
            return common | {
                "metadata.log.dirs": f"{tmp_path}/{run}-one,{tmp_path}/{run}-two",
                "metadata.log.dir.timeout.ms": str(int(PATIENCE_S * 1000)),
            }
        nodes: ClusterNodes = request.getfixturevalue("cluster_nodes")
        place = f"{nodes.server.connect}{nodes.chroot}-{run}"
        return common | {"metadata.store": "zookeeper", "zookeeper.connect": place}

    yield Race(racers=made, properties=properties)
    for racer in made:
        racer.kill()
        racer.communicate()


def test_K426_17_processes_that_ask_at_the_same_time_get_different_ids(race: Race) -> None:
    """Again and again in a cluster that none of them has seen, and then in one that knows them."""
    assert race.answers() == ["ready"] * RACERS
    for run in range(RACES):
        found = race.answers(run)
        assert sorted(found) == [str(1001 + n) for n in range(RACERS)]
        assert race.kept(run) == {str(9000 + n): broker_id for n, broker_id in enumerate(found)}
        if run == RACES - 1:
            assert race.answers(run) == found
