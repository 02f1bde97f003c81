"""Clients of a simulated cluster: idempotent producers, readers, somebody who makes topics; and their ledger.

They are Holdfast's own client (client/cluster.py) on the simulated network. The ledger knows what was sent, what was
acknowledged and what was read, and what that says of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kio.schema.incremental_alter_configs.v1 import request as configs
from kio.static.primitive import i8

from holdfast.client.admin import BROKER_RESOURCE, TOPIC_RESOURCE, AdminClient
from holdfast.client.cluster import KafkaClient
from holdfast.client.cordons import cordon
from holdfast.client.reassignments import alter_reassignments
from holdfast.client.refused import raise_for
from holdfast.client.views import NewTopic, OffsetSpec
from holdfast.model.errors import (
    CorruptRecordError,
    HoldfastError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    TopicAlreadyExistsError,
    UnknownProducerIdError,
)
from holdfast.model.types import TopicPartition
from holdfast.records.batch import crc_ok, parse_header, split
from holdfast.records.record import Record, decode_batch, encode_batch
from tests.simulation.watch import Key, Violation, Watch

RETRY_S = 0.1
REFUSED_FOR_GOOD = (OutOfOrderSequenceError, UnknownProducerIdError, InvalidProducerEpochError)
"""What no idempotent producer that repeats itself should ever hear."""


@dataclass(slots=True)
class Ledger:
    """What clients know of one partition."""

    key: Key
    name: str
    sent: dict[str, int] = field(default_factory=dict)
    """Value -> its place in its producer's order."""
    acked: dict[str, int | None] = field(default_factory=dict)
    """Value -> offset, None when the leader only said that it had it already."""
    read: dict[int, str] = field(default_factory=dict)
    newest_end: int = 0

    def ack(self, value: str, offset: int | None) -> None:
        """A producer was told that ``value`` is written."""
        if offset is not None and self.read.get(offset, value) != value:
            raise Violation(f"{self.name}: offset {offset} was read as {self.read[offset]}, acknowledged as {value}")
        self.acked[value] = offset

    def saw(self, offset: int, value: str) -> None:
        """A reader got ``value`` at ``offset``."""
        before = self.read.setdefault(offset, value)
        if before != value:
            raise Violation(f"{self.name}: offset {offset} was read as {before}, then as {value}")
        if value not in self.sent:
            raise Violation(f"{self.name}: offset {offset} has {value!r}, which nobody sent")
        offset_acked = self.acked.get(value, offset)
        if offset_acked is not None and offset_acked != offset:
            raise Violation(f"{self.name}: {value} was acknowledged at {offset_acked} and read at {offset}")

    def ends(self, end_offset: int) -> None:
        """A client was told that the partition ends here."""
        if end_offset < self.newest_end:
            raise Violation(f"{self.name}: the end went back for clients from {self.newest_end} to {end_offset}")
        self.newest_end = end_offset

    def settle(self, values: list[str]) -> None:
        """All that is in the partition, in order: nothing acknowledged is missing, twice or out of order."""
        if len(values) != len(set(values)):
            twice = sorted({v for v in values if values.count(v) > 1})
            raise Violation(f"{self.name}: written twice: {twice[:5]}")
        missing = self.acked.keys() - set(values)
        if missing:
            raise Violation(f"{self.name}: acknowledged and lost: {sorted(missing)[:5]} of {len(missing)}")
        last: dict[str, int] = {}
        for value in values:
            producer, place = value.split(":")[0], self.sent[value]
            if place < last.get(producer, -1):
                raise Violation(f"{self.name}: {value} stands behind a later record of its producer")
            last[producer] = place


