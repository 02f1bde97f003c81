"""The disk under a broker's log file is none of its log directories: whatever becomes of it, the broker serves."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.testing import wait_for
from holdfast.testing.disks import Disk, FrozenDisk, FullDisk
from holdfast.testing.ports import free_port

pytestmark = pytest.mark.system

TIMEOUT_S = 30.0


@pytest.fixture(params=[FrozenDisk, FullDisk], ids=["hangs", "is full"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    images = tmp_path / "images"
    images.mkdir()
    made = request.param(tmp_path / "disk" / "logs", images)
    yield made
    made.close()


def knock(port: int) -> bytes:
    """Say nonsense to the broker; what it logs about it."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        mine = connection.getsockname()[1]
        connection.sendall(b"\xff" * 8)
        assert connection.recv(1) == b""
    return b"connection of 127.0.0.1:%d closed" % mine


def all_is_told(text: bytes, said: list[bytes]) -> bool:
    """Whether each line is there, or counted: as one that the disk did not take, or as one of too many at a time. What
    counts the latter may be a line that the disk did not take, too."""
    missing = sum(line not in text for line in said)
    untold = sum(int(number) for number in re.findall(rb" (\d+) more connections were closed", text))
    return lost_lines(text) > 0 or missing <= untold


def lost_lines(text: bytes) -> int:
    """What the file says of lines that its disk did not take."""
    return sum(int(number) for number in re.findall(rb" (\d+) log lines were lost here", text))


def test_D11_a_log_file_on_a_bad_disk_stops_nobody(disk: Disk, tmp_path: Path) -> None:
    port = free_port()
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={tmp_path}/data\n")
    path = disk.path / "broker.log"
    with path.open("ab") as file:
        command = [sys.executable, "-m", "holdfast.cli.main", "broker", str(properties)]
        broker = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        wait_for(lambda: b"broker 1 serves" in path.read_bytes(), "the broker", timeout_s=TIMEOUT_S)
        servers = {"bootstrap.servers": f"127.0.0.1:{port}", "broker.address.family": "v4"}
        admin, producer = AdminClient(servers), Producer({**servers, "acks": "all"})
        disk.fail()
        told: list[object] = []
        said = []
        for number in range(5):
            said += [knock(port) for _ in range(50)]
            name = f"topic-{number}"
            admin.create_topics([NewTopic(name, 3, 1)])[name].result(timeout=TIMEOUT_S)
            producer.produce(name, b"v", on_delivery=lambda error, _: told.append(error))
            producer.flush(TIMEOUT_S)
        assert told == [None] * 5
        disk.heal()
        last: list[bytes] = []

        def is_written_again() -> bool:
            last.append(knock(port))
            return any(line in path.read_bytes() for line in last)

        wait_for(is_written_again, "lines that are written again", timeout_s=TIMEOUT_S)
        said += last
        wait_for(lambda: all_is_told(path.read_bytes(), said), "what became of each line", timeout_s=TIMEOUT_S)
        assert (lost_lines(path.read_bytes()) > 0) == isinstance(disk, FullDisk)
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(TIMEOUT_S) == 0
    finally:
        if disk.failed:
            disk.heal()
        broker.kill()
        broker.wait()
