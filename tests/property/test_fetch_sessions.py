"""A consumer that applies the answers of its fetch session knows after each what a full fetch would have told it.

One broker on real logs and a second one that takes leaders away; records come, logs are cut at their start, the
consumer reads on, goes back, forgets partitions and names them again, as hypothesis says.
"""

import importlib.util
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.model.types import TopicPartition
from holdfast.replication.types import FetchPartitionQuery, FetchQuery, FetchResult, Isolation

_PATH = Path(__file__).parents[1] / "unit" / "replication" / "conftest.py"
_spec = importlib.util.spec_from_file_location("session_cluster", _PATH)
assert _spec is not None and _spec.loader is not None
harness: Any = importlib.util.module_from_spec(_spec)
sys.modules["session_cluster"] = harness
_spec.loader.exec_module(harness)

PARTITIONS = 4
ALL = [TopicPartition("t", p) for p in range(PARTITIONS)]
LIMITS = FetchQuery(None, 0, 1, 1 << 20, Isolation.READ_UNCOMMITTED, ())
LITTLE = 80
"""Bytes: room for the records of one partition."""


class Consumer:
    """What it has been told, by answers that leave out what has not changed."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.offsets = dict.fromkeys(ALL, 0)
        self.known: dict[TopicPartition, tuple[Any, Any]] = {}
        """High watermark and log start."""
        self.changed: set[TopicPartition] = set()
        self.forgotten: list[tuple[str, int]] = []
        numbers = itertools.count(1)
        self.sessions = node.replicas.consumer_sessions(slots=2, new_id=numbers.__next__, resolve=str)
        self.session: Any = None
        self.epoch = 0

    def query(self, tp: TopicPartition) -> FetchPartitionQuery:
        return FetchPartitionQuery(tp, self.offsets[tp], 1 << 20)

    def full(self, partitions: list[TopicPartition]) -> dict[TopicPartition, FetchResult]:
        """What a full fetch of each alone is told."""
        answers: list[list[FetchResult]] = []
        for tp in partitions:
            query = LIMITS._replace(partitions=[self.query(tp)])
            self.node.replicas.fetch(query, self.node.cluster.now_ms, answers.append)
        return {answer[0].topic_partition: answer[0] for answer in answers}

    def open(self) -> None:
        found = self.full(ALL)
        asked = [((tp.topic, self.query(tp)), found[tp]) for tp in ALL]
        self.session = self.sessions.open(asked, uses_ids=False, now_ms=0)
        self.epoch = 1
        self.known = {tp: marks(result) for tp, result in found.items()}
        self.changed.clear()
        self.forgotten.clear()

    def fetch(self, max_bytes: int) -> dict[TopicPartition, FetchResult]:
        """One incremental fetch; the answer is applied."""
        session = self.sessions.resume(self.session.id, self.epoch, uses_ids=False, now_ms=0)
        self.epoch += 1
        mentions = [(tp.topic, self.query(tp)) for tp in sorted(self.changed)]
        assert self.sessions.update(session, mentions, self.forgotten) is None
        self.changed.clear()
        self.forgotten.clear()
        answers: list[Any] = []
        assert session.fetch(LIMITS._replace(max_bytes=max_bytes), 0, answers.append) is None
        told = {result.topic_partition: result for _, result in answers[0]}
        assert len(told) == len(answers[0])
        self.known |= {tp: marks(result) for tp, result in told.items()}
        return told


def marks(result: FetchResult) -> tuple[Any, Any]:
    return (type(result.error), None) if result.error else (result.high_watermark, result.log_start_offset)


def data(result: FetchResult | None) -> bytes:
    return b"" if result is None or result.data is None else bytes(result.data.read())  # type: ignore[union-attr]


class Run:
    """The cluster and its consumer."""

    def __init__(self, path: Path) -> None:
        self.cluster = harness.Cluster(path, 2)
        for tp in ALL:
            self.cluster.create(1, 2, tp=tp)
        self.consumer = Consumer(self.cluster[1])
        self.consumer.open()

    def step(self, what: str, tp: TopicPartition) -> None:
        cluster, consumer = self.cluster, self.consumer
        leader = cluster.states[tp].leader
        if what == "produce":
            cluster[leader].produce(b"x" * 20, tp=tp)
            cluster.settle()
        elif what == "cut":
            log_end = cluster[leader].mark(tp)
            cluster[leader].replicas.delete_records(tp, log_end, timeout_ms=9, now_ms=0, done=lambda _: None)
            cluster.settle()
        elif what == "lead":
            cluster.change(tp, leader=3 - leader)
            cluster.broadcast(tp)
            cluster.settle()
        elif what == "rewind":
            if tp in consumer.known:
                consumer.offsets[tp] = 0
                consumer.changed.add(tp)
        elif what == "forget":
            if len(consumer.known) > 1 and consumer.known.pop(tp, None):
                consumer.changed.discard(tp)
                consumer.forgotten.append((tp.topic, tp.partition))
        elif what == "name":
            if tp not in consumer.known and (tp.topic, tp.partition) not in consumer.forgotten:
                consumer.known[tp] = (None, None)
                consumer.changed.add(tp)
        elif what == "open":
            consumer.sessions.close(consumer.session.id)
            consumer.open()
        elif what == "few":
            consumer.fetch(LITTLE)
        else:
            self.compare()

    def compare(self) -> None:
        """A fetch with room for everything; then read on."""
        consumer = self.consumer
        told = consumer.fetch(1 << 20)
        full = consumer.full(sorted(consumer.known))
        assert consumer.known == {tp: marks(result) for tp, result in full.items()}
        assert {tp: data(told.get(tp)) for tp in full} == {tp: data(result) for tp, result in full.items()}
        for tp, result in full.items():
            if data(result):
                consumer.offsets[tp] = result.high_watermark or 0
                consumer.changed.add(tp)
        assert consumer.sessions.partitions == len(consumer.known)


ACTIONS = (
    *("produce",) * 4,
    *("fetch",) * 8,
    *("few", "few", "cut", "lead", "lead", "lead", "rewind", "forget", "name", "open"),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from(ALL)), min_size=10, max_size=60))
def test_a_session_tells_what_full_fetches_tell(steps: list[tuple[str, TopicPartition]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        for what, tp in steps:
            run.step(what, tp)
        run.compare()
        run.consumer.sessions.close(run.consumer.session.id)
        assert not any(p.consumer_waits for p in run.cluster[1].replicas.partitions.values())
