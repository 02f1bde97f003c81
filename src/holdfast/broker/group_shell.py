"""The group coordinator (pure: groups/) in its host (coordinator_host.py): what it gets of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from holdfast.broker.coordinator_host import CoordinatorHost, Coordinators, CoordinatorsHost
from holdfast.groups.coordinator import GroupCoordinator
from holdfast.groups.settings import GroupSettings

if TYPE_CHECKING:
    from holdfast.model.config import BrokerConfig


class GroupsHost(CoordinatorsHost, Protocol):
    """What the group coordinator's shell asks of the broker."""

    config: BrokerConfig
    coordinators: Coordinators


class GroupShell:
    """See the module's docstring."""

    def __init__(self, broker: GroupsHost) -> None:
        rng = broker.platform.rng
        settings = GroupSettings.of(broker.config)
        self._broker = broker
        self._host = CoordinatorHost(
            broker,
            broker.coordinators.places,
            lambda log: GroupCoordinator(settings, log, new_member_suffix=lambda: str(UUID(int=rng.getrandbits(128)))),
            timeout_ms=broker.config.int("offsets.commit.timeout.ms"),
        )
        self.coordinator = self._host.tenant
        broker.coordinators.add(self._host)
