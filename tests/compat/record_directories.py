"""Records log directories that Apache Kafka 4.3.0 leaves, into tests/golden/disk/4.3.0-open: a program.

    python -m tests.compat.record_directories          needs mvn and java

One broker of that release is written to by a stock client: a compacted topic of small segments with a transaction that
was committed, one that was aborted and one that stays open, offsets of groups within them, a tombstone. Its batches and
``.txnindex`` files are copied, Kafka's cleaner runs over it, and the broker is stopped. Each log becomes a file of
JSON, of the form of the recordings beside it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers import kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

OUT = Path(__file__).parents[1] / "golden/disk/4.3.0-open"
PORT = 23191
SETTINGS = [
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "offsets.topic.compression.codec=0",
    "log.cleaner.backoff.ms=200",
    "log.cleaner.min.cleanable.ratio=0.01",
    "log.segment.delete.delay.ms=1000",
    "group.initial.rebalance.delay.ms=0",
]
TOPIC, GROUP = "open", "g"
SEGMENT_MS = 100
LOGS = {
    f"{TOPIC}-0": [],
    "__transaction_state-0": ["--transaction-log-decoder"],
    "__consumer_offsets-0": ["--offsets-decoder"],
}


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("it did not come about within 60 s")
        time.sleep(0.1)


def put(producer: Any, key: bytes, value: bytes | None) -> None:
    """A record in a segment of its own, nearly: the next one comes when it is old enough."""
    producer.produce(TOPIC, value, key, partition=0)
    assert producer.flush(30) == 0
    time.sleep(2 * SEGMENT_MS / 1000)


def write(bootstrap: str) -> None:
    """What the recording is about."""
    common = {"bootstrap.servers": bootstrap, "linger.ms": 0}
    plain = Producer({**common, "enable.idempotence": False})
    first = Producer({**common, "transactional.id": "ended", "transaction.timeout.ms": 60_000})
    last = Producer({**common, "transactional.id": "unfinished", "transaction.timeout.ms": 60_000})
    consumer = Consumer({**common, "group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([TOPIC])
    for key in (b"k1", b"k2", b"k3"):
        put(plain, key, b"v1")
    until(lambda: consumer.poll(0.5) is not None)
    position = [TopicPartition(TOPIC, 0, 1)]
    first.init_transactions(30)
    first.begin_transaction()
    put(first, b"k1", b"v2")
    first.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 30)
    first.commit_transaction(30)
    first.begin_transaction()
    put(first, b"k2", b"aborted")
    first.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 2)], consumer.consumer_group_metadata(), 30)
    first.abort_transaction(30)
    put(plain, b"k3", None)
    put(plain, b"k4", b"v1")
    last.init_transactions(30)
    last.begin_transaction()
    put(last, b"k1", b"v3")
    put(last, b"k5", b"v1")
    last.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 3)], consumer.consumer_group_metadata(), 30)
    put(plain, b"k6", b"v1")
    consumer.close()


def described(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    is_text = path.name in ("partition.metadata", "leader-epoch-checkpoint")
    return {"size": len(data), **({"text": data.decode()} if is_text else {"hex": data.hex()})}


def recorded(folder: Path, jars: Path, decoder: list[str]) -> dict[str, Any]:
    """The files of one log, and what DumpLogSegments says of them."""
    files: dict[str, Any] = {}
    dumps: dict[str, Any] = {}
    for path in sorted(folder.iterdir()):
        files[f"{folder.name}/{path.name}"] = described(path)
        if path.suffix in (".log", ".snapshot", ".txnindex"):
            arguments = ["--print-data-log", "--deep-iteration", *decoder] if path.suffix == ".log" else []
            command = ["java", "-cp", f"{jars}/*", "org.apache.kafka.tools.DumpLogSegments", *arguments]
            done = subprocess.run(
                [*command, "--files", str(path)], capture_output=True, text=True, check=True, cwd=folder.parent
            )
            dumps[path.name] = {"arguments": arguments, "stdout": done.stdout.replace(f"{folder.parent}/", "")}
    return {"dir": folder.name, "files_after_clean_shutdown": files, "dump": dumps}


def main() -> None:
    jars, tools = kafka.fetch(), kafka.fetch(artifact="kafka-tools")
    scratch = Path(tempfile.mkdtemp())
    peer = kafka.Peer(jars=jars, data_dir=scratch, brokers=1, log_dirs=1, port=PORT, settings=SETTINGS)
    folder = scratch / "broker-1/log-dir-1"
    try:
        peer.format()
        peer.start_missing()
        peer.wait_ready()
        config = {"segment.ms": str(SEGMENT_MS), "min.cleanable.dirty.ratio": "0.01"}
        admin = AdminClient({"bootstrap.servers": peer.bootstrap})
        for made in admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)]).values():
            made.result(30)
        write(peer.bootstrap)
        before = {
            f"{TOPIC}-0/{path.name}": described(path)
            for path in sorted((folder / f"{TOPIC}-0").iterdir())
            if path.suffix in (".log", ".txnindex") and path.stat().st_size
        }
        compact = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        for changed in admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[compact])]
        ).values():
            changed.result(30)
        checkpoint = folder / "cleaner-offset-checkpoint"
        until(lambda: checkpoint.exists() and f"{TOPIC} 0" in checkpoint.read_text())
        time.sleep(3)  # the cleaner goes on to the last stable offset, replaced files are removed
    finally:
        peer.stop()
    OUT.mkdir(parents=True, exist_ok=True)
    for name, decoder in LOGS.items():
        found = recorded(folder / name, tools, decoder)
        if name == f"{TOPIC}-0":
            found["files_before_cleaning"] = before
        text = json.dumps(found, indent=1)
        (OUT / f"{name}.json").write_text(text + "\n")
    print((folder / "cleaner-offset-checkpoint").read_text())
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
