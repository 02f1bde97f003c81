"""Who waits for an order of the controller: its answer, what it waits for on a disk, and for how long.

An order is waited for as long as the directory that it depends on gets something done; with none done for
``order_patience_ms`` the partition is answered KafkaStorageError (56), so that a disk that hangs holds up neither the
other partitions of a request nor the requests behind it. That holds for every order, also for the second one for a log
that is being made, and for one to delete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition
from holdfast.replication.surroundings import Surroundings
from holdfast.replication.types import OrderDone, PartitionState, StopReplica

if TYPE_CHECKING:
    from holdfast.storage.log_dir import LogDir

Result: TypeAlias = Callable[[HoldfastError | None], None]
WaitsOn: TypeAlias = Callable[[TopicPartition], "LogDir | None"]
Overdue: TypeAlias = Callable[[TopicPartition, "LogDir | None"], HoldfastError | None]
"""The directory has got nothing done for too long: the error to answer, or None to wait on."""


class OrderResults:
    """Collects one result per partition; calls ``done`` with all of them. The first result of a partition counts."""

    __slots__ = ("_done", "_left", "_results", "_waits")

    def __init__(self, partitions: Sequence[TopicPartition], done: OrderDone) -> None:
        self._results: dict[TopicPartition, HoldfastError | None] = {}
        self._left = set(partitions)
        self._waits: dict[TopicPartition, _Wait] = {}
        self._done = done

    def put(self, tp: TopicPartition, error: HoldfastError | None) -> None:
        """One result."""
        if tp not in self._left:
            return
        self._left.discard(tp)
        wait = self._waits.pop(tp, None)
        if wait is not None:
            wait.end()
        self._results[tp] = error
        if not self._left:
            self._done(self._results)

    def limit(self, tp: TopicPartition, around: Surroundings, now_ms: int, waits_on: WaitsOn, overdue: Overdue) -> None:
        """The order is given: if its result is not there yet, it is not waited for without end."""
        if tp in self._left:
            self._waits[tp] = _Wait(self, tp, around, now_ms, waits_on, overdue)


class _Wait:
    """Of one partition of an order."""

    __slots__ = ("_answer", "_around", "_overdue", "_seen", "_tp", "_until_ms", "_waits_on", "finished")

    def __init__(
        self,
        answer: OrderResults,
        tp: TopicPartition,
        around: Surroundings,
        now_ms: int,
        waits_on: WaitsOn,
        overdue: Overdue,
    ) -> None:
        self.finished = False
        self._answer = answer
        self._tp = tp
        self._around = around
        self._waits_on = waits_on
        self._overdue = overdue
        self._until_ms = now_ms + around.settings.order_timeout_ms
        self._look(now_ms)

    def _look(self, now_ms: int) -> None:
        directory = self._waits_on(self._tp)
        self._seen = (directory, None if directory is None else directory.queue.completed)
        self._around.deadlines.add(now_ms + self._around.settings.order_patience_ms, self)

    def end(self) -> None:
        """It is answered."""
        if not self.finished:
            self.finished = True
            self._around.deadlines.finished()

    def expire(self, now_ms: int) -> None:
        """Some time has passed: has the disk done anything?"""
        directory = self._waits_on(self._tp)
        seen = (directory, None if directory is None else directory.queue.completed)
        if seen == self._seen or now_ms >= self._until_ms:
            error = self._overdue(self._tp, directory)
            if error is not None:
                self.finished = True
                self._answer.put(self._tp, error)
                return
        if not self.finished:
            self._look(now_ms)


class Creation:
    """A log that is being made, the newest order for it, and who waits."""

    __slots__ = ("_waiting", "is_overdue", "state", "stopped", "successor")

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.stopped: StopReplica | None = None
        """StopReplica came before the log was there."""
        self.successor: tuple[PartitionState, list[Result]] | None = None
        """The topic was deleted and made again before the log was there: what is wanted then, and who waits."""
        self.is_overdue = False
        """It was answered with 56: the controller goes by that until it hears something else."""
        self._waiting: list[Result] = []

    def wait(self, result: Result) -> None:
        """``result`` when the log is there, or cannot be."""
        self._waiting.append(result)

    def end(self, error: HoldfastError | None) -> None:
        """It is there, or cannot be."""
        waiting, self._waiting = self._waiting, []
        for result in waiting:
            result(error)
