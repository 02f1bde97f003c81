"""What all partitions of one broker share: settings, the way out, the clock, and who is looked at by a tick."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.model.types import BrokerId
from holdfast.replication.throttle import Throttle
from holdfast.replication.types import Outbox, ReplicationSettings
from holdfast.replication.waiters import Deadlines

if TYPE_CHECKING:
    from holdfast.replication.partition import Partition


class Surroundings:
    """One per broker; see the module's docstring."""

    __slots__ = ("broker_id", "clock", "deadlines", "fetching", "outbox", "retrying", "sending", "settings", "watched")

    def __init__(
        self, broker_id: BrokerId, settings: ReplicationSettings, outbox: Outbox, clock: Callable[[], int]
    ) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.outbox = outbox
        self.clock = clock
        self.deadlines = Deadlines()
        self.watched: dict[Partition, None] = {}
        """Led partitions with a follower that may be behind; the only ones that a tick looks at."""
        self.sending = Throttle()
        """What leaders here may send to followers that are out of sync."""
        self.fetching = Throttle()
        """What followers here may fetch while they are out of sync."""
        self.retrying: dict[Partition, None] = {}
        """Led partitions that have something to propose again later."""
