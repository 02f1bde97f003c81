"""What a commit takes for written when its answer was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest

from holdfast.coordination.lanes import ThreadLanes
from holdfast.coordination.zookeeper_client import (
    BadVersionError,
    ConnectionLostError,
    Done,
    Node,
    Operation,
    Stat,
    ZooKeeperClient,
)
from holdfast.coordination.zookeeper_election import Won
from holdfast.coordination.zookeeper_link import Errands, Link
from holdfast.coordination.zookeeper_writer import Writer, WriteStep
from holdfast.metadata.znode_paths import CONTROLLER_EPOCH, METADATA_LOG
from holdfast.model.errors import FencedControllerError


class Wire:
    """An ensemble at the end of a connection that is lost at the first write; what another controller then does."""

    session_id = 1

    def __init__(self, meanwhile: Callable[[Wire], None]) -> None:
        self.versions = {METADATA_LOG: 5, CONTROLLER_EPOCH: 2}
        self._meanwhile: Callable[[Wire], None] | None = meanwhile

    def write(self, operations: Sequence[Operation]) -> Future[list[Done]]:
        future: Future[list[Done]] = Future()
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile(self)
            future.set_exception(ConnectionLostError("lost"))
        else:
            future.set_exception(BadVersionError("fenced"))
        return future

    def sync(self) -> None:
        """Everything that was written is seen."""

    def get(self, path: str) -> Node:
        stat = Stat(czxid=1, mzxid=1, version=self.versions[path], cversion=0, ephemeral_owner=0)
        return Node(data=b"3", stat=stat)


class Connected:
    """The connection is back at once."""

    def wait_connected(self, client: Any) -> None:
        """It is."""


def writer(wire: Wire) -> Writer:
    won = Won(client=cast(ZooKeeperClient, wire), epoch=2, epoch_version=2)
    errands = Errands(ThreadLanes("test"))
    return Writer(cast(Link, Connected()), errands, won, tail_version=5, tail=b"of the claim", end_offset=100)


STEP = WriteStep(operations=(), tail=b"of the commit", end_offset=107)


def test_H_08_what_another_controller_wrote_is_not_taken_for_the_commit_whose_answer_was_lost() -> None:
    """It has claimed and written once, so the tail has just the version that the lost write would have given it."""

    def displaced(wire: Wire) -> None:
        wire.versions = {METADATA_LOG: 6, CONTROLLER_EPOCH: 3}

    one = writer(Wire(displaced))
    with pytest.raises(FencedControllerError):
        one.write([STEP])
    assert one.end_offset == 100


def test_a_commit_whose_answer_was_lost_is_through_when_it_is_there() -> None:
    def done(wire: Wire) -> None:
        wire.versions[METADATA_LOG] = 6

    one = writer(Wire(done))
    one.write([STEP])
    assert one.end_offset == 107
