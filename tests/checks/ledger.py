"""What every record's sender was told, what every reader got, and what the logs hold in the end.

Pure: events go in, findings come out. Used by the chaos run on real brokers and usable by anything else that has
producers, readers and logs. About 30 bytes a record and 32 an offset.

A record is (producer, sequence); each producer numbers its records 0, 1, 2, ... in the order in which it sends them.
What must be so, whatever happens to brokers:

* lost: an acknowledged record is not at the offset that its sender was told;
* duplicated: a record, acknowledged or not, is in the logs twice;
* reordered: records of one producer are in one partition in another order than they were sent;
* foreign: the logs hold a record that nobody sent;
* changed: an offset had two contents, for readers, senders or the log;
* gap: a reader was given an offset that does not follow the one before;
* damaged: a batch has a wrong checksum, or offsets do not follow each other;
* undelivered: the group never got an acknowledged record;
* order, stale end: see linearizability.py.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.checks.linearizability import PartitionHistory, Violation

SEQUENCE_BITS = 40
MAX_PRODUCERS = 1 << (62 - SEQUENCE_BITS)


def pack(producer: int, sequence: int) -> int:
    """A record's number: unique, not negative."""
    assert 0 <= producer < MAX_PRODUCERS and 0 <= sequence < 1 << SEQUENCE_BITS
    return producer << SEQUENCE_BITS | sequence


def unpack(record: int) -> tuple[int, int]:
    """Producer and sequence."""
    return record >> SEQUENCE_BITS, record & ((1 << SEQUENCE_BITS) - 1)


def name_of(record: int) -> str:
    producer, sequence = unpack(record)
    return f"record {producer}.{sequence}"


