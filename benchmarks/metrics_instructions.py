"""``python -m benchmarks.metrics_instructions``: how many more instructions a request takes where they are counted.

Two brokers in one run, both under valgrind's callgrind, which counts every instruction of a process: one with metrics,
and one without (metrics.port=0, where nothing is counted). No counter of the processor is needed, and what else runs
on the machine does not matter. A client of one raw connection asks for the same in turn, in pairs whose order changes:

* small: Produce of one record of 100 bytes with acks=1, eight sent at once;
* single: the same, one at a time;
* large: Produce of a batch of 256 kB, one at a time;
* fetch: Fetch of one small batch, all that there is of its topic, one at a time.

What the broker does by itself meanwhile is taken off: instructions of a second without requests, times the seconds of
the round. It prints the median of the pairs' ratios with an interval that has the true median 19 times out of 20; exit
code 1 when one is above 1.02.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from benchmarks import machine, wire
from benchmarks.metrics_cost import interval
from holdfast.testing import free_port, wait_for

LIMIT = 1.02
START_S = 180
ANSWER_S = 60.0
IDLE_S = 4.0
AT_ONCE = 8
VALUE = b"x" * 100
PROGRAM = """
from holdfast.model import histogram
histogram.EXACT = 0
from holdfast.broker.closer import Closer
Closer.start = classmethod(lambda cls: None)
from holdfast.cli.main import main
main()
"""
"""The broker without its second process, which closes what a killed one held: valgrind knows no such clone. The first
requests of ten seconds are timed each: of a broker that is so slow it would be many, of a busy one they are few."""
SUMMARY = re.compile(r"^(?:summary|totals): (\d+)", flags=re.M)
PROPERTIES = """
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={folder}/logs
metadata.log.dirs={folder}/metadata
metrics.port={metrics}
log.retention.ms=-1
log.dir.probe.interval.ms=600000
metadata.log.dir.probe.interval.ms=600000
log.dir.degraded.probe.ms=600000
metadata.log.dir.timeout.ms=600000
broker.session.timeout.ms=600000
broker.heartbeat.interval.ms=60000
"""
"""A broker that is fifty times as slow is not to think that its disks are. The records are of a time long ago, and
are not to be deleted: a Fetch would be answered with an error from then on."""


class Kind(NamedTuple):
    """What is asked: the requests, how many of them are sent at once, how many there are in a round for each of
    ``--requests``."""

    request: bytes
    at_once: int
    share: float


KINDS = {
    "small": Kind(wire.produce_frame("t", 0, VALUE, 1), AT_ONCE, 1),
    "single": Kind(wire.produce_frame("t", 0, VALUE, 1), 1, 1),
    "large": Kind(wire.produce_frame("t", 0, b"x" * (256 << 10), 1), 1, 0.1),
    "fetch": Kind(wire.fetch_frame("one", 0, 0, max_bytes=1), 1, 0.5),
}


class Side:
    """A broker under callgrind, and a connection to it. A context manager."""

    def __init__(self, folder: Path, *, metrics: bool) -> None:
        folder.mkdir()
        self.ratios: dict[str, list[float]] = {}
        self._folder, self._port = folder, free_port()
        properties = folder / "broker.properties"
        number = free_port() if metrics else 0
        properties.write_text(PROPERTIES.format(port=self._port, folder=folder, metrics=number))
        self._command = [
            "valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counted",
            sys.executable, "-c", PROGRAM, "broker", str(properties),
        ]  # fmt: skip

    def __enter__(self) -> Side:
        with open(self._folder / "log", "wb") as log:
            environment = {**os.environ, "PYTHONHASHSEED": "0"}  # both look the same things up in the same places
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self._folder, env=environment)
        try:
            wait_for(self._is_there, "a broker under valgrind", timeout_s=START_S, interval_s=0.5)
            self._connection.call(wire.produce_frame("one", 0, VALUE, 1))
            self._control("-i", "on")
        except BaseException:
            self.__exit__(None, None, None)
            print((self._folder / "log").read_text()[-4000:], file=sys.stderr)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def _is_there(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError("the broker has ended")
        self._connection = wire.Connection(("127.0.0.1", self._port), timeout_s=ANSWER_S)
        try:
            for name in ("t", "one"):
                self._connection.create_topic(name, 1, 1, timeout_s=ANSWER_S)
        except wire.Refused:  # it listens, and is not registered yet
            self._connection.socket.close()
            return False
        return True

    def counted(self, work: Callable[[], None]) -> tuple[int, float]:
        """Instructions of all its threads while that is done, and seconds."""
        self._control("-z")
        began_s = time.monotonic()
        work()
        took_s = time.monotonic() - began_s
        self._control("-d")
        parts = sorted(self._folder.glob("counted.*"), key=lambda path: path.stat().st_mtime_ns)
        found = SUMMARY.search(parts[-1].read_text())
        if found is None:
            raise RuntimeError(f"{parts[-1]}: expected a line 'summary: NUMBER'")
        for path in parts:
            path.unlink()
        return int(found[1]), took_s

    def ask(self, kind: Kind, requests: int) -> None:
        """So many of a kind."""
        for _ in range(requests // kind.at_once):
            self._connection.send(kind.request * kind.at_once)
            for answer in receive(self._connection, kind.at_once):
                if kind.request[4:6] == b"\0\0" and wire.produce_result(answer)[0]:
                    raise wire.Refused("produce", wire.produce_result(answer)[0])
                if kind.request[4:6] == b"\0\1" and VALUE not in answer:
                    raise RuntimeError(f"a Fetch without the record: {answer.hex()}")

    def _control(self, *options: str) -> None:
        done = subprocess.run(
            ["callgrind_control", *options, str(self._process.pid)], capture_output=True, text=True, cwd=self._folder
        )
        if done.returncode != 0 or "error" in (done.stdout + done.stderr).lower():
            raise RuntimeError(f"callgrind_control {' '.join(options)}: {done.stdout}{done.stderr}")


def receive(connection: wire.Connection, count: int) -> list[bytes]:
    """So many answers, from their correlation ids on."""
    received, found = bytearray(), list[bytes]()
    while len(found) < count:
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            more = connection.socket.recv(1 << 20)
            if not more:
                raise ConnectionResetError("the broker closed the connection")
            received += more
        end = 4 + int.from_bytes(received[:4], "big")
        found.append(bytes(received[4:end]))
        del received[:end]
    return found


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.metrics_instructions", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="pairs of each kind (9)")
    parser.add_argument("--requests", type=int, default=400, help="small ones in a round (400)")
    parser.add_argument("--seed", type=int, default=1, help="of the order within pairs and of the resampling (1)")
    options = parser.parse_args()
    for command in ("valgrind", "callgrind_control"):
        if shutil.which(command) is None:
            print(
                f"benchmarks.metrics_instructions: {command} is not on the PATH: apt-get install valgrind",
                file=sys.stderr,
            )
            return 2
    print(machine.headline())
    print("instructions of a broker by valgrind's callgrind", flush=True)
    rng, good = random.Random(options.seed), True
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        on = stack.enter_context(Side(folder / "on", metrics=True))
        off = stack.enter_context(Side(folder / "off", metrics=False))
        idle = {side: rate(side) for side in (on, off)}
        print(f"without requests: {idle[on] / 1e6:.2f} and {idle[off] / 1e6:.2f} M a second")
        print(f"\n{'kind':8}{'on':>12}{'off':>12}{'ratio':>9}  95 % interval   limit")
        for name, kind in KINDS.items():
            requests = max(kind.at_once, int(options.requests * kind.share))
            pairs = list[tuple[float, float]]()
            for side in (on, off):
                side.ask(kind, max(8 * kind.at_once, requests // 4))  # what is done the first time is not measured
            for _ in range(options.rounds):
                each = {}
                for side in rng.sample((on, off), 2):
                    spent, took_s = side.counted(lambda s=side, k=kind, n=requests: s.ask(k, n))  # type: ignore[misc]
                    each[side] = (spent - idle[side] * took_s) / requests
                pairs.append((each[on], each[off]))
            good = report(name, pairs, rng) and good
    return 0 if good else 1


def rate(side: Side) -> float:
    """Instructions of a second without requests."""
    spent, took_s = side.counted(lambda: time.sleep(IDLE_S))
    return spent / took_s


def report(name: str, pairs: list[tuple[float, float]], rng: random.Random) -> bool:
    """One line; whether the median is within the limit."""
    ratios = [one / other for one, other in pairs]
    low, high = interval(ratios, rng)
    ratio = statistics.median(ratios)
    on, off = (statistics.median(side) for side in zip(*pairs, strict=True))
    told = f"{LIMIT:.2f}" + ("" if ratio <= LIMIT else "  ABOVE")
    print(f"{name:8}{on:12,.0f}{off:12,.0f}{ratio:9.4f}  {low:.4f} to {high:.4f}  {told}", flush=True)
    return ratio <= LIMIT


if __name__ == "__main__":
    sys.exit(main())
