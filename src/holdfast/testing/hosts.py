"""Hosts of a test: each has an address, a hostname, processes and disks of its own, and can be pulled out of the wall.

>>> from holdfast.testing import Hosts
>>> with Hosts(3) as hosts:                                      # doctest: +SKIP
...     broker = hosts[1].run(["holdfast", "broker", "/srv/system/broker.properties"])
...     hosts.power_off(1)

Owns the namespaces of each host (testing/namespaces.py), the network between them (testing/network.py) and the file
systems in a scratch directory (testing/mounts.py). Linux and root; HostsUnavailable says what is missing. All of it
goes at the end, and when this process is killed: only file systems are left then, which the next scratch removes.

In a host, /srv is ``host.root`` of this machine, and what other hosts have there is empty:

    /srv/system/               a disk for what is no log: settings, logs of processes, a ZooKeeper server
    /srv/disk-1/, disk-2/...   log directories that can fail (testing/disks.py)

    does                 and others see
    power_off(n)         silence: the link is down before the first process ends; what was not synced is lost
    cut_off(n)           silence, both ways; the host runs on
    cut(a, b)            silence from a to b; b is heard by a
    slow(n, ...)         so many bytes a second, each way
    delay(n, seconds)    each packet that much later, each way
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, TypeVar

from holdfast.testing import mounts
from holdfast.testing.disks import MIB, Disk, EioDisk
from holdfast.testing.namespaces import HOST, HostsUnavailable, MountBase, Namespaces, require
from holdfast.testing.network import COMMANDS, Network
from holdfast.testing.processes import has_gone
from holdfast.testing.waiting import wait_for

__all__ = ["Host", "Hosts", "HostsUnavailable"]

T = TypeVar("T")
INSIDE: Final = Path("/srv")
"""Where a host has its root; a directory that every Linux has."""
SYSTEM: Final = "system"
SYSTEM_BYTES: Final = 128 * MIB
KILLED_S: Final = 5.0
"""For processes to end that do not wait for a disk: a busy machine takes its time."""


class Host:
    """One of them. Made and ended by ``Hosts``."""

    def __init__(self, number: int, address: str, root: Path, disks: Mapping[int, Disk], system: Disk) -> None:
        self.number = number
        self.name = f"host-{number}"
        self.address = address
        self.root = root
        """Its /srv, on this machine and in the host: a path below it is the same in both."""
        self.disks = dict(disks)
        self.system = system
        self._spaces: Namespaces | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def is_on(self) -> bool:
        return self._spaces is not None

    @property
    def spaces(self) -> Namespaces:
        """Its namespaces; ConnectionError while it has no power."""
        if self._spaces is None:
            raise ConnectionError(f"{self.name} has no power")
        return self._spaces

    def boot(self, spaces: Namespaces) -> None:
        self._spaces = spaces

    def run(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        cwd: Path | None = None,
        output: IO[bytes] | int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """A process of the host; its ``pid`` is that of this machine. ``output``: of standard output and error, a file
        that is open or ``subprocess.PIPE``; None is nowhere. It ends with the host, or before."""
        self._processes = [process for process in self._processes if process.poll() is None]
        where = subprocess.DEVNULL if output is None else output

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=where, stderr=subprocess.STDOUT, cwd=cwd or INSIDE,
                env=None if environment is None else {**os.environ, **environment}, start_new_session=True,
            )  # fmt: skip

        process = self.spaces.call(start, HOST)
        self._processes.append(process)
        return process

    def call(self, function: Callable[[], T]) -> T:
        """The result of ``function``, run by a thread in the host's network; files and processes are this machine's.
        What sockets it makes stay the host's."""
        return self.spaces.call(function)

    def dial(self, port: int, *, timeout_s: float) -> socket.socket:
        """A connection of the host to itself."""
        return self.call(lambda: socket.create_connection((self.address, port), timeout_s))

    def processes(self) -> Iterator[int]:
        """Everything that runs in it, as this machine sees it."""
        return self.spaces.processes()

    def end(self) -> None:
        """kill -9 of everything at once; then what the disks had not synced is gone. Returns when all have ended."""
        spaces, self._spaces = self._spaces, None
        if spaces is None:
            return
        running = list(spaces.processes())
        spaces.kill()
        # None of them may see that its disk has gone, and say so; but one that hangs is waited for in vain.
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: all(has_gone(process, []) for process in running), "their end", timeout_s=KILLED_S)
        for disk in (*self.disks.values(), self.system):  # who waits for one of them can end now
            disk.lose_power()
        for process in self._processes:
            process.wait()
        self._processes.clear()
        spaces.wait()


