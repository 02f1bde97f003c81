"""Logs that Apache Kafka left, compacted and with open transactions: opened, carried on and cleaned by ours."""

import json
from pathlib import Path

import pytest

from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.batch import DELETE_HORIZON_BIT, iter_headers
from holdfast.records.markers import EndMarker, encode_marker
from holdfast.records.record import Record, encode_batch
from holdfast.storage import partition_metadata
from holdfast.storage.log import Log
from tests.unit.storage.cleaning import batches, clean_log, pairs
from tests.unit.storage.test_golden_disk import files_of, written_files

GOLDEN = Path(__file__).parents[2] / "golden/disk"
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=None)
DAY = 86_400_000
UNFINISHED = 1
"""Producer id of the transaction that is open."""
LOGS = [
    (version, name)
    for version, names in {
        "4.3.0-open": ("open-0", "__consumer_offsets-0", "__transaction_state-0"),
        "4.3.0": ("compacted-0", "txn-0", "idem-0", "__consumer_offsets-0", "__transaction_state-0"),
        "3.9.1": ("compacted-0", "txn-0", "__consumer_offsets-0", "__transaction_state-0"),
    }.items()
    for name in names
]


def recording(version: str, name: str) -> dict:
    return json.loads((GOLDEN / version / f"{name}.json").read_text())


def left(version: str, name: str) -> dict[str, bytes]:
    found = files_of(recording(version, name)["files_after_clean_shutdown"])
    return {file: data for file, data in found.items() if not file.endswith(".deleted")}


def open_left(log_dir, name, files: dict[str, bytes], *, clean=True, **options) -> Log:
    path = Path(log_dir.path) / name
    path.mkdir()
    for file, data in files.items():
        (path / file).write_bytes(data)
    topic, _, partition = name.rpartition("-")
    log = Log.open(
        log_dir, TopicPartition(topic, int(partition)), None, COMPACT, clean_shutdown=clean, now_ms=0, **options
    )
    log.assign_epoch(0)
    return log


@pytest.mark.parametrize(("version", "name"), LOGS)
@pytest.mark.parametrize("clean", [True, False])
def test_they_are_opened_and_left_as_they_are(log_dir, version, name, clean):
    files = left(version, name)
    log = open_left(log_dir, name, files, clean=clean)
    assert log.topic_id == partition_metadata.decode(files["partition.metadata"])
    log.close(clean=True)
    assert written_files(log) == files


@pytest.mark.parametrize("clean", [True, False])
def test_what_an_open_transaction_holds_back(log_dir, read_all, clean):
    log = open_left(log_dir, "open-0", left("4.3.0-open", "open-0"), clean=clean)
    assert (log.view.start_offset, log.view.end_offset, log.view.last_stable(12)) == (0, 12, 9)
    assert [(t.producer_id, t.first_offset, t.last_offset) for t in log.aborted_before(12)] == [(0, 5, 7)]
    held = log.producers.entries[UNFINISHED]
    assert (held.epoch, held.batches[-1].last_offset, held.batches[-1].last_sequence) == (0, 10, 1)
    assert pairs(read_all(log)) == [
        (1, b"k2", b"v1"), (3, b"k1", b"v2"), (6, b"k3", None), (8, b"k4", b"v1"), (9, b"k1", b"v3"),
        (10, b"k5", b"v1"), (11, b"k6", b"v1"),
    ]  # fmt: skip
    log.close(clean=True)


def test_the_open_transaction_goes_on_and_is_committed_or_aborted(log_dir):
    log = open_left(log_dir, "open-0", left("4.3.0-open", "open-0"))
    more = encode_batch(
        [Record(0, 1_795_600_000_000, b"k7", b"v1")], producer_id=UNFINISHED, producer_epoch=0, base_sequence=2,
        transactional=True,
    )  # fmt: skip
    assert log.append_as_leader(more, 0, 1_795_600_000_000).base_offset == 12
    assert log.view.last_stable(13) == 9
    log.append_as_leader(encode_marker(UNFINISHED, 0, EndMarker(False, 1), 1_795_600_000_000), 0, 0, trusted=True)
    assert log.view.last_stable(14) == 14
    assert [t.first_offset for t in log.aborted_before(14)] == [5, 9]
    log.close(clean=True)


def test_our_cleaner_makes_of_it_what_kafkas_made(log_dir):
    """Kafka's batches before and after its cleaner: a transaction committed, one aborted, a tombstone, one open."""
    found = recording("4.3.0-open", "open-0")
    expected = left("4.3.0-open", "open-0")
    log = open_left(log_dir, "open-0", files_of(found["files_before_cleaning"]), clean=False)
    horizon = next(
        h.base_timestamp
        for _, h in iter_headers(expected["00000000000000000000.log"])
        if h.attributes & DELETE_HORIZON_BIT
    )
    assert clean_log(log, horizon - DAY).end == 9
    written = written_files(log)
    kinds = (".log", ".txnindex", "00.index", "00.timeindex")
    assert {n: d for n, d in written.items() if n.endswith(kinds) and d} == {
        n: d for n, d in expected.items() if n.endswith(kinds) and d
    }
    log.close(clean=True)


def test_what_kafka_cleaned_is_cleaned_on_once_the_transaction_ends(log_dir, read_all):
    log = open_left(log_dir, "open-0", left("4.3.0-open", "open-0"), cleaned_offset=9)
    now_ms = 1_795_600_000_000
    log.append_as_leader(encode_marker(UNFINISHED, 0, EndMarker(False, 1), now_ms), 0, now_ms, trusted=True)
    log.append_as_leader(encode_batch([Record(0, now_ms, b"k4", b"v2")]), 0, now_ms)
    log._roll(log.view.end_offset, now_ms)
    log._publish(log.view.start_offset, log.view.end_offset)
    assert clean_log(log, now_ms).end == 14
    assert pairs(read_all(log)) == [
        (1, b"k2", b"v1"), (3, b"k1", b"v2"), (6, b"k3", None), (11, b"k6", b"v1"), (13, b"k4", b"v2"),
    ]  # fmt: skip
    assert (5, 5, 0) in batches(read_all(log))  # the last sequence of a producer
    assert [t.producer_id for t in log.aborted_before(14)] == [0, 1]
    assert log.view.last_stable(14) == 14
    log.close(clean=True)
