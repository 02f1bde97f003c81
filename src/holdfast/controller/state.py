"""What a controller knows: the image (changed by replay alone) and soft state that every reign learns anew.

Soft state is when each broker was last heard of (sessions) and which replicas live brokers cannot serve because
their log dir is dead (directories.py). Neither is in the metadata log: after a failover brokers heartbeat and
answer LeaderAndIsr again (K112-60, K112-101).
"""

from collections.abc import Mapping
from typing import Protocol, TypeAlias
from uuid import UUID

from holdfast.controller.directories import BrokerReplicas
from holdfast.controller.election import NO_ENDS, Ends, IsAlive
from holdfast.controller.settings import ControllerSettings
from holdfast.metadata.image import ClusterDelta, ClusterImage
from holdfast.model.fates import LogEnd
from holdfast.model.types import BrokerEpoch, BrokerId, DirectoryId, TimestampMs, TopicId

UNCLEAN = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"
Configs: TypeAlias = Mapping[str, str]


class Rng(Protocol):
    """What is needed of a random.Random."""

    def getrandbits(self, k: int, /) -> int: ...

    def randrange(self, stop: int, /) -> int: ...


class ControllerState:
    """One reign's state. Deciding functions read it; ``image`` is assigned by Controller.replay only."""

    __slots__ = (
        "awaiting", "ends", "head_start_ends_ms", "image", "newest_turns", "next_rebalance_ms", "offline",
        "offline_dirs", "reassigned", "reassignments_may_end",
        "returned", "rng", "sessions", "settings", "strained", "unheard",
        "unserved", "unsettled",
    )  # fmt: skip

    def __init__(self, image: ClusterImage, settings: ControllerSettings, rng: Rng) -> None:
        self.image = image
        self.settings = settings
        self.rng = rng
        self.offline = BrokerReplicas()
        self.strained = BrokerReplicas()
        """On a log dir that is full or slow: they join no ISR, as the next write would wait for them."""
        self.newest_turns: dict[BrokerId, tuple[BrokerEpoch, int]] = {}
        """The heartbeat of each broker that was the last to tell of its replicas."""
        self.returned = BrokerReplicas()
        """They have failed, and are back: what their leaders knew of them is void, and was made so."""
        self.ends: dict[tuple[TopicId, int], dict[BrokerId, LogEnd]] = {}
        """How far logs go, of partitions of which nobody has everything and that nobody leads."""
        self.offline_dirs: dict[BrokerId, frozenset[DirectoryId]] = {}
        self.sessions = BrokerSessions(settings.session_timeout_ms)
        self.unheard: set[BrokerId] = set()
        """Brokers that the image counts as alive and that were not heard of in this reign."""
        self.unsettled: set[BrokerId] = set()
        """Brokers that live for all that is known, and have not given a sign in this reign that settles anything."""
        self.awaiting: set[tuple[TopicId, int]] = set()
        """Partitions with somebody in the ISR who is dead, because nobody else of it had been heard of."""
        self.reassigned = {
            (topic.topic_id, number)
            for topic in image.sorted_topics()
            for number, partition in topic.numbered()
            if partition.is_reassigned
        }
        """Partitions whose replicas move."""
        self.reassignments_may_end = bool(self.reassigned)
        """Something has happened since they were looked at."""
        self.next_rebalance_ms: TimestampMs | None = None
        self.head_start_ends_ms: TimestampMs | None = None
        """Until then partitions without a leader wait for their preferred replica (R-32)."""
        self.unserved: dict[BrokerId, frozenset[BrokerEpoch]] = {}
        """Of a broker that registered and was not active since: earlier epochs whose data it still has. It may die
        before it has noted the new one, and say the old one when it comes again."""

    def alive(self, topic_id: TopicId, number: int, *, without: BrokerId | None = None) -> IsAlive:
        """Whether a broker can lead, or be in the ISR of, this partition; ``without`` cannot."""
        brokers, offline = self.image.brokers, self.offline

        def is_alive(broker_id: BrokerId) -> bool:
            broker = brokers.get(broker_id)
            return (
                broker is not None
                and broker_id != without
                and broker.may_lead
                and not offline.holds(broker_id, topic_id, number)
            )

        return is_alive

    def heard_of(self, broker_id: BrokerId) -> bool:
        """Whether a broker gave a sign of life in this reign."""
        return broker_id not in self.unheard

    def settle(self, broker_id: BrokerId) -> bool:
        """It is known now whether the broker lives; whether that was not known before."""
        was_unheard = broker_id in self.unsettled
        self.unheard.discard(broker_id)
        self.unsettled.discard(broker_id)
        self.reassignments_may_end = self.reassignments_may_end or (was_unheard and bool(self.reassigned))
        return was_unheard

    def unclean_allowed(self, topic: str) -> bool:
        """Whether a replica outside the ISR may lead when nobody else can."""
        return self.unclean_by(self.image.topic_configs(topic), self.image.broker_configs(None))

    def unclean_by(self, topic: Configs, default: Configs) -> bool:
        """As ``unclean_allowed``, of a topic that has these configurations, in a cluster that has this default."""
        value = topic.get(UNCLEAN, default.get(UNCLEAN))
        return self.settings.unclean_election if value is None else value == "true"

    def min_isr(self, topic: str) -> int:
        """min.insync.replicas of a topic, as its leaders go by it: the topic's, the cluster's, the file's."""
        return self.min_isr_by(self.image.topic_configs(topic), self.image.broker_configs(None))

    def min_isr_by(self, topic: Configs, default: Configs) -> int:
        """As ``min_isr``, of a topic that has these configurations, in a cluster that has this default."""
        value = topic.get(MIN_ISR, default.get(MIN_ISR))
        return self.settings.min_insync_replicas if value is None else int(value)

    def log_ends(self, topic_id: TopicId, number: int) -> Ends:
        """What was told of the ends of logs since nobody leads this partition."""
        return self.ends.get((topic_id, number), NO_ENDS)

    def forget_ends(self, delta: ClusterDelta) -> None:
        """What was told of the ends of logs is old once somebody leads, or everybody is told anew."""
        if not self.ends:
            return
        for name, numbers in delta.changed_topics.items():
            for number in numbers:
                self.ends.pop((self.image.topics[name].topic_id, number), None)
        for topic_id, number in [key for key in self.ends if key[0] in delta.deleted_topics]:
            del self.ends[topic_id, number]

    def follow_replicas(self, delta: ClusterDelta) -> None:
        """Which partitions are reassigned now; what is known of replicas that brokers have no more is forgotten."""
        if delta.deleted_topics:
            self.reassigned = {replica for replica in self.reassigned if replica[0] not in delta.deleted_topics}
        moved = bool(delta.changed_brokers)
        for name, numbers in delta.changed_topics.items():
            before, now = delta.before.topics.get(name), self.image.topics[name]
            for number in numbers:
                replica = (now.topic_id, number)
                moved = moved or replica in self.reassigned
                (self.reassigned.add if now.partitions[number].is_reassigned else self.reassigned.discard)(replica)
            if before is None or before.topic_id != now.topic_id:
                continue
            for number in numbers:
                old = before.partitions.get(number)
                for broker in set(() if old is None else old.replicas).difference(now.partitions[number].replicas):
                    for replicas in (self.offline, self.strained, self.returned):
                        replicas.discard(broker, (now.topic_id, number))

        if self.reassigned and moved:
            self.reassignments_may_end = True

    def new_id(self) -> UUID:
        """A random id for a topic."""
        return UUID(int=self.rng.getrandbits(128), version=4)


