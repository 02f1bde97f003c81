"""Which events the logs of a real cluster have after what happens to it, as JSON; and the file that they are in."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.log_events import LogEvent
from holdfast.testing import Cluster, wait_for
from holdfast.testing.disks import ReplacedDisk
from tests.conftest import STEADY_DISKS
from tests.system.on_disks import TIMEOUT_S, create

pytestmark = pytest.mark.system

SETTINGS = {"log.format": "json", "default.replication.factor": "1", "log.dir.probe.interval.ms": "300", **STEADY_DISKS}
ALL = (1, 2, 3)
KINDS = {event.value.name: event.value for event in LogEvent}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(data_dir=tmp_path_factory.mktemp("events"), settings=SETTINGS) as running:
        running.create_topic("there", replication_factor=3)
        yield running


def run(cluster: Cluster, *words: str) -> str:
    command = (sys.executable, "-m", "holdfast.cli.main", *words, "--bootstrap-server", cluster.bootstrap)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Heard:
    """What the brokers' logs say from now on. Every line is an object, and every event one of the list."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before = {broker: len(self._lines(broker)) for broker in ALL}

    def _lines(self, broker: int) -> list[str]:
        text = (self._cluster.data_dir / f"broker-{broker}.log").read_text()
        return text[: text.rfind("\n") + 1].splitlines()

    def events(self) -> list[dict[str, Any]]:
        found = []
        for broker in ALL:
            for text in self._lines(broker)[self._before[broker] :]:
                line = json.loads(text)
                assert line["broker"] == broker
                if line["event"] is not None:
                    assert set(line["fields"]) <= set(KINDS[line["event"]].fields), line
                    found.append(line)
        return found

    def names(self) -> set[tuple[int, str]]:
        """Who said what."""
        return {(line["broker"], line["event"]) for line in self.events()}

    def until(self, *expected: tuple[int, str]) -> None:
        """These and no others."""
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: self.names() >= set(expected), "all of them", timeout_s=TIMEOUT_S)
        assert self.names() == set(expected)

    def fields(self, broker: int, event: str) -> list[dict[str, Any]]:
        return [line["fields"] for line in self.events() if (line["broker"], line["event"]) == (broker, event)]


def controller(cluster: Cluster) -> int:
    found = cluster.describe([]).controller_id
    assert found is not None
    return found


def test_a_topic_is_made_configured_and_deleted(three: Cluster) -> None:
    boss, heard = controller(three), Heard(three)
    run(three, "topics", "create", "t", "--partitions", "3", "--replication-factor", "2", "--config", "retention.ms=5")
    heard.until((boss, "topic.created"), (boss, "config.changed"))
    (made,) = heard.fields(boss, "topic.created")
    assert (made["topic"], made["partitions"], made["replication_factor"]) == ("t", 3, 2)
    assert heard.fields(boss, "config.changed")[0]["changes"] == ["retention.ms=5"]
    run(three, "topics", "delete", "t")
    heard.until((boss, "topic.created"), (boss, "config.changed"), (boss, "topic.deleted"))
    (line,) = [line for line in heard.events() if line["event"] == "topic.deleted"]
    assert line["message"] == "topic t is deleted" and line["level"] == "INFO"
    assert abs(datetime.fromisoformat(line["ts"]) - datetime.now(UTC)) < timedelta(minutes=5)


