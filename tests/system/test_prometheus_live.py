"""A real Prometheus scrapes a cluster: each panel of the board has data, each alert of a disk fires on a real fault and
is over after the repair.

The alerts are those that are shipped, with shorter times (prometheus_server.py); as shipped they are fed with made-up
series in test_prometheus.py.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import pytest
from kio.schema.produce.v8.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from holdfast.client.blocking import BlockingClient
from holdfast.model.types import TopicPartition
from holdfast.records.record import Record, encode_batch
from holdfast.testing import Cluster, wait_for
from holdfast.testing.disks import Disk, EioDisk, FrozenDisk, FullDisk, SlowDisk
from holdfast.testing.view import framed
from tests.system.on_disks import NOT_LEADER, PROBE_MS, Load, create, milliseconds, on_disk, produce_error
from tests.system.prometheus_server import WINDOW, Prometheus, shortened
from tests.system.test_disk_recovers import online
from tests.system.test_prometheus import EXAMPLES, STRIMZI, alerts_of_disks

pytestmark = pytest.mark.system

SETTINGS = {
    "default.replication.factor": "1",
    "metrics.level": "partition",
    "log.dir.probe.interval.ms": str(PROBE_MS),
    "log.dir.degraded.probe.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.flush.interval.messages": "50",
}
DEAD, HUNG, FULL, SLOW = (1, 2), (1, 3), (2, 2), (2, 3)
DISKS: dict[tuple[int, int], type[Disk]] = {DEAD: EioDisk, HUNG: FrozenDisk, FULL: FullDisk, SLOW: SlowDisk}
"""Broker and number of the directory. The first ones of both brokers stay well."""
ALERTS = {
    "LogDirectoryOffline": DEAD,
    "LogDirectoryErrors": DEAD,
    "OfflineReplicas": DEAD,
    "OfflineReplicasFromTheStart": DEAD,
    "LogDirectorySilent": HUNG,
    "LogDirectoryQueueGrows": HUNG,
    "LogDirectoryFull": FULL,
    "LogDirectoryFillsUp": FULL,
    "LogDirectoryDegraded": SLOW,
    "LogDirectorySlowFlush": SLOW,
}
"""Alert -> the directory whose fault it is about."""
CONNECTIONS, EACH = 22, 60
FLUSH_RATE, PROBE_RATE = 64 << 10, 12 << 10
"""Bytes a second of the slow disk: a batch of 400 KiB takes six seconds; a probe takes one or two."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, log_dirs=3, disks=DISKS, settings=SETTINGS) as running:
        create(running, "load", [[1, 2], [2, 1]] * 6)
        create(running, "of-1", [[1]] * 6)
        create(running, "of-2", [[2]] * 6, flush_messages="1")
        yield running


@pytest.fixture(scope="module")
def load(cluster: Cluster) -> Iterator[Load]:
    """Of what is on good disks; at its end nothing that was acknowledged is lost."""
    good = on_disk(cluster, 1, 1) & on_disk(cluster, 2, 1)
    with Load(cluster, "load", sorted(partition for topic, partition in good if topic == "load")) as running:
        yield running


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    """What has certificates, which are on the board, too."""
    with Cluster(brokers=1, log_dirs=1, secure=True) as running:
        yield running


