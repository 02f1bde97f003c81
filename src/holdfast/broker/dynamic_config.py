"""Configuration of brokers that changes while they run: the overrides that the controller tells with the metadata.

Owns nothing: lays them over the properties file's, and tells the parts that keep something of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from holdfast.model.errors import ConfigError
from holdfast.replication.throttle import ThrottleSide, throttled_partitions
from holdfast.security.connection_limits import ConnectionLimits

if TYPE_CHECKING:
    from holdfast.broker.admission import Admission
    from holdfast.broker.certificates import Certificates
    from holdfast.broker.cleaner import LogCleaner
    from holdfast.broker.cordons import Cordons
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.broker.moves import Moves
    from holdfast.broker.server import Server
    from holdfast.model.config import BrokerConfig, LogConfig
    from holdfast.model.types import BrokerId
    from holdfast.replication.local_replicas import LocalReplicas
    from holdfast.storage.log_manager import LogManager

THROTTLES = {
    ThrottleSide.LEADER: ("leader.replication.throttled.replicas", "leader.replication.throttled.rate"),
    ThrottleSide.FOLLOWER: ("follower.replication.throttled.replicas", "follower.replication.throttled.rate"),
}
"""The keys of topics and of brokers."""
log = logging.getLogger(__name__)


class ConfiguredHost(Protocol):
    """The broker whose configuration changes, and the parts that are told."""

    admission: Admission
    broker_id: BrokerId
    certificates: Certificates
    config: BrokerConfig
    metadata: MetadataCache
    logs: LogManager
    moves: Moves
    cordons: Cordons
    cleaner: LogCleaner
    server: Server
    replicas: LocalReplicas

    def log_config(self, topic: str) -> LogConfig: ...

    def now_ms(self) -> int: ...


def apply(broker: ConfiguredHost) -> None:
    """Take over what the metadata says now; costs nothing when that is what it said before."""
    told = broker.metadata.broker_configs
    default, own = told.get(None, {}), told.get(broker.broker_id, {})
    _take_over(broker, default, own)
    if own:  # by what is in force now
        broker.certificates.configured(own)


def _take_over(broker: ConfiguredHost, default: Mapping[str, str], own: Mapping[str, str]) -> None:
    before = broker.config
    if not default and not own and not before.dynamic_default and not before.dynamic:
        return
    try:
        config = before.with_dynamic(default=default, broker=own)
    except ConfigError as e:
        log.warning("the configuration of this broker stays as it was: %s", e)
        return
    if config == before:
        return
    broker.config = config
    for topic in broker.metadata.topics:
        broker.logs.update_config(topic, broker.log_config(topic))
    broker.moves.configured()
    broker.cordons.apply()
    broker.cleaner.wake()
    broker.server.limit(connection_limits(config))
    limit_replication(broker)


async def let_clients_in(broker: ConfiguredHost) -> None:
    """Accept clients as soon as all that the cluster has stored for this broker is in force: whoever came before would
    be taken as the broker's file has it, and stay."""
    while not broker.admission.is_open:
        updated = asyncio.Event()
        broker.metadata.on_next_update(updated.set)
        await updated.wait()
    await broker.certificates.take_over()
    broker.server.let_clients_in()


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    """Of all the listeners that the broker has."""
    return ConnectionLimits.of(config, [endpoint.name for endpoint in config.listeners])


def limit_replication(broker: ConfiguredHost) -> None:
    """Both sides' throttles of replication (KIP-73), by the broker's rates and the topics' lists of replicas."""
    configs = broker.metadata.topic_configs
    for side in ThrottleSide:
        replicas, rate = THROTTLES[side]
        topics = {
            topic: throttled_partitions([e.strip() for e in entries.split(",")], broker.broker_id)
            for topic, overrides in configs.items()
            if (entries := overrides.get(replicas))
        }
        named = {topic: found for topic, found in topics.items() if found is None or found}
        broker.replicas.throttle(side, broker.config.int(rate), named, broker.now_ms())
