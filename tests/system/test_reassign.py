"""Replicas move between brokers, under load, while disks and brokers die (KIP-112 scenario 7, KIP-455)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from holdfast.testing import FAULTS, Cluster, wait_for
from holdfast.testing.users import NOBODY
from tests.system.on_disks import (
    SETTINGS,
    STORAGE_ERROR,
    TIMEOUT_S,
    Load,
    ask,
    create,
    errors_of_dirs,
    offline,
    on_disk,
    wait_equal,
    wait_offline,
)

pytestmark = pytest.mark.system

GOLDEN = Path(__file__).parents[1] / "golden" / "cli" / "4.3.0" / "kafka-reassign-partitions.json"
BROKERS = 4
NOT_HERE = 9


def run(cluster: Cluster, *words: str, code: int = 0) -> str:
    """``holdfast ...``; what it says on standard output and error."""
    command = (sys.executable, "-m", "holdfast.cli.main", *words, "--bootstrap-server", cluster.bootstrap)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def plan(cluster: Cluster, topic: str, replicas: list[int], paths: list[str] | None = None, partition: int = 0) -> str:
    """A plan as a file."""
    entry: dict[str, Any] = {"topic": topic, "partition": partition, "replicas": replicas}
    if paths is not None:
        entry["log_dirs"] = paths
    name = f"plan-{topic}-{partition}-{'-'.join(map(str, replicas))}-{bool(paths)}.json"
    path = cluster.data_dir / name
    path.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    return str(path)


def execute(cluster: Cluster, path: str, *more: str, code: int = 0) -> str:
    return run(cluster, "reassign", "execute", "--reassignment-json-file", path, *more, code=code)


def verify(cluster: Cluster, path: str) -> str:
    return run(cluster, "reassign", "verify", "--reassignment-json-file", path)


def wait_over(cluster: Cluster, path: str) -> None:
    """The metadata are asked first: a command, again and again, takes the CPU from what it waits for."""
    entries = json.loads(Path(path).read_text())["partitions"]

    def arrived() -> bool:
        return all(replicas_of(cluster, e["topic"], e["partition"]) == tuple(e["replicas"]) for e in entries)

    wait_for(arrived, f"the replicas of {path}", timeout_s=TIMEOUT_S)
    wait_for(lambda: "is completed." in verify(cluster, path), f"{path} to be over", timeout_s=TIMEOUT_S)


def replicas_of(cluster: Cluster, topic: str, partition: int = 0) -> tuple[int, ...]:
    return cluster.describe([topic]).partitions[topic, partition].replicas


def has_folder(cluster: Cluster, broker: int, topic: str) -> bool:
    return any(cluster.log_dir(broker, n).joinpath(f"{topic}-0").exists() for n in (1, 2))


def wish(cluster: Cluster, broker: int, path: Path, topic: str) -> int:
    """The error of AlterReplicaLogDirs; 9: it has no such replica, and remembers."""
    from kio.schema.alter_replica_log_dirs.v2 import request as m

    topics: Any = (m.AlterReplicaLogDirTopic(name=topic, partitions=(0,)),)  # type: ignore[arg-type]
    dirs = (m.AlterReplicaLogDir(path=str(path), topics=topics),)
    answer = ask(cluster, broker, "alter_replica_log_dirs", 2, "AlterReplicaLogDirs", dirs=dirs)
    return int(answer.results[0].partitions[0].error_code)


def kafkas(*words: str) -> list[str]:
    """What Kafka's tool said to the first recorded command with these words."""
    cases = (case for case in json.loads(GOLDEN.read_text()) if set(words) <= set(case["command"]))
    said: str = next(cases)["stdout"]
    return said.strip().splitlines()


def shape(text: str) -> list[str]:
    """Lines without what differs: topics, brokers, directories, numbers."""
    text = re.sub(r'"(/[^"]*|any)"', '"DIR"', text)
    text = re.sub(r"/\S*", "DIR", text)
    text = re.sub(r"\b(t2|test_[\w-]+)-0\b", "T-0", text)
    text = re.sub(r'"topic":"[^"]*"', '"topic":"T"', text)
    return [re.sub(r"[\d,]+", "N", line).strip() for line in text.splitlines()]


