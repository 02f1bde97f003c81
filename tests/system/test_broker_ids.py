"""Brokers whose properties have no node.id (KIP-426): who they are after their disks, their hosts or both are gone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.model.config import read_properties
from holdfast.testing import free_port, wait_for
from holdfast.testing.processes import children, has_gone
from holdfast.testing.view import ClusterView, ask
from tests.zookeeper.cluster_nodes import ClusterNodes

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("ids that are records of it")]

TIMEOUT_S = 120.0
COUNT = 3
RACES = int(os.environ.get("HOLDFAST_ID_RACES", "1"))
"""How often brokers that start at the same time are looked at."""
STORES = list(filter(None, os.environ.get("HOLDFAST_ID_STORES", "").split(",")))
SAME_ID_S = 2.0


class Nodes:
    """Brokers by the letters of their directories; each is a process of ``holdfast broker FILE``. All are down at
    first, and none has a node.id. ``ensemble``: of the ZooKeeper store; None: it is the embedded one."""

    def __init__(self, root: Path, ensemble: ClusterNodes | None) -> None:
        self.root = root
        self.ensemble = ensemble
        self._first_port = free_port(8)
        self._settings: dict[str, dict[str, str]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def port(self, name: str) -> int:
        return self._first_port + "abcdefgh".index(name)

    def host(self, name: str) -> str:
        """The key by which the cluster knows the host of a broker, if nothing else is configured."""
        return f"127.0.0.1:{self.port(name)}"

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.host, self.processes))

    def log_dirs(self, name: str) -> list[Path]:
        return [self.root / name / "d1", self.root / name / "d2"]

    def file(self, name: str, **settings: str) -> Path:
        """The properties of a broker, written again."""
        path = self.root / f"{name}.properties"
        properties = {
            "listeners": f"PLAINTEXT://{self.host(name)}",
            "operator.listener.names": "PLAINTEXT",
            "log.dirs": ",".join(map(str, self.log_dirs(name))),
            "broker.id.host.key": "host:port",  # as is usual with the embedded store
            "broker.session.timeout.ms": "6000",
            **self.store,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path

    @property
    def store(self) -> dict[str, str]:
        """The properties that name the metadata store."""
        if self.ensemble is None:
            return {"metadata.log.dirs": f"{self.root / 'meta-1'},{self.root / 'meta-2'}"}
        return {
            "metadata.store": "zookeeper",
            "zookeeper.connect": self.ensemble.server.connect + self.ensemble.chroot,
            "zookeeper.session.timeout.ms": "18000",  # longer than a start may take here
        }

    def log(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text()

    def start(self, name: str, **settings: str) -> None:
        """Returns at once. Its log begins anew."""
        path = self.file(name, **settings)
        with (self.root / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli.main", "broker", str(path)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def serves(self, name: str) -> int:
        """Its id, once it serves."""

        def found() -> re.Match[str] | None:
            assert self.processes[name].poll() is None, self.log(name)
            return re.search(r"broker (\d+) serves", self.log(name))

        return int(wait_for(found, f"broker {name}", timeout_s=TIMEOUT_S)[1])

    def up(self, *names: str, **settings: str) -> list[int]:
        """Start these at the same time; their ids, once they serve."""
        for name in names:
            self.start(name, **settings)
        return [self.serves(name) for name in names]

    def exit_code(self, name: str) -> int:
        return self.processes[name].wait(TIMEOUT_S)

    def kill(self, name: str) -> None:
        process = self.processes[name]
        helpers = children(process.pid)
        process.kill()
        wait_for(lambda: has_gone(process.pid, helpers), f"the end of {name}")
        process.wait()

    def stop(self, name: str) -> None:
        self.processes[name].terminate()
        assert self.exit_code(name) == 0, self.log(name)

    def wipe(self, name: str) -> None:
        for path in self.log_dirs(name):
            shutil.rmtree(path)

    def stored(self, path: Path) -> str | None:
        return read_properties((path / "meta.properties").read_text()).get("node.id")

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    # -- the cluster -------------------------------------------------------------------------------------------

    def view(self, name: str, *topics: str) -> ClusterView:
        return ask("127.0.0.1", self.port(name), topics)

    def create(self, topic: str, assignment: list[list[int]]) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        new = NewTopic(topic, len(assignment), replica_assignment=assignment)
        admin.create_topics([new])[topic].result(TIMEOUT_S)

    def produce(self, topic: str, partitions: int, count: int) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0})
        failed: list[object] = []
        for number in range(count):
            for partition in range(partitions):
                producer.produce(
                    topic, b"v%d" % number, partition=partition,
                    on_delivery=lambda error, message: failed.append(error) if error is not None else None,
                )  # fmt: skip
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        assert failed == []

    def bytes_of(self, name: str, topic: str, partition: int) -> bytes:
        """Everything that a broker has of a partition, in whichever of its log directories."""
        folders = [path / f"{topic}-{partition}" for path in self.log_dirs(name)]
        found = [folder for folder in folders if folder.exists()]
        assert len(found) < 2, found
        return b"".join(path.read_bytes() for folder in found for path in sorted(folder.glob("*.log")))

    def ids(self, *arguments: str, wrong: int = 0) -> str:
        """What ``holdfast brokers ids`` writes; to standard error if it is to end with the code ``wrong``."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.cli.main", "brokers", "ids", *arguments],
            check=False, capture_output=True, text=True, timeout=TIMEOUT_S,
            env={key: value for key, value in os.environ.items() if key != "HOLDFAST_BOOTSTRAP_SERVER"},
        )  # fmt: skip
        assert done.returncode == wrong, done.stderr
        return done.stderr if wrong else done.stdout

    def metadata_check(self, name: str) -> str:
        """What ``holdfast metadata check`` says of the cluster that a broker's properties name."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.cli.main", "metadata", "check", "--config", str(self.file(name))],
            check=False, capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def listing(self, name: str) -> Mapping[str, object]:
        """All that the cluster keeps, as a running broker tells it."""
        found = json.loads(self.ids("list", "--bootstrap-server", self.host(name), "--json"))
        assert isinstance(found, dict)
        return found


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Nodes]:
    """Of a cluster whose brokers share a machine."""
    made = Nodes(tmp_path, None)
    yield made
    made.close()


on_embedded = pytest.mark.parametrize("nodes", STORES or ["embedded"], indirect=True)
on_zookeeper = pytest.mark.parametrize("nodes", STORES or ["zookeeper"], indirect=True)
"""What goes by one decision on either store (tests/contracts/test_broker_id_mapping.py) runs with one of them here, and
with both where HOLDFAST_ID_STORES=embedded,zookeeper."""


@pytest.fixture(params=["embedded", "zookeeper"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nodes]:
    """Likewise, or of one whose metadata is on a ZooKeeper server."""
    if request.param == "embedded":
        yield request.getfixturevalue("embedded")
        return
    made = Nodes(tmp_path, request.getfixturevalue("cluster_nodes"))
    yield made
    made.close()


def took_s(log: str, since: str, until: str) -> float:
    """Between two lines of a log."""

    def at(what: str) -> datetime:
        line = next(line for line in log.splitlines() if what in line)
        return datetime.fromisoformat(line[1:24])

    return (at(until) - at(since)).total_seconds()


def assert_refilled(nodes: Nodes, asked: str, name: str, topic: str, partitions: int) -> None:
    """Every replica in sync, and what ``name`` has on its disks the same as ``asked`` has."""

    def full() -> bool:
        view = nodes.view(asked, topic)
        return not view.under_replicated and len(view.partitions) == partitions

    wait_for(full, f"all replicas of {topic} in sync", timeout_s=TIMEOUT_S)
    for partition in range(partitions):
        wait_for(
            lambda p=partition: nodes.bytes_of(name, topic, p) == nodes.bytes_of(asked, topic, p),  # type: ignore[misc]
            f"{topic}-{partition} on {name}", timeout_s=TIMEOUT_S,
        )  # fmt: skip
        assert nodes.bytes_of(name, topic, partition)


def test_K426_04_a_broker_that_lost_all_its_disks_is_the_same_one(nodes: Nodes) -> None:
    """Stopped, and killed: its partitions are filled again, and nobody else is in the cluster."""
    a, b, c = nodes.up("a", "b", "c")
    nodes.create("t", [[a, b, c], [b, c, a], [c, a, b]])
    nodes.produce("t", 3, 200)
    nodes.stop("b")
    nodes.wipe("b")
    assert nodes.up("b") == [b]
    assert_refilled(nodes, "a", "b", "t", 3)
    nodes.produce("t", 3, 50)
    nodes.kill("b")  # its session is not over when it is there again
    nodes.wipe("b")
    assert nodes.up("b") == [b]
    assert took_s(nodes.log("b"), "node.id is not set", "registered as broker") < SAME_ID_S
    assert_refilled(nodes, "a", "b", "t", 3)
    assert sorted(nodes.view("a").brokers) == sorted([a, b, c])
    assert nodes.listing("a")["sequence"] == COUNT


@on_zookeeper
def test_K426_04_the_controller_too(nodes: Nodes) -> None:
    """Killed inside its session, with its disks empty: the one that follows it has to find out that it is dead."""
    found = dict(zip("abc", nodes.up("a", "b", "c"), strict=True))
    nodes.create("t", [list(found.values())])
    nodes.produce("t", 1, 20)
    leader = next(name for name, broker_id in found.items() if broker_id == nodes.view("a").controller_id)
    nodes.kill(leader)
    nodes.wipe(leader)
    assert nodes.up(leader) == [found[leader]]
    assert took_s(nodes.log(leader), "node.id is not set", "registered as broker") < SAME_ID_S
    assert_refilled(nodes, next(name for name in found if name != leader), leader, "t", 1)


@on_embedded
def test_K426_04_all_brokers_at_once(nodes: Nodes) -> None:
    """Every log directory of the cluster is empty: what the metadata says is all that is left."""
    found = nodes.up("a", "b", "c")
    for name in "abc":
        nodes.kill(name)
        nodes.wipe(name)
    assert nodes.up("c", "a", "b") == [found[2], found[0], found[1]]


@on_embedded
def test_K426_18_one_disk_is_enough_and_the_new_one_gets_the_id(nodes: Nodes) -> None:
    (broker_id,) = nodes.up("a")
    nodes.stop("a")
    nodes.ids("set", nodes.host("a"), "77", "--config", str(nodes.file("a")))
    shutil.rmtree(nodes.log_dirs("a")[0])
    assert nodes.up("a") == [broker_id]
    assert [nodes.stored(path) for path in nodes.log_dirs("a")] == [str(broker_id)] * 2
    nodes.stop("a")
    meta = nodes.log_dirs("a")[1] / "meta.properties"
    meta.write_text(meta.read_text().replace(f"node.id={broker_id}", "node.id=5"))
    nodes.start("a")
    assert nodes.exit_code("a") == 1
    last = nodes.log("a").splitlines()[-1]
    assert last == (
        f"holdfast broker: {nodes.log_dirs('a')[0]}/meta.properties is of node {broker_id}, {meta} is of node 5: "
        f"expected all log directories of one broker"
    )


@on_embedded
def test_K426_01_a_configured_id_must_be_that_of_the_disks(nodes: Nodes) -> None:
    assert nodes.up("a", node_id="1") == [1]
    nodes.stop("a")
    nodes.start("a", node_id="3")
    assert nodes.exit_code("a") == 1
    where = rf"{re.escape(str(nodes.root))}/a/d\d/meta\.properties"
    assert re.search(
        rf"{where} is of node 1, the configured node\.id is 3: expected the same", nodes.log("a").splitlines()[-1]
    )


@on_zookeeper
def test_K426_03_an_id_that_somebody_has_is_refused_and_the_other_one_serves_on(nodes: Nodes) -> None:
    nodes.up("a", node_id="1")
    before = nodes.listing("a")
    nodes.start("b", node_id="1")
    assert nodes.exit_code("b") == 1
    assert "node.id is in use by a live broker" in nodes.log("b")
    meta = (nodes.log_dirs("b")[0] / "meta.properties").read_text()
    assert "node.id=1\n" in meta  # the disks of the refused one say it too, and that is refused as well
    nodes.start("b")
    assert nodes.exit_code("b") == 1
    assert "node.id is in use by a live broker" in nodes.log("b")
    assert sorted(nodes.view("a").brokers) == [1]
    assert nodes.listing("a") == before
    nodes.create("t", [[1]])
    nodes.produce("t", 1, 5)


@on_embedded
def test_K426_05_two_brokers_of_one_host_are_two(nodes: Nodes) -> None:
    """The name of the host tells them apart no more: the second one is new."""
    (first,) = nodes.up("a", broker_id_host_key="hostname")
    (second,) = nodes.up("b", broker_id_host_key="hostname")
    assert (first, second) == (1001, 1002)


@on_zookeeper
def test_K426_06_K426_07_K426_08_missing_brokers(nodes: Nodes) -> None:
    """A broker of another host: two are missing, it is refused with both ids; one, it takes its id; none, it is new."""
    a, b, c = nodes.up("a", "b", "c")
    nodes.create("t", [[a, b, c]])
    nodes.produce("t", 1, 20)
    nodes.stop("b")
    nodes.stop("c")
    nodes.wipe("c")
    before = nodes.listing("a")
    nodes.start("d", broker_id_adopt_missing="true")
    assert nodes.exit_code("d") == 1
    wanted = f"brokers {min(b, c)}, {max(b, c)} are missing: broker.id.adopt.missing=true"
    refusal = [line for line in nodes.log("d").splitlines() if wanted in line][-1]
    assert f"holdfast brokers ids set {nodes.host('d')} ID" in refusal
    assert nodes.listing("a") == before
    assert before["sequence"] == COUNT
    assert nodes.up("b") == [b]
    assert nodes.up("d", broker_id_adopt_missing="true") == [c]
    assert_refilled(nodes, "a", "d", "t", 1)
    hosts = nodes.listing("a")["hosts"]
    assert hosts == [
        {"host": nodes.host(name), "broker.id": broker_id, "state": "alive"}
        for name, broker_id in (("a", a), ("b", b), ("d", c))
    ]
    assert nodes.up("e", broker_id_adopt_missing="true") == [1001 + COUNT]


@on_embedded
def test_K426_07_with_it_off_a_broker_of_another_host_is_new(nodes: Nodes) -> None:
    a, b, c = nodes.up("a", "b", "c")
    nodes.create("t", [[a, b, c]])
    nodes.stop("b")
    nodes.stop("c")
    assert nodes.up("d") == [1001 + COUNT]


@on_zookeeper
def test_K426_12_a_host_with_another_name_leaves_nothing_behind(nodes: Nodes) -> None:
    """The disks say who it is, the cluster learns the new name; the name of one that is down stays."""
    found = nodes.up("a", "b")
    nodes.stop("b")
    nodes.stop("a")
    assert nodes.up("a", broker_id_host_key="fixed:rack-1") == found[:1]
    hosts = nodes.listing("a")["hosts"]
    assert hosts == [
        {"host": nodes.host("b"), "broker.id": found[1], "state": "not alive"},
        {"host": "rack-1", "broker.id": found[0], "state": "alive"},
    ]


@on_embedded
def test_K426_13_operators_see_and_change_which_host_has_which_id(nodes: Nodes) -> None:
    a, b = nodes.up("a", "b")
    at = ("--bootstrap-server", nodes.host("a"))
    assert nodes.ids("list", *at).splitlines() == [
        f"{'HOST':<15}      BROKER  STATE",
        f"{nodes.host('a')}  {a:>10}  alive",
        f"{nodes.host('b')}  {b:>10}  alive",
    ]
    assert nodes.ids("set", nodes.host("c"), "10", *at) == f"Host {nodes.host('c')} has broker id 10.\n"
    assert nodes.up("c") == [10]
    assert nodes.ids("forget", nodes.host("b"), *at) == f"Host {nodes.host('b')} has no broker id any more.\n"
    assert "host nowhere has no broker id: expected one of" in nodes.ids("forget", "nowhere", *at, wrong=1)
    assert "-5 is not in the range" in nodes.ids("set", *at, "--", "x", "-5", wrong=2)
    for name in "abc":
        nodes.stop(name)
    offline = ("--config", str(nodes.file("a")))
    assert nodes.ids("list", *offline).splitlines() == [
        f"{'HOST':<15}      BROKER  STATE",
        f"{nodes.host('a')}  {a:>10}  -",
        f"{nodes.host('c')}  {10:>10}  -",
    ]
    nodes.wipe("a")
    nodes.ids("set", nodes.host("d"), "20", *offline)
    assert nodes.up("d") == [20]
    assert f"{nodes.host('d')}          20  -" in nodes.ids("list", *offline)


def test_the_metadata_is_good_behind_those_who_only_looked_for_an_id(embedded: Nodes) -> None:
    embedded.up("a")
    embedded.stop("a")
    embedded.ids("list", "--config", str(embedded.file("a")))
    assert f"{embedded.root}/meta-2: good" in embedded.metadata_check("a")
    embedded.wipe("a")
    assert f"{embedded.root}/meta-2: good" in embedded.metadata_check("a")


@on_embedded
def test_K426_14_brokers_with_ids_and_without_are_one_cluster(nodes: Nodes) -> None:
    nodes.start("a", node_id="1", broker_id_host_key="none")
    nodes.start("b")
    assert [nodes.serves("a"), nodes.serves("b")] == [1, 1001]
    nodes.create("t", [[1, 1001]])
    nodes.produce("t", 1, 20)
    assert_refilled(nodes, "a", "b", "t", 1)
    assert nodes.listing("a")["hosts"] == [{"host": nodes.host("b"), "broker.id": 1001, "state": "alive"}]


@pytest.mark.parametrize("run", range(RACES))
def test_K426_17_brokers_that_start_at_the_same_time_have_different_ids(nodes: Nodes, run: int) -> None:
    """Without a cluster, and again beside one; and of two that want the one missing id one gets it."""
    first = nodes.up("a", "b", "c")
    assert sorted(first) == [1001, 1002, 1003]
    nodes.create("t", [first])
    nodes.stop("c")
    second = nodes.up("d", "e", broker_id_adopt_missing="true")
    assert sorted(second) == sorted([first[2], 1004])
    assert sorted(nodes.view("a").brokers) == [1001, 1002, 1003, 1004]


def test_K426_08_ids_are_not_made_where_that_is_off(embedded: Nodes) -> None:
    embedded.start("a", broker_id_generation_enable="false")
    assert embedded.exit_code("a") == 1
    assert embedded.log("a").splitlines()[-1] == (
        "holdfast broker: node.id is not set and broker.id.generation.enable=false: expected a number >= 0 that no "
        "other broker has"
    )


def test_a_broker_that_waits_for_its_id_ends_when_it_is_told(embedded: Nodes) -> None:
    """The controller is frozen: nobody can say which id it is."""
    nodes = embedded
    nodes.up("a")
    os.kill(nodes.processes["a"].pid, signal.SIGSTOP)
    try:
        nodes.start("b")
        wait_for(
            lambda: "waiting for a controller that can say which id is whose" in nodes.log("b"), "a line of b",
            timeout_s=TIMEOUT_S,
        )  # fmt: skip
        nodes.stop("b")
    finally:
        os.kill(nodes.processes["a"].pid, signal.SIGCONT)
    assert nodes.up("b") == [1002]
