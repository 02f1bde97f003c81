"""What operators have met with the older commands, on a real cluster."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from holdfast.cli import main as entry
from holdfast.testing import Cluster, free_port, wait_for
from tests.conftest import STEADY_DISKS

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=STEADY_DISKS) as running:
        running.create_topic("plain", partitions=2, replication_factor=2)
        yield running


class EndedCommand(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def run(cluster: Cluster, *args: str, **environment: str) -> EndedCommand:
    """In this process: a hundred of others would take a minute."""
    given: dict[str, str | None] = {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
    given |= {name: value or None for name, value in environment.items()}
    done = CliRunner().invoke(entry.main, args, prog_name="holdfast", env=given)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return EndedCommand(done.exit_code, done.stdout, done.stderr)


def ok(cluster: Cluster, *args: str, **environment: str) -> str:
    done = run(cluster, *args, **environment)
    assert (done.returncode, done.stderr) == (0, ""), (args, done.stdout, done.stderr)
    return done.stdout


def refused(cluster: Cluster, *args: str) -> str:
    """The line of a command that ends with 1 and says nothing on standard output."""
    done = run(cluster, *args)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), (args, done.stdout, done.stderr)
    return done.stderr


def replicas(cluster: Cluster, topic: str) -> list[tuple[int, ...]]:
    found = cluster.describe([topic]).partitions
    return [tuple(found[tp].replicas) for tp in sorted(found) if tp[0] == topic]


def test_operator_C4_what_a_broker_refuses_is_one_line_of_ours(three: Cluster) -> None:
    assert refused(three, "topics", "create", "plain") == "holdfast topics: Topic 'plain' already exists.\n"
    many = refused(three, "topics", "create", "wide", "--replication-factor", "9")
    assert many.startswith("holdfast topics: ") and "9" in many
    unknown = refused(three, "topics", "create", "odd", "--config", "retention.mss=5")
    assert unknown.startswith("holdfast topics: ") and "retention.mss" in unknown
    assert refused(three, "elect", "preferred", "--topic", "nope").startswith(
        "holdfast elect: no leader was elected for nope-0: "
    )
    assert refused(three, "transactions", "describe", "--transactional-id", "nope").startswith(
        "holdfast transactions: transactional id 'nope': "
    )
    assert refused(three, "topics", "describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAA") == (
        "holdfast topics: there is no topic of id 'AAAAAAAAAAAAAAAAAAAAAA'\n"
    )


def test_operator_C6_plans_name_what_is_not_there(three: Cluster, tmp_path: pathlib.Path) -> None:
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"

    def planned(topic: str, partition: int, *brokers: int) -> list[str]:
        entry = {"topic": topic, "partition": partition, "replicas": brokers}
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        return ["reassign", "execute", "--reassignment-json-file", str(plan)]

    assert refused(three, *planned("nope", 0, 1)) == "holdfast reassign: there is no topic 'nope'\n"
    assert refused(three, *planned("plain", 9, 1)) == "holdfast reassign: plain-9: plain has partitions 0 to 1\n"
    assert refused(three, *planned("plain", 0, 1, 9)) == (
        "holdfast reassign: plain-0: there is no broker 9: expected some of 1, 2, 3\n"
    )
    kafkas = run(three, *planned("plain", 0, 1, 9), "--kafka-errors")
    assert (kafkas.returncode, kafkas.stderr) == (1, "Error: Unknown broker id 9\n")
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "plain"}]}))
    generate = ["reassign", "generate", "--topics-to-move-json-file", str(topics), "--broker-list"]
    done = run(three, *generate, "1,9")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "holdfast reassign: broker 9 does not exist: expected some of 1, 2, 3\n"


def test_operator_C6_a_directory_is_added_or_refused_and_the_log_says_which(
    three: Cluster, tmp_path: pathlib.Path
) -> None:
    """Neither came back, nor failed: the one was never there, the other is not the broker's."""
    log, new = three.data_dir / "broker-1.log", tmp_path / "new"
    offered = ["log-dirs", "add", "--broker", "1", "--create"]
    assert "new is added " in ok(three, *offered, str(new))
    wait_for(lambda: f"log dir {new} is added" in log.read_text(), "the line", timeout_s=20)
    assert "/proc/nope" in refused(three, *offered, "/proc/nope")
    wait_for(lambda: "log dir /proc/nope is not added: " in log.read_text(), "the other line", timeout_s=20)
    lines = [line for line in log.read_text().splitlines() if str(new) in line or "/proc/nope" in line]
    assert not [line for line in lines if "again" in line or "offline" in line], lines
    ok(three, "log-dirs", "remove", "--broker", "1", str(new))


