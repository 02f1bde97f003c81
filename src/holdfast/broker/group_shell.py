"""The group coordinator's disk and clock: loads what it needs when this broker comes to lead, appends what it says.

Owns which ``__consumer_offsets`` partitions are being loaded (group_loading.py). The coordinator itself is pure
(groups/).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from holdfast.broker.group_loading import GroupLoad, GroupLoads, LoadingHost
from holdfast.groups.coordinator import GroupCoordinator
from holdfast.groups.group import Group
from holdfast.groups.settings import GroupSettings
from holdfast.groups.types import GroupId
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition
from holdfast.replication.types import ProduceResult

if TYPE_CHECKING:
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.model.config import BrokerConfig
    from holdfast.replication.local_replicas import LocalReplicas

OFFSETS_TOPIC = "__consumer_offsets"


class GroupsHost(LoadingHost, Protocol):
    """What the group coordinator's shell asks of the broker."""

    config: BrokerConfig
    metadata: MetadataCache
    replicas: LocalReplicas

    def now_ms(self) -> int: ...


class GroupShell:
    """See the module's docstring; also the coordinator's GroupLog."""

    def __init__(self, broker: GroupsHost) -> None:
        self._broker = broker
        self._places = GroupLoads()
        self._loads: dict[TopicPartition, GroupLoad] = {}
        rng = broker.platform.rng
        self.coordinator = GroupCoordinator(
            GroupSettings.of(broker.config), self, new_member_suffix=lambda: str(UUID(int=rng.getrandbits(128)))
        )

    # -- GroupLog ----------------------------------------------------------------------------------------------

    def append(self, partition: int, batch: bytearray, done: Callable[[HoldfastError | None], None]) -> None:
        """Append to the partition's log with acks=all."""

        def appended(result: ProduceResult) -> None:
            done(result.error)

        self._broker.replicas.append(
            TopicPartition(OFFSETS_TOPIC, partition),
            batch,
            acks=-1,
            timeout_ms=self._broker.config.int("offsets.commit.timeout.ms"),
            now_ms=self._broker.now_ms(),
            done=appended,
        )

    def metadata_changed(self, deleted: set[str]) -> None:
        """Offsets of deleted topics go; the offsets topic has the partitions that it has."""
        partitions = self._broker.metadata.topics.get(OFFSETS_TOPIC)
        if partitions is not None:
            self.coordinator.partition_count = len(partitions)
        if deleted:
            self.coordinator.on_topics_deleted(deleted, self._broker.now_ms())

    # -- leadership --------------------------------------------------------------------------------------------

    def leadership_changed(self, tp: TopicPartition, is_leader: bool, leader_epoch: int) -> None:
        """A partition came to this broker or went: load its groups or drop them."""
        if tp.topic != OFFSETS_TOPIC:
            return
        before = self._loads.pop(tp, None)
        if before is not None:
            before.abandon()
        if not is_leader:
            self.coordinator.on_resigned(tp.partition)
            return
        self.coordinator.on_elected(tp.partition, leader_epoch)
        self._load(tp, leader_epoch)

    def _load(self, tp: TopicPartition, leader_epoch: int) -> None:
        broker, partition = self._broker, tp.partition

        def add(groups: dict[GroupId, Group]) -> None:
            self.coordinator.add(partition, leader_epoch, groups, broker.now_ms())

        def ready() -> None:
            self._loads.pop(tp, None)
            self.coordinator.serve(partition, leader_epoch, broker.now_ms())

        def is_wanted() -> bool:
            return broker.replicas.leader_epoch(tp) == leader_epoch

        load = self._loads[tp] = GroupLoad(broker, self._places, tp, is_wanted=is_wanted, add=add, ready=ready)
        load.start()
