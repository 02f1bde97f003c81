"""Apache Kafka's own tool and broker read what a broker of ours has written: transactions that were committed, aborted
and left open, compacted segments with tombstones, offsets of groups and the states of transactional ids."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from benchmarks.peers import kafka
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from holdfast.testing import Cluster, wait_for
from tests.system.on_disks import QUIET, create
from tests.system.test_kafka_directories import COMPACTED, SETTINGS, TIMEOUT_S, make_internal_topics

ROUNDS, KEYS = 20, 100
PAD = b"." * 1000
BATCH = re.compile(r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*isvalid: (true|false)")


class Written(NamedTuple):
    """A directory that a broker of ours left behind."""

    dirs: list[Path]
    committed: list[tuple[bytes | None, bytes | None]]
    """(key, value) of the records of topic t that a reader of committed ones sees."""

    def folder(self, name: str) -> Path:
        [found] = [folder / name for folder in self.dirs if (folder / name).is_dir()]
        return found


def send(producer: Any, topic: str, pairs: list[tuple[bytes, bytes | None]]) -> None:
    for key, value in pairs:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def transactions(bootstrap: str) -> list[tuple[bytes | None, bytes | None]]:
    """Ended and open ones, with the offsets of a group; what of topic t is committed."""
    committed: list[tuple[bytes | None, bytes | None]] = []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False, **QUIET})
    consumer.subscribe(["t"])
    ended = Producer({"bootstrap.servers": bootstrap, "transactional.id": "ended", **QUIET})
    ended.init_transactions(TIMEOUT_S)
    wait_for(lambda: consumer.poll(0.1) or consumer.assignment(), "an assignment", timeout_s=TIMEOUT_S)
    for number in range(4):
        ended.begin_transaction()
        pairs: list[tuple[bytes, bytes | None]] = [(b"k%d" % key, b"%d" % number) for key in range(3)]
        send(ended, "t", pairs)
        position = [ConfluentPartition("t", 0, number)]
        ended.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), TIMEOUT_S)
        if number % 2:
            ended.abort_transaction(TIMEOUT_S)
        else:
            ended.commit_transaction(TIMEOUT_S)
            committed += pairs
    left = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "open", "transaction.timeout.ms": 600_000, **QUIET}
    )
    left.init_transactions(TIMEOUT_S)
    left.begin_transaction()
    send(left, "t", [(b"k0", b"open")])
    left.send_offsets_to_transaction([ConfluentPartition("t", 0, 9)], consumer.consumer_group_metadata(), TIMEOUT_S)
    consumer.close()
    return committed


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    data: Path = tmp_path_factory.mktemp("ours")
    with Cluster(brokers=1, log_dirs=2, data_dir=data, settings=SETTINGS) as cluster:
        create(cluster, "t", [[1]], retention_ms="-1")
        create(cluster, "c", [[1]], **COMPACTED)
        make_internal_topics(cluster.bootstrap)
        committed = transactions(cluster.bootstrap)
        compacted = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "c", "linger.ms": 5, **QUIET})
        compacted.init_transactions(TIMEOUT_S)
        for number in range(ROUNDS):
            compacted.begin_transaction()
            dead = [(b"dead", None)] if number == 6 else [(b"dead", b"x")] if number < 6 else []
            send(compacted, "c", [*((b"k%d" % key, b"%d" % number + PAD) for key in range(KEYS)), *dead])
            compacted.abort_transaction(TIMEOUT_S) if number % 4 == 1 else compacted.commit_transaction(TIMEOUT_S)
        folder = cluster.folder_of(1, "c", 0)
        wait_for(lambda: cleaned(folder), "c is cleaned", timeout_s=TIMEOUT_S)
        cluster.stop()
        yield Written([cluster.log_dir(1, number) for number in (1, 2)], committed)


def cleaned(folder: Path) -> bool:
    told = folder.parent / "cleaner-offset-checkpoint"
    return told.exists() and "c 0 0" not in (text := told.read_text()) and "c 0 " in text


def dumps(tools: Path, files: list[Path], *arguments: str) -> dict[str, str]:
    """What DumpLogSegments prints for each file, by its name; one process for all."""
    command = ["java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{tools}/*"]
    command += ["org.apache.kafka.tools.DumpLogSegments", *arguments, "--files", ",".join(map(str, files))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Non-consecutive" not in done.stderr or "/c-0/" in done.stderr, done.stderr[-2000:]
    parts = re.split(r"^Dumping (\S+)\n", done.stdout, flags=re.MULTILINE)[1:]
    return {"/".join(path.split("/")[-2:]): text for path, text in zip(parts[::2], parts[1::2], strict=True)}


def batches(text: str) -> list[tuple[int, int, int]]:
    """(base offset, last offset, records), all of them valid."""
    found = [match.groups() for match in BATCH.finditer(text)]
    assert found
    assert all(valid == "true" for *_, valid in found)
    return [(int(base), int(last), int(count)) for base, last, count, _ in found]


@pytest.fixture(scope="module")
def tools() -> Path:
    return kafka.fetch(artifact="kafka-tools")


def test_kafkas_tool_reads_our_segments_snapshots_and_indexes(written: Written, tools: Path) -> None:
    folders = [written.folder(name) for name in ("t-0", "c-0")]
    kinds = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
    files = [path for folder in folders for path in sorted(folder.iterdir()) if path.suffix in kinds]
    found = dumps(tools, files, "--deep-iteration", "--print-data-log")
    assert set(found) == {f"{path.parent.name}/{path.name}" for path in files}

    log = found[f"t-0/{0:020d}.log"]
    assert [offset for base, last, _ in batches(log) for offset in range(base, last + 1)] == list(range(17))
    assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: \d+", log) == ["COMMIT", "ABORT"] * 2
    aborted = found[f"t-0/{0:020d}.txnindex"]
    pattern = r"version: 0 producerId: \d+ firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"
    assert re.findall(pattern, aborted) == [("4", "7", "8"), ("12", "15", "16")]
    [newest] = [text for name, text in found.items() if name.startswith("t-0/") and name.endswith(".snapshot")]
    states = re.findall(
        r"currentTxnFirstOffset: (\S+) lastTimestamp: \d+ firstSequence: (\d+) lastSequence: (\d+)", newest
    )
    assert sorted(states) == [("OptionalLong.empty", "9", "11"), ("OptionalLong[16]", "0", "0")]

    cleaned_logs = [text for name, text in sorted(found.items()) if name.startswith("c-0/") and name.endswith(".log")]
    whole = "\n".join(cleaned_logs)
    ends = [last for _, last, _ in batches(whole)]
    assert ends == sorted(ends)
    assert ends[-1] > ROUNDS * KEYS
    kept = sum(count for *_, count in batches(whole))
    assert KEYS < kept < ROUNDS * KEYS
    tombstones = [line for line in whole.splitlines() if "key: dead" in line]
    assert len(tombstones) == 1
    assert "valueSize: -1" in tombstones[0]
    assert "deleteHorizonMs: OptionalLong[" in whole


def test_kafkas_tool_decodes_our_groups_and_transactional_ids(written: Written, tools: Path) -> None:
    groups = dumps(tools, [written.folder("__consumer_offsets-0") / f"{0:020d}.log"], "--offsets-decoder")
    [text] = groups.values()
    batches(text)
    offset = r'"group":"g","topic":"t","partition":0}} payload: {"version":"4","data":{"offset":(\d+),'
    assert re.findall(offset, text) == ["0", "1", "2", "3", "9"]
    assert '"data":{"group":"g"}} payload: {"version":"3","data":{"protocolType":"consumer","generation":1' in text

    states = dumps(tools, [written.folder("__transaction_state-0") / f"{0:020d}.log"], "--transaction-log-decoder")
    [text] = states.values()
    batches(text)
    numbers = re.findall(r'"transactionalId":"ended"}} payload: .*"transactionStatus":(\d)', text)
    assert "".join(numbers) == "0" + 2 * ("1124" + "1135")  # ongoing, its partitions; prepare, complete
    last = re.findall(r'"transactionalId":"open"}} payload: (.*)', text)[-1]
    assert '"transactionTimeoutMs":600000,"transactionStatus":1,' in last
    assert '{"topic":"t","partitionIds":[0]}' in last
    assert '{"topic":"__consumer_offsets","partitionIds":[0]}' in last
