"""What requests lead to behind their decoders: the transaction coordinator's epochs, states and records.

An input is up to eight requests in a row, as in decisions.py, to one coordinator that is new each time, whose log and
whose markers are done at once. Time passes between them by the length of a request, and at the end until everything
that was waited for is over.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tests.fuzz import archive, samples
from tests.fuzz.reader import Reader, Run
from tests.fuzz.readers.decisions import unpack
from tests.fuzz.readers.memberships import placed

_APIS = (22, 24, 25, 26, 65, 66)
_TOPIC_ID = UUID(int=1)
_FIRST_ID = 1000


class _Around:
    """The coordinator's log and its sender of markers."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    def append(self, partition: int, batch: bytearray, done: Callable[[Any], None]) -> None:
        assert partition == 0
        self.batches.append(bytes(batch))
        done(None)

    def send(self, ending: Any, done: Callable[[], None]) -> None:
        assert ending.left
        ending.left.clear()
        done()


def _make() -> Run:
    """Every request is answered, in bytes, or refused by a typed error; no epoch of a producer goes back; and the log
    that was written, read again, says what the coordinator says."""
    from holdfast.broker.access import Access
    from holdfast.broker.handlers import producer_ids, transactions
    from holdfast.broker.handlers.base import RequestContext
    from holdfast.broker.metadata_cache import MetadataCache, PartitionInfo
    from holdfast.model.errors import HoldfastError
    from holdfast.protocol.apis import ApiKey
    from holdfast.protocol.framing import decode_request, encode_body
    from holdfast.transactions.coordinator import TransactionCoordinator
    from holdfast.transactions.settings import TransactionSettings

    logging.getLogger("holdfast.transactions").setLevel(logging.CRITICAL)
    table = _table()
    both = {**vars(transactions), **vars(producer_ids)}
    handle = {key: both[f"handle_{ApiKey(key).name.lower()}"] for key in _APIS}
    info = PartitionInfo(leader=1, leader_epoch=0, isr=(1,), replicas=(1,), offline=())
    metadata = MetadataCache()
    metadata.topics = {"t1": {0: info, 1: info}, "__consumer_offsets": {0: info}, "__transaction_state": {0: info}}
    metadata.topic_ids, metadata.topic_names = {"t1": _TOPIC_ID}, {_TOPIC_ID: "t1"}
    loop = asyncio.new_event_loop()

    def run(data: bytes) -> Any:
        around = _Around()
        ids = iter(range(_FIRST_ID, _FIRST_ID + 1000))
        coordinator = TransactionCoordinator(
            TransactionSettings(partitions=1), around, markers=around, version=lambda: 2,
            fresh_id=lambda reply: reply(next(ids)),
        )  # fmt: skip
        now_ms = 1_000_000
        coordinator.on_elected(0, 1)
        coordinator.serve(0, 1, now_ms)
        answered = 0
        epochs: dict[int, int] = {}
        for kind, body in unpack(data):
            key, version = table[kind % len(table)]
            try:
                request = decode_request(key, version, body)
            except HoldfastError:
                continue
            broker: Any = SimpleNamespace(
                access=Access(), transactions=coordinator, metadata=metadata, now_ms=lambda t=now_ms: t,
                groups=SimpleNamespace(partition_count=1), producer_ids=SimpleNamespace(next=_soon(ids)),
                membership=SimpleNamespace(is_current=True),
            )  # fmt: skip
            connection: Any = SimpleNamespace(peer=("127.0.0.1", 1))
            ctx = RequestContext(
                broker=broker, connection=connection, api_key=key, version=version, correlation_id=1, client_id="c",
                body=body,
            )  # fmt: skip
            with suppress(HoldfastError):
                encode_body(loop.run_until_complete(handle[key](ctx, request)))
                answered += 1
            now_ms += 40 * len(body)
            coordinator.tick(now_ms)
            for name, transaction in coordinator._shards.at(0).transactions.items():
                assert transaction.epoch >= epochs.get(transaction.producer_id, -1), f"the epoch of {name!r} went back"
                epochs[transaction.producer_id] = transaction.epoch
        replay = coordinator.replay()
        replay.feed(b"".join(placed(around.batches)))
        while replay.unfold(1000):
            pass
        read: dict[str, Any] = {}
        while piece := replay.pieces(1000):
            read |= {each.transactional_id: each.transaction for each in piece}
        told = coordinator._shards.at(0).transactions
        assert {name: _seen(t) for name, t in read.items()} == {name: _seen(t) for name, t in told.items()}
        return answered, min(len(around.batches), 4)

    return run


def _seen(transaction: Any) -> tuple[Any, ...]:
    """What a record has of it."""
    t = transaction
    return t.state, t.producer_id, t.epoch, t.timeout_ms, t.start_ms, t.partitions


def _soon(ids: Any) -> Callable[[], Any]:
    async def following() -> int:
        return int(next(ids))

    return following


def _table() -> list[tuple[int, int]]:
    from holdfast.protocol.apis import SPOKEN

    return [(key, version) for key, version in samples.spoken(SPOKEN) if key in _APIS]


def _corpus() -> list[bytes]:
    table = _table()
    singles = samples.requests(table)
    rng = random.Random(5)
    found = [archive.pack([single]) for single in singles]
    for _ in range(150):
        steps = [_init(table), _add(table), _end(table, rng.random() < 0.5)]
        for _ in range(rng.randint(0, 3)):
            steps.insert(rng.randint(0, len(steps)), rng.choice(singles))
        found.append(archive.pack(steps))
    return [item for item in found if len(item) <= 600]


def _init(table: list[tuple[int, int]]) -> tuple[int, bytes]:
    """InitProducerId v0."""
    return table.index((22, 0)), b"\0\2t1\0\0\x27\x10"


def _add(table: list[tuple[int, int]]) -> tuple[int, bytes]:
    """AddPartitionsToTxn v0, of the first producer id."""
    return table.index((24, 0)), b"\0\2t1" + _FIRST_ID.to_bytes(8) + b"\0\0\0\0\0\1\0\2t1\0\0\0\1\0\0\0\0"


def _end(table: list[tuple[int, int]], commit: bool) -> tuple[int, bytes]:
    """EndTxn v0."""
    return table.index((26, 0)), b"\0\2t1" + _FIRST_ID.to_bytes(8) + b"\0\0" + bytes((commit,))


READERS = (
    Reader(
        name="transactions",
        reads="what requests make a transaction coordinator answer and write",
        make=_make,
        corpus=_corpus,
        refusals=(),
        tokens=(
            b"\3t1", b"\0\2t1", _FIRST_ID.to_bytes(8), (_FIRST_ID + 1).to_bytes(8), b"\0\0", b"\0\1", b"\x7f\xfe",
            b"\x7f\xff", b"\xff\xff", b"\xff" * 8, b"\0\0\x27\x10", b"\0\0\0\1", _TOPIC_ID.bytes, b"\0", b"\1",
        ),
        max_size=600,
        memory_base=8 << 20,
        headroom=256 << 20,
    ),
)  # fmt: skip