class _Sent:
    """What one producer sent and was told, by sequence."""

    def __init__(self) -> None:
        self.invoked = array("q")
        self.partition = array("h")
        """Index of the partition of the ack; -1 without one."""
        self.offset = array("q")
        self.seen = bytearray()
        """How often it is in the logs, at the end; no more than 255."""
        self.failed: set[int] = set()
        self.somewhere: dict[int, int] = {}
        """Sequence -> time of an ack that did not say where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """How much a verdict is about."""

    sent: int
    acked: int
    failed: int
    open: int
    """Sent, and never heard of again: the run ended first."""
    reads: int
    ends: int
    in_logs: int
    found_without_ack: int
    """In the logs although the sender was told of a failure, or of nothing: allowed, once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Everything that is wrong, and how much was looked at."""

    totals: Totals
    violations: tuple[Violation, ...]

    def count(self, *kinds: str) -> int:
        return sum(violation.kind in kinds for violation in self.violations)


class Ledger:
    """Events in any order of threads, as long as a record's ``sent`` comes before all else about it."""

    def __init__(self, unit: str = "ns", *, limit: int = 1000) -> None:
        self._unit, self._limit = unit, limit
        self._index: dict[Hashable, int] = {}
        self._partitions: list[Hashable] = []
        self._histories: list[PartitionHistory] = []
        self._senders: dict[int, _Sent] = defaultdict(_Sent)
        self._next: dict[tuple[Hashable, Hashable], int] = {}
        self._delivered: dict[Hashable, bytearray] = {}
        self._counts: Counter[str] = Counter()
        self._violations: list[Violation] = []

    # -- what happens ------------------------------------------------------------------------------------------

    def sent(self, producer: int, now: int) -> int:
        """A producer hands its next record to its client; the record's sequence."""
        sender = self._senders[producer]
        sender.invoked.append(now)
        sender.partition.append(-1)
        sender.offset.append(-1)
        sender.seen.append(0)
        self._counts["sent"] += 1
        return len(sender.invoked) - 1

    def acked(self, producer: int, sequence: int, partition: Hashable, offset: int | None, now: int) -> None:
        """The sender was told that the record is at this offset, or only that it is there (None): librdkafka concludes
        that from the ack of a later record when the answer for this one was lost.
        """
        sender = self._senders[producer]
        place = self._place(partition)
        if sender.partition[sequence] >= 0:
            self._found("duplicated", f"{name_of(pack(producer, sequence))} was acknowledged twice")
            return
        self._counts["acked"] += 1
        sender.partition[sequence] = place
        if offset is None:
            sender.somewhere[sequence] = now
            return
        sender.offset[sequence] = offset
        self._histories[place].append_acked(offset, pack(producer, sequence), sender.invoked[sequence], now)

    def failed(self, producer: int, sequence: int) -> None:
        """The sender was told of an error, or stopped waiting: the record may be there once or not at all."""
        self._senders[producer].failed.add(sequence)

    def read(self, reader: Hashable, partition: Hashable, offset: int, record: int | None, now: int) -> None:
        """A reader got a record; None for bytes that are none of ours."""
        self._counts["reads"] += 1
        wanted = self._next.get((reader, partition), offset)
        if offset != wanted:
            self._found("gap", f"{reader} was at offset {wanted} of {partition} and got {offset}")
        self._next[reader, partition] = offset + 1
        if not self._was_sent(record):
            self._found("foreign", f"{reader} got from offset {offset} of {partition} what nobody sent")
        else:
            assert record is not None
            self._histories[self._place(partition)].read(offset, record, now)

    def starts_at(self, reader: Hashable, partition: Hashable, offset: int | None) -> None:
        """The reader goes there on purpose: the next record it gets must be this one (None: may be any)."""
        self._next.pop((reader, partition), None)
        if offset is not None:
            self._next[reader, partition] = offset

    def position(self, reader: Hashable, partition: Hashable) -> int:
        """The offset that the reader must get next; 0 before it got any."""
        return self._next.get((reader, partition), 0)

    def delivered(self, partition: Hashable, offset: int) -> None:
        """Some member of the consumer group got this offset."""
        there = self._delivered.setdefault(partition, bytearray())
        if offset >= len(there):
            there.extend(bytes(offset + 1024 - len(there)))
        there[offset] = 1

    def end(self, partition: Hashable, high_watermark: int, invoked: int, returned: int) -> None:
        """A reader was told where the log ends."""
        self._counts["ends"] += 1
        self._histories[self._place(partition)].end(high_watermark, invoked, returned)

    def found(self, kind: str, text: str) -> None:
        """Something else that is wrong."""
        self._found(kind, text)

    # -- what is wrong -----------------------------------------------------------------------------------------

    @property
    def so_far(self) -> list[Violation]:
        """What was wrong at once; the rest needs ``verdict``."""
        return self._violations + [violation for history in self._histories for violation in history.violations]

    def counted(self, what: str) -> int:
        """``sent``, ``acked``, ``reads`` or ``ends`` up to now."""
        return self._counts[what]

    def undelivered(self) -> list[str]:
        """A line for each partition with acknowledged records that the group has not got."""
        lines = []
        for partition, history in zip(self._partitions, self._histories, strict=True):
            there = self._delivered.get(partition, b"")
            missing = [o for o in history.acked_offsets() if o >= len(there) or not there[o]]
            if missing:
                lines.append(f"{partition}: {len(missing)} records, the first at offset {missing[0]}")
        return lines

    def verdict(
        self, logs: Mapping[Any, Iterable[int | None]], *, has_group: bool = True, more: Sequence[str] = ()
    ) -> Verdict:
        """Call once, at the end. ``logs``: every record of every partition in offset order, from offset 0 on.

        ``more``: what whoever reads the logs finds wrong with their form while they are read.
        """
        in_logs = without_ack = 0
        for partition, records in logs.items():
            there, unacked = self._take_log(partition, records)
            in_logs += there
            without_ack += unacked
        for producer, sender in self._senders.items():
            for sequence in sender.somewhere:
                where = self._partitions[sender.partition[sequence]]
                self._found("lost", f"{name_of(pack(producer, sequence))} is not in {where}")
        for text in more:
            self._found("damaged", text)
        for partition in self._partitions:
            if partition not in logs:
                self._found("lost", f"{partition} has acknowledged records and no log")
        if has_group:
            for line in self.undelivered():
                self._found("undelivered", line)
        linear = [violation for history in self._histories for violation in history.check()]
        failed = sum(len(sender.failed) for sender in self._senders.values())
        sent, acked = self._counts["sent"], self._counts["acked"]
        totals = Totals(
            sent=sent,
            acked=acked,
            failed=failed,
            open=sent - acked - failed,
            reads=self._counts["reads"],
            ends=self._counts["ends"],
            in_logs=in_logs,
            found_without_ack=without_ack,
        )
        return Verdict(totals=totals, violations=tuple(self._violations + linear))

    def _take_log(self, partition: Hashable, records: Iterable[int | None]) -> tuple[int, int]:
        """Compares one log with what is known of it: (records in it, those of them without an ack)."""
        place = self._place(partition)
        history = self._histories[place]
        last: dict[int, int] = {}
        end = without_ack = 0
        for offset, record in enumerate(records):
            end += 1
            if record is None or not self._was_sent(record):
                self._found("foreign", f"offset {offset} of {partition} holds what nobody sent")
                continue
            producer, sequence = unpack(record)
            sender = self._senders[producer]
            if sender.seen[sequence]:
                self._found("duplicated", f"{name_of(record)} is at offset {offset} of {partition}, and elsewhere")
            sender.seen[sequence] = 1
            if sequence < last.get(producer, -1):
                self._found(
                    "reordered", f"{name_of(record)} at offset {offset} of {partition} comes after {last[producer]}"
                )
            last[producer] = sequence
            without_ack += sender.partition[sequence] < 0
            known = history.value_at(offset)
            if known is None or known == record:
                history.append_seen(offset, sender.invoked[sequence])
                if sequence in sender.somewhere and sender.partition[sequence] == place:
                    history.append_acked(offset, record, sender.invoked[sequence], sender.somewhere.pop(sequence))
            else:
                is_lost = self._ack_of(known) == (place, offset)
                kind = "lost" if is_lost else "changed"
                self._found(kind, f"{partition} offset {offset}: {name_of(known)} was there, {name_of(record)} is")
        for offset in history.known_from(end):
            known = history.value_at(offset)
            kind = "lost" if known is not None and self._ack_of(known) == (place, offset) else "changed"
            self._found(kind, f"{partition} ends at {end}, and {name_of(known or 0)} was at offset {offset}")
        return end, without_ack

    def _ack_of(self, record: int) -> tuple[int, int]:
        producer, sequence = unpack(record)
        sender = self._senders[producer]
        return sender.partition[sequence], sender.offset[sequence]

    def _was_sent(self, record: int | None) -> bool:
        if record is None:
            return False
        producer, sequence = unpack(record)
        return producer in self._senders and sequence < len(self._senders[producer].invoked)

    def _place(self, partition: Hashable) -> int:
        place = self._index.get(partition)
        if place is None:
            place = self._index[partition] = len(self._partitions)
            self._partitions.append(partition)
            self._histories.append(PartitionHistory(str(partition), self._unit))
        return place

    def _found(self, kind: str, text: str) -> None:
        if len(self._violations) < self._limit:
            self._violations.append(Violation(kind=kind, text=text))
