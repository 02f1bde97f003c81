"""Brokers of one cluster on a ZooKeeper server: each a process of its own (``holdfast broker FILE``), as a host has it.

Owns the processes, their properties files and log directories. Which broker leads and controls is asked of them and of
the nodes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.testing import free_port, wait_for
from holdfast.testing.processes import children, has_gone
from holdfast.testing.view import ClusterView, ask
from tests.zookeeper.cluster_nodes import ClusterNodes
from tests.zookeeper.link import Link

TIMEOUT_S = 120.0


class Brokers:
    """``with Brokers(folder, nodes) as brokers:`` runs brokers 1..3 with two log directories each."""

    def __init__(
        self,
        folder: Path,
        nodes: ClusterNodes,
        *,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
        by_links: bool = False,
    ) -> None:
        """``by_links``: the way of each broker to the ensemble can be cut (``links``)."""
        self.folder = folder
        self.nodes = nodes
        self.ids = range(1, count + 1)
        first = free_port(count)
        self.ports = {broker: first + broker - 1 for broker in self.ids}
        self._settings = dict(settings or {})
        self.links = {broker: Link(nodes.server.port) for broker in self.ids} if by_links else {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._log_begins: dict[int, int] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def write_properties(self, broker: int) -> Path:
        """The file of one broker."""
        home = self.folder / f"broker-{broker}"
        dirs = [home / f"log-dir-{number}" for number in (1, 2)]
        for path in dirs:
            path.mkdir(parents=True, exist_ok=True)
        values = {
            "node.id": str(broker),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[broker]}",
            "log.dirs": ",".join(map(str, dirs)),
            "metadata.store": "zookeeper",
            "zookeeper.connect": self._ensemble(broker) + self.nodes.chroot,
            "zookeeper.session.timeout.ms": "6000",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "3",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            **self._settings,
        }
        path = self.folder / f"broker-{broker}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return path

    def _ensemble(self, broker: int) -> str:
        return self.links[broker].connect if self.links else self.nodes.server.connect

    def begin(self, broker: int) -> None:
        """Start it and do not wait."""
        assert broker not in self._processes or self._processes[broker].poll() is not None, f"broker {broker} runs"
        with (self.folder / f"broker-{broker}.log").open("ab") as log:
            self._log_begins[broker] = log.tell()
            self._processes[broker] = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli.main", "broker", os.fspath(self.write_properties(broker))],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def start(self, *brokers: int) -> None:
        """Start these, or all, and wait until the cluster counts them as alive."""
        wanted = set(brokers or self.ids)
        for broker in wanted:
            self.begin(broker)
        self.wait_alive(wanted)

    def wait_alive(self, wanted: Iterable[int]) -> None:
        """Until each of them answers, and says that all of them live."""
        wanted = set(wanted)

        def alive() -> bool:
            for broker in wanted:
                process = self._processes[broker]
                assert process.poll() is None, f"broker {broker} has ended with {process.poll()}\n{self.log(broker)}"
            return all(wanted <= set(self.describe([], broker=broker).brokers) for broker in wanted)

        wait_for(alive, f"brokers {wanted}", timeout_s=TIMEOUT_S)

    def log(self, broker: int, size: int = 3000) -> str:
        """The end of what it wrote."""
        return (self.folder / f"broker-{broker}.log").read_bytes()[-size:].decode(errors="replace")

    def new_log(self, broker: int) -> str:
        """What it wrote since it was started last."""
        text = (self.folder / f"broker-{broker}.log").read_bytes()[self._log_begins.get(broker, 0) :]
        return text.decode(errors="replace")

    def epoch(self, broker: int) -> int:
        """Of its registration."""
        return int(self.nodes.json(f"/holdfast/brokers/{broker}")["epoch"])

    def pid(self, broker: int) -> int:
        return self._processes[broker].pid

    def is_running(self, broker: int) -> bool:
        return broker in self._processes and self._processes[broker].poll() is None

    def kill(self, broker: int) -> None:
        """kill -9; returns when it has gone, with all that it had open."""
        process = self._processes[broker]
        helpers = children(process.pid)
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        wait_for(lambda: has_gone(process.pid, helpers), f"the end of broker {broker}", timeout_s=10)

    def stop(self, broker: int) -> int:
        """SIGTERM; the exit code."""
        self._processes[broker].terminate()
        return self._processes[broker].wait(30)

    def describe(self, topics: Iterable[str] | None = None, *, broker: int | None = None) -> ClusterView:
        """Metadata of the first broker that answers, or of ``broker``; all topics when none is named."""
        names = None if topics is None else list(topics)
        trouble: OSError | None = None
        for each in self.ids if broker is None else (broker,):
            try:
                return ask("127.0.0.1", self.ports[each], names)
            except OSError as error:
                trouble = error
        raise ConnectionError("no broker answers") from trouble

    def wait_in_sync(self, topics: Iterable[str], *, timeout_s: float = TIMEOUT_S) -> None:
        """Until every running broker shows every replica in its ISR."""
        names = list(topics)

        def full() -> bool:
            views = [self.describe(names, broker=broker) for broker in self.ids if self.is_running(broker)]
            return all(view.partitions and not view.under_replicated for view in views)

        wait_for(full, f"all replicas of {names} to be in sync", timeout_s=timeout_s)

    @property
    def controller(self) -> int:
        """By its node."""
        return int(self.nodes.json("/controller")["brokerid"])

    def wait_controller(self, other_than: int) -> int:
        """Another one has claimed."""

        def found() -> int | None:
            now = self.nodes.says("/controller", "brokerid")
            return None if now is None or int(now) == other_than else int(now)

        return wait_for(found, f"another controller than {other_than}", timeout_s=TIMEOUT_S) or 0

    # -- clients -------------------------------------------------------------------------------------------------------

    def create(self, topic: str, assignment: list[list[int]], **config: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        new = NewTopic(topic, len(assignment), replica_assignment=assignment, config=config)
        admin.create_topics([new])[topic].result(TIMEOUT_S)

    def has(self, topic: str, assignment: list[list[int]]) -> bool:
        """As ``create``, by whoever is the controller in the end: whether the topic is there."""
        try:
            self.create(topic, assignment)
        except confluent_kafka.KafkaException as e:
            may_be = (confluent_kafka.KafkaError._TRANSPORT, confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS)
            if e.args[0].code() not in may_be:
                raise
        return bool(self.describe([topic]).partitions)

    def producer(self) -> confluent_kafka.Producer:
        """With acks=all, and no record twice."""
        return confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap, "acks": "all", "enable.idempotence": True,
                "retry.backoff.ms": 20, "log_level": 0,
            }
        )  # fmt: skip

    def produce(
        self, topic: str, first: int, count: int, partitions: int = 1, by: confluent_kafka.Producer | None = None
    ) -> None:
        """Write ``count`` numbers from ``first`` on to each partition; all are acknowledged on return."""
        producer = by or self.producer()
        errors: list[object] = []
        for number in range(first, first + count):
            for partition in range(partitions):
                producer.produce(
                    topic, b"%d" % number, None, partition,
                    on_delivery=lambda error, message: errors.append(error) if error is not None else None,
                )  # fmt: skip
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        assert errors == []

    def consume(self, topic: str, partition: int = 0) -> list[int]:
        """Every number in the partition, in order."""
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
        )
        try:
            _, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), TIMEOUT_S)
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
            found: list[int] = []

            def take() -> bool:
                for message in consumer.consume(1000, 0.2):
                    assert message.error() is None, message.error()
                    found.append(int(message.value() or b""))
                return len(found) >= end

            wait_for(take, f"{end} records of {topic}-{partition}", timeout_s=TIMEOUT_S)
            return found
        finally:
            consumer.close()

    # -- the block -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Brokers:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for broker in self.ids:
                print(f"broker {broker}", self.log(broker, 6000), sep="\n")
        self.end()

    def end(self) -> None:
        """kill -9 of all that run."""
        for broker in self._processes:
            if self.is_running(broker):
                self.kill(broker)
        for link in self.links.values():
            link.close()
