"""Logins at a real broker, by PLAIN and SCRAM, with librdkafka, kafka-python, and by hand where clients never go."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kafka
import kafka.errors
import pytest
from confluent_kafka import Producer

from holdfast.protocol.framing import encode_request_raw
from holdfast.protocol.sasl_codec import (
    AUTHENTICATE,
    HANDSHAKE,
    decode_authenticate,
    decode_handshake,
    encode_authenticate,
    encode_handshake,
)
from holdfast.testing import wait_for
from holdfast.testing.ports import free_port
from tests.system.test_metrics import logins, page_at

pytestmark = pytest.mark.system
START_S = 60.0
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
REAUTH_MS = 4000


@dataclass
class Running:
    """A broker that takes logins on one port."""

    port: int
    process: subprocess.Popen[str]
    log: Path
    metrics_port: int

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self, mechanism: str, user: str, password: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
            "sasl.username": user, "sasl.password": password,
        }  # fmt: skip

    def counted(self) -> list[int]:
        return logins(page_at(self.metrics_port), "CLIENTS")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder, port, metrics_port = tmp_path_factory.mktemp("logins"), free_port(), free_port()
    properties, log = folder / "server.properties", folder / "broker.log"
    properties.write_text(
        "\n".join(
            (
                "node.id=1",
                f"metrics.port={metrics_port}",
                f"listeners=CLIENTS://127.0.0.1:{port},BROKERS://127.0.0.1:0",
                "listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
                "inter.broker.listener.name=BROKERS",
                "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                f'listener.name.clients.plain.sasl.jaas.config={PLAIN_MODULE} required user_alice="secret";',
                *(
                    f"listener.name.clients.scram-sha-{bits}.sasl.jaas.config={SCRAM_MODULE} required "
                    f'username="bob" password="hidden";'
                    for bits in (256, 512)
                ),
                f"connections.max.reauth.ms={REAUTH_MS}",
                f"log.dirs={folder}/data",
                f"metadata.log.dir={folder}/metadata",
                "offsets.topic.replication.factor=1",
                "default.replication.factor=1",
                "min.insync.replicas=1",
                f"log.file={log}",
            )
        )
    )
    command = [sys.executable, "-m", "holdfast.cli.main", "broker", str(properties)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            wait_until_it_serves(process, log)
            yield Running(port, process, log, metrics_port)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_S)


def wait_until_it_serves(process: subprocess.Popen[str], log: Path) -> None:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and process.poll() is None:
        if log.exists() and "broker.started" in log.read_text():
            return
        time.sleep(0.05)
    raise AssertionError(f"the broker has not started: {log.read_text() if log.exists() else 'no log'}")


LOGINS = [("PLAIN", "alice", "secret"), ("SCRAM-SHA-256", "bob", "hidden"), ("SCRAM-SHA-512", "bob", "hidden")]


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
def test_librdkafka_logs_in_and_renews_its_login_while_it_writes(
    broker: Running, topic: str, mechanism: str, user: str, password: str
) -> None:
    errors: list[object] = []
    delivered = 0

    def told(error: object, message: object) -> None:
        nonlocal delivered
        delivered += error is None
        if error is not None:
            errors.append(error)

    before = broker.counted()
    producer = Producer({**broker.client(mechanism, user, password), "error_cb": errors.append})
    until_s = time.monotonic() + 1.5 * REAUTH_MS / 1000
    while time.monotonic() < until_s:
        producer.produce(topic, b"x", on_delivery=told)
        producer.poll(0.02)
    producer.flush(30)
    assert not errors
    assert delivered > 50
    wait_for(lambda: broker.counted()[2] > before[2], "a login that was renewed to be counted")
    assert broker.counted()[3] == before[3]


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
def test_kafka_python_logs_in(broker: Running, topic: str, mechanism: str, user: str, password: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism,
        sasl_plain_username=user, sasl_plain_password=password,
    )  # fmt: skip
    assert producer.send(topic, b"x").get(30).offset == 0
    producer.close()


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [(mechanism, user, "wrong") for mechanism, user, _ in LOGINS] + [("SCRAM-SHA-512", "carol", "hidden")],
)
def test_a_wrong_password_is_told_and_nothing_else(broker: Running, mechanism: str, user: str, password: str) -> None:
    told: list[str] = []
    settings = broker.client(mechanism, user, password)
    producer = Producer({**settings, "error_cb": lambda e: told.append(str(e)), "reconnect.backoff.ms": "200"})
    until_s = time.monotonic() + 20
    while not told and time.monotonic() < until_s:
        producer.poll(0.1)
    assert any(f"invalid credentials with SASL mechanism {mechanism}" in each for each in told)
    assert not any("unknown" in each for each in told)


# -- by hand ---------------------------------------------------------------------------------------------------------


class Wire:
    """A socket, frame by frame."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=10)

    def send(self, frame: bytes) -> None:
        self.sock.sendall(frame)

    def read(self) -> bytes:
        """A frame without its size; empty: the connection is closed."""
        size = self._exactly(4)
        return self._exactly(int.from_bytes(size, "big")) if size else b""

    def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            try:
                more = self.sock.recv(size - len(got))
            except ConnectionError:
                more = b""
            if not more:
                assert not got, "half a frame"
                return b""
            got += more
        return got

    def handshake(self, mechanism: str, version: int = 1) -> tuple[int, tuple[str, ...]]:
        self.send(encode_request_raw(HANDSHAKE, version, 1, "t", encode_handshake(mechanism)))
        return decode_handshake(memoryview(self.read())[4:])

    def token(self, token: bytes) -> tuple[int, str | None, bytes, int]:
        self.send(encode_request_raw(AUTHENTICATE, 2, 2, "t", encode_authenticate(2, token)))
        code, message, data, lifetime_ms = decode_authenticate(2, memoryview(self.read())[5:])
        return code, message, data, lifetime_ms

    def is_closed(self) -> bool:
        return self.read() == b""


