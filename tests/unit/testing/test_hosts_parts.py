"""Parts of ``Hosts`` that need no root. What the faults do is shown by tests/system/test_hosts.py."""

from __future__ import annotations

import os
import shutil
import socket
import struct

import pytest

from holdfast.testing import Hosts, HostsUnavailable, wait_for
from holdfast.testing.delay_line import HEADER, DelayLine
from holdfast.testing.network import taken_subnets

A, B, C = (socket.inet_aton(f"10.0.0.{n}") for n in (1, 2, 3))


def test_hosts_without_root_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    with pytest.raises(HostsUnavailable, match="only root can make: this is user 65534"):
        Hosts(3)


def test_hosts_without_a_command_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "tc" else "/usr/sbin/ip")
    with pytest.raises(HostsUnavailable, match="the command tc, and it is not in PATH: install iproute2"):
        Hosts(3)


def test_a_subnet_that_is_in_use_is_seen() -> None:
    routes = (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
        "eth0\t00000000\t01F0A8C0\t0003\t0\t0\t0\t00000000\n"
        "hf12-1\t00114D0A\tFE114D0A\t0003\t0\t0\t0\t00FFFFFF\n"
        "hf12-1\tFE114D0A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\n"
        "br0\t0011A8C0\t00000000\t0005\t0\t0\t0\t00FFFFFF\n"
    )
    assert taken_subnets(routes) == {17: "hf12-1"}


def packet(source: bytes, target: bytes, content: bytes) -> bytes:
    return bytes(HEADER) + struct.pack(">B11x4s4s", 0x45, source, target) + content


def test_a_delay_line_gives_in_order_of_time_and_drops_what_is_too_much() -> None:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, its:
        its.setblocking(False)
        line = DelayLine(its.fileno(), limit=200)
        line.delays |= {A: 0.05, B: 0.05}
        sent = [packet(A, B, b"first"), packet(A, C, b"second"), packet(C, C, b"third")]
        for one in sent:
            ours.sendall(one)
        ours.sendall(bytes(HEADER) + b"\x60 no IPv4")
        line.take()
        ours.settimeout(5)
        received = []

        def all_given() -> bool:
            if line.give() is not None:
                return False
            received.extend(ours.recv(1000) for _ in sent)
            return True

        wait_for(all_given, "the packets")
        assert received == [sent[2], sent[1], sent[0]]
        for _ in range(4):
            ours.sendall(packet(A, B, bytes(100)))
        line.take()
        assert line.on_its_way == 2 * len(packet(A, B, bytes(100)))
