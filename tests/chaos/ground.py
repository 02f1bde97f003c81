"""What a run stands on: the network, the brokers' machines, their disks and the store of the metadata.

    LocalGround     this machine: a network namespace or a proxy per broker; embedded store, or one ZooKeeper server
    HostsGround     three hosts with addresses and disks of their own, and a ZooKeeper server on each (on_hosts.py)

Owns the choice and its end; what happens on it is decided elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from holdfast.testing.zookeeper import ThisMachine, ZooKeeperServer
from tests.chaos.brokers import Brokers
from tests.chaos.disks import Disks, LocalDisks
from tests.chaos.ensemble import Ensemble
from tests.chaos.network import Network
from tests.chaos.schedule import Fault
from tests.chaos.security import Security

Steps = Iterator[float]
Found = Callable[[str, str], None]
BROKERS = (1, 2, 3)
EMBEDDED, ZOOKEEPER = STORES = ("embedded", "zookeeper")


class Ground(Protocol):
    """``disks`` and ``ensemble`` where there are such."""

    @property
    def network(self) -> Network:
        """Between brokers, and to them."""

    @property
    def disks(self) -> Disks | None:
        """Those that fail."""

    @property
    def ensemble(self) -> Ensemble | None:
        """Where the metadata is."""

    def brokers(self, settings: Mapping[str, str]) -> Brokers:
        """They are down; the ensemble serves."""

    def steps(self, fault: Fault, brokers: Brokers, away: Counter[int], found: Found) -> Steps:
        """Of a fault that needs hosts."""

    def save(self) -> None:
        """What a person needs who looks for the cause is below the directory of the run."""

    def close(self) -> None:
        """Nothing of it is left but the directory of the run."""


class _Here(ThisMachine):
    """This process, by the address that brokers reach it by."""

    def __init__(self, address: str) -> None:
        self.address = address


class LocalGround:
    """``store``: one of STORES. ``disks`` are unmounted at the end. ``secure``: see security.py."""

    def __init__(
        self, directory: Path, network: Network, *, store: str, tick_ms: int, disks: LocalDisks | None, secure: bool
    ) -> None:
        self._secure = secure
        self.network, self.disks = network, disks
        self._cluster = directory / "cluster"
        self.ensemble: Ensemble | None = None
        if store == ZOOKEEPER:
            place = _Here(network.address)
            server = ZooKeeperServer(directory / "zookeeper-1", tick_ms=tick_ms, place=place)
            self.ensemble = Ensemble({1: server})

    def brokers(self, settings: Mapping[str, str]) -> Brokers:
        more: dict[str, Any] = {}
        if self.disks is not None:
            more = {"user": self.disks.user, "python": self.disks.python}
            if self.disks.metadata is not None:
                more["metadata_dirs"] = self.disks.metadata.paths
        if self.ensemble is not None:
            self.ensemble.start()
            settings = {**settings, **store_settings(self.ensemble)}
        if self._secure:
            hosts = [self.network.advertised(broker)[0] for broker in BROKERS]
            more["security"] = Security(self._cluster, hosts, more.get("user"))
        return Brokers(self._cluster, self.network, count=len(BROKERS), settings=settings, **more)

    def steps(self, fault: Fault, brokers: Brokers, away: Counter[int], found: Found) -> Steps:
        raise ValueError(f"{fault.kind} needs hosts")

    def save(self) -> None:
        """All of it is there."""

    def close(self) -> None:
        if self.ensemble is not None:
            self.ensemble.kill_all()
        if self.disks is not None:
            self.disks.close()


def store_settings(ensemble: Ensemble) -> dict[str, str]:
    """Of brokers that have their metadata there."""
    return {"metadata.store": "zookeeper", "zookeeper.connect": ensemble.connect}
