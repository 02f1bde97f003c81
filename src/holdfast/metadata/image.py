"""ClusterImage: everything the cluster agreed on, at one offset of the metadata log.

An image never changes: ``apply`` makes the next one, sharing what is equal, and says what differs (ClusterDelta).
Replaying the same records gives the same image, on every broker and after every restart. It knows no rules: which
change is allowed was decided before the record was written (controller/).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from immutables import Map, MapMutation

from holdfast.metadata.acls_image import AclsImage
from holdfast.metadata.image_parts import BrokerImage, PartitionImage, TopicImage
from holdfast.metadata.records import (
    NO_CHANGE,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerClaimRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    ResourceType,
    ScramSecretRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from holdfast.metadata.users_image import QuotasImage, ScramUser, UsersImage
from holdfast.model.errors import MetadataError
from holdfast.model.listeners import Endpoints
from holdfast.model.types import BrokerId, ControllerEpoch, Offset, TopicId
from holdfast.security.acls import AclBinding
from holdfast.security.quota_entities import QuotaEntity

__all__ = ["BrokerImage", "ClusterDelta", "ClusterImage", "ConfigResource", "PartitionImage", "TopicImage"]

ConfigResource: TypeAlias = tuple[int, str]
"""Type (a ResourceType) and name of what a configuration belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDelta:
    """What a number of records changed, and the image before them.

    ``changed_topics`` maps each topic that is there now to its partitions that are new or differ; a topic that was
    deleted and made again is in ``deleted_topics`` too.
    """

    before: "ClusterImage"
    changed_brokers: frozenset[BrokerId] = frozenset()
    changed_topics: Mapping[str, frozenset[int]] = field(default_factory=dict)
    deleted_topics: Mapping[TopicId, TopicImage] = field(default_factory=dict)
    changed_configs: frozenset[ConfigResource] = frozenset()
    controller_changed: bool = False
    features_changed: bool = False
    changed_acls: frozenset[AclBinding] = frozenset()
    """Entries that came or went, or both."""
    changed_users: frozenset[ScramUser] = frozenset()
    secret_changed: bool = False
    changed_quotas: frozenset[QuotaEntity] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether nobody needs to be told anything."""
        return not (
            self.changed_brokers
            or self.changed_topics
            or self.deleted_topics
            or self.changed_configs
            or self.controller_changed
            or self.features_changed
            or self.changed_acls
            or self.changed_users
            or self.secret_changed
            or self.changed_quotas
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """See the module's docstring. ``offset`` is that of the last record applied, None before the first one."""

    cluster_id: str
    brokers: Map[BrokerId, BrokerImage] = field(default_factory=Map)
    topics: Map[str, TopicImage] = field(default_factory=Map)
    topic_names: Map[TopicId, str] = field(default_factory=Map)
    configs: Map[ConfigResource, Map[str, str]] = field(default_factory=Map)
    features: Map[str, int] = field(default_factory=Map)
    acls: AclsImage = field(default_factory=AclsImage)
    users: UsersImage = field(default_factory=UsersImage)
    quotas: QuotasImage = field(default_factory=QuotasImage)
    next_producer_id: int = 0
    controller_id: BrokerId | None = None
    controller_epoch: ControllerEpoch = 0
    offset: Offset | None = None

    @classmethod
    def empty(cls, cluster_id: str) -> "ClusterImage":
        """The image before the first record."""
        return cls(cluster_id=cluster_id)

    @property
    def next_offset(self) -> Offset:
        """The offset of the next record."""
        return 0 if self.offset is None else self.offset + 1

    def sorted_topics(self) -> list[TopicImage]:
        """The topics by name, so that what is decided for all of them is the same in every run."""
        return [self.topics[name] for name in sorted(self.topics)]

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        """One partition, or None."""
        image = self.topics.get(topic)
        return None if image is None else image.partitions.get(partition)

    def topic_configs(self, topic: str) -> Map[str, str]:
        """The overrides of a topic."""
        return self.configs.get((ResourceType.TOPIC, topic), _NO_CONFIGS)

    def broker_configs(self, broker: BrokerId | None) -> Map[str, str]:
        """The dynamic configurations of one broker, or the default ones of all."""
        return self.configs.get((ResourceType.BROKER, "" if broker is None else str(broker)), _NO_CONFIGS)

    def apply(self, records: Iterable[MetadataRecord], base_offset: Offset) -> "tuple[ClusterImage, ClusterDelta]":
        """The image after ``records``, the first of which has ``base_offset``, and what they changed."""
        changes = _Changes(self)
        count = 0
        for record in records:
            changes.apply(record)
            count += 1
        return changes.finish(base_offset + count - 1 if count else self.offset)

    def to_records(self) -> Iterator[MetadataRecord]:
        """Records that make this image from an empty one: a snapshot."""
        for name, level in sorted(self.features.items()):
            yield FeatureLevelRecord(name=name, level=level)
        for broker in sorted(self.brokers.values(), key=lambda b: b.id):
            yield _registration(broker)
        for topic in self.sorted_topics():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for number, partition in topic.numbered():
                yield partition_record(topic.topic_id, number, partition)
        for (kind, name), values in sorted(self.configs.items()):
            for key, value in sorted(values.items()):
                yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
        yield from self.acls.to_records()
        yield from self.users.to_records()
        yield from self.quotas.to_records()
        if self.next_producer_id:
            yield ProducerIdsRecord(broker_id=0, broker_epoch=0, next_producer_id=self.next_producer_id)
        if self.controller_id is not None:
            yield ControllerClaimRecord(
                controller_epoch=self.controller_epoch, broker_id=self.controller_id, host="", port=0
            )


