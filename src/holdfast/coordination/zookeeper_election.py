"""Who is the controller: /controller, an ephemeral node that is made in one multi with the next /controller_epoch.

Owns the watch on /controller and what it said last. Every broker has one watch there, as everybody must know where the
controller is; but those that could take over do not all write when it goes: they try in the order of their ids, a
moment after each other, and who sees that another was quicker does not try (H-11).

A node that is there is waited for, unless whoever made it is known to be dead: an earlier session of this process, an
earlier process of this broker (it was at the address at which this one listens, H-10), or one whose port refuses
(``died``). Then it goes in the multi in which the next one comes. Being wrong about that costs an election and nothing
else: what an old controller writes is checked against the version of /controller_epoch (H-08).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

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
    SessionExpiredError,
    ZooKeeperClient,
    ZooKeeperError,
)
from holdfast.coordination.zookeeper_link import CLOSED, Errands, Link, Watched, settled
from holdfast.metadata import znode_paths, znode_values
from holdfast.metadata.store import Candidate, ControllerLocation
from holdfast.metadata.znode_values import ControllerNode
from holdfast.model.errors import FencedControllerError, MetadataError
from holdfast.model.types import ControllerEpoch

log = logging.getLogger(__name__)

TURN_S: Final = 0.03
"""Between the tries of two brokers to become the controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundController:
    """/controller as it was read. ``owner``: the session that made it. ``location`` None: it is not one of ours."""

    owner: int
    czxid: int
    location: ControllerLocation | None


def _found(node: Node) -> FoundController:
    owner, czxid = node.stat.ephemeral_owner, node.stat.czxid
    try:
        said = znode_values.read_controller_node(znode_paths.CONTROLLER, node.data)
    except MetadataError as e:
        log.warning("%s", e)
        return FoundController(owner=owner, czxid=czxid, location=None)
    if said.address is None or said.epoch is None:
        return FoundController(owner=owner, czxid=czxid, location=None)
    host, port = said.address
    location = ControllerLocation(
        broker_id=said.broker_id,
        host=host,
        port=port,
        epoch=said.epoch,
        listener=said.listener,
        security_protocol=said.security_protocol,
    )
    return FoundController(owner=owner, czxid=czxid, location=location)


@dataclass(frozen=True, slots=True, kw_only=True)
class Won:
    """The claim as it is in the ensemble. ``epoch_version`` is that of /controller_epoch: every write checks it."""

    client: ZooKeeperClient
    epoch: ControllerEpoch
    epoch_version: int

    @property
    def check(self) -> Check:
        """Fails as soon as another one has claimed."""
        return Check(path=znode_paths.CONTROLLER_EPOCH, version=self.epoch_version)


def _is_of(node: FoundController | None, client: ZooKeeperClient, won: Won) -> bool:
    return (
        client is won.client
        and node is not None
        and node.owner == client.session_id
        and node.location is not None
        and node.location.epoch == won.epoch
    )


