"""Brokers come, live, drain and die: registration, heartbeats, fencing, controlled shutdown, dead log dirs.

    unregistered --register--> fenced --first heartbeat--> active --want_shutdown--> draining
                                 ^                            |                         |
                                 +---- silence, a closed and refusing port, a new incarnation, want_fence

Every change of these states goes by a table, BROKER (transitions.py).
A fenced broker leads nothing and leaves every ISR that has somebody else. Only an active one may lead or join.

One that comes back says what became of its replicas. Those that lost something stand for nothing any more (H-07):
they leave the ISR and the eligible leader replicas before the broker can be active. A fate KEPT is believed only of
the incarnation that was registered last, or of one before it when the last one was never active.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.controller import cordon, features
from holdfast.controller.election import IsAlive, Loss, adapt, awaits_news
from holdfast.controller.events import (
    BrokerConnectionLost,
    BrokerHeartbeat,
    BrokerRegister,
    Decision,
    HeartbeatReply,
    Registered,
    UnregisterBroker,
)
from holdfast.controller.state import ControllerState
from holdfast.controller.transitions import BROKER, BrokerStanding, Sign, standing
from holdfast.metadata import host_records
from holdfast.metadata.image import BrokerImage, PartitionImage, TopicImage
from holdfast.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from holdfast.model.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InconsistentClusterIdError,
    InvalidRequestError,
    StaleBrokerEpochError,
)
from holdfast.model.fates import ALL_KEPT, ReplicaFate, ReplicaFates
from holdfast.model.types import BrokerEpoch, BrokerId, TimestampMs, TopicPartition


def register(state: ControllerState, event: BrokerRegister, now_ms: TimestampMs) -> Decision:
    """A broker starts. A new incarnation at the same address is proof that the one before is dead."""
    if event.cluster_id is not None and event.cluster_id != state.image.cluster_id:
        return Decision(
            reply=InconsistentClusterIdError(
                f"Broker {event.broker_id} is of cluster {event.cluster_id}, expected {state.image.cluster_id}"
            )
        )
    unsupported = features.missing(state.image, event)
    if unsupported is not None:
        return Decision(reply=unsupported)
    known = state.image.brokers.get(event.broker_id)
    records: list[MetadataRecord] = [*features.beginning(state.image)]
    if known is not None:
        if known.incarnation_id == event.incarnation_id:
            # The answer to its first registration was lost: it is the same broker still.
            return Decision(reply=Registered(broker_epoch=known.epoch))
        elsewhere = not known.endpoints.shares_address_with(event.endpoints)
        if elsewhere and not known.fenced and state.sessions.alive(event.broker_id, now_ms):
            return Decision(
                reply=DuplicateBrokerRegistrationError(
                    f"Broker id {event.broker_id} is in use by the live broker at {known.endpoints}; "
                    f"the one at {event.endpoints} needs an id of its own"
                )
            )
    fates = _believed(state, event, known)
    state.settle(event.broker_id)
    records += _partitions_without(state, event.broker_id, fates)
    state.sessions.forget(event.broker_id)
    state.offline.forget_broker(event.broker_id)
    state.strained.forget_broker(event.broker_id)
    state.returned.forget_broker(event.broker_id)
    state.offline_dirs.pop(event.broker_id, None)
    epoch = state.image.next_offset + len(records)
    inter_broker, control_plane = event.endpoints.choice
    records.append(
        RegisterBrokerRecord(
            broker_id=event.broker_id,
            incarnation_id=event.incarnation_id,
            broker_epoch=epoch,
            endpoints=event.endpoints.listeners,
            features=event.features,
            rack=event.rack,
            fenced=BROKER.after(standing(known), Sign.REGISTERED).fenced,
            log_dirs=tuple(sorted(event.log_dirs)),
            cordoned=cordon.at_registration(state.image, event),
            inter_broker=inter_broker,
            control_plane=control_plane,
        )
    )
    if event.host is not None:
        records += host_records.registered(state.image, event.host, event.broker_id)
    return Decision(records=tuple(records), reply=Registered(broker_epoch=epoch))


def _believed(state: ControllerState, event: BrokerRegister, known: BrokerImage | None) -> ReplicaFates:
    """What the broker says of its replicas, as far as its files are of the incarnation that we know."""
    fates, earlier = event.fates, state.unserved.pop(event.broker_id, frozenset())
    if known is None or fates.continues is None:
        return fates
    if fates.continues == known.epoch or fates.continues in earlier:
        state.unserved[event.broker_id] = earlier | {fates.continues}
        return fates
    return ReplicaFates(rest=_doubted(fates.rest), others={tp: _doubted(fate) for tp, fate in fates.others.items()})


def _doubted(fate: ReplicaFate) -> ReplicaFate:
    return ReplicaFate.DAMAGED if fate is ReplicaFate.KEPT else fate


def heartbeat(state: ControllerState, event: BrokerHeartbeat, now_ms: TimestampMs) -> Decision:
    """A broker lives, and says what it wants."""
    broker = _current(state, event.broker_id, event.broker_epoch)
    if isinstance(broker, Exception):
        return Decision(reply=broker)
    resend = _note_offline_dirs(state, event)
    after = BROKER.after(standing(broker), _said(event))
    records = [*_change(broker, after)]
    is_news = state.settle(broker.id)
    if after is BrokerStanding.ACTIVE and (broker.fenced or is_news):
        records += _partitions_with(state, broker, now_ms)
    elif records and not broker.fenced:
        records = [*_partitions_without(state, broker.id), *records]
    if broker.fenced and not after.fenced:
        state.unserved.pop(broker.id, None)
        records += host_records.seen_alive(state.image, broker.id)
    directories = cordon.change(broker, event)
    if directories is not None:
        records.append(directories)
    if after.fenced:
        state.sessions.forget(broker.id)
    else:
        state.sessions.touch(broker.id, now_ms)
    return Decision(
        records=tuple(records),
        reply=HeartbeatReply(
            is_caught_up=True,
            is_fenced=after.fenced,
            # Draining takes all leaders off at once, so from the first such heartbeat on nothing is left to wait for.
            should_shut_down=event.want_shutdown,
        ),
        resend_to=resend,
    )


def _said(event: BrokerHeartbeat) -> Sign:
    if event.want_shutdown:
        return Sign.WANT_SHUTDOWN
    return Sign.WANT_FENCE if event.want_fence else Sign.HEARTBEAT


def _note_offline_dirs(state: ControllerState, event: BrokerHeartbeat) -> tuple[BrokerId, ...]:
    dirs = frozenset(event.offline_dirs)
    news = dirs - state.offline_dirs.get(event.broker_id, frozenset())
    state.offline_dirs[event.broker_id] = dirs
    return (event.broker_id,) if news else ()


def connection_lost(state: ControllerState, event: BrokerConnectionLost, now_ms: TimestampMs) -> Decision:
    """A closed connection whose port refuses is a dead broker; anything less waits for its session (DESIGN 11)."""
    broker = state.image.brokers.get(event.broker_id)
    if broker is None or broker.epoch != event.broker_epoch or broker.fenced or not event.refused:
        return Decision()
    return Decision(records=fence(state, broker))


def fence(state: ControllerState, broker: BrokerImage) -> tuple[MetadataRecord, ...]:
    """The records that take a broker out of service: itself last. A controller that finds only the first of them
    recorded takes the broker for alive, hears nothing of it, and fences it."""
    after = BROKER.after(standing(broker), Sign.DEAD)
    state.sessions.forget(broker.id)
    state.settle(broker.id)
    return (*_partitions_without(state, broker.id), *_change(broker, after))


def expire(state: ControllerState, now_ms: TimestampMs) -> tuple[MetadataRecord, ...]:
    """Fence brokers that were silent too long; one at a time, since each changes what the next may leave behind."""
    for broker_id in state.sessions.expired(now_ms):
        broker = state.image.brokers.get(broker_id)
        state.sessions.forget(broker_id)
        if broker is not None and not broker.fenced:
            return fence(state, broker)
    return ()


def unregister(state: ControllerState, event: UnregisterBroker, now_ms: TimestampMs) -> Decision:
    """Forget a broker for good: one that was stopped. A live one would register again with its next heartbeat, and
    lose its leaders for nothing meanwhile (K1066-16)."""
    broker = state.image.brokers.get(event.broker_id)
    if broker is None:
        return Decision(reply=BrokerIdNotRegisteredError(f"Broker ID {event.broker_id} is not currently registered"))
    if not broker.fenced:
        host, port = broker.endpoints.for_clients[0].address  # a client asks
        return Decision(
            reply=InvalidRequestError(
                f"Broker ID {event.broker_id} at {host}:{port} is alive: expected one that was stopped"
            )
        )
    BROKER.after(standing(broker), Sign.UNREGISTERED)
    state.sessions.forget(broker.id)
    state.settle(broker.id)
    state.offline.forget_broker(broker.id)
    state.strained.forget_broker(broker.id)
    state.returned.forget_broker(broker.id)
    state.offline_dirs.pop(broker.id, None)
    state.unserved.pop(broker.id, None)
    return Decision(
        records=(
            *_partitions_without(state, broker.id),
            UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch),
        )
    )


# -- shared ----------------------------------------------------------------------------------------------------


def check_epoch(state: ControllerState, broker_id: BrokerId, epoch: BrokerEpoch) -> Exception | None:
    """Why a broker's request is not of its current incarnation; None when it is."""
    broker = _current(state, broker_id, epoch)
    return broker if isinstance(broker, Exception) else None


