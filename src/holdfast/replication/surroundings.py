"""What all partitions of one broker share: settings, the way out, the clock, and who is looked at by a tick."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Protocol

from holdfast.model.types import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from holdfast.replication.isr import FollowerProgress, IsrState
from holdfast.replication.throttle import Throttle
from holdfast.replication.traffic import Traffic
from holdfast.replication.types import Outbox, ReplicationSettings, Role
from holdfast.replication.waiters import WaiterDeadlines
from holdfast.storage.log import Log


class Leading(Protocol):
    """A partition, as far as who changes its ISR has to know it (isr_changes.py)."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch
    around: Surroundings
    role: Role
    log: Log | None
    epoch_start: Offset | None
    high_watermark: Offset
    replicas: tuple[BrokerId, ...]
    isr: IsrState
    followers: dict[BrokerId, FollowerProgress]

    @property
    def entries(self) -> Container[BrokerId]:
        """Followers that are connected."""

    @property
    def is_open(self) -> bool:
        """It leads and serves."""

    def choose_hw_followers(self) -> None: ...

    def advance(self, now_ms: int) -> None: ...

    def check_deletions(self) -> None: ...


class Surroundings:
    """One per broker; see the module's docstring."""

    __slots__ = (
        "broker_id",
        "clock",
        "deadlines",
        "fetching",
        "outbox",
        "retrying",
        "sending",
        "settings",
        "traffic",
        "watched",
    )

    def __init__(
        self,
        broker_id: BrokerId,
        settings: ReplicationSettings,
        outbox: Outbox,
        clock: Callable[[], int],
        traffic: Traffic | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.outbox = outbox
        self.clock = clock
        self.traffic = traffic
        """What went in and out; None: nobody counts."""
        self.deadlines = WaiterDeadlines()
        self.watched: dict[Leading, None] = {}
        """Led partitions with a follower that may be behind; the only ones that a tick looks at."""
        self.sending = Throttle()
        """What leaders here may send to followers that are out of sync."""
        self.fetching = Throttle()
        """What followers here may fetch while they are out of sync."""
        self.retrying: dict[Leading, None] = {}
        """Led partitions that have something to propose again later."""
