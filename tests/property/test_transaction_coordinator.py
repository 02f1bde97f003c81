"""Any history of a transactional id, any coordinator lost at any moment, any legal compaction of any prefix of its log.

Producers begin, add, end, retry, are late; markers come or are lost with their coordinator; appends are refused. After
every step:

* what is in force is what a coordinator would read that is elected now, from the log and from any compaction of it;
* there are markers only of what the log says was decided, and of one producer id and epoch in one direction;
* an end that was answered is the newest that the log says, in its direction;
* (producer id, epoch) as told to producers never goes back, and no epoch is told that is kept for fencing;
* what is decided is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.model import errors as e
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition
from holdfast.records.record import Record, decode_batch, encode_batch
from holdfast.transactions.coordinator import TransactionCoordinator
from holdfast.transactions.records import decode_record, encode_key, encode_value
from holdfast.transactions.settings import TransactionSettings
from holdfast.transactions.states import TransactionState
from holdfast.transactions.types import (
    LAST_CLIENT_EPOCH,
    AddRequest,
    Ending,
    EndRequest,
    InitRequest,
    Producer,
    Transaction,
)

NAMES = ("a", "b")
PARTITIONS = [TopicPartition("t", i) for i in range(3)]
TIMEOUT_MS = 10_000
ENDED = {
    True: (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    False: (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
}
Pair = tuple[bytes, bytes | None]


class Coordination(RuleBasedStateMachine):
    """See the module's docstring; also the coordinator's log and its sender of markers."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.epoch = 0
        self.next_id = 1000
        self.version = 2
        self.log: list[Pair] = []
        self.refusal: HoldfastError | None = None
        self.endings: list[tuple[Ending, Callable[[], None]]] = []
        self.markers: dict[tuple[int, int, int], bool] = {}
        """Of a coordinated transaction (name, id, epoch of the markers) the direction."""
        self.told: dict[str, list[Producer]] = {name: [] for name in NAMES}
        self.coordinator = self.elected()

    # -- what the coordinator is given -------------------------------------------------------------------------

    def append(self, partition: int, batch: bytearray, done: Callable[[HoldfastError | None], None]) -> None:
        entries = [(r.key or b"", r.value) for r in decode_batch(batch)]
        if self.refusal is None:
            self.log += entries
            done(None)
            return
        error, self.refusal = self.refusal, None
        done(error)

    def send(self, ending: Ending, done: Callable[[], None]) -> None:
        newest = self.newest(self.log)[ending.transactional_id]
        wanted = TransactionState.PREPARE_COMMIT if ending.commit else TransactionState.PREPARE_ABORT
        assert newest.state is wanted, "markers of what was not decided"
        assert (newest.producer_id, newest.epoch, newest.partitions) == (*ending.producer, ending.left)
        self.endings.append((ending, done))

    def fresh_id(self, reply: Callable[[int | HoldfastError], None]) -> None:
        self.next_id += 1
        reply(self.next_id)

    def elected(self) -> TransactionCoordinator:
        self.epoch += 1
        made = TransactionCoordinator(
            TransactionSettings(partitions=1), self, markers=self, fresh_id=self.fresh_id, version=lambda: self.version
        )
        made.tick(self.now_ms)
        made.on_elected(0, self.epoch)
        replay = made.replay()
        for at, (key, value) in enumerate(self.log):
            record = Record(offset=at, timestamp=self.now_ms, key=key, value=value, headers=())
            replay.feed(bytes(encode_batch([record], base_offset=at)))
        while replay.unfold(2):
            pass
        while (piece := replay.pieces(2)) is not None:
            made.add(0, self.epoch, piece, self.now_ms)
        made.serve(0, self.epoch, self.now_ms)
        return made

    @staticmethod
    def newest(log: list[Pair]) -> dict[str, Transaction]:
        found = (decode_record(key, value) for key, value in dict(log).items() if value is not None)
        return {each.transactional_id: each.transaction for each in found if each is not None}

    # -- what happens ------------------------------------------------------------------------------------------

    def remember(self, name: str, answer: Producer | HoldfastError) -> None:
        if isinstance(answer, HoldfastError):
            return
        assert answer.epoch <= LAST_CLIENT_EPOCH
        newest = max(self.told[name], default=answer)
        assert answer >= newest or answer in self.told[name][-2:], f"{answer} after {newest}"
        self.told[name].append(answer)

    def producer(self, name: str, back: int) -> Producer:
        known = self.told[name]
        return known[-min(back, len(known))] if known else Producer(1, 0)

    @rule(name=st.sampled_from(NAMES), goes_on=st.booleans(), back=st.integers(1, 3))
    def begin(self, name: str, goes_on: bool, back: int) -> None:
        producer = self.producer(name, back) if goes_on and self.told[name] else None
        request = InitRequest(transactional_id=name, timeout_ms=TIMEOUT_MS, producer=producer)
        self.coordinator.initialize(request, self.now_ms, lambda answer: self.remember(name, answer))

    @rule(
        name=st.sampled_from(NAMES), back=st.integers(1, 2), version=st.sampled_from([0, 2]),
        partitions=st.frozensets(st.sampled_from(PARTITIONS), min_size=1),
    )  # fmt: skip
    def add(self, name: str, back: int, version: int, partitions: frozenset[TopicPartition]) -> None:
        request = AddRequest(
            transactional_id=name, producer=self.producer(name, back), partitions=partitions, version=version
        )
        told: list[HoldfastError | None] = []
        self.coordinator.add_partitions(request, self.now_ms, told.append)
        if told == [None]:
            assert set(self.coordinator.verify(request, self.now_ms).values()) == {None}

    @rule(name=st.sampled_from(NAMES), back=st.integers(1, 2), commit=st.booleans(), version=st.sampled_from([0, 2]))
    def end(self, name: str, back: int, commit: bool, version: int) -> None:
        request = EndRequest(transactional_id=name, producer=self.producer(name, back), commit=commit, version=version)

        def told(answer: Producer | HoldfastError) -> None:
            self.remember(name, answer)
            if isinstance(answer, Producer):
                assert self.newest(self.log)[name].state in ENDED[commit]

        self.coordinator.end(request, self.now_ms, told)

    @rule(some=st.sets(st.sampled_from(PARTITIONS)))
    def markers_come(self, some: set[TopicPartition]) -> None:
        endings, self.endings = self.endings, []
        for ending, done in endings:
            if ending.is_over:
                continue
            came = ending.left & some
            if came:
                direction = self.markers.setdefault((hash(ending.transactional_id), *ending.producer), ending.commit)
                assert direction == ending.commit or ending.version == 0, "markers of both directions"
            ending.left -= came
            if ending.left:
                self.endings.append((ending, done))
            else:
                self.markers.pop((hash(ending.transactional_id), *ending.producer), None)
                done()

    @rule(error=st.sampled_from([e.NotEnoughReplicasError("no"), e.RequestTimedOutError("no")]))
    def next_append_fails(self, error: HoldfastError) -> None:
        self.refusal = error

    @rule(ms=st.integers(1, 2 * TIMEOUT_MS))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.coordinator.tick(self.now_ms)

    @rule(keep=st.randoms(use_true_random=False))
    def coordinator_is_lost(self, keep: object) -> None:
        self.coordinator.on_resigned(0)
        before = self.newest(self.log)
        self.log = compacted(self.log, keep)
        assert self.newest(self.log) == before
        self.endings = []
        self.coordinator = self.elected()

    @rule(version=st.integers(1, 2))
    def features_change(self, version: int) -> None:
        self.version = version

    @rule(name=st.sampled_from(NAMES))
    def epochs_run_out(self, name: str) -> None:
        """Thirty thousand transactions later."""
        found = self.newest(self.log).get(name)
        if found is None or found.state is not TransactionState.EMPTY or found.epoch >= LAST_CLIENT_EPOCH - 3:
            return
        if name in self.coordinator._shards.at(0)._changing:  # type: ignore[union-attr]
            return
        later = replace(found, epoch=LAST_CLIENT_EPOCH - 2)
        self.log.append((encode_key(name), encode_value(later, compact=True)))
        self.coordinator.on_resigned(0)
        self.endings = []
        self.told[name].append(Producer(later.producer_id, later.epoch))
        self.coordinator = self.elected()

    @invariant()
    def what_is_in_force_is_durable(self) -> None:
        shard = self.coordinator._shards.at(0)
        assert shard is not None
        of_log = {name: as_logged(t) for name, t in self.newest(self.log).items()}
        assert {name: as_logged(t) for name, t in shard.transactions.items()} == of_log

    @invariant()
    def nothing_is_stuck(self) -> None:
        """What is prepared has markers under way, or its end is tried again."""
        shard = self.coordinator._shards.at(0)
        assert shard is not None
        for name, t in shard.transactions.items():
            if t.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
                assert name in shard._endings


def as_logged(t: Transaction) -> tuple[object, ...]:
    return (t.producer_id, t.previous_producer_id, t.next_producer_id, t.epoch, t.timeout_ms, t.state, t.partitions,
            t.start_ms, t.update_ms, t.version)  # fmt: skip


def compacted(log: list[Pair], rng: object) -> list[Pair]:
    """Records of some prefix that newer ones replace are gone, not all of them."""
    last = {key: at for at, (key, _) in enumerate(log)}
    until = rng.randint(0, len(log))  # type: ignore[attr-defined]
    return [
        pair
        for at, pair in enumerate(log)
        if at >= until or last[pair[0]] == at or rng.random() < 0.3  # type: ignore[attr-defined]
    ]


Coordination.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCoordination = Coordination.TestCase
