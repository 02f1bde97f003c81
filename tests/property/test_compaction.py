"""Any cleaning of any prefix, in any number of rounds, leaves what a reader and a group coordinator find.

A run appends commits, deletions, transactional ones that are committed or aborted, and other records, in segments of a
few batches; now and then the log is cleaned up to some offset. In the end both logs, the cleaned one and one that never
was, say the same: to a reader of committed records the newest value of each key, also to one that reads now
and then what has come since, to a coordinator its groups. What is planted is found.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from uuid import UUID

import pytest

from holdfast.groups.offset_records import encode_offset, encode_offset_key
from holdfast.groups.replay import Replay
from holdfast.groups.types import OffsetAndMetadata
from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.batch import BatchHeader, iter_headers
from holdfast.records.compression import Codec
from holdfast.records.markers import EndMarker, encode_marker
from holdfast.records.record import Record, decode_batch, encode_batch
from holdfast.storage import cleaning_filter
from holdfast.storage.aborted import Transactions
from holdfast.storage.cleaning_filter import BatchFilter
from holdfast.storage.cleaning_plan import CleanerSettings
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from tests.simulation.disk import SimDisk
from tests.unit.storage.cleaning import clean_log
from tests.unit.storage.conftest import contents

NOW_MS = 1_700_000_000_000
HOUR = 3_600_000
RUNS = 80
STEPS = 120
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=700, retention_ms=None, delete_retention_ms=2 * HOUR
)


class Run:
    """Two logs of the same appends, of which one is cleaned."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(random.Random(seed), now_ms=lambda: NOW_MS)
        self.disk.mount_point("/data")
        self.cleaned_log, self.whole_log = self.open("cleaned"), self.open("whole")
        self.now_ms = NOW_MS
        self.sequences: dict[int, int] = {}
        self.open_now: set[int] = set()
        self.read_to, self.read_ms = 0, NOW_MS
        self.state: dict[bytes | None, bytes | None] = {}
        """Of a reader that goes on from where it was."""

    def open(self, name: str, cleaned: int | None = None) -> Log:
        directory = LogDir(f"/data/{name}", self.disk.mount(name), InlineQueue())
        directory.open(node_id=1, cluster_id="c", new_id=lambda: UUID(int=1), now_ms=NOW_MS)
        tp = TopicPartition("__consumer_offsets", 0)
        return Log.open(directory, tp, UUID(int=7), CONFIG, clean_shutdown=False, now_ms=NOW_MS, cleaned_offset=cleaned)

    def append(self, batch: bytearray) -> None:
        for log in (self.cleaned_log, self.whole_log):
            log.append_as_leader(bytearray(batch), 0, self.now_ms, trusted=True)

    def step(self) -> None:
        self.now_ms += self.rng.randrange(HOUR // 6)
        match self.rng.randrange(10):
            case 0:
                self.clean()
            case 1:
                self.restart()
            case 2 | 3 if self.open_now:
                producer = self.rng.choice(sorted(self.open_now))
                self.open_now.discard(producer)
                marker = EndMarker(self.rng.random() < 0.5, 0)
                self.append(encode_marker(producer, 0, marker, self.now_ms))
            case 4 | 5:
                producer = self.rng.randrange(100, 103)
                self.open_now.add(producer)
                self.put(producer_id=producer, producer_epoch=0, base_sequence=self.next(producer), transactional=True)
            case 6:
                self.put(producer_id=200, producer_epoch=0, base_sequence=self.next(200))
            case _:
                self.put()

    def next(self, producer: int) -> int:
        """The sequence after those of earlier batches; the next batch has as many records."""
        return self.sequences.get(producer, 0)

    def put(self, **options: object) -> None:
        records = [
            Record(number, self.now_ms + number, *self.pair()) for number in range(self.rng.choice((1, 1, 1, 2, 4)))
        ]
        producer = options.get("producer_id")
        if isinstance(producer, int):
            self.sequences[producer] = self.next(producer) + len(records)
        codec = self.rng.choice(list(Codec))
        self.append(encode_batch(records, compression=codec, **options))  # type: ignore[arg-type]

    def pair(self) -> tuple[bytes, bytes | None]:
        key = encode_offset_key(f"g{self.rng.randrange(3)}", TopicPartition("t", self.rng.randrange(3)))
        if self.rng.random() < 0.25:
            return key, None
        return key, encode_offset(OffsetAndMetadata(self.rng.randrange(1000), 0, "", self.now_ms))

    def clean(self) -> None:
        if self.now_ms - self.read_ms >= 2 * HOUR:  # who is away for longer may miss a deletion
            self.read_on()
        mark = self.rng.randrange(self.cleaned_log.view.end_offset + 1)
        settings = CleanerSettings(160 * self.rng.choice((1, 3, 100)), 1.0, self.rng.choice((64, 1 << 16)))
        clean_log(self.cleaned_log, self.now_ms, mark, settings)

    def read_on(self) -> None:
        log = self.cleaned_log
        self.state |= committed(log, self.read_to)
        self.read_to, self.read_ms = max(self.read_to, log.view.last_stable(log.view.end_offset)), self.now_ms
        assert {key: value for key, value in self.state.items() if value is not None} == newest(self.whole_log)

    def restart(self) -> None:
        self.disk.kill("cleaned")
        self.cleaned_log = self.open("cleaned", self.cleaned_log.cleaned_offset)


def newest(log: Log) -> dict[bytes | None, bytes | None]:
    """As a reader of committed records finds it who reads to the last stable offset."""
    return {key: value for key, value in committed(log).items() if value is not None}


def committed(log: Log, start: int = 0) -> dict[bytes | None, bytes | None]:
    """The newest of each key from an offset on, tombstones too."""
    view = log.view
    data = contents(log, start, view.last_stable(view.end_offset))
    aborted = log.aborted_before(view.end_offset)
    found: dict[bytes | None, bytes | None] = {}
    for at, header in iter_headers(data):
        gone = any(
            t.producer_id == header.producer_id and t.first_offset <= header.base_offset <= t.last_offset
            for t in aborted
        )
        if not header.is_control and not (header.is_transactional and gone):
            records = decode_batch(data[at : at + header.size])
            found |= {record.key: record.value for record in records if record.offset >= start}
    return found


def groups(log: Log) -> dict[str, object]:
    replay = Replay()
    data = contents(log)
    assert replay.feed(data) == len(data)
    return {group_id: (group.offsets, group.in_transactions) for group_id, group in replay.groups().items()}


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_cleaned_log_says_what_the_whole_one_says(seed: int) -> None:
    check(seed)


def a_tombstone_goes_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning_filter, "_horizon_of", lambda header: 0)


