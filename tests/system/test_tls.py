"""Brokers that speak TLS, with stock clients: what goes through, who is let in, and certificates that are renewed."""

from __future__ import annotations

import os
import re
import select
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from holdfast.client.security import TlsSettings, tls_context
from holdfast.testing import free_port, wait_for
from tests.certificates import Authority, Certificate, expired, foreign, misnamed
from tests.system.test_metrics import logins, page_at

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("brokers of its own")]

TIMEOUT_S = 60.0
RECORDS = 2000
ROOT = Path(__file__).parents[2]


@dataclass
class TlsBrokers:
    """Brokers whose listeners SSL and MTLS speak TLS; the second asks for a certificate. They speak by MTLS to each
    other."""

    directory: Path
    authority: Authority
    count: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ports: dict[int, tuple[int, int]] = field(default_factory=dict)

    def keystore(self, broker: int) -> Path:
        return self.directory / f"broker-{broker}.pem"

    def log(self, broker: int = 1) -> str:
        return (self.directory / f"broker-{broker}.log").read_text()

    def start(self) -> None:
        for broker in range(1, self.count + 1):
            self.ports[broker] = free_port(), free_port()
            self.authority.issue(f"broker-{broker}").write(self.keystore(broker))
            properties = {
                "node.id": broker,
                "listeners": "SSL://127.0.0.1:{},MTLS://127.0.0.1:{}".format(*self.ports[broker]),
                "listener.security.protocol.map": "SSL:SSL,MTLS:SSL",
                "inter.broker.listener.name": "MTLS",
                "listener.name.mtls.ssl.client.auth": "required",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self.keystore(broker),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.authority.write(self.directory / "authority.pem"),
                "ssl.principal.mapping.rules": "RULE:^CN=broker-.*$/broker/,RULE:^CN=([a-z]+).*$/$1/",
                "log.dirs": self.directory / f"data-{broker}",
                "metadata.log.dirs": self.directory / "metadata",
                "offsets.topic.replication.factor": self.count,
                "auto.create.topics.enable": "false",
                **self.settings,
            }
            path = self.directory / f"broker-{broker}.properties"
            path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
            self.run(broker)
        admin = AdminClient(self.client())
        wait_for(lambda: len(self._brokers(admin)) == self.count, "all brokers", timeout_s=TIMEOUT_S)

    def run(self, broker: int) -> None:
        """Its process, with the file that it has."""
        with (self.directory / f"broker-{broker}.log").open("ab") as log:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
            command = [
                sys.executable, "-m", "holdfast.cli.main", "broker", str(self.directory / f"broker-{broker}.properties")
            ]  # fmt: skip
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    def _brokers(self, admin: AdminClient) -> Mapping[int, Any]:
        assert all(process.poll() is None for process in self.processes), self.log()
        try:
            brokers: Mapping[int, Any] = admin.list_topics(timeout=2).brokers
        except confluent_kafka.KafkaException:
            return {}
        return brokers

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            assert process.wait(30) == 0

    def bootstrap(self, mtls: bool = False) -> str:
        return ",".join(f"localhost:{ports[mtls]}" for ports in self.ports.values())

    def client(self, shown: Certificate | None = None, **more: Any) -> dict[str, Any]:
        """Settings of librdkafka."""
        own = {} if shown is None else {"ssl.key.pem": shown.key_pem, "ssl.certificate.pem": shown.chain}
        return {
            "bootstrap.servers": self.bootstrap(shown is not None),
            "security.protocol": "SSL",
            "ssl.ca.pem": self.authority.pem,
            "broker.address.family": "v4",
            "socket.timeout.ms": 10_000,
            "log_level": 0,
            **own,
            **more,
        }

    def create(self, topic: str, **settings: Any) -> None:
        admin = AdminClient(self.client(**settings))  # it ends what it was asked when it goes
        made = admin.create_topics([NewTopic(topic, self.count, self.count)])
        made[topic].result(TIMEOUT_S)


