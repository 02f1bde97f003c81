"""Transactional producers and readers of committed records under faults, on topics of their own; some of it compacted.

Producers write to one to three partitions in each transaction, now and then with offsets of a group, commit or abort,
vanish and are succeeded, go on with their id and epoch after an error (KIP-360), and send what is too late: a batch of
a transaction that has ended. Half of them speak each protocol, where the cluster has both. A producer without
transactions writes keys, too.

    txn      plain; each value is sent once
    keyed    cleanup.policy=compact, quickly; few keys, many tombstones

What follows of it is judged in txn_judge.py; how long readers are held up, here.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from typing import Final

from kio.schema.update_features.v1 import request as features
from kio.static.primitive import i8, i16

from holdfast.client.admin import AdminClient
from holdfast.client.cluster import KafkaClient, milliseconds
from holdfast.client.refused import raise_for
from holdfast.client.views import IsolationLevel, NewTopic, OffsetSpec
from holdfast.model.errors import (
    CorruptRecordError,
    HoldfastError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TopicAlreadyExistsError,
    TransactionAbortableError,
)
from holdfast.model.types import Offset, TopicPartition
from holdfast.records.batch import crc_ok, iter_headers
from holdfast.records.markers import decode_committed
from holdfast.records.record import Record, encode_batch
from tests.simulation.node import CLOCKS_APART_S
from tests.simulation.txn_judge import Outcome, Txn, TxnJudge, Version
from tests.simulation.txn_producer import GivenUp, TxnProducer
from tests.simulation.watch import Violation

TIMEOUT_MS: Final = 6_000
"""transaction.timeout.ms"""
GRACE_S: Final = 1.0
"""By how much a last stable offset may stand longer than that, while all is well."""
LATE_MS: Final = 15_000
"""How late a request may come that was given up."""
RETENTION_MS: Final = 20_000
SERVED_S: Final = 60.0
"""Virtual seconds after which every producer gets a transaction through, when all is whole again."""
GROUP = "txn-readers"
ENDED = (InvalidProducerEpochError, ProducerFencedError, InvalidTxnStateError, TransactionAbortableError)
"""What a producer hears whose transaction was ended over its head."""
ANY_TIME, NO_LIMIT = "message.timestamp.after.max.ms", str(2**63 - 1)
"""Clocks of brokers jump."""
TXN = NewTopic(name="txn", partitions=3, replication_factor=3, configs={"min.insync.replicas": "2", ANY_TIME: NO_LIMIT})
KEYED = NewTopic(
    name="keyed", partitions=2, replication_factor=3,
    configs={
        "min.insync.replicas": "2", "cleanup.policy": "compact", "segment.ms": "3000", ANY_TIME: NO_LIMIT,
        "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": str(RETENTION_MS),
    },
)  # fmt: skip
TOPICS = (TXN, KEYED)
PROPERTIES = {
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "2000",
}
KEYS = 4
ZOMBIE_SHARE, LATE_SHARE, VANISH_SHARE, ABORT_SHARE, OFFSETS_SHARE, GOES_ON_SHARE = 0.3, 0.1, 0.15, 0.2, 0.2, 0.1


class TxnLoad:
    """See the module's docstring. ``version``: transaction.version of the cluster. ``clocks_jumped``: coordinators may
    end transactions early, or late. ``had_late``: a replica may have brought back what was deleted (compacted.py)."""

    def __init__(
        self,
        bootstrap: str,
        rng: random.Random,
        clock: Callable[[], float],
        clocks_jumped: Callable[[], bool],
        had_late: Callable[[TopicPartition], bool],
    ) -> None:
        self.judge = TxnJudge()
        self.version = rng.choice((1, 2, 2))
        self.stopping = False
        self.names = [TopicPartition(t.name, p) for t in TOPICS for p in range(t.partitions or 0)]
        self._bootstrap = bootstrap
        self._rng = rng
        self._clock = clock
        self.clocks_jumped = clocks_jumped
        self._had_late = had_late
        self._served: dict[str, float] = {}
        """When each producer last got a transaction through."""
        self._numbers: dict[str, int] = {}

    def client(self, name: str) -> KafkaClient:
        return KafkaClient(self._bootstrap, client_id=name, timeout_s=3.0, connect_timeout_s=1.0)

    def now_ms(self) -> int:
        """The time of clients."""
        return int((self._clock() + 1.7e9) * 1000)

    async def prepare(self) -> None:
        """Until the topics are there and the feature is in force."""
        client = AdminClient(self._bootstrap, client_id="admin", timeout_s=3.0, connect_timeout_s=1.0)
        update = features.FeatureUpdateKey(
            feature="transaction.version",
            max_version_level=i16(self.version),
            upgrade_type=i8(2 if self.version == 1 else 1),
        )
        request = features.UpdateFeaturesRequest(
            timeout=milliseconds(5_000), feature_updates=(update,), validate_only=False
        )

        async def finalize() -> None:
            raise_for((await client.ask_controller(request)).error_code.value, None, "transaction.version")

        async def create(topic: NewTopic) -> None:
            error = (await client.create_topics([topic]))[topic.name]
            if error is not None and not isinstance(error, TopicAlreadyExistsError):
                raise error
            await client.topic(topic.name)

        await _until_done(finalize)
        for topic in TOPICS:
            await _until_done(lambda topic=topic: create(topic))
        client.close()

    # -- transactions ------------------------------------------------------------------------------------------

    async def run(self, name: str) -> None:
        """One transactional id, one instance after the other."""
        rng = random.Random(self._rng.getrandbits(64))
        self._served[name] = 0.0
        while not self.stopping:
            version = 2 if self.version == 2 and rng.random() < 0.6 else 1
            client = self.client(name)
            producer = TxnProducer(client, name, version, TIMEOUT_MS, self.now_ms, lambda: self.stopping)
            with contextlib.suppress(GivenUp):
                await _Instance(self, producer, rng).live()
            producer.close()

    def served(self, name: str) -> None:
        """It got a transaction through."""
        self._served[name] = self._clock()

    def next_value(self, name: str) -> str:
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        return f"{name}:{number}"

    async def keys(self, name: str) -> None:
        """A producer without transactions that writes keys."""
        client, rng = self.client(name), random.Random(self._rng.getrandbits(64))
        producer_id, epoch = await _until_done(client.init_producer_id)
        sequences: dict[TopicPartition, int] = {}
        tps = [tp for tp in self.names if tp.topic == KEYED.name]
        while not self.stopping:
            await asyncio.sleep(rng.uniform(0.1, 2.0))
            tp = rng.choice(tps)
            key = f"{name}-{rng.randrange(KEYS)}"
            value = None if rng.random() < 0.3 else self.next_value(name)
            version = self.judge.writes(tp, key, value, None)
            if value is not None:
                plain = self.judge.begin(f"{name}/plain")
                plain.outcome = Outcome.UNKNOWN
                self.judge.sends(plain, tp, value)
            record = Record(
                offset=0, timestamp=self.now_ms(), key=key.encode(), value=None if value is None else value.encode(),
                headers=(),
            )  # fmt: skip
            sequence = sequences.get(tp, 0)
            sequences[tp] = sequence + 1
            batch = encode_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            while not version.is_acked:
                try:
                    ack = await client.produce(tp.topic, tp.partition, bytes(batch))
                    version.offset, version.is_acked = ack.base_offset, True
                except OutOfOrderSequenceError as e:
                    raise Violation(f"{tp}: {name} is refused for good: {e}") from e
                except HoldfastError:
                    if self.stopping:
                        return
                    await asyncio.sleep(0.1)

    def may_have_been_ended(self, began_s: float) -> bool:
        """Whether a coordinator may have ended a transaction that has begun then: another than the one that wrote when
        it began has another clock."""
        return self.clocks_jumped() or self._clock() - began_s >= TIMEOUT_MS / 1000 - CLOCKS_APART_S - 0.1

    def time_s(self) -> float:
        return self._clock()

    # -- readers -----------------------------------------------------------------------------------------------

    async def reader(self, name: str, tp: TopicPartition) -> None:
        """Reads what is committed, from the start again now and then; of keys from the start to the end each time."""
        client, rng = self.client(name), random.Random(self._rng.getrandbits(64))
        position = 0
        while True:
            with contextlib.suppress(HoldfastError):
                if tp.topic == KEYED.name:
                    await self._scan(client, tp)
                else:
                    if rng.random() < 0.03:
                        position = 0
                    found, position = await self._read(client, tp, position, 2_000)
                    for record in found:
                        self.judge.saw(tp, record.offset, _value(record))
            await asyncio.sleep(rng.uniform(0.1, 2.0))

    async def _read(
        self, client: KafkaClient, tp: TopicPartition, position: Offset, wait_ms: int
    ) -> tuple[list[Record], Offset]:
        answer = await client.fetch_raw(tp, position, max_wait_ms=wait_ms, isolation=IsolationLevel.READ_COMMITTED)
        following = position
        for at, header in iter_headers(answer.records):
            if not crc_ok(answer.records, at, header):
                raise CorruptRecordError(f"{tp}: a batch at {header.base_offset} is damaged")
            following = max(following, header.next_offset)
        records = [r for r in decode_committed(answer.records, answer.aborted) if r.offset >= position]
        return records, following

    async def _scan(self, client: KafkaClient, tp: TopicPartition, *, final: bool = False) -> None:
        """From the start to the end, by one leader and faster than tombstones go; else it says nothing."""
        isolation = IsolationLevel.READ_COMMITTED
        end = (await client.list_offsets({tp: OffsetSpec.LATEST}, isolation=isolation))[tp].offset or 0
        began_s, leader = self._clock(), await client.leader(tp)
        floors = self.judge.floors(tp, None if final else end)
        state: dict[str, str | None] = {}
        seen: list[tuple[Offset, str]] = []
        position = 0
        while position < end:
            found, position = await self._read(client, tp, position, 100)
            for record in found:
                state[(record.key or b"").decode()] = None if record.value is None else record.value.decode()
                if record.value is not None:
                    seen.append((record.offset, record.value.decode()))
            if await client.leader(tp) != leader or self._clock() - began_s > RETENTION_MS / 2000:
                return
        if self._had_late(tp):
            return
        for offset, value in seen:
            self.judge.saw(tp, offset, value)
        self.judge.scanned(tp, floors, state)

    # -- the end -----------------------------------------------------------------------------------------------

    async def until_served(self) -> None:
        """Every producer gets a transaction through, now that all is whole."""
        healed_s = self._clock()
        while waiting := sorted(name for name, at_s in self._served.items() if at_s <= healed_s):
            if self._clock() > healed_s + SERVED_S:
                raise Violation(f"{SERVED_S:.0f} s after the last fault: no transaction of {waiting} came through")
            await asyncio.sleep(0.25)

    async def settle(self) -> None:
        """Nothing is open any more, and all that readers find is held against what was done."""
        client = AdminClient(self._bootstrap, client_id="settle", timeout_s=30.0)
        if self.clocks_jumped():
            await self._abort_all()
        limit_s = self._clock() + TIMEOUT_MS / 1000 + SERVED_S
        while held := await self._held_up(client):
            if self._clock() > limit_s:
                raise Violation(f"readers of committed records are held up for good: {held}")
            await asyncio.sleep(0.5)
        found: dict[TopicPartition, list[str]] = {}
        for tp in self.names:
            end = (await client.list_offsets({tp: OffsetSpec.LATEST}))[tp].offset or 0
            if tp.topic == KEYED.name:
                await self._scan(client, tp, final=True)
                continue
            values, position = found.setdefault(tp, []), 0
            while position < end:
                records, position = await self._read(client, tp, position, 100)
                for record in records:
                    self.judge.saw(tp, record.offset, _value(record))
                    values.append(_value(record))
        self.judge.settle(found)
        of = {name: TopicPartition(TXN.name, i) for i, name in enumerate(sorted(self._served))}
        at = await client.committed(GROUP, list(of.values()))
        for name, tp in of.items():
            self.judge.settle_group(name, at[tp].offset if tp in at else None)
        client.close()

    async def _abort_all(self) -> None:
        """Nobody knows when the time of a transaction is up: the next instance of each id ends it."""
        for name in sorted(self._served):
            producer = TxnProducer(self.client(name), name, 1, TIMEOUT_MS, self.now_ms, lambda: False)
            await producer.init()
            producer.close()

    def group_partition(self, name: str) -> TopicPartition:
        """The partition for which this producer alone commits offsets."""
        return TopicPartition(TXN.name, sorted(self._served).index(name))

    async def _held_up(self, client: KafkaClient) -> Mapping[str, str]:
        specs = dict.fromkeys(self.names, OffsetSpec.LATEST)
        ends = await client.list_offsets(specs)
        stable = await client.list_offsets(specs, isolation=IsolationLevel.READ_COMMITTED)
        return {
            str(tp): f"{stable[tp].offset} of {ends[tp].offset}"
            for tp in self.names
            if stable[tp].offset != ends[tp].offset
        }


class _Instance:
    """One instance of a transactional producer, from InitProducerId until it vanishes or is fenced."""

    def __init__(self, load: TxnLoad, producer: TxnProducer, rng: random.Random) -> None:
        self._load = load
        self._judge = load.judge
        self._producer = producer
        self._rng = rng
        self._began_s = 0.0
        """The transaction that is open."""
        self._versions: list[tuple[Version, TopicPartition]] = []

    async def live(self) -> None:
        """Until it vanishes. An open transaction is left to whoever comes after."""
        load, rng, producer = self._load, self._rng, self._producer
        await producer.init()
        while not load.stopping:
            await asyncio.sleep(rng.uniform(0.05, 2.0))
            txn = self._judge.begin(f"{producer.name}/{len(self._judge.txns)}")
            self._began_s = load.time_s()
            try:
                goes_on = await self._transaction(txn)
            except GivenUp:
                self._close(txn, Outcome.ABORTED if txn.outcome is Outcome.OPEN else txn.outcome)
                raise
            except ENDED as e:
                await self._ended(txn, e)
                continue
            if not goes_on:
                return
            if producer.version == 1 and producer.was_retried:  # what comes late would be of the next transaction
                await self._go_on()

    def _close(self, txn: Txn, outcome: Outcome) -> None:
        if txn.outcome is not outcome:
            self._judge.over(txn, outcome)

    async def _transaction(self, txn: Txn) -> bool:
        """One of them; False: the instance has vanished over it."""
        rng, producer, judge = self._rng, self._producer, self._judge
        tps = rng.sample(self._load.names, rng.randint(1, 3))
        vanishes = rng.random() < VANISH_SHARE
        commit = rng.random() >= ABORT_SHARE
        if producer.version == 1:
            await producer.add(tps)
        for _ in range(rng.randint(1, 3)):
            await asyncio.sleep(rng.choice((0.0, rng.uniform(0, 1.0))))
            await self._write(txn, rng.choice(tps))
        if rng.random() < OFFSETS_SHARE:
            await self._offsets(txn)
        if vanishes:
            judge.over(txn, Outcome.ABORTED)
            await self._haunt(txn, tps)
            return False
        if self._load.version == 2 and rng.random() < GOES_ON_SHARE:
            judge.over(txn, Outcome.ABORTED)
            await self._go_on()
            return True
        late = None
        if not commit and rng.random() < ZOMBIE_SHARE:  # it does not wait for its last batch
            tp = rng.choice(tps)
            batch = producer.batch(tp, self._records(txn, tp))
            late = asyncio.ensure_future(_quietly(producer, tp, batch))
        txn.outcome = Outcome.UNKNOWN if commit else Outcome.OPEN
        await self._end(txn, commit)
        self._load.served(producer.name)
        if late is not None:
            await late
            if producer.version == 1:
                await self._go_on()
        elif producer.version == 1 and rng.random() < LATE_SHARE:
            await producer.end(commit=commit)  # answered again when the markers are written
            await self._too_late(rng.choice(tps))
            await self._go_on()
        return True

    async def _go_on(self) -> None:
        """With the id and epoch that it has. Where the answer was lost and the coordinator changes, nobody knows any
        more that its epoch was the one before, and it is fenced, with Kafka too."""
        try:
            await self._producer.init(goes_on=True)
        except ENDED:
            if not self._producer.was_retried:
                raise
            await self._producer.init()

    async def _end(self, txn: Txn, commit: bool) -> None:
        producer = self._producer
        try:
            await producer.end(commit=commit)
        except ENDED:
            if commit and producer.tries > 1:
                txn.outcome = Outcome.UNKNOWN
            else:
                txn.outcome = Outcome.OPEN
            raise
        self._judge.over(txn, Outcome.COMMITTED if commit else Outcome.ABORTED)

    def _records(self, txn: Txn, tp: TopicPartition) -> list[tuple[bytes | None, bytes | None]]:
        rng, name = self._rng, self._producer.name
        found: list[tuple[bytes | None, bytes | None]] = []
        self._versions = []
        for _ in range(rng.randint(1, 3)):
            is_keyed = tp.topic == KEYED.name
            value = None if is_keyed and rng.random() < 0.3 else self._load.next_value(name)
            key = f"{name}-{rng.randrange(KEYS)}" if is_keyed else None
            if value is not None:
                self._judge.sends(txn, tp, value)
            if key is not None:
                self._versions.append((self._judge.writes(tp, key, value, txn), tp))
            found.append((None if key is None else key.encode(), None if value is None else value.encode()))
        return found

    async def _write(self, txn: Txn, tp: TopicPartition) -> None:
        batch = self._producer.batch(tp, self._records(txn, tp))
        versions = self._versions
        try:
            offset = await self._producer.produce(tp, batch)
        except OutOfOrderSequenceError as e:
            raise Violation(f"{tp}: {txn.name} is refused for good: {e}") from e
        if offset is not None:
            for i, (version, _) in enumerate(versions):
                version.offset = offset + i

    async def _offsets(self, txn: Txn) -> None:
        producer = self._producer
        txn.group_offset = int(self._load.next_value(f"{producer.name}-group").rpartition(":")[2])
        if producer.version == 1:
            await producer.add_offsets(GROUP)
        await producer.commit_offsets(GROUP, {self._load.group_partition(producer.name): txn.group_offset})

    async def _too_late(self, tp: TopicPartition) -> None:
        """A batch that follows the last one, of a transaction that has ended."""
        txn = self._judge.begin(f"{self._producer.name}/late")
        records = self._records(txn, tp)
        self._judge.over(txn, Outcome.ABORTED)
        batch = self._producer.batch(tp, records)
        self._producer.untake(tp, len(records))
        with contextlib.suppress(HoldfastError):
            await self._producer.produce_once(tp, batch)

    async def _haunt(self, txn: Txn, tps: list[TopicPartition]) -> None:
        """It is thought to be gone, and sends one more batch when another has come."""
        rng, producer = self._rng, self._producer
        if rng.random() >= ZOMBIE_SHARE:
            await asyncio.sleep(rng.choice((0.1, rng.uniform(0, TIMEOUT_MS / 1000 + 1))))
            return
        tp = rng.choice(tps)
        batch = producer.batch(tp, self._records(txn, tp))
        with contextlib.closing(
            TxnProducer(self._load.client(producer.name), producer.name, producer.version, TIMEOUT_MS,
                        self._load.now_ms, lambda: self._load.stopping)
        ) as other:  # fmt: skip
            await other.init()
            await _quietly(producer, tp, batch)

    async def _ended(self, txn: Txn, error: HoldfastError) -> None:
        """It was told that its transaction is over, or that it has to be aborted."""
        if txn.outcome is Outcome.OPEN:
            self._judge.over(txn, Outcome.ABORTED)
        producer = self._producer
        is_doubtful = producer.was_retried and producer.version == 1
        if producer.init_retried_ms is not None:
            is_doubtful = is_doubtful or self._load.now_ms() - producer.init_retried_ms < LATE_MS
        if not is_doubtful and not self._load.may_have_been_ended(self._began_s):
            raise Violation(f"{txn.name} was ended by nobody, and hears {type(error).__name__}: {error}") from error
        if self._rng.random() < 0.5:
            try:
                await self._producer.init(goes_on=True)
            except ENDED:
                await self._producer.init()
        else:
            await self._producer.init()


async def _quietly(producer: TxnProducer, tp: TopicPartition, batch: bytes) -> None:
    with contextlib.suppress(HoldfastError):
        await producer.produce_once(tp, batch)


async def _until_done(call: Callable[[], object]) -> object:
    while True:
        try:
            return await call()  # type: ignore[misc]
        except HoldfastError:
            await asyncio.sleep(0.1)


def _value(record: Record) -> str:
    return (record.value or b"").decode()
