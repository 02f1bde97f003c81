"""A run over three hosts (``holdfast.testing.Hosts``): broker N, ZooKeeper server N and two log disks are host N's.

    power cut    the link is down first, then everything in the host is killed, and what was not synced is lost
    cuts         of a host from everyone, or of one direction: the server of ZooKeeper on it is cut as well
    links        little bandwidth, or a long delay, each way

Owns the hosts, and what they do to brokers and servers of ZooKeeper. The clients are on a machine of their own.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from holdfast.testing import FAULTS, Hosts
from holdfast.testing.zookeeper import ZooKeeperEnsemble
from tests.chaos.brokers import LOG_DIRS, Brokers
from tests.chaos.disks import Disks, host_disk_kinds
from tests.chaos.ensemble import Ensemble, copied
from tests.chaos.ground import Found, Steps, store_settings
from tests.chaos.launch import HELD
from tests.chaos.network import CLIENTS, PORTS
from tests.chaos.schedule import Fault, Kind

COUNT = 3
DISK_BYTES = 512 << 20
BYTES_PER_S = (100_000, 1_000_000)
"""Of a link with little bandwidth, each way."""
DELAYS_S = (0.02, 0.2)


class HostsNetwork:
    """Cuts are counted: two that overlap end one by one."""

    description = "three hosts: namespaces of network, mounts and processes, a router between them"

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self.address = hosts.address
        self._cuts: Counter[tuple[int | None, int | None]] = Counter()

    def listener(self, broker: int, which: int = CLIENTS) -> tuple[str, int]:
        return self._hosts[broker].address, PORTS[which]

    def advertised(self, broker: int, which: int = CLIENTS) -> tuple[str, int]:
        return self.listener(broker, which)

    def inside(self, broker: int) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def started(self, broker: int, pid: int) -> None:
        """Its host says who it is."""

    def cut(self, sender: int | None, receiver: int | None) -> None:
        self._cuts[sender, receiver] += 1
        if self._cuts[sender, receiver] == 1:
            self._hosts.network.cut(sender, receiver)

    def heal(self, sender: int | None, receiver: int | None) -> None:
        self._cuts[sender, receiver] -= 1
        if self._cuts[sender, receiver] == 0:
            self._hosts.mend(sender, receiver)

    def close(self) -> None:
        """The hosts have it."""


class HostBrokers(Brokers):
    """Each is a process of its host, and has the log directories that are the host's disks."""

    def __init__(self, directory: Path, network: HostsNetwork, hosts: Hosts, settings: Mapping[str, str]) -> None:
        self._hosts = hosts
        super().__init__(directory, network, count=COUNT, settings=settings)
        for broker in self.ids:
            for number in range(1, LOG_DIRS + 1):
                link = directory / f"broker-{broker}" / f"log-dir-{number}"
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(self.log_dir(broker, number))

    def log_dir(self, broker: int, number: int) -> Path:
        return self._hosts[broker].disks[number].path

    def start(self, broker: int) -> None:
        """One whose host has no power is not started."""
        if self._hosts[broker].is_on:
            super().start(broker)

    def _launch(
        self, broker: int, command: list[str], environment: dict[str, str], log: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        return self._hosts[broker].run(command, output=log, environment={**environment, HELD: "1"})


class HostsGround:
    """Made at once, which takes some seconds. HostsUnavailable, DiskFaultUnavailable."""

    def __init__(self, directory: Path, seed: int, *, tick_ms: int, disks: bool) -> None:
        self._directory = directory
        names = host_disk_kinds(seed, range(1, COUNT + 1))
        kinds = {place: FAULTS[name] for place, name in names.items()} if disks else {}
        self.hosts = Hosts(COUNT, disks=LOG_DIRS, kinds=kinds, disk_bytes=DISK_BYTES)
        self.hosts.__enter__()
        self.network = HostsNetwork(self.hosts)
        self.disks: Disks | None = None
        if disks:
            self.disks = Disks([(host, names[host, d], self.hosts[host].disks[d]) for host, d in sorted(names)])
        servers = ZooKeeperEnsemble(
            places={host.number: host for host in self.hosts},
            folders={host.number: host.root / "system" / "zookeeper" for host in self.hosts},
            tick_ms=tick_ms,
        ).servers
        self.ensemble = Ensemble(servers)

    def brokers(self, settings: Mapping[str, str]) -> Brokers:
        self.ensemble.start()
        more = store_settings(self.ensemble)
        return HostBrokers(self._directory / "cluster", self.network, self.hosts, {**settings, **more})

    def save(self) -> None:
        """The links to disks become copies of what is on them."""
        for link in sorted((self._directory / "cluster").glob("broker-*/log-dir-*")):
            source = link.resolve()
            link.unlink()
            copied(source, link)
        self.ensemble.save(self._directory)

    def close(self) -> None:
        self.ensemble.kill_all()
        self.hosts.close()

    # -- faults ------------------------------------------------------------------------------------------------

    def steps(self, fault: Fault, brokers: Brokers, away: Counter[int], found: Found) -> Steps:
        """Begins when it is first advanced."""
        any_host = brokers.ids[fault.choice % COUNT]
        match fault.kind:
            case Kind.POWER_OFF:
                yield from self._without_power(any_host, fault, brokers, away, found)
            case Kind.POWER_OFF_CONTROLLER:
                one = brokers.controller() or any_host
                yield from self._without_power(one, fault, brokers, away, found)
            case Kind.POWER_OFF_STORE:
                yield from self._without_power(self.ensemble.leader(), fault, brokers, away, found)
            case Kind.CUT_OFF_STORE:
                leader = self.ensemble.leader()
                yield from self._cut([(leader, None), (None, leader)], fault.lasts_s)
            case Kind.CUT_ONE_WAY:
                others = [host for host in brokers.ids if host != any_host]
                target = others[fault.choice // COUNT % len(others)]
                yield from self._cut([(any_host, target)], fault.lasts_s)
            case Kind.NARROW:
                self.hosts.slow(any_host, BYTES_PER_S[fault.choice // COUNT])
                yield fault.lasts_s
                self.hosts.slow(any_host, None)
            case Kind.LONG:
                self.hosts.delay(any_host, DELAYS_S[fault.choice // COUNT])
                yield fault.lasts_s
                self.hosts.delay(any_host, 0)
            case _:
                raise ValueError(f"{fault.kind} is not a fault of hosts")

    def _without_power(self, host: int, fault: Fault, brokers: Brokers, away: Counter[int], found: Found) -> Steps:
        away[host] += 1
        self.hosts.power_off(host)
        self.ensemble.lost(host)
        yield fault.lasts_s
        self.hosts.power_on(host)
        away[host] -= 1
        brokers.start(host)
        yield from self.ensemble.back([host], found)

    def _cut(self, ways: list[tuple[int | None, int | None]], lasts_s: float) -> Steps:
        for sender, receiver in ways:
            self.network.cut(sender, receiver)
        yield lasts_s
        for sender, receiver in ways:
            self.network.heal(sender, receiver)
