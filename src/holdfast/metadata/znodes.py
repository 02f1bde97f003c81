"""What a commit changes in ZooKeeper's tree: multis below a limit, of which every prefix is a state to go on from.

A commit is cut between its atoms only (pieces.py), and a node is written as of the end of its piece, once: the
assignment of a topic whose partitions are all reassigned is one write in each piece and not one for each partition.
A piece is one multi. An atom that is too large for one (a topic of 10,000 partitions that comes or goes, or gets as
many more) becomes several: the first says in UNFINISHED which topic and which of its partitions do not count, the last
empties that node. What a load finds there is ``Reading.repairs`` (znode_tree.py).

Each multi with the end of a piece writes METADATA_LOG. The ephemeral nodes (/brokers/ids/N and /controller) belong to
sessions: their writes are here (``registration``, ``claim``), and are no part of a commit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from holdfast.metadata import znode_acls, znode_users
from holdfast.metadata import znode_paths as paths
from holdfast.metadata import znode_values as values
from holdfast.metadata.image import ClusterImage, TopicImage
from holdfast.metadata.pieces import atoms
from holdfast.metadata.records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
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
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from holdfast.metadata.znode_json import wrong
from holdfast.metadata.znode_notices import config_change
from holdfast.metadata.znode_writes import OVERHEAD, CreateNode, DeleteNode, Multi, NodeWrite, SetNode, cut, weight
from holdfast.model.types import BrokerId, ControllerEpoch, Offset, TopicId
from holdfast.security.acls import ResourcePattern
from holdfast.security.quota_entities import USER, QuotaEntity

# What the node of a partition takes at most, as a guess: what is too heavy in the end is cut once more.
_STATE_BYTES = OVERHEAD + 320


def base_nodes(controller_epoch: ControllerEpoch = 0) -> tuple[CreateNode, ...]:
    """What every tree has, each after its parent, in Kafka's order; to be made one by one where it is missing. The
    cluster's id is made by ``cluster_id``. ``controller_epoch``: of a cluster that comes from another store."""
    return (
        *(CreateNode(path=path) for path in paths.BASE),
        CreateNode(path=paths.CONTROLLER_EPOCH, data=values.controller_epoch_node(controller_epoch)),
        CreateNode(path=paths.FEATURE, data=values.features_node({})),
        *(CreateNode(path=path) for path in (*paths.OUR_BASE, *znode_acls.BASE)),
    )


def cluster_id(cluster: str) -> tuple[CreateNode, CreateNode]:
    """The cluster's id, made by whoever comes first."""
    return CreateNode(path=paths.CLUSTER), CreateNode(path=paths.CLUSTER_ID, data=values.cluster_id_node(cluster))


def registration(broker_id: BrokerId, node: values.BrokerIdsNode) -> tuple[CreateNode, SetNode]:
    """A broker is there, for as long as its session: one multi, as Kafka writes it."""
    path = paths.broker_id(broker_id)
    return CreateNode(path=path, ephemeral=True), SetNode(path=path, data=values.broker_node(node))


def claim(node: values.ControllerNode, epoch: ControllerEpoch, epoch_version: int) -> tuple[CreateNode, SetNode]:
    """A broker becomes the controller: one multi. ``epoch_version``: of /controller_epoch when the epoch before was
    read from it, so that no two get the same epoch."""
    return (
        CreateNode(path=paths.CONTROLLER, data=values.controller_node(node), ephemeral=True),
        SetNode(path=paths.CONTROLLER_EPOCH, data=values.controller_epoch_node(epoch), version=epoch_version),
    )


def log_end(image: ClusterImage, end_offset: Offset) -> SetNode:
    """The metadata log ends at ``end_offset`` with the claim that ``image`` names."""
    node = values.LogNode(
        end_offset=end_offset, controller_id=image.controller_id, controller_epoch=image.controller_epoch
    )
    return SetNode(path=paths.METADATA_LOG, data=values.log_node(node))


