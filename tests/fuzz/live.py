"""A real broker, and damaged frames over real sockets: ``make fuzz LIVE=1``.

Three threads besides the broker: one sends, over ever new connections, requests with valid headers and mutated bodies,
records whose CRC is right, wrong sizes, halves of frames, noise; one holds connections open that say much and send
little; one asks for ApiVersions all the time and takes the broker's memory. The broker must go on answering, stay
below its limit, write no traceback, and work as before at the end.
"""

import random
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from holdfast.testing import Cluster
from tests.fuzz.hunt import joined
from tests.fuzz.mutate import mutants
from tests.fuzz.readers import READERS

MAX_GROWTH: Final = 128 << 20
"""Memory that the broker may take beyond what it had, however much is sent to it."""
MAX_ANSWER_S: Final = 10.0
"""The longest that the other connection may wait: the machine is busy too."""
SLOW_CONNECTIONS: Final = 30
CHUNK: Final = 4096
_LEFT_OUT: Final = frozenset((4, 5, 6, 19, 37, 56, 62, 63))
"""What would make the broker do what it is asked for: topics without number, orders of a controller."""
_SIZES: Final = (-1, 0, 1, 7, 0x7FFFFFFF, -0x80000000, 104_857_600, 104_857_601, 0x16030100)
_API_VERSIONS: Final = bytes.fromhex("0012000000000001000166")


@dataclass(slots=True)
class Seen:
    """What came out so far."""

    frames: int = 0
    connections: int = 0
    answers: int = 0
    asked: int = 0
    slowest_s: float = 0.0
    rss: int = 0
    rss_before: int = 0
    problems: list[str] = field(default_factory=list)


class Mutants:
    """Frames of one reader's corpus, without end."""

    def __init__(self, name: str, seed: int, max_size: int) -> None:
        reader = READERS[name]
        self._reader, self._max_size = reader, max_size
        self.corpus = [item for item in reader.corpus() if len(item) <= max_size]
        self._source, self._ends = joined(self.corpus)
        self._tokens, self._token_ends = joined(list(reader.tokens))
        self._state = np.array([seed * 2 + 1], np.uint64)
        self._out = np.zeros(CHUNK * max_size, np.uint8)
        self._offsets = np.zeros(CHUNK + 1, np.int64)
        self._at = CHUNK

    def next(self) -> bytes:
        if self._at == CHUNK:
            mutants(
                self._state, self._source, self._ends, self._tokens, self._token_ends, self._out, self._offsets,
                self._max_size, self._reader.prefix, int(self._reader.fixup),
            )  # fmt: skip
            self._at = 0
        start, end = self._offsets[self._at], self._offsets[self._at + 1]
        self._at += 1
        return bytes(self._out[start:end])


class Attack:
    """Makes and sends."""

    def __init__(self, address: tuple[str, int], seed: int, seen: Seen) -> None:
        from holdfast.protocol.apis import INTERNAL, SPOKEN
        from tests.fuzz.samples import spoken

        self._address, self._seen = address, seen
        self._rng = random.Random(seed)
        self._bodies = Mutants("requests", seed, 400)
        self._batches = Mutants("records", seed + 1, 700)
        self._table = spoken(SPOKEN, INTERNAL)

    def once(self) -> None:
        """One connection."""
        rng, seen = self._rng, self._seen
        with suppress(OSError), socket.create_connection(self._address, timeout=5) as connection:
            seen.connections += 1
            if rng.random() < 0.3:  # a reset instead of a goodbye
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            frames = [self._frame() for _ in range(rng.randint(1, 8))]
            seen.frames += len(frames)
            data = b"".join(frames)
            if rng.random() < 0.1:
                data = data[: rng.randrange(len(data) + 1)]
            if rng.random() < 0.1:
                for at in range(0, min(len(data), 400), 7):
                    connection.sendall(data[at : at + 7])
            else:
                connection.sendall(data)
            if rng.random() < 0.5:
                connection.settimeout(0.01)
                while answer := connection.recv(1 << 16):
                    seen.answers += len(answer)

    def _frame(self) -> bytes:
        from holdfast.protocol.framing import encode_request_raw

        rng = self._rng
        kind = rng.random()
        if kind < 0.04:
            return rng.choice(_SIZES).to_bytes(4, "big", signed=True) + rng.randbytes(rng.randint(0, 200))
        if kind < 0.06:
            return rng.randbytes(rng.randint(1, 300))
        if kind < 0.25:
            return encode_request_raw(0, 9, rng.randrange(1 << 31), "fuzz", self._produce())
        # As it is every third time, for what comes after decoding.
        data = rng.choice(self._bodies.corpus) if rng.random() < 0.33 else self._bodies.next()
        key, version = self._table[data[0] % len(self._table)] if data else (18, 0)
        if key in _LEFT_OUT:
            key, version = 3, rng.randrange(14)
        frame = encode_request_raw(key, version, rng.randrange(1 << 31), rng.choice(("fuzz", "", None)), data[1:])
        if rng.random() < 0.05:
            at = 4 + rng.randrange(len(frame) - 4)
            frame = frame[:at] + rng.randbytes(1) + frame[at + 1 :]
        return frame

    def _produce(self) -> bytes:
        """Produce v9 to t1 with a mutated batch whose CRC is right."""
        from holdfast.protocol.wire import uvarint

        batch = self._batches.next()
        head = b"\0" + struct.pack(">hi", self._rng.choice((1, -1, 0)), 1000)
        partition = self._rng.randrange(3).to_bytes(4, "big") + uvarint(len(batch) + 1) + batch + b"\0"
        return head + b"\2\3t1\2" + partition + b"\0\0"


