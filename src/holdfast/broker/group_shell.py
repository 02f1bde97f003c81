"""The group coordinator (pure: groups/) in its host (coordinator_host.py): what it gets of this broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from holdfast.broker.coordinator_host import CoordinatorHost, Coordinators, CoordinatorsHost
from holdfast.broker.transactional_appends import ABORTABLE_VERSION, ADDS_VERSION, TransactionalAppends, TxnBatch
from holdfast.coordinators.journal import CoordinatorLog
from holdfast.groups.coordinator import GroupCoordinator
from holdfast.groups.settings import GroupSettings
from holdfast.groups.types import OffsetsTransaction
from holdfast.model.errors import HoldfastError
from holdfast.model.internal_topics import OFFSETS_TOPIC
from holdfast.model.types import TopicPartition
from holdfast.records.batch import parse_header
from holdfast.replication.types import ProduceResult

if TYPE_CHECKING:
    from holdfast.model.config import BrokerConfig

_ADDED_BY_BROKER: Final = 5
"""First version of TxnOffsetCommit whose clients leave it to the broker to add the partition (KIP-890)."""
_KNOWS_ABORTABLE: Final = 4


class GroupsHost(CoordinatorsHost, Protocol):
    """What the group coordinator's shell asks of the broker."""

    config: BrokerConfig
    coordinators: Coordinators
    transactional_appends: TransactionalAppends


class GroupShell:
    """See the module's docstring."""

    def __init__(self, broker: GroupsHost) -> None:
        rng = broker.platform.rng
        settings = GroupSettings.of(broker.config)
        timeout_ms = broker.config.int("offsets.commit.timeout.ms")

        def make(log: CoordinatorLog) -> GroupCoordinator:
            return GroupCoordinator(
                settings,
                _OffsetsLog(broker, log, timeout_ms),
                new_member_suffix=lambda: str(UUID(int=rng.getrandbits(128))),
            )

        self._host = CoordinatorHost(broker, broker.coordinators.places, make, timeout_ms=timeout_ms)
        self.coordinator = self._host.tenant
        broker.coordinators.add(self._host)

    def complete_transaction(self, partition: int, producer_id: int, committed: bool) -> None:
        """The marker of a producer's transaction is committed in a partition of ``__consumer_offsets``."""
        self.coordinator.complete_transaction(partition, producer_id, committed)


class _OffsetsLog:
    """``GroupLog``: appends of a transaction wait for its coordinator, as those of Produce do."""

    def __init__(self, broker: GroupsHost, log: CoordinatorLog, timeout_ms: int) -> None:
        self._broker = broker
        self._timeout_ms = timeout_ms
        self.append = log.append

    def append_within(
        self,
        transaction: OffsetsTransaction,
        partition: int,
        batch: bytearray,
        done: Callable[[HoldfastError | None], None],
    ) -> None:
        def appended(result: ProduceResult) -> None:
            done(result.error)

        tp = TopicPartition(OFFSETS_TOPIC, partition)
        epoch = self._broker.replicas.leader_epoch(tp)
        self._broker.transactional_appends.append(
            TxnBatch(
                tp,
                memoryview(batch),
                parse_header(batch),
                transaction.transactional_id,
                _as_of_produce(transaction.version),
                -1,
                self._timeout_ms,
                appended,
                coordinated_in=-1 if epoch is None else epoch,
            )
        )


def _as_of_produce(version: int) -> int:
    """The version of Produce that came with this one of TxnOffsetCommit: both say the same of their client."""
    if version >= _ADDED_BY_BROKER:
        return ADDS_VERSION
    return ABORTABLE_VERSION if version >= _KNOWS_ABORTABLE else ABORTABLE_VERSION - 1
