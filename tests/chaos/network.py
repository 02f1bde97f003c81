"""How brokers reach each other, and how that is cut.

Two means behind one face:

* ``Namespaces``: a network namespace per broker, one that routes between them, and rules in it that drop packets of
  one direction without a word. Silent, as a pulled cable or a lost switch is. Needs Linux, iproute2, and root or user
  namespaces; nothing outside of this process sees any of it, and all of it goes with the process.
* ``proxies.Proxies``: where that is not allowed. Connections between the two sides are reset and refused.

Runs no broker. Addresses are fixed before the first one starts.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

CLIENTS, BETWEEN, ASKED = range(3)
"""The listeners of a broker, the last for the run itself where clients log in: what all carry is cut by one cut."""
PORTS = {CLIENTS: 9092, BETWEEN: 9093, ASKED: 9094}
_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_THREAD_NAMESPACE = "/proc/thread-self/ns/net"
_INSIDE = "HOLDFAST_CHAOS_INSIDE"
_PROBE = """
ip link set lo up &&
ip link add name probe0 type veth peer name probe1 &&
ip link set probe0 up &&
ip rule add iif probe0 to 10.0.0.1 blackhole &&
echo 1 > /proc/sys/net/ipv4/ip_forward
"""


class Network(Protocol):
    """A cut has a sender and a receiver, broker ids; None stands for everyone, clients as well."""

    description: str
    address: str
    """Of this process, as brokers reach it."""

    def listener(self, broker: int, which: int = CLIENTS) -> tuple[str, int]:
        """Host and port on which the broker listens."""

    def advertised(self, broker: int, which: int = CLIENTS) -> tuple[str, int]:
        """Host and port by which all others reach it."""

    def inside(self, broker: int) -> AbstractContextManager[None]:
        """A process that this thread starts within runs where the broker must run."""

    def started(self, broker: int, pid: int) -> None:
        """The broker's process is this one now."""

    def cut(self, sender: int | None, receiver: int | None) -> None:
        """From now on nothing that the one sends reaches the other."""

    def heal(self, sender: int | None, receiver: int | None) -> None:
        """Undoes one ``cut``."""

    def close(self) -> None:
        """Nothing of it is left."""


def enter_namespace() -> str | None:
    """Puts this process into a network namespace of its own by starting it again there; must be called before
    anything else happens. None when it is inside; otherwise why that is not possible here.
    """
    if os.environ.pop(_INSIDE, None) == str(os.getpid()):
        return None
    if sys.platform != "linux":
        return "not Linux"
    missing = [tool for tool in ("ip", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"no {' and no '.join(missing)} command"
    reason = ""
    for options in (["--net"], ["--user", "--map-root-user", "--net"]):
        probe = subprocess.run(["unshare", *options, "sh", "-c", _PROBE], capture_output=True, check=False)
        if probe.returncode == 0:
            os.environ[_INSIDE] = str(os.getpid())
            os.execvp("unshare", ["unshare", *options, *sys.orig_argv])
        reason = probe.stderr.decode(errors="replace").strip().splitlines()[-1:][0] if probe.stderr else "refused"
    return reason


class Namespaces:
    """Broker i is 10.70.i.2 behind the router's 10.70.i.1; this process is 10.70.0.2. After ``enter_namespace``."""

    def __init__(self, brokers: Sequence[int]) -> None:
        self.description = "a network namespace per broker, packets dropped by the router between them"
        self.address = _address(0)
        self._cuts: Counter[tuple[int | None, int | None]] = Counter()
        self._home = os.open(_THREAD_NAMESPACE, os.O_RDONLY)
        self._router = self._new_namespace()
        self._namespaces = {broker: self._new_namespace() for broker in brokers}
        self._ip(self._router, "link set lo up")
        with self._within(self._router), open("/proc/sys/net/ipv4/ip_forward", "w") as forward:
            forward.write("1")
        for number, namespace in ((0, self._home), *self._namespaces.items()):
            self._ip(namespace, "link set lo up", f"link add name e0 type veth peer name r{number}",
                     f"link set r{number} netns /proc/{os.getpid()}/fd/{self._router}",
                     f"addr add {_address(number)}/24 dev e0", "link set e0 up")  # fmt: skip
            self._ip(self._router, f"addr add 10.70.{number}.1/24 dev r{number}", f"link set r{number} up")
            self._ip(namespace, f"route add default via 10.70.{number}.1")

    def listener(self, broker: int, which: int = CLIENTS) -> tuple[str, int]:
        return _address(broker), PORTS[which]

    def advertised(self, broker: int, which: int = CLIENTS) -> tuple[str, int]:
        return self.listener(broker, which)

    def inside(self, broker: int) -> AbstractContextManager[None]:
        return self._within(self._namespaces[broker])

    def started(self, broker: int, pid: int) -> None:
        """Its namespace says who it is."""

    def cut(self, sender: int | None, receiver: int | None) -> None:
        self._cuts[sender, receiver] += 1
        if self._cuts[sender, receiver] == 1:
            self._ip(self._router, f"rule add pref {_rule(sender, receiver)} {_selector(sender, receiver)} blackhole")

    def heal(self, sender: int | None, receiver: int | None) -> None:
        self._cuts[sender, receiver] -= 1
        if self._cuts[sender, receiver] == 0:
            self._ip(self._router, f"rule del pref {_rule(sender, receiver)}")

    def close(self) -> None:
        for namespace in (self._home, self._router, *self._namespaces.values()):
            os.close(namespace)

    def _new_namespace(self) -> int:
        """Lives as long as somebody is in it or holds the descriptor."""
        _check(_libc.unshare(_CLONE_NEWNET), "unshare")
        made = os.open(_THREAD_NAMESPACE, os.O_RDONLY)
        _check(_libc.setns(self._home, _CLONE_NEWNET), "setns")
        return made

    @contextmanager
    def _within(self, namespace: int) -> Iterator[None]:
        """This thread, and only it, is elsewhere."""
        _check(_libc.setns(namespace, _CLONE_NEWNET), "setns")
        try:
            yield
        finally:
            _check(_libc.setns(self._home, _CLONE_NEWNET), "setns")

    def _ip(self, namespace: int, *commands: str) -> None:
        lines = "".join(f"{command}\n" for command in commands)
        with self._within(namespace):
            done = subprocess.run(["ip", "-batch", "-"], input=lines, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"ip: {done.stderr.strip()} for {commands}")


def _address(number: int) -> str:
    return f"10.70.{number}.2"


def _rule(sender: int | None, receiver: int | None) -> int:
    """The place of a rule of its own: a rule that is taken away by what it selects may take another one's place."""
    return 1000 + 100 * (sender or 0) + (receiver or 0)


def _selector(sender: int | None, receiver: int | None) -> str:
    sides = (("from", sender), ("to", receiver))
    return " ".join(f"{word} {_address(broker)}" for word, broker in sides if broker is not None)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
