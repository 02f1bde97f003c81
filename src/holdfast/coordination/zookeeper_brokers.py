"""The nodes of brokers that live: /brokers/ids/N, ephemeral, each made by its broker.

``OwnNode`` keeps this broker's node there for as long as the process has a session: it comes back in the next session
after one has expired, and when somebody deletes it. A node of an earlier session of this process, or of an earlier
process of this broker (it was at an address at which this one listens), is replaced (H-10). One of another address is
waited for: a live broker with the same id is the controller's to refuse, which also removes the node of one that died.
So is one of our address that came after ours: two processes with one address would replace each other without end.

``LiveBrokers`` is the controller's: it watches which nodes come and go, and tells whose session has ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from holdfast.coordination.zookeeper_client import (
    BadVersionError,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    ZooKeeperClient,
)
from holdfast.coordination.zookeeper_election import Won
from holdfast.coordination.zookeeper_link import RETRY_S, Errands, Link, Watched, settled
from holdfast.metadata import znode_paths, znode_values
from holdfast.metadata.image import BrokerImage, ClusterImage
from holdfast.metadata.store import Presence
from holdfast.metadata.znode_values import BrokerIdsNode
from holdfast.model.errors import MetadataError
from holdfast.model.types import BrokerId

log = logging.getLogger(__name__)

ABSENT_S: Final = 0.3
"""How long a new controller waits for the nodes of brokers that the metadata says live: sessions that ended together,
with the ensemble away, come back one after the other. It waits for no broker that is missing alone: its host is silent,
as that of the controller before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNode:
    """/brokers/ids/N as it was read. ``owner``: the session that made it."""

    owner: int
    czxid: int
    said: BrokerIdsNode | None
    """None: it cannot be read."""

    @property
    def incarnation_id(self) -> UUID | None:
        """None of a broker of Kafka's."""
        return None if self.said is None else self.said.incarnation_id


def _live(path: str, node: Node) -> LiveNode:
    try:
        said = znode_values.read_broker_node(path, node.data)
    except MetadataError as e:
        log.warning("%s", e)
        said = None
    return LiveNode(owner=node.stat.ephemeral_owner, czxid=node.stat.czxid, said=said)


class OwnNode:
    """See the module's docstring."""

    def __init__(
        self, link: Link, errands: Errands, wall_ms: Callable[[], int], entered: Callable[[Presence], None]
    ) -> None:
        """``entered``: called once, when the node is there for the first time."""
        self._link = link
        self._errands = errands
        self._wall_ms = wall_ms
        self._entered: Callable[[Presence], None] | None = entered
        self._me: Presence | None = None
        self._watched: Watched | None = None
        self._said_taken: int | None = None
        self._made = threading.Event()

    def enter(self, me: Presence) -> None:
        """From now on this broker has a node. Returns at once."""
        self._me = me
        self._watched = Watched(znode_paths.broker_id(me.broker_id), self.look_soon)
        self.look_soon()

    def wait_made(self, timeout_s: float) -> None:
        """Until it was made, where this broker is to have one: as in Kafka, who claims is there to be seen."""
        if self._me is not None:
            self._made.wait(timeout_s)

    def look_soon(self) -> None:
        """The node may have gone."""
        if self._me is not None:
            self._errands.post("own node", self._keep)

    def _keep(self) -> None:
        me, watched = self._me, self._watched
        assert me is not None and watched is not None
        client = self._link.client()
        found = watched.node(client)
        if found is not None:
            node = _live(watched.path, found)
            if node.owner == client.session_id and node.incarnation_id == me.incarnation_id:
                self._is_there(me)
                return
            if not (node.owner == client.session_id or self._is_replaced(node, me)):
                if self._said_taken != node.czxid:
                    where = "an unknown address" if node.said is None else node.said.endpoints
                    log.warning("%s is there, of a broker at %s: waiting until it goes", watched.path, where)
                    self._said_taken = node.czxid
                return
        client.sync()  # also says what became of a write before that had no answer
        replaced: list[Operation] = []
        if found is not None:
            replaced.append(Delete(path=watched.path, version=found.stat.version))
        said = BrokerIdsNode(
            endpoints=me.endpoints, timestamp_ms=self._wall_ms(), rack=me.rack, incarnation_id=me.incarnation_id,
            host=me.host,
        )  # fmt: skip
        data = znode_values.broker_node(said)
        try:
            settled(
                client.write([*replaced, Create(path=watched.path, ephemeral=True), Put(path=watched.path, data=data)]),
                self._errands,
            )
        except (NodeExistsError, NoNodeError, BadVersionError) as e:
            log.info("%s is not made: %s", watched.path, e)
            self._errands.post_later(RETRY_S, "own node", self._keep)
            return
        log.info("%s is made in session 0x%x", watched.path, client.session_id)
        self._is_there(me)
        self._watched_again(watched, client)

    def _is_there(self, me: Presence) -> None:
        self._made.set()
        entered, self._entered = self._entered, None
        if entered is not None:
            entered(me)

    def _watched_again(self, watched: Watched, client: ZooKeeperClient) -> None:
        if watched.node(client) is None:
            self.look_soon()

    def _is_replaced(self, node: LiveNode, me: Presence) -> bool:
        if node.said is None:
            return False
        if node.incarnation_id == me.incarnation_id:
            return True
        return not self._made.is_set() and me.endpoints.shares_address_with(node.said.endpoints)


