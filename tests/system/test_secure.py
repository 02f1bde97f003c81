"""A cluster that was secured by one flag, with stock clients, and with what strangers and former users meet there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient

from holdfast.testing import Cluster, wait_for

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("--secure refuses another one")]
VALUES = [b"one", b"two", b"x" * 100_000]
TIMEOUT_S = 30
Properties = Mapping[str, str]


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    with Cluster(brokers=3, log_dirs=1, secure=True) as cluster:
        yield cluster


def command(cluster: Cluster, *arguments: str, user: str = "admin", text: str = "") -> subprocess.CompletedProcess[str]:
    """`holdfast` as a user of the cluster."""
    told = [sys.executable, "-m", "holdfast.cli.main", *arguments, "--command-config", str(cluster.data_dir / user)]
    told[-1] += ".properties"
    return subprocess.run(told, capture_output=True, text=True, timeout=60, input=text, check=False)


# -- stock clients ---------------------------------------------------------------------------------------------


def by_confluent(properties: Properties, topic: str) -> list[bytes]:
    producer = confluent_kafka.Producer({**properties, "acks": "all"})
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({**properties, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        seen: list[bytes] = []
        while len(seen) < len(VALUES):
            message = consumer.poll(TIMEOUT_S)
            assert message is not None and message.error() is None, message and message.error()
            seen.append(message.value())
        consumer.commit(asynchronous=False)
        return seen
    finally:
        consumer.close()


def pythons(properties: Properties) -> dict[str, Any]:
    """librdkafka's names as those of kafka-python."""
    found: dict[str, Any] = {
        "bootstrap_servers": properties["bootstrap.servers"].split(","),
        "security_protocol": properties["security.protocol"],
        "ssl_cafile": properties["ssl.ca.location"],
    }
    if "sasl.username" in properties:
        return found | {
            "sasl_mechanism": properties["sasl.mechanisms"],
            "sasl_plain_username": properties["sasl.username"],
            "sasl_plain_password": properties["sasl.password"],
        }
    return found | {
        "ssl_certfile": properties["ssl.certificate.location"],
        "ssl_keyfile": properties["ssl.key.location"],
    }


def by_kafka_python(properties: Properties, topic: str) -> list[bytes]:
    producer = kafka.KafkaProducer(acks="all", **pythons(properties))
    for value in VALUES:
        producer.send(topic, value, partition=0).get(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **pythons(properties)
    )
    try:
        return [next(consumer).value for _ in VALUES]
    finally:
        consumer.close()


def by_aiokafka(properties: Properties, topic: str) -> list[bytes]:
    given = pythons(properties)
    context = ssl.create_default_context(cafile=given.pop("ssl_cafile"))
    if "ssl_certfile" in given:
        context.load_cert_chain(given.pop("ssl_certfile"), given.pop("ssl_keyfile"))

    async def run() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(acks="all", ssl_context=context, **given) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value, partition=0)
        consumer = aiokafka.AIOKafkaConsumer(
            topic, group_id=topic, auto_offset_reset="earliest", ssl_context=context, **given
        )
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in VALUES]

    return asyncio.run(run())


CLIENTS = {"confluent-kafka": by_confluent, "kafka-python": by_kafka_python, "aiokafka": by_aiokafka}


@pytest.mark.parametrize("file", ["librdkafka", "librdkafka-mtls"])
@pytest.mark.parametrize("client", CLIENTS)
def test_SEC_1_stock_clients_take_the_files_as_they_are(secured: Cluster, client: str, file: str, topic: str) -> None:
    secured.create_topic(topic, replication_factor=3)
    by: Callable[[Properties, str], list[bytes]] = CLIENTS[client]
    assert by(secured.properties(file), topic) == VALUES


def test_SEC_2_commands_take_the_files_as_they_are(secured: Cluster, topic: str) -> None:
    for number, user in enumerate(("client", "client-mtls", "admin")):
        topic = f"{topic}-{number}"
        assert command(secured, "topics", "create", topic, user=user).returncode == 0
        assert command(secured, "produce", topic, user=user, text="hello\n").returncode == 0
        read = command(secured, "consume", topic, "--from-beginning", "--max-messages", "1", user=user)
        assert (read.returncode, read.stdout) == (0, "hello\n"), read.stderr
    refused = command(secured, "acls", "list", user="client")
    assert refused.returncode == 1
    assert "uthorization" in refused.stderr


