"""How much CPU single turns of a broker's event loop take: read from what ``in_broker/sitecustomize.py`` notes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IN_BROKER = Path(__file__).parent / "in_broker"
FOLDER = "HOLDFAST_BENCH_TURNS"


@contextmanager
def noted(folder: Path) -> Iterator[None]:
    """Processes of Python that are started inside write their turns there."""
    before = {name: os.environ.get(name) for name in (FOLDER, "PYTHONPATH")}
    folder.mkdir(parents=True, exist_ok=True)
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
    """CPU of the longest turn that ended between these times (monotonic); 0 if none took a millisecond."""
    found = [0.0]
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            at_s, took_ms = map(float, line.split())
            if start_s <= at_s < end_s:
                found.append(took_ms)
    return max(found)
