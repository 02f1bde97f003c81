"""Known bugs, put back one at a time, to see that the simulation finds them.

Each replaces one function of the product for the time of a run; nothing of them is in the product.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from holdfast.broker.coordinator_loading import CoordinatorLoad
from holdfast.broker.transactional_appends import ADDS_VERSION, TransactionalAppends
from holdfast.broker.turns import TurnsToTell
from holdfast.controller import broadcast
from holdfast.controller import isr as controller_isr
from holdfast.controller.state import ControllerState
from holdfast.coordination import notes
from holdfast.coordination.metadata_log import MetadataLog
from holdfast.coordination.zookeeper import ZooKeeperStore
from holdfast.coordination.zookeeper_brokers import LiveBrokers, OwnNode, _live
from holdfast.coordination.zookeeper_client import Check, Operation, SessionState
from holdfast.coordination.zookeeper_writer import Writer
from holdfast.metadata import znode_paths
from holdfast.model.errors import InvalidTxnStateError
from holdfast.protocol.interbroker import TYPE_FULL
from holdfast.records.markers import decode_marker
from holdfast.replication import order_waits, orders
from holdfast.replication import partition as partitions
from holdfast.replication.local_replicas import LocalReplicas
from holdfast.replication.types import OF_CLIENT
from holdfast.storage import checkpoints
from holdfast.storage.cleaning_filter import BatchFilter, Keys
from holdfast.storage.new_replicas import NewReplicas
from holdfast.storage.producer_state import ProducerStates
from holdfast.storage.segment import Segment
from holdfast.transactions import ending, initializing
from tests.simulation.faults import Kind


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def truncation_to_high_watermark() -> Iterator[None]:
    """H-01: who begins to follow cuts its log at its own high watermark, which is one fetch behind."""
    before = partitions.Partition.become_follower

    def become_follower(self: Any, state: Any, settled: Callable[[], None]) -> None:
        def cut() -> None:
            log = self.log
            if log is None or log.view.end_offset <= self.high_watermark:
                settled()
                return
            high_watermark = self.high_watermark
            now_ms = self.around.clock()
            log.dir.queue.submit(lambda: log.truncate_to(high_watermark, now_ms), lambda *_: settled())

        before(self, state, cut)

    with _replaced(partitions.Partition, "become_follower", become_follower):
        yield


@contextlib.contextmanager
def isr_without_broker_epochs() -> Iterator[None]:
    """H-06: the controller takes a replica into the ISR whatever incarnation of its broker the leader meant."""
    judge = controller_isr._ineligible

    def blind(state: Any, topic: Any, partition: Any, proposal: Any, where: Any) -> Any:
        anyone = tuple((member, None) for member, _ in proposal.isr)
        return judge(state, topic, partition, dataclasses.replace(proposal, isr=anyone), where)

    with _replaced(controller_isr, "_ineligible", blind):
        yield


@contextlib.contextmanager
def ack_before_the_isr() -> Iterator[None]:
    """acks=all is answered when the leader has it."""
    before = partitions.Partition.append

    def append(self: Any, batches: Any, acks: int, timeout_ms: int, now_ms: int, done: Any) -> None:
        before(self, batches, 1 if acks == -1 else acks, timeout_ms, now_ms, done)

    with _replaced(partitions.Partition, "append", append):
        yield


class _Stubborn:
    """A file that flushes again when that failed."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def fsync(self) -> None:
        try:
            self._handle.fsync()
        except OSError:
            self._handle.fsync()


@contextlib.contextmanager
def flushes_again() -> Iterator[None]:
    """H-28: a flush that failed is tried again, and what the second one says is believed."""
    of_metadata, of_segment = MetadataLog._writable, Segment.handle
    with (
        _replaced(MetadataLog, "_writable", lambda self: _Stubborn(of_metadata(self))),
        _replaced(Segment, "handle", lambda self: _Stubborn(of_segment(self))),
    ):
        yield


@contextlib.contextmanager
def new_replicas_forgotten() -> Iterator[None]:
    """H-20: a controller that comes to power does not know which replicas were never made."""
    before = broadcast._Builder.leader_and_isr

    def leader_and_isr(self: Any, broker: Any, roles: Any, kind: Any) -> Any:
        if kind == TYPE_FULL:
            roles = [(topic, number, partition, False) for topic, number, partition, _ in roles]
        return before(self, broker, roles, kind)

    with _replaced(broadcast._Builder, "leader_and_isr", leader_and_isr):
        yield