class TreeWriter:
    """Turns commits into multis. Owns one thing, as no image has it: which configuration nodes are there and empty, as
    Kafka leaves them (``Reading.emptied``). After a commit that failed the tree is read anew, with a new one of these.
    """

    __slots__ = ("emptied",)

    def __init__(self, emptied: Iterable[str] = ()) -> None:
        self.emptied = frozenset(emptied)

    def writes(
        self, before: ClusterImage, after: ClusterImage, records: Sequence[MetadataRecord], limit: int
    ) -> Iterator[Multi]:
        """What ``records``, which made ``after`` of ``before``, change in the tree of ``before``.

        In their order, each of at most ``limit`` bytes (znode_writes.weight): the check of /controller_epoch, and what
        a request has beside, is not in it. The controller epoch in the nodes is that of ``after``.

        MetadataError: a node is larger than that, or a record says something that the tree has no place for.
        """
        if not records:
            return
        image = before
        for piece in _pieces(before, records, limit):
            last = image.next_offset + len(piece) == after.next_offset
            end = after if last else image.apply(piece, image.next_offset)[0]
            yield from self._piece(image, end, piece, limit)
            image = end

    def snapshot(self, image: ClusterImage, limit: int) -> Iterator[Multi]:
        """What makes the tree of ``image`` from one that has the base nodes alone; for a migration."""
        records = tuple(image.to_records())
        before = replace(ClusterImage.empty(image.cluster_id), offset=image.next_offset - len(records) - 1)
        if not records:
            yield Multi(writes=(log_end(image, image.next_offset),), end_offset=image.next_offset)
        for multi in self.writes(before, image, records, limit):
            yield replace(multi, writes=tuple(write for write in multi.writes if not _is_news(write)))

    def _piece(
        self, before: ClusterImage, after: ClusterImage, records: Sequence[MetadataRecord], limit: int
    ) -> Iterator[Multi]:
        changes = _Changes(before, after, records, self.emptied)
        end = log_end(after, after.next_offset)
        writes = changes.writes()
        if sum(map(weight, writes)) + weight(end) <= limit:
            self.emptied = changes.emptied
            yield Multi(writes=(*writes, end), end_offset=after.next_offset)
            return
        made = list(atoms(records))
        if len(made) > 1:
            half = [record for atom in made[: len(made) // 2] for record in atom]
            middle, _ = before.apply(half, before.next_offset)
            yield from self._piece(before, middle, half, limit)
            yield from self._piece(middle, after, records[len(half) :], limit)
            return
        self.emptied = changes.emptied
        yield from _large(before, after, records[0], writes, end, limit)


def _is_news(write: NodeWrite) -> bool:
    return isinstance(write, CreateNode) and write.sequence


def _pieces(before: ClusterImage, records: Sequence[MetadataRecord], limit: int) -> Iterator[Sequence[MetadataRecord]]:
    """The records in pieces that should fit, whole atoms each."""
    begin = place = total = 0
    touched: set[TopicId] = set()
    for atom in atoms(records):
        more = 0
        for record in atom:
            more += _guess(before, record, touched)
        if place > begin and total + more > limit - _STATE_BYTES:
            yield records[begin:place]
            begin, total = place, 0
            touched.clear()
            more = sum(_guess(before, record, touched) for record in atom)
        place += len(atom)
        total += more
    yield records[begin:]


def _guess(before: ClusterImage, record: MetadataRecord, touched: set[TopicId]) -> int:
    """Bytes that a record makes in the tree, about. ``touched``: topics whose assignments are written already."""
    if isinstance(record, PartitionRecord):
        return 2 * OVERHEAD + _STATE_BYTES + 20 * len(record.replicas)
    if isinstance(record, PartitionChangeRecord):
        if record.replicas is None and record.adding is None and record.removing is None:
            return _STATE_BYTES
        if record.topic_id in touched:
            return _STATE_BYTES
        touched.add(record.topic_id)
        topic = before.topics.get(before.topic_names.get(record.topic_id, ""))
        return 2 * _STATE_BYTES + (0 if topic is None else 30 * len(topic.partitions))
    if isinstance(record, RemoveTopicRecord):
        name = before.topic_names.get(record.topic_id, "")
        topic = before.topics.get(name)
        return _STATE_BYTES * 2 + (0 if topic is None else len(topic.partitions) * 2 * (OVERHEAD + len(name) + 50))
    if isinstance(record, ConfigRecord):
        return 2 * _STATE_BYTES + len(record.name) + len(record.value or "")
    return 3 * _STATE_BYTES


def _large(
    before: ClusterImage,
    after: ClusterImage,
    record: MetadataRecord,
    writes: Sequence[NodeWrite],
    end: SetNode,
    limit: int,
) -> Iterator[Multi]:
    """An atom that is too heavy for one multi: a topic that comes or goes, or partitions that come."""
    node = _unfinished(before, after, record)
    if node is not None and node.end > values.MAX_PARTITIONS:
        raise wrong(paths.topic(node.topic), f"has {node.end} partitions", f"{values.MAX_PARTITIONS} at most")
    begin = SetNode(path=paths.UNFINISHED, data=b"" if node is None else values.unfinished_node(node))
    over = SetNode(path=paths.UNFINISHED, data=b"")
    room = limit - weight(begin) - weight(end)
    # Until the last multi what is new does not count: so what was there before changes in that one.
    new = [write for write in writes if not isinstance(write, SetNode)]
    old = [write for write in writes if isinstance(write, SetNode)]
    for write in new:
        if weight(write) > room:
            raise wrong(write.path, f"has {weight(write)} bytes", f"{room} at most, by jute.maxbuffer")
    if node is None or sum(map(weight, old)) > room:
        total = sum(map(weight, writes))
        raise wrong(writes[0].path, f"with {total} bytes in {len(writes)} nodes", f"{room} at most, by jute.maxbuffer")
    parts = [tuple(part) for part in cut(new, room)]
    if isinstance(record, RemoveTopicRecord):
        yield Multi(writes=(begin, *parts[0], end), end_offset=after.next_offset)
        yield from (Multi(writes=part) for part in parts[1:])
        yield Multi(writes=(over,))
    else:
        yield Multi(writes=(begin, *parts[0]))
        yield from (Multi(writes=part) for part in parts[1:])
        yield Multi(writes=(*old, over, end), end_offset=after.next_offset)


def _unfinished(before: ClusterImage, after: ClusterImage, record: MetadataRecord) -> values.UnfinishedNode | None:
    """What does not count meanwhile; None: the atom of this first record cannot be written in parts."""
    if isinstance(record, TopicRecord):
        count = len(after.topics[record.name].partitions)
        return values.UnfinishedNode(topic=record.name, whole=True, first=0, end=count)
    if isinstance(record, RemoveTopicRecord):
        name = before.topic_names[record.topic_id]
        return values.UnfinishedNode(topic=name, whole=True, first=0, end=len(before.topics[name].partitions))
    if isinstance(record, PartitionRecord):
        name = before.topic_names[record.topic_id]
        first, end = len(before.topics[name].partitions), len(after.topics[name].partitions)
        return values.UnfinishedNode(topic=name, whole=False, first=first, end=end) if first < end else None
    return None


@dataclass(slots=True)
class _Touched:
    """The things of which a piece says something, each once, in the order in which it does."""

    brokers: dict[BrokerId, None] = field(default_factory=dict)
    topics: dict[TopicId, set[int]] = field(default_factory=dict)
    configs: dict[tuple[int, str], None] = field(default_factory=dict)
    acls: dict[UUID, ResourcePattern | None] = field(default_factory=dict)
    """By the ids of their entries; None: what the image before has under this id."""
    entities: dict[QuotaEntity, None] = field(default_factory=dict)
    producer_ids: ProducerIdsRecord | None = None
    features: bool = False

    def add(self, record: MetadataRecord) -> None:
        if isinstance(record, PartitionChangeRecord | PartitionRecord):
            self.topics.setdefault(record.topic_id, set()).add(record.partition)
        elif isinstance(record, RegisterBrokerRecord | UnregisterBrokerRecord | BrokerRegistrationChangeRecord):
            self.brokers[record.broker_id] = None
        elif isinstance(record, TopicRecord | RemoveTopicRecord):
            self.topics.setdefault(record.topic_id, set())
        elif isinstance(record, ConfigRecord):
            self.configs[int(record.resource_type), record.resource_name] = None
        elif isinstance(record, ProducerIdsRecord):
            self.producer_ids = record
        elif isinstance(record, FeatureLevelRecord):
            self.features = True
        elif isinstance(record, AccessControlEntryRecord):
            self.acls[record.id] = record.acl.resource
        elif isinstance(record, RemoveAccessControlEntryRecord):
            self.acls.setdefault(record.id, None)
        elif isinstance(record, UserScramCredentialRecord | RemoveUserScramCredentialRecord):
            self.entities[((USER, record.name),)] = None
        elif isinstance(record, ClientQuotaRecord):
            self.entities[record.entity] = None


class _Changes:
    """What one piece changes: parents before children, children deleted before parents, what goes before what comes.

    ``emptied`` is what it will be once this is written."""

    __slots__ = ("_after", "_before", "_out", "_touched", "emptied")

    def __init__(
        self, before: ClusterImage, after: ClusterImage, records: Sequence[MetadataRecord], emptied: frozenset[str]
    ) -> None:
        self._before = before
        self._after = after
        self._touched = _Touched()
        for record in records:
            self._touched.add(record)
        self._out: list[NodeWrite] = []
        self.emptied = emptied

    def writes(self) -> list[NodeWrite]:
        """All of them; call once."""
        touched, before, after = self._touched, self._before, self._after
        for topic_id in touched.topics:
            if topic_id in before.topic_names and topic_id not in after.topic_names:
                self._remove(before.topics[before.topic_names[topic_id]])
        for topic_id, numbers in touched.topics.items():
            if topic_id in after.topic_names:
                topic = after.topics[after.topic_names[topic_id]]
                if topic_id not in before.topic_names:
                    self._create(topic)
                else:
                    self._change(before.topics[topic.name], topic, sorted(numbers))
        for kind, name in touched.configs:
            self._configure(kind, name)
        if touched.features and before.features != after.features:
            self._set(paths.FEATURE, values.features_node(after.features))
        if touched.producer_ids is not None:
            given = touched.producer_ids
            first = min(before.next_producer_id, given.next_producer_id)
            self._set(paths.PRODUCER_IDS, values.producer_ids_node(given.broker_id, first, given.next_producer_id))
        for broker in touched.brokers:
            self._broker(broker)
        for resource in self._acl_resources():
            self._entries(resource)
        self._out += znode_users.writes(before, after, touched.entities)
        return self._out

    def _set(self, path: str, data: bytes) -> None:
        self._out.append(SetNode(path=path, data=data))

    def _make(self, path: str, data: bytes = b"") -> None:
        self._out.append(CreateNode(path=path, data=data))

    def _delete(self, path: str) -> None:
        self._out.append(DeleteNode(path=path))

    # -- topics ------------------------------------------------------------------------------------------------

    def _remove(self, topic: TopicImage) -> None:
        for number in range(len(topic.partitions)):
            self._delete(paths.state(topic.name, number))
            self._delete(paths.partition(topic.name, number))
        self._delete(paths.partitions(topic.name))
        self._delete(paths.topic(topic.name))
        self._delete(paths.config(ResourceType.TOPIC, topic.name))

    def _create(self, topic: TopicImage) -> None:
        configs = values.config_node(self._after.topic_configs(topic.name))
        self._make(paths.config(ResourceType.TOPIC, topic.name), configs)
        self._make(paths.topic(topic.name), values.topic_node(topic))
        self._make(paths.partitions(topic.name))
        self._partitions(topic, range(len(topic.partitions)))

    def _change(self, old: TopicImage, topic: TopicImage, numbers: Sequence[int]) -> None:
        new = [number for number in numbers if number not in old.partitions]
        changed = [
            number
            for number in numbers
            if number in old.partitions and old.partitions[number] != topic.partitions[number]
        ]
        if new or any(_assignment(old, number) != _assignment(topic, number) for number in changed):
            self._set(paths.topic(topic.name), values.topic_node(topic))
        self._partitions(topic, new)
        for number in changed:
            state = values.state_node(topic.partitions[number], self._after.controller_epoch)
            self._set(paths.state(topic.name, number), state)

    def _partitions(self, topic: TopicImage, numbers: Sequence[int]) -> None:
        """New ones."""
        for number in numbers:
            self._make(paths.partition(topic.name, number))
        for number in numbers:
            state = values.state_node(topic.partitions[number], self._after.controller_epoch)
            self._make(paths.state(topic.name, number), state)

    # -- the rest ----------------------------------------------------------------------------------------------

    def _configure(self, kind: int, name: str) -> None:
        path = paths.config(kind, name)
        was, now = self._before.configs.get((kind, name)), self._after.configs.get((kind, name))
        if kind == ResourceType.TOPIC:
            topic, old = self._after.topics.get(name), self._before.topics.get(name)
            if topic is None and old is None and now is not None:
                raise wrong(path, "belongs to no topic", f"a topic {name}")
            if topic is None or old is None or topic.topic_id != old.topic_id:
                return  # it came or went with its topic
        if was == now:
            return
        entity = paths.config_entity(kind, name)
        is_there = kind == ResourceType.TOPIC or was is not None or path in self.emptied
        if entity is None and now is None:
            self._delete(path)
        else:
            (self._set if is_there else self._make)(path, values.config_node(now or {}))
        if entity is not None:
            self._out.append(config_change(entity))
            if kind == ResourceType.BROKER:
                self.emptied = self.emptied - {path} if now else self.emptied | {path}

    def _acl_resources(self) -> Iterable[ResourcePattern]:
        found = (
            self._before.acls.by_id[acl_id].resource if resource is None else resource
            for acl_id, resource in self._touched.acls.items()
        )
        return dict.fromkeys(found)

    def _entries(self, resource: ResourcePattern) -> None:
        was, now = self._before.acls.entries(resource), self._after.acls.entries(resource)
        if was == now:
            return
        path = znode_acls.path(resource)
        if now:
            (self._set if was else self._make)(path, znode_acls.node(now))
        else:
            self._delete(path)
        self._out.append(znode_acls.change(resource))

    def _broker(self, broker: BrokerId) -> None:
        path = paths.our_broker(broker)
        old, new = self._before.brokers.get(broker), self._after.brokers.get(broker)
        if new is None:
            if old is not None:
                self._delete(path)
        elif old is None:
            self._make(path, values.our_broker_node(new))
        elif old != new:
            self._set(path, values.our_broker_node(new))


def _assignment(topic: TopicImage, number: int) -> tuple[tuple[BrokerId, ...], ...]:
    partition = topic.partitions[number]
    return partition.replicas, partition.adding, partition.removing
