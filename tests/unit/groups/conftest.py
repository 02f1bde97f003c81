"""A coordinator with a log in memory and a clock that stands still until it is told to move."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest

from holdfast.coordinators.partitioning import partition_for
from holdfast.groups.coordinator import GroupCoordinator
from holdfast.groups.settings import GroupSettings
from holdfast.groups.types import (
    CommitRequest,
    CommitResult,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveResult,
    Leaving,
    OffsetToCommit,
    Strategy,
    SyncRequest,
    SyncResult,
)
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition
from holdfast.records.batch import parse_header
from holdfast.records.markers import EndMarker, encode_marker
from holdfast.records.record import Record, decode_batch

START_MS = 1_700_000_000_000
TP = TopicPartition("t", 0)


T = TypeVar("T")


class Answer(Generic[T]):
    """Where a reply goes; complains when it comes twice."""

    def __init__(self) -> None:
        self._values: list[T] = []

    def __call__(self, value: T) -> None:
        assert not self._values, f"answered twice: {self._values[0]}, {value}"
        self._values.append(value)

    @property
    def came(self) -> bool:
        return bool(self._values)

    @property
    def value(self) -> T:
        assert self._values, "not answered"
        return self._values[0]


class MemoryLog:
    """``CoordinatorLog`` in memory. Appends are answered at once, or by ``complete`` once ``hold`` was called."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, bytes]] = []
        self.numbers = itertools.count(1)
        """For member ids, which no two coordinators of a group ever give twice."""
        self.fail_with: HoldfastError | None = None
        self.keep_failed = False
        """Failed appends are in the log all the same."""
        self._held: deque[tuple[int, bytes, Callable[[HoldfastError | None], None]]] | None = None

    def append(self, partition: int, batch: bytearray, done: Callable[[HoldfastError | None], None]) -> None:
        if self._held is None:
            self._finish(partition, bytes(batch), done)
        else:
            self._held.append((partition, bytes(batch), done))

    def append_within(
        self, transaction: Any, partition: int, batch: bytearray, done: Callable[[HoldfastError | None], None]
    ) -> None:
        assert is_transactional_of(transaction, batch)
        self.append(partition, batch, done)

    def mark(self, partition: int, producer_id: int, epoch: int = 0, *, commit: bool) -> None:
        """The marker of a transaction, which its coordinator appends."""
        self.batches.append((partition, bytes(encode_marker(producer_id, epoch, EndMarker(commit, 0), START_MS))))

    def hold(self) -> None:
        if self._held is None:
            self._held = deque()

    def complete(self, count: int | None = None) -> None:
        """Answer the oldest held appends; all of them, and hold no more, without a count."""
        held = self._held or deque()
        for _ in range(len(held) if count is None else count):
            self._finish(*held.popleft())
        if count is None:
            while held:
                self._finish(*held.popleft())
            self._held = None

    @property
    def held(self) -> int:
        return len(self._held or ())

    def _finish(self, partition: int, batch: bytes, done: Callable[[HoldfastError | None], None]) -> None:
        if self.fail_with is None or self.keep_failed:
            self.batches.append((partition, batch))
        done(self.fail_with)

    def chunks(self, partition: int) -> list[bytes]:
        return [batch for p, batch in self.batches if p == partition]

    def records(self) -> list[Record]:
        return [record for _, batch in self.batches for record in decode_batch(batch)]


def is_transactional_of(transaction: Any, batch: bytearray) -> bool:
    header = parse_header(batch)
    producer = (transaction.producer_id, transaction.producer_epoch)
    return header.is_transactional and (header.producer_id, header.producer_epoch) == producer