@contextlib.contextmanager
def checkpoint_of_the_dead() -> Iterator[None]:
    """H-19: what is done about a bad directory begins with a last checkpoint on it."""
    before = LocalReplicas.log_dir_failed

    def log_dir_failed(self: Any, log_dir: Any, *rest: Any) -> None:
        path = f"{log_dir.path}/{checkpoints.HIGH_WATERMARK}"
        checkpoints.write_offsets(log_dir.files, path, self.high_watermarks())
        before(self, log_dir, *rest)

    with _replaced(LocalReplicas, "log_dir_failed", log_dir_failed):
        yield


@contextlib.contextmanager
def cordoned_by_fallback() -> Iterator[None]:
    """K1066-04: a cordoned directory takes a replica where no other is left, as in Kafka."""
    before = NewReplicas.create

    def create(self: Any, *args: Any, **more: Any) -> None:
        dirs = self._logs.dirs
        cordoned = [d for d in dirs if d.cordoned]
        if any(d.is_online and not d.cordoned for d in dirs):
            cordoned = []
        for each in cordoned:
            each.cordoned = False
        try:
            before(self, *args, **more)
        finally:
            for each in cordoned:
                each.cordoned = True

    with _replaced(NewReplicas, "create", create):
        yield


@contextlib.contextmanager
def told_before_the_answer() -> Iterator[None]:
    """D14: what a heartbeat carries of replicas counts as told when it is sent, and is not told again if it is lost."""
    before = TurnsToTell.carried

    def carried(self: Any) -> Any:
        found = before(self)
        self._turns.clear()
        return found

    with _replaced(TurnsToTell, "carried", carried):
        yield


@contextlib.contextmanager
def limit_of_the_first_order() -> Iterator[None]:
    """D2: only the first order for a log that is being made is not waited for without end, and it is made nowhere
    else."""
    answered: set[Any] = set()
    limit = order_waits.OrderResults.limit

    def limit_first(self: Any, tp: Any, around: Any, now_ms: int, waits_on: Any, overdue: Any) -> None:
        if overdue.__self__._creations.get(tp) not in answered:
            limit(self, tp, around, now_ms, waits_on, overdue)

    def overdue(self: Any, tp: Any, directory: Any) -> Any:
        answered.add(self._creations.get(tp))
        return orders._no_answer(tp, directory)

    with _replaced(order_waits.OrderResults, "limit", limit_first), _replaced(orders.Orders, "_overdue", overdue):
        yield


@contextlib.contextmanager
def min_isr_of_the_file() -> Iterator[None]:
    """D6: the controller does not look at the min.insync.replicas that is set at run time for all brokers."""
    before = ControllerState.min_isr_by

    with _replaced(ControllerState, "min_isr_by", lambda self, topic, default: before(self, topic, {})):
        yield


@contextlib.contextmanager
def believes_what_is_behind() -> Iterator[None]:
    """A5: a start believes every copy of the metadata that it can read, whatever the notes say."""
    before = notes.judge

    def judge(paths: Any, seen: Any, witnesses: Any) -> Any:
        there = tuple(path for path in paths if path in seen and seen[path].copy_id is not None)
        known = [s.note for s in (*seen.values(), *witnesses.values()) if s.note is not None]
        if not there or not known:
            return before(paths, seen, witnesses)
        return notes.Verdict(newest=max(known, key=lambda note: note.order), believed=there)

    with _replaced(notes, "judge", judge):
        yield


@contextlib.contextmanager
def groups_not_loaded() -> Iterator[None]:
    """A broker that comes to lead ``__consumer_offsets`` serves its groups without having read them."""
    with _replaced(CoordinatorLoad, "start", lambda self: self._ready()):
        yield


class _Unchecked:
    """A claim (Won) whose client leaves out checks."""

    def __init__(self, won: Any) -> None:
        self._won = won
        self.check = won.check

    @property
    def client(self) -> _Unchecked:
        return self

    def write(self, operations: Sequence[Operation]) -> Any:
        return self._won.client.write([each for each in operations if not isinstance(each, Check)])


@contextlib.contextmanager
def commit_without_epoch_check() -> Iterator[None]:
    """H-08: the multis of a commit do not check /controller_epoch; all others do."""
    before = Writer._send

    def send(self: Any, steps: Any) -> None:
        won, self._won = self._won, _Unchecked(self._won)
        try:
            before(self, steps)
        finally:
            self._won = won

    with _replaced(Writer, "_send", send):
        yield


