"""What requests lead to behind their decoders: the group coordinator's members, offsets and records.

An input is up to eight requests in a row, as in decisions.py, to one coordinator that is new each time. Time passes
between them by the length of a request, and at the end until everything that was waited for is over.
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

_APIS = (8, 9, 11, 12, 13, 14, 15, 16, 42, 47)
_TOPIC_ID = UUID(int=1)


class _Log:
    """The coordinator's log: keeps what it is given and says so at once."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    def append(self, partition: int, batch: bytearray, done: Callable[[Any], None]) -> None:
        assert partition == 0
        self.batches.append(bytes(batch))
        done(None)


def _make() -> Run:
    """Every request is answered, in bytes, or refused by a typed error, at the latest when all times are over; and the
    log that was written, read again, says what the coordinator says."""
    from holdfast.broker.access import Access
    from holdfast.broker.handlers import group_offsets, groups
    from holdfast.broker.handlers.base import RequestContext
    from holdfast.broker.metadata_cache import MetadataCache, PartitionInfo
    from holdfast.groups.coordinator import GroupCoordinator
    from holdfast.groups.replay import Replay
    from holdfast.groups.settings import GroupSettings
    from holdfast.model.errors import HoldfastError
    from holdfast.protocol.apis import ApiKey
    from holdfast.protocol.framing import decode_request, encode_body

    logging.getLogger("holdfast.groups").setLevel(logging.CRITICAL)
    table = _table()
    both = {**vars(groups), **vars(group_offsets)}
    handle = {key: both[f"handle_{ApiKey(key).name.lower()}"] for key in _APIS}
    settings = GroupSettings(offsets_partitions=1)
    info = PartitionInfo(leader=1, leader_epoch=0, isr=(1,), replicas=(1,), offline=())
    metadata = MetadataCache()
    metadata.topics = {"t1": {0: info, 1: info}}
    metadata.topic_ids, metadata.topic_names = {"t1": _TOPIC_ID}, {_TOPIC_ID: "t1"}
    loop = asyncio.new_event_loop()

    def spin() -> None:
        """Let everything run that can, without waiting."""
        for _ in range(4):
            loop.call_soon(loop.stop)
            loop.run_forever()

    def over(task: asyncio.Task[Any]) -> bool:
        if not task.done():
            return False
        with suppress(HoldfastError):
            encode_body(task.result())
        return True

    def run(data: bytes) -> Any:
        log = _Log()
        numbers = iter(range(1000))
        coordinator = GroupCoordinator(settings, log, new_member_suffix=lambda: str(next(numbers)))
        coordinator.partition_count = 1
        now_ms = 1_000_000
        coordinator.on_elected(0, 1)
        coordinator.load(0, 1, [], now_ms)
        waiting: list[asyncio.Task[Any]] = []
        answered = 0
        try:
            for kind, body in unpack(data):
                key, version = table[kind % len(table)]
                try:
                    request = decode_request(key, version, body)
                except HoldfastError:
                    continue
                time_ms = now_ms
                broker: Any = SimpleNamespace(
                    access=Access(), groups=coordinator, metadata=metadata, now_ms=lambda t=time_ms: t,
                    membership=SimpleNamespace(is_current=True),
                )  # fmt: skip
                connection: Any = SimpleNamespace(peer=("127.0.0.1", 1))
                ctx = RequestContext(
                    broker=broker, connection=connection, api_key=key, version=version, correlation_id=1,
                    client_id="c", body=body,
                )  # fmt: skip
                waiting.append(loop.create_task(handle[key](ctx, request)))
                spin()
                answered += len(waiting)
                waiting = [task for task in waiting if not over(task)]
                answered -= len(waiting)
                now_ms += 40 * len(body)
                coordinator.tick(now_ms)
            for _ in range(300):
                due = coordinator.next_deadline_ms()
                if due is None or not (waiting or due < now_ms + 3_600_000):
                    break
                now_ms = max(now_ms, due)
                coordinator.tick(now_ms)
                if waiting:
                    spin()
                    waiting = [task for task in waiting if not over(task)]
            assert not waiting, "somebody waits for ever"
            replay = Replay()
            replay.feed(b"".join(placed(log.batches)))
            for group_id, group in replay.groups().items():
                with suppress(HoldfastError):
                    told = coordinator.fetch_offsets(group_id, None, now_ms)
                    assert told.error is not None or told.offsets == group.offsets
        finally:
            for task in waiting:
                task.cancel()
            spin()
        return answered, min(len(log.batches), 4)

    return run


def placed(batches: list[bytes]) -> list[bytes]:
    """As a leader writes them."""
    from holdfast.records.batch import parse_header, stamp

    offset, found = 0, []
    for batch in batches:
        one = bytearray(batch)
        stamp(one, 0, offset, 0)
        offset = parse_header(one).next_offset
        found.append(bytes(one))
    return found


def _table() -> list[tuple[int, int]]:
    from holdfast.protocol.apis import SPOKEN

    return [(key, version) for key, version in samples.spoken(SPOKEN) if key in _APIS]


def _corpus() -> list[bytes]:
    table = _table()
    singles = samples.requests(table)
    rng = random.Random(4)
    found = [archive.pack([single]) for single in singles]
    found += [archive.pack([*rng.sample(singles, rng.randint(1, 4)), _join(table)]) for _ in range(100)]
    found += [archive.pack([_join(table), _sync(table), *rng.sample(singles, rng.randint(1, 3))]) for _ in range(100)]
    return [item for item in found if len(item) <= 600]


def _join(table: list[tuple[int, int]]) -> tuple[int, bytes]:
    """JoinGroup v3, which needs no member id before."""
    body = b"\0\2t1\0\0\x27\x10\0\0\x27\x10\0\0\0\x08consumer\0\0\0\1\0\5range\0\0\0\6\0\0\0\0\0\0"
    return table.index((11, 3)), body


def _sync(table: list[tuple[int, int]]) -> tuple[int, bytes]:
    body = b"\0\2t1\0\0\0\1\0\3c-0\0\0\0\1\0\3c-0\0\0\0\6\0\0\0\0\0\0"
    return table.index((14, 0)), body


READERS = (
    Reader(
        name="memberships",
        reads="what requests make a group coordinator answer and write",
        make=_make,
        corpus=_corpus,
        refusals=(),
        tokens=(
            b"\3t1", b"\0\2t1", b"\0\3c-0", b"\4c-0", b"\0\3c-1", b"\4c-1", b"\0\x08consumer", b"\x09consumer",
            b"\0\0\0\1", b"\0\0\0\2", b"\xff\xff\xff\xff", b"\xff\xff", b"\0\0\x27\x10", _TOPIC_ID.bytes, b"\0",
        ),
        max_size=600,
        memory_base=8 << 20,
        headroom=256 << 20,
    ),
)  # fmt: skip