def test_K113_11_the_reassign_tool_says_what_kafkas_does(topic: str) -> None:
    """A plan with log directories and a throttle is begun, seen, verified; another one is taken back."""
    with Cluster(brokers=BROKERS, settings={"default.replication.factor": "1"}) as cluster:
        create(cluster, topic, [[1, 2]])
        paths = [str(cluster.log_dir(3, 2)), "any"]
        path = plan(cluster, topic, [3, 2], paths)
        with Load(cluster, topic) as load:
            said = execute(cluster, path, "--replica-alter-log-dirs-throttle", "100000")
            there = {json.dumps(str(cluster.log_dir(b, n))) for b in (1, 2) for n in (1, 2)}
            assert any(one in said for one in there), "the plan for going back says where replicas are"
            assert f"moving log directory to {paths[0]} for replica {topic}-0 with broker 3" in said
            wait_over(cluster, path)
            last = verify(cluster, path)
            assert f"Reassignment of replica {topic}-0-3 completed successfully." in last
            load.progress(20)
        assert on_disk(cluster, 3, 2) >= {(topic, 0)} and replicas_of(cluster, topic) == (3, 2)
        theirs = shape("\n".join(kafkas("--execute", "plan-dirs.json")))
        assert shape(said) == [line.replace("--verify", "verify") for line in theirs]
        theirs = shape("\n".join(kafkas("--verify", "plan-dirs.json")))
        assert shape(last.replace(topic, "t2")) == shape("\n".join(theirs))
        wait_equal(cluster, topic, 0)


