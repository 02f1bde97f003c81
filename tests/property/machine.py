"""One broker's disks, replicas and moves, without a network: every thread, timer and fault moves when told.

Real are the logs, the replicas and the moves; of the broker there is what ``Moves`` asks of it. The disks are the
simulation's (tests/simulation/disk.py), with two queues each, as a broker has them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from holdfast.broker.metadata_cache import MetadataCache, PartitionInfo
from holdfast.broker.moves import Moves
from holdfast.model.config import BrokerConfig, LogConfig
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition
from holdfast.records.batch import iter_headers
from holdfast.records.record import Record, decode_batches, encode_batch
from holdfast.replication.local_replicas import LocalReplicas
from holdfast.replication.types import PartitionState, ProduceResult, ReplicationSettings
from holdfast.storage.dir_scan import NameKind, classify
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.log_manager import LogManager
from tests.simulation.disk import RoutedFiles, SimDisk

TP = TopicPartition("t", 0)
TOPIC_ID = UUID(int=77)
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200, file_delete_delay_ms=0, retention_ms=None)
D0, D1 = "/disk0/d", "/disk1/d"


class StepQueue:
    """A thread: does one piece of work, or delivers one completion, when told."""

    def __init__(self) -> None:
        self.works: deque[tuple[Callable[[], Any], Callable[[Any, Any], None]]] = deque()
        self.completions: deque[tuple[Callable[[Any, Any], None], Any, Any]] = deque()
        self.completed = 0
        self.hangs = False
        """It does nothing more, though it may tell what it has done."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any, Any], None]) -> None:
        self.works.append((work, done))

    def work(self) -> bool:
        if not self.works:
            return False
        work, done = self.works.popleft()
        try:
            result, error = work(), None
        except HoldfastError as e:
            result, error = None, e
        self.completions.append((done, result, error))
        return True

    def complete(self) -> bool:
        if not self.completions:
            return False
        done, result, error = self.completions.popleft()
        self.completed += 1
        done(result, error)
        return True


