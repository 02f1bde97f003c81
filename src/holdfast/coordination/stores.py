"""Which metadata store a broker has: the one place that knows them by name.

A broker goes by ``metadata.store`` and knows the protocol (metadata/store.py). What a store asks of the machine is
handed over, so that the simulation can give it another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol, TypeAlias
from uuid import UUID

from holdfast.coordination.embedded import EmbeddedStore, Witness
from holdfast.coordination.lanes import Lanes
from holdfast.coordination.zookeeper import ZooKeeperStore
from holdfast.coordination.zookeeper_client import ZooKeeperClient
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings
from holdfast.metadata.store import MetadataStore
from holdfast.model.config import STORE_EMBEDDED, BrokerConfig
from holdfast.model.errors import ConfigError
from holdfast.storage.files import FileSystem

EnsembleClients: TypeAlias = Callable[[ZooKeeperSettings], Callable[[], ZooKeeperClient]]
"""What makes clients of one ensemble, none of them started; from how it is reached. ConfigError at once when what that
needs is not installed."""


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
    return _embedded(config, machine) if name == STORE_EMBEDDED else _zookeeper(config, machine)


def _embedded(config: BrokerConfig, machine: Machine) -> EmbeddedStore:
    return EmbeddedStore(
        config.metadata_log_dirs,
        files=machine.files,
        new_id=machine.new_id,
        clock=lambda: int(machine.wall_s() * 1000),
        lanes=machine.lanes("metadata"),
        readers=machine.lanes("metadata-look"),
        patience_s=config.int("metadata.log.dir.timeout.ms") / 1000,
        witness=Witness(
            broker_id=config.node_id,
            directories=tuple(map(os.path.abspath, config.metadata_witness_dirs)),
            makes_place=config.metadata_witness_dirs != config.log_dirs,
        ),
    )


def _zookeeper(config: BrokerConfig, machine: Machine) -> ZooKeeperStore:
    settings = ZooKeeperSettings.of(config)
    return ZooKeeperStore(
        machine.ensemble(settings),
        machine.lanes("metadata"),
        wall_ms=lambda: int(machine.wall_s() * 1000),
        new_id=machine.new_id,
        connect_timeout_s=settings.connection_timeout_ms / 1000,
    )


def with_kazoo(settings: ZooKeeperSettings) -> Callable[[], ZooKeeperClient]:
    """Clients of a real ensemble (EnsembleClients). kazoo is loaded here and nowhere else, so that a broker on the
    embedded store need not have it."""
    try:
        from holdfast.coordination.kazoo_client import KazooZooKeeper
    except ModuleNotFoundError as e:
        raise ConfigError(
            f"metadata.store=zookeeper needs the package {e.name}: pip install 'holdfast[zookeeper]'"
        ) from e
    return lambda: KazooZooKeeper(settings)