def test_SEC_3_nobody_gets_in_without_a_login_or_with_a_wrong_one(secured: Cluster) -> None:
    good = secured.properties("librdkafka")
    for wrong in (
        {**good, "sasl.password": "guessed"},
        {**good, "sasl.username": "nobody"},
        {"bootstrap.servers": good["bootstrap.servers"]},
        {**good, "security.protocol": "SSL"},
        {"bootstrap.servers": secured.properties("librdkafka-mtls")["bootstrap.servers"], "security.protocol": "SSL",
         "ssl.ca.location": good["ssl.ca.location"]},
    ):  # fmt: skip
        with pytest.raises(confluent_kafka.KafkaException):
            AdminClient({**wrong, "socket.connection.setup.timeout.ms": "3000"}).list_topics(timeout=4)
    assert AdminClient(good).list_topics(timeout=TIMEOUT_S).brokers


def test_SEC_4_an_entry_that_is_removed_refuses_the_next_request_on_open_connections(
    secured: Cluster, topic: str
) -> None:
    secured.create_topic(topic, partitions=3, replication_factor=3)
    rule = ("--allow-principal", "User:alice", "--operation", "Write", "--operation", "Describe", "--topic", topic)
    assert command(secured, "acls", "add", *rule).returncode == 0
    password = secured.data_dir / "alice.txt"
    password.write_text("a password\n")
    assert command(secured, "users", "set", "alice", "--password-file", str(password)).returncode == 0
    alice = {**secured.properties("librdkafka"), "sasl.username": "alice", "sasl.password": "a password"}
    producer = confluent_kafka.Producer({**alice, "acks": "all", "linger.ms": "0", "enable.idempotence": "false"})
    outcomes: dict[int, Any] = {}

    def told(partition: int, error: Any, _: Any) -> None:
        outcomes[partition] = error

    def written() -> bool:
        """To a leader on each broker, on the connections that are open."""
        for partition in range(3):
            report = partial(told, partition)
            try:
                producer.produce(topic, b"x", partition=partition, on_delivery=report)
            except confluent_kafka.KafkaException as e:  # it has heard of it meanwhile
                report(e.args[0], None)
        assert producer.flush(TIMEOUT_S) == 0
        return all(error is None for error in outcomes.values())

    def refused() -> bool:
        written()
        return all(
            error is not None and error.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
            for error in outcomes.values()
        )

    wait_for(written, "alice to write")
    assert command(secured, "acls", "remove", *rule, "--force").returncode == 0
    wait_for(refused, "all leaders to refuse alice", timeout_s=1)