class LiveBrokers:
    """See the module's docstring. ``gone`` is called for a broker whose node has gone, with its incarnation; ``looked``
    when others live than before."""

    def __init__(
        self,
        link: Link,
        errands: Errands,
        gone: Callable[[BrokerId, UUID], None],
        looked: Callable[[], None],
    ) -> None:
        self._link = link
        self._errands = errands
        self._gone = gone
        self._looked = looked
        self._watched = Watched(znode_paths.BROKER_IDS, self._look_soon)
        self._mutex = threading.Lock()
        self._won: Won | None = None
        self._live: dict[BrokerId, LiveNode] | None = None
        """None: not looked yet in this reign."""
        self._expected: dict[BrokerId, UUID] = {}
        """Of the metadata that the reign began with: brokers that were not seen yet, with their incarnations."""

    def begin(self, won: Won, image: ClusterImage, own_id: BrokerId) -> None:
        """A reign begins with this metadata."""
        expected = {b.id: b.incarnation_id for b in image.brokers.values() if not b.fenced and b.id != own_id}
        with self._mutex:
            self._won, self._live, self._expected = won, None, expected
        self._look_soon()
        if expected:
            self._miss_soon(won)

    def end(self) -> None:
        """The reign is over."""
        with self._mutex:
            self._won = self._live = None

    def _look_soon(self) -> None:
        if self._won is not None:
            self._errands.post("brokers that live", self._look)

    def _look(self) -> None:
        won = self._won
        client = self._link.client()
        if won is None or won.client is not client:
            return
        live = self._read(client)
        with self._mutex:
            if self._won is not won:
                return
            is_first = self._live is None
            before, self._live = self._live or {}, live
            missing = self._missing(live)
            at_once = missing if is_first and len(missing) == 1 < len(self._expected) else {}
            for broker_id in at_once:
                del self._expected[broker_id]
        self._looked()
        for broker_id, incarnation_id in at_once.items():
            self._gone(broker_id, incarnation_id)
        for broker_id, node in before.items():
            now = live.get(broker_id)
            if node.incarnation_id is not None and (now is None or now.incarnation_id != node.incarnation_id):
                self._gone(broker_id, node.incarnation_id)

    def _read(self, client: ZooKeeperClient) -> dict[BrokerId, LiveNode]:
        paths = {
            broker_id: f"{znode_paths.BROKER_IDS}/{name}"
            for name in self._watched.names(client)
            if (broker_id := znode_paths.broker_of(name)) is not None
        }
        nodes = client.get_all(list(paths.values()))
        return {
            broker_id: _live(path, node)
            for (broker_id, path), node in zip(paths.items(), nodes, strict=True)
            if node is not None
        }

    def _miss_soon(self, won: Won) -> None:
        name = f"brokers that are absent, epoch {won.epoch}"
        self._errands.post_later(ABSENT_S, name, lambda: self._miss(won))

    def _miss(self, won: Won) -> None:
        """Those that the metadata says live, and that have no node."""
        with self._mutex:
            if self._won is not won:
                return
            live = self._live
            missing = {} if live is None else self._missing(live)
        if live is None:
            self._miss_soon(won)
            return
        for broker_id, incarnation_id in missing.items():
            self._gone(broker_id, incarnation_id)

    def _missing(self, live: dict[BrokerId, LiveNode]) -> dict[BrokerId, UUID]:
        return {
            broker_id: incarnation_id
            for broker_id, incarnation_id in self._expected.items()
            if (node := live.get(broker_id)) is None or node.incarnation_id not in (None, incarnation_id)
        }

    # -- nodes of the dead ---------------------------------------------------------------------------------------------

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """What was committed: the node of a broker that is known to be dead goes, be its session over or not."""
        if after.brokers is before.brokers:
            return
        for broker in after.brokers.values():
            old = before.brokers.get(broker.id)
            if old is broker:
                continue
            if old is None or old.incarnation_id != broker.incarnation_id:
                self._remove_soon(broker, is_of_it=False)
            elif broker.fenced and not old.fenced:
                self._remove_soon(broker, is_of_it=True)

    def _remove_soon(self, broker: BrokerImage, *, is_of_it: bool) -> None:
        name = f"node of broker {broker.id}, {'fenced' if is_of_it else 'before'} {broker.incarnation_id}"
        self._errands.post(name, lambda: self._remove(broker, is_of_it))

    def _remove(self, broker: BrokerImage, is_of_it: bool) -> None:
        """The node goes that is of this incarnation, or that is of another one."""
        won = self._won
        client = self._link.client()
        if won is None or won.client is not client:
            return
        path = znode_paths.broker_id(broker.id)
        found = client.get(path)
        node = None if found is None else _live(path, found)
        if found is None or node is None or node.incarnation_id is None:
            return
        if (node.incarnation_id == broker.incarnation_id) is not is_of_it:
            return
        with self._mutex:
            known = None if self._live is None else self._live.get(broker.id)
            if self._live is not None and known is not None and known.incarnation_id == node.incarnation_id:
                del self._live[broker.id]  # that it goes is no news
        client.sync()
        try:
            settled(client.write([won.check, Delete(path=path, version=found.stat.version)]), self._errands)
        except (NoNodeError, BadVersionError) as e:
            log.info("%s was not removed: %s", path, e)
