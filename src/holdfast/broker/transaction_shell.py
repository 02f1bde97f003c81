"""The transaction coordinator (pure: transactions/) in its host (coordinator_host.py): what it gets of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from holdfast.broker.coordinator_host import CoordinatorHost, Coordinators, CoordinatorsHost
from holdfast.broker.marker_sender import BrokerMarkers, MarkersHost
from holdfast.transactions.coordinator import TransactionCoordinator
from holdfast.transactions.settings import TransactionSettings

if TYPE_CHECKING:
    from holdfast.broker.producer_ids import ProducerIdShell
    from holdfast.model.config import BrokerConfig

APPEND_TIMEOUT_MS: Final = 30_000
"""How long a record may wait for replicas: request.timeout.ms of Kafka's brokers."""
FEATURE: Final = "transaction.version"


class TransactionsHost(CoordinatorsHost, MarkersHost, Protocol):
    """What the transaction coordinator's shell asks of the broker."""

    config: BrokerConfig
    coordinators: Coordinators
    producer_ids: ProducerIdShell


class TransactionShell:
    """See the module's docstring."""

    def __init__(self, broker: TransactionsHost) -> None:
        self._markers = BrokerMarkers(broker)
        settings = TransactionSettings.of(broker.config)
        host = CoordinatorHost(
            broker,
            broker.coordinators.places,
            lambda log: TransactionCoordinator(
                settings,
                log,
                markers=self._markers,
                fresh_id=broker.producer_ids.ask,
                version=lambda: broker.metadata.features.get(FEATURE, 0),
            ),
            timeout_ms=APPEND_TIMEOUT_MS,
        )
        self.coordinator = host.tenant
        broker.coordinators.add(host)

    def close(self) -> None:
        """The broker is ending."""
        self._markers.close()
