"""Cordoned log directories of real brokers (KIP-1066): set and unset by the tools, by the file and by stock clients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from kio.schema.alter_partition_reassignments.v0 import request as reassignments
from kio.schema.alter_replica_log_dirs.v2 import request as moves
from kio.schema.incremental_alter_configs.v1 import request as m
from kio.static.primitive import i32Timedelta

from holdfast.cli.layout import properties_path
from holdfast.testing import Cluster, wait_for
from tests.conftest import STEADY_DISKS
from tests.system.on_disks import QUIET, TIMEOUT_S, Load, ask, create, wait_equal

pytestmark = pytest.mark.system

RECORDED = json.loads((Path(__file__).parents[1] / "golden/cli/4.3.0/cordon.json").read_text())
KEY = "cordoned.log.dirs"
OPERATIONS = {
    "set": AlterConfigOpType.SET,
    "delete": AlterConfigOpType.DELETE,
    "append": AlterConfigOpType.APPEND,
    "subtract": AlterConfigOpType.SUBTRACT,
}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(data_dir=tmp_path_factory.mktemp("cordoned"), settings=STEADY_DISKS) as running:
        yield running


@pytest.fixture
def cordoned(three: Cluster) -> Iterator[Cluster]:
    """Three brokers; nothing is cordoned before and afterwards."""
    yield three
    for broker in (1, 2, 3):
        assert alter(three, broker, None, operation="delete") == (0, "")


def cli(cluster: Cluster, *words: str, code: int = 0, at: str | None = None) -> str:
    """``holdfast ...``; what it says on standard output and error."""
    command = (sys.executable, "-m", "holdfast.cli.main", *words, "--bootstrap-server", at or cluster.bootstrap)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "250"})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def alter(cluster: Cluster, broker: int, value: str | None, *, operation: str = "set", name: str = KEY) -> Any:
    """Error code and message of IncrementalAlterConfigs, which a stock client asks of the broker itself."""
    entry = ConfigEntry(name, value, incremental_operation=OPERATIONS[operation])  # type: ignore[arg-type]
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    try:
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    except confluent_kafka.KafkaException as e:
        return e.args[0].code(), e.args[0].str()
    return 0, ""


SET, APPEND, SUBTRACT = 0, 2, 3


def asked_at(cluster: Cluster, asked: int, value: str | None, operation: int = SET) -> int:
    """Error code of IncrementalAlterConfigs for broker 1, asked of any broker."""
    change = m.AlterableConfig(name=KEY, config_operation=operation, value=value)  # type: ignore[arg-type]
    resource = m.AlterConfigsResource(resource_type=4, resource_name="1", configs=(change,))  # type: ignore[arg-type]
    answer = ask(cluster, asked, "incremental_alter_configs", 1, "IncrementalAlterConfigs",
                 resources=(resource,), validate_only=False)  # fmt: skip
    return int(answer.responses[0].error_code)


def make(cluster: Cluster, name: str, factor: int, partitions: int) -> tuple[int, str]:
    """Error code and message of CreateTopics without an assignment; returns when all replicas are there."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    try:
        admin.create_topics([NewTopic(name, partitions, factor)])[name].result(TIMEOUT_S)
    except confluent_kafka.KafkaException as e:
        return e.args[0].code(), e.args[0].str()
    cluster.wait_in_sync([name])
    return 0, ""


def held(cluster: Cluster, topic: str) -> Counter[tuple[int, int]]:
    """(broker, number of the directory) -> replicas of the topic."""
    return Counter(
        (broker, int(path.rpartition("-")[2]))
        for broker in range(1, cluster.brokers + 1)
        if broker in cluster.live()
        for path, seen in cluster.describe_log_dirs(broker).items()
        for name, _ in seen.replicas
        if name == topic
    )


def shown(cluster: Cluster, broker: int) -> dict[str, bool]:
    """What DescribeLogDirs 5 tells of each directory."""
    answer = ask(cluster, broker, "describe_log_dirs", 5, "DescribeLogDirs", topics=())
    return {found.log_dir: found.is_cordoned for found in answer.results}


