"""ZooKeeper's tree, read: which nodes a new controller asks for, and the records that they amount to.

    LISTED --children--> first_paths --get--> second_paths --get--> read_tree

Two kinds of trees are read. Ours has data in METADATA_LOG; there everything must be. One that Kafka wrote has not;
then brokers are those that live, with the czxid of their nodes as their epochs, and the log ends after the greatest of
these.
Unknown nodes and keys are skipped. A node that says something else than it should is a MetadataError with its path.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from holdfast.metadata import znode_acls, znode_users
from holdfast.metadata import znode_paths as paths
from holdfast.metadata import znode_values as values
from holdfast.metadata.image import ClusterImage, PartitionImage
from holdfast.metadata.records import (
    AccessControlEntryRecord,
    ConfigRecord,
    ControllerClaimRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    ResourceType,
    TopicRecord,
)
from holdfast.metadata.znode_json import wrong
from holdfast.metadata.znode_writes import CreateNode, DeleteNode, NodeWrite, SetNode
from holdfast.model.types import BrokerId, Offset, TopicId

LISTED: Final = (
    paths.BROKER_IDS, paths.TOPICS, paths.TOPIC_CONFIGS, paths.BROKER_CONFIGS, paths.OUR_BROKERS, paths.OUR_CONFIGS,
    *znode_acls.LISTED, *znode_users.LISTED,
)  # fmt: skip
"""The nodes whose children are asked for first."""
_SINGLE: Final = (
    paths.FEATURE, paths.PRODUCER_IDS, paths.METADATA_LOG, paths.UNFINISHED, paths.CONTROLLER, paths.CONTROLLER_EPOCH,
    znode_users.SECRET,
)  # fmt: skip
_NOBODY: Final = UUID(int=0)
"""The incarnation of a broker of Kafka's, which has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """A node as it was read. ``czxid``: of the transaction that made it."""

    data: bytes
    version: int = 0
    czxid: int = 0


Tree = Mapping[str, TreeNode]
Topics = Mapping[str, values.TopicNode]
"""The nodes that are there, by their paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeReading:
    """What a tree says. ``records`` make the image from an empty one, as ``Loaded`` has them; the last one is the last
    claim, if there was one.

    ``repairs`` are to be written before anything else, in their order, in pieces of any size (znode_writes.cut): they
    take away what a commit began and did not finish, and what such a tree has too little for ``TreeWriter``. They
    change nothing of the image, and a controller that dies among them leaves them to the next.
    """

    records: tuple[MetadataRecord, ...]
    end_offset: Offset
    repairs: tuple[NodeWrite, ...] = ()
    emptied: frozenset[str] = frozenset()
    """Nodes of brokers' configurations that have none any more: ``TreeWriter`` must know them."""
    is_ours: bool = True

    @property
    def base_offset(self) -> Offset:
        """What to give ClusterImage.apply with ``records``."""
        return self.end_offset - len(self.records)


def first_paths(children: Mapping[str, Sequence[str]]) -> list[str]:
    """The nodes to get, from the names below each of LISTED."""
    found = [*_SINGLE]
    for parent in LISTED:
        found += [f"{parent}/{name}" for name in children.get(parent, ())]
    return found


def user_lists(paths: Iterable[str]) -> list[str]:
    """The nodes whose children are asked for then, of those of users with children; each is to be got too, and all
    that is below it."""
    return [znode_users.clients_of(path) for path in paths if znode_users.is_user(path)]


def topics_of(tree: Tree) -> Topics:
    """The topics that count, by name, from the nodes of ``first_paths``."""
    return dict(_topics(tree, _unfinished(tree)))


def second_paths(tree: Tree, topics: Topics) -> list[str]:
    """The nodes to get then, from those of ``first_paths``. ``topics``: what ``topics_of`` finds there."""
    unfinished = _unfinished(tree)
    found: list[str] = []
    for name, topic in topics.items():
        found += [paths.state(name, number) for number in range(len(topic.replicas))]
        if not _is_ours(tree):
            found.append(paths.partitions(name))
            found += [paths.partition(name, number) for number in range(len(topic.replicas))]
    if unfinished is not None:
        found += _leftovers(unfinished)
    return found


def read_tree(tree: Tree, topics: Topics | None = None) -> TreeReading:
    """What the nodes of ``first_paths`` and ``second_paths`` say; other nodes may be there. ``topics``: as
    ``topics_of`` has found them, which need not be read twice."""
    return _Reader(tree, topics_of(tree) if topics is None else topics).read()


def image_of(tree: Tree, cluster_id: str) -> ClusterImage:
    """The image that a tree amounts to."""
    reading = read_tree(tree)
    image, _ = ClusterImage.empty(cluster_id).apply(reading.records, reading.base_offset)
    return replace(image, offset=reading.end_offset - 1 if reading.end_offset else None)


