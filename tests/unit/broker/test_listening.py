"""The port of a process that is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from holdfast.broker.listening import LowPort, listen
from holdfast.model.errors import ConfigError

CONNECTIONS = 20
PROCESS = f"""
import os, sys
from holdfast.broker.listening import LowPort
low = LowPort()
others = [open(os.devnull) for _ in range({CONNECTIONS})]  # as the files of logs that are loaded
sock = low.listen("127.0.0.1", 0)
del others  # connections get their numbers
sock.setblocking(True)
print(sock.getsockname()[1], flush=True)
kept = [sock.accept() for _ in range({CONNECTIONS})]
print("accepted", flush=True)
sys.stdin.read()
"""


def outlives() -> bool:
    """Kills a process; whether its port still takes a connection when all that it had have ended."""
    with subprocess.Popen([sys.executable, "-c", PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = ("127.0.0.1", int(process.stdout.readline()))
        clients = [socket.create_connection(address, timeout=10) for _ in range(CONNECTIONS)]
        assert process.stdout.readline() == b"accepted\n"
        os.kill(process.pid, signal.SIGKILL)
        for client in clients:
            assert client.recv(1) == b"", "the connection ends"
            client.close()
        try:
            again = socket.create_connection(address, timeout=10)
        except ConnectionRefusedError:
            return False
        with again, pytest.raises(ConnectionResetError):
            again.recv(1)
        process.wait(10)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=10)
    return True


def test_a_port_of_a_killed_process_takes_connections_after_its_own_have_ended() -> None:
    # Some milliseconds on a quiet machine; this process may be kept waiting for as long, but not every time.
    assert any(outlives() for _ in range(10))


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_a_port_that_is_closed_refuses_at_once_and_leaves_no_descriptor() -> None:
    before = descriptors()
    low = LowPort()
    kept = descriptors() - before
    sock = low.listen("127.0.0.1", 0)
    assert descriptors() - before == kept, "it has the descriptors that were kept for it"
    address: Any = sock.getsockname()
    assert not sock.getblocking()
    second = low.listen("127.0.0.1", 0)
    second.close()
    sock.close()
    assert descriptors() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=10)


def test_a_process_that_never_listens_gives_its_descriptors_back() -> None:
    before = descriptors()
    low = LowPort()
    assert len(descriptors() - before) == 2
    del low
    assert descriptors() == before


def test_an_address_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port)