def path(cluster: Cluster, broker: int, number: int) -> str:
    return str(cluster.log_dir(broker, number))


def refusal_of(value: str) -> str:
    """Kafka's words about a value of cordoned.log.dirs."""
    said: str = next(e["stderr"] for e in RECORDED if e.get("command", [""])[-1] == f"{KEY}={value}" and e["exit"])
    return said.splitlines()[-1].partition("Exception: ")[2]


def recorded(name: str) -> Any:
    return next(each["response"] for each in RECORDED if each.get("name") == name)


def test_K1066_01_K1066_04_nothing_new_comes_to_a_cordoned_directory(cordoned: Cluster, topic: str) -> None:
    assert make(cordoned, topic, 3, 3) == (0, "")
    before = held(cordoned, topic)
    assert alter(cordoned, 1, path(cordoned, 1, 1)) == (0, "")
    assert make(cordoned, f"{topic}-new", 3, 50) == (0, "")
    new = held(cordoned, f"{topic}-new")
    assert (new[1, 1], new[1, 2]) == (0, 50)
    assert min(new[b, n] for b in (2, 3) for n in (1, 2)) > 0
    assert held(cordoned, topic) == before


def test_K1066_02_an_unknown_directory_is_refused_in_kafkas_words_and_nothing_changes(cordoned: Cluster) -> None:
    assert alter(cordoned, 1, path(cordoned, 1, 2)) == (0, "")
    before = shown(cordoned, 1)
    asked = {"/unknown": "/unknown", "d0": "d0", f"*,{path(cordoned, 1, 1)}": "[*,/kafka/f1/d0]"}
    for value, kafkas in asked.items():
        assert alter(cordoned, 1, value) == (42, refusal_of(kafkas))
    defaults = next(e["stderr"] for e in RECORDED if e.get("note") == "as a cluster default")
    change = m.AlterableConfig(name=KEY, config_operation=0, value="*")  # type: ignore[arg-type]
    everywhere = m.AlterConfigsResource(resource_type=4, resource_name="", configs=(change,))  # type: ignore[arg-type]
    answer = ask(cordoned, 1, "incremental_alter_configs", 1, "IncrementalAlterConfigs",
                 resources=(everywhere,), validate_only=False)  # fmt: skip
    (result,) = answer.responses
    assert result.error_message == defaults.splitlines()[-1].partition("Exception: ")[2]
    assert int(result.error_code) == 42
    assert alter(cordoned, 1, "/unknown", operation="append")[0] == 42
    assert shown(cordoned, 1) == before == {path(cordoned, 1, 1): False, path(cordoned, 1, 2): True}


