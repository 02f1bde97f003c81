"""The checkers: independent of the code they watch, after every step of the simulation.

Own what must be true (issue: replication), each with its words in the ``Violation``:

* what was committed stays: the batches below any leader's high watermark form one sequence per partition, and no
  replica has another below its own high watermark;
* an acknowledged record is below a high watermark when its client hears of it, and never changes or goes;
* one leader per leader epoch; the high watermark of a leader never moves back;
* every member of the ISR that the controller has recorded holds all that is committed;
* who leaves an ISR that is below min.insync.replicas, as it is configured then, can still be elected (KIP-966);
* the controller's image is what its records say;
* compacted logs are cleaned at different times: batches may be missing or have fewer records, and what a reader of
  committed records sees is what is committed (compacted.py), after every cleaning and at rest.

They look at logs and roles, never at what the code believes of its followers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from holdfast.model.errors import KafkaStorageError
from holdfast.model.types import TopicPartition
from holdfast.records.batch import iter_headers
from holdfast.replication.types import Role
from tests.simulation.compacted import KeyTruth, whats_wrong
from tests.simulation.node import CLOCKS_APART_S

if TYPE_CHECKING:
    from tests.simulation.node import Node

Key = tuple[UUID, int]
MIN_ISR = "min.insync.replicas"
JUMPS_S = 20_000.0
"""No clock jumps by more in a run."""


class Violation(AssertionError):
    """Something that must be true is not."""


class Mark(NamedTuple):
    """One batch as it lies in a log: where, in which leader epoch, and the checksum of its contents."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int


@dataclass(slots=True)
class Copy:
    """What one broker's log of a partition contains, as last seen; a dead broker's is what its disk has."""

    marks: list[Mark] = field(default_factory=list)
    start: int = 0
    view: Any = None
    agreed: int = 0
    """Marks that are known to be the committed ones."""
    lost_power: bool = False
    reached: tuple[int, float] = (0, 0.0)
    """The end that was seen last, and when."""

    @property
    def end(self) -> int:
        return self.marks[-1].next_offset if self.marks else self.start

    def cut(self, offset: int) -> None:
        """The log ends there now."""
        while self.marks and self.marks[-1].next_offset > offset:
            self.marks.pop()
        self.agreed = min(self.agreed, len(self.marks))


@dataclass(slots=True)
class Truth:
    """What is known for good of one partition."""

    name: str
    committed: list[Mark] = field(default_factory=list)
    end: int = 0
    leaders: dict[int, int] = field(default_factory=dict)
    copies: dict[int, Copy] = field(default_factory=dict)
    unclean: bool = False
    """An unclean election was allowed: committed records may go."""
    keyed: KeyTruth | None = None
    """Of a compacted partition."""


