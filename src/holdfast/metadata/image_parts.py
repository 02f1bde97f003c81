"""What a ClusterImage is made of: brokers, topics and partitions, each as of one offset. image.py makes them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from immutables import Map

from holdfast.metadata.records import RecoveryState
from holdfast.model.listeners import Endpoints
from holdfast.model.types import (
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A registered broker. ``fenced``: it is not alive, leads nothing, is in no ISR of more than one."""

    id: BrokerId
    epoch: BrokerEpoch
    incarnation_id: UUID
    endpoints: Endpoints
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[DirectoryId, ...] = ()
    cordoned: tuple[DirectoryId, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()
    """Name, lowest and highest level that it knows."""

    @property
    def may_lead(self) -> bool:
        """Whether the broker, as a whole, can be a leader or join an ISR (H-05)."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """One partition. Invariants: the ISR is a subset of the replicas; the leader is in the ISR.

    ``elr``: replicas outside the ISR that have everything committed too (KIP-966). The ISR is empty only when the
    last of its members lost data: then the elr may lead, or, when that is empty too, and they are back, the longest
    log of the ``last_known_elr``, which left the ISR or the elr because they had lost their ends.
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId | None
    leader_epoch: LeaderEpoch = 0
    partition_epoch: PartitionEpoch = 0
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    directories: tuple[DirectoryId, ...] = ()
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    recovery_state: RecoveryState = RecoveryState.RECOVERED
    created: Offset = -1
    """Greater than the epochs of the brokers that were registered when it was made; -1: not known."""

    @property
    def is_reassigned(self) -> bool:
        """Whether some of the replicas are to come or to go."""
        return bool(self.adding or self.removing)

    def is_coming(self, broker: BrokerId) -> bool:
        """Whether its replica is being added and has never counted for anything: it may have nothing."""
        return broker in self.adding and broker not in (*self.isr, *self.elr, *self.last_known_elr)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas that are to stay."""
        return tuple(r for r in self.replicas if r not in self.removing) if self.removing else self.replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """One topic; its partitions are numbered from 0 without a gap."""

    name: str
    topic_id: TopicId
    partitions: Map[int, PartitionImage] = field(default_factory=Map)

    def numbered(self) -> Iterator[tuple[int, PartitionImage]]:
        """The partitions in their order; that of a persistent map is arbitrary."""
        partitions = self.partitions
        return ((number, partitions[number]) for number in range(len(partitions)))
