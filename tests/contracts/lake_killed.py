"""A writer that is killed at a named step: run in a process of its own by test_lake_kills.py.

Lands ten records a batch and notes in a file each end that it has been told is landed. At the step ``NAME@BATCH`` it
kills itself as kill -9 does: by a signal that nothing can take.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from holdfast.lake.data_files import attempt_of
from holdfast.lake.errors import ConflictError, PositionMovedError
from holdfast.lake.table import CommitConflict, land, now_ms
from holdfast.lake.upkeep import compact, sweep
from tests.contracts.lake_tables import batch_of, opened

UPKEEP = ("compacting", "expiring", "sweeping")
STEPS = ("planned", "written", "commit", "inside", "committed", *UPKEEP)
REFUSED = 3
"""Exit code of a writer that another one came before."""


def write(folder: Path, format: str, at: str, batches: int, told: Path) -> None:
    step, _, number = at.partition("@")

    def reached(name: str, batch: int) -> None:
        if (name, batch) == (step, int(number)):
            os.kill(os.getpid(), signal.SIGKILL)

    table = opened(folder, format)
    try:
        for batch in range(batches):
            one_batch(table, batch, reached, told)
    except (PositionMovedError, ConflictError):
        os._exit(REFUSED)


def one_batch(table: Any, batch: int, reached: Callable[[str, int], None], told: Path) -> None:
    table.refresh()
    position = table.position()
    start = position.topics["t"].partitions[0].offset if position.topics else 0
    reached("planned", batch)
    planned = batch_of(table, position, (0, start, start + 10))
    reached("written", batch)
    with killed_inside(table, lambda: reached("inside", batch)):
        land(table, planned, on_step=lambda name: reached(name, batch))
    with open(told, "a") as notes:
        notes.write(f"{start + 10}\n")
    if batch % 2 == 1:
        upkeep(table, lambda name: reached(name, batch))


def upkeep(table: Any, reached: Callable[[str], None]) -> None:
    """What another process does meanwhile makes it end early, and the next one goes on."""
    with suppress(CommitConflict):
        table.refresh()
        with killed_inside(table, lambda: reached("compacting")):
            compact(table, attempt_of(now_ms()), target_bytes=1 << 20)
        with killed_removing(table, lambda: reached("expiring")):
            table.expire(older_than_ms=now_ms() + 1_000)
    with killed_removing(table, lambda: reached("sweeping")):
        sweep(table, clock=lambda: now_ms() + 1_000, most_age_ms=60_000)


@contextmanager
def killed_inside(table: Any, reached: Callable[[], None]) -> Iterator[None]:
    """Calls ``reached`` when all that belongs to a commit is written, and before the act that makes it count."""
    if table.format == "parquet":
        with replaced(os, "link", lambda link: before_link(link, reached)):
            yield
    elif table.format == "delta":
        # The position's text is there, and no commit names it.
        with replaced(type(table), "_commit", lambda commit: lambda *given: (reached(), commit(*given))[1]):
            yield
    else:
        # Manifests and metadata are there, and the catalog does not know them.
        catalog = type(table._table.catalog)
        wrapped = lambda write: staticmethod(lambda *given, **named: (write(*given, **named), reached())[0])  # noqa: E731
        with replaced(catalog, "_write_metadata", wrapped):
            yield


def before_link(link: Callable[..., None], reached: Callable[[], None]) -> Callable[..., None]:
    def linked(source: str, target: str) -> None:
        if "/_holdfast/log/" in target:
            reached()
        link(source, target)

    return linked


@contextmanager
def killed_removing(table: Any, reached: Callable[[], None]) -> Iterator[None]:
    """Calls ``reached`` after each file that upkeep has removed."""
    wrapped = lambda remove: lambda *given: (remove(*given), reached())[0]  # noqa: E731
    with replaced(type(table.store), "remove", wrapped):
        yield


@contextmanager
def replaced(where: Any, name: str, wrapped: Callable[[Any], Any]) -> Iterator[None]:
    own = vars(where).get(name)  # None: it is a base class that has it
    setattr(where, name, wrapped(getattr(where, name)))
    try:
        yield
    finally:
        if own is None:
            delattr(where, name)
        else:
            setattr(where, name, own)
