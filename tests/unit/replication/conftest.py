"""Brokers in one process: real logs in a temporary directory, queues and a network that move when they are told.

``Cluster`` has the nodes, a small controller that follows the rules of AlterPartition, and the links between
followers and leaders. Nothing here decides for replication; it only carries.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast.model.config import LogConfig
from holdfast.model.errors import (
    FencedLeaderEpochError,
    HoldfastError,
    IneligibleReplicaError,
    InvalidUpdateVersionError,
    NetworkError,
)
from holdfast.model.types import TopicPartition
from holdfast.records.batch import iter_headers
from holdfast.records.record import Record, decode_batches, encode_batch
from holdfast.replication.follower import FetcherState
from holdfast.replication.local_replicas import FollowerSession, LocalReplicas
from holdfast.replication.traffic import Traffic
from holdfast.replication.types import (
    OF_CLIENT,
    AppendTerms,
    FetchedPartition,
    FetchPartitionQuery,
    FetchPlan,
    FetchQuery,
    FetchResult,
    Isolation,
    IsrOutcome,
    IsrProposal,
    PartitionState,
    ProduceResult,
    ReplicationSettings,
    StopReplica,
)
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.log_manager import LogManager
from tests.left_open import closed_at_the_end

TP = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000


def topic_id(topic: str) -> UUID:
    return UUID(bytes=topic.encode().ljust(16, b"\1")[:16])


def batch(*values: bytes, producer_id: int = -1, sequence: int = -1) -> bytearray:
    records = [Record(offset=i, timestamp=NOW_MS, key=None, value=v, headers=()) for i, v in enumerate(values)]
    epoch = 0 if producer_id >= 0 else -1
    return encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


class ManualQueue:
    """A disk's queue whose thread and whose completions move when told; at once while ``inline``."""

    def __init__(self) -> None:
        self.inline = True
        self.completed = 0
        self.works: deque[tuple[Callable[[], Any], Callable[[Any, Any], None]]] = deque()
        self.completions: deque[tuple[Callable[[Any, Any], None], Any, Any]] = deque()

    def submit(self, work: Callable[[], Any], done: Callable[[Any, Any], None]) -> None:
        self.works.append((work, done))
        if self.inline and len(self.works) == 1 and not self.completions:
            self.run()

    def work(self) -> bool:
        """The disk's thread does one piece of work."""
        if not self.works:
            return False
        work, done = self.works.popleft()
        try:
            self.completions.append((done, work(), None))
        except HoldfastError as e:
            self.completions.append((done, None, e))
        return True

    def complete(self) -> bool:
        """The loop hears of one piece of finished work."""
        if not self.completions:
            return False
        done, result, error = self.completions.popleft()
        self.completed += 1
        done(result, error)
        return True

    def run(self) -> None:
        while self.work() or self.complete():
            pass