def test_operator_C2_json_of_what_the_cluster_tells(three: Cluster) -> None:
    def told(*args: str) -> Any:
        return json.loads(ok(three, *args, "--json"))

    assert told("reassign", "list") == {"version": 1, "reassignments": []}
    features = told("features", "describe")["features"]
    assert ("transaction.version", 2) in {(f["feature"], f["supported_max"]) for f in features}
    assert isinstance(told("transactions", "list")["transactions"], list)
    assert told("transactions", "describe-producers", "--topic", "plain", "--partition", "0")["producers"] == []
    assert told("transactions", "find-hanging", "--topic", "plain")["hanging"] == []
    assert [each["broker.id"] for each in told("brokers", "ids", "list")["hosts"]] == [1, 2, 3]
    assert told("groups", "list", "--type", "connect") == {"groups": []}
    check = [sys.executable, "-m", "holdfast", "metadata", "check", "--json", "--data-dir", str(three.data_dir)]
    checked = json.loads(subprocess.run(check, capture_output=True, timeout=60).stdout)  # it ends its process itself
    assert [copy["good"] for copy in checked["copies"]] == [True, True]
    nodes = told("metadata", "tree", "--data-dir", str(three.data_dir))
    assert "/brokers/topics/plain" in nodes


def test_operator_2_a_profile_says_which_cluster(three: Cluster, tmp_path: pathlib.Path) -> None:
    first, *others = three.bootstrap.split(",")
    file = tmp_path / "config.toml"
    file.write_text(
        f'[default]\nbootstrap-server = "127.0.0.1:{free_port()}"\n[mine]\nbootstrap-server = {[first, *others]!r}\n'
    )
    given = {"HOLDFAST_BOOTSTRAP_SERVER": "", "HOLDFAST_CONFIG": str(file)}
    assert "plain" in ok(three, "topics", "list", "--profile", "mine", **given).splitlines()
    assert "plain" in ok(three, "topics", "list", HOLDFAST_PROFILE="mine", **given).splitlines()
    assert "plain" in ok(three, "topics", "list", "-b", first, **given).splitlines()
    assert run(three, "topics", "list", **given).returncode == 1  # default, where nobody is
    for args in (["consume", "plain", "-e"], ["produce", "plain"], ["cluster", "describe"], ["configs", "describe",
                 "--topic", "plain"]):  # fmt: skip
        assert run(three, *args, "--profile", "mine", **given).returncode == 0, args


def test_operator_2_the_shell_completes_topics_groups_and_brokers(three: Cluster) -> None:
    def completed(*words: str, **environment: str) -> list[str]:
        typed = {"_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words),
                 "COMP_CWORD": str(len(words) - 1)}  # fmt: skip
        return [line.removeprefix("plain,") for line in ok(three, **typed, **environment).splitlines() if line]

    three.create_topic("orders", partitions=1)
    three.create_topic("orders-2", partitions=1)
    assert run(three, "consume", "plain", "--group", "readers", "--timeout-ms", "1", "-e").returncode == 0
    assert completed("holdfast", "topics", "describe", "ord") == ["orders", "orders-2"]
    assert completed("holdfast", "consume", "--topic", "pl") == ["plain"]
    assert completed("holdfast", "log-dirs", "describe", "--topic-list", "plain,ord") == [
        "plain,orders", "plain,orders-2",
    ]  # fmt: skip
    assert completed("holdfast", "groups", "describe", "re") == ["readers"]
    assert completed("holdfast", "configs", "describe", "--broker", "") == ["1", "2", "3"]
    elsewhere = {"HOLDFAST_BOOTSTRAP_SERVER": f"127.0.0.1:{free_port()}"}
    assert completed("holdfast", "topics", "describe", "ord", **elsewhere) == []
    first = three.bootstrap.split(",")[0]
    assert completed("holdfast", "topics", "describe", "-b", first, "ord", **elsewhere) == ["orders", "orders-2"]