class Workload:
    """All clients. Each runs in the process that ``spawn`` gives it."""

    def __init__(self, bootstrap: str, rng: random.Random, watch: Watch, *, pause_s: tuple[float, float]) -> None:
        self.bootstrap = bootstrap
        self.rng = rng
        self.watch = watch
        self.pause_s = pause_s
        self.ledgers: dict[TopicPartition, Ledger] = {}
        self.names: list[TopicPartition] = []
        """Partitions that producers write to; grows."""
        self.stopping = False
        self.broken: list[str] = []
        """Refusals that no client should ever see."""

    def client(self, name: str) -> KafkaClient:
        """A client with little patience: what it gives up it tries again."""
        return KafkaClient(self.bootstrap, client_id=name, timeout_s=3.0, connect_timeout_s=1.0)

    async def create(self, topics: list[NewTopic]) -> None:
        """Make the topics; returns when they are there."""
        client = AdminClient(self.bootstrap, client_id="admin", timeout_s=3.0, connect_timeout_s=1.0)
        for topic in topics:
            await self._patiently(lambda topic=topic: self._create(client, topic))
            view = await self._patiently(lambda topic=topic: client.topic(topic.name))
            assert view.topic_id is not None
            for p in view.partitions:
                tp = TopicPartition(topic.name, p.partition)
                self.ledgers[tp] = Ledger((view.topic_id, p.partition), str(tp))
                self.names.append(tp)
        client.close()

    async def reassign(self, tp: TopicPartition, replicas: list[int] | None) -> None:
        """Ask once; that it is refused, or lost, is nobody's trouble."""
        client = AdminClient(self.bootstrap, client_id="admin", timeout_s=3.0, connect_timeout_s=1.0)
        with contextlib.suppress(HoldfastError):
            await alter_reassignments(client, {tp: replicas})
        client.close()

    async def cordon(self, broker: int, *paths: str) -> None:
        """Ask once, of the broker itself; no paths: nothing is cordoned."""
        client = AdminClient(self.bootstrap, client_id="admin", timeout_s=3.0, connect_timeout_s=1.0)
        with contextlib.suppress(HoldfastError):
            await cordon(client, broker, paths)
        client.close()

    async def uncordon(self, brokers: list[int]) -> None:
        """Until nothing is cordoned any more."""
        client = AdminClient(self.bootstrap, client_id="admin", timeout_s=3.0, connect_timeout_s=1.0)
        for broker in brokers:
            await self._patiently(lambda broker=broker: cordon(client, broker, ()))
        client.close()

    async def set_min_isr(self, topic: str | None, value: str) -> None:
        """Ask once; None is the default of all brokers."""
        client = AdminClient(self.bootstrap, client_id="admin", timeout_s=3.0, connect_timeout_s=1.0)
        with contextlib.suppress(HoldfastError):
            await _set_min_isr(client, topic, value)
        client.close()

    async def reset_min_isr(self, topics: Sequence[str | None], values: Mapping[str | None, str]) -> None:
        """Until each has its value."""
        client = AdminClient(self.bootstrap, client_id="admin", timeout_s=3.0, connect_timeout_s=1.0)
        for topic in topics:
            await self._patiently(lambda topic=topic: _set_min_isr(client, topic, values[topic]))
        client.close()

    async def _create(self, client: AdminClient, topic: NewTopic) -> None:
        error = (await client.create_topics([topic]))[topic.name]
        if error is not None and not isinstance(error, TopicAlreadyExistsError):
            raise error

    async def _patiently(self, call: Any) -> Any:
        while True:
            try:
                return await call()
            except HoldfastError:
                await asyncio.sleep(RETRY_S)

    async def producer(self, name: str, partitions: list[TopicPartition]) -> None:
        """Writes until told to stop; one record batch after the other, each until it is acknowledged."""
        client, rng = self.client(name), random.Random(self.rng.getrandbits(64))
        producer_id, epoch = await self._patiently(client.init_producer_id)
        sequences: dict[TopicPartition, int] = {}
        while not self.stopping:
            await asyncio.sleep(rng.uniform(*self.pause_s))
            tp = rng.choice(partitions)
            ledger, sequence = self.ledgers[tp], sequences.get(tp, 0)
            values = [f"{name}:{sequence + i}" for i in range(rng.randint(1, 3))]
            sequences[tp] = sequence + len(values)
            ledger.sent.update((v, sequence + i) for i, v in enumerate(values))
            batch = encode_batch(
                (Record(offset=i, timestamp=0, key=None, value=v.encode(), headers=()) for i, v in enumerate(values)),
                producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
            )  # fmt: skip
            ack = await self._write(client, tp, bytes(batch), name)
            if ack is None:
                return
            for i, value in enumerate(values):
                offset = None if ack.base_offset is None else ack.base_offset + i
                if offset is not None:
                    self.watch.acked(ledger.key, offset)
                ledger.ack(value, offset)

    async def _write(self, client: KafkaClient, tp: TopicPartition, batch: bytes, name: str) -> Any:
        while True:
            try:
                return await client.produce(tp.topic, tp.partition, batch)
            except HoldfastError as e:
                if isinstance(e, REFUSED_FOR_GOOD):
                    raise Violation(f"{tp}: {name} is refused for good: {type(e).__name__}: {e}") from e
                if self.stopping:
                    return None
                await asyncio.sleep(RETRY_S)

    async def reader(self, name: str, tp: TopicPartition) -> None:
        """Reads on from the start; begins again now and then."""
        client, rng, ledger = self.client(name), random.Random(self.rng.getrandbits(64)), self.ledgers[tp]
        position = 0
        while True:
            try:
                if rng.random() < 0.05:
                    found = await client.list_offsets({tp: OffsetSpec.LATEST})
                    ledger.ends(found[tp].offset)
                if rng.random() < 0.02:
                    position = 0
                position = await self._read(client, tp, ledger, position, 4_000)
            except HoldfastError:
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(rng.uniform(*self.pause_s))

    async def _read(self, client: KafkaClient, tp: TopicPartition, ledger: Ledger, position: int, wait_ms: int) -> int:
        found = await client.fetch_raw(tp, position, max_wait_ms=wait_ms)
        for batch in split(found.records):
            if not crc_ok(batch, 0, parse_header(batch)):  # a disk may return another bit once: consumers look
                raise CorruptRecordError(f"{ledger.name}: a batch at {position} is damaged")
            for record in decode_batch(batch):
                if record.offset < position:
                    continue
                if record.offset != position:
                    raise Violation(f"{ledger.name}: offset {record.offset} follows {position - 1}")
                ledger.saw(record.offset, (record.value or b"").decode())
                position += 1
        return position

    async def settle(self) -> None:
        """Read every partition to its end and hold it against the ledger."""
        client = self.client("settle")
        for tp, ledger in list(self.ledgers.items()):
            end = (await self._patiently(lambda tp=tp: client.list_offsets({tp: OffsetSpec.LATEST})))[tp].offset
            ledger.ends(end)
            position = 0
            while position < end:
                position = await self._patiently(
                    lambda tp=tp, ledger=ledger, position=position: self._read(client, tp, ledger, position, 100)
                )
            ledger.settle([ledger.read[o] for o in range(end)])
        client.close()


async def _set_min_isr(client: AdminClient, topic: str | None, value: str) -> None:
    kind, name = (BROKER_RESOURCE, "") if topic is None else (TOPIC_RESOURCE, topic)
    change = configs.AlterableConfig(name="min.insync.replicas", config_operation=i8(0), value=value)
    resource = configs.AlterConfigsResource(resource_type=i8(kind), resource_name=name, configs=(change,))
    request = configs.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    for result in (await client.ask_any(request)).responses:
        raise_for(result.error_code.value, result.error_message, f"min.insync.replicas of {topic}")
