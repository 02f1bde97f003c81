"""``python -m benchmarks.guesses``: what strangers who guess passwords cost a broker, and who is connected meanwhile.

One broker of SASL_PLAINTEXT. Another process opens connections at a steady rate and logs in with wrong passwords, by
PLAIN or SCRAM-SHA-512 (with one proof for all: a guess costs whoever guesses nothing). Told: how many were let in, the
broker's CPU and memory meanwhile, and the p99 of small requests of a client that is connected, before and during; and
that of a client of another broker, at which nobody guesses: so much is the machine's. Then, without a delay of
failures, pairs of an unknown user and a wrong password one after the other: the ratio of the medians of their times.
Exit code 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import multiprocessing
import os
import select
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks import machine
from holdfast.protocol.framing import encode_request_raw
from holdfast.protocol.sasl_codec import AUTHENTICATE, HANDSHAKE, encode_authenticate, encode_handshake
from holdfast.testing.ports import free_port

REFUSED = 58
GUESSES, RATE, ROUNDS, PAIRS = 10_000, 1000, 5, 2000
CPU_MOST, MEMORY_MOST_MIB, P99_MOST, PAIRS_MOST = 0.30, 20.0, 2.0, 0.05
USER, PASSWORD = "alice", "a password that is not guessed"
VERSIONS = encode_request_raw(18, 0, 1, "c", b"")
MODULES = "org.apache.kafka.common.security"


@contextmanager
def broker(folder: Path, delay_ms: int, more: Sequence[str] = ()) -> Iterator[tuple[int, int]]:
    """Port and process id. ``more``: lines of its properties."""
    port, properties, log = free_port(), folder / "server.properties", folder / "broker.log"
    scram = f'{MODULES}.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
    plain = f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    lines = (
        "node.id=1", f"listeners=CLIENTS://127.0.0.1:{port},BROKERS://127.0.0.1:0",
        "inter.broker.listener.name=BROKERS", f"connection.failed.authentication.delay.ms={delay_ms}",
        "listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512", f"listener.name.clients.plain.sasl.jaas.config={plain}",
        f"listener.name.clients.scram-sha-512.sasl.jaas.config={scram}", f"log.dirs={folder}/data",
        f"metadata.log.dir={folder}/metadata", f"log.file={log}", *more,
    )  # fmt: skip
    properties.write_text("\n".join(lines))
    command = [sys.executable, "-m", "holdfast.cli.main", "broker", str(properties)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until_s = time.monotonic() + 60
            while not (log.exists() and "broker.started" in log.read_text()):
                if process.poll() is not None or time.monotonic() > until_s:
                    raise RuntimeError(f"the broker has not started: see {log}")
                time.sleep(0.05)
            yield port, process.pid
        finally:
            process.terminate()


# -- what is said ----------------------------------------------------------------------------------------------------


def handshake(mechanism: str) -> bytes:
    """Its request."""
    return encode_request_raw(HANDSHAKE, 1, 1, "g", encode_handshake(mechanism))


def token(text: bytes) -> bytes:
    """Its request."""
    return encode_request_raw(AUTHENTICATE, 1, 2, "g", encode_authenticate(1, text))


def first_of(mechanism: str, user: str, password: str) -> bytes:
    """The first token of a login."""
    if mechanism == "PLAIN":
        return token(f"\0{user}\0{password}".encode())
    return token(f"n,,n={user},r=abcdefghijkl".encode())


def last_of(challenge: bytes) -> bytes:
    """A proof of nothing."""
    nonce = challenge.partition(b",")[0]
    return token(b"c=biws," + nonce + b",p=" + base64.b64encode(b"x" * 64))


async def frame(reader: asyncio.StreamReader) -> bytes:
    """One answer, its correlation id first."""
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def token_of(answer: bytes) -> bytes:
    """What a good answer to a token says."""
    at = 8 + max(0, int(struct.unpack_from(">h", answer, 6)[0]))
    size = int(struct.unpack_from(">i", answer, at)[0])
    return answer[at + 4 : at + 4 + size]


class Guess:
    """One login, a step for each answer."""

    def __init__(self, port: int, requests: Sequence[bytes]) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setblocking(False)
        self._requests = iter(requests)
        self._came = b""
        self._say(b"")

    def _say(self, answer: bytes) -> bool:
        request = next(self._requests, None)
        if request is not None:
            self.sock.send(request or last_of(token_of(answer)))
        return request is not None

    def go_on(self) -> int | None:
        """Take what came. The error code of the last answer, -1: closed without one; None: it is not over."""
        try:
            data = self.sock.recv(4096)
        except OSError:
            data = b""
        self._came += data
        if not data:
            return -1
        if len(self._came) < 4 or len(self._came) < 4 + int.from_bytes(self._came[:4], "big"):
            return None
        answer, self._came = self._came[4:], b""
        return None if self._say(answer) else int(struct.unpack_from(">h", answer, 4)[0])


def guesser(
    port: int, mechanism: str, count: int, rate: int, told: multiprocessing.SimpleQueue[tuple[int, int, float]]
) -> None:
    """Another process: how many guesses were let in and how many refused, and how many seconds it took. It takes as
    little of the processors as it can from those that are measured: strangers have their own."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    requests = [handshake(mechanism), first_of(mechanism, USER, "wrong"), *([b""] if mechanism != "PLAIN" else [])]
    epoll, guesses = select.epoll(), dict[int, Guess]()
    codes, begun, began_s = list[int](), 0, time.monotonic()
    while len(codes) < count:
        due_s = began_s + begun / rate
        wait_s = due_s - time.monotonic() if begun < count else 1.0
        if wait_s <= 0:
            guess = Guess(port, requests)
            guesses[guess.sock.fileno()] = guess
            epoll.register(guess.sock.fileno(), select.EPOLLIN)
            begun += 1
        for number, _ in epoll.poll(max(wait_s, 0)):
            code = guesses[number].go_on()
            if code is not None:
                codes.append(code)
                guesses.pop(number).sock.close()
    told.put((codes.count(0), codes.count(REFUSED), time.monotonic() - began_s))