def test_SEC_5_a_user_that_is_removed_does_not_log_in_again(secured: Cluster) -> None:
    password = secured.data_dir / "bob.txt"
    password.write_text("of bob\n")
    assert command(secured, "users", "set", "bob", "--password-file", str(password)).returncode == 0
    bob = {**secured.properties("librdkafka"), "sasl.username": "bob", "sasl.password": "of bob"}

    def lets_in() -> bool:
        try:
            return bool(AdminClient(bob).list_topics(timeout=2).brokers)
        except confluent_kafka.KafkaException:
            return False

    wait_for(lets_in, "bob to log in")
    listed = json.loads(command(secured, "users", "list", "bob", "--json").stdout)
    assert listed["users"] == [{"name": "bob", "credentials": [{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]}]
    assert command(secured, "users", "remove", "bob", "--yes").returncode == 0
    wait_for(lambda: not lets_in(), "bob to be refused", timeout_s=5)


def test_SEC_6_quotas_are_set_listed_and_unset(secured: Cluster) -> None:
    both = ("--user", "carol", "--client", "c1")
    done = command(secured, "quotas", "set", *both, "producer_byte_rate=1000000", "request_percentage=12.5")
    assert (done.returncode, done.stdout) == (0, "Completed updating config for user carol.\n"), done.stderr
    line = "Quota configs for user-principal 'carol', client-id 'c1' are "
    rates = "producer_byte_rate=1000000.0, request_percentage=12.5\n"
    assert command(secured, "quotas", "list", *both).stdout == line + rates
    assert command(secured, "quotas", "unset", *both, "request_percentage").returncode == 0
    assert command(secured, "quotas", "list").stdout == f"{line}producer_byte_rate=1000000.0\n"
    again = command(secured, "quotas", "unset", *both, "request_percentage")
    assert (again.returncode, again.stderr) == (1, "holdfast quotas: request_percentage is not set there\n")


# -- the directory ---------------------------------------------------------------------------------------------


def modes(data_dir: Path) -> dict[str, int]:
    secrets = [*data_dir.glob("*.properties"), *data_dir.glob("secure/*")]
    found = {str(path.relative_to(data_dir)): stat.S_IMODE(path.stat().st_mode) for path in secrets}
    return {name: mode for name, mode in found.items() if not re.fullmatch(r"broker-\d+\.properties", name)}


def test_SEC_7_another_start_uses_what_is_there_and_leaves_what_was_changed(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with Cluster(brokers=1, log_dirs=1, data_dir=data_dir, secure=True) as cluster:
        cluster.create_topic("kept")
        assert cluster.produce("kept", [b"a"]) == 1
        before = {path.name: path.read_bytes() for path in (data_dir / "secure").iterdir()}
        assert set(modes(data_dir).values()) == {0o600}
        assert stat.S_IMODE((data_dir / "secure").stat().st_mode) == 0o700
        taken = ("--allow-principal", "User:client", "--operation", "Delete", "--topic", "*")
        assert command(cluster, "acls", "remove", *taken, "--force").returncode == 0
        rights = command(cluster, "acls", "list").stdout
    with Cluster(brokers=1, log_dirs=1, data_dir=data_dir, secure=True, port=cluster.port) as cluster:
        assert {path.name: path.read_bytes() for path in (data_dir / "secure").iterdir()} == before
        assert [record.value for record in cluster.consume("kept")[0]] == [b"a"]
        assert command(cluster, "acls", "list").stdout == rights


def test_SEC_8_a_cluster_that_was_plaintext_is_secured_with_its_records_and_stays_it(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with Cluster(brokers=2, log_dirs=1, data_dir=data_dir) as cluster:
        cluster.create_topic("kept", replication_factor=2)
        assert cluster.produce("kept", [b"a"]) == 1
    with Cluster(brokers=2, log_dirs=1, data_dir=data_dir, secure=True, port=cluster.port) as cluster:
        assert [record.value for record in cluster.consume("kept")[0]] == [b"a"]
    with Cluster(brokers=2, log_dirs=1, data_dir=data_dir, port=cluster.port) as cluster:  # without the option
        with pytest.raises(confluent_kafka.KafkaException):
            AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=2)
        good = AdminClient(cluster.properties("librdkafka"))
        assert "kept" in good.list_topics(timeout=TIMEOUT_S).topics


def up(*arguments: str, without: str | None = None) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.modules[{without!r}] = None; " if without else ""
    code += "from holdfast.cli.main import main; main(prog_name='holdfast')"
    told = [sys.executable, "-c", code, "up", "--no-console", *arguments]
    return subprocess.run(told, capture_output=True, text=True, timeout=60, check=False, env={**os.environ})


def test_SEC_9_what_cannot_be_secured_is_refused_by_name(tmp_path: Path) -> None:
    done = up("--secure", "--data-dir", str(tmp_path / "a"), "--store", "zookeeper")
    assert (done.returncode, "--store zookeeper: expected the embedded store" in done.stderr) == (1, True), done.stderr
    done = up("--secure", "--data-dir", str(tmp_path / "b"), "--set", "super.users=User:me")
    assert (done.returncode, "--set super.users: expected a key" in done.stderr) == (1, True), done.stderr
    done = up("--secure", "--data-dir", str(tmp_path / "c"), without="cryptography")
    assert (done.returncode, "pip install 'holdfast[secure]'" in done.stderr) == (1, True), done.stderr
    done = up("--secure", "--data-dir", str(tmp_path / "d"), "--host", "192.0.2.1")
    assert (done.returncode, "--host 192.0.2.1: Cannot assign" in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "d/secure").exists(), "a start that is refused makes no certificates"
