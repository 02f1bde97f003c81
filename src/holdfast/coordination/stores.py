"""Which metadata store a broker has: the one place that knows them by name.

A broker goes by ``metadata.store`` and knows the protocol (metadata/store.py). What a store asks of the machine is
handed over, so that the simulation can give it another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias
from uuid import UUID

from holdfast.client.outgoing import Outgoing
from holdfast.coordination import zookeeper_tls
from holdfast.coordination.embedded import EmbeddedStore, Witness
from holdfast.coordination.lanes import Lanes
from holdfast.coordination.recorded_ids import RecordedBrokerIds
from holdfast.coordination.zookeeper import ZooKeeperStore
from holdfast.coordination.zookeeper_acls import AclClient
from holdfast.coordination.zookeeper_client import ZooKeeperClient
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings
from holdfast.metadata.broker_ids import BrokerIdMapping
from holdfast.metadata.store import Fatal, Judgement, MetadataStore, Retry
from holdfast.model.config import STORE_EMBEDDED, BrokerConfig
from holdfast.model.errors import ConfigError
from holdfast.storage.files import FileSystem

EnsembleClients: TypeAlias = Callable[[ZooKeeperSettings], Callable[[], ZooKeeperClient]]
"""What makes clients of one ensemble, none of them started; from how it is reached. ConfigError at once when what that
needs is not installed or cannot be read."""


class Machine(Protocol):
    """What the stores need of the machine."""

    @property
    def files(self) -> FileSystem: ...

    @property
    def wall_s(self) -> Callable[[], float]: ...

    @property
    def new_id(self) -> Callable[[], UUID]: ...

    @property
    def lanes(self) -> Callable[[str], Lanes]: ...

    @property
    def ensemble(self) -> EnsembleClients: ...


def open_store(config: BrokerConfig, machine: Machine) -> MetadataStore:
    """The store of this broker; nothing is read or connected yet. ConfigError when what it needs is not installed, or
    its keys contradict each other."""
    name = config.str("metadata.store")
    if name == STORE_EMBEDDED:
        witness = Witness(
            broker_id=config.node_id,
            directories=_absolute(config.metadata_witness_dirs),
            makes_place=config.metadata_witness_dirs != config.log_dirs,
        )
        return _embedded(config, machine, witness)
    return _zookeeper(config, machine)


class OpenIds(Protocol):
    """What a broker that starts without an id asks, and lets go of once it has one."""

    @property
    def mapping(self) -> BrokerIdMapping: ...

    def open(self, *, may_be_new: bool = True) -> None:
        """Find the cluster, or begin one if it ``may_be_new``. What keeps a broker from starting is raised."""
        ...

    def judge(self) -> Judgement:
        """What follows from the errors of the mapping so far."""
        ...

    def close(self) -> None: ...


class _EmbeddedIds:
    def __init__(self, store: EmbeddedStore, files: FileSystem, outgoing: Outgoing) -> None:
        self._store = store
        self._files = files
        self.mapping: BrokerIdMapping = RecordedBrokerIds(store, outgoing)

    def open(self, *, may_be_new: bool = True) -> None:
        copies = self._store.directories
        if not may_be_new and not any(self._files.exists(f"{path}/cluster.id") for path in copies):
            raise ConfigError(f"metadata.log.dirs: {', '.join(copies)} hold no cluster: expected one that has run")
        self._store.cluster_id()

    def judge(self) -> Judgement:
        return self._store.judge()

    def close(self) -> None:
        self._store.close()


class _ZooKeeperIds:
    def __init__(self, store: ZooKeeperStore, place: str) -> None:
        self._store = store
        self._place = place
        self.mapping: BrokerIdMapping = store.host_ids

    def open(self, *, may_be_new: bool = True) -> None:
        if not may_be_new and not self._store.has_cluster():
            raise ConfigError(f"zookeeper.connect: {self._place} holds no cluster: expected one that has run")
        self._store.cluster_id()

    def judge(self) -> Judgement:
        refused = self._store.host_ids.refused
        return Retry() if refused is None else Fatal(reason=f"ZooKeeper refuses this broker: {refused}")

    def close(self) -> None:
        self._store.close()


def open_broker_ids(config: BrokerConfig, machine: Machine) -> OpenIds:
    """Where the cluster keeps which host has which broker id; nothing is read or connected yet. ConfigError as of
    ``open_store``."""
    name = config.str("metadata.store")
    if name == STORE_EMBEDDED:
        # Its log directories keep no notes yet, and are not registered: it has no id by which they would be.
        given = config.metadata_witness_dirs if config.metadata_witness_dirs != config.log_dirs else ()
        return _EmbeddedIds(
            _embedded(config, machine, Witness(broker_id=None, directories=_absolute(given))),
            machine.files,
            Outgoing.of(config),
        )
    return _ZooKeeperIds(_zookeeper(config, machine), config.str("zookeeper.connect"))


def _absolute(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(os.path.abspath, paths))


def _embedded(config: BrokerConfig, machine: Machine, witness: Witness) -> EmbeddedStore:
    return EmbeddedStore(
        config.metadata_log_dirs,
        files=machine.files,
        new_id=machine.new_id,
        clock=lambda: int(machine.wall_s() * 1000),
        lanes=machine.lanes("metadata"),
        readers=machine.lanes("metadata-look"),
        patience_s=config.int("metadata.log.dir.timeout.ms") / 1000,
        witness=witness,
        apart=[path for path in config.metadata_log_dirs if not _holds_logs(path, config.log_dirs)],
    )


def _holds_logs(path: str, log_dirs: Sequence[str]) -> bool:
    above = f"{os.path.abspath(path)}/"
    return any(f"{each}/".startswith(above) for each in _absolute(log_dirs))


def _zookeeper(config: BrokerConfig, machine: Machine) -> ZooKeeperStore:
    settings = ZooKeeperSettings.of(config)
    return ZooKeeperStore(
        machine.ensemble(settings),
        machine.lanes("metadata"),
        wall_ms=lambda: int(machine.wall_s() * 1000),
        new_id=machine.new_id,
        connect_timeout_s=settings.connection_timeout_ms / 1000,
        outgoing=Outgoing.of(config),
        sets_acls=settings.set_acl,
    )


def ensemble_clients(settings: ZooKeeperSettings) -> Callable[[], AclClient]:
    """Clients of a real ensemble that are not started (EnsembleClients). kazoo is loaded here and nowhere else, so that
    a broker on the embedded store need not have it; ConfigError when it is not installed, or when a file that TLS needs
    cannot be used."""
    if settings.tls is not None:
        zookeeper_tls.check(settings.tls)
    try:
        from holdfast.coordination.kazoo_client import KazooZooKeeper
    except ModuleNotFoundError as e:
        raise ConfigError(
            f"metadata.store=zookeeper needs the package {e.name}: pip install 'holdfast[zookeeper]'"
        ) from e
    return lambda: KazooZooKeeper(settings)