# -- what is measured ------------------------------------------------------------------------------------------------


def logged_in(port: int) -> socket.socket:
    """A client that knows the password."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for request in (handshake("PLAIN"), first_of("PLAIN", USER, PASSWORD)):
        ask(sock, request)
    return sock


def ask(sock: socket.socket, request: bytes) -> bytes:
    """A request and its answer."""
    sock.sendall(request)
    size = int.from_bytes(exactly(sock, 4), "big")
    return exactly(sock, size)


def exactly(sock: socket.socket, size: int) -> bytes:
    """So many bytes."""
    got = b""
    while len(got) < size:
        more = sock.recv(size - len(got))
        if not more:
            raise ConnectionError("closed")
        got += more
    return got


def p99_ms(sock: socket.socket, seconds: float, until: multiprocessing.Process | None = None) -> float:
    """Of a hundred requests a second."""
    took, began_s = [], time.monotonic()
    while time.monotonic() - began_s < seconds and (until is None or until.is_alive()):
        at_s = time.perf_counter()
        ask(sock, VERSIONS)
        took.append((time.perf_counter() - at_s) * 1000)
        time.sleep(0.01)
    return sorted(took)[int(len(took) * 0.99)]


def guessed(mechanism: str, count: int, rate: int, rounds: int) -> bool:
    """One row; whether it is within its limits. A p99 is of few requests, so the ratio is the median of the rounds."""
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as beside,
        broker(Path(folder), 100) as (port, pid),
        broker(Path(beside), 100) as (port_beside, _),
        ThreadPoolExecutor(2) as threads,
    ):
        clients = [logged_in(each) for each in (port, port_beside)]

        def p99s(seconds: float, until: multiprocessing.Process | None = None) -> list[float]:
            return list(threads.map(lambda client: p99_ms(client, seconds, until), clients))

        p99s(2)  # warm
        rss, found = machine.resident_mib([pid])[0], []
        for _ in range(rounds):
            before_ms = p99s(10)
            told: multiprocessing.SimpleQueue[tuple[int, int, float]] = multiprocessing.SimpleQueue()
            process = multiprocessing.Process(target=guesser, args=(port, mechanism, count, rate, told))
            cpu_s, began_s = machine.cpu_seconds([pid]), time.monotonic()
            process.start()
            during_ms = p99s(600, process)
            process.join()
            let_in, refused, _ = told.get()
            share = (machine.cpu_seconds([pid]) - cpu_s) / (time.monotonic() - began_s)
            found.append((let_in, refused, share, *(after / before_ms[n] for n, after in enumerate(during_ms))))
            print(
                f"{mechanism:14} {count} guesses: {let_in} let in, {refused} refused; {share:.1%} of a core; p99 of "
                f"another client {before_ms[0]:.2f} ms before, {during_ms[0]:.2f} during, at a broker beside "
                f"{before_ms[1]:.2f} and {during_ms[1]:.2f}"
            )
        grown = machine.resident_mib([pid])[0] - rss
        share, ratio, ratio_beside = (statistics.median(each[n] for each in found) for n in (2, 3, 4))
        good = all(each[:2] == (0, count) for each in found)
        good = good and share <= CPU_MOST and grown <= MEMORY_MOST_MIB and ratio <= P99_MOST
        print(
            f"{mechanism:14} {share:.1%} of a core (at most {CPU_MOST:.0%}); {grown:+.1f} MiB (at most "
            f"{MEMORY_MOST_MIB:g}); p99 of another client {ratio:.2f} times (at most {P99_MOST:g}), at a broker beside "
            f"{ratio_beside:.2f}{'' if good else '  MISSED'}"
        )
        return good


def paired(mechanism: str, pairs: int) -> bool:
    """An unknown user and a wrong password in turn."""
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder), 0) as (port, _):
        took: dict[str, list[float]] = {USER: [], "nobody": []}
        for number in range(pairs):
            for user in (USER, "nobody") if number % 2 else ("nobody", USER):
                sock = socket.create_connection(("127.0.0.1", port))
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                ask(sock, handshake(mechanism))
                request = first_of(mechanism, user, "wrong")
                if mechanism != "PLAIN":
                    request = last_of(token_of(ask(sock, request)))
                at_s = time.perf_counter()
                with suppress(ConnectionError):
                    ask(sock, request)
                took[user].append(time.perf_counter() - at_s)
                sock.close()
        known, unknown = (statistics.median(each) for each in took.values())
        away = abs(unknown / known - 1)
        print(f"{mechanism:14} {pairs} pairs: unknown and wrong {away:.2%} apart (at most {PAIRS_MOST:.0%})")
        return away <= PAIRS_MOST


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.guesses", description=__doc__.split("\n")[0])
    parser.add_argument("--guesses", type=int, default=GUESSES)
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    options = parser.parse_args()
    print(machine.headline())
    rows = [guessed(each, options.guesses, options.rate, options.rounds) for each in ("PLAIN", "SCRAM-SHA-512")]
    rows += [paired(each, options.pairs) for each in ("PLAIN", "SCRAM-SHA-512")]
    return 0 if all(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