def _is_ours(tree: Tree) -> bool:
    node = tree.get(paths.METADATA_LOG)
    return node is not None and bool(node.data)


def _unfinished(tree: Tree) -> values.UnfinishedNode | None:
    node = tree.get(paths.UNFINISHED)
    return None if node is None else values.read_unfinished_node(paths.UNFINISHED, node.data)


def _leftovers(unfinished: values.UnfinishedNode) -> Iterator[str]:
    """The nodes that there may be of what does not count; children before their parents."""
    name = unfinished.topic
    for number in range(unfinished.first, unfinished.end):
        yield paths.state(name, number)
        yield paths.partition(name, number)
    if unfinished.whole:
        yield paths.partitions(name)
        yield paths.topic(name)
        yield paths.config(ResourceType.TOPIC, name)


def _below(tree: Tree, parent: str) -> list[str]:
    """The paths of the children of ``parent``, in the order of their names."""
    start = len(parent) + 1
    return sorted(path for path in tree if path.startswith(parent + "/") and "/" not in path[start:])


def _topics(tree: Tree, unfinished: values.UnfinishedNode | None) -> Iterator[tuple[str, values.TopicNode]]:
    """The topics that count, by name."""
    for path in _below(tree, paths.TOPICS):
        name = paths.name_of(path)
        if unfinished is None or not unfinished.whole or unfinished.topic != name:
            yield name, values.read_topic_node(path, tree[path].data)


