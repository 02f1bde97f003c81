"""What TLS costs a broker: CPU seconds per GB written and read, and per new connection; ours and Apache Kafka's.

    python -m benchmarks.tls                        # both, 300 MB each way and 1,000 connections, ECDSA P-256
    python -m benchmarks.tls --only ours --rounds 5
    python -m benchmarks.tls --megabytes 10 --connections 50 --rounds 1    # does it run?

One broker of each kind with a listener without TLS and one with it, both warm: a round is thrown away before the first
one that counts. The client is the same for all (librdkafka, one partition, values of 10 kB, acks=all, no compression);
what is counted is the CPU time of the broker's process and of those below it (/proc/PID/stat), so what else the client
costs does not matter. A new connection is TCP, the handshake of TLS 1.3 and ApiVersions, one after the other; without
TLS it is the same without the handshake, and for `scram` a login by SCRAM-SHA-512 follows (ours alone; who logs in has
computed the keys of its password once). Kafka runs with its own heap and flags, the jars are fetched with Maven once
(benchmarks/peers/kafka.py).

Results go to standard output as JSON, medians over the rounds. Run it on a machine that does nothing else: on a busy
one the caches are somebody else's, and CPU time doubles. Wanted: produce at most 0.6 and consume at most 1.0 of Kafka's
CPU-s/GB with TLS; a new connection of TLS and SCRAM 0.6 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.guesses import ask, handshake, token, token_of
from benchmarks.machine import have_memory, headline, tree_cpu_s
from benchmarks.peers.kafka import Peer, fetch, missing_tool
from holdfast.protocol.scram import ScramClient
from holdfast.testing import free_port, wait_for
from tests.certificates import Authority

VALUE = 10_000
PLAIN, TLS, SCRAM = "plain", "tls", "scram"
USER, PASSWORD = "alice", "the password of alice"
API_VERSIONS = bytes.fromhex("0000000a00120000000000010000")
START_S = 60.0


@dataclass(frozen=True)
class Subject:
    """A broker that is measured."""

    name: str
    pid: int
    ports: dict[str, int]
    trusted: str

    def client(self, way: str, **more: Any) -> dict[str, Any]:
        tls = {} if way == PLAIN else {"security.protocol": "SSL", "ssl.ca.pem": self.trusted}
        return {"bootstrap.servers": f"localhost:{self.ports[way]}", "broker.address.family": "v4", **tls, **more}

    def cpu_s(self) -> float:
        return tree_cpu_s(root=self.pid)

    def cost(self, work: Callable[[], None]) -> float:
        """CPU seconds of the broker while ``work`` runs."""
        before = self.cpu_s()
        work()
        return self.cpu_s() - before


def keys(directory: Path, authority: Authority) -> dict[str, object]:
    """The keys of TLS, which are the same for both."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("broker").write(directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.write(directory / "authority.pem"),
    }


@contextmanager
def ours(directory: Path) -> Iterator[Subject]:
    """A Holdfast broker."""
    authority, ports = Authority.make(), {PLAIN: free_port(), TLS: free_port(), SCRAM: free_port()}
    clients = f"PLAINTEXT://127.0.0.1:{ports[PLAIN]},SSL://127.0.0.1:{ports[TLS]}"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login = f'{module} required username="{USER}" password="{PASSWORD}";'
    properties: dict[str, object] = {
        "node.id": 1,
        "listeners": f"{clients},SASL_SSL://127.0.0.1:{ports[SCRAM]}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": login,
        "log.dirs": directory / "data",
        "metadata.log.dirs": directory / "metadata",
        **keys(directory, authority),
    }
    path = directory / "broker.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli.main", "broker", str(path)], stdout=log, stderr=log
        )
    try:
        yield Subject("holdfast", process.pid, ports, authority.pem)
    finally:
        process.terminate()
        process.wait(30)