def _current(state: ControllerState, broker_id: BrokerId, epoch: BrokerEpoch) -> BrokerImage | Exception:
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        return _not_registered(broker_id)
    if broker.epoch != epoch:
        return StaleBrokerEpochError(f"Broker {broker_id} has epoch {broker.epoch}, not {epoch}")
    return broker


def _not_registered(broker_id: BrokerId) -> BrokerIdNotRegisteredError:
    return BrokerIdNotRegisteredError(f"Broker {broker_id} is not registered")


def _change(broker: BrokerImage, after: BrokerStanding) -> Iterator[MetadataRecord]:
    """What makes ``after`` of the broker; nothing when it is that already."""
    if after is not standing(broker):
        yield BrokerRegistrationChangeRecord(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            fenced=None if after.fenced == broker.fenced else after.fenced,
            in_controlled_shutdown=None if after.drains == broker.in_controlled_shutdown else after.drains,
        )


def _hosted(state: ControllerState, broker_id: BrokerId) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    """The partitions that have a replica on the broker."""
    for topic in state.image.sorted_topics():
        for number, partition in topic.numbered():
            if broker_id in partition.replicas:
                yield topic, number, partition


def _partitions_without(
    state: ControllerState, broker_id: BrokerId, fates: ReplicaFates = ALL_KEPT
) -> Iterator[MetadataRecord]:
    """What changes when the broker can lead nothing any more, and when its replicas had these fates."""
    for topic, number, partition in _hosted(state, broker_id):
        loss = None if _was_never_led(partition) else _LOSSES.get(fates.of(TopicPartition(topic.name, number)))
        if loss is not None:
            concerned = broker_id in (*partition.isr, *partition.elr, *partition.last_known_elr)
        else:  # where nobody leads, who was not there before is no less there now
            concerned = partition.leader is not None and broker_id in partition.isr
        if not concerned:
            continue
        change = adapt_isr(
            state, topic, number, partition, state.alive(topic.topic_id, number, without=broker_id),
            unclean=partition.leader in (None, broker_id) and state.unclean_allowed(topic.name),
            loss=None if loss is None else Loss(broker=broker_id, total=loss),
        )  # fmt: skip
        if change is not None:
            yield change