class ControllerElection:
    """See the module's docstring. ``lost`` is called, from any thread and perhaps more than once, when /controller says
    that what was won is over."""

    def __init__(
        self,
        link: Link,
        errands: Errands,
        lost: Callable[[Won, str], None],
        wall_ms: Callable[[], int],
    ) -> None:
        self._link = link
        self._errands = errands
        self._lost = lost
        self._wall_ms = wall_ms
        self._news = threading.Condition()
        self._watched = Watched(znode_paths.CONTROLLER, self.look_soon)
        self._node: FoundController | None = None
        self._has_looked = False
        self._won: Won | None = None
        self._highest_won: ControllerEpoch = 0
        self._last_id: int | None = None
        """Who was the controller before, as far as this broker knows."""
        self._dead: int | None = None
        """The epoch of a controller whose port refuses."""

    # -- where it is ---------------------------------------------------------------------------------------------------

    def look_soon(self) -> None:
        """/controller may be another one."""
        self._errands.post("who is the controller", self._look_now)

    def _look_now(self) -> None:
        self._look(self._link.client())

    def _look(self, client: ZooKeeperClient) -> FoundController | None:
        won = self._won  # what is read from now on is of after it was won
        found = self._watched.node(client)
        node = None if found is None else _found(found)
        self._set(node)
        if won is not None and won is self._won and not _is_of(node, client, won):
            now = "gone" if node is None else f"of {node.location or 'a session before'}"
            self._lost(won, f"{znode_paths.CONTROLLER} is {now}")
        return node

    def _set(self, node: FoundController | None) -> None:
        with self._news:
            self._node, self._has_looked = node, True
            if node is not None and node.location is not None:
                self._last_id = node.location.broker_id
            self._news.notify_all()

    def location(self) -> ControllerLocation | None:
        """Where the controller is, by the last look; the first one is made here."""
        if not self._has_looked:
            try:
                self._look(self._link.client())
            except (ConnectionLostError, SessionExpiredError):
                return None
        node = self._node
        return None if node is None else node.location

    def died(self, location: ControllerLocation) -> None:
        """The port of this controller refuses: its session need not be waited for."""
        with self._news:
            self._dead = location.epoch
            self._news.notify_all()

    def wake(self) -> None:
        """The session has changed, or the store is closed."""
        with self._news:
            self._news.notify_all()

    # -- taking over ---------------------------------------------------------------------------------------------------

    def take(self, candidate: Candidate) -> Won:
        """Wait until ``candidate`` is the controller. FencedControllerError once the store is closed."""
        while True:
            try:
                won = self._take_now(candidate, self._link.waiting_client())
            except (ConnectionLostError, SessionExpiredError) as e:
                log.info("ZooKeeper: claim: %s", e)
                # A session that is over answers so at once, until the link has heard of it: not without a pause.
                if self._errands.wait(TURN_S):
                    raise FencedControllerError(CLOSED) from None
                continue
            if won is not None:
                return won
            if self._errands.wait(0):
                raise FencedControllerError(CLOSED)

    def _take_now(self, candidate: Candidate, client: ZooKeeperClient) -> Won | None:
        """One look and, if nobody lives who is the controller, one try. None: look again."""
        client.sync()  # a server may be behind; also says what became of a write that had no answer
        epoch = self._epoch(client)  # first: what is found of /controller then is what its version stands for
        node = self._look(client)
        if node is not None and not self._may_replace(node, candidate, client):
            self._wait(node, client)
            return None
        is_own = node is not None and not self._is_dead(node)
        if not is_own and not self._is_my_turn(candidate, client, node):
            return None
        return self._try(candidate, client, node, epoch)

    def _may_replace(self, node: FoundController, candidate: Candidate, client: ZooKeeperClient) -> bool:
        if node.owner == client.session_id or self._is_dead(node):
            return True
        at = node.location
        if at is None or (self._highest_won and at.epoch > self._highest_won):
            return False  # of a newer process with our address, which is not to be answered in kind
        return (at.broker_id, at.host, at.port) == (candidate.broker_id, candidate.host, candidate.port)

    def _is_dead(self, node: FoundController) -> bool:
        return node.location is not None and node.location.epoch == self._dead

    def _wait(self, node: FoundController, client: ZooKeeperClient) -> None:
        """Until /controller is another one, its owner is dead, or the session has gone."""
        with self._news:
            while (
                self._node is not None
                and self._node.czxid == node.czxid
                and not self._is_dead(node)
                and self._link.present is client
                and not self._errands.wait(0)
            ):
                self._news.wait()

    def _is_my_turn(self, candidate: Candidate, client: ZooKeeperClient, node: FoundController | None) -> bool:
        """Let those with smaller ids try first. False: something has changed meanwhile."""
        ids = sorted(int(name) for name in client.children(znode_paths.BROKER_IDS) or () if name.isdigit())
        before_me = [each for each in ids if each < candidate.broker_id and each != self._last_id]
        with self._news:
            self._news.wait_for(lambda: self._is_other(node), len(before_me) * TURN_S)
            return not self._is_other(node)

    def _is_other(self, node: FoundController | None) -> bool:
        now = self._node
        return now is not None and (node is None or now.czxid != node.czxid)

    def _epoch(self, client: ZooKeeperClient) -> Node:
        while True:
            found = client.get(znode_paths.CONTROLLER_EPOCH)
            if found is not None:
                return found
            first = Create(path=znode_paths.CONTROLLER_EPOCH, data=znode_values.controller_epoch_node(0))
            try:
                settled(client.write([first]), self._errands)
            except NodeExistsError:
                log.debug("another broker has made %s", znode_paths.CONTROLLER_EPOCH)

    def _try(
        self, candidate: Candidate, client: ZooKeeperClient, node: FoundController | None, before: Node
    ) -> Won | None:
        version = before.stat.version
        epoch = znode_values.read_controller_epoch_node(znode_paths.CONTROLLER_EPOCH, before.data) + 1
        said = ControllerNode(
            broker_id=candidate.broker_id,
            timestamp_ms=self._wall_ms(),
            address=(candidate.host, candidate.port),
            epoch=epoch,
            listener=candidate.listener,
            security_protocol=candidate.security_protocol,
        )
        data = znode_values.controller_node(said)
        operations: list[Operation] = [
            Create(path=znode_paths.CONTROLLER, data=data, ephemeral=True),
            Put(path=znode_paths.CONTROLLER_EPOCH, data=znode_values.controller_epoch_node(epoch), version=version),
        ]
        if node is not None:
            operations.insert(0, Delete(path=znode_paths.CONTROLLER))
        try:
            settled(client.write(operations), self._errands)
        except (NodeExistsError, NoNodeError, BadVersionError) as e:
            log.info("another broker was quicker to become the controller: %s", e)
            return None
        self._won = Won(client=client, epoch=epoch, epoch_version=version + 1)
        self._highest_won = epoch
        self._look(client)
        return self._won

    def give_back(self, won: Won) -> None:
        """/controller goes, if it is ours still and somebody answers."""
        self._won = None
        if self._link.present is not won.client:
            return  # it went with its session
        try:
            settled(won.client.write([won.check, Delete(path=znode_paths.CONTROLLER)]), self._errands)
        except ZooKeeperError as e:
            log.info("ZooKeeper: /controller was not given back: %s", e)
            return
        self._set(None)
