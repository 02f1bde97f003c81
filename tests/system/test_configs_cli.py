"""``holdfast configs`` against real brokers: looked at, changed, refused, and what a change does at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.client.blocking import BlockingClient
from holdfast.client.views import NewTopic
from holdfast.testing import Cluster

pytestmark = pytest.mark.system

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
UNLIMITED = str(2**63 - 1)
SECRET = "hunter2"


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    """Two brokers whose files have a secret."""
    settings = {"default.replication.factor": "1", "zookeeper.sasl.password": SECRET}
    with Cluster(brokers=2, settings=settings) as cluster:
        yield cluster


def run(cluster: Cluster, *args: str, bootstrap: str | None = None) -> tuple[int, str, str]:
    """Into a pipe."""
    command = [sys.executable, "-m", "holdfast.cli.main", "configs", *args]
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": bootstrap or cluster.bootstrap}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert SECRET not in done.stdout + done.stderr
    return done.returncode, done.stdout, done.stderr


def make(cluster: Cluster, topic: str, **configs: str) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        client.create_topic(NewTopic(name=topic, partitions=1, replication_factor=1, configs=named))
    cluster.wait_in_sync([topic])


def values(cluster: Cluster, *args: str) -> dict[str, tuple[str, str]]:
    """Key -> (value, source), of the table."""
    code, out, err = run(cluster, "describe", *args)
    assert (code, err) == (0, "")
    header, *rows = [line.split(maxsplit=2) for line in out.splitlines()]
    assert header == ["KEY", "VALUE", "SOURCE"]
    return {key: (value, source) for key, value, source in rows}


def test_the_keys_of_a_topic_are_shown_set_and_unset(two: Cluster, topic: str) -> None:
    make(two, topic, retention_ms="1000")
    of = ("--topic", topic)
    assert values(two, *of) == {"retention.ms": ("1000", "DYNAMIC_TOPIC")}
    assert len(values(two, *of, "--all")) > 25
    assert values(two, *of, "segment.ms", "cleanup.policy") == {
        "cleanup.policy": ("delete", "DEFAULT"),
        "segment.ms": ("604800000", "DEFAULT"),
    }
    asked = ("set", *of, "retention.ms=5000", "cleanup.policy+=compact")
    lines = [f"topic {topic}: retention.ms: 1000 -> 5000", f"topic {topic}: cleanup.policy: delete -> delete,compact"]
    assert run(two, *asked, "--dry-run") == (0, "".join(f"{line} (dry run)\n" for line in lines), "")
    assert values(two, *of) == {"retention.ms": ("1000", "DYNAMIC_TOPIC")}, "nothing was changed"
    assert run(two, *asked) == (0, "".join(f"{line}\n" for line in lines), "")
    assert values(two, *of) == {
        "cleanup.policy": ("delete,compact", "DYNAMIC_TOPIC"),
        "retention.ms": ("5000", "DYNAMIC_TOPIC"),
    }
    assert run(two, "set", *of, "cleanup.policy-=delete")[1] == (
        f"topic {topic}: cleanup.policy: delete,compact -> compact\n"
    )
    gone = run(two, "unset", *of, "retention.ms", "cleanup.policy", "segment.ms")
    assert gone == (
        0,
        f"topic {topic}: retention.ms: 5000 -> 604800000\n"
        f"topic {topic}: cleanup.policy: compact -> delete\n"
        f"topic {topic}: segment.ms: was not set, it is 604800000\n",
        "",
    )
    assert run(two, "describe", *of) == (0, f"topic {topic}: nothing is set, all is default: --all shows it\n", "")


def test_json_is_one_document(two: Cluster, topic: str) -> None:
    make(two, topic, retention_ms="1000")
    code, out, _ = run(two, "describe", "--topic", topic, "--json")
    (found,) = json.loads(out)["configs"]
    assert (code, found["name"], found["value"], found["type"]) == (0, "retention.ms", "1000", "LONG")
    assert found["synonyms"][0] == {"name": "retention.ms", "value": "1000", "source": "DYNAMIC_TOPIC_CONFIG"}
    everything = json.loads(run(two, "describe", "--broker", "1", "--all", "--json")[1])
    assert everything["entity"] == {"type": "broker", "name": 1}
    told = {c["name"]: c for c in everything["configs"]}
    secret = told["zookeeper.sasl.password"]
    assert (secret["value"], secret["sensitive"], [s["value"] for s in secret["synonyms"]]) == (None, True, [None])
    assert (told["node.id"]["read_only"], told[THROTTLE]["read_only"]) == (True, False)


def test_what_a_broker_has_is_marked(two: Cluster) -> None:
    """Whichever broker is asked first: each tells of itself."""
    for broker, address in enumerate(two.bootstrap.split(","), start=1):
        told = values(two, "--broker", str(3 - broker), "--bootstrap-server", address)
        assert told["node.id"] == (str(3 - broker), "STATIC, read-only")
        assert told["zookeeper.sasl.password"] == ("null", "STATIC, read-only, sensitive")


def test_the_throttle_of_moves_is_set_for_one_broker_and_for_all(two: Cluster) -> None:
    assert run(two, "describe", "--broker-default") == (0, "default of brokers: nothing is set\n", "")
    made = run(two, "set", "--broker", "1", f"{THROTTLE}=50000000")
    assert made == (0, f"broker 1: {THROTTLE}: {UNLIMITED} -> 50000000\n", "")
    made = run(two, "set", "--broker-default", f"{THROTTLE}=70000000")
    assert made == (0, f"default of brokers: {THROTTLE}: (not set) -> 70000000\n", "")
    for address in two.bootstrap.split(","):  # also one that has its own tells of it
        told = values(two, "--broker-default", "--bootstrap-server", address)
        assert told == {THROTTLE: ("70000000", "DYNAMIC_DEFAULT")}
    assert values(two, "--broker", "1", THROTTLE) == {THROTTLE: ("50000000", "DYNAMIC_BROKER")}
    assert values(two, "--broker", "2", THROTTLE) == {THROTTLE: ("70000000", "DYNAMIC_DEFAULT")}
    gone = run(two, "unset", "--broker", "1", THROTTLE, "--dry-run")[1]
    assert gone == f"broker 1: {THROTTLE}: 50000000 -> 70000000 (dry run)\n"
    assert run(two, "unset", "--broker", "1", THROTTLE)[1] == f"broker 1: {THROTTLE}: 50000000 -> 70000000\n"
    gone = run(two, "unset", "--broker-default", THROTTLE)
    assert gone == (0, f"default of brokers: {THROTTLE}: 70000000 -> (not set)\n", "")
    assert values(two, "--broker", "2", THROTTLE) == {THROTTLE: (UNLIMITED, "DEFAULT")}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["describe", "--topic", "nope"], "topic nope: there is no such topic"),
        (["set", "--topic", "nope", "retention.ms=1"], "topic nope: there is no such topic"),
        (["describe", "--broker", "9"], "broker 9 is not alive: expected one of 1, 2"),
        (["set", "--broker", "9", f"{THROTTLE}=1"], "broker 9 is not alive: expected one of 1, 2"),
        (["describe", "--broker", "1", "node.di"], "broker 1: no key 'node.di': did you mean 'node.id'?"),
        (["set", "--broker", "1", "log.dirs=/x"], "broker 1: Cannot update these configs dynamically: [log.dirs]"),
        (["set", "--broker", "1", f"{THROTTLE}=x"], f"configuration {THROTTLE}: Not a number of type LONG"),
        (["set", "--broker", "1", f"{THROTTLE}+=1"], f"Can't APPEND to key {THROTTLE} because its type is not LIST."),
        (
            ["set", "--broker-default", f"{THROTTLE[:-1]}=1"],
            f"default of brokers: Unknown broker config name: {THROTTLE[:-1]}: did you mean '{THROTTLE}'?",
        ),
        (["unset", "--broker-default", "retention.ms"], "default of brokers: no key 'retention.ms'"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_what_cannot_be_is_one_line_that_names_it(two: Cluster, args: list[str], said: str) -> None:
    code, out, err = run(two, *args)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("holdfast configs: ") and said in err
    assert "Exception" not in err and "Traceback" not in err


def test_of_a_change_with_one_bad_key_nothing_is_done(two: Cluster, topic: str) -> None:
    make(two, topic)
    begin = f"holdfast configs: topic {topic}: "
    code, _, err = run(two, "set", "--topic", topic, "retention.ms=5000", "segment.ms=soon")
    assert (code, err) == (1, f"{begin}Invalid value soon for configuration segment.ms: Not a number of type LONG\n")
    code, _, err = run(two, "set", "--topic", topic, "retention.ms=5000", "segmant.ms=5")
    assert (code, err) == (1, f"{begin}Unknown topic config name: segmant.ms: did you mean 'segment.ms'?\n")
    assert run(two, "describe", "--topic", topic)[1].startswith(f"topic {topic}: nothing is set")


def test_a_key_of_a_listener_that_the_broker_does_not_have_is_refused(two: Cluster) -> None:
    """It would be recorded, and do nothing."""
    key = "listener.name.nosuch.max.connections"
    code, out, err = run(two, "set", "--broker", "1", f"{key}=5")
    assert (code, out) == (1, "") and f"'{key}': broker 1 has no listener 'NOSUCH': expected one of " in err
    assert key not in values(two, "--broker", "1")
    own = key.replace("nosuch", err.split("expected one of ")[1].split(",")[0].split()[0].lower())
    assert run(two, "set", "--broker", "1", f"{own}=500")[0] == 0
    assert run(two, "unset", "--broker", "1", own)[0] == 0


def test_a_list_of_a_broker_is_added_to_and_taken_from(two: Cluster) -> None:
    """Also one that the broker itself has to be asked for."""
    one, other = (str(two.log_dir(1, number)) for number in (1, 2))
    begin = "broker 1: cordoned.log.dirs: "
    assert run(two, "set", "--broker", "1", f"cordoned.log.dirs={one}") == (0, f"{begin}'' -> {one}\n", "")
    assert values(two, "--broker", "1", "cordoned.log.dirs") == {"cordoned.log.dirs": (one, "DYNAMIC_BROKER")}
    assert run(two, "set", "--broker", "1", f"cordoned.log.dirs+={other}")[1] == f"{begin}{one} -> {one},{other}\n"
    assert run(two, "set", "--broker", "1", f"cordoned.log.dirs-={one}")[1] == f"{begin}{one},{other} -> {other}\n"
    assert run(two, "unset", "--broker", "1", "cordoned.log.dirs") == (0, f"{begin}{other} -> ''\n", "")
    assert run(two, "set", "--broker", "1", f"cordoned.log.dirs+={one}")[1] == f"{begin}'' -> {one}\n"
    code, _, err = run(two, "set", "--broker", "1", "cordoned.log.dirs=/nowhere")
    assert (code, "/nowhere" in err, err.count("\n")) == (1, True, 1)
    assert run(two, "unset", "--broker", "1", "cordoned.log.dirs")[0] == 0


def test_an_output_that_takes_nothing_is_told_without_a_trace(two: Cluster) -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "configs", "describe", "--broker", "1"]
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": two.bootstrap}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stderr) == (1, "holdfast configs: standard output: No space left on device\n")
