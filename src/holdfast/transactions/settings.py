"""What the transaction coordinator goes by; names are those of the configuration keys."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.config import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Defaults are Kafka's."""

    partitions: int = 50
    """Of ``__transaction_state``, when it is made."""
    max_timeout_ms: int = 900_000
    expiration_ms: int = 7 * 24 * 3_600_000
    expiration_check_ms: int = 3_600_000
    abort_retry_ms: int = 10_000
    """How long after an abort that could not be written it is tried again; the first comes when the time is up."""
    completion_retry_ms: int = 100
    """How long after the end of a transaction could not be written it is tried again."""
    max_batch_bytes: int = 512 * 1024
    """Tombstones are written in batches of about this size, below any max.message.bytes."""

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionSettings:
        """The settings that a broker's configuration says."""
        return cls(
            partitions=config.int("transaction.state.log.num.partitions"),
            max_timeout_ms=config.int("transaction.max.timeout.ms"),
            expiration_ms=config.int("transactional.id.expiration.ms"),
            expiration_check_ms=config.int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            abort_retry_ms=config.int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        )