def test_a_reassignment_begins_and_ends(three: Cluster, tmp_path: Path) -> None:
    create(three, "moving", [[1, 2]])
    boss, heard = controller(three), Heard(three)
    plan = {"version": 1, "partitions": [{"topic": "moving", "partition": 0, "replicas": [2, 3]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    run(three, "reassign", "execute", "--reassignment-json-file", str(tmp_path / "plan.json"))
    expected = {"reassignment.started", "isr.expanded", "reassignment.finished", "leader.elected"}
    wait_for(lambda: {(boss, name) for name in expected} <= heard.names(), "its end", timeout_s=TIMEOUT_S)
    assert heard.names() == {(boss, name) for name in expected}
    (begun,), (ended,) = heard.fields(boss, "reassignment.started"), heard.fields(boss, "reassignment.finished")
    assert (begun["topic"], begun["partition"], begun["replicas"], begun["before"]) == ("moving", 0, [2, 3], [1, 2])
    assert (ended["replicas"], sorted(ended["before"])) == ([2, 3], [1, 2])
    assert heard.fields(boss, "leader.elected")[0]["clean"] is True


def test_a_directory_is_cordoned_and_a_replica_moves_away(three: Cluster) -> None:
    create(three, "here", [[1]])
    boss, heard = controller(three), Heard(three)
    source = three.folder_of(1, "here", 0).parent
    target = next(path for path in (three.log_dir(1, 1), three.log_dir(1, 2)) if path != source)
    run(three, "log-dirs", "cordon", "--broker", "1", str(source))
    cordoned = {(1, "dir.cordoned"), (boss, "config.changed"), (boss, "broker.dirs_changed")}
    heard.until(*cordoned)
    assert heard.fields(1, "dir.cordoned") == [{"dir": str(source)}]
    assert heard.fields(boss, "broker.dirs_changed")[0]["cordoned"] == 1
    run(three, "log-dirs", "move", "here-0", "--broker", "1", "--to", str(target))
    moved = cordoned | {(1, "move.started"), (1, "move.finished")}
    heard.until(*moved)
    (ended,) = heard.fields(1, "move.finished")
    assert (ended["dir"], ended["before"], ended["topic"]) == (str(target), str(source), "here")
    run(three, "log-dirs", "uncordon", "--broker", "1", str(source))
    heard.until(*moved, (1, "dir.uncordoned"))


def test_a_disk_dies_and_is_healed(three: Cluster, tmp_path: Path) -> None:
    boss = controller(three)
    victim = next(broker for broker in ALL if broker != boss)
    other = next(broker for broker in ALL if broker not in (boss, victim))
    create(three, "kept", [[victim, other]] * 2)
    create(three, "single", [[victim]] * 4)
    bad = three.folder_of(victim, "kept", 0).parent
    led, singles = set(), set()
    for (topic, number), seen in three.describe().partitions.items():
        if seen.leader == victim and (bad / f"{topic}-{number}").exists():
            led.add(f"{topic}-{number}")
            singles.update([f"{topic}-{number}"] if seen.replicas == (victim,) else [])
    assert singles, "new replicas go to the emptier directory"
    heard, disk = Heard(three), ReplacedDisk(bad, tmp_path)
    disk.fail()
    heard.until(
        (victim, "dir.offline"), (victim, "dir.replicas_offline"),
        (boss, "leader.elected"), (boss, "leader.lost"), (boss, "isr.shrunk"),
    )  # fmt: skip
    (line,) = [line for line in heard.events() if line["event"] == "dir.offline"]
    assert (line["level"], line["fields"]["dir"]) == ("ERROR", str(bad))
    assert line["message"].count(str(bad)) == 1 and "[Errno " in line["fields"]["reason"], line
    assert str(bad) not in line["fields"]["reason"]
    assert heard.fields(victim, "dir.replicas_offline")[0]["led"] == len(led)
    lost = heard.fields(boss, "leader.lost")
    assert {f"{each['topic']}-{each['partition']}" for each in lost} == singles
    assert {each["broker"] for each in heard.fields(boss, "leader.elected")} == {other}
    after = Heard(three)
    disk.heal()
    run(three, "log-dirs", "online", "--broker", str(victim), str(bad))
    wait_for(
        lambda: {(victim, "dir.online"), (boss, "leader.recovered"), (boss, "isr.expanded")} <= after.names(),
        "its replicas to be back", timeout_s=TIMEOUT_S,
    )  # fmt: skip
    assert after.fields(victim, "dir.online") == [{"dir": str(bad)}]
    assert not {name for _, name in after.names()} & {"dir.offline", "isr.shrunk", "broker.fenced"}


def test_a_broker_is_killed_and_comes_back(three: Cluster) -> None:
    boss = controller(three)
    victim, other = (broker for broker in ALL if broker != boss)
    create(three, "many", [[victim, other]] * 30)
    three.wait_in_sync(["many"])
    led = sum(p.leader == victim for p in three.describe(["many"]).partitions.values())
    assert led > 15, "a disk of it was so slow that others lead; more than are told one by one have to move"
    heard = Heard(three)
    three.kill(victim)
    wait_for(lambda: (boss, "isr.shrunk") in heard.names(), "the decision", timeout_s=TIMEOUT_S)
    assert {name for who, name in heard.names() if who == boss} >= {"broker.fenced", "leader.elected", "isr.shrunk"}
    assert not [name for who, name in heard.names() if who == victim], "it had no time to say anything"
    (fenced,) = heard.fields(boss, "broker.fenced")
    assert (fenced["broker"], fenced["leaders_moved"] >= led, fenced["isr_left"] >= 30) == (victim, True, True)
    elected = heard.fields(boss, "leader.elected")
    assert len(elected) < led <= sum(each.get("partitions", 1) for each in elected), "the rest is counted"
    after = Heard(three)
    three.revive()
    three.wait_in_sync(["many"])
    wait_for(lambda: (boss, "isr.expanded") in after.names(), "it is in sync", timeout_s=TIMEOUT_S)
    assert after.names() >= {(boss, "broker.registered"), (boss, "broker.unfenced"), (victim, "broker.started")}


def test_the_controller_is_killed(three: Cluster) -> None:
    before, heard = controller(three), Heard(three)
    three.kill(before)

    def another() -> set[int]:
        return {who for who, name in heard.names() if name == "controller.claimed"}

    (boss,) = wait_for(another, "another controller", timeout_s=TIMEOUT_S)
    wait_for(lambda: (boss, "broker.fenced") in heard.names(), "the end of the first", timeout_s=TIMEOUT_S)
    assert boss != before and heard.fields(boss, "broker.fenced")[0]["broker"] == before
    assert heard.fields(boss, "controller.claimed")[0]["broker"] == boss
    assert not any(who == before for who, _ in heard.names())
    three.revive()
    three.wait_in_sync()


def test_a_cluster_that_is_stopped_says_so(three: Cluster) -> None:
    """The last test of this cluster."""
    boss, heard = controller(three), Heard(three)
    three.stop()
    names = heard.names()
    assert {(broker, "broker.stopped") for broker in ALL} <= names
    resigned = heard.fields(boss, "controller.resigned")
    assert resigned and resigned[0]["reason"] == "the broker stops"
    assert "broker.shutting_down" in {name for _, name in names}
    assert {line["level"] for line in heard.events()} == {"INFO"}, "a stop in order is nothing to look after"


def test_files_are_put_aside_and_text_ends_with_the_fields(tmp_path: Path) -> None:
    settings = {"log.file.max.bytes": "600", "log.file.backups": "2"}
    with Cluster(brokers=1, data_dir=tmp_path / "data", settings=settings) as cluster:
        for number in range(12):
            cluster.create_topic(f"t{number}")
        folder = cluster.data_dir
        last = "(event=topic.created topic=t11 "

        def kept() -> list[Path]:
            return sorted(folder.glob("broker-1.log*"))

        wait_for(lambda: any(last in path.read_text() for path in kept()), "the last line", timeout_s=TIMEOUT_S)
        assert [path.name for path in kept()] == ["broker-1.log", "broker-1.log.1", "broker-1.log.2"]
        text = "".join(path.read_text() for path in kept())
        assert re.search(
            r"(?m)^\[\S+Z\] INFO \[broker-1\] topic t11 is there .*\(event=topic\.created topic=t11 ", text
        )
        # What Python itself writes goes along: the descriptor of standard error leads to the newest file.
        assert os.readlink(f"/proc/{cluster.pids()[1]}/fd/2") == str(folder / "broker-1.log")


def test_what_is_no_level_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "up", "--data-dir", str(tmp_path / "d")]
    environment = {**os.environ, "HOLDFAST_LOG_LEVEL": "loud"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    expected = "holdfast up: HOLDFAST_LOG_LEVEL=loud: expected one of DEBUG, INFO, WARNING, ERROR, CRITICAL\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)
    assert not (tmp_path / "d").exists()


def test_a_broker_by_hand_keeps_a_file_and_says_in_both_why_it_ends(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no directory")
    properties, log = tmp_path / "server.properties", tmp_path / "broker.log"
    lines = ("node.id=1", "listeners=PLAINTEXT://127.0.0.1:1", f"log.dirs={tmp_path}/data")
    properties.write_text("\n".join((*lines, "log.format=json", f"log.file={log}")))
    command = [sys.executable, "-m", "holdfast.cli.main", "broker", str(properties)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as broker:
        try:
            out, err = broker.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            broker.send_signal(signal.SIGKILL)
            raise
    assert (broker.returncode, out) == (1, "") and err.startswith("holdfast broker: ")
    found = [json.loads(line) for line in log.read_text().splitlines()]
    assert found[-1]["event"] == "broker.failed" and f"holdfast broker: {found[-1]['message']}\n" == err
    assert found[-1]["broker"] == 1 and found[-1]["level"] == "CRITICAL"
