"""What tools ask by nodes, as they ask Kafka: /admin/delete_topics/T, /admin/reassign_partitions and
/admin/preferred_replica_election.

Owns the watches of the controller on them and what was asked by which node. Each becomes the same decision as a request
to the API (``ReignNews.asked``), and is answered by the node's removal, whatever was decided: what is refused stands in
the controller's log. Of a reassignment that goes when all of it is over; what is refused, or over, is taken out of it
before. A new controller asks again for what lies there, which changes nothing where it was decided already. The removal
checks /controller_epoch, as every write of a controller does (H-08).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from holdfast.coordination.zookeeper_client import BadVersionError, Delete, Node, NoNodeError, Operation, Put
from holdfast.coordination.zookeeper_election import Won
from holdfast.coordination.zookeeper_link import Errands, Link, Watched, settled
from holdfast.metadata import znode_notices, znode_paths
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import MetadataRecord, PartitionChangeRecord, RemoveTopicRecord
from holdfast.metadata.store import Asked, DeletionAsked, ElectionAsked, ReassignmentAsked
from holdfast.model.errors import MetadataError
from holdfast.model.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

MAX_DELETIONS: Final = 1000
"""Topics that are asked for at once; the others come when these have gone."""
Wanted = Mapping[TopicPartition, tuple[BrokerId, ...]]
Ask = Callable[[Asked, Callable[[], None]], None]


class _OneNode:
    """A path at which one node at a time says what is asked. ``asked``: what it says and what to call when that is
    decided; ``over``: what is left of it then, None: nothing, the node goes."""

    def __init__(self, requests: ToolRequests, path: str, read: Callable[[str, bytes], None]) -> None:
        self._requests = requests
        self._read = read
        self.watched = Watched(path, requests.look_soon)
        self.czxid: int | None = None
        """Of the node that was asked last."""
        self.is_decided = False

    def look(self, won: Won) -> None:
        """Ask what a new node says, or remove one that cannot be read."""
        node = self.watched.node(won.client)
        if node is None or node.stat.czxid == self.czxid:
            return
        self.czxid, self.is_decided = node.stat.czxid, False
        try:
            self._read(self.watched.path, node.data)
        except MetadataError as e:
            log.warning("%s: it is removed", e)
            self.is_decided = True

    def present(self, won: Won) -> Node | None:
        """The node that was asked, once that is decided."""
        node = won.client.get(self.watched.path) if self.is_decided else None
        return node if node is not None and node.stat.czxid == self.czxid else None


class ToolRequests:
    """See the module's docstring. ``ask`` takes what is asked and what to call, from any thread, when it is decided."""

    def __init__(self, link: Link, errands: Errands, ask: Ask) -> None:
        self._link = link
        self._errands = errands
        self._ask = ask
        self._deletions = Watched(znode_paths.DELETE_TOPICS, self.look_soon)
        self._election = _OneNode(self, znode_paths.PREFERRED_ELECTION, self._read_election)
        self._reassignment = _OneNode(self, znode_paths.REASSIGN_PARTITIONS, self._read_reassignment)
        self._wanted: Wanted = {}
        """What is asked for by the reassignment's node."""
        self._asked: set[str] = set()
        """Topics whose deletion is being decided, or is decided."""
        self._decided: set[str] = set()
        self._image: ClusterImage | None = None
        self._won: Won | None = None

    def begin(self, won: Won, image: ClusterImage) -> None:
        """A reign begins: what lies there, and what comes."""
        self._asked, self._decided = set(), set()
        self._wanted = {}
        self._election.czxid = self._reassignment.czxid = None
        self._image, self._won = image, won
        self.look_soon()

    def end(self) -> None:
        """The reign is over; whoever comes next watches."""
        self._won = self._image = None

    def follow(self, records: Sequence[MetadataRecord], after: ClusterImage) -> None:
        """These were written: what is asked for may be over."""
        self._image = after
        if self._wanted and any(_ends(record) for record in records):
            self._settle_soon()

    # -- what is asked -------------------------------------------------------------------------------------------------

    def look_soon(self) -> None:
        """There may be something. From any thread."""
        if self._won is not None:
            self._errands.post("requests of tools", self._look)

    def _reigning(self) -> Won | None:
        won = self._won
        return won if won is not None and won.client is self._link.client() else None

    def _look(self) -> None:
        won = self._reigning()
        if won is None:
            return
        names = [name for name in self._deletions.names(won.client) if name not in self._asked]
        names = names[: max(0, MAX_DELETIONS - len(self._asked))]
        if names:
            self._asked.update(names)
            log.info("deletion of %d topics is asked for below %s", len(names), znode_paths.DELETE_TOPICS)
            self._ask(DeletionAsked(topics=tuple(names)), lambda: self._are_deleted(won, names))
        self._election.look(won)
        self._reassignment.look(won)
        self._settle_soon()  # a node that cannot be read

    def _are_deleted(self, won: Won, names: Sequence[str]) -> None:
        if self._won is won:
            self._decided.update(names)
            self._settle_soon()

    def _read_election(self, path: str, data: bytes) -> None:
        partitions = znode_notices.read_preferred_election(path, data)
        log.info("%s: the preferred leaders of %d partitions are asked for", path, len(partitions))
        self._ask(ElectionAsked(partitions=partitions), self._decides(self._election))

    def _read_reassignment(self, path: str, data: bytes) -> None:
        self._wanted = znode_notices.read_reassignment(path, data)
        new = {tp: replicas for tp, replicas in self._wanted.items() if not self._is_under_way(tp, replicas)}
        log.info("%s: %d partitions shall move, %d of them do already", path, len(new), len(self._wanted) - len(new))
        self._ask(ReassignmentAsked(replicas=new), self._decides(self._reassignment))

    def _decides(self, node: _OneNode) -> Callable[[], None]:
        won, czxid = self._won, node.czxid

        def decided() -> None:
            if self._won is won and node.czxid == czxid:
                node.is_decided = True
                self._settle_soon()

        return decided

    # -- what is decided -----------------------------------------------------------------------------------------------

    def _settle_soon(self) -> None:
        if self._won is not None:
            self._errands.post("answers to tools", self._settle)

    def _settle(self) -> None:
        won = self._reigning()
        if won is None:
            return
        for name in sorted(self._decided):
            self._write(won, Delete(path=znode_paths.delete_topic(name)))
            self._decided.discard(name)
            self._asked.discard(name)
        if (node := self._election.present(won)) is not None:
            self._write(won, Delete(path=znode_paths.PREFERRED_ELECTION, version=node.stat.version))
        if (node := self._reassignment.present(won)) is not None:
            self._settle_reassignment(won, node)

    def _settle_reassignment(self, won: Won, node: Node) -> None:
        path = znode_paths.REASSIGN_PARTITIONS
        left = {tp: replicas for tp, replicas in self._wanted.items() if self._is_under_way(tp, replicas)}
        if not left:
            self._wanted = {}
            self._write(won, Delete(path=path, version=node.stat.version))
        elif left != self._wanted:
            self._write(won, Put(path=path, data=znode_notices.reassignment(left), version=node.stat.version))
            self._wanted = left

    def _write(self, won: Won, operation: Operation) -> None:
        won.client.sync()  # a write before that had no answer is settled by it; until then no other is sent
        try:
            settled(won.client.write([won.check, operation]), self._errands)
        except NoNodeError:
            log.debug("%s has been removed by another one", operation.path)
        except BadVersionError as e:
            log.info("%s is left to whoever wrote it: %s", operation.path, e)

    def _is_under_way(self, tp: TopicPartition, replicas: tuple[BrokerId, ...]) -> bool:
        topic = None if self._image is None else self._image.topics.get(tp.topic)
        partition = None if topic is None else topic.partitions.get(tp.partition)
        return partition is not None and partition.is_reassigned and partition.target == replicas


def _ends(record: MetadataRecord) -> bool:
    """Whether a reassignment may be over with it, or have another target."""
    if isinstance(record, PartitionChangeRecord):
        return record.adding is not None or record.removing is not None
    return isinstance(record, RemoveTopicRecord)
