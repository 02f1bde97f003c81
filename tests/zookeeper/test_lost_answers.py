"""A store on a real ZooKeeper server whose connection is lost at one of its writes, each in turn."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from holdfast.coordination import zookeeper_tree
from holdfast.coordination.zookeeper_client import Operation
from holdfast.testing import wait_for
from tests.contracts.test_metadata_store import ONE, TWO, Reign, feature
from tests.zookeeper.cluster_nodes import ClusterNodes
from tests.zookeeper.link import Link
from tests.zookeeper.test_commits import topic

pytestmark = pytest.mark.system

PARTITIONS = 190
"""Some multis of them, below the limit that is set here."""


class LostOnce:
    """Loses the connection at one write: its answer when the server has done it, or the write itself."""

    def __init__(self, nodes: ClusterNodes, link: Link, number: int, *, is_done: bool) -> None:
        self._nodes = nodes
        self._link = link
        self._left = number
        self._is_done = is_done
        self.has_happened = False

    def __call__(self, operations: Sequence[Operation]) -> None:
        self._left -= 1
        if self._left == 0:
            self.has_happened = True
            before = self._zxid()
            self._link.cut(to_server=not self._is_done, to_client=True)
            threading.Thread(target=self._lose, args=(before,), daemon=True).start()

    def _zxid(self) -> str:
        return next(line for line in self._nodes.server.ask("srvr").splitlines() if line.startswith("Zxid"))

    def _lose(self, before: str) -> None:
        if self._is_done:
            wait_for(lambda: self._zxid() != before, "the write")
        self._link.reset()
        self._link.mend()


@pytest.mark.parametrize("is_done", [True, False], ids=["answer lost", "write lost"])
def test_a_write_that_had_no_answer_is_done_once(
    cluster_nodes: ClusterNodes, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """Whichever it is, of a claim or of a commit of several multis: the claim is had, and nothing is there twice or
    missing."""
    monkeypatch.setattr(zookeeper_tree, "LIMIT_BYTES", 64 << 10)
    first = cluster_nodes.store()
    first.cluster_id()
    first.close()
    topics = 0
    for number in range(1, 12):
        link = Link(cluster_nodes.server.port)
        try:
            store = cluster_nodes.store(link.connect)
            assert store.cluster_id()
            lost = LostOnce(cluster_nodes, link, number, is_done=is_done)
            cluster_nodes.clients[-1].before_write = lost
            reign = Reign(store, ONE)
            base_offset = reign.image.next_offset
            assert (
                reign.commit(*topic(2 * number, PARTITIONS), *topic(2 * number + 1, 3), feature(number)) == base_offset
            )
            topics += 2
            assert reign.commit(feature(number + 100)) == base_offset + PARTITIONS + 3 + 3
            assert reign.heard.lost_by == []
            store.close()
        finally:
            link.close()
        other = cluster_nodes.store()
        again = Reign(other, TWO)
        assert again.image.topics == reign.image.topics and len(again.image.topics) == topics
        assert again.image.features == reign.image.features
        assert again.image.offset == reign.image.next_offset  # its claim
        other.close()
        if not lost.has_happened:
            assert number > 5
            return
    raise AssertionError("there were more writes than expected")