def test_K1066_03_a_cordoned_directory_serves_what_it_has(cordoned: Cluster, topic: str) -> None:
    create(cordoned, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    with Load(cordoned, topic, range(3)) as load:
        for broker in (1, 2, 3):
            assert alter(cordoned, broker, "*") == (0, "")
        load.progress(100)
    for partition in range(3):
        wait_equal(cordoned, topic, partition)


def test_K1066_05_K1066_06_a_cordoned_broker_is_no_place_for_topics(cordoned: Cluster, topic: str) -> None:
    assert make(cordoned, topic, 3, 2) == (0, "")
    assert alter(cordoned, 1, "*") == (0, "")
    kafkas = recorded("RF 3 with broker 1 fully cordoned")["topics"][0]
    assert make(cordoned, f"{topic}-3", 3, 2) == (38, kafkas["error_message"])
    assert make(cordoned, f"{topic}-2", 2, 12) == (0, "")
    assert {broker for broker, _ in held(cordoned, f"{topic}-2")} == {2, 3}
    said = cli(cordoned, "topics", "create", "--topic", "cli-cor", "--partitions", "1",
               "--replication-factor", "3", "--kafka-errors", code=1)  # fmt: skip
    theirs = next(e["stdout"] for e in RECORDED if "kafka-topics.sh" in e.get("command", ()))
    assert theirs.splitlines()[-1] in said.splitlines()


def test_C28_K1066_07_an_assignment_to_a_cordoned_broker_is_refused(cordoned: Cluster, topic: str) -> None:
    assert alter(cordoned, 1, "*") == (0, "")
    admin = AdminClient({"bootstrap.servers": cordoned.bootstrap, **QUIET})
    new = NewTopic(topic, 1, replica_assignment=[[1, 2]])
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.create_topics([new])[topic].result(TIMEOUT_S)
    assert refused.value.args[0].code() == 39
    assert "all its log directories are cordoned" in refused.value.args[0].str()


def test_C2_K1066_08_a_reassignment_to_a_cordoned_broker_is_refused(cordoned: Cluster, topic: str) -> None:
    create(cordoned, topic, [[2, 3]])
    assert alter(cordoned, 1, "*") == (0, "")
    part = reassignments.ReassignablePartition(partition_index=0, replicas=(1, 2))  # type: ignore[arg-type]
    wanted = (reassignments.ReassignableTopic(name=topic, partitions=(part,)),)  # type: ignore[arg-type]
    answer = ask(cordoned, 2, "alter_partition_reassignments", 0, "AlterPartitionReassignments",
                 timeout=i32Timedelta.parse(timedelta(seconds=5)), topics=wanted)  # fmt: skip
    (result,) = answer.responses[0].partitions
    assert (int(result.error_code), "all its log directories are cordoned" in result.error_message) == (107, True)
    told = f"reassignment refused: {topic}-0: broker 1 takes no replicas: all its log directories are cordoned"
    logs = list(cordoned.data_dir.glob("broker-*.log"))
    wait_for(lambda: any(told in f.read_text() for f in logs), told, timeout_s=TIMEOUT_S)  # a thread writes it


def test_C1_K1066_09_a_move_to_a_cordoned_directory_is_refused(cordoned: Cluster, topic: str) -> None:
    create(cordoned, topic, [[1, 2]])
    (there,) = (number for broker, number in held(cordoned, topic) if broker == 1)
    assert alter(cordoned, 1, "*") == (0, "")

    def move(name: str, number: int) -> int:
        topics: Any = (moves.AlterReplicaLogDirTopic(name=name, partitions=(0,)),)  # type: ignore[arg-type]
        dirs = (moves.AlterReplicaLogDir(path=path(cordoned, 1, number), topics=topics),)
        answer = ask(cordoned, 1, "alter_replica_log_dirs", 2, "AlterReplicaLogDirs", dirs=dirs)
        return int(answer.results[0].partitions[0].error_code)

    assert move(topic, 3 - there) == 56
    assert move("nosuch", there) == 56, "the cordon is looked at first, as Kafka does"
    assert move(topic, there) == 0, "it is there"
    said = cli(
        cordoned, "log-dirs", "move", f"{topic}-0", "--broker", "1", "--to", path(cordoned, 1, 3 - there), code=1
    )
    assert said.startswith(f"holdfast log-dirs: {topic}-0 on broker 1: ")


def test_K1066_10_set_shown_and_unset(cordoned: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cordoned.bootstrap, **QUIET})
    resource = ConfigResource(ResourceType.BROKER, "1")

    def described() -> tuple[str | None, int, list[tuple[str | None, int]]]:
        entry = admin.describe_configs([resource])[resource].result(TIMEOUT_S)[KEY]
        assert not entry.is_sensitive
        return entry.value, entry.source, [(s.value, s.source) for s in entry.synonyms.values()]

    dynamic, default = 2, 5
    assert described()[:2] == ("", default)
    one = path(cordoned, 1, 1)
    for value in (one, "*", ""):
        assert alter(cordoned, 1, value) == (0, "")
        found, source, _ = described()
        assert (found, source) == (value, dynamic)
    assert alter(cordoned, 1, f"{one},{one}") == (0, ""), "the same twice is no mistake"
    assert alter(cordoned, 1, None, operation="delete") == (0, "")
    assert described()[:2] == ("", default)


