"""How much CPU single turns of a broker's event loop take: read from what ``in_broker/sitecustomize.py`` notes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

IN_BROKER = Path(__file__).parent / "in_broker"
FOLDER, ABOVE_MS = "HOLDFAST_BENCH_TURNS", "HOLDFAST_BENCH_TURNS_MS"


@contextmanager
def noted(folder: Path, *, above_ms: float = 1.0) -> Iterator[None]:
    """Processes of Python that are started inside write their turns there: those that take longer than that."""
    before = {name: os.environ.get(name) for name in (FOLDER, ABOVE_MS, "PYTHONPATH")}
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[ABOVE_MS] = str(above_ms)
    os.environ[FOLDER] = str(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(IN_BROKER), before["PYTHONPATH"])))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def longest_ms(folder: Path, start_s: float, end_s: float) -> float:
    """CPU of the longest turn that ended between these times (monotonic); 0 if none was noted."""
    found = (each for path in folder.iterdir() for each in turns_ms(path, [(start_s, end_s)]))
    return max(found, default=0.0)


def turns_ms(path: Path, times: Sequence[tuple[float, float]]) -> list[float]:
    """CPU of each noted turn of a process (``path``: its file) that ended within one of these times (monotonic), which
    are in order and do not overlap."""
    found, left = list[float](), list(reversed(times))
    for line in path.read_text().splitlines():
        at_s, took_ms = map(float, line.split())
        while left and left[-1][1] <= at_s:
            left.pop()
        if left and left[-1][0] <= at_s:
            found.append(took_ms)
    return found
