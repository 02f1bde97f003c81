"""The controller: dispatch and deadlines, nothing else.

    handle(event, now) -> Decision(records, reply)      decides, by the modules beside this one
    replay(records, base_offset) -> ClusterDelta        alone changes the image
    due(now) -> events; next_deadline_ms()              what time brings

The shell calls ``handle`` and then ``replay`` for each event in turn, commits the records, and only then gives the
reply and tells the brokers (broadcast.py). Never waits, never looks at a clock, never sends.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.controller import (
    acls,
    broker_ids,
    brokers,
    configs,
    features,
    isr,
    quotas,
    reassignment,
    replicas,
    topics,
    users,
)
from holdfast.controller.acl_events import CreateAcls, DeleteAcls
from holdfast.controller.directories import BrokerReplicas
from holdfast.controller.events import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartition,
    AlterReassignments,
    BrokerConnectionLost,
    BrokerHeartbeat,
    BrokerRegister,
    ClaimBrokerId,
    CreatePartitions,
    CreateTopics,
    Decision,
    DeleteTopics,
    ElectLeaders,
    Event,
    ListReassignments,
    ManageBrokerIds,
    ReplicaEnds,
    ReplicasOffline,
    ReplicasOnline,
    ReplicaTurns,
    Tick,
    UnregisterBroker,
)
from holdfast.controller.feature_events import UpdateFeatures
from holdfast.controller.settings import ControllerSettings
from holdfast.controller.state import ControllerState, Rng
from holdfast.controller.user_events import AlterQuotas, AlterScramUsers
from holdfast.metadata.image import ClusterDelta, ClusterImage
from holdfast.metadata.records import MetadataRecord
from holdfast.model.types import BrokerEpoch, BrokerId, Offset, TimestampMs


class Controller:
    """One reign, from the image that was loaded on."""

    __slots__ = ("_state",)

    def __init__(self, image: ClusterImage, settings: ControllerSettings, rng: Rng) -> None:
        self._state = ControllerState(image, settings, rng)

    @property
    def image(self) -> ClusterImage:
        """The state as replayed."""
        return self._state.image

    def offline_replicas(self) -> BrokerReplicas:
        """Replicas of live brokers that are on dead log dirs; a live view."""
        return self._state.offline

    def begin(self, now_ms: TimestampMs, *, own_epoch: BrokerEpoch | None = None) -> None:
        """The reign starts: every broker that the image counts as alive has a whole session to be heard of.

        ``own_epoch``: of the broker that this runs in, which needs not be heard of.
        """
        state = self._state
        state.sessions.look(now_ms)
        for broker in state.image.brokers.values():
            if not broker.fenced:
                state.sessions.touch(broker.id, now_ms)
                state.unsettled.add(broker.id)
                if broker.epoch != own_epoch:
                    state.unheard.add(broker.id)
        # A member that shuts down is as good as away: the reign before may have waited for news of the others.
        may_lead = {broker.id for broker in state.image.brokers.values() if broker.may_lead}
        state.awaiting.update(
            (topic.topic_id, number)
            for topic in state.image.sorted_topics()
            for number, partition in topic.numbered()
            if not may_lead.issuperset(partition.isr)
        )
        if state.settings.auto_rebalance:
            state.next_rebalance_ms = now_ms + state.settings.rebalance_interval_ms

    def handle(self, event: Event, now_ms: TimestampMs) -> Decision:
        """What follows from the event. The image is as before until the records are replayed."""
        self._state.sessions.look(now_ms)
        return _HANDLERS[type(event)](self._state, event, now_ms)

    def hear(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: TimestampMs) -> bool:
        """A heartbeat came while nothing can be decided. Whether its broker counts as alive; then it goes on to."""
        state = self._state
        broker = state.image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch or not broker.may_lead:
            return False
        state.sessions.look(now_ms)
        state.sessions.touch(broker_id, now_ms)
        return True

    def replay(self, records: Sequence[MetadataRecord], base_offset: Offset) -> ClusterDelta:
        """Apply records that are, or are about to be, in the log from ``base_offset`` on."""
        self._state.image, delta = self._state.image.apply(records, base_offset)
        for topic_id in delta.deleted_topics:
            self._state.offline.forget_topic(topic_id)
            self._state.strained.forget_topic(topic_id)
            self._state.returned.forget_topic(topic_id)
        self._state.forget_ends(delta)
        self._state.follow_replicas(delta)
        self._check(delta)
        return delta

    def _check(self, delta: ClusterDelta) -> None:
        """What must hold of every partition, whatever was decided. It is asked before anything is recorded."""
        for name, numbers in delta.changed_topics.items():
            topic = self.image.topics.get(name)
            for number in numbers if topic is not None else ():
                p = topic.partitions.get(number) if topic is not None else None
                if p is None:
                    continue
                assert set(p.isr) <= set(p.replicas), f"{name}-{number}: ISR {p.isr} of {p.replicas}"
                assert p.leader is None or p.leader in p.isr, f"{name}-{number}: led by {p.leader}, ISR {p.isr}"
                assert set(p.isr).isdisjoint(p.elr), f"{name}-{number}: eligible beside the ISR: {p.elr}, {p.isr}"

    def due(self, now_ms: TimestampMs) -> list[Event]:
        """Events that time has brought; each is to be handled and replayed before the next call."""
        self._state.sessions.look(now_ms)
        deadline_ms = self.next_deadline_ms()
        return [Tick()] if deadline_ms is not None and now_ms >= deadline_ms else []

    def next_deadline_ms(self) -> TimestampMs | None:
        """When ``due`` has something next, if nothing else happens."""
        state = self._state
        at_once = 0 if state.reassignments_may_end or users.lacks_secret(state) else None
        deadlines = (state.sessions.deadline_ms(), state.next_rebalance_ms, state.head_start_ends_ms, at_once)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)


def _tick(state: ControllerState, event: Tick, now_ms: TimestampMs) -> Decision:
    """One thing at a time: what is still due then comes with the next tick."""
    records = brokers.expire(state, now_ms)
    if not records and state.reassignments_may_end:
        records = reassignment.finish(state)
    if not records:
        records = users.make_secret(state)
    if not records and state.head_start_ends_ms is not None and now_ms >= state.head_start_ends_ms:
        records = brokers.end_head_start(state)
    if not records and state.next_rebalance_ms is not None and now_ms >= state.next_rebalance_ms:
        state.next_rebalance_ms = now_ms + state.settings.rebalance_interval_ms
        records = isr.rebalance(state)
    return Decision(records=records)


_HANDLERS: Final[Mapping[type, Callable[[ControllerState, Any, TimestampMs], Decision]]] = {
    BrokerRegister: brokers.register,
    BrokerHeartbeat: brokers.heartbeat,
    BrokerConnectionLost: brokers.connection_lost,
    ReplicasOffline: replicas.replicas_offline,
    ReplicasOnline: replicas.replicas_online,
    ReplicaEnds: replicas.replica_ends,
    ReplicaTurns: replicas.turns,
    UnregisterBroker: brokers.unregister,
    ClaimBrokerId: broker_ids.claim,
    ManageBrokerIds: broker_ids.manage,
    Tick: _tick,
    AlterPartition: isr.alter_partition,
    ElectLeaders: isr.elect_leaders,
    CreateTopics: topics.create_topics,
    DeleteTopics: topics.delete_topics,
    CreatePartitions: topics.create_partitions,
    AlterReassignments: reassignment.alter,
    ListReassignments: reassignment.ongoing,
    AlterConfigs: configs.alter_configs,
    AllocateProducerIds: configs.allocate_producer_ids,
    CreateAcls: acls.create_acls,
    DeleteAcls: acls.delete_acls,
    AlterScramUsers: users.alter_scram_users,
    AlterQuotas: quotas.alter_quotas,
    UpdateFeatures: features.update_features,
}