@contextmanager
def tls_brokers(directory: Path, count: int = 1, **settings: str) -> Iterator[TlsBrokers]:
    directory.mkdir(exist_ok=True)
    brokers = TlsBrokers(directory, Authority.make(), count, {k.replace("_", "."): v for k, v in settings.items()})
    try:
        brokers.start()
        yield brokers
    finally:
        brokers.stop()


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBrokers]:
    with tls_brokers(tmp_path_factory.mktemp("tls"), metrics_port=str(free_port())) as running:
        yield running


def produced(settings: dict[str, Any], topic: str, values: list[bytes]) -> None:
    failed: list[Any] = []
    producer = confluent_kafka.Producer({**settings, "acks": "all", "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0 and not failed


def consumed(settings: dict[str, Any], topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    until_s = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < until_s:
        found += [message.value() for message in consumer.consume(500, 1) if message.error() is None]
    consumer.close()
    return found


@pytest.mark.parametrize("mtls", [False, True])
def test_a_stock_client_writes_and_reads(one: TlsBrokers, mtls: bool) -> None:
    """Records of more than a record of TLS, and answers of more than a socket takes."""
    settings = one.client(one.authority.issue("alice") if mtls else None)
    topic = f"through-{mtls}"
    one.create(topic)
    values = [str(i).encode() + bytes(i * 37 % 40_000) for i in range(RECORDS)]
    produced(settings, topic, values)
    assert consumed(settings, topic, RECORDS) == values


def test_brokers_replicate_through_it(tmp_path: Path) -> None:
    """Orders, fetches and heartbeats show a certificate."""
    with tls_brokers(tmp_path / "three", 3) as brokers:
        brokers.create("t")
        values = [str(i).encode() for i in range(RECORDS)]
        produced(brokers.client(), "t", values)
        assert sorted(consumed(brokers.client(), "t", RECORDS)) == sorted(values)
        partitions = AdminClient(brokers.client()).list_topics("t", timeout=TIMEOUT_S).topics["t"].partitions
        assert [len(partition.isrs) for partition in partitions.values()] == [3, 3, 3]


def handshake(brokers: TlsBrokers, shown: Certificate | None, directory: Path) -> None:
    """By the listener that asks for a certificate; ssl.SSLError or ConnectionError: refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=brokers.authority.pem)
    if shown is not None:
        context.load_cert_chain(shown.write(directory / "shown.pem"))
    with socket.create_connection(("127.0.0.1", brokers.ports[1][1]), TIMEOUT_S) as plain:
        plain.settimeout(TIMEOUT_S)
        with context.wrap_socket(plain, server_hostname="localhost") as tls:
            tls.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", "")))
            if not tls.recv(4):
                raise ConnectionError("closed")


@pytest.mark.long("needs the program openssl; clients ask for new keys after hours")
def test_a_client_may_ask_for_new_keys(one: TlsBrokers) -> None:
    """Of its own (k), and of both sides (K): requests before and after are answered."""
    openssl = shutil.which("openssl")
    assert openssl is not None, "openssl is not installed"
    for command, answers in ((b"k", 0), (b"K", 3)):
        client = subprocess.Popen(
            [openssl, "s_client", "-connect", f"127.0.0.1:{one.ports[1][0]}", "-msg"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        said = bytearray()
        assert client.stdin is not None and client.stdout is not None

        def until(words: bytes, count: int, said: bytearray = said, client: subprocess.Popen[bytes] = client) -> None:
            assert client.stdout is not None
            end_s = time.monotonic() + TIMEOUT_S
            while said.count(words) < count:
                ready, _, _ = select.select([client.stdout], [], [], max(0.0, end_s - time.monotonic()))
                data = os.read(client.stdout.fileno(), 1 << 16) if ready else b""
                assert data, f"{words!r} came {said.count(words)} times, expected {count}: {bytes(said[-500:])!r}"
                said += data

        try:
            for number in (1, 2, 3):
                client.stdin.write(command + b"\n")
                client.stdin.flush()
                until(b">>> TLS 1.3, Handshake [length 0005], KeyUpdate", number)
                correlation = b"\x00\x00\x07" + bytes([number])
                client.stdin.write(bytes.fromhex("0000000a00120000") + correlation + b"\xff\xff")
                client.stdin.flush()
                until(correlation, 1)
                until(b"<<< TLS 1.3, Handshake [length 0005], KeyUpdate", min(number, answers))
        finally:
            client.kill()
            client.wait()
            client.stdout.close()
            client.stdin.close()


def test_who_is_not_known_is_refused(one: TlsBrokers, tmp_path: Path) -> None:
    metrics_port = int(one.settings["metrics.port"])
    succeeded, failed, *_ = logins(page_at(metrics_port), "MTLS")
    handshake(one, one.authority.issue("alice"), tmp_path)
    refused = {
        "none": None, "expired": expired(one.authority, "alice"), "foreign": foreign("alice"),
        "no rule for its name": one.authority.issue("0123"),
    }  # fmt: skip
    for why, shown in refused.items():
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(one, shown, tmp_path)
            pytest.fail(why)
    for words in (
        "peer did not return a certificate",
        "the client's certificate is not taken: certificate has expired",
        "the client's certificate is not taken: unable to get local issuer certificate",
        "no rule of ssl.principal.mapping.rules fits CN=0123",
    ):
        wait_for(lambda words=words: words in one.log(), words, timeout_s=TIMEOUT_S)  # type: ignore[misc]
    wanted = [succeeded + 1, failed + len(refused), 0, 0]
    wait_for(lambda: logins(page_at(metrics_port), "MTLS") == wanted, f"{wanted} to be counted", timeout_s=TIMEOUT_S)


@contextmanager
def shown(certificate: Certificate, folder: Path) -> Iterator[int]:
    """A port that shows this certificate to all who come, whatever they say of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.write(folder / "server.pem"))

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock, suppress(OSError):
                context.wrap_socket(sock, server_side=True).recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(TIMEOUT_S)


@pytest.mark.parametrize(
    ("which", "reason"),
    [
        ("good", None),
        ("expired", "certificate has expired"),
        ("foreign", "unable to get local issuer certificate"),
        ("misnamed", "IP address mismatch"),
    ],
)
def test_a_broker_that_is_not_known_is_refused(tmp_path: Path, which: str, reason: str | None) -> None:
    """By who trusts one authority: stock clients, and by what our brokers and clients verify others with."""
    authority = Authority.make()
    made = {"good": lambda: authority.issue("broker"), "expired": lambda: expired(authority), "foreign": foreign,
            "misnamed": lambda: misnamed(authority)}[which]()  # fmt: skip
    with shown(made, tmp_path) as port:
        context = tls_context(TlsSettings(trusted=authority.pem))
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as sock:
            if reason is None:
                context.wrap_socket(sock, server_hostname="127.0.0.1").close()
                return
            with pytest.raises(ssl.SSLCertVerificationError, match=reason):
                context.wrap_socket(sock, server_hostname="127.0.0.1")
        told: list[str] = []
        stock = confluent_kafka.Producer(
            {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SSL", "ssl.ca.pem": authority.pem,
             "error_cb": lambda error: told.append(str(error))}
        )  # fmt: skip
        wait_for(lambda: stock.poll(0.1) or any("certificate" in each for each in told), "the refusal")


def first_answer_s(brokers: TlsBrokers, *, gathers: bool) -> float:
    """From the end of a handshake to the answer to the first request; ``gathers``: small writes, as librdkafka does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=brokers.authority.pem)
    with socket.create_connection(("127.0.0.1", brokers.ports[1][0]), TIMEOUT_S) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, int(not gathers))
        with context.wrap_socket(plain, server_hostname="localhost") as tls:
            began_s = time.monotonic()
            tls.sendall(bytes.fromhex("0000000a00120000000000010000"))
            assert tls.recv(4), "an answer to ApiVersions"
            return time.monotonic() - began_s


def test_a_client_that_gathers_small_writes_is_not_kept_waiting(one: TlsBrokers) -> None:
    """It keeps its first request until the end of the handshake is acknowledged, which Linux leaves for 40 ms."""
    took = {gathers: [first_answer_s(one, gathers=gathers) for _ in range(15)] for gathers in (True, False)}
    assert statistics.median(took[True]) < statistics.median(took[False]) + 0.02, took


def serial(port: int) -> int:
    """Of the certificate that a new connection is shown."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(ssl.get_server_certificate(("127.0.0.1", port)).encode()).serial_number


def test_a_hundred_renewals_under_load_close_nothing(tmp_path: Path) -> None:
    with tls_brokers(tmp_path / "one", connections_max_idle_ms="600000") as brokers:
        brokers.create("t")
        errors: list[str] = []
        stop = threading.Event()
        sent = 0

        def load() -> None:
            nonlocal sent
            producer = confluent_kafka.Producer(
                {**brokers.client(), "acks": "all", "linger.ms": 1, "error_cb": lambda e: errors.append(str(e))}
            )
            while not stop.is_set():
                producer.produce("t", b"v", on_delivery=lambda e, _: errors.append(str(e)) if e else None)
                producer.poll(0.002)
                sent += 1
            assert producer.flush(TIMEOUT_S) == 0

        thread = threading.Thread(target=load)
        thread.start()
        try:
            keeper = AdminClient(brokers.client())
            resource = ConfigResource(
                ResourceType.BROKER,
                "1",
                incremental_configs=[
                    ConfigEntry(
                        "listener.name.ssl.ssl.keystore.location",
                        str(brokers.keystore(1)),
                        incremental_operation=AlterConfigOpType.SET,
                    )
                ],
            )
            for number in range(100):
                renewed = brokers.authority.issue("broker-1")
                path = brokers.keystore(1)
                renewed.write(path.with_suffix(".new"))
                path.with_suffix(".new").replace(path)
                keeper.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
                wanted = renewed.certificate.serial_number
                wait_for(
                    lambda wanted=wanted: serial(brokers.ports[1][0]) == wanted,  # type: ignore[misc]
                    f"renewal {number} to be in force",
                    timeout_s=TIMEOUT_S,
                    interval_s=0.01,
                )
        finally:
            stop.set()
            thread.join()
        assert not errors
        assert sum(1 for _ in consumed(brokers.client(), "t", sent)) == sent
        assert brokers.log().count("is renewed") >= 100


def test_a_file_alone_renews_and_what_is_broken_changes_nothing(tmp_path: Path) -> None:
    with tls_brokers(tmp_path / "one") as brokers:
        port, path = brokers.ports[1][0], brokers.keystore(1)
        before = serial(port)
        for content, words in (
            ("no certificate", "the file is no PEM"),
            (brokers.authority.issue("broker-2").pem, "names CN=broker-2: expected CN=broker-1"),
            (brokers.authority.issue("broker-1", hosts=("localhost",)).pem, "is not for all hosts of the one in force"),
            (expired(brokers.authority, "broker-1").pem, "ended at "),
            (foreign("broker-1").pem, "does not vouch for the certificate of CN=broker-1, which CN=Another authority"),
        ):
            path.write_text(content)
            wait_for(lambda words=words: words in brokers.log(), words, timeout_s=TIMEOUT_S)  # type: ignore[misc]
            assert serial(port) == before
        key = "listener.name.ssl.ssl.keystore.location"
        over = expired(brokers.authority, "broker-1").write(tmp_path / "over.pem")
        admin = AdminClient(brokers.client())
        for value, words in (
            ("/nowhere", "cannot be read"),
            (over, "for listener SSL: .* ended at .*: expected one that"),
        ):
            change = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            refused = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[change])
            with pytest.raises(confluent_kafka.KafkaException, match=f"'{value}' of {re.escape(key)}.*{words}"):
                admin.incremental_alter_configs([refused])[refused].result(TIMEOUT_S)
        renewed = brokers.authority.issue("broker-1")
        renewed.write(path)
        wait_for(lambda: serial(port) == renewed.certificate.serial_number, "the renewal", timeout_s=TIMEOUT_S)
