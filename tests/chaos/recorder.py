"""The ledger of a run, for many threads, and on disk.

Every event goes to ``Ledger`` (which checks) and, as 40 bytes, to a file, so that what happened can be looked at and
judged again later: ``judge`` replays a file into a new ledger.

    offset  0  1 byte   what: S sent, A acked, F failed, R read, G read by the group, P placed, E end
            1  1 byte   producer or reader
            2  2 bytes  partition, as in partitions.json
            4  4 bytes  nothing
            8  8 bytes  offset, or high watermark; -1 for an ack that does not say where
           16  8 bytes  record, or sequence; -1 for bytes of nobody
           24  8 bytes  when it began, ns of the monotonic clock; 0 where only the end counts
           32  8 bytes  when it was over
"""

from __future__ import annotations

import json
import logging
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from tests.checks.commits import Commits
from tests.checks.ledger import Ledger, Verdict, pack
from tests.checks.linearizability import Violation

log = logging.getLogger(__name__)
EVENT = struct.Struct("<cBHIqqqq")
Place = tuple[str, int]
"""Topic and partition."""

NONE = -1


def place_name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def value_of(producer: int, sequence: int) -> bytes:
    """A record's value: who and which, and bytes that follow from it, 30 to 190 in all."""
    head = b"%d.%d." % (producer, sequence)
    tail = blake2b(head, digest_size=16).hexdigest().encode()
    return head + tail * (1 + tail[0] % 6)


def key_of(producer: int, sequence: int) -> bytes:
    return b"%d.%d" % (producer, sequence)


def record_of(key: bytes | None, value: bytes | None) -> int | None:
    """The number of a record that we sent; None for anything else, be it one byte that is different."""
    try:
        assert key is not None and value is not None
        producer, sequence = map(int, value.split(b".")[:2])
        if value == value_of(producer, sequence) and key == key_of(producer, sequence):
            return pack(producer, sequence)
    except (ValueError, AssertionError):
        pass
    return None


@dataclass(slots=True)
class Pause:
    """The longest time that some partition had no new ack."""

    seconds: float = 0.0
    place: Place | None = None