class SecurePeer(Peer):
    """Kafka with a second listener, which speaks TLS."""

    def __init__(self, tls_port: int, tls: dict[str, object], **options: Any) -> None:
        super().__init__(**options)
        self._tls_port, self._tls = tls_port, tls

    def _quorum_keys(self, node: int) -> dict[str, object]:
        found = super()._quorum_keys(node)
        clients = f"PLAINTEXT://127.0.0.1:{self.port},SSL://127.0.0.1:{self._tls_port}"
        return {
            **found,
            **self._tls,
            "listeners": f"{clients},{str(found['listeners']).rpartition(',')[2]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }


@contextmanager
def kafka(directory: Path) -> Iterator[Subject]:
    """An Apache Kafka broker with its controller in it."""
    authority, ports = Authority.make(), {PLAIN: free_port(), TLS: free_port()}
    peer = SecurePeer(
        ports[TLS],
        keys(directory, authority),
        jars=fetch(say=lambda text: print(text, file=sys.stderr)),
        data_dir=directory,
        brokers=1,
        log_dirs=1,
        port=ports[PLAIN],
        settings=[],
    )
    peer.format()
    peer.start_missing()
    try:
        yield Subject("kafka", peer.running[1].pid, ports, authority.pem)
    finally:
        peer.stop()


def produce(subject: Subject, way: str, topic: str, megabytes: int) -> None:
    settings = subject.client(way, acks="all", **{"linger.ms": 5, "queue.buffering.max.kbytes": 1 << 20})
    producer, value = confluent_kafka.Producer(settings), os.urandom(VALUE)
    for _ in range(megabytes * 1_000_000 // VALUE):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(120) == 0


def consume(subject: Subject, way: str, topic: str, megabytes: int) -> None:
    wanted = megabytes * 1_000_000 // VALUE
    settings = {"group.id": "benchmark", "enable.auto.commit": False, "queued.max.messages.kbytes": 1 << 20}
    consumer = confluent_kafka.Consumer(subject.client(way, **settings))
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    got, until_s = 0, time.monotonic() + 120
    while got < wanted and time.monotonic() < until_s:
        got += len(consumer.consume(1000, 1))
    consumer.close()
    assert got >= wanted, f"{got} records of {wanted}"


def connect(subject: Subject, way: str, count: int) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=subject.trusted)
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", subject.ports[way])) as plain:
            if way == PLAIN:
                speak(plain)
            else:
                with context.wrap_socket(plain, server_hostname="localhost") as secured:
                    speak(secured)
                    if way == SCRAM:
                        log_in(secured)


def speak(sock: socket.socket) -> None:
    """ApiVersions 0, and its answer."""
    sock.sendall(API_VERSIONS)
    size, got = int.from_bytes(sock.recv(4), "big"), 0
    while got < size:
        got += len(sock.recv(1 << 16)) or size


def log_in(sock: socket.socket) -> None:
    """By SCRAM-SHA-512."""
    client = ScramClient("SCRAM-SHA-512", USER, PASSWORD, secrets.token_urlsafe(24))
    ask(sock, handshake("SCRAM-SHA-512"))
    client.check(token_of(ask(sock, token(client.final(token_of(ask(sock, token(client.first()))))))))


def measured(subject: Subject, args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Medians by way: CPU-s/GB written and read, CPU-ms of a connection."""
    admin = AdminClient(subject.client(PLAIN, log_level=0))

    def answers() -> bool:
        try:
            return bool(admin.list_topics(timeout=2).brokers)
        except confluent_kafka.KafkaException:
            return False

    wait_for(answers, f"{subject.name} to answer", timeout_s=START_S)
    found: dict[str, dict[str, list[float]]] = {way: {} for way in subject.ports}
    for number in range(args.rounds + 1):
        for way in (PLAIN, TLS):
            topic = f"{way}-{number}"
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
            gigabytes = args.megabytes / 1000
            have_memory(directory, 2 * args.megabytes)
            costs = {
                "produce_cpu_s_per_gb": subject.cost(lambda: produce(subject, way, topic, args.megabytes)) / gigabytes,  # noqa: B023
                "consume_cpu_s_per_gb": subject.cost(lambda: consume(subject, way, topic, args.megabytes)) / gigabytes,  # noqa: B023
                "connection_cpu_ms": subject.cost(lambda: connect(subject, way, args.connections))  # noqa: B023
                * 1000
                / args.connections,
            }
            admin.delete_topics([topic])[topic].result(30)
            told = ", ".join(f"{name} {cost:.2f}" for name, cost in costs.items())
            print(f"{subject.name} {way} {number}: {told}", file=sys.stderr)
            if number:
                for name, cost in costs.items():
                    found[way].setdefault(name, []).append(cost)
        if SCRAM in subject.ports:
            cost = subject.cost(lambda: connect(subject, SCRAM, args.connections)) * 1000 / args.connections
            if number:
                found[SCRAM].setdefault("connection_cpu_ms", []).append(cost)
    return {
        way: {name: round(statistics.median(values), 3) for name, values in costs.items()}
        for way, costs in found.items()
    }


def subjects(only: str | None) -> Iterator[tuple[Subject, Path]]:
    """Ours and Kafka, or the one that is named; one after the other runs, each with its directory."""
    kinds = {"ours": ours, "kafka": kafka}
    if only is None and (tool := missing_tool()) is not None:
        print(f"no peer: {tool} is not here", file=sys.stderr)
        del kinds["kafka"]
    for name, kind in kinds.items():
        if only in (None, name):
            with tempfile.TemporaryDirectory() as directory, kind(Path(directory)) as subject:
                yield subject, Path(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("ours", "kafka"))
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    result: dict[str, Any] = {"machine": headline(), "megabytes": args.megabytes, "rounds": args.rounds}
    for subject, directory in subjects(args.only):
        result[subject.name] = measured(subject, args, directory)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
