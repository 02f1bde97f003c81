"""Whatever happens in whatever order: what was acked to acks=all stays, and logs agree up to the high watermark.

Three brokers on real logs; disks, links and the controller move one step at a time as hypothesis says, brokers die
and come back. Checked after every step: H-01, H-04, H-13, R-14, R-29 and the promise itself.
"""

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.model.errors import NetworkError
from holdfast.model.types import TopicPartition
from holdfast.replication.types import ReplicationSettings, Role

_PATH = Path(__file__).parents[1] / "unit" / "replication" / "conftest.py"
_spec = importlib.util.spec_from_file_location("replication_cluster", _PATH)
assert _spec is not None and _spec.loader is not None
harness: Any = importlib.util.module_from_spec(_spec)
sys.modules["replication_cluster"] = harness
_spec.loader.exec_module(harness)

TP = TopicPartition("t", 0)
ACTIONS = (
    *("produce",) * 24,
    *("send",) * 6,
    *("serve",) * 6,
    *("answer",) * 6,
    *("work",) * 10,
    *("complete",) * 10,
    *("flow",) * 30,
    *("propose",) * 4,
    *("lose proposal",) * 4,
    "elect",
    "order",
    "order",
    "order",
    "kill",
    "start",
    "start",
    "fence",
    "unfence",
    "break link",
    "tick",
    "tick",
    "long tick",
    "move leader",
)