@pytest.fixture(scope="module")
def server(cluster: Cluster, secured: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus-live")
    rules = folder / "rules.yml"
    rules.write_text(shortened((EXAMPLES / "rules.yml").read_text()))
    instances = [instance(1, cluster), instance(2, cluster), instance(1, secured)]
    with Prometheus(folder, instances, rules=[rules, EXAMPLES / "recording.yml"]) as it:
        yield it


def instance(broker: int, cluster: Cluster) -> str:
    return f"127.0.0.1:{cluster.port + 99 + broker}"


def panels() -> Iterator[tuple[str, str]]:
    """Title of each panel with each of its queries, filled in as Grafana does for all brokers and topics."""
    for panel in json.loads((EXAMPLES / "board.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", WINDOW)
            yield panel["title"], query.replace("$instance", ".*").replace("$topic", ".*")


BUSY = {"Bytes in", "Bytes out", "Records in", "Written per disk", "Requests per second", "CPU"}
"""Panels of what a load makes go up."""


def test_every_panel_of_the_board_has_data(cluster: Cluster, load: Load, server: Prometheus) -> None:
    asked = list(panels())
    assert len({title for title, _ in asked}) > 30
    empty: list[tuple[str, str]] = []
    rates: dict[str, float] = {}
    with BlockingClient(cluster.bootstrap) as client:

        def all_have() -> bool:
            client.fetch_raw(TopicPartition("load", load.partitions[0]), 0, max_bytes=4096)
            rates.clear()
            empty.clear()
            for title, query in asked:
                if found := server.numbers(query):
                    rates[title] = max(found)
                else:
                    empty.append((title, query))
            # A rate is 0 as long as all scrapes of its window have seen the same.
            empty.extend((title, "more than 0") for title in BUSY if rates.get(title) == 0)
            return not empty

        try:
            wait_for(all_have, "data in every panel", timeout_s=40, interval_s=0.5)
        except TimeoutError:
            pytest.fail(f"without data: {empty}")
    assert rates.keys() >= BUSY
    assert rates["Brokers alive"] == 3, "the one with certificates among them"


def test_what_strimzis_board_reads_of_brokers_and_what_others_call_it_has_data(
    cluster: Cluster, load: Load, server: Prometheus
) -> None:
    assert produce_error(cluster, 2, "of-1", 0) == NOT_LEADER  # errors are counted where there are some
    made = set(re.findall(r"- record: (\w+)", (EXAMPLES / "recording.yml").read_text()))
    assert len(STRIMZI) == 22 and len(made) > 30
    missing: list[str] = []

    def all_have() -> bool:
        missing[:] = [name for name in sorted(STRIMZI | made) if not server.numbers(f"count({name})")]
        return not missing

    try:
        wait_for(all_have, "every name of the board", timeout_s=20, interval_s=0.5)
    except TimeoutError:
        pytest.fail(f"without data: {missing}")


def wanted(cluster: Cluster) -> set[tuple[str, str, str]]:
    """Alert, broker and directory (none where an alert is about all of a broker's) of every fault."""
    return {
        (alert, instance(broker, cluster), "" if alert.startswith("Offline") else str(cluster.log_dir(broker, number)))
        for alert, (broker, number) in ALERTS.items()
    }


def firing(server: Prometheus) -> set[tuple[str, str, str]]:
    return {(a["alertname"], a.get("instance", ""), a.get("logDirectory", "")) for a in server.firing()}


def place_on(cluster: Cluster, disk: tuple[int, int]) -> tuple[str, int]:
    """A partition whose only replica is there."""
    return min((topic, partition) for topic, partition in on_disk(cluster, *disk) if topic == f"of-{disk[0]}")


def flood(cluster: Cluster, broker: int, place: tuple[str, int]) -> list[socket.socket]:
    """More appends than a disk may have waiting, whose answers nobody takes."""
    batch = bytes(encode_batch([Record(0, 1, None, b"x")]))
    data = PartitionProduceData(index=i32(place[1]), records=batch)
    topics = (TopicProduceData(name=TopicName(place[0]), partition_data=(data,)),)
    request = ProduceRequest(transactional_id=None, acks=i16(1), timeout=milliseconds(60_000), topic_data=topics)
    frames, found = framed(request) * EACH, []
    for _ in range(CONNECTIONS):
        found.append(socket.create_connection(cluster.addresses()[broker - 1], timeout=30))
        found[-1].sendall(frames)
    return found


def break_all(cluster: Cluster, client: BlockingClient, until: ExitStack) -> Future[Any]:
    """Every disk in its own way, for real. The batch that the slow one is to flush is returned."""
    slow, (topic, partition) = cluster.disks[SLOW], place_on(cluster, SLOW)
    assert isinstance(slow, SlowDisk)
    slow.bytes_per_s = FLUSH_RATE
    slow.fail()
    large = encode_batch([Record(0, 1, None, b"x" * (400 << 10))])
    flushed = client.submit(client.aio.produce(topic, partition, large, acks=1, timeout_s=60))
    place = place_on(cluster, HUNG)
    cluster.disks[HUNG].fail()
    for connection in flood(cluster, HUNG[0], place):
        until.enter_context(connection)
    cluster.disks[FULL].fail()
    cluster.disks[DEAD].fail()
    return flushed


def test_every_alert_of_a_disk_fires_on_a_real_fault_and_is_over_after_the_repair(
    cluster: Cluster, load: Load, server: Prometheus
) -> None:
    assert alerts_of_disks() == ALERTS.keys()
    expected, fired = wanted(cluster), set[tuple[str, str, str]]()
    wait_for(lambda: len(server.numbers("up == 1")) == 3, "all brokers to be scraped", timeout_s=20)
    wait_for(lambda: not expected & firing(server), "no alert that is about to be made", timeout_s=20)
    with ExitStack() as until, BlockingClient(cluster.bootstrap) as client:
        flushed = break_all(cluster, client, until)
        states: set[str] = set()

        def all_fired() -> bool:
            fired.update(firing(server))
            slow = cluster.disks[SLOW]
            if flushed.done() and isinstance(slow, SlowDisk) and slow.bytes_per_s != PROBE_RATE:
                slow.bytes_per_s = PROBE_RATE
                slow.fail()
            states.update(labels["state"] for labels, _ in server.query(query_of("State of each disk")))
            return expected <= fired

        try:
            wait_for(all_fired, "every alert to fire", timeout_s=60, interval_s=0.2)
        except TimeoutError:
            pytest.fail(f"did not fire: {sorted(expected - fired)}")
        assert states == {"online", "offline", "silent", "full", "degraded"}
        assert server.numbers(query_of("Disks offline")) == [1]
        load.progress()
        repair_all(cluster)
        try:
            wait_for(lambda: not expected & firing(server), "the end of every alert", timeout_s=60, interval_s=0.2)
        except TimeoutError:
            pytest.fail(f"fire still: {sorted(expected & firing(server))}")
    assert server.numbers(query_of("Disks offline")) == [0]


def query_of(title: str) -> str:
    (query,) = (query for named, query in panels() if named == title)
    return query


def repair_all(cluster: Cluster) -> None:
    for place in (HUNG, FULL, SLOW):
        cluster.disks[place].heal()
    dead = cluster.disks[DEAD]

    def mounted() -> bool:
        try:
            dead.heal()
        except OSError:  # the broker has files of it open
            return False
        return True

    wait_for(mounted, "the dead disk to be let go", timeout_s=30, interval_s=0.2)
    done = online(cluster, dead.path)
    assert done.returncode == 0, done.stderr
