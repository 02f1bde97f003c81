"""The same appends leave the same files as Apache Kafka 4.3.0 left (golden/disk)."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.model.config import LogConfig
from holdfast.model.errors import OutOfOrderSequenceError
from holdfast.model.types import TopicPartition
from holdfast.records.batch import iter_headers, stamp
from holdfast.records.markers import decode_marker, encode_marker
from holdfast.records.record import decode_batches
from holdfast.storage import checkpoints, partition_metadata
from holdfast.storage.dir_scan import NameKind, classify
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir, encode_meta_properties, read_meta_properties

GOLDEN = Path(__file__).parents[2] / "golden" / "disk" / "4.3.0"
CONFIGS = {
    "segments-0": LogConfig(segment_ms=600_000, index_interval_bytes=100),
    "bytime-0": LogConfig(segment_ms=600_000, retention_ms=3_600_000),
}


def recording(name: str) -> dict:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def files_of(found: dict) -> dict[str, bytes]:
    """File name -> bytes, of a recorded directory."""
    return {
        name.split("/")[-1]: bytes.fromhex(f["hex"]) if "hex" in f else f["text"].encode() for name, f in found.items()
    }


def written_files(log: Log) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in Path(log.path).iterdir()}


def open_recorded(log_dir: LogDir, name: str, text: dict[str, bytes], config: LogConfig | None = None) -> Log:
    topic, _, partition = name.rpartition("-")
    topic_id = partition_metadata.decode(text["partition.metadata"])
    tp = TopicPartition(topic, int(partition))
    config = config or CONFIGS.get(name, LogConfig())
    log = Log.open(log_dir, tp, topic_id, config, clean_shutdown=True, now_ms=1_795_226_000_000)
    log.assign_epoch(0)
    return log


def replay(log: Log, found: dict) -> None:
    for append in found["appended"]:
        answer = append["answer"]
        batch = bytearray.fromhex(append["records_hex"])
        now_ms = next(h.max_timestamp for _, h in iter_headers(batch))
        if answer["error_code"] == 45:
            with pytest.raises(OutOfOrderSequenceError):
                log.append_as_leader(batch, 0, now_ms)
            continue
        info = log.append_as_leader(batch, 0, now_ms)
        assert info.base_offset == answer["base_offset"]
        assert info.log_start_offset == answer["log_start_offset"]
        assert info.log_append_time_ms == answer["log_append_time"]


@pytest.mark.parametrize("name", ["shapes-0", "segments-0", "bytime-0", "idem-0", "trimmed-0", "defaults-0"])
def test_appends_leave_kafkas_files_after_a_clean_stop(log_dir, name):
    found = recording(name)
    expected = files_of(found["files_after_clean_shutdown"])
    log = open_recorded(log_dir, name, expected)
    if found["appended"]:
        replay(log, found)
    if name == "trimmed-0":
        log.delete_records_before(3)
    log.close(clean=True)
    assert written_files(log) == expected


def test_plain_segment_while_running(log_dir):
    found = recording("plain-0")
    expected = files_of(found["files_while_running"])
    log = open_recorded(log_dir, "plain-0", expected)
    replay(log, found)
    written = written_files(log)
    assert {n: d for n, d in written.items() if "index" not in n} == {
        n: d for n, d in expected.items() if "index" not in n
    }


def test_index_files_of_the_active_segment_are_preallocated(log_dir):
    found = recording("segments-0")
    expected = files_of(found["files_after_clean_shutdown"])
    log = open_recorded(log_dir, "segments-0", expected)
    replay(log, found)
    log.write_indexes()
    for name, f in found["files_while_running"].items():
        if f == "same size" or not f.get("zero_padded"):
            continue
        path = Path(log.path) / name.split("/")[-1]
        assert path.stat().st_size == f["size"]
        assert path.read_bytes().rstrip(b"\0") == bytes.fromhex(f["hex"]).rstrip(b"\0")
        assert path.stat().st_blocks * 512 < 64 << 10  # sparse


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_what_librdkafka_sent_is_stored_as_it_is(log_dir, codec):
    name = f"by-librdkafka-{codec}-0"
    found = recording(name)
    expected = files_of(found["files_after_clean_shutdown"])
    log = open_recorded(log_dir, name, expected)
    segment = expected["00000000000000000000.log"]
    for position, header in iter_headers(segment):
        sent = bytearray(segment[position : position + header.size])
        stamp(sent, 0, 0, -1)
        log.append_as_leader(sent, 0, header.max_timestamp)
    log.close(clean=True)
    assert written_files(log) == expected


@pytest.mark.parametrize("name", ["shapes-0", "segments-0", "bytime-0", "idem-0", "by-librdkafka-lz4-0", "txn-0"])
@pytest.mark.parametrize("clean", [True, False])
def test_kafkas_files_are_opened_and_left_as_they_are(log_dir, name, clean):
    expected = files_of(recording(name)["files_after_clean_shutdown"])
    path = Path(log_dir.path) / name
    path.mkdir()
    for file, data in expected.items():
        (path / file).write_bytes(data)
    topic, _, partition = name.rpartition("-")
    tp = TopicPartition(topic, int(partition))
    log = Log.open(log_dir, tp, None, CONFIGS.get(name, LogConfig()), clean_shutdown=clean, now_ms=0)
    assert log.topic_id == partition_metadata.decode(expected["partition.metadata"])
    segments = sorted(n for n in expected if n.endswith(".log"))
    assert log.view.size == sum(len(expected[n]) for n in segments)
    last = expected[segments[-1]]
    assert log.view.end_offset == [h for _, h in iter_headers(last)][-1].next_offset
    log.close(clean=True)
    assert written_files(log) == expected


def test_transactions_leave_kafkas_files(log_dir):
    """What clients sent, and the markers that Kafka's broker wrote between: segments, snapshots and .txnindex."""
    found = recording("txn-0")
    expected = files_of(found["files_after_clean_shutdown"])
    log = open_recorded(log_dir, "txn-0", expected)
    sent = {append["answer"]["base_offset"]: append["records_hex"] for append in found["appended"]}
    for name in sorted(n for n in expected if n.endswith(".log")):
        for position, header in iter_headers(expected[name]):
            batch = bytearray.fromhex(sent.get(header.base_offset, ""))
            if header.is_control:
                marker = decode_marker(expected[name][position:], header)
                assert marker is not None
                batch = encode_marker(header.producer_id, header.producer_epoch, marker, header.max_timestamp)
            assert log.append_as_leader(batch, 0, header.max_timestamp, trusted=header.is_control).base_offset == (
                header.base_offset
            )
    assert log.view.last_stable(log.view.end_offset) == 10
    log.close(clean=True)
    assert written_files(log) == expected