def test_C_2_a_reassignment_with_a_throttle_takes_its_time_and_verify_removes_it(topic: str) -> None:
    """Lines as Kafka's; a topic that is not named is not held up; the limit is raised while it is under way."""
    rate, sent = 4_000_000, 20_000_000
    with Cluster(brokers=3, settings={"default.replication.factor": "1"}) as cluster:
        create(cluster, topic, [[1, 2]])
        create(cluster, f"{topic}-other", [[1]])
        fill(cluster, topic, sent)
        fill(cluster, f"{topic}-other", sent // 4)
        path = plan(cluster, topic, [3, 2])
        began = time.monotonic()
        said = execute(cluster, path, "--throttle", str(rate))
        asked = time.monotonic()
        assert shape(said) == [line.replace("--verify", "verify") for line in shape("\n".join(kafkas("--throttle")))]
        assert f"The inter-broker throttle limit was set to {rate} B/s" in said
        assert limits(cluster, 1, topic) == {
            "leader.replication.throttled.rate": str(rate), "follower.replication.throttled.rate": str(rate),
            "leader.replication.throttled.replicas": "0:1,0:2", "follower.replication.throttled.replicas": "0:3",
        }  # fmt: skip
        wait_for(lambda: replicas_of(cluster, topic) == (3, 2), "the reassignment", timeout_s=TIMEOUT_S)
        over, wanted = time.monotonic(), sent / rate
        assert over - began >= 0.9 * wanted, f"{over - began:.1f} s at least for {wanted:.1f} s"
        assert over - asked <= 2 * wanted, f"{over - asked:.1f} s at most for {wanted:.1f} s"
        wait_over(cluster, path)
        assert f"Clearing topic-level throttles on topic {topic}" in verify(cluster, path)
        assert limits(cluster, 1, topic) == {}
        back, other = plan(cluster, topic, [1, 2]), plan(cluster, f"{topic}-other", [2])
        execute(cluster, back, "--throttle", "1000")
        execute(cluster, other, "--additional")
        wait_for(
            lambda: replicas_of(cluster, f"{topic}-other") == (2,), "what has no limit to be over", timeout_s=TIMEOUT_S
        )
        assert "is still in progress." in verify(cluster, back)
        again = execute(cluster, back, "--throttle", "100000000", "--additional")
        assert "The inter-broker throttle limit was set to 100000000 B/s" in again
        wait_over(cluster, back)
        wait_equal(cluster, topic, 0)


def fill(cluster: Cluster, topic: str, size: int) -> None:
    """About so many bytes that do not compress."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5})
    for _ in range(size // 10_000):
        producer.produce(topic, os.urandom(10_000), partition=0)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def limits(cluster: Cluster, broker: int, topic: str) -> dict[str, str]:
    """The throttles that are set for a broker and for a topic."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    resource = confluent_kafka.admin.ConfigResource
    found = {}
    for one in (resource("BROKER", str(broker)), resource("TOPIC", topic)):
        [future] = admin.describe_configs([one]).values()
        told = future.result(TIMEOUT_S)
        found |= {name: e.value for name, e in told.items() if "throttled" in name and not e.is_default}
    return found


def to_a_dead_directory(cluster: Cluster, topic: str) -> str:
    """A plan by which broker 4 gets a replica, on a directory that is dead since the wish for it."""
    disk = cluster.disks[4, 1]
    assert wish(cluster, 4, disk.path, topic) == NOT_HERE
    disk.fail()
    wait_for(lambda: errors_of_dirs(cluster, 4)[1] != 0, "the disk to be found dead", timeout_s=TIMEOUT_S)
    assert wish(cluster, 4, disk.path, topic) == STORAGE_ERROR
    return plan(cluster, topic, [2, 3, 4])


def wait_refused(cluster: Cluster, topic: str) -> None:
    """Until broker 4 cannot make its replica."""
    wait_for(lambda: offline(cluster, [topic], at=1) == {(topic, 0): (4,)}, "4 to be offline", timeout_s=TIMEOUT_S)
    view = cluster.describe([topic]).partitions[topic, 0]
    assert (view.replicas, set(view.isr)) == ((2, 3, 4, 1), {1, 2, 3})


@pytest.mark.parametrize("another", [False, True])
def test_a_target_that_is_bad_keeps_it_open_and_the_old_replicas_in_place_K112_70(topic: str, another: bool) -> None:
    """When the disk is mended the rest goes by itself; also while ``another`` one is dead still."""
    disks = {(4, number): FAULTS["eio"] for number in ((1, 2) if another else (1,))}
    with Cluster(brokers=BROKERS, log_dirs=3, disks=disks, user=NOBODY, settings=SETTINGS) as cluster:
        create(cluster, topic, [[1, 2, 3]], min_insync_replicas="2")
        path = to_a_dead_directory(cluster, topic)
        if another:
            cluster.disks[4, 2].fail()
            wait_for(lambda: errors_of_dirs(cluster, 4)[2] != 0, "the other disk to be found dead", timeout_s=TIMEOUT_S)
        with Load(cluster, topic) as load:
            assert f"Successfully started partition reassignment for {topic}-0" in execute(cluster, path)
            wait_refused(cluster, topic)
            load.progress(50)
            assert shape(verify(cluster, path).strip()) == shape("\n".join(kafkas("--verify", "plan.json")))
            assert run(cluster, "reassign", "list").splitlines() == [
                "Current partition reassignments:", f"{topic}-0: replicas: 2,3,4,1. adding: 4. removing: 1.",
            ]  # fmt: skip
            assert " are under way (" in execute(cluster, path, code=1)
            assert "there is an existing partition assignment" in execute(cluster, path, "--kafka-errors", code=1)
            wait_for(lambda: _heals(cluster, 1), "the disk to be free", timeout_s=TIMEOUT_S)
            run(cluster, "log-dirs", "online", "--broker", "4", str(cluster.disks[4, 1].path))
            wait_over(cluster, path)
            load.progress(20)
        assert replicas_of(cluster, topic) == (2, 3, 4) and (topic, 0) in on_disk(cluster, 4, 1)
        wait_for(lambda: not has_folder(cluster, 1, topic), "the old replica to be deleted", timeout_s=TIMEOUT_S)
        wait_equal(cluster, topic, 0)


def test_cancel_in_the_middle_restores_H_30(topic: str) -> None:
    with Cluster(brokers=BROKERS, disks={(4, 1): FAULTS["eio"]}, user=NOBODY, settings=SETTINGS) as cluster:
        create(cluster, topic, [[1, 2, 3]], min_insync_replicas="2")
        path = to_a_dead_directory(cluster, topic)
        with Load(cluster, topic) as load:
            execute(cluster, path)
            wait_refused(cluster, topic)
            words = ("reassign", "cancel", "--reassignment-json-file", path)
            assert shape(run(cluster, *words))[0] == shape("\n".join(kafkas("--cancel", "plan.json")))[0]
            assert run(cluster, "reassign", "list").splitlines() == ["No partition reassignments found."]
            load.progress(20)
            assert run(cluster, *words).splitlines()[0] == "None of the specified partition reassignments are active."
        assert set(replicas_of(cluster, topic)) == {1, 2, 3} and not offline(cluster, [topic], at=1)
        wait_equal(cluster, topic, 0)


def _heals(cluster: Cluster, number: int) -> bool:
    """False while the broker still holds files of it."""
    try:
        cluster.disks[4, number].heal()
    except OSError:
        return False
    return True


def test_away_from_a_dead_disk_it_is_over_and_what_is_on_the_disk_goes_when_it_is_back_K112_71(topic: str) -> None:
    disks = {(4, number): FAULTS["eio"] for number in (1, 2)}
    with Cluster(brokers=BROKERS, disks=disks, user=NOBODY, settings=SETTINGS) as cluster:
        create(cluster, topic, [[4, 1, 2]], min_insync_replicas="2")
        bad = next(number for number in (1, 2) if (topic, 0) in on_disk(cluster, 4, number))
        path = plan(cluster, topic, [1, 2, 3])
        with Load(cluster, topic) as load:
            load.progress(20)
            cluster.disks[4, bad].fail()
            wait_offline(cluster, 4, {(topic, 0)}, at=(1, 2, 3))
            execute(cluster, path)
            wait_over(cluster, path)
            assert not offline(cluster, [topic], at=1), "no replica of it is on that disk any more"
            load.progress(20)
        wait_for(lambda: _heals(cluster, bad), "the disk to be free", timeout_s=TIMEOUT_S)
        assert has_folder(cluster, 4, topic)
        run(cluster, "log-dirs", "online", "--broker", "4", str(cluster.disks[4, bad].path))
        wait_for(lambda: not has_folder(cluster, 4, topic), "the old replica to go", timeout_s=TIMEOUT_S)
        assert replicas_of(cluster, topic) == (1, 2, 3)
        wait_equal(cluster, topic, 0)


def test_a_replica_that_comes_is_made_on_a_good_directory_while_another_is_dead_K112_72(topic: str) -> None:
    disks = {(4, 1): FAULTS["read-only"]}
    with Cluster(brokers=BROKERS, disks=disks, user=NOBODY, settings=SETTINGS) as cluster:
        create(cluster, topic, [[1, 2, 3]], min_insync_replicas="2")
        cluster.disks[4, 1].fail()
        wait_for(lambda: errors_of_dirs(cluster, 4)[1] != 0, "the disk to be found dead", timeout_s=TIMEOUT_S)
        path = plan(cluster, topic, [4, 1, 2])
        with Load(cluster, topic) as load:
            execute(cluster, path)
            wait_over(cluster, path)
            load.progress(20)
        assert (topic, 0) in on_disk(cluster, 4, 2)
        wait_equal(cluster, topic, 0)


@pytest.mark.parametrize("victim", ["the controller", "the leader", "the new replica"])
def test_R_43_whoever_is_killed_in_between_it_comes_to_its_end_and_nothing_is_lost(victim: str, topic: str) -> None:
    """All replicas of a partition that is written to go to others. The new one stands still until somebody is dead,
    so that it cannot be over before."""
    with Cluster(brokers=5) as cluster:
        create(cluster, topic, [[1, 2, 3]], min_insync_replicas="2")
        controller = cluster.describe().controller_id
        assert controller is not None
        ahead = [broker for broker in (1, 2, 3, 4, 5) if broker != controller]
        first = plan(cluster, topic, ahead[:3])
        execute(cluster, first)
        wait_over(cluster, first)
        second = plan(cluster, topic, [ahead[3], controller, ahead[1]])
        with Load(cluster, topic) as load:
            load.progress(50)
            stopped = cluster.pids()[ahead[3]]
            os.kill(stopped, signal.SIGSTOP)
            execute(cluster, second)
            leader = cluster.describe([topic], broker=controller).partitions[topic, 0].leader
            assert leader is not None and leader not in (controller, ahead[3])
            assert "is still in progress." in verify(cluster, second)
            cluster.kill({"the controller": controller, "the leader": leader, "the new replica": ahead[3]}[victim])
            if victim != "the new replica":
                os.kill(stopped, signal.SIGCONT)
            load.progress(50)
            cluster.revive()
            wait_over(cluster, second)
            load.progress(50)
        assert replicas_of(cluster, topic) == (ahead[3], controller, ahead[1])
        for gone in (ahead[0], ahead[2]):
            wait_for(lambda b=gone: not has_folder(cluster, b, topic), "old replicas to go", timeout_s=TIMEOUT_S)  # type: ignore[misc]
        wait_equal(cluster, topic, 0)
