"""``holdfast log-dirs`` against real brokers: Kafka's lines, a directory taken out, back, added and removed."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kio.static.primitive import i16

from holdfast.cli import main as entry
from holdfast.client.admin import AdminClient
from holdfast.client.blocking import BlockingClient
from holdfast.client.disks import ask_disks
from holdfast.client.views import LogDirView, NewTopic
from holdfast.model.errors import UnsupportedVersionError
from holdfast.protocol.operating import ManageLogDirsRequest
from holdfast.spark.audit_plan import make_plan
from holdfast.testing import Cluster

pytestmark = pytest.mark.system

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/cli/4.3.0/kafka-log-dirs.json"
RECORDED = json.loads(GOLDEN.read_text())


class NewerRequest(ManageLogDirsRequest):
    """Of a version that nobody speaks yet."""

    __version__ = i16(99)


def run(cluster: Cluster, *args: str) -> Result:
    """``holdfast log-dirs ARGS``."""
    environment = {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap, "COLUMNS": "250"}
    done = CliRunner().invoke(entry.main, ["log-dirs", *args], env=environment)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def outcome(done: Result) -> tuple[int, str, str]:
    return done.exit_code, done.stdout, done.stderr


def dirs_of(cluster: Cluster, broker: int) -> dict[str, LogDirView]:
    with BlockingClient(cluster.bootstrap) as client:
        return {d.path: d for d in client.describe_log_dirs([broker])[broker]}


def states(cluster: Cluster) -> dict[tuple[str, str], str]:
    """(broker, directory) -> state, as the table shows it."""
    _, *rows = [line.split() for line in run(cluster, "describe").stdout.splitlines()]
    return {(row[0], row[1]): row[2] for row in rows if row[0].isdigit() and row[1].startswith("/")}


def test_K113_12_describe_prints_what_kafka_log_dirs_prints(cluster: Cluster, topic: str) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name=topic, partitions=3, replication_factor=3))
    cluster.wait_in_sync([topic])
    kafkas: dict[str, Any] = json.loads(RECORDED[0]["stdout"].splitlines()[2])
    code, out, err = outcome(run(cluster, "describe", "--kafka-json", "--topic-list", topic))
    first, second, line = out.splitlines()
    assert (code, err) == (0, "")
    assert [first, second] == RECORDED[0]["stdout"].splitlines()[:2]
    ours = json.loads(line)
    assert list(ours) == list(kafkas)
    assert ours["version"] == 1
    assert [b["broker"] for b in ours["brokers"]] == [1, 2, 3]
    for broker in ours["brokers"]:
        assert list(broker) == list(kafkas["brokers"][0])
        assert [d["logDir"] for d in broker["logDirs"]] == list(dirs_of(cluster, broker["broker"]))
        assert all(list(d) == list(kafkas["brokers"][0]["logDirs"][0]) for d in broker["logDirs"])
        found = sorted(p["partition"] for d in broker["logDirs"] for p in d["partitions"])
        assert found == [f"{topic}-{p}" for p in range(3)]
    some = run(
        cluster, "describe", "--kafka-json", "--broker-list", "2,1", "--topic-list", "nosuch"
    ).stdout.splitlines()
    assert some[1] == "Received log directory information from brokers 2,1"
    assert [d["partitions"] for b in json.loads(some[2])["brokers"] for d in b["logDirs"]] == [[], [], [], []]


def test_operator_C1_C2_a_topic_that_is_not_there_is_told(cluster: Cluster, topic: str) -> None:
    for form in ([], ["--json"], ["--replicas"]):
        done = run(cluster, "describe", "--topic-list", f"no-{topic}", *form)
        assert outcome(done) == (1, "", f"holdfast log-dirs: --topic-list: there is no topic 'no-{topic}'\n")
    wrong = run(cluster, "describe", "--state", "dead")
    assert (wrong.exit_code, "'dead': expected some of online, full, degraded" in wrong.stderr) == (2, True)


def test_operator_C2_json_is_json_and_has_what_the_table_has(cluster: Cluster) -> None:
    found = json.loads(run(cluster, "describe", "--json").stdout)
    assert [b["broker"] for b in found["brokers"]] == [1, 2, 3]
    told = {(str(b["broker"]), d["path"]): d["state"] for b in found["brokers"] for d in b["log_dirs"]}
    assert told == states(cluster)
    room = [d["room"] for b in found["brokers"] for d in b["log_dirs"]]
    assert all(0 < each["usable_bytes"] <= each["total_bytes"] for each in room)
    assert found["directories"]["total"] == len(told)


@pytest.mark.parametrize("number", ["7", "abc"])
def test_K113_12_a_wrong_broker_list_is_refused_as_kafka_does(cluster: Cluster, number: str) -> None:
    recorded = next(r for r in RECORDED if r["exit"] == 1 and r["command"][-1].endswith(number))
    code, out, err = outcome(run(cluster, "describe", "--kafka-errors", "--broker-list", recorded["command"][-1]))
    assert (code, out, err.splitlines()[0]) == (1, "", recorded["stderr"].splitlines()[0])


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["offline", "--broker", "9", "/d"], 1, "there is no broker 9: expected one of 1, 2, 3\n"),
        (["offline", "--broker", "1", "/d"], 1, "/d is no log directory of broker 1: expected one of /"),
        (["online", "--broker", "1", "/d"], 1, "/d is no log directory of broker 1: expected one of /"),
        (["remove", "--broker", "1", "/d"], 1, "/d is no log directory of broker 1: expected one of /"),
        (["add", "--broker", "1", "d"], 1, "log directory d: expected an absolute path"),
        (["move", "--broker", "1", "--to", "/d"], 2, "nothing to move: expected TOPIC-PARTITION, or --from PATH\n"),
        (["move", "t", "--broker", "1", "--to", "/d"], 2, "'t': expected TOPIC-PARTITION, like flights-0\n"),
        (["move", "--broker", "1", "--from", "/d", "--to", "/e"], 1, "/d is no log directory of broker 1: expected "),
        (["describe", "--json", "--replicas"], 2, "--json, --kafka-json and --replicas: expected one of them"),
        (["describe", "--broker-list", "x"], 2, "--broker-list x: 'x': expected ids of brokers with commas between "),
        (
            ["describe", "--broker-list", "1,9"],
            1,
            "--broker-list 1,9: there is no broker 9: expected some of 1, 2, 3\n",
        ),
        (
            ["offline", "--broker", "1", "/d", "--kafka-errors"],
            1,
            "ERROR org.apache.kafka.common.errors.LogDirNotFound",
        ),
        (["offline", "--broker", "9", "/d", "--kafka-errors"], 1, "ERROR: broker 9 does not exist. Current existent "),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_wrong_input_is_told_and_changes_nothing(cluster: Cluster, args: list[str], code: int, said: str) -> None:
    before = states(cluster)
    done = run(cluster, *args)
    assert (done.exit_code, done.stdout) == (code, "")
    kafkas = "--kafka-errors" in args
    assert (done.stderr.startswith(("" if kafkas else "holdfast log-dirs: ") + said), done.stderr.count("\n")) == (
        True,
        1,
    )
    assert states(cluster) == before


def test_a_directory_is_taken_out_used_again_added_and_removed_H_32(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster(brokers=2, settings={"auto.create.topics.enable": "false"})
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name="t", partitions=4, replication_factor=2))
    cluster.wait_in_sync(["t"])
    one, two = dirs_of(cluster, 1)
    held = [str(r.tp) for r in dirs_of(cluster, 1)[one].replicas]
    assert held
    done = run(cluster, "offline", "--broker", "1", one + "/")
    assert outcome(done) == (0, f"broker 1: {one}/ is out of use: offline, {len(held)} replicas\n", "")
    assert states(cluster)["1", one] == "offline"
    listed = run(cluster, "describe", "--replicas", "--broker-list", "1").stdout.splitlines()
    assert [row.split("\t")[2] for row in listed if row.endswith("was there")] == sorted(held)
    assert "was taken offline by hand" in run(cluster, "describe").stdout
    plan = [replica for p in make_plan(cluster.bootstrap, ["t"]) for replica in p.replicas if replica.reason]
    assert plan and all("was taken offline by hand" in (r.reason or "") for r in plan), "an audit says why, too"
    last = run(cluster, "offline", "--broker", "1", two)
    assert (last.exit_code, "is the last log directory" in last.stderr) == (1, True)
    assert f'"error":"org.apache.kafka.common.errors.KafkaStorageException","logDir":"{one}"' in (
        run(cluster, "describe", "--kafka-json").stdout
    )
    wrong = run(cluster, "describe", "--problems").stdout.splitlines()
    assert [line.split()[:3] for line in wrong[1:-2]] == [["1", one, "offline"]]
    assert wrong[-2].startswith(f"broker 1: {one} is offline: ")
    assert wrong[-1] == "4 directories: 3 online, 1 offline"
    assert run(cluster, "describe", "--state", "degraded,full").stdout.splitlines()[1:] == wrong[-1:]
    document = json.loads(run(cluster, "describe", "--state", "offline", "--json").stdout)
    [broker] = document["brokers"]
    [directory] = broker["log_dirs"]
    assert (broker["broker"], directory["path"], directory["state"], directory["healthy"]) == (1, one, "offline", False)
    assert directory["reason"] and directory["since_ms"] > 0
    assert sorted(f"{r['topic']}-{r['partition']}" for r in directory["replicas"]) == sorted(held)
    done = run(cluster, "online", "--broker", "1", one)
    assert (done.exit_code, done.stdout) == (0, f"broker 1: {one} is in use: online, {len(held)} replicas\n")
    cluster.wait_in_sync(["t"])
    third = str(pathlib.Path(one).with_name("third"))
    assert run(cluster, "add", "--broker", "1", third, "--create").exit_code == 0
    assert states(cluster)["1", third] == "online"
    twice = run(cluster, "add", "--broker", "1", third)
    assert (twice.exit_code, "is a log directory of broker 1 already" in twice.stderr) == (1, True)
    full = run(cluster, "remove", "--broker", "1", one)
    assert (full.exit_code, f"{one} holds {len(held)} replicas: move them first" in full.stderr) == (1, True)
    checked = run(cluster, "remove", "--broker", "1", third, "--check")
    assert (checked.exit_code, f"{third} on broker 1 need 0 B" in checked.stdout) == (0, True)
    assert run(cluster, "remove", "--broker", "1", third).exit_code == 0
    assert ("1", third) not in states(cluster)


def test_replicas_are_moved_and_a_directory_is_emptied(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster(brokers=1)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name="t", partitions=6, replication_factor=1))
    cluster.wait_in_sync(["t"])
    one, two = dirs_of(cluster, 1)
    first, *others = sorted(str(r.tp) for r in dirs_of(cluster, 1)[one].replicas)
    assert others
    code, out, err = outcome(run(cluster, "move", first, "--broker", "1", "--to", two + "/"))
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"Successfully started moving log directory to {two} for replica {first} with broker 1",
        f"{first} is in {two} (0 B)",
    ]
    assert first in {str(r.tp) for r in dirs_of(cluster, 1)[two].replicas}
    assert run(cluster, "move", first, "--broker", "1", "--to", two).exit_code == 0, "it is there already"
    done = run(cluster, "move", "--broker", "1", "--from", one, "--to", two)
    assert (done.exit_code, done.stderr) == (0, "")
    assert not dirs_of(cluster, 1)[one].replicas
    nothing = run(cluster, "move", "--broker", "1", "--from", one, "--to", two)
    assert outcome(nothing) == (0, f"{one} on broker 1 holds nothing to move\n", "")
    assert run(cluster, "remove", "--broker", "1", one).exit_code == 0
    nowhere = run(cluster, "move", first, "nosuch-0", "--broker", "1", "--to", "/nowhere", "--no-wait")
    assert (nowhere.exit_code, nowhere.stdout) == (1, "")
    expected = f"/nowhere is no log directory of broker 1: expected one of {two}"
    assert nowhere.stderr == f"holdfast log-dirs: {expected}\n"


def test_a_stock_broker_that_closes_the_connection_is_told_so(cluster: Cluster) -> None:
    """What any other broker does with a request it does not know: this one, with a version that it does not know."""

    async def ask() -> None:
        async with AdminClient(cluster.bootstrap) as client:
            with pytest.raises(UnsupportedVersionError, match="or is no Holdfast broker"):
                await ask_disks(client, 1, NewerRequest(), 10.0)

    asyncio.run(ask())
    assert set(cluster.live()) == {1, 2, 3}