_NO_CONFIGS: Final[Map[str, str]] = Map()


def partition_record(topic_id: TopicId, number: int, partition: PartitionImage) -> PartitionRecord:
    """The record that says all of one partition."""
    return PartitionRecord(
        partition=number,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        removing=partition.removing,
        adding=partition.adding,
        directories=partition.directories,
        recovery_state=partition.recovery_state,
        elr=partition.elr or None,
        last_known_elr=partition.last_known_elr or None,
        created=partition.created,
    )


def _registration(broker: BrokerImage) -> RegisterBrokerRecord:
    inter_broker, control_plane = broker.endpoints.choice
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        endpoints=broker.endpoints.listeners,
        features=broker.features,
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
        cordoned=broker.cordoned,
        inter_broker=inter_broker,
        control_plane=control_plane,
    )


class _Changes:
    """The change of one image by a batch of records: mutable while it lasts, one new image at its end."""

    __slots__ = (
        "_acls",
        "_brokers",
        "_changed_acls",
        "_changed_brokers",
        "_changed_configs",
        "_changed_quotas",
        "_changed_topics",
        "_changed_users",
        "_configs",
        "_controller",
        "_deleted",
        "_features",
        "_image",
        "_next_producer_id",
        "_open",
        "_quotas",
        "_topic_names",
        "_topics",
        "_users",
    )

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._brokers = image.brokers.mutate()
        self._topics = image.topics.mutate()
        self._topic_names = image.topic_names.mutate()
        self._configs = image.configs
        self._features = image.features
        self._acls = image.acls
        self._users = image.users
        self._quotas = image.quotas
        self._next_producer_id = image.next_producer_id
        self._controller = (image.controller_id, image.controller_epoch)
        # Topics under change: their partitions as one mutation, closed once at the end.
        self._open: dict[TopicId, tuple[str, MapMutation[int, PartitionImage]]] = {}
        self._changed_brokers: set[BrokerId] = set()
        self._changed_topics: dict[str, set[int]] = {}
        self._changed_configs: set[ConfigResource] = set()
        self._changed_acls: set[AclBinding] = set()
        self._changed_users: set[ScramUser] = set()
        self._changed_quotas: set[QuotaEntity] = set()
        self._deleted: dict[TopicId, TopicImage] = {}

    def apply(self, record: MetadataRecord) -> None:
        handler = _APPLY.get(type(record))
        if handler is not None:
            handler(self, record)

    def finish(self, offset: Offset | None) -> tuple[ClusterImage, ClusterDelta]:
        for topic_id, (name, partitions) in self._open.items():
            self._topics[name] = TopicImage(name=name, topic_id=topic_id, partitions=partitions.finish())
        before = self._image
        controller_id, controller_epoch = self._controller
        image = ClusterImage(
            cluster_id=before.cluster_id,
            brokers=self._brokers.finish(),
            topics=self._topics.finish(),
            topic_names=self._topic_names.finish(),
            configs=self._configs,
            features=self._features,
            acls=self._acls,
            users=self._users,
            quotas=self._quotas,
            next_producer_id=self._next_producer_id,
            controller_id=controller_id,
            controller_epoch=controller_epoch,
            offset=offset,
        )
        delta = ClusterDelta(
            before=before,
            changed_brokers=frozenset(self._changed_brokers),
            changed_topics={name: frozenset(numbers) for name, numbers in self._changed_topics.items()},
            deleted_topics=self._deleted,
            changed_configs=frozenset(self._changed_configs),
            controller_changed=controller_epoch != before.controller_epoch,
            features_changed=self._features != before.features,
            changed_acls=frozenset(self._changed_acls),
            changed_users=frozenset(self._changed_users),
            secret_changed=self._users.secret != before.users.secret,
            changed_quotas=frozenset(self._changed_quotas),
        )
        return image, delta

    # -- brokers -----------------------------------------------------------------------------------------------

    def register(self, record: RegisterBrokerRecord) -> None:
        if not record.endpoints:
            raise MetadataError(f"Registration of broker {record.broker_id} has no endpoint")
        try:
            endpoints = Endpoints.of(record.endpoints, record.inter_broker, record.control_plane)
        except ValueError as e:
            raise MetadataError(f"Registration of broker {record.broker_id}: {e}") from e
        self._brokers[record.broker_id] = BrokerImage(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=endpoints,
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=record.log_dirs,
            cordoned=record.cordoned,
            features=record.features,
        )
        self._changed_brokers.add(record.broker_id)

    def unregister(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id)
        del self._brokers[record.broker_id]
        self._changed_brokers.add(record.broker_id)

    def change_registration(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id)
        self._brokers[record.broker_id] = replace(
            broker,
            fenced=broker.fenced if record.fenced is None else record.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown
            if record.in_controlled_shutdown is None
            else record.in_controlled_shutdown,
            log_dirs=broker.log_dirs if record.log_dirs is None else record.log_dirs,
            cordoned=broker.cordoned if record.cordoned is None else record.cordoned,
        )
        self._changed_brokers.add(record.broker_id)

    def _broker(self, broker_id: BrokerId) -> BrokerImage:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise MetadataError(f"Metadata record changes broker {broker_id}, which is not registered")
        return broker

    # -- topics ------------------------------------------------------------------------------------------------

    def add_topic(self, record: TopicRecord) -> None:
        if record.name in self._topics:
            raise MetadataError(f"Metadata record creates topic {record.name}, which exists")
        self._topics[record.name] = TopicImage(name=record.name, topic_id=record.topic_id)
        self._topic_names[record.topic_id] = record.name
        self._changed_topics[record.name] = set()

    def remove_topic(self, record: RemoveTopicRecord) -> None:
        name, _ = self._partitions(record.topic_id)
        del self._open[record.topic_id], self._topics[name], self._topic_names[record.topic_id]
        self._changed_topics.pop(name, None)
        resource = (int(ResourceType.TOPIC), name)
        if resource in self._configs:
            self._configs = self._configs.delete(resource)
            self._changed_configs.add(resource)
        old = self._image.topics.get(name)
        if old is not None and old.topic_id == record.topic_id:
            self._deleted[record.topic_id] = old

    def set_partition(self, record: PartitionRecord) -> None:
        name, partitions = self._partitions(record.topic_id)
        partitions[record.partition] = PartitionImage(
            replicas=record.replicas,
            isr=record.isr,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            adding=record.adding,
            removing=record.removing,
            directories=record.directories,
            elr=record.elr or (),
            last_known_elr=record.last_known_elr or (),
            recovery_state=record.recovery_state,
            created=record.created,
        )
        self._changed_topics[name].add(record.partition)

    def change_partition(self, record: PartitionChangeRecord) -> None:
        name, partitions = self._partitions(record.topic_id)
        old = partitions.get(record.partition)
        if old is None:
            raise MetadataError(f"Metadata record changes {name}-{record.partition}, which does not exist")
        leads_anew = record.leader is not NO_CHANGE
        partitions[record.partition] = PartitionImage(
            replicas=old.replicas if record.replicas is None else record.replicas,
            isr=old.isr if record.isr is None else record.isr,
            leader=old.leader if record.leader is NO_CHANGE else record.leader,
            leader_epoch=old.leader_epoch + leads_anew,
            partition_epoch=old.partition_epoch + 1,
            adding=old.adding if record.adding is None else record.adding,
            removing=old.removing if record.removing is None else record.removing,
            directories=old.directories if record.directories is None else record.directories,
            elr=old.elr if record.elr is None else record.elr,
            last_known_elr=old.last_known_elr if record.last_known_elr is None else record.last_known_elr,
            recovery_state=old.recovery_state if record.recovery_state is None else record.recovery_state,
            created=old.created,
        )
        self._changed_topics[name].add(record.partition)

    def _partitions(self, topic_id: TopicId) -> tuple[str, MapMutation[int, PartitionImage]]:
        found = self._open.get(topic_id)
        if found is None:
            name = self._topic_names.get(topic_id)
            if name is None:
                raise MetadataError(f"Metadata record is for topic id {topic_id}, which does not exist")
            found = self._open[topic_id] = (name, self._topics[name].partitions.mutate())
            self._changed_topics.setdefault(name, set())
        return found

    # -- the rest ----------------------------------------------------------------------------------------------

    def set_config(self, record: ConfigRecord) -> None:
        resource = (int(record.resource_type), record.resource_name)
        values = self._configs.get(resource, _NO_CONFIGS)
        if record.value is not None:
            values = values.set(record.name, record.value)
        elif record.name in values:
            values = values.delete(record.name)
        if values:
            self._configs = self._configs.set(resource, values)
        elif resource in self._configs:
            self._configs = self._configs.delete(resource)
        self._changed_configs.add(resource)

    def set_producer_ids(self, record: ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def set_feature(self, record: FeatureLevelRecord) -> None:
        if record.level:
            self._features = self._features.set(record.name, record.level)
        elif record.name in self._features:
            self._features = self._features.delete(record.name)

    def add_acl(self, record: AccessControlEntryRecord) -> None:
        self._acls = self._acls.with_acl(record.id, record.acl)
        self._changed_acls.add(record.acl)

    def remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        self._acls, acl = self._acls.without(record.id)
        self._changed_acls.add(acl)

    def set_scram(self, record: UserScramCredentialRecord) -> None:
        self._users = self._users.with_credential(record)
        self._changed_users.add((record.name, record.mechanism))

    def remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        self._users = self._users.without(record)
        self._changed_users.add((record.name, record.mechanism))

    def set_secret(self, record: ScramSecretRecord) -> None:
        self._users = self._users.with_secret(record)

    def set_quota(self, record: ClientQuotaRecord) -> None:
        self._quotas = self._quotas.after(record)
        self._changed_quotas.add(record.entity)

    def claim(self, record: ControllerClaimRecord) -> None:
        if record.controller_epoch < self._controller[1]:
            raise MetadataError(
                f"Claim of broker {record.broker_id} has epoch {record.controller_epoch}, "
                f"expected more than {self._controller[1]}"
            )
        self._controller = (record.broker_id, record.controller_epoch)


_APPLY: Final[Mapping[type, Callable[[_Changes, Any], None]]] = {
    RegisterBrokerRecord: _Changes.register,
    UnregisterBrokerRecord: _Changes.unregister,
    BrokerRegistrationChangeRecord: _Changes.change_registration,
    TopicRecord: _Changes.add_topic,
    RemoveTopicRecord: _Changes.remove_topic,
    PartitionRecord: _Changes.set_partition,
    PartitionChangeRecord: _Changes.change_partition,
    ConfigRecord: _Changes.set_config,
    ProducerIdsRecord: _Changes.set_producer_ids,
    FeatureLevelRecord: _Changes.set_feature,
    AccessControlEntryRecord: _Changes.add_acl,
    RemoveAccessControlEntryRecord: _Changes.remove_acl,
    UserScramCredentialRecord: _Changes.set_scram,
    RemoveUserScramCredentialRecord: _Changes.remove_scram,
    ScramSecretRecord: _Changes.set_secret,
    ClientQuotaRecord: _Changes.set_quota,
    ControllerClaimRecord: _Changes.claim,
}
