"""A live broker and frames that were right once: bits flipped, cut, stretched, with impossible lengths and counts.

Nothing of it may end the broker, stop it serving others, fill its memory, or reach a line of code that did not expect
it (a traceback in its log).
"""

from __future__ import annotations

import json
import random
import select
import socket
from pathlib import Path

import confluent_kafka
import psutil
import pytest

from holdfast.testing import Cluster

pytestmark = pytest.mark.system

GOLDEN = Path(__file__).parents[1] / "golden/wire/4.3.0"
FRAMES = 300
SEED = 20
MAX_GROWTH = 48 << 20
EXTREMES = [bytes.fromhex(h) for h in ("7fffffff", "ffffffff", "40000000", "80000000", "00ffffff", "fffffffe")]
VARINTS = [bytes.fromhex(h) for h in ("ffffffff0f", "ffffffff07", "8080808010", "ffffffffffffffffff01", "00")]


def recorded_requests() -> list[bytes]:
    """Requests that only ask, or write records: what they turn into by mutation changes no topic."""
    files = ("api_versions", "metadata", "produce", "fetch", "list_offsets", "groups", "log_dirs", "delete_records")
    cases = [case for name in files for case in json.loads((GOLDEN / f"{name}.json").read_text())]
    return [bytes.fromhex(case["request_hex"]) for case in cases if "request_hex" in case]


def mutated(frame: bytes, rng: random.Random) -> bytes:
    """One to three changes; most leave the header as it is, so that they get to the code behind it."""
    data = bytearray(frame)
    for _ in range(rng.randint(1, 3)):
        low = 0 if rng.random() < 0.15 else min(20, len(data) - 1)
        at = rng.randrange(low, len(data))
        match rng.randrange(7):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.randrange(256)
            case 2:
                data[at : at + 4] = rng.choice(EXTREMES)
            case 3:
                data[at : at + 1] = rng.choice(VARINTS)
            case 4:
                del data[max(at, 1) :]
            case 5:
                data[at:at] = rng.randbytes(rng.randint(1, 40))
            case 6:
                data[2:4] = rng.randrange(14).to_bytes(2, "big")
    return bytes(data)


def send(address: tuple[str, int], frames: list[bytes]) -> None:
    """Over one connection; answers are read as far as they come at once, then it is dropped."""
    with socket.create_connection(address, timeout=5) as connection:
        try:
            for frame in frames:
                connection.sendall(len(frame).to_bytes(4, "big") + frame)
            while select.select([connection], [], [], 0.01)[0] and connection.recv(1 << 16):
                pass
        except (ConnectionResetError, BrokenPipeError):
            return


def test_mutated_frames_neither_end_a_broker_nor_fill_its_memory(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    seeds = recorded_requests()
    with Cluster(brokers=1, data_dir=tmp_path) as cluster:
        write_and_read(cluster, "before")
        [pid] = cluster.pids().values()
        broker = psutil.Process(pid)
        before = broker.memory_info().rss
        sent = 0
        while sent < FRAMES:
            frames = [mutated(rng.choice(seeds), rng) for _ in range(rng.randint(1, 4))]
            send(cluster.addresses()[0], frames)
            sent += len(frames)
        for _ in range(20):
            send(cluster.addresses()[0], [rng.randbytes(rng.randint(1, 500))])
        assert cluster.live() == {1: pid}
        write_and_read(cluster, "after")
        assert broker.memory_info().rss - before < MAX_GROWTH
        log = (tmp_path / "broker-1.log").read_text()
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]


def test_announced_but_never_sent_frames_hold_little_memory(tmp_path: Path) -> None:
    """Twenty connections that each announce 90 MiB and send a few bytes."""
    with Cluster(brokers=1, data_dir=tmp_path) as cluster:
        write_and_read(cluster, "before")
        [pid] = cluster.pids().values()
        broker = psutil.Process(pid)
        before = broker.memory_info().rss
        liars = [socket.create_connection(cluster.addresses()[0]) for _ in range(20)]
        for liar in liars:
            liar.sendall((90 << 20).to_bytes(4, "big") + b"\0\0\0\t" + b"\0" * 100)
        write_and_read(cluster, "between")
        assert broker.memory_info().rss - before < MAX_GROWTH
        for liar in liars:
            liar.close()
        write_and_read(cluster, "after")


def write_and_read(cluster: Cluster, topic: str) -> None:
    """A record goes in and comes out."""
    errors = []
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None]
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    record = consumer.poll(20)
    consumer.close()
    assert record is not None and record.value() == b"value"