def a_marker_goes_with_its_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: BatchFilter, data: bytes, at: int, header: BatchHeader) -> None:
        return None

    monkeypatch.setattr(BatchFilter, "_filter_marker", at_once)


def aborted_records_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transactions, "is_aborted", lambda self, header: False)


def headers_of_producers_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchFilter, "_is_last_of_producer", lambda self, header: False)


@pytest.mark.parametrize(
    "plant",
    [a_tombstone_goes_early, a_marker_goes_with_its_transaction, aborted_records_are_kept, headers_of_producers_go],
)
def test_what_is_planted_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(RUNS):
            check(seed)


def check(seed: int) -> None:
    run = Run(seed)
    for _ in range(STEPS):
        run.step()
    cleaned, whole = run.cleaned_log, run.whole_log
    assert newest(cleaned) == newest(whole)
    run.read_on()
    assert {k: v for k, v in groups(cleaned).items() if v != ({}, {})} == {
        k: v for k, v in groups(whole).items() if v != ({}, {})
    }
    assert cleaned.view.end_offset == whole.view.end_offset
    assert cleaned.producers.entries.keys() == whole.producers.entries.keys()
    for producer, entry in whole.producers.entries.items():
        ours = cleaned.producers.entries[producer]
        assert (ours.epoch, ours.txn_first_offset) == (entry.epoch, entry.txn_first_offset)
        assert ours.batches[-1:] == entry.batches[-1:]
