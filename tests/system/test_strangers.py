"""What strangers can do to a broker by connecting: many that send a byte a second, more than there may be, too many of
one address. Beside each, a client that means it is served."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.client.admin import AdminClient as OurAdmin
from holdfast.client.quotas import alter_quotas
from holdfast.testing import Cluster, free_port, wait_for
from tests.certificates import Authority
from tests.conftest import SETTINGS
from tests.system.test_clients_found import set_for_broker

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0
LOGIN_S, REQUEST_S = 6.0, 6.0
LATE_S = 1.0
"""After the deadline, for the broker to look and the client to see it."""
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "not-secret"


@dataclass
class Door:
    """A broker with a listener of each kind."""

    process: subprocess.Popen[bytes]
    ports: dict[str, int]
    authority: Authority
    log: Path

    @property
    def rss(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def client(self, listener: str) -> dict[str, Any]:
        """Settings of librdkafka."""
        of_it: dict[str, Any] = {
            "PLAINTEXT": {"security.protocol": "PLAINTEXT"},
            "TLS": {"security.protocol": "SSL", "ssl.ca.pem": self.authority.pem},
            "LOGIN": {
                "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice",
                "sasl.password": PASSWORD,
            },
        }[listener]  # fmt: skip
        return {"bootstrap.servers": f"localhost:{self.ports[listener]}", "broker.address.family": "v4", "log_level": 0,
                **of_it}  # fmt: skip

    def produce(self, listener: str, topic: str) -> None:
        """By a connection of its own, which begins now."""
        producer = confluent_kafka.Producer({**self.client(listener), "message.timeout.ms": 30_000})
        errors: list[Any] = []
        producer.produce(topic, b"here", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        assert errors == [None]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("door")
    ports = {name: free_port() for name in ("PLAINTEXT", "TLS", "LOGIN", "BROKERS")}
    authority = Authority.make()
    authority.issue("broker").write(folder / "broker.pem")
    properties = {
        "node.id": 1,
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "broker.pem",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{PASSWORD}";',
        "connections.login.timeout.ms": round(LOGIN_S * 1000),
        "socket.request.timeout.ms": round(REQUEST_S * 1000),
        "log.dirs": folder / "data",
        "metadata.log.dirs": folder / "metadata",
        "offsets.topic.replication.factor": 1,
        **SETTINGS,
    }
    path, log = folder / "broker.properties", folder / "broker.log"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    command = [sys.executable, "-m", "holdfast.cli.main", "broker", str(path)]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        running = Door(process, ports, authority, log)
        try:
            admin = AdminClient(running.client("PLAINTEXT"))

            def serves() -> bool:
                assert process.poll() is None, log.read_text()
                try:
                    return len(admin.list_topics(timeout=2).brokers) == 1
                except confluent_kafka.KafkaException:
                    return False

            wait_for(serves, "the broker", timeout_s=TIMEOUT_S)
            admin.create_topics([NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
            yield running
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT_S)


class Memory:
    """``with Memory(door) as memory``: the most that the broker had more than before."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._before = self._most = door.rss

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            self._most = max(self._most, self._door.rss)

    @property
    def more(self) -> int:
        return self._most - self._before


KINDS = [
    pytest.param("frame", "PLAINTEXT", REQUEST_S, 64 << 20, id="a-frame-of-100-MB"),
    pytest.param("tls", "TLS", LOGIN_S, 256 << 20, id="a-ClientHello"),
    pytest.param("idle", "TLS", LOGIN_S, 64 << 20, id="nothing-of-TLS"),
    pytest.param("sasl", "LOGIN", LOGIN_S, 64 << 20, id="a-SaslHandshake"),
    pytest.param("idle", "LOGIN", LOGIN_S, 64 << 20, id="nothing-of-a-login"),
    pytest.param("flood", "LOGIN", LOGIN_S, 64 << 20, id="half-a-megabyte-of-a-login"),
    pytest.param("answers", "LOGIN", LOGIN_S, 64 << 20, id="answers-that-nobody-takes"),
]


