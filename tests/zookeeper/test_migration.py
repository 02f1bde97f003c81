"""Metadata on its way between the embedded store and a real ZooKeeper server, and a cluster that goes with it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from holdfast.cli.metadata import metadata
from holdfast.coordination.zookeeper_client import Create
from holdfast.metadata import moved, znode_paths
from holdfast.metadata.listing import HEADER
from holdfast.metadata.moved import Moved
from holdfast.metadata.records import MetadataRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from holdfast.metadata.store import Fatal
from holdfast.model.errors import MetadataMovedError
from holdfast.testing import Cluster
from tests.checks.two_stores import TO_EMBEDDED, TO_ZOOKEEPER, TwoStores
from tests.contracts.test_metadata_store import ONE, TWO, Reign
from tests.unit.coordination.test_migration import OTHER
from tests.unit.metadata.test_listing import IMAGE, T
from tests.zookeeper.cluster_nodes import ClusterNodes

pytestmark = pytest.mark.system

RECORDS = 200


@pytest.fixture
def stores(tmp_path: Path, cluster_nodes: ClusterNodes) -> TwoStores:
    return TwoStores(tmp_path, cluster_nodes.connect)


@pytest.mark.parametrize(
    "to",
    [
        TO_ZOOKEEPER,
        pytest.param(TO_EMBEDDED, marks=pytest.mark.long("the other way, and tests/property/test_migration.py")),
    ],
)
def test_killed_9_at_every_step_never_both_can_be_used_and_the_next_run_ends_it(
    stores: TwoStores, cluster_nodes: ClusterNodes, tmp_path: Path, to: str
) -> None:
    """The topic is so large that it takes several multis."""
    more: list[MetadataRecord] = [TopicRecord(name="large", topic_id=T), *_partitions(2500)]
    image = IMAGE.apply([RemoveTopicRecord(topic_id=T), *more], IMAGE.next_offset)[0]
    stores.put(OTHER[to], image)
    place = (cluster_nodes.server.connect, cluster_nodes.chroot, str(tmp_path), to)
    steps = []
    for number in range(1, 40):
        command = [sys.executable, "-m", "tests.zookeeper.killed_migration", *place, str(number)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if run.returncode == 0:
            break
        assert run.returncode == -9, run.stderr
        steps.append(run.stdout.strip())
        assert stores.usable() == {"OPEN": [], "DONE": [to]}.get(steps[-1], [OTHER[to]]), steps
    assert {"MARK", "EMPTY", "FILL", "COMPARE", "WHOLE", "LEAVE", "OPEN"} <= set(steps)
    assert steps.count("FILL") >= 2, steps
    assert stores.usable() == [to]
    assert stores.load(to) == image


def _partitions(count: int) -> list[MetadataRecord]:
    return [
        PartitionRecord(
            partition=n, topic_id=T, replicas=(9, 10), isr=(9,), leader=None, leader_epoch=n, partition_epoch=n
        )
        for n in range(count)
    ]


def test_a_broker_that_began_before_its_tree_was_left_is_refused_as_controller(
    stores: TwoStores, cluster_nodes: ClusterNodes
) -> None:
    stores.put(TO_ZOOKEEPER, IMAGE)
    early, late = cluster_nodes.store(), cluster_nodes.store()
    assert early.cluster_id() == IMAGE.cluster_id
    mark = Moved(to="the embedded store /a", by="one", is_whole=True)
    cluster_nodes.reader.write([Create(path=znode_paths.MOVED, data=moved.encode(mark))]).result(30)
    claim = early.claim(ONE)
    with pytest.raises(MetadataMovedError, match=r"was left: .* to the embedded store /a"):
        early.load(claim)
    judgement = early.judge()
    assert isinstance(judgement, Fatal) and "the embedded store /a" in judgement.reason
    with pytest.raises(MetadataMovedError, match=r"was left: .* to the embedded store /a"):
        late.cluster_id()


def test_a_controller_goes_on_where_the_other_store_ended(stores: TwoStores, cluster_nodes: ClusterNodes) -> None:
    first = Reign(stores.store(), ONE)
    first.commit(*[TopicRecord(name="large", topic_id=T), *_partitions(3)])
    first.store.close()
    stores.migrate(TO_ZOOKEEPER)
    second = Reign(cluster_nodes.store(), TWO)
    assert second.epoch > first.epoch + 1, "above that of the note which says that the directories were left"
    assert second.loaded.end_offset == first.image.next_offset + 1
    assert second.image.topics == first.image.topics
    assert second.commit(*[TopicRecord(name="x", topic_id=UUID(int=99))]) == second.loaded.end_offset
    second.store.close()
    stores.migrate(TO_EMBEDDED, migration_id="two")
    third = Reign(stores.store(), ONE)
    assert third.epoch > second.epoch
    assert third.loaded.end_offset == second.image.next_offset + 1
    assert third.image.topics == second.image.topics
    third.store.close()


# -- a cluster ---------------------------------------------------------------------------------------------------------


def holdfast(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def moves(*args: str) -> str:
    """What a migration said, which came to its end."""
    run = holdfast("metadata", "migrate", *args)
    assert run.returncode == 0, run.stderr
    return run.stdout


def produce(cluster: Cluster, first: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "acks": "all"})
    errors: list[object] = []
    for number in range(first, first + RECORDS):
        producer.produce("kept", b"%d" % number, None, 0, on_delivery=lambda e, m: errors.append(e) if e else None)
    assert producer.flush(60) == 0
    assert errors == []


def consume(cluster: Cluster, group: str, count: int) -> list[int]:
    """The next ones of a group, committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    found: list[int] = []
    try:
        consumer.subscribe(["kept"])
        while len(found) < count:
            message = consumer.poll(30)
            assert message is not None, f"{len(found)} of {count} records"
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
        consumer.commit(offsets=[TopicPartition("kept", 0, found[-1] + 1)], asynchronous=False)
    finally:
        consumer.close()
    return found