@contextlib.contextmanager
def stale_node_taken_for_alive() -> Iterator[None]:
    """H-10: the node of an earlier process of a broker is taken for that of the present one, by the broker itself and
    by the controller with which it registers."""
    before, of_remove = OwnNode._keep, LiveBrokers._remove

    def keep(self: Any) -> None:
        found = self._watched.node(self._link.client())
        if found is None or not self._is_of_the_past(_live(self._watched.path, found), self._me):
            before(self)

    def remove(self: Any, broker: Any, is_of_it: bool) -> None:
        if is_of_it:
            of_remove(self, broker, is_of_it)

    with _replaced(OwnNode, "_keep", keep), _replaced(LiveBrokers, "_remove", remove):
        yield


@contextlib.contextmanager
def expired_session_resumed() -> Iterator[None]:
    """H-08: a controller whose session has expired goes on in its next one, and checks against what it finds then."""
    of_told, of_not_ours = ZooKeeperStore._told, ZooKeeperStore._not_ours
    resumed: list[Any] = []

    def told(self: Any, client: Any, state: Any) -> None:
        reign = self._reign
        if state is SessionState.EXPIRED and reign is not None and reign.won.client is client:
            resumed.append(reign.won)  # before it is: what is read of /controller meanwhile is no news either
            self._errands.post("go on as the controller", lambda: go_on(self, reign))
            self._own.look_soon()
            return
        of_told(self, client, state)

    def go_on(self: Any, reign: Any) -> None:
        client = self._link.client()
        epoch, tail = client.get(znode_paths.CONTROLLER_EPOCH), client.get(znode_paths.METADATA_LOG)
        won = dataclasses.replace(reign.won, client=client, epoch_version=epoch.stat.version)
        reign.won = won
        if reign.writer is not None:
            reign.writer._tail_version = tail.stat.version
        resumed.append(won)
        for part in (self, self._election, self._live, self._events, reign.writer):
            if part is not None:
                part._won = won

    def not_ours(self: Any, won: Any, why: str) -> None:
        if not any(won is each for each in resumed):
            of_not_ours(self, won, why)

    with _replaced(ZooKeeperStore, "_told", told), _replaced(ZooKeeperStore, "_not_ours", not_ours):
        yield


@contextlib.contextmanager
def refused_marker_retry() -> Iterator[None]:
    """KAFKA-19999: a marker that comes again, with the epoch of the one that ended the transaction, is an error."""
    before = ProducerStates.check_marker

    def check_marker(self: Any, header: Any, marker: Any, txn_version: int) -> None:
        before(self, header, marker, txn_version)
        entry = self.entries.get(header.producer_id)
        if entry is not None and entry.epoch == header.producer_epoch and entry.txn_first_offset is None:
            raise InvalidTxnStateError("there is no transaction to end")

    with _replaced(ProducerStates, "check_marker", check_marker):
        yield


@contextlib.contextmanager
def no_verification() -> Iterator[None]:
    """KAFKA-14402: a batch of a client that has added its partition is believed, so also one that comes after the end
    of its transaction."""
    before = TransactionalAppends.append

    def append(self: Any, batch: Any) -> None:
        if batch.version < ADDS_VERSION:
            self._submit(batch, OF_CLIENT)
        else:
            before(self, batch)

    with _replaced(TransactionalAppends, "append", append):
        yield


@contextlib.contextmanager
def abort_markers_by_key() -> Iterator[None]:
    """Redpanda 16295: of the abort markers of a log, which all have the same key, compaction keeps the newest."""
    take, judge = Keys.take, BatchFilter._filter_marker
    newest: dict[int, int] = {}

    def is_abort(data: bytes, at: int, header: Any) -> bool:
        marker = decode_marker(memoryview(data)[at : at + header.size], header)
        return marker is not None and not marker.is_commit

    def noted(self: Any, data: bytes, at: int, header: Any) -> bool:
        if header.is_control and is_abort(data, at, header):
            newest[id(self)] = header.base_offset
        return take(self, data, at, header)

    def filter_marker(self: Any, data: bytes, at: int, header: Any) -> bytes | None:
        found = judge(self, data, at, header)
        last = newest.get(id(self._keys), -1)
        return None if header.base_offset < last and is_abort(data, at, header) else found

    with _replaced(Keys, "take", noted), _replaced(BatchFilter, "_filter_marker", filter_marker):
        yield


@contextlib.contextmanager
def tombstones_at_once() -> Iterator[None]:
    """A tombstone goes with the second cleaning, whatever delete.retention.ms says."""
    before = BatchFilter.__init__

    def init(self: Any, keys: Any, transactions: Any, producers: Any, now_ms: int, delete_retention_ms: int) -> None:
        before(self, keys, transactions, producers, now_ms, 0)

    with _replaced(BatchFilter, "__init__", init):
        yield


