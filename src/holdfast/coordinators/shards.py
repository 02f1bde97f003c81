"""The partitions that a coordinator leads: elected, read, served, resigned. And which of them a name belongs to.

    (none) --on_elected--> LOADING --add*, serve--> ACTIVE
       ^--------------------- on_resigned ------------'        a newer epoch is another shard, LOADING again

Owns the time of the latest call, too: completions bring none of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from holdfast.coordinators.partitioning import partition_for
from holdfast.model.errors import HoldfastError
from holdfast.model.group_errors import CoordinatorLoadInProgressError, NotCoordinatorError
from holdfast.model.types import LeaderEpoch, TimestampMs


class ShardState(Enum):
    """Whether what is kept in the partition can be served."""

    LOADING = "loading"
    ACTIVE = "active"


class CoordinatorShard(Protocol):
    """What a coordinator keeps of one partition, from the election of this broker to its resignation."""

    def add(self, piece: Any, now_ms: TimestampMs, /) -> None:
        """Some of what was read."""
        ...

    def open(self, now_ms: TimestampMs, /) -> None:
        """All was read: serve it."""
        ...

    def close(self, now_ms: TimestampMs, /) -> None:
        """Another broker coordinates now: everybody who waits is told so."""
        ...


S = TypeVar("S", bound=CoordinatorShard)


@dataclass(slots=True)
class _Led(Generic[S]):
    shard: S
    leader_epoch: LeaderEpoch
    state: ShardState


class Shards(Generic[S]):
    """See the module's docstring. ``make`` is the factory: the empty shard of a partition, led in
    an epoch. ``noun`` is for errors: what is
    coordinated, as in "group"."""

    __slots__ = ("_by_partition", "_make", "_noun", "now_ms", "partition_count")

    def __init__(self, make: Callable[[int, LeaderEpoch], S], *, partition_count: int, noun: str) -> None:
        self._make = make
        self._noun = noun
        self._by_partition: dict[int, _Led[S]] = {}
        self.now_ms: TimestampMs = 0
        """Of the latest call; never goes back."""
        self.partition_count = partition_count

    def see(self, now_ms: TimestampMs) -> None:
        """It is so late."""
        self.now_ms = max(self.now_ms, now_ms)

    def on_elected(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        """A new shard; without effect in an epoch that is known already."""
        led = self._by_partition.get(partition)
        if led is not None:
            if led.leader_epoch >= leader_epoch:
                return
            led.shard.close(self.now_ms)
        self._by_partition[partition] = _Led(self._make(partition, leader_epoch), leader_epoch, ShardState.LOADING)

    def add(self, partition: int, leader_epoch: LeaderEpoch, piece: Any, now_ms: TimestampMs) -> None:
        """Some of what was read; without effect if this broker no longer leads in that epoch."""
        self.see(now_ms)
        led = self._loading(partition, leader_epoch)
        if led is not None:
            led.shard.add(piece, now_ms)

    def serve(self, partition: int, leader_epoch: LeaderEpoch, now_ms: TimestampMs) -> None:
        """All was read; without effect if this broker no longer leads in that epoch."""
        self.see(now_ms)
        led = self._loading(partition, leader_epoch)
        if led is not None:
            led.state = ShardState.ACTIVE
            led.shard.open(now_ms)

    def _loading(self, partition: int, leader_epoch: LeaderEpoch) -> _Led[S] | None:
        led = self._by_partition.get(partition)
        is_it = led is not None and led.leader_epoch == leader_epoch and led.state is ShardState.LOADING
        return led if is_it else None

    def on_resigned(self, partition: int) -> None:
        """Its shard is closed and forgotten."""
        led = self._by_partition.pop(partition, None)
        if led is not None:
            led.shard.close(self.now_ms)

    # -- who has what --------------------------------------------------------------------------------------

    @property
    def loads(self) -> bool:
        """Whether some partition is being read."""
        return any(led.state is ShardState.LOADING for led in self._by_partition.values())

    def active(self) -> list[S]:
        """Those that are served."""
        return [led.shard for led in self._by_partition.values() if led.state is ShardState.ACTIVE]

    def leader_epoch(self, partition: int) -> LeaderEpoch | None:
        """In which this broker leads the partition."""
        led = self._by_partition.get(partition)
        return None if led is None else led.leader_epoch

    def at(self, partition: int) -> S | None:
        """What is served of the partition, if it is."""
        led = self._by_partition.get(partition)
        return None if led is None or led.state is ShardState.LOADING else led.shard

    def led(self, partition: int) -> S | None:
        """The shard of the partition, also while it is read."""
        led = self._by_partition.get(partition)
        return None if led is None else led.shard

    def route(self, name: str) -> S | HoldfastError:
        """The shard that keeps ``name``. NotCoordinatorError, CoordinatorLoadInProgressError, as values."""
        led = self._by_partition.get(partition_for(name, self.partition_count))
        if led is None:
            return NotCoordinatorError(f"this broker does not coordinate {self._noun} {name!r}")
        if led.state is ShardState.LOADING:
            return CoordinatorLoadInProgressError(f"{self._noun} {name!r} is still being read")
        return led.shard
