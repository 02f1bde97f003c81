"""What a coordinator gives to be hosted, and what it gets.

A coordinator keeps its state in an internal topic: the newest record of each key. Who leads a partition of the topic
coordinates every name (a group, a transactional id) whose hash falls there (partitioning.py). The host (in the shell:
broker/coordinator_host.py) owns the log, the disk and the clock; the coordinator is its tenant, and is pure.

What a tenant **gives** is ``Tenant`` below, most of which ``Shards`` (shards.py) does for it:

    on_elected(partition, epoch) --> replay() --(feed | take)*, unfold*, pieces*--> add(piece)* --> serve(...)
                     on_resigned(partition): at any time, also while it loads

``replay`` makes what reads the log of one partition, once for each attempt. ``KeyedReplay`` (replay.py) will do where
each record stands for itself: it is told how a record is decoded, and gives lists of what came of the newest record of
each key. ``feed``, ``unfold`` and ``pieces`` are called on the background thread of a disk, in turns of about a
millisecond; everything else on the loop. Nothing is answered before ``serve`` (CoordinatorLoadInProgressError
meanwhile: ``Shards.route`` says so), and nothing after ``on_resigned`` (NotCoordinatorError).

What a tenant **gets**: ``CoordinatorLog`` (journal.py), to which ``Journal`` writes records: appended with acks=all,
``done`` called once, in the order of the appends, when the high watermark has passed them, or with what went wrong;
``tick`` when its ``next_deadline_ms`` has come; ``partition_count`` set to what the topic has; the names of deleted
topics.

A second tenant is a package beside ``holdfast.groups``, a ``CoordinatorHost`` made for it and added to ``Coordinators``
(broker/group_shell.py is an example).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, Protocol, TypeAlias, TypeVar

from holdfast.coordinators.newest import OpenPairs, Rest
from holdfast.model.types import LeaderEpoch, TimestampMs

Reader: TypeAlias = Literal["groups", "plain"]
"""Which table of newest records another process fills for a large partition (broker/coordinator_reader.py)."""

Piece = TypeVar("Piece")
Piece_co = TypeVar("Piece_co", covariant=True)


class Replaying(Protocol[Piece_co]):
    """The log of one partition, read: batches in, pieces of state out."""

    def feed(self, batches: bytes) -> int:
        """The next batches of the log, in their order; a partial one at the end is left. How many bytes were whole
        batches. CorruptRecordError, InvalidRecordError."""
        ...

    def take(self, pairs: dict[bytes, Rest], open_pairs: OpenPairs) -> None:
        """Newest records, and those of open transactions, that another process has found."""
        ...

    def unfold(self, limit: int) -> bool:
        """Look at so many of the keys; whether there are more. CorruptRecordError, InvalidRecordError."""
        ...

    def pieces(self, limit: int) -> Piece_co | None:
        """So much of the state, which is then no longer here; None when all was given. After ``unfold``."""
        ...


class Tenant(Protocol[Piece]):
    """One coordinator of this broker, with all partitions that it leads. See the module's docstring."""

    @property
    def topic(self) -> str:
        """Whose newest records are its state."""
        ...

    @property
    def reader(self) -> Reader:
        """What reads a large partition for it."""
        ...

    partition_count: int
    """Partitions of the topic."""

    def on_elected(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        """This broker leads the partition, which is being read from now on."""
        ...

    def replay(self) -> Replaying[Piece]:
        """What reads one partition, from its start."""
        ...

    def add(self, partition: int, leader_epoch: LeaderEpoch, piece: Piece, now_ms: TimestampMs) -> None:
        """Some of what was read."""
        ...

    def serve(self, partition: int, leader_epoch: LeaderEpoch, now_ms: TimestampMs) -> None:
        """All was read."""
        ...

    def on_resigned(self, partition: int) -> None:
        """Another broker leads the partition, or another epoch begins."""
        ...

    def on_topics_deleted(self, topics: Collection[str], now_ms: TimestampMs) -> None:
        """These topics are no more."""
        ...

    def next_deadline_ms(self) -> TimestampMs | None:
        """When ``tick`` is wanted; may be early."""
        ...

    def tick(self, now_ms: TimestampMs) -> None:
        """Do what is due."""
        ...
