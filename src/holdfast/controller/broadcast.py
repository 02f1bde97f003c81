"""What each broker must be told after a change: LeaderAndIsr, StopReplica, UpdateMetadata (KIP-112's requests).

    plan(image, delta)   -> broker -> BrokerUpdate  what changed for whom; work grows with the change, not the cluster
    build_requests(...)  -> broker -> requests     in protocol/interbroker.py's classes, in the order of sending
    full_state_requests  -> requests               everything one broker must know: after a registration, a failover

Requests are desired state, fenced by controller, broker and leader epochs; a lost one is made good by the full
state. Order for one broker: replicas that must go, then what others need to take up a role (configurations, the
addresses of live brokers), then roles, then what clients may be told.

Equal parts are one object for all brokers: the states of a partition are made once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from uuid import UUID

from holdfast.controller.directories import Replicas
from holdfast.metadata.codec_acls import encode_acl_news
from holdfast.metadata.codec_news import changed_quotas, changed_users, encode_news
from holdfast.metadata.image import BrokerImage, ClusterDelta, ClusterImage, PartitionImage, TopicImage
from holdfast.metadata.records import ResourceType
from holdfast.model.types import BrokerId, ControllerEpoch, TopicId
from holdfast.protocol import interbroker
from holdfast.protocol.interbroker import (
    DEFAULT_BROKER,
    DELETED_LEADER,
    TYPE_FULL,
    TYPE_INCREMENTAL,
    LeaderAndIsrPartitionState,
    LeaderAndIsrTopicState,
    UpdateMetadataTopicState,
    config_pairs,
)

# The classes without their integer widths: numbers in here are plain ints, and wrapping each costs more than it tells.
_wire: Any = interbroker

Offline: TypeAlias = Mapping[BrokerId, Replicas]
"""Broker -> its replicas on dead log dirs (directories.BrokerReplicas)."""
Role: TypeAlias = tuple[TopicImage, int, PartitionImage, bool]
"""A partition for one of its replicas; True: the replica is new there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What every broker hears alike: partitions that changed for clients, topics that are gone, configurations."""

    partitions: Mapping[str, frozenset[int]] = field(default_factory=dict)
    deleted: tuple[TopicImage, ...] = ()
    topic_configs: tuple[str, ...] = ()
    broker_configs: tuple[str, ...] = ()
    acls: bytes = b""
    """Access control entries (codec_acls.py): all, or those that changed."""
    users: bytes = b""
    quotas: bytes = b""
    """Records of SCRAM users and of quotas (codec_news.py), likewise."""
    new_brokers: bool = False
    offline: Offline = field(default_factory=dict)

    @property
    def first(self) -> bool:
        """Whether something in it must be known before roles are taken up."""
        return self.new_brokers or bool(self.topic_configs) or bool(self.broker_configs)


@dataclass(slots=True, kw_only=True)
class BrokerUpdate:
    """What one broker is told. ``metadata`` is one object for all brokers."""

    roles: list[Role]
    stop: list[tuple[TopicImage, list[tuple[int, int | None]]]]
    """Topic as it was, and its partitions to delete here: number, and leader epoch (None: the topic is gone)."""
    metadata: Metadata


# -- plan ------------------------------------------------------------------------------------------------------


def plan(image: ClusterImage, delta: ClusterDelta, *, offline: Offline) -> dict[BrokerId, BrokerUpdate]:
    """Who must be told what of ``delta``; ``image`` is the image after it, or a later one.

    Fenced brokers are told too: one that just registered prepares its replicas, one that is only thought dead
    learns that it leads no more.
    """
    if delta.empty:
        return {}
    metadata = _metadata(image, delta, offline)
    outgoing = {broker: BrokerUpdate(roles=[], stop=[], metadata=metadata) for broker in image.brokers}
    for topic in delta.deleted_topics.values():
        _stop_topic(topic, outgoing)
    before = delta.before.topics
    for name, numbers in delta.changed_topics.items():
        now = image.topics.get(name)
        if now is None:
            continue  # a later change deleted it
        old = before.get(name)
        same = old is not None and old.topic_id == now.topic_id
        for number in sorted(numbers):
            partition = now.partitions.get(number)
            if partition is None:
                continue
            had = old.partitions.get(number) if same and old is not None else None
            old_replicas = () if had is None else had.replicas
            for broker in partition.replicas:
                target = outgoing.get(broker)
                if target is not None:
                    is_new = broker not in old_replicas or partition.is_coming(broker)  # again, until it is there (C18)
                    target.roles.append((now, number, partition, is_new))
            for broker in old_replicas:
                if broker not in partition.replicas and broker in outgoing:
                    outgoing[broker].stop.append((now, [(number, partition.leader_epoch)]))
    return outgoing


def _may_be_new(image: ClusterImage, broker_id: BrokerId, partition: PartitionImage) -> bool:
    """Whether the replica may never have been made, and cannot be on a directory that the broker did not see: its
    partition is younger than the broker's registration, or it is being added (H-20). Told twice is harmless (C18).

    Another controller may have made the partition, and died before it told anybody; and what happened to it since, its
    own death to begin with, is no sign that the broker has heard of it."""
    if broker_id in partition.adding:
        return partition.is_coming(broker_id)
    if partition.created < 0:
        return partition.partition_epoch == 0
    broker = image.brokers.get(broker_id)
    return broker is not None and partition.created > broker.epoch


def _metadata(image: ClusterImage, delta: ClusterDelta, offline: Offline) -> Metadata:
    partitions: dict[str, frozenset[int]] = {n: p for n, p in delta.changed_topics.items() if p}
    moved = [broker for broker in delta.changed_brokers if _alive(delta.before, broker) != _alive(image, broker)]
    if moved:
        # Their replicas become online or offline for clients, also where no leader or ISR changed.
        for topic in image.sorted_topics():
            touched = [n for n, p in topic.numbered() if any(b in p.replicas for b in moved)]
            if touched:
                partitions[topic.name] = partitions.get(topic.name, frozenset()).union(touched)
    return Metadata(
        partitions=partitions,
        deleted=tuple(delta.deleted_topics.values()),
        topic_configs=tuple(
            sorted(name for kind, name in delta.changed_configs if kind == ResourceType.TOPIC and name in image.topics)
        ),
        broker_configs=tuple(sorted(name for kind, name in delta.changed_configs if kind == ResourceType.BROKER)),
        acls=_changed_acls(image, delta),
        users=changed_users(image, delta),
        quotas=changed_quotas(image, delta),
        new_brokers=any(_alive(image, broker) for broker in moved),
        offline=offline,
    )


def _ahead_of_roles(metadata: Metadata) -> Metadata:
    """What of it must be known before roles are taken up."""
    return replace(metadata, partitions={}, deleted=(), acls=b"", users=b"", quotas=b"")


def _changed_acls(image: ClusterImage, delta: ClusterDelta) -> bytes:
    if not delta.changed_acls:
        return b""
    changed = sorted(delta.changed_acls)
    there = [acl for acl in changed if acl in image.acls]
    return encode_acl_news(there, [acl for acl in changed if acl not in image.acls])


def _stop_topic(topic: TopicImage, outgoing: dict[BrokerId, BrokerUpdate]) -> None:
    here: dict[BrokerId, list[tuple[int, int | None]]] = {}
    for number, partition in topic.numbered():
        for broker in partition.replicas:
            here.setdefault(broker, []).append((number, None))
    for broker, numbers in here.items():
        if broker in outgoing:
            outgoing[broker].stop.append((topic, sorted(numbers, key=lambda n: n[0])))


def _alive(image: ClusterImage, broker_id: BrokerId) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced


# -- build -----------------------------------------------------------------------------------------------------


def build_requests(
    image: ClusterImage,
    outgoing: Mapping[BrokerId, BrokerUpdate],
    controller_id: BrokerId,
    controller_epoch: ControllerEpoch,
) -> dict[BrokerId, list[Any]]:
    """The requests of a plan, in the order of sending."""
    builder = _Builder(image, controller_id, controller_epoch)
    shared: dict[int, tuple[Any, Any]] = {}
    result: dict[BrokerId, list[Any]] = {}
    for broker_id, out in outgoing.items():
        broker = image.brokers.get(broker_id)
        if broker is None:
            continue
        key = id(out.metadata)
        if key not in shared:
            first = builder.update_metadata(_ahead_of_roles(out.metadata))
            shared[key] = (first if out.metadata.first else None, builder.update_metadata(out.metadata))
        ahead, update = shared[key]
        requests: list[Any] = []
        if out.stop:
            requests.append(builder.stop_replica(broker, out.stop))
        if ahead is not None and out.roles:
            requests.append(replace(ahead, broker_epoch=broker.epoch))
        if out.roles:
            requests.append(builder.leader_and_isr(broker, out.roles, TYPE_INCREMENTAL))
        requests.append(replace(update, broker_epoch=broker.epoch))
        result[broker_id] = requests
    return result


class FullStates:
    """Everything that brokers must know, as of one image: what is the same for all of them is made once."""

    def __init__(
        self, image: ClusterImage, offline: Offline, controller_id: BrokerId, controller_epoch: ControllerEpoch
    ) -> None:
        self.image = image
        metadata = Metadata(
            partitions={topic.name: frozenset(topic.partitions) for topic in image.sorted_topics()},
            topic_configs=tuple(sorted(n for kind, n in image.configs if kind == ResourceType.TOPIC)),
            broker_configs=tuple(sorted(n for kind, n in image.configs if kind == ResourceType.BROKER)),
            # In all there is, nothing says that there are none: an earlier software reads no update with these fields.
            acls=encode_acl_news(acls) if (acls := tuple(image.acls)) else b"",
            users=encode_news(users) if (users := tuple(image.users.to_records())) else b"",
            quotas=encode_news(quotas) if (quotas := tuple(image.quotas.to_records())) else b"",
            offline=offline,
        )
        self._builder = _Builder(image, controller_id, controller_epoch)
        self._ahead = self._builder.update_metadata(_ahead_of_roles(metadata))
        self._update = self._builder.update_metadata(metadata, kind=TYPE_FULL)

    def requests(self, broker_id: BrokerId) -> list[Any]:
        """Those of one broker."""
        broker = self.image.brokers[broker_id]
        roles = [
            (topic, number, partition, _may_be_new(self.image, broker_id, partition))
            for topic in self.image.sorted_topics()
            for number, partition in topic.numbered()
            if broker_id in partition.replicas
        ]
        return [
            replace(self._ahead, broker_epoch=broker.epoch),
            self._builder.leader_and_isr(broker, roles, TYPE_FULL),
            replace(self._update, broker_epoch=broker.epoch),
        ]


def full_state_requests(
    image: ClusterImage,
    broker_id: BrokerId,
    offline: Offline,
    controller_id: BrokerId,
    controller_epoch: ControllerEpoch,
) -> list[Any]:
    """Everything a broker must know."""
    return FullStates(image, offline, controller_id, controller_epoch).requests(broker_id)


class _Builder:
    """Makes the requests of one image; keeps what several brokers are told alike."""

    def __init__(self, image: ClusterImage, controller_id: BrokerId, controller_epoch: ControllerEpoch) -> None:
        self._image = image
        self._controller_id = controller_id
        self._epoch = controller_epoch
        self._states: dict[tuple[TopicId, int, bool], LeaderAndIsrPartitionState] = {}
        self._topics: dict[tuple[int, ...], LeaderAndIsrTopicState] = {}
        self._live = tuple(
            _wire.UpdateMetadataBroker(
                id=broker.id,
                endpoints=tuple(
                    _wire.UpdateMetadataEndpoint(
                        port=e.port, host=e.host, listener=e.name, security_protocol=int(e.security_protocol)
                    )
                    for e in broker.endpoints.listeners
                ),
                rack=broker.rack,
                **_wire.listener_choice(broker.endpoints),
            )
            for broker in sorted(image.brokers.values(), key=lambda b: b.id)
            if not broker.fenced
        )

    def leader_and_isr(self, broker: BrokerImage, roles: Iterable[Role], kind: int) -> Any:
        by_topic: dict[TopicId, tuple[str, list[LeaderAndIsrPartitionState]]] = {}
        leaders: set[BrokerId] = set()
        for topic, number, partition, is_new in roles:
            if partition.leader is not None:
                leaders.add(partition.leader)
            found = by_topic.get(topic.topic_id)
            if found is None:
                found = by_topic[topic.topic_id] = (topic.name, [])
            found[1].append(self._state(topic.topic_id, number, partition, is_new))
        return _wire.LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._epoch,
            broker_epoch=broker.epoch,
            type=kind,
            topic_states=tuple(self._topic(name, i, states) for i, (name, states) in by_topic.items()),
            live_leaders=tuple(
                _wire.LeaderAndIsrLiveLeader(
                    broker_id=b.id, host_name=b.endpoints.for_brokers.host, port=b.endpoints.for_brokers.port
                )
                for b in (self._image.brokers.get(leader) for leader in sorted(leaders))
                if b is not None
            ),
        )

    def _topic(self, name: str, topic_id: UUID, states: list[LeaderAndIsrPartitionState]) -> LeaderAndIsrTopicState:
        key = tuple(map(id, states))  # the states live in self._states as long as the keys do
        topic = self._topics.get(key)
        if topic is None:
            topic = _wire.LeaderAndIsrTopicState(topic_name=name, topic_id=topic_id, partition_states=tuple(states))
            self._topics[key] = topic
        return topic

    def _state(
        self, topic_id: TopicId, number: int, partition: PartitionImage, is_new: bool
    ) -> LeaderAndIsrPartitionState:
        key = (topic_id, number, is_new)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = _wire.LeaderAndIsrPartitionState(
                partition_index=number,
                controller_epoch=self._epoch,
                leader=-1 if partition.leader is None else partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=partition.isr,
                partition_epoch=partition.partition_epoch,
                replicas=partition.replicas,
                adding_replicas=partition.adding,
                removing_replicas=partition.removing,
                is_new=is_new,
                leader_recovery_state=int(partition.recovery_state),
                eligible=partition.elr,
            )
        return state

    def stop_replica(self, broker: BrokerImage, stop: Iterable[tuple[TopicImage, list[tuple[int, int | None]]]]) -> Any:
        return _wire.StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=self._epoch,
            broker_epoch=broker.epoch,
            topic_states=tuple(
                _wire.StopReplicaTopicState(
                    topic_name=topic.name,
                    topic_id=topic.topic_id,
                    partition_states=tuple(
                        _wire.StopReplicaPartitionState(
                            partition_index=number,
                            leader_epoch=DELETED_LEADER if epoch is None else epoch,
                            delete_partition=True,
                        )
                        for number, epoch in numbers
                    ),
                )
                for topic, numbers in stop
            ),
        )

    def update_metadata(self, metadata: Metadata, kind: int = TYPE_INCREMENTAL) -> Any:
        """The request for any broker; the sender puts the broker's epoch in."""
        image = self._image
        return _wire.UpdateMetadataRequest(
            controller_id=self._controller_id,
            type=kind,
            controller_epoch=self._epoch,
            topic_states=tuple(self._topic_metadata(metadata)),
            live_brokers=self._live,
            cluster_id=image.cluster_id,
            metadata_offset=-1 if image.offset is None else image.offset,
            topic_configs=tuple(
                _wire.TopicOverrides(topic=name, configs=config_pairs(image.topic_configs(name)))
                for name in metadata.topic_configs
            ),
            broker_configs=tuple(
                _wire.BrokerConfigs(
                    broker=int(name) if name else DEFAULT_BROKER,
                    configs=config_pairs(image.broker_configs(int(name) if name else None)),
                )
                for name in metadata.broker_configs
            ),
            features=tuple(_wire.FeatureLevel(name=n, level=level) for n, level in sorted(image.features.items())),
            acls=metadata.acls,
            scram_users=metadata.users,
            client_quotas=metadata.quotas,
        )

    def _topic_metadata(self, metadata: Metadata) -> Iterator[UpdateMetadataTopicState]:
        """Deleted topics first: the name of one may be that of a new one."""
        for topic in metadata.deleted:
            yield _wire.UpdateMetadataTopicState(
                topic_name=topic.name,
                topic_id=topic.topic_id,
                partition_states=tuple(
                    self._partition_metadata(number, partition, DELETED_LEADER, ())
                    for number, partition in topic.numbered()
                ),
            )
        dead = {broker.id for broker in self._image.brokers.values() if broker.fenced}
        for name, numbers in metadata.partitions.items():
            now = self._image.topics.get(name)
            if now is None:
                continue
            states = []
            for number in sorted(numbers):
                partition = now.partitions.get(number)
                if partition is not None:
                    leader = -1 if partition.leader is None else partition.leader
                    offline = self._offline(now.topic_id, number, partition, dead, metadata.offline)
                    states.append(self._partition_metadata(number, partition, leader, offline))
            yield _wire.UpdateMetadataTopicState(topic_name=name, topic_id=now.topic_id, partition_states=tuple(states))

    def _offline(
        self, topic_id: TopicId, number: int, partition: PartitionImage, dead: set[BrokerId], offline: Offline
    ) -> tuple[BrokerId, ...]:
        """Replicas of dead brokers, and those on dead log dirs of live ones (K112-51)."""
        brokers = self._image.brokers
        if not dead and not offline and all(broker in brokers for broker in partition.replicas):
            return ()
        return tuple(
            broker
            for broker in partition.replicas
            if broker in dead or broker not in brokers or (topic_id, number) in offline.get(broker, ())
        )

    def _partition_metadata(
        self, number: int, partition: PartitionImage, leader: int, offline: tuple[BrokerId, ...]
    ) -> Any:
        return _wire.UpdateMetadataPartitionState(
            partition_index=number,
            controller_epoch=self._epoch,
            leader=leader,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
            zk_version=partition.partition_epoch,
            replicas=partition.replicas,
            offline_replicas=offline,
        )
