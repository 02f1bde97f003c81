"""What the operating system says: CPU time and memory of processes, the machine, the commit. Linux only."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time that these processes have used since they started."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S


def busy_seconds() -> float:
    """CPU time of the whole machine that was not idle."""
    values = [int(v) for v in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(values) - values[3] - values[4]) / TICKS_PER_S


def descendants() -> frozenset[int]:
    """The processes below this one."""
    return frozenset(_below(os.getpid(), {pid: parent for pid, (parent, _) in _processes().items()}))


def tree_cpu_s(without: frozenset[int] = frozenset(), *, root: int | None = None) -> float:
    """Of a process (this one) and all below it, also of those that have ended and were waited for; not of
    ``without``."""
    found, root = _processes(), root or os.getpid()
    mine = {root, *_below(root, {pid: parent for pid, (parent, _) in found.items()})} - without
    return sum(found[pid][1] for pid in mine)


def _processes() -> dict[int, tuple[int, float]]:
    """Parent and CPU seconds, with those of children that were waited for, of every process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS_PER_S
    return found


def _below(root: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    grown = {root}
    while grown:
        grown = {pid for pid, parent in parents.items() if parent in grown} - found
        found |= grown
    return found


def have_memory(directory: Path, megabytes: int) -> None:
    """Have so much memory that is free and that the machine has, right before pages of files are written.

    A virtual machine gives memory back to its host soon after it is freed, and a page that is written then costs the
    system time of getting it again: 2.4 s/GB where it is 0.2 otherwise. Whichever of two brokers comes to such memory
    would lose."""
    path, piece = directory / "memory", bytes(1 << 20)
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(piece)
    path.unlink()


def resident_mib(pids: Iterable[int]) -> list[float]:
    """Resident memory of each process."""
    return [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES / 2**20 for pid in pids]


def describe() -> dict[str, object]:
    """The machine, for the head of a report."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def headline() -> str:
    """Commit and machine in a line, which begins what a benchmark prints."""
    about = describe()
    return f"commit {commit()}; {about['cpu']}, {about['cores']} cores, Linux {about['kernel']}"


def commit() -> str:
    """Short hash of the checkout, with ``+`` when files differ from it; ``unknown`` outside a checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=10", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