def test_meta_properties_and_clean_shutdown(tmp_path, files):
    recorded = recording("log_dir_files_after_clean_shutdown")
    text = recorded["d0/meta.properties"]["text"]
    (tmp_path / "meta.properties").write_text(text)
    found = read_meta_properties(files, str(tmp_path / "meta.properties"))
    assert found["cluster.id"] == "GoldenClusterAAAAAAAAA"
    directory_id = partition_metadata.decode_uuid(found["directory.id"])
    assert encode_meta_properties(1, directory_id, found["cluster.id"], 1_795_229_096_000).decode() == text
    assert checkpoints.encode_clean_shutdown(11).decode() == recorded["d0/.kafka_cleanshutdown"]["text"]


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"]
)
@pytest.mark.parametrize("directory", ["d0", "d1"])
def test_checkpoints_are_kafkas_text(name, directory):
    for state in ("after_clean_shutdown", "while_running"):
        text = recording(f"log_dir_files_{state}")[f"{directory}/{name}"]["text"].encode()
        offsets = checkpoints.decode_offsets(text)
        assert checkpoints.encode_offsets(offsets.items()) == text or not text


def test_a_dir_that_kafka_left_is_taken_over(tmp_path, files):
    for name, f in recording("log_dir_files_after_clean_shutdown").items():
        if name.startswith("d0/") and "text" in f:
            (tmp_path / name[3:]).write_text(f["text"])
    directory = LogDir(str(tmp_path), files, InlineQueue())
    directory.open(node_id=1, cluster_id="GoldenClusterAAAAAAAAA", new_id=lambda: UUID(int=9), now_ms=0)
    assert partition_metadata.encode_uuid(directory.directory_id) == "tnD91r3I3aWCxSox1ermYg"
    directory.close()


def test_every_recorded_name_is_known():
    kinds = {
        name: classify(name).kind
        for step in recording("directory_names").values()
        if isinstance(step, dict)
        for names in step.values()
        if isinstance(names, list)
        for name in names
        if " " not in name
    }
    assert {n for n, k in kinds.items() if k is NameKind.UNKNOWN} == {"not-a-partition-dir"}
    assert sum(k is NameKind.DELETED for k in kinds.values()) == 2
    assert sum(k is NameKind.STRAY for k in kinds.values()) == 2
    assert sum(k is NameKind.FUTURE for k in kinds.values()) == 1


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd", "uncompressed"])
def test_what_the_broker_compresses_has_the_recorded_contents(log_dir, codec):
    """The bytes may differ (another compressor), the header and the records may not."""
    name = f"by-broker-{codec}-0"
    found = recording(name)
    expected = files_of(found["files_after_clean_shutdown"])
    log = open_recorded(log_dir, name, expected, LogConfig(compression_type=codec))
    replay(log, found)
    log.close(clean=True)
    written = written_files(log)
    ours, theirs = (files["00000000000000000000.log"] for files in (written, expected))
    ours_headers, theirs_headers = [h for _, h in iter_headers(ours)], [h for _, h in iter_headers(theirs)]
    same = {"crc": 0, "batch_length": 0}
    assert [h._replace(**same) for h in ours_headers] == [h._replace(**same) for h in theirs_headers]
    assert list(decode_batches(ours)) == list(decode_batches(theirs))
    assert {n: d for n, d in written.items() if not n.endswith(".log")} == {
        n: d for n, d in expected.items() if not n.endswith(".log")
    }