def slow(door: Door, kind: str, listener: str, deadline_s: float, most_bytes: int, count: int) -> None:
    """So many connections at once; a client that comes meanwhile is served, and the broker is as before at the end."""
    door.produce(listener, "t")
    address = f"127.0.0.1:{door.ports[listener]}"
    command = [sys.executable, "-m", "tests.system.slow_connections", kind, address, str(count), str(deadline_s + 20)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    with Memory(door) as memory, subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as crowd:
        assert crowd.stdout is not None
        assert crowd.stdout.readline() == b"open\n"
        began_s = time.monotonic()
        served = 0
        while time.monotonic() - began_s < deadline_s - 2:
            door.produce(listener, "t")
            served += 1
        told = json.loads(crowd.stdout.readline())
    print(f"{kind} at {listener}: {told}, {memory.more / 2**20:.0f} MiB more, {served} clients served")
    assert served > 0
    assert told["closed"] == count
    assert told["last_s"] <= deadline_s + LATE_S
    assert memory.more <= most_bytes
    assert door.process.poll() is None
    door.produce(listener, "t")


@pytest.mark.parametrize(("kind", "listener", "deadline_s", "most_bytes"), KINDS)
def test_a_thousand_connections_that_send_a_byte_a_second(
    door: Door, kind: str, listener: str, deadline_s: float, most_bytes: int
) -> None:
    slow(door, kind, listener, deadline_s, most_bytes, 1000)


@pytest.mark.long("a thousand of each kind")
@pytest.mark.parametrize(("kind", "listener", "deadline_s", "most_bytes"), KINDS)
def test_five_thousand_connections_that_send_a_byte_a_second(
    door: Door, kind: str, listener: str, deadline_s: float, most_bytes: int
) -> None:
    slow(door, kind, listener, deadline_s, most_bytes, 5000)


def epolls(process: int) -> list[int]:
    """Of how many descriptors each epoll of a process is told."""
    found = []
    for path in Path(f"/proc/{process}/fd").iterdir():
        try:
            if os.readlink(path) == "anon_inode:[eventpoll]":
                found.append((path.parents[1] / "fdinfo" / path.name).read_text().count("tfd:"))
        except FileNotFoundError:
            continue  # closed meanwhile
    return found


def test_strangers_have_an_epoll_of_their_own_until_they_are_known(door: Door) -> None:
    """Known clients are served before them (docs/decisions/0062)."""
    pid = door.process.pid
    wait_for(lambda: 0 in epolls(pid), "the strangers of the tests before to be gone", timeout_s=TIMEOUT_S)
    with contextlib.ExitStack() as stack:
        for listener in ("LOGIN",) * 7 + ("TLS",) * 5:
            stack.enter_context(socket.create_connection(("127.0.0.1", door.ports[listener])))
        wait_for(lambda: 12 in epolls(pid), "the strangers", timeout_s=TIMEOUT_S)
        known = AdminClient(door.client("LOGIN"))
        assert known.list_topics(timeout=TIMEOUT_S).brokers
        assert 12 in epolls(pid) and 0 not in epolls(pid), "who has logged in is none of them"
        del known
    wait_for(lambda: 0 in epolls(pid), "them to be gone", timeout_s=TIMEOUT_S)


# -- how many there may be ---------------------------------------------------------------------------------


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(brokers=3, data_dir=tmp_path, settings=SETTINGS) as running:
        yield running


def test_brokers_reach_each_other_where_clients_have_all_the_places(three: Cluster) -> None:
    three.create_topic("t", partitions=3, replication_factor=3)
    three.wait_in_sync(["t"])
    set_for_broker(three, 2, "max.connections", "60")
    opened = [socket.create_connection(three.addresses()[1], timeout=5) for _ in range(100)]
    try:
        wait_for(lambda: sum(map(is_closed, opened)) >= 40, "those beyond the limit to be closed", timeout_s=TIMEOUT_S)
        three.kill(3)

        def all_run() -> bool:  # all that can be asked: no client gets to broker 2
            os.kill(three.pid, signal.SIGUSR1)
            return len(three.live()) == 3

        wait_for(all_run, "broker 3", timeout_s=TIMEOUT_S, interval_s=0.2)

        def in_sync() -> bool:
            found = three.describe(["t"], broker=1).partitions.values()
            return all(set(each.isr) == {1, 2, 3} for each in found)

        wait_for(in_sync, "broker 3, which fetches from broker 2", timeout_s=TIMEOUT_S)
        assert sum(not is_closed(each) for each in opened) > 20, "as many as there are places"
    finally:
        for each in opened:
            each.close()


def test_a_listener_has_a_limit_of_its_own_that_changes_while_it_runs(three: Cluster) -> None:
    set_for_broker(three, 2, "listener.name.plaintext.max.connections", "20")
    three.create_topic("t", partitions=3, replication_factor=3)
    three.wait_in_sync(["t"])
    opened = [socket.create_connection(three.addresses()[1], timeout=5) for _ in range(50)]
    try:
        wait_for(lambda: sum(map(is_closed, opened)) >= 30, "those beyond the limit to be closed", timeout_s=TIMEOUT_S)
        for each in opened:
            each.close()
        set_for_broker(three, 2, "listener.name.plaintext.max.connections", None)
        opened += [socket.create_connection(three.addresses()[1], timeout=5) for _ in range(50)]
        assert not any(is_closed_soon(each, 0.05) for each in opened[-20:])
    finally:
        for each in opened:
            each.close()


def test_an_address_has_as_many_connections_as_it_may_and_not_one_more(three: Cluster) -> None:
    set_for_broker(three, 2, "max.connections.per.ip.overrides", "127.0.0.9:5, 127.0.0.10:0")
    opened: list[socket.socket] = []

    def connect(source: str) -> socket.socket:
        opened.append(socket.create_connection(three.addresses()[1], timeout=5, source_address=(source, 0)))
        return opened[-1]

    try:
        wait_for(lambda: is_closed_soon(connect("127.0.0.10")), "the limit", timeout_s=TIMEOUT_S)
        five = [connect("127.0.0.9") for _ in range(5)]
        assert is_closed_soon(connect("127.0.0.9"))
        assert not any(map(is_closed, five))
        five[2].close()
        wait_for(lambda: not is_closed_soon(connect("127.0.0.9"), 0.5), "a place", timeout_s=TIMEOUT_S)
        assert is_closed_soon(connect("127.0.0.9"))
        assert not is_closed_soon(connect("127.0.0.11"), 0.5)
    finally:
        for each in opened:
            each.close()


def test_an_address_over_its_quota_of_new_connections_is_closed_after_a_wait(three: Cluster) -> None:
    """A rate of one a second is ten at once, of the window; what is beyond waits a second and is closed (KIP-612)."""

    async def limit(rate: float | None) -> None:
        async with OurAdmin(three.bootstrap) as client:
            await alter_quotas(client, {"ip": "127.0.0.12"}, {"connection_creation_rate": rate})

    opened: list[socket.socket] = []

    def connect(number: int) -> list[socket.socket]:
        made = [
            socket.create_connection(three.addresses()[1], timeout=5, source_address=("127.0.0.12", 0))
            for _ in range(number)
        ]
        opened.extend(made)
        return made

    asyncio.run(limit(1))
    try:
        made = connect(13)
        wait_for(lambda: sum(map(is_closed, made)) == 3, "three to be closed", timeout_s=TIMEOUT_S)
        assert not any(map(is_closed, made[:10]))
        asyncio.run(limit(None))
        assert not any(is_closed_soon(each, 0.2) for each in connect(20)[-3:])
    finally:
        for each in opened:
            each.close()


def is_closed_soon(connection: socket.socket, within_s: float = 5.0) -> bool:
    connection.settimeout(within_s)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