class StateNodes:
    """Reads state nodes of many partitions, most of which say the same of themselves: each text is read once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], PartitionRecord] = {}

    def read(self, path: str, data: bytes, version: int, topic: values.TopicNode, number: int) -> PartitionRecord:
        """As ``read_state_node``."""
        moves = topic.adding.get(number), topic.removing.get(number)
        key = (data, version, topic.replicas[number], *moves)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_ALIKE:
                self._known.clear()
            known = self._known[key] = values.read_state_node(path, data, version, topic, number)
            return known
        return PartitionRecord(
            partition=number,
            topic_id=topic.topic_id,
            replicas=known.replicas,
            isr=known.isr,
            leader=known.leader,
            leader_epoch=known.leader_epoch,
            partition_epoch=known.partition_epoch,
            removing=known.removing,
            adding=known.adding,
            directories=known.directories,
            recovery_state=known.recovery_state,
            elr=known.elr,
            last_known_elr=known.last_known_elr,
            created=known.created,
        )


MAX_ALIKE: Final = 10_000
"""Texts that are kept."""


class _Reader:
    """One reading; the records in the order of ClusterImage.to_records."""

    __slots__ = ("_is_ours", "_records", "_repairs", "_states", "_topics", "_tree", "_unfinished")

    def __init__(self, tree: Tree, topics: Topics) -> None:
        self._tree = tree
        self._topics = topics
        self._is_ours = _is_ours(tree)
        self._unfinished = _unfinished(tree)
        self._records: list[MetadataRecord] = []
        self._repairs: list[NodeWrite] = []
        self._states = StateNodes()

    def read(self) -> TreeReading:
        self._features()
        newest = self._brokers()
        topics = self._topics
        names: dict[TopicId, str] = {}
        for name, topic in topics.items():
            if names.setdefault(topic.topic_id, name) != name:
                raise wrong(paths.topic(name), f"has the topic_id of {names[topic.topic_id]}", "one of its own")
            self._topic(name, topic)
        emptied = self._configs(topics)
        self._acls()
        records, for_nothing = znode_users.read({path: node.data for path, node in self._tree.items()})
        self._records += records
        self._repairs += for_nothing
        self._producer_ids()
        end_offset = self._claim()
        if self._unfinished is not None:
            self._repairs += [DeleteNode(path=path) for path in _leftovers(self._unfinished) if path in self._tree]
            self._repairs.append(SetNode(path=paths.UNFINISHED, data=b""))
        if end_offset is None:
            end_offset = max(len(self._records), newest + 1)
        return TreeReading(
            records=tuple(self._records),
            end_offset=end_offset,
            repairs=tuple(self._repairs),
            emptied=emptied,
            is_ours=self._is_ours,
        )

    def _data(self, path: str) -> bytes:
        node = self._tree.get(path)
        return b"" if node is None else node.data

    def _features(self) -> None:
        levels = values.read_features_node(paths.FEATURE, self._data(paths.FEATURE))
        self._records += [FeatureLevelRecord(name=name, level=level) for name, level in sorted(levels.items())]

    def _brokers(self) -> int:
        """The greatest czxid of one that lives, in a tree of Kafka's."""
        newest = -1
        found: dict[BrokerId, MetadataRecord] = {}
        for path in _below(self._tree, paths.OUR_BROKERS):
            broker = paths.broker_of(path)
            if broker is not None:
                found[broker] = values.read_our_broker_node(path, self._tree[path].data, broker)
        for path in () if self._is_ours else _below(self._tree, paths.BROKER_IDS):
            broker = paths.broker_of(path)
            if broker is not None and broker not in found:
                record = self._living(path, broker)
                found[broker] = record
                newest = max(newest, record.broker_epoch)
        self._records += [found[broker] for broker in sorted(found)]
        return newest

    def _living(self, path: str, broker: BrokerId) -> RegisterBrokerRecord:
        """A broker of which there is no node of ours: its registration is all that is known."""
        node = self._tree[path]
        said = values.read_broker_node(path, node.data)
        record = RegisterBrokerRecord(
            broker_id=broker,
            incarnation_id=said.incarnation_id or _NOBODY,
            broker_epoch=node.czxid,
            endpoints=said.endpoints.listeners,
            features=said.features,
            rack=said.rack,
            fenced=False,
            inter_broker=said.endpoints.inter_broker,
            control_plane=said.endpoints.control_plane,
        )
        image, _ = ClusterImage.empty("").apply([record], 0)
        self._repairs.append(
            CreateNode(path=paths.our_broker(broker), data=values.our_broker_node(image.brokers[broker]))
        )
        return record

    def _topic(self, name: str, topic: values.TopicNode) -> None:
        self._records.append(TopicRecord(name=name, topic_id=topic.topic_id))
        parents = [paths.partitions(name), *(paths.partition(name, n) for n in range(len(topic.replicas)))]
        made: list[CreateNode] = []
        for number in range(len(topic.replicas)):
            path = paths.state(name, number)
            node = self._tree.get(path)
            if node is not None:
                record = self._states.read(path, node.data, node.version, topic, number)
            elif self._is_ours:
                raise wrong(path, "is missing", f"a node, as topic {name} has {len(topic.replicas)} partitions")
            else:
                record = values.stateless(topic, number)
                made.append(CreateNode(path=path, data=values.state_node(_partition_image(record), 0)))
            self._records.append(record)
        if not self._is_ours:
            self._repairs += [CreateNode(path=path) for path in parents if path not in self._tree]
        self._repairs += made

    def _configs(self, topics: Iterable[str]) -> frozenset[str]:
        """The nodes that there are of brokers without any configuration."""
        emptied = []
        missing = set(topics)
        parents = paths.TOPIC_CONFIGS, paths.BROKER_CONFIGS, paths.OUR_CONFIGS
        for path in (path for parent in parents for path in _below(self._tree, parent)):
            resource = paths.config_resource(path)
            if resource is None:
                continue
            kind, name = resource
            if kind == ResourceType.TOPIC:
                if name not in missing:  # the topic is not there
                    if self._unfinished is None or self._unfinished.topic != name:
                        self._repairs.append(DeleteNode(path=path))
                    continue
                missing.remove(name)
            found = values.read_config_node(path, self._tree[path].data)
            if not found and kind == ResourceType.BROKER:
                emptied.append(path)
            self._records += [
                ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
                for key, value in sorted(found.items())
            ]
        self._repairs += [
            CreateNode(path=paths.config(ResourceType.TOPIC, name), data=values.config_node({}))
            for name in sorted(missing)
        ]
        return frozenset(emptied)

    def _acls(self) -> None:
        found: list[AccessControlEntryRecord] = []
        for path in (path for parent in znode_acls.LISTED for path in _below(self._tree, parent)):
            records = znode_acls.read_node(path, self._tree[path].data)
            found += records
            if not records and znode_acls.resource_of(path) is not None:
                self._repairs.append(DeleteNode(path=path))
        found.sort(key=lambda record: record.id.int)
        self._records += found

    def _producer_ids(self) -> None:
        next_id = values.read_producer_ids_node(paths.PRODUCER_IDS, self._data(paths.PRODUCER_IDS))
        if next_id:
            self._records.append(ProducerIdsRecord(broker_id=0, broker_epoch=0, next_producer_id=next_id))

    def _claim(self) -> Offset | None:
        """The offset at which the log ends; None in a tree of Kafka's."""
        log = values.read_log_node(paths.METADATA_LOG, self._data(paths.METADATA_LOG))
        if log is not None:
            controller, epoch = log.controller_id, log.controller_epoch
        else:
            data = self._data(paths.CONTROLLER)
            controller = values.read_controller_node(paths.CONTROLLER, data).broker_id if data else None
            data = self._data(paths.CONTROLLER_EPOCH)
            epoch = values.read_controller_epoch_node(paths.CONTROLLER_EPOCH, data) if data else 0
        if controller is not None:
            self._records.append(ControllerClaimRecord(controller_epoch=epoch, broker_id=controller, host="", port=0))
        return None if log is None else log.end_offset


def _partition_image(record: PartitionRecord) -> PartitionImage:
    return PartitionImage(
        replicas=record.replicas, isr=record.isr, leader=record.leader, directories=record.directories
    )
