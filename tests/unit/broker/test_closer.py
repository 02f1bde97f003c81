"""The process that closes what a killed broker held: order, window, notes, and its own end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker import closer_process
from holdfast.broker.closer import Closer
from holdfast.broker.closer_process import (
    FROM_BROKER,
    FROM_CONTROLLER,
    KILLED_ALERT,
    SASL_HANDSHAKE,
    answer_to,
    read_notes,
)
from holdfast.broker.listening import PortTakenError, listen, nobody_is_there, when_free
from holdfast.client.connection import BrokerConnection
from holdfast.client.errors import BrokerUnreachable, ConnectionLost
from holdfast.client.outgoing import INTER_BROKER_MECHANISM, Outgoing
from holdfast.client.sasl_options import JAAS
from holdfast.model.errors import ConfigError, NetworkError
from holdfast.model.listeners import Endpoint, SecurityProtocol
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.framing import encode_request_raw
from holdfast.testing import wait_for
from tests.unit.broker.conftest import until

CONNECTIONS = 20
WINDOW_S, HOLD_S = 3.0, 1.0
"""Longer than a broker's: this process may be kept waiting."""
PROCESS = f"""
import asyncio, os, resource, socket, sys
from holdfast.broker import closer_process
from holdfast.broker.closer import Closer
from holdfast.broker.listening import listen
from holdfast.storage.files import OsFiles
closer_process.WINDOW_S, closer_process.HOLD_S = {WINDOW_S}, {HOLD_S}
closer = Closer.start()
locks = [OsFiles(closer).lock(path) for path in sys.argv[2:]]
sock = listen("127.0.0.1", 0)
sock.setblocking(True)
print(sock.getsockname()[1], closer.pid, flush=True)
kept = [sock.accept()[0] for _ in range(int(sys.argv[1]))]
limit = len(os.listdir("/proc/self/fd")) + 20
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
try:
    while True:
        kept.append(open(os.devnull))
except OSError:
    print("accepted, and the table is full", flush=True)
if sys.stdin.readline():
    kept.clear()
    closer.end()
    print("ended", flush=True)
"""


class Broker:
    """A process with a closer, a port, connections and locks, and not a descriptor left."""

    def __init__(self, *locks: Path, connections: int = CONNECTIONS) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(connections), *map(str, locks)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = ("127.0.0.1", 0)
        port, closer = map(int, self.line().split())
        self.address, self.closer = ("127.0.0.1", port), closer
        self.clients = [socket.create_connection(self.address, timeout=10) for _ in range(connections)]
        assert self.line() == "accepted, and the table is full\n"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        for client in self.clients:
            client.close()
        for pid in (self.process.pid, self.closer):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / ".lock", tmp_path / "lock")
    yield made
    made.end()