class Hosts:
    """``with Hosts(3) as hosts:`` hosts 1 to 3 run, ``hosts[1]`` is the first.

    ``disks``: how many log disks each has. ``kinds``: what some of them are, by host and number; the others are
    ``EioDisk``. ``disk_bytes``: of one.
    """

    def __init__(
        self,
        count: int = 3,
        *,
        disks: int = 2,
        kinds: Mapping[tuple[int, int], type[Disk]] | None = None,
        disk_bytes: int = 64 * MIB,
    ) -> None:
        require(COMMANDS)
        if unknown := sorted(set(kinds or {}) - {(h, d) for h in range(1, count + 1) for d in range(1, disks + 1)}):
            raise ValueError(
                f"kinds of disks {unknown}: expected (host, disk) of {count} hosts with {disks} disks each"
            )
        self._count, self._disks, self._disk_bytes = count, disks, disk_bytes
        self._kinds = dict(kinds or {})
        self._hosts: dict[int, Host] = {}
        self._network: Network | None = None
        self._scratch: Path | None = None
        self._base: MountBase | None = None

    def __enter__(self) -> Hosts:
        try:
            self._scratch = scratch = mounts.scratch()
            self._network = Network(self._count)
            (scratch / "images").mkdir()
            for number in range(1, self._count + 1):
                self._hosts[number] = self._made(number, scratch)
            (scratch / "hosts").write_text(self._names())
            self._base = MountBase(scratch)
            for host in self._hosts.values():
                self._boot(host)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getitem__(self, number: int) -> Host:
        return self._hosts[number]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    @property
    def network(self) -> Network:
        assert self._network is not None, "there are no hosts yet"
        return self._network

    @property
    def address(self) -> str:
        """By which hosts reach this process."""
        return self.network.address(None)

    def _made(self, number: int, scratch: Path) -> Host:
        """With its disks. Its root is a mount that tells hosts of what is mounted below it later."""
        root, images = scratch / f"host-{number}", scratch / "images"
        root.mkdir()
        mounts.run("hosts", "mount", "--bind", root, root)
        mounts.run("hosts", "mount", "--make-shared", root)
        disks = {}
        for disk in range(1, self._disks + 1):
            kind = self._kinds.get((number, disk), EioDisk)
            disks[disk] = kind(root / f"disk-{disk}", images, size=self._disk_bytes)
        system = EioDisk(root / SYSTEM, images, size=SYSTEM_BYTES)
        return Host(number, self.network.address(number), root, disks, system)

    def _names(self) -> str:
        return "".join(f"{address} {name}\n" for address, name in (
            ("127.0.0.1", "localhost"), (self.address, "test"), *((host.address, host.name) for host in self),
        ))  # fmt: skip

    def _boot(self, host: Host) -> None:
        assert self._scratch is not None and self._base is not None
        others = (other.root for other in self if other is not host)
        script = [
            "mount -t proc proc /proc",
            *(f"mount -t tmpfs -o ro,size=4k,mode=700 tmpfs {shlex.quote(str(root))}" for root in others),
            f"mount --rbind {shlex.quote(str(host.root))} {INSIDE}",
            f"mount --bind {shlex.quote(str(self._scratch / 'hosts'))} /etc/hosts",
            f"echo {host.name} > /proc/sys/kernel/hostname",
        ]
        spaces = self._base.call(lambda: Namespaces(HOST, "\n".join(script)))
        host.boot(spaces)
        self.network.plug_in(host.number, spaces)

    def power_off(self, number: int) -> None:
        """As if its plug was pulled: nobody hears of it, and what was not synced is lost."""
        host = self._hosts[number]
        if host.is_on:
            self.network.link_down(number)
            host.end()
            self.network.unplug(number)

    def power_on(self, number: int) -> None:
        """It runs, with nothing but what its disks have, and without processes. A disk that had failed is as it was;
        cuts and delays are."""
        host = self._hosts[number]
        if not host.is_on:
            for disk in (*host.disks.values(), host.system):
                disk.regain_power()
            self._boot(host)

    def cut_off(self, number: int) -> None:
        """Nobody hears it, and it hears nobody, this process included."""
        self.network.cut(number, None)
        self.network.cut(None, number)

    def cut(self, source: int, target: int) -> None:
        """One direction between two hosts."""
        self.network.cut(source, target)

    def mend(self, source: int | None, target: int | None) -> None:
        """One direction that was cut: between two hosts, or where None is everybody. Other cuts stay."""
        self.network.mend(source, target)

    def heal(self) -> None:
        """No cut is left."""
        self.network.heal()

    def slow(self, number: int, bytes_per_s: int | None) -> None:
        """The bandwidth of its link, each way, until its power goes; None: as before."""
        self.network.limit(number, self._hosts[number].spaces, bytes_per_s)

    def delay(self, number: int, seconds: float) -> None:
        """What each packet from and to it takes longer; 0: as before."""
        self.network.delay(number, seconds)

    def close(self) -> None:
        """Everything, whatever state it is in."""
        with contextlib.ExitStack() as last:
            if self._scratch is not None:
                last.callback(mounts.remove, self._scratch)
            for host in self:
                for disk in (*host.disks.values(), host.system):
                    last.callback(disk.close)
            if self._network is not None:
                last.callback(self._network.close)
            if self._base is not None:
                last.callback(self._base.close)
                self._base = None
            for host in self:
                last.callback(host.end)