def config(cluster: Cluster) -> Any:
    resource, admin = ConfigResource(ResourceType.TOPIC, "kept"), AdminClient({"bootstrap.servers": cluster.bootstrap})
    return admin.describe_configs([resource])[resource].result(20)["retention.ms"].value


def dumped(*args: str) -> str:
    run = holdfast("metadata", "dump", *args)
    assert run.returncode == 0, run.stderr
    return run.stdout


def lines(text: str, *kinds: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(kinds)]


def test_a_cluster_moves_to_zookeeper_and_back_with_all_that_it_holds(
    tmp_path: Path, cluster_nodes: ClusterNodes
) -> None:
    folder, old = tmp_path / "cluster", tmp_path / "old.properties"
    connect = cluster_nodes.server.connect + cluster_nodes.chroot
    to_zookeeper = ("--to", "zookeeper", "--data-dir", str(folder), "--connect", connect)
    to_embedded = ("--to", "embedded", "--data-dir", str(folder))
    with Cluster(data_dir=folder) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("kept", 1, 3, config={"retention.ms": "86400000"})])["kept"].result(30)
        admin.create_topics([NewTopic("wide", 40, 3)])["wide"].result(30)
        produce(cluster, 0)
        assert consume(cluster, "g", 50) == list(range(50))
        run = holdfast("metadata", "migrate", *to_zookeeper)
        assert run.returncode == 1 and "is locked: a broker of this cluster runs" in run.stderr
    shutil.copy(folder / "broker-1.properties", old)
    before = dumped("--data-dir", str(folder))
    assert before.startswith(HEADER)
    assert len(lines(before, "broker ")) == 3 and len(lines(before, "partition wide ")) == 40
    (tmp_path / "before.txt").write_text(before)

    said = moves(*to_zookeeper)
    assert "3 brokers, " in said and "Read back and compared: equal" in said
    assert f"changed {folder}/broker-1.properties" in said
    copies = f"embedded:{folder}/metadata,{folder}/metadata-2"
    for right in (f"zookeeper:{connect}", str(folder), copies, str(folder / "broker-1.properties")):
        run = holdfast("metadata", "diff", str(tmp_path / "before.txt"), right)
        assert (run.returncode, run.stdout) == (0, "equal\n"), run.stdout + run.stderr
    assert "nothing is to be done" in moves(*to_zookeeper), "it can be run again"
    refused = holdfast("broker", str(old))
    assert refused.returncode == 1
    assert (
        f"was left: `holdfast metadata migrate` has moved this cluster's metadata to the ZooKeeper store {connect}"
        in (refused.stderr)
    )
    check = holdfast("metadata", "check", "--data-dir", str(folder))
    assert check.returncode == 2 and f"the metadata is in the ZooKeeper store {connect}" in check.stdout
    for command in (("recover", "--execute"), ("force", str(folder / "metadata"))):
        run = holdfast("metadata", *command, "--data-dir", str(folder))
        assert run.returncode == 1 and "move it back with `holdfast metadata migrate" in run.stderr

    with Cluster(data_dir=folder) as cluster:
        assert cluster_nodes.says("/controller", "brokerid") in (1, 2, 3)
        cluster.wait_in_sync(["kept", "wide"])
        assert config(cluster) == "86400000"
        produce(cluster, RECORDS)
        assert consume(cluster, "g", 200) == list(range(50, 250)), "the group goes on where it was"
        run = holdfast("metadata", "migrate", *to_embedded)
        assert run.returncode == 1 and "a broker of this cluster runs" in run.stderr
    on_zookeeper = dumped("--data-dir", str(folder), "--json")
    assert json.loads(on_zookeeper)["metadata"]["cluster"] == {
        "id": lines(before, "cluster:")[0].removeprefix("cluster: id=")
    }
    (tmp_path / "zookeeper.json").write_text(on_zookeeper)
    run = holdfast("metadata", "diff", str(tmp_path / "before.txt"), str(tmp_path / "zookeeper.json"))
    assert run.returncode == 1 and "! log: end_offset is " in run.stdout
    assert "topic kept" not in run.stdout and "config topic kept" not in run.stdout

    moves(*to_embedded)
    with Cluster(data_dir=folder) as cluster:
        cluster.wait_in_sync(["kept", "wide"])
        assert config(cluster) == "86400000"
        produce(cluster, 2 * RECORDS)
        assert consume(cluster, "g", 350) == list(range(250, 600))
        assert consume(cluster, "another", 600) == list(range(600))
    after = dumped("--data-dir", str(folder))
    for name in ("topic ", "config topic ", "config broker ", "cluster: "):  # hosts are called by their new ports
        assert lines(after, name) == lines(before, name)
    assert _numbers(after, "controller: ") > _numbers(on_zookeeper_text(on_zookeeper), "controller: ")
    assert _numbers(on_zookeeper_text(on_zookeeper), "controller: ") > _numbers(before, "controller: ")


