"""``holdfast rolling-restart`` under a load that must not notice, and when a disk dies in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from holdfast.client.blocking import BlockingClient
from holdfast.client.views import NewTopic
from holdfast.testing import Cluster, mounts, wait_for
from holdfast.testing.disks import EioDisk
from holdfast.testing.processes import lives
from holdfast.testing.users import NOBODY
from tests.conftest import STEADY_DISKS
from tests.system.services import Services, stop
from tests.system.steady import SteadyLoad

pytestmark = pytest.mark.system

ALL = (1, 2, 3)
IN_TURN = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
ROOT = Path(__file__).parents[2]


def create(bootstrap: str, topic: str, replicas: Mapping[int, Sequence[int]] = IN_TURN) -> None:
    with BlockingClient(bootstrap) as client:
        assigned = {partition: tuple(brokers) for partition, brokers in replicas.items()}
        client.create_topic(NewTopic(name=topic, assignments=assigned, configs={"min.insync.replicas": "2"}))


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "holdfast.cli.main", "rolling-restart", *args]


def run(*args: str) -> tuple[int, list[str], str]:
    done = subprocess.run(command(*args), capture_output=True, text=True, timeout=300, cwd=ROOT)
    return done.returncode, done.stdout.splitlines(), done.stderr


def restarted(lines: Sequence[str]) -> list[int]:
    return [int(line.split()[1].rstrip(":")) for line in lines if ": restarted in " in line]


def controller_of(cluster: Cluster) -> int:
    found = cluster.describe([]).controller_id
    assert found is not None
    return found


def test_three_brokers_of_up_are_restarted_and_nobody_notices(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster(brokers=3)
    create(cluster.bootstrap, topic)
    cluster.wait_in_sync([topic])
    before, controller = cluster.pids(), controller_of(cluster)
    with SteadyLoad(cluster.bootstrap, topic) as load:
        code, lines, err = run("--data-dir", str(cluster.data_dir))
        assert code == 0, err
        load.goes_on()
    order = restarted(lines)
    assert (sorted(order), order[-1]) == ([1, 2, 3], controller)
    assert lines[-1].startswith("Restarted 3 brokers in "), lines
    assert load.smallest_isr == 2, "one was away at a time, and was told of"
    assert all(cluster.pids()[broker] != before[broker] and lives(cluster.pids()[broker]) for broker in ALL)
    assert not (cluster.data_dir / "rolling-restart.json").exists()


def test_it_stops_when_a_disk_dies_names_it_and_goes_on_later(topic: str) -> None:
    disks = {(broker, number): EioDisk for broker in ALL for number in (1, 2)}
    settings = {"log.dir.probe.interval.ms": "300", **STEADY_DISKS}
    with Cluster(disks=disks, user=NOBODY, settings=settings) as cluster:
        create(cluster.bootstrap, topic)
        cluster.wait_in_sync([topic])
        before = cluster.pids()
        data_dir = str(cluster.data_dir)
        victim = min(set(ALL) - {controller_of(cluster)})  # it is the first to be restarted
        number = int(cluster.folder_of(victim, topic, 0).parent.name.rpartition("-")[2])
        path = str(cluster.log_dir(victim, number))
        with SteadyLoad(cluster.bootstrap, topic) as load:
            running = subprocess.Popen(
                command("--data-dir", data_dir), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            wait_for(lambda: cluster.pids()[victim] != before[victim], "the first broker to start again")
            cluster.disks[victim, number].fail()  # its other replicas are not in sync yet
            out, err = running.communicate(timeout=300)
            assert running.returncode == 1, out
            assert f"holdfast rolling-restart: stopped: broker {victim}: log directory {path} is offline" in err
            assert restarted(out.splitlines()) == [victim]
            load.goes_on()

            code, lines, err = run("--data-dir", data_dir)  # it is dead still
            assert (code, restarted(lines), f"log directory {path} is offline" in err) == (1, [], True)

            cluster.disks[victim, number].heal()
            heal = [sys.executable, "-m", "holdfast.cli.main", "log-dirs", "online", "--broker", str(victim), path]
            subprocess.run(
                [*heal, "--bootstrap-server", cluster.bootstrap], check=True, capture_output=True, timeout=60
            )
            once = cluster.pids()
            code, lines, err = run("--data-dir", data_dir)
            assert code == 0, err
            assert lines[0].endswith(f"restarted already: {victim}")
            assert restarted(lines) == sorted(set(ALL) - {victim}, key=lambda b: (b == restarted(lines)[-1], b))
            load.goes_on()
        assert load.smallest_isr == 2
        assert cluster.pids()[victim] == once[victim], "it was restarted by the first run"
        assert {b for b in ALL if before[b] == once[b]} == set(ALL) - {victim}
        assert all(cluster.pids()[b] != before[b] for b in ALL)


def test_a_broker_that_ends_after_its_start_ends_the_run_and_the_next_one_begins_with_it(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster(brokers=3)
    create(cluster.bootstrap, topic)
    cluster.wait_in_sync([topic])
    before, data_dir = cluster.pids(), str(cluster.data_dir)
    first = min(set(ALL) - {controller_of(cluster)})
    properties = cluster.data_dir / f"broker-{first}.properties"
    good = properties.read_text()
    properties.write_text(f"{good}\nmin.insync.replicas=none\n")
    code, lines, err = run("--data-dir", data_dir)
    assert (code, restarted(lines)) == (1, []), lines
    assert f"holdfast rolling-restart: broker {first} (process " in err
    assert f") has ended after its restart: see {cluster.data_dir}" in err
    assert {broker for broker in ALL if cluster.pids()[broker] != before[broker]} == {first}

    properties.write_text(good)
    code, lines, err = run("--data-dir", data_dir)
    assert code == 0, err
    assert restarted(lines)[0] == first and sorted(restarted(lines)) == [1, 2, 3]


def test_a_broker_that_a_command_restarted_and_that_does_not_serve_ends_the_run(tmp_path: Path, topic: str) -> None:
    with Services(tmp_path) as services:
        create(services.bootstrap, topic)
        before, state = services.pids(), tmp_path / "state.json"
        first = min(set(ALL) - {services.controller()})
        properties = tmp_path / f"{first}.properties"
        good = properties.read_text()
        properties.write_text(f"{good}min.insync.replicas=none\n")
        given = ["--command", services.command("restart"), "--state", str(state), "-b", services.bootstrap]
        code, lines, err = run(*given, "--timeout", "5")
        assert (code, restarted(lines)) == (1, []), lines
        assert f"stopped: broker {first} was restarted, and does not serve within 5 s: the controller does not c" in err
        assert f"restarted so far: none; the same command begins with broker {first}" in err
        assert {broker for broker in ALL if services.pids()[broker] != before[broker]} == {first}

        properties.write_text(good)
        code, lines, err = run(*given)
        assert code == 0, err
        assert restarted(lines)[0] == first and sorted(restarted(lines)) == [1, 2, 3]


def test_three_brokers_are_restarted_by_a_command_and_nobody_notices(tmp_path: Path, topic: str) -> None:
    with Services(tmp_path) as services:
        create(services.bootstrap, topic)
        before = services.pids()
        state = tmp_path / "state.json"
        given = ["--state", str(state), "--bootstrap-server", services.bootstrap]
        with SteadyLoad(services.bootstrap, topic) as load:
            code, lines, err = run("--command", services.command("restart"), *given)
            assert code == 0, err
            load.goes_on()
        assert sorted(restarted(lines)) == [1, 2, 3]
        assert load.smallest_isr == 2
        assert all(services.pids()[broker] != before[broker] for broker in ALL)
        assert not state.exists()

        # What does not restart a broker is told, and what fails.
        code, _, err = run("--command", "true {broker}", "--broker", "2", "--timeout", "1", *given)
        assert code == 1 and "the command did not restart broker 2: a connection to 127.0.0.1:" in err
        code, _, err = run("--command", "exit 3; echo {broker}", "--broker", "2", *given)
        assert (code, err) == (
            1, "holdfast rolling-restart: the command for broker 2 ended with exit code 3: exit 3; echo 2\n"
        )  # fmt: skip
        assert json.loads(state.read_text())["restarting"] == 2

        # A run that was killed while a broker was down starts that one first, safe or not.
        stop(tmp_path, 2)
        written = json.loads(state.read_text())
        state.write_text(json.dumps(written | {"done": [], "restarting": 2, "brokers": [2]}))
        code, lines, err = run("--command", services.command("start"), *given)
        assert (code, restarted(lines)) == (0, [2]), err


def test_by_a_command_too_it_stops_when_a_disk_dies_names_it_and_goes_on_later(topic: str) -> None:
    folder = mounts.scratch()
    try:
        (folder / "images").mkdir()
        places = [(broker, folder / f"broker-{broker}" / name) for broker in ALL for name in ("d1", "d2")]
        disks = {(broker, path): EioDisk(path, folder / "images") for broker, path in places}
        with Services(folder) as services:
            create(services.bootstrap, topic)
            before, state = services.pids(), folder / "state.json"
            given = ["--command", services.command("restart"), "--state", str(state), "-b", services.bootstrap]
            victim = min(set(ALL) - {services.controller()})  # it is the first to be restarted
            (path,) = (path for broker, path in places if broker == victim and (path / f"{topic}-0").exists())
            with SteadyLoad(services.bootstrap, topic) as load:
                running = subprocess.Popen(
                    command(*given), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
                )
                wait_for(lambda: services.answers(victim, before), "the first broker to serve again")
                disks[victim, path].fail()
                out, err = running.communicate(timeout=300)
                assert (running.returncode, restarted(out.splitlines())) == (1, [victim]), (out, err)
                assert f"stopped: broker {victim}: log directory {path} is offline" in err
                assert json.loads(state.read_text())["done"] == [victim]
                load.goes_on()
                disks[victim, path].heal()
                online = ["log-dirs", "online", "--broker", str(victim), str(path), "-b", services.bootstrap]
                subprocess.run(
                    [sys.executable, "-m", "holdfast.cli.main", *online], check=True, capture_output=True, timeout=60
                )
                once = services.pids()[victim]
                code, lines, err = run(*given)
                assert (code, lines[0].endswith(f"restarted already: {victim}")) == (0, True), err
                assert sorted(restarted(lines)) == sorted(set(ALL) - {victim})
                load.goes_on()
            assert load.smallest_isr == 2
            assert services.pids()[victim] == once and not state.exists()
            assert all(services.pids()[broker] != before[broker] for broker in ALL)
        for disk in disks.values():
            disk.close()
    finally:
        mounts.remove(folder)


def test_a_partition_that_cannot_do_without_a_broker_is_named_before_anything_is_stopped(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster(brokers=2)
    create(cluster.bootstrap, topic, {0: (1, 2)})
    before, data_dir = cluster.pids(), str(cluster.data_dir)
    code, lines, err = run("--data-dir", data_dir)
    other = next(b for b in (1, 2) if b != controller_of(cluster))
    assert (code, lines) == (1, [])
    assert err == (
        "holdfast rolling-restart: 1 partition has too few other replicas for min.insync.replicas while broker "
        f"{other} is stopped: {topic}-0: --accept-unavailable restarts it all the same\n"
    )
    assert cluster.pids() == before
    code, lines, err = run("--data-dir", data_dir, "--dry-run")
    assert (code, len(lines), "too few other replicas" in lines[0]) == (1, 2, True)
    code, lines, err = run("--data-dir", data_dir, "--accept-unavailable", "--broker", str(other))
    assert (code, restarted(lines)) == (0, [other]), err
    assert {b for b in (1, 2) if cluster.pids()[b] != before[b]} == {other}
