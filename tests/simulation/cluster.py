"""A whole cluster in one process under one seed: three brokers, clients, faults, checkers.

    Simulation(seed).run() -> Outcome        the same seed, the same run: ``Outcome.fingerprint`` says so

Owns the order of a run: start, topics, load with faults, healing, rest, the last look at everything.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import random
import time
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.client.views import NewTopic
from holdfast.coordination.metadata_log import MetadataLog
from holdfast.metadata.image import ClusterImage
from holdfast.model.types import TopicPartition
from tests.simulation.contents import error
from tests.simulation.device import CrashNow, ProcessGone
from tests.simulation.disk import SimDisk
from tests.simulation.disk_faults import WRONG, DiskFaults
from tests.simulation.faults import DISK_WEIGHTS, WEIGHTS, Fault, Kind, schedule
from tests.simulation.group_load import GroupLoad
from tests.simulation.loop import SimLoop
from tests.simulation.network import OUTSIDE, Network
from tests.simulation.node import Node, SimProcess
from tests.simulation.store_faults import StoreFaults
from tests.simulation.txn_load import PROPERTIES as TXN_PROPERTIES
from tests.simulation.txn_load import TxnLoad
from tests.simulation.txn_side import TxnSide
from tests.simulation.watch import Violation, Watch, min_isr
from tests.simulation.workload import Workload

BROKERS = 3
STREAMS = ("net", "node", "faults", "load", "disk", "group", "txn")
TRACE_LINES = 400
METADATA_LOGS = ("/c/store/__cluster_metadata-0", "/c/store-2/__cluster_metadata-0")
REST_S = 120.0
"""Virtual seconds in which a healed cluster must be whole again."""
PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "default.replication.factor": "3",
    "replica.lag.time.max.ms": "5000",
    "replica.fetch.wait.max.ms": "5000",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "2000",
    "leader.imbalance.check.interval.seconds": "20",
    "replica.high.watermark.checkpoint.interval.ms": "2000",
    "log.dir.probe.interval.ms": "10000",
    "log.roll.ms": "15000",
}
TOPICS = (
    NewTopic(name="safe", partitions=2, replication_factor=3, configs={"min.insync.replicas": "2"}),
    NewTopic(name="thin", partitions=1, replication_factor=3, configs={"min.insync.replicas": "1"}),
    NewTopic(name="pair", partitions=1, replication_factor=2, configs={"min.insync.replicas": "1"}),
)


MIN_ISR = "2"
MEMBERS = 2
BARE = NewTopic(name="bare", partitions=1, replication_factor=3)
"""Goes by the default of all brokers, which is set at run time: their files say 1."""


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    seed: int
    violation: str | None
    virtual_s: float
    cpu_s: float
    acked: int
    read: int
    committed: int
    """Transactions."""
    aborted: int
    cleanings: int
    faults: int
    steps: int
    fingerprint: int
    trace: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.violation is None


class Simulation:
    """One run. ``faults`` None: drawn from the seed."""

    has_bare = True
    """With a topic that has no configuration of its own."""
    group_share = 0.4
    """How many runs have a consumer group."""
    txn_share = 0.5
    """How many runs have transactions and compacted topics."""
    usual: Mapping[Kind, int] = WEIGHTS
    """What befalls it."""
    properties: Mapping[str, str] = PROPERTIES

    def __init__(
        self,
        seed: int,
        *,
        duration_s: float = 60.0,
        faults: Sequence[Fault] | None = None,
        weights: Mapping[Kind, int] | None = None,
        with_txn: bool | None = None,
    ) -> None:
        self.seed = seed
        self.duration_s = duration_s
        self.loop = SimLoop()
        streams = random.Random(seed)
        self._rng = {name: random.Random(streams.getrandbits(64)) for name in STREAMS}
        self.network = Network(self.loop, self._rng["net"])
        self.network.ghost_share = self._rng["net"].choice((0.0, 0.002, 0.02))
        self.watch = Watch(lambda broker_id: self.nodes[broker_id - 1].was_bad, self.loop.time)
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self._print = 0
        chance = self._rng["faults"]
        self.power = weights is not None or chance.random() < 0.5
        """Whether disks lose data in this run, and not only processes their lives. What one replica had is then on
        another only where min.insync.replicas says so."""
        usual = {**self.usual, **DISK_WEIGHTS} if self.power else self.usual
        drawn = schedule(chance, BROKERS, duration_s, chance.choice((3.0, 8.0, 15.0)), weights or usual)
        self.faults = list(drawn if faults is None else faults)
        self.disk_faults = DiskFaults(self)
        self.topics = [t for t in TOPICS if not self.power or (t.configs or {})["min.insync.replicas"] == "2"]
        usual_faults = weights is None
        if self.has_bare and usual_faults:
            self.topics.append(BARE)
        self.store_disks = [
            SimDisk(self._rng["disk"], now_ms=lambda: int(self.loop.time() * 1000), device=100 + n) for n in range(3)
        ]
        of_txn = self._rng["txn"]
        if with_txn is None:
            with_txn = usual_faults and of_txn.random() < self.txn_share
        properties = {**self.properties, **(TXN_PROPERTIES if with_txn else {})}
        self.nodes = [
            Node(i + 1, self.loop, self.network, random.Random(self._rng["node"].getrandbits(64)), self.store_disks,
                 properties, self._node_changed, self._unexpected)
            for i in range(BROKERS)
        ]  # fmt: skip
        self._newest_reign = 0
        self.store_faults = StoreFaults(self)
        for node in self.nodes:
            node.lanes = self.store_faults.lanes
        self._by_machine = {node.machine: node for node in self.nodes}
        self.client = SimProcess(self.loop, "10.0.1.1")
        self.network.up.add(self.client.machine)
        self.workload = Workload(
            ",".join(f"{n.machine}:9092" for n in self.nodes), self._rng["load"], self.watch, pause_s=(0.02, 3.0)
        )
        self.group: GroupLoad | None = None
        of_group = self._rng["group"]
        if (usual_faults or self.group_share == 1.0) and of_group.random() < self.group_share:
            self.group = GroupLoad(self.workload.bootstrap, ("safe", "bare"), of_group, self.loop.time)
        self.txn: TxnSide | None = None
        if with_txn:
            load = TxnLoad(self.workload.bootstrap, of_txn, self.loop.time, lambda: self.watch.clocks_jumped)
            self.txn = TxnSide(self, load, of_txn.randint(1, 3))
        self._failure: BaseException | None = None
        self.healing = False
        """Nothing befalls it any more."""
        self._late = 0
        """Topics made under load."""
        self._kill_when_made: tuple[str, float] | None = None
        self._cordoned: set[int] = set()
        self._altered: set[str | None] = set()
        """Topics whose min.insync.replicas was changed; None is the default of all."""

    # -- a run -------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """To the end or to the first violation."""
        started = time.process_time()
        violation: str | None = None
        random.seed(self.seed)  # the client chooses whom it asks first
        loop = self.loop
        loop.set_exception_handler(self._loop_error)
        loop.after_step = self._after_step
        begun = loop.time()
        gc.disable()  # collected at the end: the objects of a run are few, and when is then a matter of the seed
        try:
            loop.run_until_complete(self._main())
        except Violation as e:
            violation = str(e)
        except Exception as e:
            violation = f"{type(e).__name__}: {e}"
            logging.getLogger(__name__).exception("seed %d", self.seed)
        if violation is not None:
            self.note(f"VIOLATION: {violation}")
        ledgers = self.workload.ledgers.values()
        outcome = Outcome(
            self.seed, violation, loop.time() - begun, time.process_time() - started,
            sum(len(x.acked) for x in ledgers), sum(len(x.read) for x in ledgers),
            0 if self.txn is None else self.txn.load.judge.committed,
            0 if self.txn is None else self.txn.load.judge.aborted, self.watch.cleanings, len(self.faults), loop.steps,
            zlib.crc32(f"{loop.steps} {loop.time()}".encode(), self._print), list(self.trace),
        )  # fmt: skip
        self.close()
        gc.enable()
        return outcome

    def close(self) -> None:
        """Nothing of this cluster shall run any more."""
        for node in self.nodes:
            if node.process is not None:
                node.process.alive = False
            node.broker, node.threads = None, []
        self.client.alive = False
        self.loop.after_step = None
        self.loop.set_exception_handler(lambda *_: None)
        self.loop.end()

    async def _main(self) -> None:
        for node in self.nodes:
            self._start(node)
        if any(not topic.configs for topic in self.topics):
            await self._as_client(self.workload.reset_min_isr([None], {None: MIN_ISR}))
        await self._as_client(self.workload.create(self.topics))
        if self.txn is not None:
            await self.txn.begin()
        self.note("load begins")
        load = self._rng["load"]
        names = self.workload.names
        writers = [self._as_client(self.workload.producer(f"p{i}", names)) for i in range(load.randint(1, 3))]
        readers = [self._as_client(self.workload.reader(f"r{i}", tp)) for i, tp in enumerate(list(names))]
        members = [] if self.group is None else [self._as_client(self.group.run(f"m{i}")) for i in range(MEMBERS)]
        for task in (*writers, *readers, *members):
            task.add_done_callback(self._client_done)
        await self._faults()
        self._heal()
        uncordoned = self._as_client(self._undo())
        uncordoned.add_done_callback(self._client_done)
        await self._until_whole()
        self.disk_faults.mend_all()
        await self._until_whole()
        if self.txn is not None:
            await self.txn.until_served()
            await self.txn.end()
        self.workload.stopping = True
        if self.group is not None:
            self.group.stopping = True
            await self._as_client(self.group.settle(MEMBERS, self._of_the_group()))
        await asyncio.wait(writers)
        for task in (*readers, *members):
            task.cancel()
        await asyncio.wait([uncordoned])
        await self._as_client(self.workload.settle())
        await self._until_whole()
        self._check_at_rest()

    async def _undo(self) -> None:
        """What people have changed is as it was."""
        await self.workload.uncordon(sorted(self._cordoned))
        known = {topic.name: (topic.configs or {}).get("min.insync.replicas", MIN_ISR) for topic in self.topics}
        await self.workload.reset_min_isr(sorted(self._altered, key=str), {None: MIN_ISR, **known})

    def _of_the_group(self) -> list[TopicPartition]:
        assert self.group is not None, "the caller looked"
        return [tp for tp in self.workload.names if tp.topic in self.group.topics]

    async def _faults(self) -> None:
        """What befalls the cluster under load."""
        begun = self.loop.time()
        for fault in self.faults:
            self.loop.call_at(begun + fault.at_s, self._befall, fault, context=OUTSIDE)
        await asyncio.sleep(self.duration_s)

    def _as_client(self, coroutine: Any) -> asyncio.Task[Any]:
        return self.client.spawn(coroutine)

    def _client_done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._fail(task.exception())

    # -- what is noticed ---------------------------------------------------------------------------------------

    def rng(self, name: str) -> random.Random:
        """One of the streams of chance."""
        return self._rng[name]

    def note(self, line: str) -> None:
        """One line of the trace."""
        line = f"{self.loop.time() - 1000:9.3f}  {line}"
        self._print = zlib.crc32(line.encode(), self._print)
        self.trace.append(line)

    def _fail(self, error: BaseException | None) -> None:
        if self._failure is None:
            self._failure = error

    def _unexpected(self, what: str, error: BaseException | None) -> None:
        self.note(f"UNEXPECTED: {what}")
        self._fail(error if isinstance(error, Violation) else Violation(what))

    def _loop_error(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, ProcessGone):
            return
        if isinstance(error, CrashNow):
            assert loop.last_process is not None
            self._by_machine[loop.last_process.machine].kill()
            return
        self._unexpected(f"{context.get('message')}: {type(error).__name__}: {error}", error)

    def _node_changed(self, node: Node) -> None:
        if node.alive:
            self._look_at(node)
        else:
            self.watch.ended(node, power=node.machine not in self.network.up)
            self.note(f"broker {node.broker_id} is gone")

    def _look_at(self, node: Node) -> None:
        try:
            reign = node.broker.controller if node.broker is not None else None
            if reign is not None and reign.epoch > self._newest_reign:
                self._newest_reign = reign.epoch
                self._has_all_topics(reign.image)
            node.dirs.step()
            self.watch.step(node)
        except Violation as e:
            self._fail(e)

    def _after_step(self) -> None:
        process = self.loop.last_process
        if process is not None:
            node = self._by_machine.get(process.machine)
            if node is not None:
                self._look_at(node)
        if self._kill_when_made is not None:
            self._kill_controller()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    # -- faults ------------------------------------------------------------------------------------------------

    def _start(self, node: Node) -> None:
        if not node.alive:
            self.note(f"broker {node.broker_id} starts")
            node.crash_after(None)
            node.start()

    def _befall(self, fault: Fault) -> None:
        self.note(f"FAULT {fault}")
        node, other = self.nodes[fault.broker], self.nodes[fault.other]
        later = self.network.later
        match fault.kind:
            case Kind.KILL:
                self.down(node, fault.for_s)
            case Kind.KILL_ALL:
                for one in self.nodes:
                    self.down(one, fault.for_s)
            case Kind.POWER:
                # Fewer than min.insync.replicas lose data before all are whole again; one more is a mere kill.
                if self._may_lose(node):
                    self._power_off([node], fault.for_s)
                else:
                    self.down(node, fault.for_s)
            case Kind.WIPE:
                if self._may_lose(node):
                    node.wipe()
                    self.watch.ended(node, power=True)
                self.down(node, fault.for_s)
            case Kind.STOP:
                self.stop(node, fault.for_s)
            case Kind.RESTART:
                node.terminate()
                later(fault.for_s + 4, self.down, node, 0.1)
            case Kind.ISOLATE:
                self.isolate(node, fault.for_s)
            case Kind.CUT:
                self._cut(node.machine, other.machine, fault.for_s)
            case Kind.RESET:
                self.network.reset_some(0.3)
            case Kind.SLOW:
                before = self.network.delay_s
                self.network.delay_s = (0.01, 0.3)
                later(fault.for_s, setattr, self.network, "delay_s", before)
            case Kind.HANG:
                node.hang_disk(fault.other % 2, fault.for_s)
            case Kind.CRASH_IN_IO:
                node.crash_after(1 + int(fault.for_s * 20))
                later(fault.for_s, self.down, node, 0.2)
            case Kind.CLOCK:
                node.clock_offset_s += (fault.for_s - 5) * 600
                self.watch.clocks_jumped = True
            case Kind.ELECT:
                pass
            case Kind.STORE_FLUSH:
                self._fail_a_flush()
            case Kind.STORE_DEAD | Kind.STORE_HANG | Kind.STORE_WIPE | Kind.STORE_SWAP:
                self.store_faults.befall(fault)
            case Kind.NEW_TOPIC | Kind.NEW_TOPIC_KILL:
                self._new_topic(fault.for_s if fault.kind is Kind.NEW_TOPIC_KILL else None)
            case Kind.REASSIGN:
                self._reassign(fault)
            case Kind.CORDON:
                self._cordon(fault)
            case Kind.MIN_ISR:
                self._alter_min_isr(fault)
            case kind if kind in WRONG:
                self.disk_faults.befall(fault, node)

    def _may_lose(self, node: Node) -> bool:
        return self.power and self.disk_faults.allowed and self.watch.may_lose(node.broker_id)

    def _fail_a_flush(self) -> None:
        """The next flush in the metadata directory fails, whoever asks for it; the one after it succeeds."""

        def fault(operation: str, path: str) -> None:
            if operation == "fsync":
                for disk in self.store_disks:
                    disk.fault = None
                self.note(f"fsync {path} fails")
                raise error(errno.EIO, path)

        for disk in self.store_disks[:2]:
            disk.fault = fault

    def _new_topic(self, kill_for_s: float | None) -> None:
        """Somebody makes one more topic; ``kill_for_s``: the controller dies when it has recorded it, for this long."""
        name = f"late-{self._late}"
        self._late += 1
        self._kill_when_made = None if kill_for_s is None else (name, kill_for_s)
        topic = NewTopic(name=name, partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
        self._as_client(self.workload.create([topic])).add_done_callback(self._client_done)

    def _reassign(self, fault: Fault) -> None:
        """Somebody moves the replicas of a partition, in another order on two or all brokers; or takes that back."""
        places = random.Random(f"{fault.at_s} {fault.for_s}")
        tp = places.choice([*self.workload.names, *(() if self.txn is None else self.txn.partitions)])
        wanted = None if places.random() < 0.2 else places.sample(range(1, BROKERS + 1), places.choice((2, 3)))
        self.note(f"{tp} to {'where it was' if wanted is None else wanted}")
        self._as_client(self.workload.reassign(tp, wanted)).add_done_callback(self._client_done)

    def _cordon(self, fault: Fault) -> None:
        """Somebody cordons a directory, or all of a broker, and takes that back."""
        node = self.nodes[fault.broker]
        everything = random.Random(f"{fault.at_s} {fault.for_s}").random() < 0.4
        path = "*" if everything else f"/n{node.broker_id}/d{fault.other % 2}"
        self._cordoned.add(node.broker_id)
        self._as_client(self.workload.cordon(node.broker_id, path)).add_done_callback(self._client_done)
        self.network.later(fault.for_s, self._uncordon, node)

    def _uncordon(self, node: Node) -> None:
        if not self.healing:
            self._as_client(self.workload.cordon(node.broker_id)).add_done_callback(self._client_done)

    def _alter_min_isr(self, fault: Fault) -> None:
        """Somebody sets min.insync.replicas of a topic, or for all that have none of their own."""
        chance = random.Random(f"{fault.at_s} {fault.for_s}")
        topic = None if chance.random() < 0.4 else chance.choice(self.topics).name
        value = chance.choice(("2", "3") if self.power else ("1", "2", "3"))
        self.note(f"{topic or 'all topics'}: min.insync.replicas={value}")
        self._altered.add(topic)
        self._as_client(self.workload.set_min_isr(topic, value)).add_done_callback(self._client_done)

    def _kill_controller(self) -> None:
        assert self._kill_when_made is not None
        name, for_s = self._kill_when_made
        for node in self.nodes:
            reign = node.broker.controller if node.alive and node.broker is not None else None
            if reign is not None and name in reign._durable.topics:
                self._kill_when_made = None
                self.note(f"{name} is recorded: broker {node.broker_id}, the controller, is killed")
                self.network.later(0, self.down, node, for_s)
                return

    def down(self, node: Node, for_s: float) -> None:
        """kill -9, and a start ``for_s`` later."""
        node.kill()
        self.network.later(for_s, self._start, node)

    def stop(self, node: Node, for_s: float) -> None:
        """SIGSTOP, and SIGCONT ``for_s`` later."""
        if node.process is not None and node.alive:
            node.process.stop()
            self.network.later(for_s, self._go_on, node.process)

    def _power_off(self, nodes: Sequence[Node], for_s: float) -> None:
        for node in nodes:
            if node.alive:
                node.lose_power()
                self.network.later(for_s, self._start, node)

    def _go_on(self, process: SimProcess) -> None:
        if process.alive:
            self.note(f"{process.machine} goes on")
            process.go_on()

    def isolate(self, node: Node, for_s: float) -> None:
        """Nothing gets through between this broker and the others, or clients."""
        for one in (*(n.machine for n in self.nodes), self.client.machine):
            if one != node.machine:
                self._cut(one, node.machine, for_s)
                self._cut(node.machine, one, for_s)

    def _cut(self, source: str, target: str, for_s: float) -> None:
        self.network.cut(source, target)
        self.network.later(for_s, self.network.mend_one, source, target)

    # -- the end -----------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.note("healing")
        self.healing = True
        self._kill_when_made = None
        for disk in self.store_disks:
            disk.fault = None
        self.store_faults.end()
        self.network.mend()
        self.network.delay_s = (0.0001, 0.002)
        for node in self.nodes:
            if node.process is not None and node.alive:
                node.process.go_on()
            node.crash_after(None)
            self._start(node)

    async def _until_whole(self) -> None:
        """Every partition has its leader and its whole ISR, and the high watermark is at the end."""
        deadline = self.loop.time() + REST_S
        while (why := self._why_not_whole()) is not None:
            if self.loop.time() > deadline:
                raise Violation(f"{REST_S:.0f} s after the last fault: {why}")
            for node in self.nodes:
                self._start(node)
            await asyncio.sleep(0.5)

    def _reign(self) -> Any:
        reigns = [n.broker.controller for n in self.nodes if n.alive and n.broker is not None and n.broker.controller]
        return max(reigns, key=lambda r: r.epoch, default=None)

    def _why_not_whole(self) -> str | None:
        reign = self._reign()
        if reign is None:
            return "there is no controller"
        if not all(copy.is_good for copy in reign._store.copies()):
            return f"not all copies of the metadata are good: {reign._store.copies()}"
        if reign._busy:
            return "the controller is writing: its image is ahead of its records"
        for topic in reign.image.topics.values():
            for number, partition in topic.numbered():
                name = f"{topic.name}-{number}"
                tp = TopicPartition(topic.name, number)
                # Told of it as a new one only by a registration that is older than it (K112-12).
                is_new = {b.id: partition.created >= b.epoch for b in reign.image.brokers.values()}
                served = [b for b in partition.replicas if not self.nodes[b - 1].dirs.excuses(tp, is_new[b])]
                may_lead = partition.isr if partition.leader is not None else (*partition.isr, *partition.elr)
                if not set(may_lead).intersection(served) and self._anything_hangs():
                    continue  # who leads, or may, is on a disk that does not answer
                if partition.leader is None:
                    late = {b for b in partition.last_known_elr if self.nodes[b - 1].dirs.came_late}
                    if may_lead and served and late.issuperset(served):
                        continue  # the last good replica is on a bad directory, and that of the others came late
                    return f"{name} has no leader: {partition}"
                if set(partition.isr) != set(served):
                    return f"{name}: ISR {partition.isr} of {partition.replicas}, {served} can serve it"
                if partition.is_reassigned and set(partition.target) <= set(served):
                    return f"{name} is still being reassigned: {partition}"
                if len(served) < min(min_isr(reign.image, topic.name), len(partition.replicas)):
                    continue  # a disk of the few that are left is dead: nothing can be committed
                truth = self.watch.truths.get((topic.topic_id, number))
                if truth is not None:
                    ends = {b: truth.copies[b].end for b in served if b in truth.copies}
                    if set(ends.values()) != {truth.end}:
                        return f"{name}: logs end at {ends}, committed is {truth.end}"
        return None

    def _anything_hangs(self) -> bool:
        return any(node.hung() for node in self.nodes)

    def _has_all_topics(self, image: ClusterImage) -> None:
        """What was acknowledged as made is there, whoever reigns."""
        for tp, ledger in self.workload.ledgers.items():
            topic = image.topics.get(tp.topic)
            if topic is None or topic.topic_id != ledger.key[0]:
                raise Violation(f"{tp} was made, and the metadata does not have it")

    def _check_at_rest(self) -> None:
        self.watch.logs_are_equal(self.nodes)
        image = self._reign().image
        self._has_all_topics(image)
        self._is_kept(image)

    def _is_kept(self, image: ClusterImage) -> None:
        """What the store has is this image."""
        for path, disk in zip(METADATA_LOGS, self.store_disks[:2], strict=True):
            records = MetadataLog(path, disk.mount("an onlooker"), lambda: 0).read().records()
            again, _ = ClusterImage.empty(image.cluster_id).apply(records, 0)
            for what in ("topics", "brokers", "configs"):
                if getattr(again, what) != getattr(image, what):
                    raise Violation(f"{what} of the image are not what the records in {path} say")
