"""Transactions and compaction as a part of a simulated cluster: when clients begin and end, and how long readers of
committed records are held up while all is well.

All is well: nothing befalls the cluster, and every replica of what transactions need is in sync. Then no last stable
offset stands before the high watermark for longer than transaction.timeout.ms and GRACE_S: whoever has vanished over
its transaction, the coordinator ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

from holdfast.model.types import Offset, TopicPartition
from holdfast.replication.types import Role
from tests.simulation.faults import Fault
from tests.simulation.node import Node
from tests.simulation.txn_load import GRACE_S, TIMEOUT_MS, TOPICS, TxnLoad
from tests.simulation.watch import Violation

LOOK_S: Final = 0.25
AFTER_S: Final = 5.0
"""How long a fault is felt after its end."""
STATE = TopicPartition("__transaction_state", 0)
_NEEDED: Final = (*(topic.name for topic in TOPICS), STATE.topic, "__consumer_offsets")


class Cluster(Protocol):
    """What this part asks of the simulation."""

    nodes: list[Node]
    faults: list[Fault]
    healing: bool

    def _as_client(self, coroutine: Any) -> asyncio.Task[Any]: ...

    def _client_done(self, task: asyncio.Task[Any]) -> None: ...

    def _reign(self) -> Any: ...


class TxnSide:
    """See the module's docstring."""

    def __init__(self, cluster: Cluster, load: TxnLoad, producers: int) -> None:
        self.load = load
        self._cluster = cluster
        self._names = [f"t{i}" for i in range(producers)]
        self._tasks: list[asyncio.Task[Any]] = []
        self._readers: list[asyncio.Task[Any]] = []
        self._stands: dict[TopicPartition, tuple[Offset, float]] = {}
        """Where readers are held up, and since when."""
        self._well_s = 0.0
        self._began_s = 0.0

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        """Those that may be moved."""
        return (*self.load.names, STATE)

    async def begin(self) -> None:
        """Topics, then everybody."""
        load, cluster = self.load, self._cluster
        await cluster._as_client(load.prepare())
        self._began_s = load.time_s()
        self._tasks = [cluster._as_client(load.run(name)) for name in self._names]
        self._tasks.append(cluster._as_client(load.keys("plain")))
        self._readers = [cluster._as_client(load.reader(f"c{i}", tp)) for i, tp in enumerate(load.names)]
        self._readers.append(asyncio.get_running_loop().create_task(self._look_on()))
        for task in (*self._tasks, *self._readers):
            task.add_done_callback(cluster._client_done)

    async def until_served(self) -> None:
        """All goes on, now that everything is whole; and for long enough that nothing open is of the time before."""
        await self._cluster._as_client(self.load.until_served())
        await asyncio.sleep(TIMEOUT_MS / 1000 + GRACE_S + 1.0)

    async def end(self) -> None:
        """Everybody ends, and what was done is judged."""
        self.load.stopping = True
        await asyncio.wait(self._tasks)
        await self._cluster._as_client(self.load.settle())
        for task in self._readers:
            task.cancel()

    # -- held up -----------------------------------------------------------------------------------------------

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._look(self.load.time_s())

    def _look(self, now_s: float) -> None:
        if not self._is_well(now_s):
            self._well_s = now_s
        for node in self._cluster.nodes:
            replicas = getattr(node.broker, "replicas", None) if node.alive else None
            for tp, partition in () if replicas is None else replicas.partitions.items():
                if tp.topic in _NEEDED and partition.role is Role.LEADER and partition.log is not None:
                    self._look_at(tp, partition, now_s)

    def _look_at(self, tp: TopicPartition, partition: Any, now_s: float) -> None:
        stable = partition.last_stable_offset
        if stable >= partition.high_watermark:
            self._stands.pop(tp, None)
            return
        before = self._stands.get(tp)
        if before is None or before[0] != stable:
            before = self._stands[tp] = stable, now_s
        stands_s = now_s - max(before[1], self._well_s)
        clocks = [node.clock_offset_s for node in self._cluster.nodes]
        apart_s = max(clocks) - min(clocks)  # the next coordinator counts by its own clock from what the last one wrote
        if stands_s > TIMEOUT_MS / 1000 + GRACE_S + LOOK_S + apart_s:
            raise Violation(
                f"{tp}: the last stable offset has stood at {stable} of {partition.high_watermark} for {stands_s:.2f} "
                f"s while all was well: transactions have {TIMEOUT_MS / 1000:g} s"
            )

    def _is_well(self, now_s: float) -> bool:
        cluster = self._cluster
        if self.load.clocks_jumped():
            return False
        if not cluster.healing:
            elapsed_s = now_s - self._began_s
            if any(f.at_s <= elapsed_s + LOOK_S and elapsed_s <= f.at_s + f.for_s + AFTER_S for f in cluster.faults):
                return False
        if any(node.hung() or not node.alive for node in cluster.nodes):
            return False
        reign = cluster._reign()
        return reign is not None and all(_is_whole(reign.image.topics.get(name)) for name in _NEEDED)


def _is_whole(topic: Any) -> bool:
    """All its replicas are in sync; one that nobody has needed so far is."""
    return topic is None or all(p.leader is not None and set(p.isr) == set(p.replicas) for _, p in topic.numbered())