@pytest.fixture
def wire(broker: Running) -> Iterator[Wire]:
    made = Wire(broker.port)
    yield made
    made.sock.close()


METADATA = encode_request_raw(3, 1, 7, "t", struct.pack(">i", -1))


def test_CVE_2022_34917_nothing_else_is_read_before_a_login(wire: Wire) -> None:
    wire.send(METADATA)
    assert wire.is_closed()


def test_a_mechanism_that_is_not_there_is_told_with_those_that_are(wire: Wire) -> None:
    assert wire.handshake("GSSAPI") == (33, ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"))
    assert wire.is_closed()


def test_a_token_without_a_mechanism_closes(wire: Wire) -> None:
    wire.send(encode_request_raw(AUTHENTICATE, 2, 2, "t", encode_authenticate(2, b"\0alice\0secret")))
    assert wire.is_closed()


def test_another_request_in_the_middle_of_a_login_closes(wire: Wire) -> None:
    wire.handshake("PLAIN")
    wire.send(METADATA)
    assert wire.is_closed()


def test_a_login_tells_how_long_it_counts_and_requests_are_taken(wire: Wire) -> None:
    assert wire.handshake("PLAIN")[0] == 0
    assert wire.token(b"\0alice\0secret") == (0, None, b"", REAUTH_MS)
    wire.send(METADATA)
    assert wire.read()


def test_logins_are_counted_by_listener(broker: Running, wire: Wire) -> None:
    succeeded, failed, renewed, not_renewed = broker.counted()
    wire.handshake("PLAIN")
    wire.token(b"\0alice\0secret")
    assert wire.handshake("PLAIN")[0] == 34, "so soon after the last one: Kafka's ILLEGAL_SASL_STATE"
    assert wire.is_closed()
    other = Wire(broker.port)
    other.handshake("PLAIN")
    other.token(b"\0alice\0wrong")
    other.sock.close()
    third = Wire(broker.port)
    third.send(METADATA)
    assert third.is_closed()
    fourth = Wire(broker.port)
    fourth.handshake("PLAIN")
    fourth.token(b"\0alice\0secret")
    fourth.send(encode_request_raw(HANDSHAKE, 0, 1, "t", encode_handshake("PLAIN")))
    assert fourth.is_closed(), "a login is not renewed by tokens without a header"
    wanted = [succeeded + 2, failed + 2, renewed, not_renewed + 2]
    wait_for(lambda: broker.counted() == wanted, f"{wanted} to be counted: a page serves for a second")


def test_what_comes_right_behind_a_refused_token_is_not_taken(wire: Wire) -> None:
    wire.handshake("PLAIN")
    refused = encode_request_raw(AUTHENTICATE, 2, 2, "t", encode_authenticate(2, b"\0alice\0wrong"))
    wire.send(refused + METADATA)
    code, message, *_ = decode_authenticate(2, memoryview(wire.read())[5:])
    assert (code, message) == (
        58, "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN",
    )  # fmt: skip
    assert wire.is_closed()


def test_a_login_that_has_ended_is_good_for_nothing_but_another_one(broker: Running, wire: Wire) -> None:
    wire.handshake("PLAIN")
    wire.token(b"\0alice\0secret")
    began_s = time.monotonic()
    while True:  # asked all the time, so that not the connection's idleness is what ends it
        wire.send(METADATA)
        if not wire.read():
            break
        time.sleep(0.05)
        assert time.monotonic() - began_s < 3 * REAUTH_MS / 1000
    assert time.monotonic() - began_s > 0.9 * REAUTH_MS / 1000


def test_tokens_without_a_header_after_the_first_version_of_the_handshake(wire: Wire) -> None:
    assert wire.handshake("PLAIN", version=0)[0] == 0
    token = b"\0alice\0secret"
    wire.send(struct.pack(">i", len(token)) + token)
    assert wire._exactly(4) == struct.pack(">i", 0)
    wire.send(METADATA)
    assert wire.read()


def test_a_refused_token_without_a_header_just_closes(wire: Wire) -> None:
    wire.handshake("PLAIN", version=0)
    wire.send(struct.pack(">i", 3) + b"\0a\0")
    assert wire.is_closed()