class World:
    """A coordinator that leads every partition, and short words for what clients say to it."""

    def __init__(self, log: MemoryLog | None = None, *, lead: bool = True, **settings: Any) -> None:
        settings = {"offsets_partitions": 4, "initial_rebalance_delay_ms": 0, **settings}
        self.now_ms = START_MS
        self.log = MemoryLog() if log is None else log
        self.settings = GroupSettings(**settings)
        self.suffixes: Callable[[], str] = lambda: str(next(self.log.numbers))
        self.coordinator = GroupCoordinator(self.settings, self.log, new_member_suffix=lambda: self.suffixes())
        if lead:
            for partition in range(self.settings.offsets_partitions):
                self.coordinator.on_elected(partition, 1)
                self.coordinator.load(partition, 1, self.log.chunks(partition), self.now_ms)

    def again(self, **settings: Any) -> World:
        """Another broker takes over: it knows what is in the log."""
        other = World(self.log, **settings)
        other.now_ms = self.now_ms
        return other

    def partition(self, group_id: str) -> int:
        return partition_for(group_id, self.settings.offsets_partitions)

    def group(self, group_id: str = "g") -> Any:
        return self.coordinator._shards.at(self.partition(group_id)).groups.get(group_id)

    def pass_ms(self, duration_ms: int) -> None:
        """Time goes by; every deadline is run when it comes."""
        end_ms = self.now_ms + duration_ms
        while True:
            due_ms = self.coordinator.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.coordinator.tick(self.now_ms)
        self.now_ms = end_ms

    def join(
        self,
        member_id: str | None = None,
        *,
        group_id: str = "g",
        strategies: dict[str, bytes] | None = None,
        version: int = 9,
        **fields: Any,
    ) -> Answer[JoinResult]:
        fields = {
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 30_000,
            "protocol_type": "consumer",
            **fields,
        }
        answer: Answer[JoinResult] = Answer()
        spoken = {"range": b"r"} if strategies is None else strategies
        request = JoinRequest(
            group_id=group_id,
            member_id=member_id,
            protocols=tuple(Strategy(name, metadata) for name, metadata in spoken.items()),
            must_know_id=version >= 4,
            may_skip_assignment=version >= 9,
            **fields,
        )
        self.coordinator.join(request, self.now_ms, answer)
        return answer

    def join_new(self, **fields: Any) -> Answer[JoinResult]:
        """Join with an id that was asked for first."""
        asked = self.join(**fields)
        return self.join(asked.value.member_id, **fields)

    def sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **fields: Any
    ) -> Answer[SyncResult]:
        answer: Answer[SyncResult] = Answer()
        request = SyncRequest(
            **{"group_id": "g", **fields},
            member_id=member_id,
            generation=generation,
            assignments=list((assignments or {}).items()),
        )
        self.coordinator.sync(request, self.now_ms, answer)
        return answer

    def heartbeat(self, member_id: str, generation: int, **fields: Any) -> HoldfastError | None:
        request = HeartbeatRequest(**{"group_id": "g", **fields}, member_id=member_id, generation=generation)
        return self.coordinator.heartbeat(request, self.now_ms)

    def leave(self, *leaving: str | None, group_id: str = "g", instance_id: str | None = None) -> LeaveResult:
        return self.coordinator.leave(group_id, [Leaving(m, instance_id) for m in leaving], self.now_ms)

    def commit(
        self, offset: int = 7, *, tp: TopicPartition = TP, metadata: str = "", **fields: Any
    ) -> Answer[CommitResult]:
        answer: Answer[CommitResult] = Answer()
        request = CommitRequest(**{"group_id": "g", **fields}, offsets=(OffsetToCommit(tp, offset, None, metadata),))
        self.coordinator.commit(request, self.now_ms, answer)
        return answer

    def committed(self, tp: TopicPartition = TP, group_id: str = "g") -> int | None:
        found = self.coordinator.fetch_offsets(group_id, [tp], self.now_ms).offsets[tp]
        return None if found is None else found.offset

    def stable(self, count: int = 1, *, instances: bool = False, **fields: Any) -> list[str]:
        """A stable group of so many members; the first leads."""
        answers = [self.join_new(**fields)] if not instances else [self.join(instance_id="i0", **fields)]
        for i in range(1, count):
            if instances:
                answers.append(self.join(instance_id=f"i{i}", **fields))
            else:
                answers.append(self.join_new(**fields))
            for member_id in list(self.group(fields.get("group_id", "g")).members):
                member = self.group(fields.get("group_id", "g")).members[member_id]
                if member.join_reply is None:
                    self.join(member_id, instance_id=member.instance_id, **fields)
        group = self.group(fields.get("group_id", "g"))
        members = list(group.members)
        for member_id in reversed(members):
            self.sync(
                member_id,
                group.generation,
                {m: f"for {m}".encode() for m in members} if member_id == group.leader else None,
                group_id=group.group_id,
            )
        assert group.state.value == "Stable"
        return members


@pytest.fixture
def world() -> World:
    return World()