def _hold(address: tuple[str, int], stop: threading.Event, seed: int) -> None:
    """Connections that announce large frames and send a byte now and then."""
    rng = random.Random(seed)
    held: list[socket.socket] = []
    while not stop.wait(0.05):
        if len(held) < SLOW_CONNECTIONS:
            with suppress(OSError):
                one = socket.create_connection(address, timeout=5)
                one.sendall(rng.choice((100, 5000, 70_000, 90 << 20)).to_bytes(4, "big") + b"\0\0\0\x09\0\0\0\1\0\1f")
                held.append(one)
        for one in list(held):
            try:
                one.sendall(rng.randbytes(rng.choice((1, 1, 1, 2000))))
                if rng.random() < 0.005:
                    raise OSError("enough of this one")
            except OSError:
                one.close()
                held.remove(one)
    for one in held:
        one.close()


def _watch(address: tuple[str, int], pid: int, stop: threading.Event, seen: Seen) -> None:
    """The well-behaved connection."""
    import psutil

    broker = psutil.Process(pid)
    connection = socket.create_connection(address, timeout=10)
    while not stop.wait(0.02):
        began = time.monotonic()
        try:
            connection.sendall(len(_API_VERSIONS).to_bytes(4, "big") + _API_VERSIONS)
            size = int.from_bytes(_exactly(connection, 4), "big")
            _exactly(connection, size)
            seen.rss = max(seen.rss, broker.memory_info().rss)
        except (OSError, psutil.Error) as e:
            seen.problems.append(f"no answer to ApiVersions: {e}")
            return
        seen.asked += 1
        seen.slowest_s = max(seen.slowest_s, time.monotonic() - began)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the broker closed the connection")
        data += piece
    return data


def run_live(*, seed: int, seconds: float, data_dir: Path | None = None) -> int:
    """Attack for so long; the number of problems, which are printed."""
    seen = attack(seed=seed, seconds=seconds, data_dir=data_dir)
    print(
        f"seed {seed}: {seen.frames:,} frames, {seen.connections:,} connections, {seen.answers:,} bytes of answers; "
        f"ApiVersions asked {seen.asked:,} times, slowest {1000 * seen.slowest_s:.0f} ms; "
        f"memory {seen.rss_before >> 20} MiB before, {seen.rss >> 20} MiB at most"
    )
    for problem in seen.problems:
        print(f"PROBLEM: {problem}", file=sys.stderr)
    return len(seen.problems)


def attack(*, seed: int, seconds: float, data_dir: Path | None = None) -> Seen:
    """A broker under attack for so long, and what was seen."""
    import psutil

    seen = Seen()
    settings = {"auto.create.topics.enable": "false"}
    with Cluster(brokers=1, data_dir=data_dir, settings=settings) as cluster:
        [pid] = cluster.pids().values()
        address = cluster.addresses()[0]
        _make_topics(cluster.bootstrap)
        _write_and_read(cluster.bootstrap, 0)
        seen.rss_before = seen.rss = psutil.Process(pid).memory_info().rss
        stop = threading.Event()
        threads = [
            threading.Thread(target=_hold, args=(address, stop, seed)),
            threading.Thread(target=_watch, args=(address, pid, stop, seen)),
        ]
        for thread in threads:
            thread.start()
        sender = Attack(address, seed, seen)
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until and not seen.problems:
                sender.once()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        _judge(cluster, pid, seen)
    return seen


def _judge(cluster: Any, pid: int, seen: Seen) -> None:
    if cluster.live() != {1: pid}:
        seen.problems.append(f"the broker ended: {cluster.log_tail()}")
        return
    try:
        _write_and_read(cluster.bootstrap, 1)
    except Exception as e:
        seen.problems.append(f"the broker does not work any more: {e}")
    if seen.rss - seen.rss_before > MAX_GROWTH:
        seen.problems.append(f"the broker took {seen.rss - seen.rss_before >> 20} MiB more, limit {MAX_GROWTH >> 20}")
    if seen.slowest_s > MAX_ANSWER_S:
        seen.problems.append(f"an answer took {seen.slowest_s:.1f} s, limit {MAX_ANSWER_S:g}")
    log = (cluster.data_dir / "broker-1.log").read_text(errors="replace")
    if "Traceback" in log:
        at = log.index("Traceback")
        first = log[max(0, at - 300) : at + 3000]
        seen.problems.append(f"{log.count('Traceback')} tracebacks in the broker's log, the first:\n{first}")


def _make_topics(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    topics = [NewTopic("t1", 3, 1), NewTopic("checked", 1, 1)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(topics).values():
        made.result(30)


def _write_and_read(bootstrap: str, number: int) -> None:
    """A record goes in and comes out."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce("checked", f"value {number}".encode())
    if producer.flush(30):
        raise AssertionError("a record was not acknowledged within 30 s")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "checker"})
    consumer.assign([confluent_kafka.TopicPartition("checked", 0, number)])
    record = consumer.poll(30)
    consumer.close()
    if record is None or record.value() != f"value {number}".encode():
        raise AssertionError(f"record {number} did not come back, but {record and record.value()!r}")
