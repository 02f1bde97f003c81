"""Three brokers whose listeners all ask for TLS, a login, or both: also between each other, and while one is killed."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.cli import main as entry
from holdfast.testing import free_port, wait_for
from tests.certificates import Authority

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("brokers of its own")]

TIMEOUT_S = 60.0
REAUTH_MS = 2000
SECRET = "between,us="
MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
KINDS = [("SSL", None), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512")]
NEWS_OF_A_LOSS = re.compile(r"cannot fetch|fetch from broker|controller link|channel to broker|AuthenticationError")


def two_ports() -> tuple[int, int]:
    return free_port(), free_port()


@dataclass
class SecuredBrokers:
    """Brokers 1 to 3, each with a listener for clients and one for brokers; both speak ``protocol``."""

    folder: Path
    protocol: str
    mechanism: str | None
    authority: Authority = field(default_factory=Authority.make)
    ports: dict[int, tuple[int, int]] = field(
        default_factory=lambda: {n: (free_port(), free_port()) for n in (1, 2, 3)}
    )
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def properties(self, broker: int) -> dict[str, Any]:
        self.authority.issue(f"broker-{broker}").write(self.folder / f"broker-{broker}.pem")
        found: dict[str, Any] = {
            "node.id": broker,
            "listeners": "CLIENTS://127.0.0.1:{},BROKERS://127.0.0.1:{}".format(*self.ports[broker]),
            "listener.security.protocol.map": f"CLIENTS:{self.protocol},BROKERS:{self.protocol}",
            "inter.broker.listener.name": "BROKERS",
            "operator.listener.names": "CLIENTS",
            "log.dirs": self.folder / f"data-{broker}",
            "metadata.log.dirs": self.folder / "metadata",
            "default.replication.factor": 3,
            "offsets.topic.replication.factor": 3,
            "min.insync.replicas": 2,
            "broker.session.timeout.ms": 3000,
        }
        if "SSL" in self.protocol:
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self.folder / f"broker-{broker}.pem",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.authority.write(self.folder / "authority.pem"),
            }
        if self.protocol == "SSL":
            found["ssl.client.auth"] = "required"
        if self.mechanism is not None:
            line = f'{MODULES[self.mechanism]} required username="broker" password="{SECRET}" user_broker="{SECRET}";'
            if self.mechanism != "PLAIN":
                line = f'{MODULES[self.mechanism]} required username="broker" password="{SECRET}";'
            found |= {
                "sasl.enabled.mechanisms": self.mechanism,
                "sasl.mechanism.inter.broker.protocol": self.mechanism,
                "connections.max.reauth.ms": REAUTH_MS,
                **{
                    f"listener.name.{n}.{self.mechanism.lower()}.sasl.jaas.config": line for n in ("clients", "brokers")
                },
            }
        return found

    def start(self, broker: int) -> None:
        path = self.folder / f"broker-{broker}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.properties(broker).items()))
        with (self.folder / f"broker-{broker}.log").open("ab") as log:
            command = [sys.executable, "-m", "holdfast.cli.main", "broker", str(path)]
            self.processes[broker] = subprocess.Popen(command, stdout=log, stderr=log)

    def log(self, broker: int) -> str:
        return (self.folder / f"broker-{broker}.log").read_text()

    def wait_alive(self) -> None:
        admin = AdminClient(self.client())

        def alive() -> bool:
            for broker, process in self.processes.items():
                assert process.poll() is None, self.log(broker)[-3000:]
            try:
                return set(admin.list_topics(timeout=2).brokers) == {1, 2, 3}
            except confluent_kafka.KafkaException:
                return False

        wait_for(alive, "three brokers", timeout_s=TIMEOUT_S)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"localhost:{clients}" for clients, _ in self.ports.values())

    def client(self, **more: Any) -> dict[str, Any]:
        """Settings of librdkafka."""
        found: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "broker.address.family": "v4",
            "log_level": 0,
        }
        if "SSL" in self.protocol:
            shown = self.authority.issue("client")
            found |= {
                "ssl.ca.pem": self.authority.pem,
                "ssl.key.pem": shown.key_pem,
                "ssl.certificate.pem": shown.chain,
            }
        if self.mechanism is not None:
            found |= {"sasl.mechanism": self.mechanism, "sasl.username": "broker", "sasl.password": SECRET}
        return found | more

    def client_file(self) -> Path:
        """The same for our commands, and for Kafka's."""
        lines = [f"bootstrap.servers={self.bootstrap}", f"security.protocol={self.protocol}"]
        if "SSL" in self.protocol:
            shown = self.authority.issue("client").write(self.folder / "client.pem")
            lines += [
                "ssl.truststore.type=PEM",
                f"ssl.truststore.location={self.folder / 'authority.pem'}",
                "ssl.keystore.type=PEM",
                f"ssl.keystore.location={shown}",
            ]
        if self.mechanism is not None:
            lines += [
                f"sasl.mechanism={self.mechanism}",
                f'sasl.jaas.config={MODULES[self.mechanism]} required username="broker" password="{SECRET}";',
            ]
        path = self.folder / "client.properties"
        path.write_text("\n".join(lines))
        return path

    def leader(self, topic: str) -> int:
        admin = AdminClient(self.client())
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions[0]
        return int(found.leader)

    def controller(self) -> int:
        """As the cluster says now; a test waits for it to be found."""
        admin = AdminClient(self.client())

        def found() -> int | None:
            number = int(admin.list_topics(timeout=10).controller_id)
            return number if number > 0 and self.processes[number].poll() is None else None

        return wait_for(found, "a controller", timeout_s=TIMEOUT_S) or 0

    def wait_in_sync(self, topic: str) -> None:
        admin = AdminClient(self.client())

        def full() -> bool:
            return len(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs) == 3

        wait_for(full, f"all replicas of {topic}", timeout_s=TIMEOUT_S)


