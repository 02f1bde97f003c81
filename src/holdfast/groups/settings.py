"""What the group coordinator goes by; names are those of the configuration keys."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.config import BrokerConfig

_MS_PER_MINUTE = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Defaults are Kafka's."""

    offsets_partitions: int = 50
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4096
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2_147_483_647
    new_member_join_timeout_ms: int = 300_000
    """A new member that waits in JoinGroup is kept this long, whatever its session timeout: its client can not
    send heartbeats meanwhile."""
    max_batch_bytes: int = 512 * 1024
    """Tombstones of a large group are written in batches of about this size, below any max.message.bytes."""

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupSettings:
        """The settings that a broker's configuration says."""
        return cls(
            offsets_partitions=config.int("offsets.topic.num.partitions"),
            offsets_retention_ms=config.int("offsets.retention.minutes") * _MS_PER_MINUTE,
            offsets_check_interval_ms=config.long("offsets.retention.check.interval.ms"),
            offset_metadata_max_bytes=config.int("offset.metadata.max.bytes"),
            min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
            max_size=config.int("group.max.size"),
        )
