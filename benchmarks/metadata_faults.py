"""``python -m benchmarks.metadata_faults``: a disk of the metadata fails while topics are made.

Three brokers; the two metadata directories are ext4 file systems of their own. In each round three topics are made,
then one of the disks fails, and topics are made one after the other. Then every process is killed with -9 and started
again with the disk as it is, and every topic whose making was acknowledged must be there, those of earlier rounds too.
Then the disk is repaired or replaced, and the next round begins when both copies are good again. Faults:

    dead      EIO from every call: the file system is shut down. For the controller alone: EIO injected by strace
    full      ENOSPC: another file takes all room
    hung      writes do not return: the file system is frozen. For the controller alone: delayed by strace
    wiped     rm -rf of everything in it
    removed   umount -l: the path is the empty directory underneath

Told are the time of the first CreateTopics after the fault and of the slowest of those that follow, acknowledged topics
that are lost, the time from the kill until the brokers answer again, which includes their start, and the time from the
repair until both copies are good.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from holdfast.coordination import notes
from holdfast.storage.files import OsFiles
from holdfast.testing import FAULTS, Cluster, mounts, wait_for
from holdfast.testing.processes import children, has_gone

KINDS = ("dead", "full", "hung", "wiped", "removed")
ALONE = ("dead", "full", "hung")
MORE_TOPICS = 4
CALLS = "write,pwrite64,pwritev,fsync,openat,rename,unlink,mkdir,link,getdents64"


@dataclass
class Round:
    """What one round gave, in seconds."""

    first: float
    slowest: float
    restart: float
    filled: float = 0.0
    lost: list[str] = field(default_factory=list)


def create(admin: AdminClient, name: str) -> float:
    """Seconds until it is acknowledged."""
    start_s = time.monotonic()
    admin.create_topics([NewTopic(name, 1, 3)], request_timeout=30)[name].result(30)
    return time.monotonic() - start_s


class Fault:
    """One kind of failure of one of two disks, for all or for the controller alone."""

    def __init__(self, kind: str, which: int, alone: bool, folder: Path, images: Path) -> None:
        self.kind, self.which, self.alone = kind, which, alone
        frozen = kind == "hung" and not alone
        self.paths = [folder / "metadata", folder / "metadata-2"]
        self.disks = [FAULTS["frozen" if frozen else "eio"](path, images) for path in self.paths]
        self._injected: subprocess.Popen[bytes] | None = None

    def befall(self, cluster: Cluster) -> None:
        disk, path = self.disks[self.which], self.paths[self.which]
        if self.alone:
            self._inject(cluster)
        elif self.kind in ("dead", "hung"):
            disk.fail()
        elif self.kind == "full":
            self._fill(path)
        elif self.kind == "wiped":
            for child in path.iterdir():
                shutil.rmtree(child) if child.is_dir() else child.unlink()
        else:
            subprocess.run(("umount", "-l", path), check=True)

    @staticmethod
    def _fill(path: Path) -> None:
        with contextlib.suppress(OSError), open(path / "fill", "wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def _inject(self, cluster: Cluster) -> None:
        """Into the process of the controller, for every file that its copy has and is about to have."""
        path = self.paths[self.which]
        newest = max(
            (json.loads(p.read_text()) for p in (d / "controller.json" for d in self.paths) if p.exists()),
            key=lambda found: found["epoch"],
        )
        names = [str(p) for p in (path, *path.rglob("*"))]
        names += [f"{path}/.probe", *(f"{p}.tmp" for p in path.glob("metadata-reigns/*.json"))]
        what = {"dead": "error=EIO", "full": "error=ENOSPC", "hung": "delay_enter=30000000"}[self.kind]
        calls = "write,pwrite64,pwritev,fsync" if self.kind != "dead" else CALLS
        files = [each for name in names for each in ("-P", name)]
        pid = str(cluster.live()[newest["broker_id"]])
        self._injected = subprocess.Popen(
            ("strace", "-f", "-qq", "-o", "/dev/null", "-p", pid, *files, "-e", f"trace={calls}", "-e",
             f"inject={calls}:{what}"),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_for(lambda: "TracerPid:\t0" not in Path(f"/proc/{pid}/status").read_text(), "strace is attached")

    def let_go(self) -> None:
        """Of a process that is dead: it stays for as long as it is traced."""
        if self._injected is not None:
            self._injected.kill()
            self._injected.wait()

    def repair(self) -> None:
        """As a person does, while the brokers serve."""
        disk = self.disks[self.which]
        if self.alone or self.kind == "wiped":
            return
        if self.kind == "dead":
            disk.replace()
        elif self.kind == "full":
            (self.paths[self.which] / "fill").unlink()
        else:
            disk.heal()

    def is_over(self) -> bool:
        """Whether both copies are good, by the newest note of each."""
        files = OsFiles()
        found = [notes.newest(files, str(path)) for path in self.paths]
        ids = [(path / "copy.id").read_text().strip() for path in self.paths if (path / "copy.id").exists()]
        first = found[0]
        return first is not None and first == found[1] and sorted(ids) == sorted(first.good) and len(ids) == 2

    def end(self) -> None:
        """Take everything away."""
        self.let_go()
        for disk in self.disks:
            with contextlib.suppress(OSError):
                disk.heal() if self.kind == "hung" and disk.failed else None
            disk.close()


@contextlib.contextmanager
def _folder() -> Iterator[tuple[Path, Path]]:
    folder, images = mounts.scratch(), Path(tempfile.mkdtemp())
    try:
        yield folder, images
    finally:
        mounts.remove(folder)
        shutil.rmtree(images, ignore_errors=True)


def rounds_of(kind: str, which: int, alone: bool, rounds: int) -> list[Round]:
    """All rounds of one fault, with one cluster."""
    with _folder() as (folder, images):
        fault = Fault(kind, which, alone, folder, images)
        try:
            with Cluster(brokers=3, data_dir=folder) as cluster:
                made: list[str] = []
                return [_measure(cluster, fault, number, made) for number in range(rounds)]
        finally:
            fault.end()


def _measure(cluster: Cluster, fault: Fault, number: int, made: list[str]) -> Round:
    """One round; ``made``: the topics so far."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def make(name: str) -> float:
        took_s = create(admin, f"{name}-{number}")
        made.append(f"{name}-{number}")
        return took_s

    for name in ("before-1", "before-2", "before-3"):
        make(name)
    fault.befall(cluster)
    first = make("first")
    later = [make(f"later-{n}") for n in range(MORE_TOPICS)]
    start_s = time.monotonic()
    _kill_all(cluster, fault)
    cluster.revive(timeout_s=60)
    asking = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def missing() -> list[str]:
        with contextlib.suppress(KafkaException):
            found = asking.list_topics(timeout=10)
            if len(found.brokers) == 3:
                return [name for name in made if name not in found.topics]
        return ["no answer"]

    with contextlib.suppress(AssertionError, TimeoutError):
        wait_for(lambda: not missing(), "every topic", timeout_s=30)
    wait_for(lambda: _goes_on(asking), "a topic on all three brokers", timeout_s=30)
    restart_s, lost = time.monotonic() - start_s, missing()
    repaired_s = time.monotonic()
    fault.repair()
    wait_for(fault.is_over, "two good copies", timeout_s=60)
    filled_s = time.monotonic() - repaired_s
    return Round(first=first, slowest=max(later), restart=restart_s, filled=filled_s, lost=lost)


