"""``python -m benchmarks.file_removal DIR``: what removing large files costs those who use the same file system.

Four files of 1 GiB are removed in several ways while one thread appends 64 KiB every 3 ms (about 20 MB/s, no fsync),
and another probes as a broker does: it creates, writes, syncs and unlinks a small file every 20 ms. Each way is shown
beside the two seconds before it.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import machine

FILES, FILE_BYTES = 4, 1 << 30
MIB = 1 << 20


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="benchmarks.file_removal", description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path, help="a directory on the file system in question; it needs 5 GiB")
    folder: Path = parser.parse_args().directory / f"file-removal-{os.getpid()}"
    ways: dict[str, Callable[[Path], None]] = {
        "unlinked whole": Path.unlink,
        "cut by 64 MiB, then unlinked": lambda path: cut(path, 64 * MIB, rests=False),
        "cut by 32 MiB, resting as long": lambda path: cut(path, 32 * MIB, rests=True),
        "cut by 16 MiB, resting as long": lambda path: cut(path, 16 * MIB, rests=True),
    }
    print(f"commit {machine.commit()}\n")
    print("| 4 files of 1 GiB | s | append p99, longest ms | before | probe p99, longest ms | before |")
    print("|---|--:|--:|--:|--:|--:|")
    folder.mkdir()
    try:
        for name, remove in ways.items():
            print(f"| {name} | {measure(folder, remove)} |", flush=True)
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    return 0


def cut(path: Path, step: int, *, rests: bool) -> None:
    """From its end, so many bytes at a time."""
    size = path.stat().st_size
    fd = os.open(path, os.O_RDWR)
    while size:
        size = max(0, size - step)
        began = time.monotonic()
        os.ftruncate(fd, size)
        if rests:
            time.sleep(max(0.01, time.monotonic() - began))
    os.close(fd)
    path.unlink()


def measure(folder: Path, remove: Callable[[Path], None]) -> str:
    """One row without its name."""
    paths = [folder / f"{number}" for number in range(FILES)]
    for path in paths:
        fill(path)
    os.sync()
    over = threading.Event()
    appends: list[float] = []
    probes: list[float] = []
    threads = [
        threading.Thread(target=repeat, args=(append(folder / "append"), 0.003, appends, over)),
        threading.Thread(target=repeat, args=(probe(folder / "probe"), 0.02, probes, over)),
    ]
    for thread in threads:
        thread.start()
    time.sleep(2.0)
    before = spread(appends), spread(probes)
    began = time.monotonic()
    for path in paths:
        remove(path)
    took = time.monotonic() - began
    time.sleep(1.0)  # the file system frees what was unlinked a moment later
    over.set()
    for thread in threads:
        thread.join()
    return f"{took:.1f} | {spread(appends)} | {before[0]} | {spread(probes)} | {before[1]}"


def fill(path: Path) -> None:
    data = os.urandom(MIB)
    with path.open("wb") as file:
        for _ in range(FILE_BYTES // MIB):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


def append(path: Path) -> Callable[[], None]:
    file = path.open("wb", buffering=0)
    data = os.urandom(64 << 10)
    return lambda: void(file.write(data))


def probe(path: Path) -> Callable[[], None]:
    def once() -> None:
        with path.open("wb", buffering=0) as file:
            file.write(b"x")
            os.fsync(file.fileno())
        path.unlink()

    return once


def void(_: object) -> None:
    return


def repeat(work: Callable[[], None], nap_s: float, took_ms: list[float], over: threading.Event) -> None:
    """Until it is over; how long each time took."""
    while not over.wait(nap_s):
        began = time.monotonic()
        work()
        took_ms.append((time.monotonic() - began) * 1000)


def spread(took_ms: list[float]) -> str:
    """p99 and longest of what was noted until now, which is forgotten."""
    found = sorted(took_ms)
    took_ms.clear()
    return f"{found[int(len(found) * 0.99)]:.1f}, {found[-1]:.1f}" if found else "-"


if __name__ == "__main__":
    sys.exit(main())