def is_free(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def refuses(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=10).close()
    except ConnectionRefusedError:
        return True
    return False


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_connections_end_first_and_the_port_takes_what_comes_before_it_refuses(broker: Broker, tmp_path: Path) -> None:
    broker.kill()
    for client in broker.clients:
        assert client.recv(1) == b"", "the connection ends"
    began = time.monotonic()
    again = socket.create_connection(broker.address, timeout=10)
    again.sendall(encode_request_raw(int(ApiKey.API_VERSIONS), 3, 1, "rdkafka", b"\x01\x01\0"))
    with again:
        assert again.recv(1) == b""
        assert time.monotonic() - began > HOLD_S / 2, "it is kept, so that the client makes another connection"
    wait_for(lambda: refuses(broker.address), "the port to refuse", timeout_s=10)
    assert time.monotonic() - began > WINDOW_S / 2
    assert is_free(tmp_path / ".lock")
    assert is_free(tmp_path / "lock")
    wait_for(lambda: gone(broker.closer), "the closer to end", timeout_s=10)


def test_the_port_of_a_killed_broker_says_so_to_a_controller_and_sends_other_brokers_away_at_once(
    broker: Broker,
) -> None:
    async def ask(client_id: str, api: ApiKey) -> bool:
        connection = BrokerConnection(*broker.address, client_id)
        try:
            await connection.open(10)
            return nobody_is_there(await connection.request_raw(int(api), 0, b"", timeout_s=10))
        finally:
            connection.close()

    async def all_ask() -> None:
        assert await ask("controller-probe", ApiKey.API_VERSIONS)
        assert await ask("controller-to-broker-3", ApiKey.API_VERSIONS)
        with pytest.raises(ConnectionLost):
            await ask("broker-2-to-controller", ApiKey.METADATA)

    broker.kill()
    assert broker.clients[0].recv(1) == b""
    asyncio.run(all_ask())


@pytest.mark.parametrize("protocol", [SecurityProtocol.SSL, SecurityProtocol.SASL_PLAINTEXT])
def test_the_port_of_a_killed_broker_says_so_where_tls_or_a_login_is_asked_for(
    broker: Broker, protocol: SecurityProtocol
) -> None:
    host, port = broker.address
    outgoing = Outgoing(
        {
            INTER_BROKER_MECHANISM: "PLAIN",
            f"listener.name.x.plain.{JAAS}": 'PlainLoginModule required username="a" password="b";',
        }
    )

    async def open_it(client_id: str) -> NetworkError:
        connection = outgoing.connection(
            Endpoint(name="X", host=host, port=port, security_protocol=protocol), client_id
        )
        with pytest.raises(NetworkError) as raised:
            await connection.open(10)
        return raised.value

    async def all_ask() -> None:
        told = await open_it("controller-to-broker-3")
        assert isinstance(told, BrokerUnreachable) and told.refused and "its broker was killed" in str(told)
        began = time.monotonic()
        other = await open_it("broker-2-fetcher")
        assert time.monotonic() - began < HOLD_S
        assert not getattr(other, "refused", False)

    broker.kill()
    assert broker.clients[0].recv(1) == b""
    asyncio.run(all_ask())


def test_what_is_answered_in_the_window() -> None:
    def first(api: int, version: int, client_id: str | None, body: bytes = b"") -> bytes | None:
        return answer_to(encode_request_raw(api, version, 77, client_id, body))

    versions = int(ApiKey.API_VERSIONS)
    assert first(versions, 0, "controller-probe") == struct.pack(">iihi", 10, 77, 8, 0)
    assert first(versions, 3, "controller-probe", b"\x01\x01\0") is None, "not one of ours: it is a client's name"
    assert first(versions, 0, None) is None
    assert first(int(ApiKey.METADATA), 0, "controller-probe") == b""
    assert first(SASL_HANDSHAKE, 1, "controller-probe") == struct.pack(">iihi", 10, 77, 8, 0)
    assert first(SASL_HANDSHAKE, 1, "broker-2-fetcher") == first(SASL_HANDSHAKE, 0, "controller-probe") == b""
    hello = b"\x16\x03\x01\x02\0\x01"
    assert answer_to(hello + FROM_CONTROLLER) == KILLED_ALERT
    assert answer_to(hello + FROM_BROKER) == b"" and answer_to(hello) is None, "a client's is kept, as without TLS"
    assert answer_to(b"GET / HTTP/1.1\r\n") == answer_to(b"\0") == answer_to(b"") == b""


def test_a_closer_ignores_what_ends_a_broker_and_news_that_are_none(broker: Broker) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(broker.closer, number)
    stat = Path(f"/proc/{broker.closer}/stat")
    wait_for(lambda: "(holdfast-closer)" in stat.read_text(), "its name")
    broker.clients[0].settimeout(0.2)
    with pytest.raises(TimeoutError):
        broker.clients[0].recv(1)
    assert not gone(broker.closer)
    assert os.getpgid(broker.closer) == broker.closer, "a signal to the broker's group is not for it"
    broker.kill()
    broker.clients[0].settimeout(10)
    assert broker.clients[0].recv(1) == b""


def test_a_broker_that_ends_in_good_order_leaves_no_closer(broker: Broker) -> None:
    assert broker.process.stdin is not None
    broker.process.stdin.write("end\n")
    broker.process.stdin.flush()
    assert broker.line() == "ended\n"
    assert gone(broker.closer)
    assert broker.process.wait(10) == 0


def test_a_broker_whose_closer_was_killed_says_so_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    script = "import os, sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as stands_in:

        async def watched() -> None:
            closer = Closer(stands_in.pid, os.memfd_create("notes"), ())
            closer.watch(asyncio.get_running_loop())
            os.kill(stands_in.pid, signal.SIGKILL)
            await until(lambda: caplog.records)
            closer.end()

        with caplog.at_level(logging.WARNING):
            asyncio.run(watched())
    assert [f"process {stands_in.pid}, has ended (signal 9)" in record.message for record in caplog.records] == [True]


class Thread:
    def __init__(self, name: str, number: int | None) -> None:
        self.name, self.thread_id = name, number


def test_the_notes_say_which_lock_a_thread_keeps(tmp_path: Path) -> None:
    notes = os.memfd_create("notes")
    closer = Closer(0, notes, ())
    assert read_notes(notes) == {}
    first, second, metadata = Thread("disk-1", 11), Thread("disk-2", 22), Thread("metadata", 33)
    for thread in (first, second, metadata, Thread("disk-1-old", None)):
        closer.thread_made(thread)
    closer.works_on("/d/1", (first, object()))
    closer.lock_taken(7, "/d/1/.lock")
    closer.lock_taken(8, "/d/2/.lock")
    closer.lock_given_back(8)
    expected = {"locks": {"7": "/d/1/.lock"}, "directory": {"11": "/d/1"}, "undecided": ["22"]}
    assert read_notes(notes) == expected
    second.thread_id = first.thread_id = None
    closer.lock_taken(9, "/m/lock")
    assert read_notes(notes) == {
        "locks": {"7": "/d/1/.lock", "9": "/m/lock"}, "directory": {}, "undecided": [],
    }  # fmt: skip
    other_slot = 3 - os.pread(notes, 1, 0)[0]
    os.pwrite(notes, b"\xff" * 64, other_slot * closer_process.SLOT_BYTES)
    assert len(read_notes(notes)["locks"]) == 2, "a half written slot is not the one that counts"
    os.close(notes)


@pytest.mark.parametrize(
    ("running", "kept"),
    [
        ([], set()),
        (["11"], {"/d/1/.lock"}),
        (["22"], {"/d/2/.lock"}),
        (["33"], set()),
        (["11", "33"], {"/d/1/.lock"}),
        (["44"], {"/d/1/.lock", "/d/2/.lock"}),
        (["66"], set()),
    ],
)
def test_a_lock_is_given_back_when_no_thread_is_left_for_it(
    tmp_path: Path, running: list[str], kept: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has said yet what thread 44 works on: it may write anywhere. 66 is none of those that touch disks."""
    notes = os.memfd_create("notes")
    closer = Closer(0, notes, ())
    first, second, metadata = Thread("disk-1", 11), Thread("disk-2", 22), Thread("metadata", 33)
    for thread in (first, second, metadata, Thread("disk-3", 44)):
        closer.thread_made(thread)
    closer.works_on("/d/1", (first,))
    closer.works_on("/d/2", (second,))
    handles = {}
    for name in ("/d/1/.lock", "/d/2/.lock", "/m/lock"):
        handles[name] = os.open(tmp_path / name.replace("/", "-"), os.O_RDWR | os.O_CREAT)
        fcntl.flock(handles[name], fcntl.LOCK_EX)
        closer.lock_taken(handles[name], name)
    tasks = tmp_path / "task"
    tasks.mkdir()
    for thread_id in (*running, "55"):
        (tasks / thread_id).mkdir()
        state = "Z" if thread_id == "55" else "D"
        (tasks / thread_id / "stat").write_text(f"{thread_id} (x) y) {state} 1 1")
    descriptor = os.open(tasks, os.O_RDONLY)
    remains = closer_process.Remains(descriptor, notes)
    remains.give_back()
    assert {name for name in handles if not is_free(tmp_path / name.replace("/", "-"))} == kept
    assert set(remains.locks.values()) == kept
    for one in (notes, descriptor, *handles.values()):
        os.close(one)


def test_a_port_that_is_taken_is_waited_for_a_moment() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        taken = listen("127.0.0.1", 0)
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port)
        loop.call_later(0.05, taken.close)
        mine: list[Any] = []

        def bind() -> int:
            mine.append(listen("127.0.0.1", port))
            return port

        assert await when_free(bind) == port
        mine[0].close()

    asyncio.run(scenario())


def test_an_address_that_cannot_be_had_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 203\.0\.113\.1:0"):
        listen("203.0.113.1", 0)
