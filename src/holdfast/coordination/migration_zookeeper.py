"""ZooKeeper's tree as one side of a migration (migration.py).

The mark is the node MOVED. A broker looks for it when it starts, and a controller once more behind its claim. The
source's mark is written in one multi with a check that /controller_epoch is as it was when the tree was read: so
whoever claims either finds the mark or keeps it from being written. What is written to a target checks the version of
its mark, so that two migrations at a time do not mix.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final

from holdfast.coordination import zookeeper_tree as tree
from holdfast.coordination.migration import MigrationError, StoreStanding
from holdfast.coordination.zookeeper_client import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    ZooKeeperClient,
)
from holdfast.coordination.zookeeper_ids import read_ids
from holdfast.metadata import moved, znode_acls, znode_hosts, znode_paths, znode_users, znode_values, znodes
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.moved import Moved
from holdfast.metadata.znode_tree import TreeReading
from holdfast.metadata.znode_writes import NodeWrite, cut
from holdfast.metadata.znodes import TreeWriter
from holdfast.model.errors import KafkaStorageError, MetadataError
from holdfast.model.types import ControllerEpoch

UNDER_WAY: Final = 4
DELETES_AT_ONCE: Final = 500
READS: Final = 5
"""Times that a tree is read which somebody writes meanwhile."""
_EMPTIED: Final = (
    znode_paths.TOPICS, znode_paths.TOPIC_CONFIGS, znode_paths.BROKER_CONFIGS, znode_paths.CONFIG_CHANGES,
    znode_paths.DELETE_TOPICS, znode_paths.LOG_DIR_EVENTS, znode_paths.ISR_CHANGES, znode_paths.OUR_BROKERS,
    znode_paths.OUR_CONFIGS, znode_paths.HOSTS, znode_paths.CLAIMED_IDS, *znode_acls.LISTED,
    znode_acls.LITERAL_CHANGES, znode_acls.PREFIXED_CHANGES, *znode_users.LISTED,
)  # fmt: skip
"""Of these everything below goes. What others keep beside them stays."""
_REQUESTS: Final = (znode_paths.REASSIGN_PARTITIONS, znode_paths.PREFERRED_ELECTION)


class ZooKeeperSide:
    """See the module's docstring (Side). ``client`` is not started; ``start`` comes first, ``close`` last."""

    def __init__(self, client: ZooKeeperClient, place: str, *, connect_timeout_s: float) -> None:
        """``place``: the ensemble and the chroot, for a person."""
        self._client = client
        self._place = place
        self._connect_timeout_s = connect_timeout_s
        self._mark_version = 0
        self._is_filled = False
        """By us: then it is read though its mark says that it is not whole."""
        self._ids_version: int | None = None
        """Of CLAIMED_IDS when it was read; None: not read, or missing."""
        self._epoch_version: int | None = None
        """Of /controller_epoch when nobody was there; None: it is missing."""

    @property
    def name(self) -> str:
        return f"the ZooKeeper store {self._place}"

    def start(self) -> None:
        """ConnectionLostError when no server answers."""
        self._client.start(self._connect_timeout_s)
        self._client.sync()

    def close(self) -> None:
        """End the session."""
        self._client.close()

    def refuse_running(self) -> None:
        """MigrationError when a broker has a session."""
        self._client.sync()
        epoch = self._client.get(znode_paths.CONTROLLER_EPOCH)
        self._epoch_version = None if epoch is None else epoch.stat.version
        found = []
        controller = self._client.get(znode_paths.CONTROLLER)
        if controller is not None:
            found.append(f"{znode_paths.CONTROLLER} is there, of {_controller(controller)}")
        brokers = self._client.children(znode_paths.BROKER_IDS) or []
        if brokers:
            found.append(f"{znode_paths.BROKER_IDS} has {', '.join(sorted(brokers, key=_numeric))}")
        if found:
            raise MigrationError(
                f"A broker of this cluster runs in {self.name}: {'; '.join(found)}. Stop all of them first; the "
                "nodes of one that was killed go with its session, after zookeeper.session.timeout.ms"
            )

    # -- reading -------------------------------------------------------------------------------------------------------

    def standing(self) -> StoreStanding:
        client = self._client
        cluster = client.get(znode_paths.CLUSTER_ID)
        mark = client.get(znode_paths.MOVED)
        tail = client.get(znode_paths.METADATA_LOG)
        has_log = tail is not None and bool(tail.data)
        if not has_log and mark is None and client.children(znode_paths.TOPICS):
            raise MigrationError(
                f"{self.name} has topics and no {znode_paths.METADATA_LOG}: Kafka's own, which are not moved. Expected "
                "an empty chroot, or metadata of Holdfast"
            )
        return StoreStanding(
            cluster_id=None
            if cluster is None
            else znode_values.read_cluster_id_node(znode_paths.CLUSTER_ID, cluster.data),
            is_empty=not has_log,
            moved=None if mark is None else moved.decode(znode_paths.MOVED, mark.data),
        )

    def epoch(self) -> ControllerEpoch:
        node = self._client.get(znode_paths.CONTROLLER_EPOCH)
        if node is None:
            return 0
        return znode_values.read_controller_epoch_node(znode_paths.CONTROLLER_EPOCH, node.data)

    def load(self) -> ClusterImage:
        standing = self.standing()
        if standing.moved is not None and not standing.moved.is_whole and not self._is_filled:
            raise standing.moved.refusal(self.name)
        if standing.cluster_id is None or standing.is_empty:
            raise KafkaStorageError(f"{self.name} holds no metadata of a cluster")
        reading = self._read()
        image, _ = ClusterImage.empty(standing.cluster_id).apply(reading.records, reading.base_offset)
        image = replace(image, offset=reading.end_offset - 1 if reading.end_offset else None)
        return self._with_hosts(image)

    def _with_hosts(self, image: ClusterImage) -> ClusterImage:
        """And which host has which broker id. MetadataError of a node that says nothing: it would be lost."""
        if None in self._client.get_all([znode_paths.CLAIMED_IDS, znode_paths.BROKER_SEQUENCE]):
            return znode_hosts.without_hosts(image)  # no broker came here that keeps them
        kept = read_ids(self._client)
        for error, _ in kept.unreadable.values():
            raise error
        self._ids_version = kept.version
        return znode_hosts.with_hosts(image, kept.hosts, kept.sequence)

    def _read(self) -> TreeReading:
        """Of one moment: nobody wrote while it was read."""
        trouble: MetadataError | None = None
        for _ in range(READS):
            before = self._client.get(znode_paths.METADATA_LOG)
            try:
                found = tree.read(self._client)
            except MetadataError as e:  # also what is half there while somebody writes it
                trouble, found = e, None
            after = self._client.get(znode_paths.METADATA_LOG)
            if before is not None and after is not None and before.stat.version == after.stat.version:
                if found is None:
                    assert trouble is not None
                    raise trouble
                return found
        raise KafkaStorageError(f"{self.name} was written to each of {READS} times that it was read: try again later")

    # -- writing -------------------------------------------------------------------------------------------------------

    def begin(self, mark: Moved, cluster_id: str, least_epoch: ControllerEpoch) -> None:
        self._make_mark(moved.encode(mark))
        self.refuse_running()
        nodes = [*znodes.base_nodes(), *znodes.cluster_id(cluster_id)]
        there = self._client.get_all([node.path for node in nodes])
        for node, found in zip(nodes, there, strict=True):
            if found is None:
                self._make(tree.operation(node))
        standing = self.standing()
        if standing.cluster_id != cluster_id:
            raise MigrationError(f"{self.name} is of cluster {standing.cluster_id}: expected {cluster_id}")
        epoch = max(self.epoch(), least_epoch)
        self._write([Put(path=znode_paths.CONTROLLER_EPOCH, data=znode_values.controller_epoch_node(epoch))])

    def _make_mark(self, data: bytes) -> None:
        """With its parent if need be; so that it is there before anything else that a broker would go by."""
        client, path = self._client, znode_paths.MOVED
        while True:
            found = client.get(path)
            operations: list[Operation]
            if found is not None:
                operations = [Put(path=path, data=data, version=found.stat.version)]
            elif client.get(znode_paths.OURS) is not None:
                operations = [Create(path=path, data=data)]
            else:
                operations = [Create(path=znode_paths.OURS), Create(path=path, data=data)]
            try:
                client.write(operations).result()
            except (NodeExistsError, NoNodeError, BadVersionError):
                continue  # somebody is at it too: look again
            self._mark_version = 0 if found is None else found.stat.version + 1
            return

    def _make(self, operation: Operation) -> None:
        try:
            self._client.write([operation]).result()
        except NodeExistsError:
            return

    def empty(self) -> None:
        base = {node.path: node.data for node in znodes.base_nodes()}
        self._write(
            Put(path=path, data=base[path])
            for path in (
                znode_paths.METADATA_LOG, znode_paths.UNFINISHED, znode_paths.PRODUCER_IDS, znode_paths.FEATURE
            )
        )  # fmt: skip
        gone: list[Operation] = []
        for parent in _EMPTIED:
            for path in self._below(parent):
                gone.append(Delete(path=path))
                if len(gone) == DELETES_AT_ONCE:
                    self._write(gone)
                    gone.clear()
        gone += [Delete(path=path) for path in (*_REQUESTS, znode_users.SECRET) if self._client.get(path) is not None]
        gone += [Delete(path=znode_paths.BROKER_SEQUENCE), Create(path=znode_paths.BROKER_SEQUENCE)]  # version 0
        self._write(gone)

    def _below(self, parent: str) -> Iterator[str]:
        """Every node below it, children before parents."""
        for name in self._client.children(parent) or []:
            yield from self._below(f"{parent}/{name}")
            yield f"{parent}/{name}"

    def fill(self, image: ClusterImage, told: Callable[[int, int], None]) -> None:
        hosts = list(znode_hosts.host_writes(image))
        image = znode_hosts.without_hosts(image)
        count = sum(1 for _ in image.to_records())
        first = image.next_offset - count
        under_way: deque[Future[Any]] = deque()

        def begin(writes: Sequence[NodeWrite]) -> None:
            under_way.append(self._begin_write([tree.operation(write) for write in writes]))
            if len(under_way) >= UNDER_WAY:
                self._settle(under_way.popleft())

        done = 0
        for multi in TreeWriter().snapshot(image, tree.LIMIT_BYTES):
            told(done, count)
            begin(multi.writes)
            done = done if multi.end_offset is None else multi.end_offset - first
        for part in cut(hosts, tree.LIMIT_BYTES):
            begin(part)
        while under_way:
            self._settle(under_way.popleft())
        self._is_filled = True

    def _write(self, operations: Iterable[Operation]) -> None:
        wanted = list(operations)
        if wanted:
            self._settle(self._begin_write(wanted))

    def _begin_write(self, operations: Sequence[Operation]) -> Future[Any]:
        return self._client.write([Check(path=znode_paths.MOVED, version=self._mark_version), *operations])

    def _settle(self, future: Future[Any]) -> None:
        try:
            future.result()
        except (BadVersionError, NoNodeError, NodeExistsError) as e:
            raise MigrationError(
                f"{self.name}: {e}: another migration, or somebody else, writes there at the same time"
            ) from e
        except ConnectionLostError as e:
            raise MigrationError(f"{self.name}: {e}. Nothing is lost: run it again when the ensemble answers") from e

    def mark(self, mark: Moved) -> None:
        client, data = self._client, moved.encode(mark)
        found = client.get(znode_paths.MOVED)
        operations: list[Operation] = []
        if self._epoch_version is not None and found is None:
            operations.append(Check(path=znode_paths.CONTROLLER_EPOCH, version=self._epoch_version))
        if self._ids_version is not None and found is None:
            operations.append(Check(path=znode_paths.CLAIMED_IDS, version=self._ids_version))
        if found is None:
            operations.append(Create(path=znode_paths.MOVED, data=data))
        else:
            version = self._mark_version if self._is_filled else found.stat.version
            operations.append(Put(path=znode_paths.MOVED, data=data, version=version))
        try:
            client.write(operations).result()
        except (BadVersionError, NodeExistsError, NoNodeError) as e:
            raise MigrationError(
                f"A broker, or another migration, came to {self.name} meanwhile: nothing was moved. Stop all brokers "
                f"and run it again ({e})"
            ) from e
        self._mark_version = 0 if found is None else found.stat.version + 1

    def open(self) -> None:
        found = self._client.get(znode_paths.MOVED)
        if found is not None:
            version = self._mark_version if self._is_filled else found.stat.version
            try:
                self._client.write([Delete(path=znode_paths.MOVED, version=version)]).result()
            except (BadVersionError, NoNodeError) as e:
                raise MigrationError(f"Another migration came to {self.name} meanwhile: look there ({e})") from e


def _controller(node: Node) -> str:
    try:
        return f"broker {znode_values.read_controller_node(znode_paths.CONTROLLER, node.data).broker_id}"
    except MetadataError:
        return "somebody who does not say who it is"


def _numeric(name: str) -> tuple[int, str]:
    return (int(name), name) if name.isascii() and name.isdigit() else (1 << 40, name)
