"""Hosts of a test: each fault does what it says, and no more. Every one is measured by sockets, not by what was set."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing import Host, Hosts, mounts, wait_for
from holdfast.testing.disks import FullDisk
from holdfast.testing.processes import lives

pytestmark = pytest.mark.system

PORT = 7007
SILENCE_S = 1.5
ECHO = f"""
import socket, threading
def serve(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()
listener = socket.create_server(("0.0.0.0", {PORT}))
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Hosts]:
    with Hosts(3) as running:
        yield running


@pytest.fixture
def hosts(shared: Hosts) -> Iterator[Hosts]:
    """All three on, with nothing wrong about their network and nothing that runs in them."""
    yield shared
    shared.heal()
    for host in shared:
        shared.delay(host.number, 0)
        shared.power_off(host.number)
        shared.power_on(host.number)


def python(host: Host, script: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A process of the host that has printed a line."""
    process = host.run([sys.executable, "-S", "-E", "-c", script, *arguments], output=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def dialled(source: Host | None, target: Host, *, timeout_s: float = 3.0) -> socket.socket:
    """A connection to the echo of ``target``; None is the process of this test."""

    def dial() -> socket.socket:
        return socket.create_connection((target.address, PORT), timeout_s)

    return dial() if source is None else source.call(dial)


def echoed(connection: socket.socket, data: bytes = b"x") -> float:
    """Seconds until it is back."""
    begun_s = time.monotonic()
    connection.sendall(data)
    left = len(data)
    while left:
        left -= len(connection.recv(left))
    return time.monotonic() - begun_s


def is_silent(connection: socket.socket, seconds: float = SILENCE_S) -> bool:
    """Neither data nor an end nor an error."""
    return not select.select([connection], [], [], seconds)[0]


def datagrams(source: Host, target: Host, count: int = 3) -> int:
    """How many of those that are sent arrive within half a second."""
    with (
        target.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as receiver,
        source.call(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender,
    ):
        receiver.bind((target.address, 0))
        for number in range(count):
            sender.sendto(b"%d" % number, receiver.getsockname())
        found = 0
        receiver.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while found < count:
                receiver.recv(100)
                found += 1
        return found


def test_a_host_has_a_name_an_address_and_disks_of_its_own(hosts: Hosts) -> None:
    says = "hostname; ls /srv; cat /srv/disk-1/mine; ls {0}; ls /proc | grep -c '^[0-9]'; grep -c eth0 /proc/net/dev"
    for host in hosts:
        (host.root / "disk-1" / "mine").write_text(f"of {host.number}\n")
    for host, other in zip(hosts, [hosts[2], hosts[3], hosts[1]], strict=True):
        process = host.run(["sh", "-c", says.format(other.root)], output=subprocess.PIPE)
        lines = process.communicate(timeout=60)[0].decode().splitlines()
        assert lines[:5] == [host.name, "disk-1", "disk-2", "system", f"of {host.number}"]
        assert len(lines) == 7, "the other host's directory is empty"
        assert int(lines[5]) < 10 and lines[6] == "1"
        assert os.stat(host.root / "disk-1").st_dev != os.stat(other.root / "disk-1").st_dev
    python(hosts[1], ECHO)
    for source in (None, hosts[1], hosts[2], hosts[3]):
        with dialled(source, hosts[1]) as connection:
            assert echoed(connection) < 1
    ask = [sys.executable, "-S", "-E", "-c", "import socket; print(socket.gethostbyname('host-1'))"]
    process = hosts[2].run(ask, output=subprocess.PIPE)
    assert process.communicate(timeout=60)[0].decode().strip() == hosts[1].address


def test_a_power_cut_is_silent_and_ends_everything(hosts: Hosts) -> None:
    """Neither FIN nor RST of its connections; a new one is not refused; what it ran is gone, daemons included. With the
    power back it is another machine with the same address: it refuses, and resets what it does not know."""
    python(hosts[1], ECHO)
    hardy = "trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM HUP INT; (sleep 1000 &) ; sleep 1000'"
    hosts[1].run(["sh", "-c", hardy])
    wait_for(lambda: len(list(hosts[1].processes())) >= 5, "the processes")
    connections = [dialled(None, hosts[1]), dialled(hosts[2], hosts[1])]
    for connection in connections:
        echoed(connection)
    running = list(hosts[1].processes())
    hosts.power_off(1)
    assert not any(map(lives, running))
    for connection in connections:
        connection.sendall(b"is anybody there?")
    assert is_silent(connections[0]) and is_silent(connections[1], 0.1)
    for source in (None, hosts[2]):
        with pytest.raises(TimeoutError):
            dialled(source, hosts[1], timeout_s=0.7)
    with pytest.raises(ConnectionError, match="host-1 has no power"):
        hosts[1].run(["true"])
    hosts.power_on(1)
    assert list(hosts[1].processes()) == []
    with pytest.raises(ConnectionRefusedError):
        dialled(hosts[2], hosts[1])
    for connection in connections:
        with pytest.raises(ConnectionResetError):
            connection.settimeout(5)
            connection.recv(1)
        connection.close()


def test_a_power_cut_loses_what_was_not_synced(hosts: Hosts) -> None:
    script = """
import os, sys
for name in ("disk-1", "disk-2", "system"):
    for kind in ("synced", "not-synced"):
        with open(f"/srv/{name}/{kind}", "wb") as file:
            file.write(b"x" * 100000)
            if kind == "synced":
                file.flush()
                os.fsync(file.fileno())
                os.fsync(os.open(f"/srv/{name}", os.O_RDONLY))
print("ready", flush=True)
sys.stdin.read() or __import__("signal").pause()
"""
    python(hosts[1], script)
    hosts.power_off(1)
    hosts.power_on(1)
    for name in ("disk-1", "disk-2", "system"):
        assert (hosts[1].root / name / "synced").read_bytes() == b"x" * 100000
        left = hosts[1].root / name / "not-synced"
        assert not left.exists() or left.stat().st_size == 0 or left.read_bytes() != b"x" * 100000


def test_a_host_that_is_cut_off_hears_nothing_and_is_not_heard(hosts: Hosts) -> None:
    """And when the cut is healed its connections go on."""
    python(hosts[1], ECHO)
    python(hosts[2], ECHO)
    inward, outward, beside = dialled(hosts[2], hosts[1]), dialled(hosts[1], hosts[2]), dialled(hosts[3], hosts[2])
    with inward, outward, beside:
        for connection in (inward, outward, beside):
            echoed(connection)
        hosts.cut_off(1)
        inward.sendall(b"a")
        outward.sendall(b"b")
        assert is_silent(inward) and is_silent(outward, 0.1)
        with pytest.raises(TimeoutError):
            dialled(None, hosts[1], timeout_s=0.5)
        assert echoed(beside) < 1
        assert hosts[1].dial(PORT, timeout_s=1).close() is None, "it runs, and reaches itself"
        hosts.heal()
        for connection, data in ((inward, b"a"), (outward, b"b")):
            connection.settimeout(20)
            assert connection.recv(1) == data


def test_one_direction_is_one_direction(hosts: Hosts) -> None:
    hosts.cut(1, 2)
    seen = {(a.number, b.number): datagrams(a, b) for a in hosts for b in hosts if a is not b}
    assert seen.pop((1, 2)) == 0
    assert set(seen.values()) == {3}
    python(hosts[1], ECHO)
    with pytest.raises(TimeoutError):  # its answer does not arrive
        dialled(hosts[2], hosts[1], timeout_s=0.5)
    hosts.heal()
    assert datagrams(hosts[1], hosts[2]) == 3


def megabytes(source: Host, target: Host, count: float) -> float:
    """Seconds that they take from the one to the other; the content is compared."""
    data = os.urandom(int(count * 1e6))
    listener = target.call(lambda: socket.create_server((target.address, 0)))
    with listener:
        sender = source.call(lambda: socket.create_connection(listener.getsockname(), 5))
        thread = threading.Thread(target=lambda: (sender.sendall(data), sender.close()), daemon=True)
        begun_s = time.monotonic()
        thread.start()
        received = hashlib.sha256()
        connection = listener.accept()[0]
        with connection:
            while part := connection.recv(1 << 16):
                received.update(part)
        taken_s = time.monotonic() - begun_s
        thread.join()
    assert received.digest() == hashlib.sha256(data).digest()
    return taken_s


def test_a_slow_link_has_the_bandwidth_that_was_asked_for(hosts: Hosts) -> None:
    """Each way, and other links are as they were."""
    hosts.slow(1, 2_000_000)
    for source, target in ((1, 2), (2, 1)):
        taken = [megabytes(hosts[source], hosts[target], 2) for _ in range(2)]
        assert 0.7 < min(taken) < 2, taken
    assert min(megabytes(hosts[2], hosts[3], 2) for _ in range(3)) < 0.7
    hosts.slow(1, None)
    assert min(megabytes(hosts[1], hosts[2], 2) for _ in range(3)) < 0.7


def round_trip_s(source: Host, target: Host) -> float:
    """The best of ten: a busy machine makes it longer, and nothing makes it shorter."""
    with dialled(source, target) as connection:
        return min(echoed(connection) for _ in range(10))


def test_a_long_link_delays_each_way_and_loses_nothing(hosts: Hosts) -> None:
    for host in hosts:
        python(host, ECHO)
    assert round_trip_s(hosts[2], hosts[1]) < 0.02
    hosts.delay(1, 0.04)
    assert 0.08 <= round_trip_s(hosts[2], hosts[1]) < 0.12
    assert 0.08 <= round_trip_s(hosts[1], hosts[3]) < 0.12
    assert round_trip_s(hosts[2], hosts[3]) < 0.02
    hosts.delay(2, 0.02)
    assert 0.12 <= round_trip_s(hosts[2], hosts[1]) < 0.16
    megabytes(hosts[1], hosts[2], 3)
    hosts.cut(2, 1)
    with pytest.raises(TimeoutError):
        dialled(hosts[1], hosts[2], timeout_s=0.5)
    hosts.heal()
    hosts.delay(1, 0)
    hosts.delay(2, 0)
    assert round_trip_s(hosts[2], hosts[1]) < 0.02


def written(host: Host, name: str) -> str:
    """What a process of the host says that writes a file to its first disk."""
    script = f"dd if=/dev/zero of=/srv/disk-1/{name} bs=4096 count=1 conv=fsync status=none && echo written"
    process = host.run(["sh", "-c", script], output=subprocess.PIPE)
    return process.communicate(timeout=60)[0].decode().strip()


def test_a_disk_of_a_host_fails_and_is_repaired(hosts: Hosts) -> None:
    """The host sees what happens to its mounts. A disk that has failed is as bad after a power cut."""
    assert written(hosts[1], "a") == "written"
    hosts[1].disks[1].fail()
    assert "Input/output error" in written(hosts[1], "b")
    assert written(hosts[2], "b") == "written"
    hosts.power_off(1)
    hosts.power_on(1)
    assert "Input/output error" in written(hosts[1], "c")
    hosts[1].disks[1].heal()
    assert written(hosts[1], "d") == "written"
    assert (hosts[1].root / "disk-1" / "a").exists()


def test_a_host_may_have_disks_of_several_kinds() -> None:
    with Hosts(2, disks=1, kinds={(2, 1): FullDisk}) as hosts:
        hosts[2].disks[1].fail()
        assert "No space left" in written(hosts[2], "b")
        assert written(hosts[1], "b") == "written"
    with pytest.raises(ValueError, match=r"kinds of disks \[\(3, 1\)\]: expected \(host, disk\) of 2 hosts with 1"):
        Hosts(2, disks=1, kinds={(3, 1): FullDisk})


RUN = """
import sys, time
from holdfast.testing import Hosts
with Hosts(2, disks=1) as hosts:
    hosts[1].run(["sleep", "1000"])
    hosts.delay(2, 0.01)
    print(*[next(hosts[1].processes()), hosts[1].spaces.process_id, hosts.network._line.pid], hosts[1].root, flush=True)
    sys.stdin.read()
"""


def test_nothing_is_left_of_a_test_run_that_was_killed() -> None:
    """Processes, namespaces and interfaces go with it; what is mounted goes when the next one begins."""
    run = subprocess.Popen([sys.executable, "-c", RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert run.stdout is not None
    *numbers, root = run.stdout.readline().decode().split()
    interface, scratch = Path(f"/sys/class/net/hf{run.pid}-1"), Path(root).parent
    assert interface.exists() and mounts.mount_points(scratch)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    wait_for(lambda: not any(lives(int(number)) for number in numbers), "the end of all processes", timeout_s=10)
    wait_for(lambda: not interface.exists(), "the end of the interface", timeout_s=10)
    mounts.remove(mounts.scratch())
    assert not scratch.exists() and not mounts.mount_points(scratch)


def test_what_one_run_mounts_no_host_of_another_has() -> None:
    """A file system that a second namespace has could not be repaired by its own test."""
    scratch = mounts.scratch()
    try:
        (scratch / "disk").mkdir()
        mounts.run("test", "mount", "-t", "tmpfs", "tmpfs", scratch / "disk")
        with Hosts(1, disks=1) as hosts:
            process = hosts[1].run(["cat", "/proc/self/mounts"], output=subprocess.PIPE)
            seen = process.communicate(timeout=60)[0].decode()
        assert str(scratch) not in seen and "/srv/disk-1" in seen
    finally:
        mounts.remove(scratch)
