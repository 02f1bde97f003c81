"""The network between hosts of a test: a router in a network namespace of its own, and a link to each host.

    host-1 eth0 ---- p1 +--------+ p3 ---- eth0 host-3          10.77.S.1, .2, .3: the hosts
    host-2 eth0 ---- p2 | router | p0 ---- hfPID-N us           10.77.S.253: this machine
                        +--------+                              10.77.S.254: the router

Owns the router, its links and what is wrong with them. A packet that is cut vanishes: nobody is sent an ICMP message or
an RST, which is why there is a router and no bridge: a routing rule drops a packet of one direction, without netfilter
or classifiers, which not every kernel has. On this machine it adds one interface and one route, which go with the
router. The namespaces of the hosts are given to it.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.testing import delay_line
from holdfast.testing.namespaces import NETWORK, Namespaces

COMMANDS: Final = ("ip", "tc", "unshare")
_US, _ROUTER = 253, 254
_CUTS, _DELAYED, _DELAYS = 10, 1000, 2000
"""Preferences of routing rules: cuts, each one of its own from here on, as a rule that is taken away by what it says
could be a longer one; what comes out of the delay line, goes on; what has to go there."""
_TABLE = 77
_LINE = "delay0"
_BURST_S = 0.02
_QUEUE_MS = 200
_numbers = itertools.count(1)


class Network:
    """One router. ``address(n)`` is that of host n; n=None is this machine."""

    def __init__(self, hosts: int) -> None:
        if not 1 <= hosts < _US:
            raise ValueError(f"a network of {hosts} hosts: expected 1 to {_US - 1}")
        self._router = Namespaces(NETWORK, "echo 1 > /proc/sys/net/ipv4/ip_forward")
        self._line: subprocess.Popen[bytes] | None = None
        self._cuts: dict[str, int] = {}
        self._delayed: set[int] = set()
        self._prefix = f"10.77.{_free_subnet()}"
        interface = f"hf{os.getpid()}-{next(_numbers)}"
        try:
            self._ip(
                "link set lo up",
                f"address add {self._prefix}.{_ROUTER}/32 dev lo",
                f"route add blackhole {self._prefix}.0/24",  # what no link leads to vanishes, too
            )
            self._link(0, os.getpid(), interface)
            _ip_here(
                f"address add {self.address(None)} peer {self._prefix}.{_ROUTER} dev {interface}",
                f"link set {interface} up",
                f"route add {self._prefix}.0/24 via {self._prefix}.{_ROUTER} dev {interface}",
            )
        except BaseException:
            self.close()
            raise

    def address(self, host: int | None) -> str:
        return f"{self._prefix}.{_US if host is None else host}"

    def _ip(self, *orders: str, force: bool = False) -> None:
        """In the router. ``force``: what is not there is no error."""
        options = ("-force",) if force else ()
        self._router.command("ip", *options, "-batch", "-", text="\n".join(orders) + "\n", check=not force)

    def _link(self, host: int, process_id: int, name: str) -> None:
        """A cable from the router to the network namespace of a process."""
        address = self.address(host or None)
        self._ip(
            f"link add p{host} type veth peer name {name} netns {process_id}",
            f"link set p{host} up",
            f"route add {address}/32 dev p{host}",
        )

    def plug_in(self, host: int, spaces: Namespaces) -> None:
        """The host has eth0 with its address, and reaches all others."""
        self._link(host, spaces.process_id, "eth0")
        router = f"{self._prefix}.{_ROUTER}"
        orders = (
            "link set lo up",
            f"address add {self.address(host)} peer {router} dev eth0",
            "link set eth0 up",
            f"route add default via {router} dev eth0",
        )
        spaces.command("ip", "-batch", "-", text="\n".join(orders) + "\n")

    def link_down(self, host: int) -> None:
        """Nothing leaves the host any more, and nothing reaches it."""
        self._ip(f"link set p{host} down")

    def unplug(self, host: int) -> None:
        """The link is no more, and with it what was slow about it; cuts and delays stay with the address."""
        self._ip(f"link del p{host}", force=True)

    def cut(self, source: int | None, target: int | None) -> None:
        """Packets from ``source`` to ``target`` vanish, and no others; None is everybody."""
        if not (named := self._named(source, target)):
            raise ValueError("a cut from everybody to everybody: expected a host at one end")
        if named not in self._cuts:
            taken = set(self._cuts.values())
            self._cuts[named] = next(number for number in itertools.count(_CUTS) if number not in taken)
            self._ip(f"rule add pref {self._cuts[named]} {named} blackhole")

    def _named(self, source: int | None, target: int | None) -> str:
        """As a routing rule has it."""
        ends = (("from", source), ("to", target))
        return " ".join(f"{word} {self.address(host)}" for word, host in ends if host is not None)

    def mend(self, source: int | None, target: int | None) -> None:
        """This cut is no more; others are."""
        preference = self._cuts.pop(self._named(source, target), None)
        if preference is not None:
            self._ip(f"rule del pref {preference}")

    def heal(self) -> None:
        """No cut is left."""
        for preference in self._cuts.values():
            self._ip(f"rule del pref {preference}")
        self._cuts.clear()

    def limit(self, host: int, spaces: Namespaces, bytes_per_s: int | None) -> None:
        """Bandwidth of the host's link, each way; None: as much as there is."""
        ends = ((self._router, f"p{host}"), (spaces, "eth0"))
        for where, device in ends:
            if bytes_per_s is None:
                where.command("tc", "qdisc", "del", "dev", device, "root", check=False)
                continue
            burst = max(16 << 10, int(bytes_per_s * _BURST_S))
            options = ("rate", f"{bytes_per_s * 8}bit", "burst", f"{burst}b", "latency", f"{_QUEUE_MS}ms")
            where.command("tc", "qdisc", "replace", "dev", device, "root", "tbf", *options)

    def delay(self, host: int, seconds: float) -> None:
        """Every packet from and to the host takes that much longer; 0: none."""
        if self._line is None:
            if not seconds:
                return
            self._start_line()
        assert self._line is not None and self._line.stdin is not None and self._line.stdout is not None
        self._line.stdin.write(f"{self.address(host)} {seconds:.6f}\n".encode())
        self._line.stdin.flush()
        if self._line.stdout.readline() != b"ok\n":
            raise OSError(f"the delay line has ended: {self._line.wait()}")
        if bool(seconds) != (host in self._delayed):
            order, address = "add" if seconds else "del", self.address(host)
            self._ip(*(f"rule {order} pref {_DELAYS} {word} {address} lookup {_TABLE}" for word in ("from", "to")))
            self._delayed ^= {host}

    def _start_line(self) -> None:
        command = (sys.executable, "-S", "-E", str(Path(delay_line.__file__)), _LINE)
        self._line = self._router.call(
            lambda: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
        )
        assert self._line.stdout is not None
        if self._line.stdout.readline() != b"ready\n":
            raise OSError(f"the delay line did not start: {self._line.wait()}")
        self._ip(
            f"link set {_LINE} up txqueuelen 10000",
            f"rule add pref {_DELAYED} iif {_LINE} lookup main",
            f"route add default dev {_LINE} table {_TABLE}",
        )

    def close(self) -> None:
        """The router with all its links. Does not raise for what is gone."""
        if self._line is not None:
            self._line.kill()
            self._line.wait()
            for pipe in (self._line.stdin, self._line.stdout):
                assert pipe is not None
                pipe.close()
        self._ip("link del p0", force=True)
        self._router.kill()
        self._router.wait()


def _ip_here(*orders: str) -> None:
    done = subprocess.run(
        ("ip", "-batch", "-"), input="\n".join(orders) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise OSError(f"ip: {done.stderr.strip()}: {'; '.join(orders)}")


def _free_subnet() -> int:
    """S of 10.77.S.0/24 to which this machine has no route."""
    taken = set(taken_subnets(Path("/proc/net/route").read_text()))
    return next(number for number in ((os.getpid() + more) % 256 for more in range(256)) if number not in taken)


def taken_subnets(routes: str) -> Mapping[int, str]:
    """By S, the device of a route to 10.77.S.*, as /proc/net/route has them: addresses in hexadecimal, last byte
    first."""
    found = re.findall(r"^(\S+)\t[0-9A-F]{2}([0-9A-F]{2})4D0A\t", routes, re.MULTILINE)
    return {int(subnet, 16): device for device, subnet in found}