def _was_never_led(partition: PartitionImage) -> bool:
    """Whether it is as an import made it, without a leader: nobody could write, and a broker that has nothing of it has
    lost nothing."""
    return partition.leader is None and partition.partition_epoch == 0


def adapt_isr(
    state: ControllerState,
    topic: TopicImage,
    number: int,
    partition: PartitionImage,
    is_alive: IsAlive,
    *,
    unclean: bool,
    loss: Loss | None = None,
) -> PartitionChangeRecord | None:
    """What follows when a replica went away; what cannot be said yet is looked at again with the next sign of life."""
    if awaits_news(partition, is_alive, state.heard_of):
        state.awaiting.add((topic.topic_id, number))
    return adapt(
        topic.topic_id,
        number,
        partition,
        is_alive,
        min_isr=state.min_isr(topic.name),
        unclean=unclean,
        loss=loss,
        heard_of=state.heard_of,
    )


_LOSSES: Final = {ReplicaFate.DAMAGED: False, ReplicaFate.LOST: True}
"""Fates that cost a replica its standing: whether all of it is lost."""


def _partitions_with(state: ControllerState, broker: BrokerImage, now_ms: TimestampMs) -> Iterator[MetadataRecord]:
    """What changes when the broker can lead, or is known to: partitions without a leader get one."""
    for topic, number, partition in _hosted(state, broker.id):
        if state.offline.holds(broker.id, topic.topic_id, number):
            continue
        awaited = (topic.topic_id, number) in state.awaiting and broker.id in partition.isr
        if awaited:
            state.awaiting.discard((topic.topic_id, number))
        elif partition.leader is not None:
            continue
        is_alive = _or(broker.id, state.alive(topic.topic_id, number))
        if partition.leader is None and _waits_for_preferred(state, partition, is_alive, now_ms):
            continue
        change = elect_somebody(state, topic, number, partition, is_alive)
        if change is not None:
            yield change


def elect_somebody(
    state: ControllerState, topic: TopicImage, number: int, partition: PartitionImage, is_alive: IsAlive
) -> MetadataRecord | None:
    return adapt(
        topic.topic_id,
        number,
        partition,
        is_alive,
        min_isr=state.min_isr(topic.name),
        unclean=state.unclean_allowed(topic.name),
        ends=state.log_ends(topic.topic_id, number),
        heard_of=state.heard_of,
    )


def _waits_for_preferred(
    state: ControllerState, partition: PartitionImage, is_alive: IsAlive, now_ms: TimestampMs
) -> bool:
    """The preferred replica may lead and is not back yet: others wait for it a while, if that is configured."""
    preferred = partition.replicas[0]
    wait_ms = state.settings.election_wait_ms
    if not wait_ms or is_alive(preferred) or not (preferred in partition.isr or preferred in partition.elr):
        return False
    if state.head_start_ends_ms is None:
        state.head_start_ends_ms = now_ms + wait_ms
    return True


def end_head_start(state: ControllerState) -> tuple[MetadataRecord, ...]:
    """Preferred replicas that are not back by now are not waited for."""
    state.head_start_ends_ms = None
    changes = (
        elect_somebody(state, topic, number, partition, state.alive(topic.topic_id, number))
        for topic in state.image.sorted_topics()
        for number, partition in topic.numbered()
        if partition.leader is None
    )
    return tuple(change for change in changes if change is not None)


def _or(broker_id: BrokerId, others: IsAlive) -> IsAlive:
    return lambda candidate: candidate == broker_id or others(candidate)