def on_zookeeper_text(text: str) -> str:
    """The dump in JSON, as lines."""
    things = json.loads(text)["metadata"].items()
    return "\n".join(f"{name}: " + " ".join(f"{k}={v}" for k, v in fields.items()) for name, fields in things)


def _numbers(text: str, name: str) -> int:
    """The epoch in that line."""
    return int(lines(text, name)[0].rpartition("=")[2])


@pytest.mark.parametrize(
    ("args", "code", "why"),
    [
        (("migrate", "--to", "kafka"), 2, "'kafka' is not one of 'zookeeper', 'embedded'"),
        (("migrate", "--to", "zookeeper"), 2, "give --data-dir DIR of `holdfast up`, or --config FILE"),
        (("migrate", "--to", "zookeeper", "--config", "FILE"), 2, "has no zookeeper.connect: give --connect"),
        (("migrate", "--to", "zookeeper", "--config", "FILE", "--connect", "x"), 1, "HOST:PORT[,HOST:PORT]..."),
        (("migrate", "--to", "zookeeper", "--config", "FILE", "--connect", "127.0.0.1:1"), 1, "No server of 127.0."),
        (("migrate", "--to", "zookeeper", "--config", "FILE", "--connect", "SERVER/a"), 1, "holds no metadata"),
        (("migrate", "--to", "embedded", "--config", "FILE", "--connect", "SERVER/a"), 1, "holds no metadata"),
        (("migrate", "--to", "zookeeper", "--config", "OLD", "--connect", "SERVER/a"), 1, "nothing was moved: TMP/OLD"),
        (("dump", "--config", "FILE"), 1, "holds no metadata of a cluster"),
        (("dump", "--config", "FILE", "--connect", "SERVER/a"), 1, "holds no metadata of a cluster"),
        (("dump", "--config", "MISSING"), 1, "MISSING: No such file or directory"),
        (("diff", "MISSING", "FILE"), 2, "MISSING: No such file or directory: expected a dump, a properties file"),
        (("diff", "embedded:/nowhere", "FILE"), 2, "expected embedded:DIR[,DIR] of directories that are there"),
        (("diff", "zookeeper:x", "FILE"), 2, "HOST:PORT[,HOST:PORT]...[/CHROOT]"),
        (("diff", "BAD", "FILE"), 2, "line 2 is 'log'"),
    ],
)  # fmt: skip
def test_bad_input_is_told_with_what_was_expected(
    tmp_path: Path, cluster_nodes: ClusterNodes, args: Sequence[str], code: int, why: str
) -> None:
    files = {
        "FILE": f"node.id=1\nlog.dirs={tmp_path}/log\nzookeeper.connection.timeout.ms=2000\n",
        "BAD": f"{HEADER}\nlog\n",
        "OLD": f"node.id=1\nlog.dirs={tmp_path}/log\ninter.broker.protocol.version=0.1-IV0\n",
    }
    (tmp_path / "log").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    places = {name: str(tmp_path / name) for name in (*files, "MISSING")}
    server = cluster_nodes.server.connect + cluster_nodes.chroot
    run = CliRunner().invoke(metadata, [places.get(each, each.replace("SERVER", server)) for each in args])
    assert run.exit_code == code, run.output
    assert why.replace("TMP", str(tmp_path)) in run.output