@contextlib.contextmanager
def bumped_twice() -> Iterator[None]:
    """KAFKA-19367: InitProducerId over an open transaction raises the epoch twice: its own producer is fenced."""
    before = ending.abort_with_fence

    def abort_with_fence(*args: Any) -> Any:
        once = before(*args)
        return dataclasses.replace(once, epoch=once.epoch + 1, last_epoch=once.epoch)

    with _replaced(initializing, "abort_with_fence", abort_with_fence):
        yield


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "D14": told_before_the_answer,
    "D2": limit_of_the_first_order,
    "D6": min_isr_of_the_file,
    "H-01": truncation_to_high_watermark,
    "H-06": isr_without_broker_epochs,
    "H-19": checkpoint_of_the_dead,
    "H-20": new_replicas_forgotten,
    "H-28": flushes_again,
    "K1066-04": cordoned_by_fallback,
    "abort-markers-by-key": abort_markers_by_key,
    "double-bump": bumped_twice,
    "early-ack": ack_before_the_isr,
    "groups-forgotten": groups_not_loaded,
    "marker-retry": refused_marker_retry,
    "metadata-behind": believes_what_is_behind,
    "tombstone-early": tombstones_at_once,
    "unverified": no_verification,
    "zk-epoch-check": commit_without_epoch_check,
    "zk-session-resumed": expired_session_resumed,
    "zk-stale-ephemeral": stale_node_taken_for_alive,
}
ON_ENSEMBLE = frozenset(("zk-epoch-check", "zk-session-resumed", "zk-stale-ephemeral"))
"""Bugs of the store on an ensemble."""
OF_TRANSACTIONS = frozenset(("abort-markers-by-key", "double-bump", "marker-retry", "tombstone-early", "unverified"))
"""Bugs that only transactions or compacted topics can bring out."""
WEIGHTS: dict[str, dict[Kind, int]] = {
    "D14": {Kind.DISK_FULL: 6, Kind.DISK_CALL: 2, Kind.CUT: 4, Kind.ISOLATE: 4, Kind.RESET: 6, Kind.STOP: 2},
    "D2": {Kind.HANG: 10, Kind.NEW_TOPIC: 8, Kind.KILL: 2, Kind.ISOLATE: 4, Kind.NEW_TOPIC_KILL: 4, Kind.STOP: 3},
    "abort-markers-by-key": {Kind.KILL: 4, Kind.RESTART: 4, Kind.ELECT: 4},
    "double-bump": {Kind.KILL: 1, Kind.RESTART: 2, Kind.ELECT: 4},
    "marker-retry": {Kind.KILL: 8, Kind.RESET: 8, Kind.CUT: 4, Kind.RESTART: 4},
    "H-06": {
        Kind.POWER: 6, Kind.WIPE: 6, Kind.SLOW: 10, Kind.ISOLATE: 6, Kind.CUT: 10, Kind.RESET: 3, Kind.KILL: 3,
        Kind.STOP: 3,
    },
    "H-19": {Kind.DISK_CALL: 3, Kind.DISK_READ_ONLY: 3, Kind.DISK_DEAD: 3, Kind.KILL: 1},
    "H-20": {Kind.DISK_DEAD: 4, Kind.NEW_TOPIC_KILL: 8},
    "K1066-04": {Kind.CORDON: 10, Kind.WIPE: 5, Kind.DISK_DEAD: 3, Kind.KILL: 2, Kind.REASSIGN: 4},
    "metadata-behind": {Kind.STORE_SWAP: 6, Kind.STORE_DEAD: 2, Kind.KILL: 2},
    "H-28": {Kind.STORE_FLUSH: 10, Kind.KILL: 6, Kind.KILL_ALL: 3, Kind.RESTART: 4},
    "zk-epoch-check": {
        Kind.ZK_DEPOSE: 8, Kind.ZK_SLOW: 4, Kind.ZK_BEHIND: 6, Kind.NEW_TOPIC: 4, Kind.REASSIGN: 6, Kind.KILL: 2,
    },
    "zk-session-resumed": {
        Kind.ZK_APART: 6, Kind.ZK_EXPIRE: 4, Kind.ZK_FREEZE: 3, Kind.NEW_TOPIC: 3, Kind.REASSIGN: 3, Kind.KILL: 1,
    },
    "zk-stale-ephemeral": {Kind.KILL: 6, Kind.ZK_RETURN: 6, Kind.POWER: 2, Kind.ZK_EXPIRE: 1},
}  # fmt: skip
"""Faults that bring a bug out sooner than the usual ones: what it takes is rare among them."""
