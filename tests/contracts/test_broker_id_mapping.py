"""What every place that keeps which host has which broker id must do (BrokerIdMapping)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.coordination.embedded import EmbeddedStore
from holdfast.coordination.recorded_ids import RecordedBrokerIds
from holdfast.metadata.broker_ids import Applicant, BrokerIdMapping, HostEntry, Nameless, Step, Taken
from holdfast.metadata.store import Candidate
from holdfast.model.errors import ConfigError, KafkaStorageError

RACERS = 5
RACES = int(os.environ.get("HOLDFAST_ID_RACES", "10"))
PATIENCE_S = 60.0
"""With a directory that is as slow as the machine: none is to be left out here."""
RACER = """
import sys, threading, uuid
from holdfast.coordination.embedded import EmbeddedStore
from holdfast.coordination.recorded_ids import RecordedBrokerIds
from holdfast.metadata.broker_ids import Applicant, Taken
print("ready", flush=True)
for directories in sys.stdin:
    store = EmbeddedStore(directories.split(), patience_s=60.0)
    mapping = RecordedBrokerIds(store)
    who = Applicant(host=sys.argv[1], claimant=uuid.uuid4(), address="127.0.0.1:" + sys.argv[1])
    while not isinstance(outcome := mapping.take(who), Taken):
        threading.Event().wait(0.01)
    store.close()
    print(outcome.broker_id, flush=True)
"""
"""Gets an id for its host in the directories of each line."""
Open = Callable[[], BrokerIdMapping]


@pytest.fixture
def directories(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "one"), str(tmp_path / "two")]


@pytest.fixture
def open_ids(directories: list[str]) -> Iterator[Open]:
    """Makes handles on one mapping, as several brokers have them that start."""
    opened: list[EmbeddedStore] = []

    def make() -> BrokerIdMapping:
        opened.append(EmbeddedStore(directories, patience_s=PATIENCE_S))
        return RecordedBrokerIds(opened[-1])

    yield make
    for store in opened:
        store.close()


def applicant(host: str, number: int) -> Applicant:
    return Applicant(host=host, claimant=UUID(int=number))


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


def test_nobody_decides_beside_whoever_reigns(open_ids: Open, directories: list[str]) -> None:
    """The one who reigns does not answer here: asked again later, it will."""
    reigning = EmbeddedStore(directories)
    claim = reigning.claim(Candidate(broker_id=1, host="127.0.0.1", port=1))
    mapping = open_ids()
    assert mapping.take(applicant("a", 1)) is None
    with pytest.raises(KafkaStorageError, match="no controller that answers now"):
        mapping.put("a", 1)
    assert reigning.claim(Candidate(broker_id=1, host="127.0.0.1", port=1)).epoch == claim.epoch + 1
    reigning.close()
    assert mapping.take(applicant("a", 1)) == Taken(broker_id=1001, step=Step.NEW, sequence=1)


def test_who_decides_in_passing_is_told_to_nobody_and_in_nobodys_way(open_ids: Open, directories: list[str]) -> None:
    open_ids().take(applicant("a", 1))
    store = EmbeddedStore(directories)
    assert store.active() is None
    assert [state.is_good for state in store.copies()] == []
    claim = store.claim(Candidate(broker_id=1001, host="h", port=1))
    assert claim.epoch == 2
    assert [state.is_good for state in store.copies()] == [True, True]
    store.close()


@pytest.fixture
def racers() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes, one for each host, that wait to be told where to ask."""
    made = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(9000 + n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n in range(RACERS)
    ]
    yield made
    for racer in made:
        racer.kill()
        racer.communicate()


def answers(racers: list[subprocess.Popen[str]], line: str | None = None) -> list[str]:
    """What each says next, after all have been told."""
    for racer in racers if line is not None else ():
        assert racer.stdin is not None
        racer.stdin.write(f"{line}\n")
        racer.stdin.flush()
    found = []
    for racer in racers:
        assert racer.stdout is not None
        found.append(racer.stdout.readline().strip())
    return found


def test_K426_17_processes_that_ask_at_the_same_time_get_different_ids(
    racers: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Again and again in a cluster that none of them has seen, and then in one that knows them."""
    assert answers(racers) == ["ready"] * RACERS
    for run in range(RACES):
        directories = f"{tmp_path}/{run}-one {tmp_path}/{run}-two"
        found = answers(racers, directories)
        assert sorted(found) == [str(1001 + n) for n in range(RACERS)]
        store = EmbeddedStore(directories.split(), patience_s=PATIENCE_S)
        kept = {host: str(entry.broker_id) for host, entry in RecordedBrokerIds(store).hosts().items()}
        store.close()
        assert kept == {str(9000 + n): broker_id for n, broker_id in enumerate(found)}
        if run == RACES - 1:
            assert answers(racers, directories) == found