class BrokerSessions:
    """When each live broker was last heard of. A broker that is silent for the timeout is dead.

    A controller that was stopped itself (SIGSTOP, a suspended machine) has not listened: that time counts against
    nobody. It shows as a gap between two looks at the clock that is long beside the timeout, since each broker
    heartbeats several times within it.
    """

    __slots__ = ("_last_look_ms", "_seen_ms", "_timeout_ms")

    def __init__(self, timeout_ms: TimestampMs) -> None:
        self._timeout_ms = timeout_ms
        self._seen_ms: dict[BrokerId, TimestampMs] = {}
        self._last_look_ms: TimestampMs | None = None

    def look(self, now_ms: TimestampMs) -> None:
        """Note that the controller runs now."""
        if self._last_look_ms is not None and now_ms - self._last_look_ms > self._timeout_ms // 2:
            gap_ms = now_ms - self._last_look_ms
            self._seen_ms = {broker: seen + gap_ms for broker, seen in self._seen_ms.items()}
        self._last_look_ms = now_ms

    def touch(self, broker: BrokerId, now_ms: TimestampMs) -> None:
        """The broker was heard of."""
        self._seen_ms[broker] = now_ms

    def forget(self, broker: BrokerId) -> None:
        """The broker is not alive, or gone."""
        self._seen_ms.pop(broker, None)

    def expired(self, now_ms: TimestampMs) -> list[BrokerId]:
        """The brokers whose time is up."""
        return sorted(b for b, seen in self._seen_ms.items() if now_ms - seen >= self._timeout_ms)

    def deadline_ms(self) -> TimestampMs | None:
        """When the next session ends."""
        return min(self._seen_ms.values()) + self._timeout_ms if self._seen_ms else None

    def alive(self, broker: BrokerId, now_ms: TimestampMs) -> bool:
        """Whether the broker was heard of within the timeout."""
        seen = self._seen_ms.get(broker)
        return seen is not None and now_ms - seen < self._timeout_ms
