"""A cluster over hosts: each has a broker and a server of the ensemble that keeps the metadata.

    host-1                        host-2                        host-3
    broker 1    ZooKeeper 1       broker 2    ZooKeeper 2       broker 3    ZooKeeper 3
    disk-1, disk-2, system        disk-1, disk-2, system        disk-1, disk-2, system

Owns the hosts (testing/hosts.py), the ensemble (testing/zookeeper.py) and the brokers' processes. Clients are wherever
the caller is: this machine reaches every host. Asked and told as ``Cluster`` is, where both have the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

from holdfast.testing.cluster import ClusterError
from holdfast.testing.disks import MIB
from holdfast.testing.hosts import SYSTEM, Host, Hosts
from holdfast.testing.processes import children, has_gone
from holdfast.testing.view import ClusterView, ask
from holdfast.testing.waiting import wait_for
from holdfast.testing.zookeeper import TICK_MS, ZooKeeperEnsemble

CLIENT_PORT, BROKER_PORT = 9092, 9292
SESSION_MS: Final = 6000
"""zookeeper.session.timeout.ms: what a host that is silent costs."""
CONNECT_MS: Final = 60_000
"""Of a start, where all servers of all hosts start at once."""
CHROOT: Final = "/holdfast"
ASK_S: Final = 2.0
START_S: Final = 120.0


class HostCluster:
    """``with HostCluster() as cluster:`` brokers 1 to 3 run, each on the host of its number.

    ``settings``: of all brokers, Kafka's keys. ``tick_ms``: tickTime of the ensemble. ``disk_bytes``: of one disk.
    HostsUnavailable, ZooKeeperUnavailableError, JavaNotFoundError.
    """

    def __init__(
        self,
        *,
        brokers: int = 3,
        log_dirs: int = 2,
        settings: Mapping[str, str] | None = None,
        tick_ms: int = TICK_MS,
        disk_bytes: int = 64 * MIB,
    ) -> None:
        self.brokers, self.log_dirs, self.tick_ms = brokers, log_dirs, tick_ms
        self.settings = dict(settings or {})
        self.hosts = Hosts(brokers, disks=log_dirs, disk_bytes=disk_bytes)
        self._ensemble: ZooKeeperEnsemble | None = None
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ending = ExitStack()

    def __enter__(self) -> HostCluster:
        try:
            self._ending.enter_context(self.hosts)
            places = {host.number: host for host in self.hosts}
            folders = {host.number: host.root / SYSTEM / "zookeeper" for host in self.hosts}
            self._ensemble = ZooKeeperEnsemble(places=places, folders=folders, tick_ms=self.tick_ms)
            self.revive(timeout_s=START_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, Exception):
            self.print_logs()  # they go with the hosts
        self.close()

    def close(self) -> None:
        """Everything, as if all power was gone."""
        self._ending.close()

    @property
    def ensemble(self) -> ZooKeeperEnsemble:
        assert self._ensemble is not None, "the cluster was not started"
        return self._ensemble

    @property
    def session_ms(self) -> int:
        """zookeeper.session.timeout.ms of the brokers."""
        return int(self.settings.get("zookeeper.session.timeout.ms", SESSION_MS))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses())

    def addresses(self) -> list[tuple[str, int]]:
        """Where clients reach every broker, in order of broker id."""
        return [(host.address, CLIENT_PORT) for host in self.hosts]

    def properties(self, host: Host) -> str:
        """The file of a host's broker."""
        values = {
            "node.id": str(host.number),
            "listeners": f"PLAINTEXT://{host.address}:{CLIENT_PORT},INTERNAL://{host.address}:{BROKER_PORT}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": ",".join(str(disk.path / "holdfast") for disk in host.disks.values()),
            "metadata.store": "zookeeper",
            "zookeeper.connect": self.ensemble.connect + CHROOT,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "zookeeper.connection.timeout.ms": str(CONNECT_MS),
            "default.replication.factor": str(min(3, self.brokers)),
            "offsets.topic.replication.factor": str(min(3, self.brokers)),
            **self.settings,
        }
        return "".join(f"{key}={value}\n" for key, value in values.items())

    # -- what runs -----------------------------------------------------------------------------------------------------

    def begin(self, number: int) -> None:
        """Start a host's broker and wait for nothing."""
        host = self.hosts[number]
        file = host.root / SYSTEM / "broker.properties"
        file.write_text(self.properties(host))
        with self.log(number).open("ab") as log:
            command = (sys.executable, "-m", "holdfast.cli.main", "broker", os.fspath(file))
            self._processes[number] = host.run(command, output=log)

    def revive(self, *, timeout_s: float = START_S) -> None:
        """Hosts without power have it again, servers and brokers that do not run are started; returns when the ensemble
        serves and every broker knows all. A broker that ends meanwhile is started again, as its unit of systemd does
        it. ClusterError."""
        for host in self.hosts:
            self.hosts.power_on(host.number)
        self.ensemble.start()
        for host in self.hosts:
            if host.number not in self.live():
                self.begin(host.number)

        ended: list[str] = []

        def all_there() -> bool:
            for number, process in self._processes.items():
                if process.poll() is not None:
                    ended.append(f"broker {number} has ended with {process.returncode}\n{self.log_tail(number)}")
                    self.begin(number)
            try:
                return all(len(ask(*address, []).brokers) == self.brokers for address in self.addresses())
            except OSError:
                return False

        try:
            wait_for(all_there, "all brokers to know each other", timeout_s=timeout_s, interval_s=0.1)
        except TimeoutError as e:
            raise ClusterError("\n".join((str(e), *ended[-self.brokers :]))) from e

    def power_off(self, number: int) -> None:
        """Of a host: silence, and what its disks had not synced is gone."""
        self.hosts.power_off(number)

    def kill(self, number: int) -> None:
        """``kill -9`` of one broker; returns when it is gone, with all that it had open. Its host goes on."""
        process = self._processes[number]
        helpers = children(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_for(lambda: has_gone(process.pid, helpers), f"the end of broker {number}", timeout_s=10)

    def pids(self) -> dict[int, int]:
        """Process id by broker id, as this machine has them; some may be dead."""
        return {number: process.pid for number, process in sorted(self._processes.items())}

    def live(self) -> dict[int, int]:
        """The part of ``pids()`` that runs."""
        return {number: pid for number, pid in self.pids().items() if self._processes[number].poll() is None}

    # -- what it says --------------------------------------------------------------------------------------------------

    def describe(self, topics: Iterable[str] | None = None, *, broker: int | None = None) -> ClusterView:
        """Metadata of the first broker that answers, or of ``broker``; all topics when none is named. Only those that
        run are asked: silence is no answer."""
        names = None if topics is None else list(topics)
        trouble: OSError | None = None
        for number in self.live() if broker is None else (broker,):
            try:
                return ask(*self.addresses()[number - 1], names, timeout_s=ASK_S)
            except OSError as error:
                trouble = error
        raise ConnectionError(f"none of the brokers {[*self.live()]} answers") from trouble

    def wait_in_sync(self, topics: Iterable[str] | None = None, *, timeout_s: float = START_S) -> ClusterView:
        """Until every broker that runs shows every replica of the topics in its ISR; returns the last view."""
        names = None if topics is None else list(topics)

        def full() -> ClusterView | None:
            view = None
            for broker in self.live():
                view = self.describe(names, broker=broker)
                if not view.partitions or view.under_replicated or len(view.brokers) != self.brokers:
                    return None
            return view

        view = wait_for(full, f"all replicas of {names or 'all topics'} to be in sync", timeout_s=timeout_s)
        assert view is not None
        return view

    def log(self, number: int) -> Path:
        """What a host's broker writes; it ends with the host's power where it was not synced."""
        return self.hosts[number].root / SYSTEM / "broker.log"

    def log_tail(self, number: int, size: int = 2000) -> str:
        """The end of it."""
        try:
            return self.log(number).read_bytes()[-size:].decode(errors="replace")
        except OSError as error:
            return f"{error}"

    def print_logs(self) -> None:
        """The end of every broker's log, to standard output."""
        for number in self._processes:
            print(f"{self.log(number)}:\n{self.log_tail(number)}")