class Node:
    """One broker."""

    def __init__(self, cluster: "Cluster", broker_id: int, dirs: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.epoch = 0
        self.paths = [str(cluster.path / f"broker-{broker_id}" / f"d{i}") for i in range(dirs)]
        self.configs: dict[str, LogConfig] = {}
        self.alive = False
        self.start()

    def start(self) -> None:
        self.epoch = self.cluster.next_broker_epoch()
        self.proposals: list[IsrProposal] = []
        self.ready: dict[FetcherState, None] = {}
        self.leaderships: list[tuple[TopicPartition, bool, int]] = []
        self.corrupt: list[tuple[TopicPartition, HoldfastError]] = []
        self.queues = [ManualQueue() for _ in self.paths]
        self.dirs = [LogDir(p, OsFiles(), q) for p, q in zip(self.paths, self.queues, strict=True)]
        self.logs = LogManager(self.dirs, node_id=self.id, cluster_id="c", config_of=self.config)
        errors: list[HoldfastError | None] = []
        self.logs.start(self.cluster.now_ms, errors.append)
        assert errors == [None]
        self.traffic = Traffic(lambda: self.cluster.now_ms * 1_000_000)
        self.replicas = LocalReplicas(
            self.id,
            self.logs,
            self.cluster.settings,
            self,
            log_config=self.config,
            is_known=lambda tp: tp in self.cluster.states,
            clock=lambda: self.cluster.now_ms,
            traffic=self.traffic,
        )
        self.alive = True

    def kill(self) -> None:
        """As kill -9: nothing is flushed, closed or told; what was written stays."""
        self.alive = False
        for queue in self.queues:
            queue.works.clear()
            queue.completions.clear()
        marks = self.replicas.high_watermarks()
        if self.cluster.rng.random() < 0.5:  # the last checkpoint was just now, or long ago
            queue = self.queues[0]
            self.logs.checkpoints.write_all(marks)
            for queue in self.queues:
                queue.run()
        for each in self.logs.logs():
            each.close(clean=False)
        for directory in self.dirs:
            directory.close()
        self.cluster.forget_links(self.id)

    def config(self, topic: str) -> LogConfig:
        return self.configs.get(topic) or self.cluster.config

    # Outbox

    def alter_partition(self, proposals: Sequence[IsrProposal]) -> None:
        self.proposals.extend(proposals)

    def fetcher_ready(self, fetcher: FetcherState) -> None:
        self.ready[fetcher] = None

    def log_is_corrupt(self, tp: TopicPartition, error: HoldfastError) -> None:
        self.corrupt.append((tp, error))

    def leadership_changed(self, tp: TopicPartition, is_leader: bool, leader_epoch: int) -> None:
        self.leaderships.append((tp, is_leader, leader_epoch))

    # what tests ask

    def log(self, tp: TopicPartition = TP) -> Log:
        found = self.logs.get(tp)
        assert found is not None, f"no log of {tp} on {self.id}"
        return found

    def values(self, tp: TopicPartition = TP) -> list[tuple[int, bytes | None]]:
        """Offsets and values of all records in the log."""
        log = self.log(tp)
        view = log.view
        data = log.read(view.start_offset, 1 << 30, view.end_offset, blocking=True)
        if data is None:
            return []
        found = []
        for segment, end in view.segments_from(view.start_offset):
            raw = segment.handle().pread(end, 0)
            found += [(r.offset, r.value) for r in decode_batches(raw) if r.offset >= view.start_offset]
        return found

    def epochs(self, tp: TopicPartition = TP) -> list[int]:
        """Leader epoch of each batch in the log."""
        log, found = self.log(tp), []
        for segment, end in log.view.segments_from(log.view.start_offset):
            found += [h.partition_leader_epoch for _, h in iter_headers(segment.handle().pread(end, 0))]
        return found

    def mark(self, tp: TopicPartition = TP) -> int:
        found = self.replicas.high_watermark(tp)
        assert found is not None
        return found

    def produce(
        self,
        *values: bytes,
        acks: int = -1,
        tp: TopicPartition = TP,
        timeout_ms: int = 30_000,
        data: bytearray | None = None,
        terms: AppendTerms = OF_CLIENT,
    ) -> list[ProduceResult]:
        """Append; the list gets the result when it is there."""
        results: list[ProduceResult] = []
        self.replicas.append(
            tp,
            data if data is not None else batch(*values),
            acks=acks,
            timeout_ms=timeout_ms,
            now_ms=self.cluster.now_ms,
            done=results.append,
            terms=terms,
        )
        return results

    def consume(
        self,
        offset: int,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        tp: TopicPartition = TP,
        current_leader_epoch: int | None = None,
        last_fetched_epoch: int | None = None,
        replica: tuple[int, int | None] | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> tuple[list[list[FetchResult]], Any]:
        """One fetch of one partition: where its answer comes, and the wait."""
        answers: list[list[FetchResult]] = []
        query = FetchPartitionQuery(tp, offset, max_bytes, current_leader_epoch, last_fetched_epoch)
        wait = self.replicas.fetch(
            FetchQuery(replica, max_wait_ms, min_bytes, max_bytes, isolation, [query]),
            self.cluster.now_ms,
            answers.append,
        )
        return answers, wait

    def order(self, state: PartitionState, controller_epoch: int = 1) -> list[dict[TopicPartition, Any]]:
        answers: list[dict[TopicPartition, Any]] = []
        self.replicas.apply_leader_and_isr(
            [state], controller_epoch=controller_epoch, now_ms=self.cluster.now_ms, done=answers.append
        )
        return answers

    def stop(self, *orders: StopReplica) -> list[dict[TopicPartition, Any]]:
        answers: list[dict[TopicPartition, Any]] = []
        self.replicas.stop_replicas(orders, now_ms=self.cluster.now_ms, done=answers.append)
        return answers


class Link:
    """One fetcher's connection: requests in order, answers in order."""

    def __init__(self, node: Node, fetcher: FetcherState) -> None:
        self.node = node
        self.fetcher = fetcher
        self.requests: deque[FetchPlan] = deque()
        self.answers: deque[tuple[int, list[FetchedPartition]]] = deque()
        self.session: FollowerSession | None = None
        self.parked = False

    def send(self) -> bool:
        """The follower asks, if it wants to."""
        plan = self.fetcher.build(self.node.cluster.now_ms)
        if plan is None:
            return False
        self.requests.append(plan)
        return True

    def serve(self) -> bool:
        """The leader gets one request; a parked one is answered before."""
        if not self.requests:
            return False
        source = self.node.cluster.nodes[self.fetcher.source]
        if not source.alive:
            self.break_up()
            return True
        plan = self.requests.popleft()
        if self.parked and self.session is not None:
            self.session.flush()
        if plan.session_epoch == 0:
            if self.session is not None:
                self.session.close()
            self.session = source.replicas.open_session((self.node.id, self.node.epoch))
        session = self.session
        assert session is not None and plan.session_id in (None, session.id)
        self.parked = True

        def done(results: list[FetchResult]) -> None:
            self.parked = False
            self.answers.append((session.id, [_fetched(r) for r in results]))

        session.fetch(
            plan.partitions,
            plan.forgotten,
            max_wait_ms=plan.max_wait_ms,
            min_bytes=plan.min_bytes,
            max_bytes=plan.max_bytes,
            now_ms=self.node.cluster.now_ms,
            done=done,
        )
        return True

    def answer(self) -> bool:
        """The follower gets one answer."""
        if not self.answers:
            return False
        session_id, partitions = self.answers.popleft()
        self.fetcher.on_response(None, session_id, partitions, self.node.cluster.now_ms)
        return True

    def break_up(self) -> None:
        """The connection ends; both sides notice."""
        self.close()
        if self.node.alive:
            self.fetcher.on_failure(NetworkError("closed"), self.node.cluster.now_ms)

    def close(self) -> None:
        self.requests.clear()
        self.answers.clear()
        self.parked = False
        if self.session is not None:
            if self.node.cluster.nodes[self.fetcher.source].alive:
                self.session.close()
            self.session = None


def _fetched(result: FetchResult) -> FetchedPartition:
    data = result.data
    records = data if data is None or isinstance(data, bytes) else data.read()
    return FetchedPartition(
        result.topic_partition,
        result.error,
        result.high_watermark,
        result.log_start_offset,
        result.diverging,
        records,
        result.current_leader,
    )


class Cluster:
    """See the module's docstring. ``states`` is what the controller has stored."""

    batch = staticmethod(batch)

    def __init__(
        self,
        path: Path,
        brokers: int = 3,
        *,
        dirs: int = 1,
        settings: ReplicationSettings | None = None,
        config: LogConfig | None = None,
        seed: int = 0,
    ) -> None:
        self.path = path
        self.now_ms = NOW_MS
        self.rng = random.Random(seed)
        self.settings = settings or ReplicationSettings()
        self.config = config or LogConfig()
        self.states: dict[TopicPartition, PartitionState] = {}
        self.fenced: set[int] = set()
        self._broker_epochs = 0
        self.nodes: dict[int, Node] = {}
        self.links: dict[FetcherState, Link] = {}
        for broker_id in range(1, brokers + 1):
            self.nodes[broker_id] = Node(self, broker_id, dirs)

    def __getitem__(self, broker_id: int) -> Node:
        return self.nodes[broker_id]

    def next_broker_epoch(self) -> int:
        self._broker_epochs += 1
        return self._broker_epochs

    # -- the controller ------------------------------------------------------------------------------------------

    def create(
        self, *replicas: int, tp: TopicPartition = TP, isr: tuple[int, ...] | None = None, settle: bool = True
    ) -> None:
        """A new partition on these brokers, the first leads."""
        self.states[tp] = PartitionState(
            topic_partition=tp,
            topic_id=topic_id(tp.topic),
            leader=replicas[0],
            leader_epoch=0,
            isr=isr or replicas,
            partition_epoch=0,
            replicas=replicas,
            is_new=True,
        )
        self.broadcast(tp)
        if settle:
            self.settle()

    def change(self, tp: TopicPartition = TP, **changes: Any) -> PartitionState:
        """Store another state; a new leader raises the leader epoch."""
        state = self.states[tp]
        values = {f: getattr(state, f) for f in PartitionState.__slots__} | {"is_new": False} | changes
        if "leader" in changes and changes["leader"] != state.leader and "leader_epoch" not in changes:
            values["leader_epoch"] = state.leader_epoch + 1
        values["partition_epoch"] = state.partition_epoch + 1
        self.states[tp] = PartitionState(**values)
        return self.states[tp]

    def broadcast(self, tp: TopicPartition = TP, to: Sequence[int] | None = None) -> None:
        state = self.states[tp]
        for broker_id in to if to is not None else state.replicas:
            node = self.nodes[broker_id]
            if node.alive:
                node.order(state)

    def elect(self, tp: TopicPartition = TP) -> None:
        """The first live replica in list order that is in the ISR leads; the dead leave the ISR, but for the last."""
        state = self.states[tp]
        alive = tuple(b for b in state.isr if self.nodes[b].alive and b not in self.fenced)
        isr = alive or state.isr[:1] if state.leader is None or alive else (state.leader,)
        if not alive:
            isr = state.isr if state.leader not in state.isr else (state.leader,)
            self.change(tp, leader=None, isr=isr)
        elif state.leader in alive:
            if isr != state.isr:
                self.change(tp, isr=isr)
        else:
            self.change(tp, leader=next(b for b in state.replicas if b in alive), isr=isr)

    def answer_proposals(self, node: Node, limit: int | None = None) -> bool:
        """The controller handles what ``node`` has proposed."""
        proposals, node.proposals = node.proposals[:limit], node.proposals[limit:] if limit else []
        for proposal in proposals:
            outcome = self.decide(node, proposal)
            if node.alive:
                node.replicas.alter_partition_result(proposal, outcome, self.now_ms)
        return bool(proposals)

    def decide(self, node: Node, proposal: IsrProposal) -> IsrOutcome | HoldfastError:
        tp = proposal.topic_partition
        state = self.states[tp]
        if proposal.leader_epoch != state.leader_epoch or state.leader != node.id:
            return FencedLeaderEpochError("old leader")
        if proposal.partition_epoch != state.partition_epoch:
            return InvalidUpdateVersionError("old partition epoch")
        for member, epoch in proposal.isr:
            other = self.nodes[member]
            if not other.alive or member in self.fenced or (epoch is not None and epoch != other.epoch):
                return IneligibleReplicaError(f"{member} may not")
        state = self.change(tp, isr=tuple(b for b, _ in proposal.isr))
        return IsrOutcome(state.leader, state.leader_epoch, state.isr, state.partition_epoch)

    # -- moving --------------------------------------------------------------------------------------------------

    def open_links(self) -> None:
        for node in self.nodes.values():
            for fetcher in list(node.ready) if node.alive else ():
                link = self.links.setdefault(fetcher, Link(node, fetcher))
                if fetcher.is_empty:
                    link.close()
                    fetcher.on_failure(NetworkError("closed"), self.now_ms)
                    del self.links[fetcher]
            node.ready.clear()

    def forget_links(self, broker_id: int) -> None:
        """A broker died: its connections end on the other side."""
        for fetcher, link in list(self.links.items()):
            if link.node.id == broker_id:
                link.close()
                del self.links[fetcher]
            elif fetcher.source == broker_id:
                link.session = None  # it died with its broker
                link.break_up()

    def move(self) -> bool:
        """Everything moves once; False when nothing did."""
        self.open_links()
        moved = False
        for link in list(self.links.values()):
            moved = link.send() or moved
            moved = link.serve() or moved
            moved = link.answer() or moved
        for node in self.nodes.values():
            if node.alive:
                for queue in node.queues:
                    if queue.inline:
                        moved = queue.work() or queue.complete() or moved
                moved = self.answer_proposals(node) or moved
        return moved

    def settle(self) -> None:
        """Until nothing moves any more."""
        for _ in range(10_000):
            if not self.move():
                return
        raise AssertionError("the cluster does not come to rest")

    def wait(self, ms: int, step_ms: int = 10) -> None:
        """Time passes."""
        for _ in range(0, ms, step_ms):
            self.now_ms += step_ms
            self.tick()
            self.settle()

    def tick(self) -> None:
        for node in self.nodes.values():
            if node.alive:
                node.replicas.tick(self.now_ms)


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield from closed_at_the_end()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Three brokers with one log dir each."""
    return Cluster(tmp_path)


@pytest.fixture
def new_cluster(tmp_path: Path) -> Callable[..., Cluster]:
    """Makes clusters of other sizes and settings."""

    def make(*args: Any, **kwargs: Any) -> Cluster:
        return Cluster(tmp_path, *args, **kwargs)

    return make