class Recorder:
    """Thread-safe. Times are taken here, so that no thread uses another clock."""

    def __init__(self, directory: Path) -> None:
        self.ledger = Ledger()
        self.pause = Pause()
        """Since ``take_pause``."""
        self._lock = threading.Lock()
        self._directory = directory
        self._file = (directory / "ledger.bin").open("wb", buffering=1 << 20)
        self._places: dict[Place, int] = {}
        self._last_ack: dict[Place, int] = {}
        self._commits: dict[Place, Commits] = defaultdict(Commits)
        self._forgotten: set[str] = set()
        self.errors: dict[str, int] = defaultdict(int)
        """What clients were told that is no violation: text -> how often."""

    def watch(self, places: list[Place]) -> None:
        """The partitions of which pauses are taken."""
        with self._lock:
            now = time.monotonic_ns()
            self._last_ack.update(dict.fromkeys(places, now))
            for place in places:
                self._number(place)

    def _number(self, place: Place) -> int:
        number = self._places.get(place)
        if number is None:
            number = self._places[place] = len(self._places)
            (self._directory / "partitions.json").write_text(json.dumps(list(self._places)))
        return number

    def _write(
        self, what: bytes, who: int, place: Place | None, offset: int, record: int, began: int, now: int
    ) -> None:
        number = 0 if place is None else self._number(place)
        self._file.write(EVENT.pack(what, who, number, 0, offset, record, began, now))

    # -- events ------------------------------------------------------------------------------------------------

    def sent(self, producer: int) -> int:
        with self._lock:
            now = time.monotonic_ns()
            sequence = self.ledger.sent(producer, now)
            self._write(b"S", producer, None, NONE, sequence, now, now)
            return sequence

    def acked(self, producer: int, sequence: int, place: Place, offset: int | None) -> None:
        with self._lock:
            now = time.monotonic_ns()
            self.ledger.acked(producer, sequence, place_name(place), offset, now)
            self._write(b"A", producer, place, NONE if offset is None else offset, sequence, 0, now)
            last = self._last_ack.get(place)
            if last is not None:
                self._pause(place, now - last)
                self._last_ack[place] = now

    def failed(self, producer: int, sequence: int, why: str) -> None:
        log.warning("producer %d: %s for record %d", producer, why, sequence)
        with self._lock:
            self.ledger.failed(producer, sequence)
            self._write(b"F", producer, None, NONE, sequence, 0, time.monotonic_ns())
            self.errors[f"producer {producer}: {why}"] += 1

    def read(self, reader: int, place: Place, offset: int, record: int | None, *, group: bool) -> None:
        with self._lock:
            now = time.monotonic_ns()
            name = place_name(place)
            self.ledger.read(reader_name(reader), name, offset, record, now)
            if group:
                self.ledger.delivered(name, offset)
            self._write(b"G" if group else b"R", reader, place, offset, NONE if record is None else record, 0, now)

    def starts_at(self, reader: int, place: Place, offset: int | None) -> None:
        with self._lock:
            self.ledger.starts_at(reader_name(reader), place_name(place), offset)
            self._write(b"P", reader, place, NONE if offset is None else offset, 0, 0, time.monotonic_ns())

    def end(self, place: Place, high_watermark: int, began: int) -> None:
        with self._lock:
            now = time.monotonic_ns()
            self.ledger.end(place_name(place), high_watermark, began, now)
            self._write(b"E", 0, place, high_watermark, 0, began, now)

    def committed(self, place: Place, offset: int, *, kept: bool) -> None:
        """The group was told that its offset is kept, or of an error after which it may be."""
        with self._lock:
            self._commits[place].told(offset, kept=kept)

    def commits(self) -> dict[Place, int]:
        """How many commits the group was told of: to be asked before ``group_is_at``."""
        with self._lock:
            return {place: commits.count for place, commits in self._commits.items()}

    def group_is_at(self, place: Place, offset: int, commits: Mapping[Place, int]) -> None:
        """What a member that asked for the group's offset was told; 0: there is none."""
        with self._lock:
            self._commits[place].answered(offset, commits.get(place, 0), time.monotonic_ns())

    def _look_at_commits(self, now_ns: int | None) -> None:
        for place, commits in self._commits.items():
            for offset, kept in commits.wrong(now_ns):
                text = f"the group is at {offset} of {place_name(place)}, and {kept} was kept before"
                if text not in self._forgotten:
                    self._forgotten.add(text)
                    self.ledger.found("forgotten", text)

    def found(self, kind: str, text: str) -> None:
        """A violation that a client saw by itself."""
        with self._lock:
            self.ledger.found(kind, text)

    def trouble(self, text: str) -> None:
        """An error that a client may be told."""
        log.warning("%s", text)
        with self._lock:
            self.errors[text] += 1

    # -- what is wrong ------------------------------------------------------------------------------------------

    def violations(self) -> list[Violation]:
        """Those that show at once, and commits that nothing has explained in time."""
        with self._lock:
            self._look_at_commits(time.monotonic_ns())
            return self.ledger.so_far

    def undelivered(self) -> list[str]:
        """What the group has not got yet."""
        with self._lock:
            return self.ledger.undelivered()

    def behind(self, ends: Mapping[Place, int], readers: Iterable[int]) -> list[str]:
        """Which of the readers has not come to which end."""
        with self._lock:
            return [
                f"{reader_name(reader)} is at {self.ledger.position(reader_name(reader), place_name(place))} of {end}"
                for reader in readers
                for place, end in ends.items()
                if self.ledger.position(reader_name(reader), place_name(place)) < end
            ]

    def verdict(self, logs: Mapping[str, Iterable[int | None]], wrong: list[str]) -> Verdict:
        """At the end, of everything; ``wrong`` fills while the logs are read."""
        with self._lock:
            self._look_at_commits(None)
            return self.ledger.verdict(logs, more=wrong)

    # -- numbers -----------------------------------------------------------------------------------------------

    def _pause(self, place: Place, nanoseconds: int) -> None:
        if nanoseconds / 1e9 > self.pause.seconds:
            self.pause = Pause(nanoseconds / 1e9, place)

    def take_pause(self) -> Pause:
        """The longest pause since the last call, with those that go on."""
        with self._lock:
            now = time.monotonic_ns()
            for place, last in self._last_ack.items():
                self._pause(place, now - last)
            found, self.pause = self.pause, Pause()
            return found

    def without_ack_since(self, moment: int) -> list[Place]:
        """Watched partitions that have no ack after this moment."""
        with self._lock:
            return [place for place, last in self._last_ack.items() if last <= moment]

    def numbers(self) -> dict[str, int]:
        with self._lock:
            counts = {what: self.ledger.counted(what) for what in ("sent", "acked", "reads", "ends")}
            return {**counts, "violations": len(self.ledger.so_far)}

    def flush(self) -> None:
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()


def reader_name(reader: int) -> str:
    return f"reader {reader}"


def replay(directory: Path) -> Ledger:
    """The ledger of a run from its file."""
    ledger = Ledger()
    places = [place_name((topic, index)) for topic, index in json.loads((directory / "partitions.json").read_text())]
    with (directory / "ledger.bin").open("rb") as file:
        while chunk := file.read(EVENT.size * 10_000):
            for event in EVENT.iter_unpack(chunk[: len(chunk) // EVENT.size * EVENT.size]):
                _take(ledger, places, event)
    return ledger


def _take(ledger: Ledger, places: list[str], event: tuple[bytes, int, int, int, int, int, int, int]) -> None:
    what, who, number, _, offset, record, began, now = event
    place = places[number] if number < len(places) else ""
    match what:
        case b"S":
            ledger.sent(who, now)
        case b"A":
            ledger.acked(who, record, place, None if offset == NONE else offset, now)
        case b"F":
            ledger.failed(who, record)
        case b"R" | b"G":
            ledger.read(reader_name(who), place, offset, None if record == NONE else record, now)
            if what == b"G":
                ledger.delivered(place, offset)
        case b"P":
            ledger.starts_at(reader_name(who), place, None if offset == NONE else offset)
        case b"E":
            ledger.end(place, offset, began, now)
