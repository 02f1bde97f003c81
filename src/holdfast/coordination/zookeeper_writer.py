"""What a controller writes to an ensemble: one multi after the other, each checked, all under way at once.

Every multi has a check of the version of /controller_epoch (H-08), which another claim raises, and is a link of a
chain: it writes METADATA_LOG, expecting the version that the one before made. So however the
multis fare, what was written of a commit is a prefix of it, and after a lost connection the version of that node says
which prefix: the rest is sent again, and none of it twice.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from holdfast.coordination.zookeeper_client import (
    BadVersionError,
    ConnectionLostError,
    Done,
    Node,
    Operation,
    Put,
    SessionExpiredError,
    ZooKeeperError,
)
from holdfast.coordination.zookeeper_election import Won
from holdfast.coordination.zookeeper_link import Errands, Link, settled
from holdfast.metadata.znode_paths import CONTROLLER_EPOCH, METADATA_LOG
from holdfast.model.errors import FencedControllerError, KafkaStorageError
from holdfast.model.types import Offset

log = logging.getLogger(__name__)

MAX_UNDER_WAY: Final = 4
"""Multis of a commit: a session also needs an answer to its pings, which come in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStep:
    """One multi: its operations without the check and the link, what METADATA_LOG says with it, and where the log ends
    when it is done."""

    operations: Sequence[Operation]
    tail: bytes
    end_offset: Offset


class Writer:
    """The writes of one claim. ``tail``: the version of METADATA_LOG and what it says; ``end_offset``: where the log
    ends. Both as far as is written."""

    def __init__(
        self, link: Link, errands: Errands, won: Won, *, tail_version: int, tail: bytes, end_offset: Offset
    ) -> None:
        self._link = link
        self._errands = errands
        self._won = won
        self._tail_version = tail_version
        self.tail = tail
        self.end_offset = end_offset

    def write(self, steps: Sequence[WriteStep]) -> None:
        """Return when all are written. FencedControllerError: another one has claimed, or the session is over.
        KafkaStorageError: nobody knows how much was written."""
        first = self._tail_version
        try:
            while self._tail_version < first + len(steps):
                try:
                    self._send(steps[self._tail_version - first :])
                except ConnectionLostError as e:
                    log.warning("ZooKeeper: a commit of controller epoch %d waits: %s", self._won.epoch, e)
                    self._find_out(first, steps)
        except SessionExpiredError as e:
            raise FencedControllerError(f"Controller epoch {self._won.epoch} is over: {e}") from e
        except ZooKeeperError as e:
            raise self._meaning(e) from e

    def _send(self, steps: Sequence[WriteStep]) -> None:
        """Send all, a number of them at a time; the first error, once none is under way any more."""
        under_way: deque[tuple[WriteStep, Future[list[Done]]]] = deque()
        failed: ZooKeeperError | None = None
        version = self._tail_version
        left = deque(steps)
        while under_way or (left and failed is None):
            if left and failed is None and len(under_way) < MAX_UNDER_WAY:
                step = left.popleft()
                link = Put(path=METADATA_LOG, data=step.tail, version=version)
                try:
                    future = self._won.client.write([self._won.check, *step.operations, link])
                except ZooKeeperError as e:
                    failed = e
                    continue
                under_way.append((step, future))
                version += 1
                continue
            step, future = under_way.popleft()
            try:
                settled(future, self._errands)
            except ZooKeeperError as e:
                failed = failed or e
            else:
                self._is_through(step)
        if failed is not None:
            raise failed

    def _find_out(self, first: int, steps: Sequence[WriteStep]) -> None:
        """How much of it was written, when a server answers again."""
        client = self._won.client
        while True:
            self._link.wait_connected(client)
            try:
                client.sync()
                tail = client.get(METADATA_LOG)
                epoch = client.get(CONTROLLER_EPOCH)  # after the tail: whoever wrote that has claimed before
            except ConnectionLostError:
                if self._errands.wait(0.05):
                    raise FencedControllerError("The metadata store is closed") from None
                continue
            break
        if epoch is None or epoch.stat.version != self._won.epoch_version:
            raise self._is_over(epoch)
        if tail is None or not self._tail_version <= tail.stat.version <= first + len(steps):
            raise KafkaStorageError(f"{METADATA_LOG} was written by another one than controller {self._won.epoch}")
        for step in steps[self._tail_version - first : tail.stat.version - first]:
            self._is_through(step)

    def _is_through(self, step: WriteStep) -> None:
        self._tail_version += 1
        self.tail, self.end_offset = step.tail, step.end_offset

    def _meaning(self, error: ZooKeeperError) -> FencedControllerError | KafkaStorageError:
        """What an error of a multi says of the claim."""
        if isinstance(error, BadVersionError):
            try:
                node = self._won.client.get(CONTROLLER_EPOCH)
            except ZooKeeperError as e:
                return KafkaStorageError(f"{error}; {e}")
            if node is None or node.stat.version != self._won.epoch_version:
                return self._is_over(node)
        return KafkaStorageError(f"ZooKeeper: {error}")

    def _is_over(self, node: Node | None) -> FencedControllerError:
        now = "gone" if node is None else node.data.decode(errors="replace")
        return FencedControllerError(f"Controller epoch {self._won.epoch} is over: {CONTROLLER_EPOCH} is {now}")