class Watch:
    """See the module's docstring."""

    def __init__(
        self, was_bad: Callable[[int], bool] = lambda broker_id: False, now_s: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.truths: dict[Key, Truth] = {}
        self.was_bad = was_bad
        """Whether some call on a disk of this broker has failed."""
        self.now_s = now_s
        self.clocks_jumped = False
        """Tombstones may be gone sooner."""
        self.cleanings = 0
        """Logs that were seen to be cleaned."""
        self._seen: dict[tuple[int, TopicPartition], tuple[Any, ...]] = {}
        self._image: Any = None
        """What the newest controller has recorded."""
        self._epoch = -1
        self.checks = 0

    # -- called by the simulation ------------------------------------------------------------------------------

    def step(self, node: Node) -> None:
        """Something ran on this broker."""
        broker = node.broker
        replicas = getattr(broker, "replicas", None)
        if replicas is None or not node.alive:
            return
        seen = self._seen
        for tp, partition in replicas.partitions.items():
            log = partition.log
            if log is None:
                continue
            if partition.role is Role.OFFLINE:
                if seen.pop((node.broker_id, tp), None) is not None:
                    self._offline((partition.topic_id, tp.partition), node.broker_id)
                continue
            view = log.view
            old = seen.get((node.broker_id, tp))
            if (
                old is not None
                and old[0] is view
                and old[1] == partition.high_watermark
                and old[2] == partition.leader_epoch
                and old[3] is partition.role
                and old[4] == partition.epoch_start
            ):
                continue
            key = (partition.topic_id, tp.partition)
            state = (view, partition.high_watermark, partition.leader_epoch, partition.role, partition.epoch_start)
            seen[node.broker_id, tp] = state
            self._changed(node, str(tp), key, partition, old)
        controller = broker.controller if broker is not None else None
        if controller is None or controller.epoch < self._epoch:  # one whose session is over has an old image a while
            return
        self._epoch = controller.epoch
        if controller._durable is not self._image:
            before, self._image = self._image, controller._durable
            if before is not None:
                self._check_eligible(before, self._image)
            self._check_isr(self._image)

    def _offline(self, key: Key, broker_id: int) -> None:
        """Its directory failed: whatever comes back there is read anew."""
        truth = self.truths.get(key)
        copy = None if truth is None else truth.copies.get(broker_id)
        if copy is not None:
            copy.view = None

    def lost(self, node: Node, logs: Iterable[Any]) -> None:
        """A directory that failed was repaired, and these logs of it may have lost what was not flushed."""
        for log in logs:
            truth = self.truths.get((log.topic_id, log.topic_partition.partition))
            if truth is not None and node.broker_id in truth.copies:
                truth.copies[node.broker_id].lost_power = True

    def ended(self, node: Node, *, power: bool) -> None:
        """The process is gone; its logs lie on its disks."""
        for key in [k for k in self._seen if k[0] == node.broker_id]:
            del self._seen[key]
        for truth in self.truths.values():
            copy = truth.copies.get(node.broker_id)
            if copy is not None:
                copy.view = None
                copy.lost_power = copy.lost_power or power

    def acked(self, key: Key, offset: int) -> None:
        """A client heard that its record is at ``offset``, with acks=all."""
        truth = self.truths[key]
        if offset >= truth.end:
            raise Violation(
                f"{truth.name}: offset {offset} was acknowledged, but nothing above {truth.end} is committed"
            )

    # -- one replica -------------------------------------------------------------------------------------------

    def _changed(self, node: Node, name: str, key: Key, partition: Any, old: tuple[Any, ...] | None) -> None:
        self.checks += 1
        truth = self.truths.get(key)
        if truth is None:
            truth = self.truths[key] = Truth(name)
        copy = truth.copies.get(node.broker_id)
        if copy is None:
            copy = truth.copies[node.broker_id] = Copy()
        view = partition.log.view
        is_cleaned = False
        if copy.view is not view:
            is_cleaned = partition.log.config.compact and _is_cleaned(copy.view, view)
            self._reread(node, truth, copy, partition, view)
        if partition.role is Role.LEADER and partition.epoch_start is not None:
            leader = truth.leaders.setdefault(partition.leader_epoch, node.broker_id)
            if leader != node.broker_id:
                raise Violation(
                    f"{name}: brokers {leader} and {node.broker_id} both lead in epoch {partition.leader_epoch}"
                )
            led_before = old is not None and old[3] is Role.LEADER and old[2] == partition.leader_epoch
            if led_before and partition.high_watermark < old[1]:
                raise Violation(f"{name}: the high watermark went back from {old[1]} to {partition.high_watermark}")
            if partition.high_watermark > truth.end:
                self._commit(node, truth, copy, partition)
        if partition.role is not Role.OFFLINE and partition.leader_epoch >= 0:
            self._agree(truth, copy, node.broker_id, min(partition.high_watermark, truth.end), partition.log.config)
        if is_cleaned:
            self.cleanings += 1
            self._check_keys(node, truth, partition)

    def _check_keys(self, node: Node, truth: Truth, partition: Any) -> None:
        """What a reader of committed records sees of this replica of a compacted log."""
        log, keyed = partition.log, truth.keyed
        if keyed is None or keyed.is_lost or keyed.had_late or log is None or truth.unclean:
            return
        # A replica may have its horizon from a leader whose clock is behind its own.
        kept_s = log.config.delete_retention_ms / 1000 - CLOCKS_APART_S
        retention_s = None if self.clocks_jumped else kept_s
        try:
            with node.undisturbed():
                wrong = whats_wrong(keyed, log, min(partition.high_watermark, truth.end), self.now_s(), retention_s)
        except KafkaStorageError:  # its directory has failed
            return
        if wrong is not None:
            raise Violation(f"{truth.name}: broker {node.broker_id}: {wrong}")

    def _reread(self, node: Node, truth: Truth, copy: Copy, partition: Any, view: Any) -> None:
        if copy.view is None:  # a new incarnation: what its disk has after recovery
            copy.marks.clear()
            copy.agreed = 0
            copy.start = view.start_offset
        if view.end_offset < copy.end:
            copy.cut(view.end_offset)
        copy.view = view
        while copy.end < view.end_offset:
            begin = max(copy.end, view.start_offset)
            try:
                with node.undisturbed():
                    piece = partition.log.read(begin, 1 << 20, view.end_offset, blocking=True)
                    data = b"" if piece is None else piece.read()
            except KafkaStorageError:  # its directory failed in this very moment: nobody else can read it either
                return
            if piece is None:
                raise Violation(f"{truth.name}: broker {node.broker_id} has nothing to read at {begin} of {view}")
            marks = list(marks_of(data))
            if not marks:
                raise Violation(f"{truth.name}: broker {node.broker_id} has no batch at {begin} of {view}")
            copy.marks.extend(m for m in marks if m.next_offset > begin)
        if truth.keyed is not None:
            kept_s = partition.log.config.delete_retention_ms / 1000
            if self.clocks_jumped:
                kept_s = max(1.0, kept_s - JUMPS_S)
            truth.keyed.followed(copy.reached, self.now_s(), kept_s)
        copy.reached = copy.end, self.now_s()

    def _commit(self, node: Node, truth: Truth, copy: Copy, partition: Any) -> None:
        """A leader's high watermark rose: what is below it is committed for ever."""
        high_watermark = partition.high_watermark
        for mark in copy.marks[_first_at(copy.marks, truth.end) :]:
            if mark.next_offset > high_watermark:
                break
            truth.committed.append(mark)
        truth.end = high_watermark
        if partition.log.config.compact:
            self._take_keys(node, truth, partition.log)
        if self._image is not None:
            topic = self._image.topics.get(partition.topic_partition.topic)
            if topic is not None and topic.topic_id == partition.topic_id:
                self._check_members(truth, topic.partitions[partition.topic_partition.partition])

    def _take_keys(self, node: Node, truth: Truth, log: Any) -> None:
        keyed = truth.keyed = truth.keyed or KeyTruth()
        try:
            with node.undisturbed():
                while keyed.end < truth.end and not keyed.is_lost:
                    before = keyed.end
                    piece = log.read(keyed.end, 1 << 20, truth.end, blocking=True)
                    if piece is not None:
                        keyed.take(piece.read(), self.now_s())
                    if keyed.end == before:
                        raise Violation(f"{truth.name}: broker {node.broker_id} has nothing to read at {before}")
            keyed.note(self.now_s())
        except KafkaStorageError:  # its directory has failed in this very moment: nobody knows what it had
            keyed.is_lost = True

    def _agree(self, truth: Truth, copy: Copy, broker_id: int, limit: int, config: Any) -> None:
        """Below its high watermark the replica has what is committed."""
        at = copy.agreed
        if at >= len(copy.marks) or copy.marks[at].next_offset > limit:
            return
        j = _first_at(truth.committed, copy.marks[at].base_offset)
        while at < len(copy.marks) and copy.marks[at].next_offset <= limit:
            if config.compact:
                while j < len(truth.committed) and truth.committed[j].base_offset < copy.marks[at].base_offset:
                    j += 1
            theirs = truth.committed[j] if j < len(truth.committed) else None
            is_same = theirs == copy.marks[at] or (
                config.compact and theirs is not None and theirs[:3] == copy.marks[at][:3]
            )
            if not is_same and not truth.unclean:
                raise Violation(
                    f"{truth.name}: broker {broker_id} has {copy.marks[at]} below its high watermark, "
                    f"but {theirs} is committed"
                )
            at, j = at + 1, j + 1
        copy.agreed = at

    # -- the cluster -------------------------------------------------------------------------------------------

    def _check_isr(self, image: Any) -> None:
        for topic in image.topics.values():
            for number, partition in topic.numbered():
                truth = self.truths.get((topic.topic_id, number))
                if truth is None or truth.unclean:
                    continue
                for broker_id, copy in truth.copies.items():
                    if broker_id not in partition.replicas:
                        copy.view = None  # a log that it has later is another one
                    if broker_id not in partition.isr:
                        copy.lost_power = False  # it has to come back in by the front door
                self._check_members(truth, partition)

    def _check_eligible(self, before: Any, image: Any) -> None:
        """Who leaves an ISR that is too small for acks=all then has all that is committed, and may be elected."""
        for name, topic in image.topics.items():
            old = before.topics.get(name)
            if old is topic or old is None or old.topic_id != topic.topic_id:
                continue
            least, least_before = min_isr(image, name), min_isr(before, name)
            if least != least_before or is_unclean(image, name):
                continue
            for number, partition in topic.numbered():
                was = old.partitions.get(number)
                if was is None or was is partition or len(partition.isr) >= min(least, len(partition.replicas)):
                    continue
                if partition.partition_epoch != was.partition_epoch + 1:
                    continue  # several changes at once: in between the ISR may have been large enough
                left = {*was.isr, *was.elr}.intersection(partition.replicas).difference(partition.isr, partition.elr)
                for broker_id in left:
                    self._may_be_forgotten(image, before, topic, number, broker_id)

    def _may_be_forgotten(self, image: Any, before: Any, topic: Any, number: int, broker_id: int) -> None:
        truth = self.truths.get((topic.topic_id, number))
        copy = None if truth is None else truth.copies.get(broker_id)
        if truth is None or copy is None or copy.lost_power or truth.unclean or self.was_bad(broker_id):
            return
        was, now = before.brokers.get(broker_id), image.brokers.get(broker_id)
        if was is None or now is None or was.incarnation_id != now.incarnation_id:
            return
        raise Violation(
            f"{truth.name}: broker {broker_id} left the ISR, which is too small for acks=all, and is not eligible: "
            f"{topic.partitions[number]}"
        )

    def _check_members(self, truth: Truth, partition: Any) -> None:
        for broker_id in partition.isr:
            copy = truth.copies.get(broker_id) or Copy()
            if copy.end < truth.end and not copy.lost_power and not truth.unclean:
                raise Violation(
                    f"{truth.name}: broker {broker_id} is in the ISR {partition.isr} with a log that ends at "
                    f"{copy.end}, but {truth.end} is committed"
                )

    def may_lose(self, broker_id: int) -> bool:
        """Whether the fault model allows this broker's disks to lose data: all replicas of its partitions are in sync,
        and nobody else has lost any since."""
        image = self._image
        if image is None:
            return False
        for topic in image.topics.values():
            for number, partition in topic.numbered():
                truth = self.truths.get((topic.topic_id, number))
                if truth is None or broker_id not in partition.replicas:
                    continue
                if set(partition.isr) != set(partition.replicas):
                    return False
                if any(truth.copies[b].lost_power for b in partition.replicas if b in truth.copies):
                    return False
        return True

    def had_late(self, tp: TopicPartition) -> bool:
        """Whether a replica of a compacted partition may have brought back what was deleted."""
        return any(t.keyed is not None and t.keyed.had_late for t in self.truths.values() if t.name == str(tp))

    def end_of(self, node: Node, tp: TopicPartition) -> int:
        """Where a replica's log ended when it was last seen; 0 when it never was."""
        found = [t for t in self.truths.values() if t.name == str(tp) and node.broker_id in t.copies]
        return found[0].copies[node.broker_id].end if found else 0

    def _replicas(self, key: Key) -> tuple[int, ...]:
        """As the controller has recorded them."""
        name = self._image.topic_names.get(key[0])
        return () if name is None else self._image.topics[name].partitions[key[1]].replicas

    def logs_are_equal(self, nodes: Sequence[Node]) -> None:
        """At rest every replica has the same log, or, of a compacted one, the same for its readers."""
        for key, truth in self.truths.items():
            alive = {n.broker_id for n in nodes if n.alive}.intersection(self._replicas(key))
            if truth.keyed is not None:
                self._check_keys_of(truth, key, [n for n in nodes if n.broker_id in alive])
                continue
            logs = {b: c.marks for b, c in truth.copies.items() if b in alive and c.view is not None}
            if len({tuple(marks) for marks in logs.values()}) > 1:
                raise Violation(f"{truth.name}: logs differ at rest: { {b: m[-3:] for b, m in logs.items()} }")

    def _check_keys_of(self, truth: Truth, key: Key, nodes: Iterable[Node]) -> None:
        for node in nodes:
            replicas = getattr(node.broker, "replicas", None)
            for tp, partition in () if replicas is None else replicas.partitions.items():
                if (partition.topic_id, tp.partition) == key and partition.role is not Role.OFFLINE:
                    self._check_keys(node, truth, partition)


def _is_cleaned(before: Any, view: Any) -> bool:
    """Whether segments of the log were replaced since ``before``; also if some were cut off or removed."""
    if before is None:
        return False
    there = {id(segment) for segment in view.segments}
    return any(id(segment) not in there for segment in before.segments)


def min_isr(image: Any, topic: str) -> int:
    """min.insync.replicas of a topic: its own, or the default of all brokers, or what their files say."""
    return int(image.topic_configs(topic).get(MIN_ISR, image.broker_configs(None).get(MIN_ISR, "1")))


def is_unclean(image: Any, topic: str) -> bool:
    """Whether a replica may lead that lacks what is committed."""
    return bool(image.topic_configs(topic).get("unclean.leader.election.enable") == "true")


def marks_of(data: Any) -> Iterable[Mark]:
    """The batches in these bytes."""
    for _, header in iter_headers(data):
        yield Mark(header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)


def _first_at(marks: list[Mark], offset: int) -> int:
    """Index of the first batch that ends above ``offset``."""
    low, high = 0, len(marks)
    while low < high:
        middle = (low + high) // 2
        if marks[middle].next_offset <= offset:
            low = middle + 1
        else:
            high = middle
    return low
