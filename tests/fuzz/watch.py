"""Watches one hunting process per reader: sees it hang or die, saves the input that did it, starts the next.

Owns the processes, their channels and the files of findings. Errors come from the hunt, which has made them smaller;
an input that ended or stopped its process is kept as it was, at most as large as the reader's inputs are.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any, Final

from tests.fuzz.channel import BETWEEN, DONE, INDEX, PHASE, RUNNING, Channel
from tests.fuzz.reader import Reader

HANG_CPU_S: Final = 1.0
"""Time of the processor that one input may take in the tight loop; elsewhere it is traced or large, and may take
ten times that."""
HANG_WALL_S: Final = 60.0
MAX_RESTARTS: Final = 25
_POLL_S: Final = 0.25
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True, kw_only=True)
class Watched:
    """One reader's hunt, over as many processes as it takes."""

    reader: Reader
    seed: int
    inputs: int
    out: str
    minutes: float | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    restarts: int = 0
    process: subprocess.Popen[bytes] | None = None
    channel: Channel | None = None
    began: float = 0.0
    _seen: tuple[int, int, int] = (-1, -1, -1)
    _seen_at: float = 0.0
    _seen_cpu: float = 0.0

    @property
    def report(self) -> str:
        return f"{self.out}/{self.reader.name}.{self.restarts}.part"

    def start(self) -> None:
        """Begin, or go on after a process that died."""
        if self.channel is None:
            self.began = time.monotonic()
            handle, path = tempfile.mkstemp(prefix="holdfast-fuzz-")
            os.close(handle)
            self.channel = Channel(path, self.reader.max_size, create=True)
        self.channel.words[PHASE] = BETWEEN
        self.channel.words[DONE] = self.channel.words[INDEX] = 0
        command = [
            sys.executable, "-m", "tests.fuzz", "--hunt", self.reader.name, self.channel.path, self.report,
            "--seed", str(self.seed + 1_000_003 * self.restarts), "--inputs", str(self.inputs - self._read_before()),
        ]  # fmt: skip
        if self.minutes is not None:
            command += ["--minutes", str(self.minutes)]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self._seen = (-1, -1, -1)

    def poll(self) -> bool:
        """Look after it; whether it is over."""
        assert self.process is not None and self.channel is not None
        ended = self.process.poll()
        if ended is None:
            if self._hangs():
                data = self.channel.current()
                self.process.send_signal(signal.SIGABRT)  # faulthandler prints where it was
                self.process.wait()
                self._ended("hang", f"more than {HANG_CPU_S:g} s", data)
                return self._go_on()
            return False
        if ended == 0:
            self._collect()
            self._finish()
            return True
        data = self.channel.current()
        self._ended("crash", f"ended by {signal.Signals(-ended).name}" if ended < 0 else f"exit code {ended}", data)
        return self._go_on()

    def _hangs(self) -> bool:
        assert self.process is not None and self.channel is not None
        words = self.channel.words
        now, seen = time.monotonic(), (words[INDEX], words[DONE], words[PHASE])
        if seen != self._seen:
            self._seen, self._seen_at, self._seen_cpu = seen, now, self._cpu_s()
            return False
        if words[PHASE] == RUNNING:
            return self._cpu_s() - self._seen_cpu > HANG_CPU_S or now - self._seen_at > HANG_WALL_S
        return words[PHASE] != BETWEEN and self._cpu_s() - self._seen_cpu > 30 * HANG_CPU_S

    def _cpu_s(self) -> float:
        assert self.process is not None
        try:
            with open(f"/proc/{self.process.pid}/stat") as f:
                fields = f.read().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return 0.0
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def _ended(self, kind: str, what: str, data: bytes) -> None:
        self._collect()
        self.findings.append(
            {"reader": self.reader.name, "kind": kind, "what": what, "where": "", "data": data.hex(), "seen": 1}
        )

    def _go_on(self) -> bool:
        self.restarts += 1
        if self.restarts > MAX_RESTARTS or self._read_before() >= self.inputs:
            self._finish()
            return True
        self.start()
        return False

    def _collect(self) -> None:
        """What the process told last."""
        assert self.channel is not None
        try:
            with open(self.report) as f:
                row = json.load(f)
            os.unlink(self.report)
        except (FileNotFoundError, ValueError):
            row = {}
        row["inputs"] = max(row.get("inputs", 0), self.channel.words[DONE])
        known = {(f["kind"], f["where"]) for f in self.findings}
        self.findings += [f for f in row.pop("findings", []) if (f["kind"], f["where"]) not in known]
        self.rows.append(row)

    def _read_before(self) -> int:
        return sum(row["inputs"] for row in self.rows)

    def result(self) -> dict[str, Any]:
        """Everything in one row."""
        counts = ("inputs", "sampled", "stretched", "refused")
        total = {key: sum(row.get(key, 0) for row in self.rows) for key in counts}
        total |= {key: round(sum(row.get(key, 0) for row in self.rows), 3) for key in ("cpu_s", "seconds")}
        total |= {
            key: max((row.get(key, 0) for row in self.rows), default=0)
            for key in ("parents", "outcomes", "steps", "lines", "max_rss_mib")
        }
        return {
            "reader": self.reader.name, "reads": self.reader.reads, "seed": self.seed, "restarts": self.restarts,
            **total, "findings": self.findings,
        }  # fmt: skip

    def _finish(self) -> None:
        assert self.channel is not None
        os.unlink(self.channel.path)
        for number, finding in enumerate(self.findings):
            path = f"{self.out}/{self.reader.name}-{finding['kind']}-{number}.bin"
            with open(path, "wb") as f:
                f.write(bytes.fromhex(finding["data"]))
            finding["file"] = path
            finding["data"] = finding["data"][:2000]
        with open(f"{self.out}/{self.reader.name}.json", "w") as f:
            json.dump(self.result(), f, indent=1)


def run_all(jobs: list[Watched], processes: int) -> list[dict[str, Any]]:
    """So many at a time, in order; their results."""
    waiting, running = list(jobs), []
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                running.append(waiting.pop(0))
                running[-1].start()
            time.sleep(_POLL_S)
            for job in list(running):
                if job.poll():
                    running.remove(job)
                    _say(job.result())
    finally:
        for job in running:
            if job.process is not None and job.process.poll() is None:
                job.process.kill()
                job.process.wait()
    return [job.result() for job in jobs]


def _say(row: dict[str, Any]) -> None:
    rate = row["inputs"] / row["cpu_s"] if row["cpu_s"] else 0.0
    print(
        f"{row['reader']:18} {row['inputs']:>12,} inputs {rate:>9,.0f}/s of CPU  {row['lines']:5} lines "
        f"{row['steps']:5} steps {row['parents']:5} parents  {row['max_rss_mib']:4} MiB  "
        f"{len(row['findings'])} findings",
        flush=True,
    )
    for finding in row["findings"]:
        print(f"    {finding['kind']} x{finding['seen']}: {finding['what']}")
        print(f"        {finding['where']}  {finding['file']}")