class Run:
    """One run: the cluster, what was acked, what was seen."""

    def __init__(self, path: Path, seed: int) -> None:
        lag = ReplicationSettings(replica_lag_time_max_ms=2_000)
        self.cluster = harness.Cluster(path, 3, settings=lag, seed=seed)
        self.acked: list[tuple[int, bytes]] = []
        self.marks: dict[tuple[int, int, int], int] = {}
        self.sent = 0
        self.cluster.create(1, 2, 3)
        for node in self.cluster.nodes.values():
            self.slow(node)

    def slow(self, node: Any) -> None:
        for queue in node.queues:
            queue.inline = False

    def step(self, action: str, a: int) -> None:
        cluster = self.cluster
        node = cluster.nodes[a % 3 + 1]
        cluster.open_links()
        links = list(cluster.links.values())
        link = links[a % len(links)] if links else None
        match action:
            case "produce" if node.alive:
                self.produce(node, acks=-1 if a % 5 else 1)
            case "send" | "serve" | "answer" if link is not None:
                getattr(link, action)()
            case "work" | "complete" if node.alive:
                for queue in node.queues:
                    getattr(queue, action)()
            case "flow":
                self.flow(a)
            case "propose" if node.alive:
                cluster.answer_proposals(node, 1)
            case "lose proposal" if node.alive:
                self.lose_proposal(node, stored=bool(a & 8))
            case "elect":
                cluster.elect()
            case "move leader":
                self.move_leader(node)
            case "order":
                cluster.broadcast(to=[node.id])
            case "kill" if node.alive:
                node.kill()
            case "start" if not node.alive:
                self.start(node)
            case "fence":
                cluster.fenced.add(node.id)
            case "unfence":
                cluster.fenced.discard(node.id)
            case "break link" if link is not None:
                link.break_up()
            case "tick":
                cluster.now_ms += a % 300
                cluster.tick()
            case "long tick":
                cluster.now_ms += 1_500
                cluster.tick()

    def flow(self, a: int) -> None:
        """Most of what can move moves."""
        for i, link in enumerate(self.cluster.links.values()):
            if a >> i & 3:
                link.send()
                link.serve()
                link.answer()
        for i, node in enumerate(self.cluster.nodes.values()):
            if a >> i & 5 and node.alive:
                for queue in node.queues:
                    queue.work()
                    queue.complete()
        if not a & 7:
            self.cluster.elect()
        if not a & 24:
            self.cluster.broadcast()

    def produce(self, node: Any, acks: int) -> None:
        value = b"%d" % self.sent
        self.sent += 1

        def done(result: Any) -> None:
            if result.error is None and acks == -1:
                self.acked.append((result.base_offset, value))

        node.replicas.append(
            TP, harness.batch(value), acks=acks, timeout_ms=5_000, now_ms=self.cluster.now_ms, done=done
        )

    def lose_proposal(self, node: Any, *, stored: bool) -> None:
        if node.proposals:
            proposal = node.proposals.pop(0)
            if stored:
                self.cluster.decide(node, proposal)
            node.replicas.alter_partition_result(proposal, NetworkError("lost"), self.cluster.now_ms)

    def move_leader(self, node: Any) -> None:
        state = self.cluster.states[TP]
        if node.alive and node.id in state.isr and node.id not in self.cluster.fenced:
            self.cluster.change(leader=node.id)

    def start(self, node: Any) -> None:
        """A new incarnation: the controller first makes what the death of the old one asks for."""
        self.cluster.elect()
        node.start()
        self.slow(node)
        self.cluster.elect()

    # -- what must be true ---------------------------------------------------------------------------------------

    def check(self) -> None:
        state = self.cluster.states[TP]
        logs = {n.id: dict(n.values()) for n in self.cluster.nodes.values() if n.alive and n.logs.get(TP)}
        for node in self.cluster.nodes.values():
            if not node.alive or node.logs.get(TP) is None:
                continue
            epochs = node.epochs()
            assert epochs == sorted(epochs), f"{node.id}: leader epochs {epochs}"
            partition = node.replicas.partitions.get(TP)
            if partition is None or partition.log is None:
                continue
            view = partition.log.view
            assert view.start_offset <= partition.high_watermark <= view.end_offset or node.queues[0].works
            assert set(partition.isr.committed) <= partition.isr.maximal
            if partition.role is Role.LEADER:
                key = (node.id, node.epoch, partition.leader_epoch)
                assert partition.high_watermark >= self.marks.get(key, 0), "the high watermark moved back"
                self.marks[key] = partition.high_watermark
        in_sync = [b for b in state.isr if b in logs]
        for offset, value in self.acked:
            for broker in in_sync:
                assert logs[broker].get(offset) == value, f"acked {value!r} at {offset} is not on {broker}"
        leader = self.cluster.nodes[state.leader] if state.leader is not None else None
        if leader is not None and leader.alive:
            partition = leader.replicas.partitions.get(TP)
            if partition is not None and partition.is_open and partition.leader_epoch == state.leader_epoch:
                committed = {o: v for o, v in logs[leader.id].items() if o < partition.high_watermark}
                for broker in in_sync:
                    assert committed.items() <= logs[broker].items(), f"committed but not on {broker}"

    def heal(self) -> None:
        """Everybody comes back; all must agree and nothing acked be missing."""
        cluster = self.cluster
        cluster.fenced.clear()
        for node in cluster.nodes.values():
            if not node.alive:
                self.start(node)
        cluster.elect()
        for node in cluster.nodes.values():
            for queue in node.queues:
                queue.inline = True
                queue.run()
        cluster.broadcast()
        for _ in range(6):
            cluster.wait(1_000, 50)
            cluster.broadcast()
        state = cluster.states[TP]
        assert sorted(state.isr) == [1, 2, 3], f"ISR {state.isr}"
        contents = [node.values() for node in cluster.nodes.values()]
        assert contents[0] == contents[1] == contents[2]
        assert set(self.acked) <= set(contents[0])
        leader = cluster.nodes[state.leader]
        results = leader.produce(b"last")
        cluster.wait(1_100, 50)
        assert [r.error for r in results] == [None]
        assert [node.mark() for node in cluster.nodes.values()] == [len(contents[0]) + 1] * 3


@given(
    st.integers(0, 1 << 30),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1 << 16)), min_size=30, max_size=250),
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_acked_is_lost(seed: int, steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as path:
        run = Run(Path(path), seed)
        for action, a in steps:
            run.step(action, a)
            run.check()
        run.heal()
        run.check()
