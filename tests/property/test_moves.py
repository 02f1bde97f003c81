"""Moves between log directories against a model, with a crash or a dead disk at any access to any file.

A run writes, cuts, deletes and changes leaders while a replica moves to and fro, and ends in the middle: by kill -9, by
loss of power, or after one of the disks has died. Then, after a start on whatever is left:

* exactly one directory has the replica's name, and it holds what was written, batch for batch (after a loss of power:
  at least all that was flushed);
* the copy of a move is taken up again, or gone.
"""

import errno
import logging
from collections.abc import Iterator

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.records.batch import parse_header
from holdfast.records.record import Record, encode_batch
from holdfast.storage.dir_scan import NameKind
from holdfast.storage.log import Log
from tests.property.machine import D0, D1, TP, Machine, batches_of
from tests.removing import purge
from tests.simulation.disk import CrashNow

RUNS = 80
LIVES = 3


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Model:
    """What the replica holds. ``after``: what it becomes by the operation that is under way."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.start = 0
        self.after: tuple[list[bytes], int] | None = None

    def versions(self) -> list[tuple[list[bytes], int]]:
        if self.after is None:
            return [(self.batches, self.start)]
        after, start = self.after
        if self.batches[: len(after)] == after:  # a cut goes segment by segment
            return [(self.batches[:n], start) for n in range(len(after), len(self.batches) + 1)]
        return [(self.batches, self.start), self.after]


class Run:
    def __init__(self, seed: int) -> None:
        self.machine = Machine(seed)
        self.rng = self.machine.rng
        self.model = Model()
        self.sequence = 0
        self.told: list[str] = []
        self.switches = 0

    # -- operations ------------------------------------------------------------------------------------------

    def submit(self, name: str, work) -> None:
        """Work on the log, in its turn on the disk's thread, as a follower's is: not while the log is exchanged."""
        machine = self.machine
        partition = machine.replicas.partitions.get(TP)
        if partition is None or partition.hold is not None or partition.log is None or not partition.is_open:
            return
        log = partition.log
        self.told.append(name)
        partition.disk_works += 1

        def run() -> None:
            work(log)
            if self.model.after is not None:
                (self.model.batches, self.model.start), self.model.after = self.model.after, None

        log.dir.queue.submit(run, lambda *_: partition.disk_work_done())

    def append(self, log: Log) -> None:
        count = self.rng.randint(1, 3)
        value = b"%d" % self.rng.getrandbits(64) + b"v" * self.rng.choice((0, 10, 200, 500))
        records = [Record(i, self.machine.ms + i, b"k", value) for i in range(count)]
        batch = encode_batch(records, producer_id=5, producer_epoch=0, base_sequence=self.sequence)
        epoch = self.machine.replicas.partitions[TP].leader_epoch
        before = log.view.end_offset
        try:
            log.append_as_leader(batch, epoch, self.machine.ms)
        except CrashNow:
            if (parse_header(batch).base_offset == before and before) or before == 0:
                self.model.after = ([*self.model.batches, bytes(batch)], self.model.start)
            raise
        self.sequence += count
        self.model.after = ([*self.model.batches, bytes(batch)], self.model.start)

    def truncate(self, log: Log) -> None:
        view = log.view
        to = max(view.start_offset, view.end_offset - self.rng.randint(0, 9))
        kept = [b for b in self.model.batches if parse_header(b).last_offset < to]
        end = parse_header(kept[-1]).next_offset if kept else None
        if to < view.end_offset and (to <= view.segments[0].base_offset or end is None or end < view.start_offset):
            kept = []
        if to < view.end_offset:
            self.model.after = (kept, self.model.start)
        log.truncate_to(to, self.machine.ms)
        self.model.after = (kept if to < view.end_offset else self.model.batches, log.view.start_offset)
        self._ask(log)

    def restart(self, log: Log) -> None:
        offset = log.view.end_offset + self.rng.randint(0, 5)
        self.model.after = ([], offset)
        log.truncate_fully_and_start_at(offset, self.machine.ms)
        self._ask(log)

    def _ask(self, log: Log) -> None:
        entry = log.producers.entries.get(5)
        self.sequence = entry.batches[-1].last_sequence + 1 if entry is not None and entry.batches else 0

    def delete_records(self, log: Log) -> None:
        to = self.rng.randint(log.view.start_offset, log.view.end_offset)
        self.model.after = ([b for b in self.model.batches if parse_header(b).last_offset >= to], to)
        log.delete_records_before(to)
        log.delete_old_segments(self.machine.ms, log.view.end_offset)
        purge(log, self.machine.ms)

    def flush(self, log: Log) -> None:
        log.flush()

    def operate(self) -> None:
        machine, rng = self.machine, self.rng
        kind = rng.choices(
            ("append", "truncate", "restart", "delete_records", "flush", "lead", "move", "checkpoint", "time"),
            (40, 4, 1, 3, 2, 3, 6, 2, 8),
        )[0]
        if kind == "lead":
            machine.lead()
        elif kind == "move":
            try:
                path = rng.choice((D0, D1))
                machine.moves.alter(TP, path)
                self.told.append(f"move to {path}")
            except HoldfastError:
                pass  # a disk is dead
        elif kind == "checkpoint":
            machine.logs.checkpoints.write_all(machine.replicas.high_watermarks())
        elif kind == "time":
            machine.tick()
        else:
            self.submit(kind, getattr(self, kind))

    # -- lives -----------------------------------------------------------------------------------------------

    def go(self) -> None:
        machine = self.machine
        machine.start()
        machine.lead(is_new=True)
        machine.settle()
        for _ in range(LIVES):
            power = self.live()
            # A disk that died in a sync may have forgotten the end of the log on it, as one that lost its power.
            forgot = power or not machine.log.dir.is_online
            flushed, first = machine.log.recovery_point, machine.log.view.segments[0].base_offset
            self.switches += machine.moves.switches
            self.told.append("power loss" if power else "kill")
            machine.kill(power=power)
            machine.start()
            if power and flushed <= first and machine.logs.get(TP) is None:
                return  # nothing of it was ever flushed: a loss of power may take it
            self.look(power=forgot, flushed=flushed)
            machine.moves.resume()
            machine.lead()
            machine.finish()
            assert not machine.names(NameKind.FUTURE), self.told
            assert len(machine.names(NameKind.REPLICA)) == 1
            assert batches_of(machine.log) == self.model.batches, self.told

    def live(self) -> bool:
        """Until the crash; whether power is lost then."""
        machine, rng = self.machine, self.rng
        power = rng.random() < 0.4
        inside, dying = rng.random() < 0.6, rng.random() < 0.25
        victim = rng.choice(machine.disks)
        last = victim.operations + rng.randint(1, 700)

        def fault(operation: str, path: str) -> None:
            if victim.operations >= last:
                if dying:
                    raise OSError(errno.EIO, "injected", path)
                self.told.append(f"crash in {operation} {path}")
                raise CrashNow

        if inside or dying:
            victim.fault = fault
        try:
            for _ in range(rng.randint(20, 120)):
                self.operate()
                for _ in range(rng.randint(0, 8)):
                    machine.step()
            if rng.random() < 0.5:
                machine.settle()
        except CrashNow:
            pass
        if any(not d.is_online for d in machine.dirs):
            self.told.append(f"dead: {[d.path for d in machine.dirs if not d.is_online]}")
            power = False  # what a dead disk keeps of what was written is another matter
        return power

    def look(self, *, power: bool, flushed: int) -> None:
        machine, model = self.machine, self.model
        here = machine.names(NameKind.REPLICA)
        assert len(here) == 1, (here, self.told)
        log = machine.log
        assert power or log.topic_id is not None
        found = batches_of(log)
        versions = model.versions()
        if power:
            assert any(_reaches(found, v, log, flushed) for v in versions), self._said(found, versions, log)
        else:
            assert any(_is(found, v, log) for v in versions), self._said(found, versions, log)
        model.after = None
        model.batches, model.start = found, log.view.start_offset
        self._ask(log)

    def _said(self, found, versions, log) -> str:
        def short(batches: list[bytes]) -> list[int]:
            return [parse_header(b).base_offset for b in batches]

        return f"{log} {short(found)}: expected one of {[(short(b), s) for b, s in versions]} {self.told}"


def _is(found: list[bytes], version: tuple[list[bytes], int], log: Log) -> bool:
    """What was deleted may be back: how far is written to the checkpoint now and then."""
    batches, start = version
    return found[len(found) - len(batches) :] == batches and (
        len(found) == len(batches) or log.view.start_offset < start
    )


def _reaches(found: list[bytes], version: tuple[list[bytes], int], log: Log, flushed: int) -> bool:
    batches, start = version
    kept = [b for b in found if parse_header(b).last_offset >= start]
    if kept != batches[: len(kept)]:
        return False
    return len(kept) == len(batches) or log.view.end_offset >= min(flushed, parse_header(batches[-1]).next_offset)


@pytest.mark.parametrize("seed", [*range(RUNS), 401, 411])  # the last two: a log start that was lowered was forgotten
def test_K113_07_a_crash_at_any_step_leaves_one_replica_with_everything(seed: int) -> None:
    Run(seed).go()
