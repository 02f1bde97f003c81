"""Logins by tokens at a real broker, with librdkafka, kafka-python and aiokafka: signed ones, and ones of nobody."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Producer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

from holdfast.model.config_bearer_keys import SIGNED_HANDLERS
from holdfast.protocol.framing import encode_request_raw
from holdfast.protocol.sasl_codec import (
    AUTHENTICATE,
    HANDSHAKE,
    decode_authenticate,
    encode_authenticate,
    encode_handshake,
)
from holdfast.testing import free_port, wait_for
from tests.token_signing import Signer, unsecured

pytestmark = pytest.mark.system
START_S = 60.0
REAUTH_MS = 4000
Tokens = Callable[[], str]


@dataclass
class Running:
    """A broker that takes signed tokens on one port and unsigned ones on another."""

    signed: int
    unsigned: int
    signer: Signer

    def claims(self, **more: Any) -> dict[str, Any]:
        now_s = int(time.time())
        return {"sub": "alice", "aud": "kafka", "iat": now_s, "exp": now_s + 600, **more}

    def kind(self, name: str) -> tuple[int, Tokens]:
        """Its port, and what makes tokens for it."""
        if name == "signed":
            return self.signed, lambda: self.signer.token(self.claims())
        return self.unsigned, lambda: unsecured(self.claims())


@contextmanager
def brokers(folder: Path, *each: Sequence[str]) -> Iterator[None]:
    """Brokers 1 and so on of one cluster, with these lines in their files beside those that all have."""
    processes = []
    try:
        for number, lines in enumerate(each, 1):
            properties, log = folder / f"{number}.properties", folder / f"{number}.log"
            common = (
                f"node.id={number}",
                "inter.broker.listener.name=BROKERS",
                f"log.dirs={folder}/data-{number}",
                f"metadata.log.dir={folder}/metadata",
                "offsets.topic.replication.factor=1",
                f"default.replication.factor={len(each)}",
                f"min.insync.replicas={len(each)}",
                f"log.file={log}",
            )
            properties.write_text("\n".join((*common, *lines)))
            command = [sys.executable, "-m", "holdfast.cli.main", "broker", str(properties)]
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for number, process in enumerate(processes, 1):
            wait_for_start(process, folder / f"{number}.log")
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(START_S)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("tokens")
    signer = Signer.rsa()
    (folder / "jwks.json").write_bytes(signer.jwks)
    url, port = (folder / "jwks.json").as_uri(), free_port(3)
    lines = (
        f"listeners=SIGNED://127.0.0.1:{port},UNSIGNED://127.0.0.1:{port + 1},BROKERS://127.0.0.1:{port + 2}",
        "listener.security.protocol.map=SIGNED:SASL_PLAINTEXT,UNSIGNED:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
        "sasl.enabled.mechanisms=OAUTHBEARER",
        f"listener.name.signed.oauthbearer.sasl.server.callback.handler.class={SIGNED_HANDLERS[0]}",
        f"listener.name.signed.sasl.oauthbearer.jwks.endpoint.url={url}",
        "listener.name.signed.sasl.oauthbearer.expected.audience=kafka",
        f"listener.name.signed.oauthbearer.connections.max.reauth.ms={REAUTH_MS}",
        f"sasl.oauthbearer.allowed.urls={url}",
    )
    with brokers(folder, lines):
        yield Running(port, port + 1, signer)


def wait_for_start(process: subprocess.Popen[bytes], log: Path) -> None:
    def is_over() -> bool:
        return process.poll() is not None or (log.exists() and "broker.started" in log.read_text())

    wait_for(is_over, "start of the broker", timeout_s=START_S)
    assert process.poll() is None, log.read_text() if log.exists() else "no log"


KINDS = pytest.mark.parametrize("kind", ["signed", "unsigned"])


def librdkafka(port: int, tokens: Tokens, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (tokens(), time.time() + 600),
        **more,
    }


@KINDS
def test_librdkafka_logs_in_with_a_token(broker: Running, kind: str) -> None:
    told: list[object] = []
    producer = Producer(librdkafka(*broker.kind(kind), error_cb=told.append))
    producer.produce(f"librdkafka-{kind}", b"x", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(30) == 0
    assert told == [None]


def test_librdkafkas_own_unsecured_token_is_taken_where_tokens_are_nobodys(broker: Running) -> None:
    told: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.unsigned}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=bob scope=a,b lifeSeconds=60",
            "error_cb": told.append,
        }
    )
    producer.produce("librdkafka-own", b"x", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(30) == 0
    assert told == [None]


@KINDS
def test_kafka_python_logs_in_with_a_token(broker: Running, kind: str) -> None:
    port, tokens = broker.kind(kind)

    class Provider(KafkaPythonTokens):  # type: ignore[misc]
        def token(self) -> str:
            return tokens()

    producer = kafka.KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{port}", security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )  # fmt: skip
    assert producer.send(f"kafka-python-{kind}", b"x").get(30).offset == 0
    producer.close()


@KINDS
def test_aiokafka_logs_in_with_a_token(broker: Running, kind: str) -> None:
    port, tokens = broker.kind(kind)

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return tokens()

    async def write() -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=f"127.0.0.1:{port}", security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        )  # fmt: skip
        await producer.start()
        try:
            return int((await producer.send_and_wait(f"aiokafka-{kind}", b"x")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(write()) == 0


def test_a_token_that_is_not_enough_is_told_as_such(broker: Running) -> None:
    port, _ = broker.kind("signed")
    bad: dict[str, Tokens] = {
        "of nobody": lambda: unsecured(broker.claims()),
        "of another": lambda: Signer.ec("k1").token(broker.claims()),
        "for others": lambda: broker.signer.token(broker.claims(aud="others")),
        "ended": lambda: broker.signer.token(broker.claims(iat=1, exp=2)),
    }
    for what, tokens in bad.items():
        told: list[str] = []
        producer = Producer(librdkafka(port, tokens, error_cb=lambda error, told=told: told.append(str(error))))
        producer.produce("never", b"x")

        def is_told(producer: Producer = producer, told: list[str] = told) -> bool:
            producer.poll(0.02)
            return any('SASL authentication error: {"status":"invalid_token"}' in each for each in told)

        wait_for(is_told, f"the refusal of a token {what}")
        producer.purge()


def test_librdkafka_renews_its_login_while_it_writes(broker: Running) -> None:
    """On its connection, and nobody who writes notices (KIP-368)."""
    told: list[object] = []
    delivered = 0

    def arrived(error: object, _: object) -> None:
        nonlocal delivered
        delivered += error is None
        if error is not None:
            told.append(error)

    producer = Producer(librdkafka(*broker.kind("signed"), error_cb=told.append))
    until_s = time.monotonic() + 2.2 * REAUTH_MS / 1000
    while time.monotonic() < until_s:
        producer.produce("sessions", b"x", on_delivery=arrived)
        producer.poll(0.05)
    assert producer.flush(30) == 0
    assert told == []
    assert delivered > 50


def login(port: int, token: str) -> tuple[int, int]:
    """The error's code, and for how many milliseconds the login counts."""

    def answer(request: bytes) -> memoryview:
        sock.sendall(request)
        size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
        return memoryview(sock.recv(size, socket.MSG_WAITALL))

    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        answer(encode_request_raw(HANDSHAKE, 1, 1, "t", encode_handshake("OAUTHBEARER")))
        said = encode_authenticate(2, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        found = decode_authenticate(2, answer(encode_request_raw(AUTHENTICATE, 2, 2, "t", said))[5:])
        return found.error_code, found.lifetime_ms


@pytest.mark.parametrize(("lifetime_s", "most_ms"), [(2.5, 2500), (600, REAUTH_MS)])
def test_a_login_counts_as_long_as_its_token_and_no_longer_than_the_listener_has_it(
    broker: Running, lifetime_s: float, most_ms: int
) -> None:
    code, lifetime_ms = login(broker.signed, broker.signer.token(broker.claims(exp=time.time() + lifetime_s)))
    assert code == 0
    assert most_ms - 2000 < lifetime_ms <= most_ms


def test_a_token_counts_to_its_end_where_nothing_else_ends_a_login(broker: Running) -> None:
    code, lifetime_ms = login(broker.unsigned, unsecured(broker.claims(exp=time.time() + 600)))
    assert code == 0
    assert 590_000 < lifetime_ms <= 600_000


def test_brokers_log_in_at_each_other_with_tokens_and_replicate(tmp_path: Path) -> None:
    port = free_port(4)
    line = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker" unsecuredLoginStringClaim_scope="brokers" '
        'unsecuredValidatorRequiredScope="brokers";'
    )
    lines = [
        (
            f"listeners=CLIENTS://127.0.0.1:{port + number},BROKERS://127.0.0.1:{port + 2 + number}",
            "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms=OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol=OAUTHBEARER",
            f"listener.name.brokers.oauthbearer.sasl.jaas.config={line}",
            f"connections.max.reauth.ms={REAUTH_MS}",
        )
        for number in range(2)
    ]
    with brokers(tmp_path, *lines):
        told: list[object] = []
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port},127.0.0.1:{port + 1}", "acks": "all"})
        until_s = time.monotonic() + 1.5 * REAUTH_MS / 1000  # their logins are renewed meanwhile
        while time.monotonic() < until_s:
            producer.produce("replicated", b"x", on_delivery=lambda error, _: told.append(error))
            producer.poll(0.05)
        assert producer.flush(60) == 0
        assert len(told) > 50 and not any(told)
        for number in (1, 2):
            assert "Failed authentication" not in (tmp_path / f"{number}.log").read_text()