def _goes_on(admin: AdminClient) -> bool:
    """Whether a topic can be made on three brokers: a new controller may not have heard of all of them yet."""
    with contextlib.suppress(KafkaException):
        create(admin, f"after-{time.monotonic_ns()}")
        return True
    return False


def _kill_all(cluster: Cluster, fault: Fault) -> None:
    """kill -9 of all brokers; returns when they have ended."""
    helpers = {pid: children(pid) for pid in cluster.live().values()}
    for pid in helpers:
        os.kill(pid, signal.SIGKILL)
    fault.let_go()
    wait_for(lambda: all(has_gone(pid, closers) for pid, closers in helpers.items()), "the end of all brokers")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seen-by", choices=("all", "controller", "both"), default="both")
    options = parser.parse_args()
    table = Table(
        "fault",
        "copy",
        "seen by",
        "rounds",
        "next CreateTopics p50",
        "max",
        "slowest after",
        "restart",
        "both good again",
        "lost",
    )
    bad = 0
    for kind in options.kinds:
        for alone in (False, True):
            if (alone and kind not in ALONE) or options.seen_by == ("all" if alone else "controller"):
                continue
            for which in (0, 1):
                rounds = rounds_of(kind, which, alone, options.rounds)
                lost = sum(len(each.lost) for each in rounds)
                bad += lost
                firsts = [each.first for each in rounds]
                row = (
                    kind, str(which + 1), "the controller" if alone else "all", str(len(rounds)),
                    f"{statistics.median(firsts):.3f} s", f"{max(firsts):.3f} s",
                    f"{max(each.slowest for each in rounds):.3f} s",
                    f"{statistics.median(each.restart for each in rounds):.1f} s",
                    f"{statistics.median(each.filled for each in rounds):.1f} s", str(lost),
                )  # fmt: skip
                table.add_row(*row)
                print(" | ".join(row), flush=True)
    Console().print(table)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
