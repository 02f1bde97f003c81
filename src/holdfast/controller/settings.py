"""What of a broker's configuration the controller goes by."""

from dataclasses import dataclass, field

from holdfast.model.config import BrokerConfig
from holdfast.model.types import TimestampMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Durations in ms. The defaults are Kafka's."""

    session_timeout_ms: TimestampMs = 9_000
    num_partitions: int = 1
    replication_factor: int = 1
    unclean_election: bool = False
    min_insync_replicas: int = 1
    auto_rebalance: bool = True
    rebalance_interval_ms: TimestampMs = 300_000
    imbalance_percentage: int = 10
    election_wait_ms: TimestampMs = 0
    max_partitions_per_request: int = 10_000
    producer_id_block: int = 1_000
    scram_secret: bytes = field(default=bytes(32), repr=False)
    """32 bytes of chance, for a cluster that has none yet (users.py)."""

    @classmethod
    def of(cls, config: BrokerConfig, scram_secret: bytes = bytes(32)) -> "ControllerSettings":
        """The settings that a broker's configuration gives. What is changed at run time is in the image (state.py), and
        may be taken back: for such keys the file counts here."""
        file = config.with_dynamic(default={}, broker={})
        return cls(
            session_timeout_ms=config.int("broker.session.timeout.ms"),
            num_partitions=config.int("num.partitions"),
            replication_factor=config.int("default.replication.factor"),
            min_insync_replicas=file.int("min.insync.replicas"),
            unclean_election=file.bool("unclean.leader.election.enable"),
            auto_rebalance=config.bool("auto.leader.rebalance.enable"),
            rebalance_interval_ms=config.int("leader.imbalance.check.interval.seconds") * 1000,
            imbalance_percentage=config.int("leader.imbalance.per.broker.percentage"),
            election_wait_ms=config.int("leader.election.wait.ms"),
            scram_secret=scram_secret,
        )
