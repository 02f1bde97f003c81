"""Log directories that fail, as brokers tell it through the ensemble (KIP-112): /log_dir_event_notification.

A broker makes a node there that stays, with ten digits in its name (K112-22). The controller of the time watches for
them (K112-20), removes each, whatever it says, and asks the broker which replicas are gone by sending it LeaderAndIsr
(K112-23). Nothing is lost with a node that is removed: a new controller asks every broker (K112-62). Heartbeats tell
the same; whichever comes first counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast.coordination.zookeeper_client import Delete, NoNodeError
from holdfast.coordination.zookeeper_election import Won
from holdfast.coordination.zookeeper_link import Errands, Link, Watched, settled
from holdfast.coordination.zookeeper_tree import operation
from holdfast.metadata import znode_notices, znode_paths
from holdfast.metadata.znode_notices import LogDirEvent
from holdfast.model.errors import MetadataError
from holdfast.model.types import BrokerId

log = logging.getLogger(__name__)


class LogDirEvents:
    """See the module's docstring. ``told`` is called for each node that names a broker, once it is removed."""

    def __init__(self, link: Link, errands: Errands, told: Callable[[BrokerId], None]) -> None:
        self._link = link
        self._errands = errands
        self._told = told
        self._watched = Watched(znode_paths.LOG_DIR_EVENTS, self._look_soon)
        self._won: Won | None = None

    def announce(self, broker_id: BrokerId) -> None:
        """A log directory of this broker has failed. Returns at once; told until it is answered."""
        event = operation(znode_notices.log_dir_event(LogDirEvent(broker_id=broker_id)))

        def make() -> None:
            client = self._link.client()
            client.sync()  # also says what became of a write before that had no answer
            settled(client.write([event]), self._errands)

        self._errands.post("a log directory has failed", make)

    def begin(self, won: Won) -> None:
        """A reign begins: what lies there, and what comes."""
        self._won = won
        self._look_soon()

    def end(self) -> None:
        """The reign is over; whoever comes next watches."""
        self._won = None

    def _look_soon(self) -> None:
        if self._won is not None:
            self._errands.post("log directories that have failed", self._look)

    def _look(self) -> None:
        won = self._won
        client = self._link.client()
        if won is None or won.client is not client:
            return
        paths = [f"{znode_paths.LOG_DIR_EVENTS}/{name}" for name in self._watched.names(client)]
        if not paths:
            return
        client.sync()
        for path, node in zip(paths, client.get_all(paths), strict=True):
            if node is None:
                continue
            try:
                settled(client.write([won.check, Delete(path=path)]), self._errands)
            except NoNodeError:
                continue
            try:
                event = znode_notices.read_log_dir_event(path, node.data)
            except MetadataError as e:
                log.warning("%s", e)
                continue
            log.info("broker %d says that a log directory has failed", event.broker_id)
            self._told(event.broker_id)