def test_C5_K1066_13_describe_shows_it_and_older_versions_do_not_know_of_it(cordoned: Cluster) -> None:
    one, two = path(cordoned, 1, 1), path(cordoned, 1, 2)
    assert alter(cordoned, 1, one) == (0, "")
    assert shown(cordoned, 1) == {one: True, two: False}
    older = ask(cordoned, 1, "describe_log_dirs", 4, "DescribeLogDirs", topics=())
    assert [(int(found.error_code), hasattr(found, "is_cordoned")) for found in older.results] == [(0, False)] * 2
    assert "online, cordoned" in cli(cordoned, "log-dirs", "describe")
    line = cli(cordoned, "log-dirs", "describe", "--kafka-json").splitlines()[2]
    document = json.loads(cli(cordoned, "log-dirs", "describe", "--json", "--broker-list", "1"))
    assert {d["path"]: d["cordoned"] for d in document["brokers"][0]["log_dirs"]} == {one: True, two: False}
    theirs = next(e["stdout"] for e in RECORDED if e.get("note") == "with one cordoned dir").splitlines()[2]
    assert list(json.loads(line)["brokers"][0]["logDirs"][0]) == list(json.loads(theirs)["brokers"][0]["logDirs"][0])


def test_K1066_12_K1066_15_a_cordon_outlives_its_broker_and_the_controller(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster()
    assert alter(cluster, 1, path(cluster, 1, 1)) == (0, "")
    assert alter(cluster, 2, "*") == (0, "")
    controller = cluster.describe().controller_id
    assert controller is not None
    cluster.kill(2)
    if controller != 2:
        cluster.kill(controller)
    alive = next(iter(cluster.live()))
    wait_for(lambda: len(cluster.describe(broker=alive).brokers) == len(cluster.live()), "the dead to be known",
             timeout_s=TIMEOUT_S)  # fmt: skip
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    with pytest.raises(confluent_kafka.KafkaException, match="cordoned"):
        admin.create_topics([NewTopic(topic, 1, replica_assignment=[[2, alive]])])[topic].result(TIMEOUT_S)
    cluster.revive()
    assert make(cluster, topic, 2, 20) == (0, "")
    found = held(cluster, topic)
    assert {broker for broker, _ in found} == {1, 3}
    assert (found[1, 1], found[1, 2]) == (0, 20)
    assert shown(cluster, 1) == {path(cluster, 1, 1): True, path(cluster, 1, 2): False}
    assert all(shown(cluster, 2).values())


def test_K1066_01_K1066_15_by_the_file_and_uncordoned_by_the_file_and_a_restart(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster(brokers=2, settings={KEY: "*"})
    kafkas = recorded("RF 1 with every broker cordoned")["topics"][0]
    assert make(cluster, topic, 1, 1) == (38, kafkas["error_message"])
    for operation in (APPEND, SUBTRACT):  # the other broker does not know the file, and would have taken all of it off
        assert asked_at(cluster, 2, path(cluster, 1, 1), operation) == 40
    assert all(shown(cluster, 1).values())
    file = Path(properties_path(str(cluster.data_dir), 1))
    text = file.read_text()
    assert f"{KEY}=*" in text
    file.write_text(text.replace(f"{KEY}=*", f"{KEY}={path(cluster, 1, 1)}/../log-dir-2/"))
    cluster.kill(1)
    cluster.revive()
    assert shown(cluster, 1) == {path(cluster, 1, 1): False, path(cluster, 1, 2): True}
    assert make(cluster, topic, 1, 6) == (0, "")
    assert held(cluster, topic) == {(1, 1): 6}


def test_K1066_02_a_broker_whose_file_names_an_unknown_directory_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    file.write_text(f"node.id=1\nlog.dirs={tmp_path}/a\nlisteners=PLAINTEXT://127.0.0.1:0\n{KEY}=/unknown\n")
    command = (sys.executable, "-m", "holdfast.cli.main", "broker", str(file))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode != 0
    assert f"Invalid value '/unknown' of {KEY}: expected one of log.dirs, {tmp_path}/a" in done.stdout + done.stderr
    assert not (tmp_path / "a").exists()


def test_K1066_15_at_another_broker_a_cordon_may_only_be_reduced(cordoned: Cluster) -> None:
    at = partial(asked_at, cordoned)

    one, two = path(cordoned, 1, 1), path(cordoned, 1, 2)
    for asked in (2, 3):
        assert at(asked, one) == 40
        assert at(asked, "*") == 40
        assert at(asked, one, operation=APPEND) == 40
        assert at(1, f"{one},{two}") == 0
        assert at(asked, one) == 0
        wait_for(lambda: shown(cordoned, 1) == {one: True, two: False}, "the rest of the cordon", timeout_s=TIMEOUT_S)
        assert at(asked, "") == 0
        wait_for(lambda: not any(shown(cordoned, 1).values()), "no cordon", timeout_s=TIMEOUT_S)
    assert at(1, one, operation=APPEND) == 0
    assert at(1, two, operation=APPEND) == 0
    assert all(shown(cordoned, 1).values())
    assert at(1, one, operation=SUBTRACT) == 0
    assert shown(cordoned, 1) == {one: False, two: True}


def test_K1066_15_what_had_no_place_is_made_when_there_is_one(own_cluster: Callable[..., Cluster], topic: str) -> None:
    """A directory dies, the other is cordoned: the replica has no place on its broker until the cordon is gone."""
    cluster = own_cluster(brokers=2)
    create(cluster, topic, [[2, 1]])
    (there,) = (number for broker, number in held(cluster, topic) if broker == 1)
    assert alter(cluster, 1, path(cluster, 1, 3 - there)) == (0, "")
    cli(cluster, "log-dirs", "offline", "--broker", "1", path(cluster, 1, there))
    cli(cluster, "log-dirs", "remove", "--broker", "1", path(cluster, 1, there), "--force")
    wait_for(lambda: cluster.describe([topic]).partitions[topic, 0].offline == (1,), "no place", timeout_s=TIMEOUT_S)
    assert held(cluster, topic)[1, 3 - there] == 0
    cli(cluster, "log-dirs", "uncordon", "--broker", "1", "--all")
    cluster.wait_in_sync([topic])
    assert held(cluster, topic)[1, 3 - there] == 1


def test_log_dirs_cordon_and_uncordon_say_what_they_did(cordoned: Cluster) -> None:
    one, two = path(cordoned, 1, 1), path(cordoned, 1, 2)
    said = cli(cordoned, "log-dirs", "cordon", "--broker", "1", one + "/")
    assert f"broker 1: {one} is cordoned: it takes no new replicas, and holds " in said
    assert shown(cordoned, 1) == {one: True, two: False}
    said = cli(cordoned, "log-dirs", "cordon", "--broker", "1", two)
    assert "broker 1: all its log directories are cordoned: new topics are placed on other brokers" in said
    assert cli(cordoned, "log-dirs", "uncordon", "--broker", "1", one) == (
        f"broker 1: {one} is not cordoned any more: it takes new replicas\n"
    )
    assert shown(cordoned, 1) == {one: False, two: True}
    cli(cordoned, "log-dirs", "cordon", "--broker", "1", "--all")
    cli(cordoned, "log-dirs", "uncordon", "--broker", "1", "--all")
    assert not any(shown(cordoned, 1).values())
    unknown = cli(cordoned, "log-dirs", "cordon", "--broker", "1", "/nope", code=1)
    assert unknown.startswith("holdfast log-dirs: /nope is no log directory of broker 1: expected one of ")
    assert "expected PATH..., or --all" in cli(cordoned, "log-dirs", "cordon", "--broker", "1", code=2)