def test_operator_3_topics_grow_where_they_are_told_and_are_found_by_id(three: Cluster) -> None:
    ok(three, "topics", "create", "grows", "--replica-assignment", "1:2")
    wrong = run(three, "topics", "alter", "grows", "--partitions", "3", "--replica-assignment", "1:2,2:3")
    assert (wrong.returncode, "has 2 partitions: expected 3" in wrong.stderr) == (2, True)
    grown = ok(three, "topics", "alter", "grows", "--partitions", "3", "--replica-assignment", "1:2,3:2,2:1")
    assert grown == "Topic grows has 3 partitions.\n"
    assert replicas(three, "grows") == [(1, 2), (3, 2), (2, 1)]
    [topic] = json.loads(ok(three, "topics", "describe", "grows", "--json"))["topics"]
    found = ok(three, "topics", "describe", "--topic-id", topic["topic_id"])
    assert found.startswith("Topic: grows\t")
    assert found.count("Partition: ") == 3
    both = run(three, "topics", "describe", "grows", "--topic-id", topic["topic_id"])
    assert (both.returncode, both.stderr.endswith("expected one of them\n")) == (2, True)


def test_operator_3_groups_are_listed_by_state(three: Cluster) -> None:
    assert run(three, "consume", "plain", "--group", "over", "--timeout-ms", "1", "-e").returncode == 0
    wait_for(lambda: "over" in ok(three, "groups", "list").split(), "the group", timeout_s=20)
    states = {line.split()[0]: line.split()[1] for line in ok(three, "groups", "list", "--state").splitlines()[1:]}
    assert states["over"] == "Empty"
    assert "over" in ok(three, "groups", "list", "--state", "empty,dead")
    assert "over" not in ok(three, "groups", "list", "--state", "stable")
    assert "over" not in ok(three, "groups", "list", "--type", "connect")


def test_operator_3_a_broker_is_drained_by_one_command(three: Cluster, tmp_path: pathlib.Path) -> None:
    """Of these topics: those of the cluster itself are large."""
    ok(three, "topics", "create", "stays", "--replica-assignment", "3:1,1:3,2:3")
    plan = str(tmp_path / "drain.json")
    drain = ("reassign", "rebalance", "--drain", "3", "--topics", "stays", "--plan", plan, "--execute")
    done = run(three, *drain)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: all(3 not in at for at in replicas(three, "stays")), "broker 3 without stays", timeout_s=30)
    assert all(sorted(at) == [1, 2] for at in replicas(three, "stays"))
    both = run(three, *drain[:4], "--broker-list", "1", "--plan", plan + "2")
    assert (both.returncode, "--drain and --broker-list: expected one of them" in both.stderr) == (2, True)
    nobody = run(three, *drain[:2], "--drain", "9", "--plan", plan + "3")
    assert (nobody.returncode, "broker 9 does not exist: expected some of 1, 2, 3" in nobody.stderr) == (2, True)


def test_operator_3_the_directories_of_a_running_broker_say_whose_they_are(three: Cluster) -> None:
    paths = [str(three.log_dir(2, number)) for number in (1, 2)]
    found = json.loads(ok(three, "log-dirs", "inspect", *paths, "--json"))["log_dirs"]
    cluster_id = json.loads(ok(three, "cluster", "describe", "--json"))["cluster_id"]
    assert [(each["path"], each["broker"], each["cluster_id"]) for each in found] == [
        (path, 2, cluster_id) for path in paths
    ]
    held = sum(
        topic_partition[1] >= 0 and 2 in p.replicas for topic_partition, p in three.describe().partitions.items()
    )
    assert sum(each["partitions"] for each in found) == held > 0
