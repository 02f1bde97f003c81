"""The commands against real brokers: Kafka's words, pipes, groups, signals."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.testing import Cluster, free_port, wait_for

pytestmark = pytest.mark.system

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/cli/4.3.0"
HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(cluster: Cluster) -> Run:
    """``run("topics", "list", stdin=...)`` against the shared cluster."""

    def run(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
        return subprocess.run(
            [*HOLDFAST, *args], input=stdin, capture_output=True, text=True, timeout=60, env=environment
        )

    return run


def start(cluster: Cluster, *args: str, **options: Any) -> subprocess.Popen[str]:
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
    return subprocess.Popen(
        [*HOLDFAST, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **options
    )


def golden_errors() -> list[tuple[list[str], dict[str, Any]]]:
    """Recorded refusals that do not depend on what other topics there are."""
    found = []
    for record in json.loads((GOLDEN / "kafka-topics.json").read_text()):
        args = record["command"][3:]
        if not args or not record["stdout"].startswith("Error"):
            continue
        action = args[0].removeprefix("--")
        if action in ("create", "describe", "delete") and "t1" not in args:
            found.append(([action, *args[1:]], record))
    return found


@pytest.mark.parametrize(("args", "record"), golden_errors(), ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_refusals_have_kafkas_exit_code_and_class(run: Run, args: list[str], record: dict[str, Any]) -> None:
    """The tool's own sentences are Kafka's; what a broker refuses has its class and words of our own."""
    done = run("topics", "--kafka-errors", *args)
    kafkas_class = record["stderr"].split("TopicCommand - ")[1].split(":")[0]
    if kafkas_class == "org.apache.kafka.common.config.ConfigException":  # raised inside Kafka's broker
        kafkas_class = "org.apache.kafka.common.errors.InvalidConfigurationException"
    assert done.returncode == record["exit"]
    assert done.stderr.startswith(f"ERROR {kafkas_class}: ")
    if ".common.errors." not in kafkas_class:
        assert done.stdout == record["stdout"]
    assert done.stdout.startswith("Error while executing topic command : ")
    assert done.stdout.count("\n") == 1


def test_the_life_of_a_topic(run: Run, topic: str) -> None:
    made = run(
        "topics",
        "create",
        topic,
        "--partitions",
        "3",
        "--replication-factor",
        "3",
        "--config",
        "retention.ms=3600000",
    )
    assert (made.returncode, made.stdout.splitlines()[-1]) == (0, f"Created topic {topic}.")
    again = run("topics", "create", "--topic", topic)
    assert again.returncode == 1
    assert again.stderr == f"holdfast topics: Topic '{topic}' already exists.\n"
    assert run("topics", "create", topic, "--if-not-exists").returncode == 0
    assert topic in run("topics", "list").stdout.splitlines()
    header, *partitions = run("topics", "describe", topic).stdout.splitlines()
    assert header.startswith(f"Topic: {topic}\tTopicId: ")
    assert header.endswith("\tPartitionCount: 3\tReplicationFactor: 3\tConfigs: retention.ms=3600000")
    assert [line.split("\t")[2] for line in partitions] == [f"Partition: {p}" for p in range(3)]
    assert all("\tOffline: \t" in line for line in partitions)
    assert run("topics", "alter", topic, "--partitions", "4").returncode == 0
    fewer = run("topics", "alter", topic, "--partitions", "2")
    assert (fewer.returncode, fewer.stdout, fewer.stderr.count("\n")) == (1, "", 1)
    assert fewer.stderr.startswith(f"holdfast topics: The topic {topic} currently has 4 partition(s)")
    assert run("topics", "delete", topic).returncode == 0
    gone = run("topics", "delete", topic)
    assert (gone.returncode, gone.stdout, gone.stderr) == (1, "", f"holdfast topics: there is no topic '{topic}'\n")
    gone = run("topics", "delete", topic, "--kafka-errors")
    assert (gone.returncode, gone.stdout) == (
        1,
        f"Error while executing topic command : Topic '{topic}' does not exist as expected\n",
    )


def test_lines_come_back_whole_and_in_order_of_their_partition(run: Run, topic: str) -> None:
    lines = [f"{n}:{n * 'x'}" for n in range(2000)]
    run("topics", "create", topic, "--partitions", "4")
    put = run("produce", topic, "--key-separator", ":", "--compression", "zstd", stdin="\n".join(lines))
    assert (put.returncode, put.stderr) == (0, "")
    got = run("consume", topic, "--from-beginning", "--max-messages", "2000", "--key-separator", ":")
    assert (got.returncode, sorted(got.stdout.splitlines())) == (0, sorted(lines))
    one = run("consume", topic, "--partition", "1", "--offset", "3", "--max-messages", "5")
    assert len(one.stdout.splitlines()) == 5


def test_a_line_without_a_key_is_refused_by_number(run: Run, topic: str) -> None:
    run("topics", "create", topic)
    put = run("produce", topic, "--key-separator", ":", stdin="a:b\nc\n")
    assert (put.returncode, "line 2: 'c'" in put.stderr) == (1, True)


def test_a_reader_that_goes_away_is_no_error(cluster: Cluster, run: Run, topic: str) -> None:
    run("topics", "create", topic)
    run("produce", topic, stdin="\n".join(map(str, range(200_000))))
    reader = start(cluster, "consume", topic, "--from-beginning")
    assert reader.stdout is not None
    assert reader.stdout.readline() == "0\n"
    reader.stdout.close()
    assert reader.wait(30) == 0
    assert reader.stderr is not None
    assert "Traceback" not in reader.stderr.read()


def test_records_are_seen_while_the_producer_still_types(cluster: Cluster, run: Run, topic: str) -> None:
    run("topics", "create", topic)
    writer = start(cluster, "produce", topic, stdin=subprocess.PIPE)
    reader = start(cluster, "consume", topic, "--from-beginning")
    assert writer.stdin is not None and reader.stdout is not None
    for word in ("one", "two"):
        writer.stdin.write(word + "\n")
        writer.stdin.flush()
        assert reader.stdout.readline() == word + "\n"
    reader.send_signal(signal.SIGINT)
    assert reader.wait(30) == 130
    writer.stdin.write("three\n")
    writer.stdin.close()
    assert writer.wait(30) == 0
    assert run("consume", topic, "--from-beginning", "--max-messages", "3").stdout == "one\ntwo\nthree\n"


def test_a_group_goes_on_where_it_stopped(run: Run, topic: str) -> None:
    group = f"group-{topic}"
    run("topics", "create", topic, "--partitions", "2")
    lines = [str(n) for n in range(100)]
    run("produce", topic, "--key-separator", ":", stdin="\n".join(f"{n}:{n}" for n in lines))
    first = run("consume", topic, "--group", group, "--from-beginning", "--max-messages", "30")
    second = run("consume", topic, "--group", group, "--from-beginning", "--max-messages", "70")
    assert sorted(first.stdout.split() + second.stdout.split(), key=int) == lines
    assert f"\n{group} " in "\n" + run("groups", "list", "--state").stdout
    table = [line.split() for line in run("groups", "describe", group).stdout.splitlines()[2:]]
    assert sum(int(row[3]) for row in table) == 100
    assert {row[5] for row in table} == {"0"}
    assert run("groups", "delete", group).stdout.endswith("was successful.\n")
    gone = run("groups", "describe", group)
    assert (gone.returncode, gone.stdout, gone.stderr) == (1, "", f"holdfast groups: there is no group '{group}'\n")
    kafkas = run("groups", "describe", group, "--kafka-errors")
    assert (kafkas.returncode, "GroupIdNotFoundException" in kafkas.stdout) == (0, True)


def test_operator_C3_groups_fails_when_it_failed(cluster: Cluster, run: Run, topic: str) -> None:
    run("topics", "create", topic)
    run("produce", topic, stdin="one\n")
    read = ("consume", topic, "--from-beginning")
    assert run(*read, "--group", f"{topic}-left", "--max-messages", "1").returncode == 0
    member = start(cluster, *read, "--group", topic)
    assert member.stdout is not None
    assert member.stdout.readline() == "one\n"
    no = f"no-{topic}"
    for args, said in (
        (("describe", no), f"there is no group '{no}'"),
        (("describe", no, "--state"), f"there is no group '{no}'"),
        (("delete", no), f"not deleted: there is no group '{no}'"),
        (("delete", topic), f"not deleted: group '{topic}' has members: expected one without"),
    ):
        done = run("groups", *args)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"holdfast groups: {said}\n")
        kafkas = run("groups", *args, "--kafka-errors")
        assert (kafkas.returncode, kafkas.stderr, "org.apache.kafka.common.errors." in kafkas.stdout) == (0, "", True)
    some = run("groups", "delete", f"{topic}-left", topic)
    assert (some.returncode, some.stdout) == (
        1,
        f"Deletion of requested consumer groups ('{topic}-left') was successful.\n",
    )
    member.terminate()
    assert member.wait(30) == 0


def test_two_members_share_a_topic(cluster: Cluster, run: Run, topic: str) -> None:
    group = f"group-{topic}"
    run("topics", "create", topic, "--partitions", "2")
    args = ("consume", topic, "--group", group, "--from-beginning")
    members = [start(cluster, *args) for _ in range(2)]

    def shared() -> bool:
        rows = run("groups", "describe", group, "--members").stdout.splitlines()[2:]
        return [row.split()[-1] for row in rows] == ["1", "1"]

    wait_for(shared, "both members to have a partition", timeout_s=40)
    run("produce", topic, "--partition", "0", stdin="zero\n")
    run("produce", topic, "--partition", "1", stdin="one\n")
    got = set()
    for member in members:
        assert member.stdout is not None
        got.add(member.stdout.readline())
    assert got == {"zero\n", "one\n"}
    for member in members:
        member.terminate()
        assert member.wait(30) == 0


def test_without_a_data_dir_nothing_is_left_behind(tmp_path: pathlib.Path) -> None:
    command = [*HOLDFAST, "up", "--brokers", "1", "--port", str(free_port())]
    with open(tmp_path / "stderr", "w+") as errors:
        up = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | {"TMPDIR": str(tmp_path)}
        )
        assert up.stdout is not None
        assert up.stdout.readline().startswith("ready: ")
        (directory,) = tmp_path.glob("holdfast-*")
        up.terminate()
        assert up.wait(30) == 0
    assert not directory.exists()
    assert f"data in {directory}, removed at the end" in (tmp_path / "stderr").read_text()


def test_a_killed_broker_comes_back_by_its_properties_file(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster(brokers=2, log_dirs=1)
    cluster.kill(2)
    wait_for(lambda: 2 not in cluster.describe(broker=1).brokers, "broker 2 to be missed", timeout_s=20)
    file = str(cluster.data_dir / "broker-2.properties")
    node = subprocess.Popen([*HOLDFAST, "broker", file], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: 2 in cluster.describe(broker=1).brokers, "broker 2 to be back", timeout_s=20)
    finally:
        node.terminate()
        assert node.wait(30) == 0