class Machine:
    """Two disks through several lives of a broker. ``broker`` attributes are those that Moves uses."""

    broker_id = 1

    def __init__(
        self, seed: int, properties: dict[str, str] | None = None, log_config: LogConfig = CONFIG, disks: int = 2
    ) -> None:
        self.rng = random.Random(seed)
        self.ms = 1_700_000_000_000
        self.disks = [
            SimDisk(random.Random(seed + i), now_ms=lambda: self.ms, device=i + 1) for i in range(1, disks + 1)
        ]
        self.config = BrokerConfig.parse({"node.id": "1", **(properties or {})})
        self.log_config = log_config
        self.ids = 0
        self.lives = 0
        self.epoch = 0
        self.offline: list[str] = []

    # -- what Moves asks of a broker -----------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self.ms

    monotonic_ms = now_ms

    def new_id(self) -> UUID:
        self.ids += 1
        return UUID(int=self.ids)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.ids += 1
        heappush(self.timers, (self.ms + int(delay_s * 1000), self.ids, call))

    def alter_partition(self, proposals: Any) -> None: ...

    def fetcher_ready(self, fetcher: Any) -> None: ...

    def log_is_corrupt(self, tp: Any, error: Any) -> None: ...

    def leadership_changed(self, tp: Any, is_leader: bool, epoch: int) -> None: ...

    # -- lives -----------------------------------------------------------------------------------------------

    def start(self, *, hosted: bool = True) -> None:
        """A broker starts on the disks and loads its logs. ``hosted``: by the metadata the replica is here."""
        self.lives += 1
        files = RoutedFiles({f"/disk{i}": d.mount(self.lives) for i, d in enumerate(self.disks)})
        self.timers: list[tuple[int, int, Callable[[], None]]] = []
        self.queues = [StepQueue() for _ in range(2 * len(self.disks))]
        self.dirs = [
            LogDir(path, files, self.queues[2 * i], sync_queue=self.queues[2 * i + 1], on_offline=self._failed)
            for i, path in enumerate(f"/disk{i}/d" for i in range(len(self.disks)))
        ]
        self.logs = LogManager(
            list(self.dirs), node_id=1, cluster_id="c", config_of=lambda _: self.log_config, new_id=self.new_id
        )
        self.loop = SimpleNamespace(call_later=self.call_later)
        self.platform = SimpleNamespace(new_id=self.new_id)
        self.metadata = MetadataCache()
        if hosted:
            self.metadata.topics["t"] = {p: PartitionInfo(1, 0, (1,), (1,), ()) for p in (0, 1)}
        self.replicas = LocalReplicas(
            1, self.logs, ReplicationSettings(), self, log_config=lambda _: self.log_config,
            is_known=lambda tp: tp.topic == "t", clock=self.now_ms,
        )  # fmt: skip
        self.moves = Moves(self)
        self.failed: list[LogDir] = []
        self.acked: list[tuple[int, bytes]] = []
        self.refused: list[HoldfastError] = []
        started: list[HoldfastError | None] = []
        self.logs.start(self.ms, started.append)
        self.settle()
        assert started == [None], started

    def _failed(self, directory: LogDir, error: HoldfastError) -> None:
        self.failed.append(directory)

    def lead(self, *, is_new: bool = False, tp: TopicPartition = TP) -> None:
        """The controller has this broker lead, in another epoch."""
        self.epoch += 1
        state = PartitionState(
            topic_partition=tp, topic_id=TOPIC_ID, leader=1, leader_epoch=self.epoch, isr=(1,),
            partition_epoch=self.epoch, replicas=(1,), is_new=is_new,
        )  # fmt: skip
        self.replicas.apply_leader_and_isr([state], controller_epoch=1, now_ms=self.ms, done=lambda _: None)

    def produce(self, value: bytes, *, acks: int = 1) -> None:
        """One record, as a client sends it."""
        data = encode_batch([Record(0, self.ms, b"k", value)])

        def done(result: ProduceResult) -> None:
            if result.error is None:
                assert result.base_offset is not None
                self.acked.append((result.base_offset, value))
            else:
                self.refused.append(result.error)

        self.replicas.append(TP, data, acks=acks, timeout_ms=30_000, now_ms=self.ms, done=done)

    def kill(self, *, power: bool = False) -> None:
        """The process dies; with ``power`` the machine does."""
        for disk in self.disks:
            disk.fault = None
        for disk in self.disks:
            if power:
                disk.power_loss(self.rng)
            else:
                disk.kill(self.lives)

    # -- time ------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One thing that can happen, by chance; False if only time can."""
        for directory in self.failed:
            self.moves.dir_failed(directory)
            self.replicas.log_dir_failed(directory, self.ms)
        self.failed = []
        able = [q.work for q in self.queues if q.works and not q.hangs] + [
            q.complete for q in self.queues if q.completions
        ]
        if not able:
            return False
        self.rng.choice(able)()
        return True

    def tick(self) -> bool:
        """Time goes on to the next timer."""
        if not self.timers:
            return False
        at, _, call = heappop(self.timers)
        self.ms = max(self.ms, at)
        call()
        self.replicas.tick(self.ms)
        return True

    def settle(self) -> None:
        """Until nothing more happens by itself."""
        while self.step():
            pass

    def finish(self, rounds: int = 400) -> None:
        """Until no move is under way."""
        for _ in range(rounds):
            self.settle()
            if not self.moves.describe() and not self.timers:
                return
            self.tick()
        raise AssertionError(f"still moving: {self.moves.describe()}")

    # -- looking ---------------------------------------------------------------------------------------------

    @property
    def log(self) -> Log:
        found = self.logs.get(TP)
        assert found is not None
        return found

    def names(self, kind: NameKind) -> list[str]:
        """Directories of this kind on both disks."""
        found = []
        for directory in self.dirs:
            if directory.is_online:
                found += [
                    f"{directory.path}/{n}" for n in directory.files.listdir(directory.path) if classify(n).kind is kind
                ]
        return found


def values_of(log: Log) -> dict[int, bytes]:
    """Offset -> value of every record."""
    return {r.offset: bytes(r.value or b"") for b in batches_of(log) for r in decode_batches(b)}


def batches_of(log: Log) -> list[bytes]:
    """What reads give, from the log's start on, batch by batch."""
    found: list[bytes] = []
    offset = log.view.start_offset
    while (piece := log.read(offset, 1 << 30, log.view.end_offset, blocking=True)) is not None:
        data = piece.read()
        for at, header in iter_headers(data):
            found.append(bytes(data[at : at + header.size]))
            offset = header.next_offset
    return found