@contextmanager
def running(brokers: SecuredBrokers) -> Iterator[None]:
    try:
        for broker in brokers.ports:
            brokers.start(broker)
        brokers.wait_alive()
        yield
    finally:
        for process in brokers.processes.values():
            process.terminate()
        for process in brokers.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Writer:
    """A producer with acks=all that goes on writing; ``acknowledged`` is what is there for good."""

    def __init__(self, settings: Mapping[str, Any], topic: str, first: int = 0) -> None:
        self.acknowledged: list[int] = []
        self.errors: list[Any] = []
        self._topic = topic
        self._count = first
        self._producer = confluent_kafka.Producer(
            {**settings, "acks": "all", "enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": 60_000}
        )

    def _told(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
            return
        self.acknowledged.append(int(message.value()))

    def go_on(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._producer.produce(self._topic, str(self._count).encode(), partition=0, on_delivery=self._told)
            self._count += 1
            self._producer.poll(0.005)

    def end(self) -> None:
        assert self._producer.flush(TIMEOUT_S) == 0
        assert not self.errors


@pytest.mark.parametrize(("protocol", "mechanism"), KINDS)
def test_brokers_replicate_go_on_after_a_kill_and_log_in_again(
    tmp_path: Path, protocol: str, mechanism: str | None
) -> None:
    brokers = SecuredBrokers(tmp_path, protocol, mechanism)
    with running(brokers):
        admin = AdminClient(brokers.client())
        admin.create_topics([NewTopic("t", 1, 3)])["t"].result(TIMEOUT_S)
        brokers.wait_in_sync("t")
        before = {broker: len(brokers.log(broker)) for broker in brokers.ports}
        writer = Writer(brokers.client(), "t")
        writer.go_on(2.2 * REAUTH_MS / 1000)
        for broker, size in before.items():  # sessions have ended twice meanwhile, and no connection
            assert not NEWS_OF_A_LOSS.search(brokers.log(broker)[size:]), brokers.log(broker)[size:]
        killed = brokers.leader("t")
        brokers.processes[killed].kill()
        brokers.processes[killed].wait()
        writer.go_on(3)
        assert brokers.leader("t") != killed
        brokers.start(killed)
        brokers.wait_alive()
        brokers.wait_in_sync("t")
        brokers.processes[controller := brokers.controller()].kill()
        brokers.processes[controller].wait()
        writer.go_on(3)
        assert brokers.controller() != controller
        brokers.start(controller)
        brokers.wait_alive()
        writer.end()
        brokers.wait_in_sync("t")
        assert consumed(brokers.client(), "t", len(writer.acknowledged)) == writer.acknowledged
        for broker in brokers.ports:
            assert SECRET not in brokers.log(broker)
        commands(brokers)


def consumed(settings: Mapping[str, Any], topic: str, count: int) -> list[int]:
    consumer = confluent_kafka.Consumer({**settings, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found: list[int] = []
    until_s = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < until_s:
        found += [int(m.value()) for m in consumer.consume(1000, timeout=1) if m.error() is None]
    consumer.close()
    return found


def commands(brokers: SecuredBrokers) -> None:
    """Ours, by the file that Kafka's take."""
    path = str(brokers.client_file())
    for words in (["topics", "list"], ["cluster", "health"], ["log-dirs", "describe"], ["top", "--once"]):
        done = CliRunner().invoke(entry.main, [*words, "--command-config", path], prog_name="holdfast")
        assert done.exit_code == 0, (words, done.output)
    done = CliRunner().invoke(entry.main, ["topics", "list", "-b", brokers.bootstrap], prog_name="holdfast")
    assert (
        done.exit_code == 1 and "expected security.protocol=" in done.stderr and "--command-config FILE" in done.stderr
    )


# -- from plaintext to TLS and logins ----------------------------------------------------------------------------------

STAGES = (
    {"listeners": ("CLIENTS", "BROKERS"), "between": "BROKERS"},
    {"listeners": ("CLIENTS", "BROKERS", "SAFE_CLIENTS", "SAFE_BROKERS"), "between": "BROKERS"},
    {"listeners": ("CLIENTS", "BROKERS", "SAFE_CLIENTS", "SAFE_BROKERS"), "between": "SAFE_BROKERS"},
    {"listeners": ("SAFE_CLIENTS", "SAFE_BROKERS"), "between": "SAFE_BROKERS"},
)
"""Kafka's three bounces: listeners beside the old ones, brokers to the new one, the old ones away."""


class ChangingBrokers(SecuredBrokers):
    """Those of which each is at its own stage; clients are in plaintext until they are not (``is_safe``)."""

    stage: dict[int, int]
    safe_ports: dict[int, tuple[int, int]]
    is_safe: bool

    def properties(self, broker: int) -> dict[str, Any]:
        stage = STAGES[self.stage[broker]]
        ports = dict(zip(("CLIENTS", "BROKERS", "SAFE_CLIENTS", "SAFE_BROKERS"),
                         (*self.ports[broker], *self.safe_ports[broker]), strict=True))  # fmt: skip
        line = f'{MODULES["PLAIN"]} required username="broker" password="{SECRET}" user_broker="{SECRET}";'
        return super().properties(broker) | {
            "listeners": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in stage["listeners"]),
            "listener.security.protocol.map": ",".join(
                f"{name}:{'SASL_SSL' if 'SAFE' in name else 'PLAINTEXT'}" for name in stage["listeners"]
            ),
            "inter.broker.listener.name": stage["between"],
            "operator.listener.names": next(name for name in stage["listeners"] if name.endswith("CLIENTS")),
            **{f"listener.name.safe_{n}.plain.sasl.jaas.config": line for n in ("clients", "brokers")},
        }

    def client(self, **more: Any) -> dict[str, Any]:
        ports = self.safe_ports if self.is_safe else self.ports
        bootstrap = {"bootstrap.servers": ",".join(f"localhost:{clients}" for clients, _ in ports.values())}
        if self.is_safe:
            return super().client(**bootstrap, **more)
        return {**bootstrap, "broker.address.family": "v4", "log_level": 0, **more}


def test_a_cluster_goes_from_plaintext_to_sasl_ssl_in_three_bounces_and_loses_nothing(tmp_path: Path) -> None:
    brokers = ChangingBrokers(tmp_path, "SASL_SSL", "PLAIN")
    brokers.stage, brokers.is_safe = dict.fromkeys(brokers.ports, 0), False
    brokers.safe_ports = {broker: two_ports() for broker in brokers.ports}
    with running(brokers):
        admin = AdminClient(brokers.client())
        admin.create_topics([NewTopic("t", 1, 3)])["t"].result(TIMEOUT_S)
        written: list[int] = []
        for stage in (1, 2, 3):
            writer = Writer(brokers.client(), "t", first=len(written))
            for broker in brokers.ports:
                brokers.stage[broker] = stage
                brokers.processes[broker].terminate()
                writer.go_on(1)
                brokers.processes[broker].wait(TIMEOUT_S)
                brokers.start(broker)
                writer.go_on(1)
                if stage == 3 and broker == 1:
                    writer.end()  # those in plaintext have to go before all have changed
                    written += writer.acknowledged
                    brokers.is_safe = True
                    writer = Writer(brokers.client(), "t", first=len(written))
                brokers.wait_alive()
                brokers.wait_in_sync("t")
            writer.end()
            written += writer.acknowledged
            brokers.is_safe = stage >= 2
        assert written == list(range(len(written))) and len(written) > 1000
        assert consumed(brokers.client(), "t", len(written)) == written
        with socket.socket() as plain:
            assert plain.connect_ex(("127.0.0.1", brokers.ports[1][0])) != 0
