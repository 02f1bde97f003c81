"""What a rolling restart remembers between two runs: a small file, there from its first restart to its end.

    {"version": 1, "cluster_id": ..., "began_ms": ..., "brokers": [1, 2, 3], "done": [1], "restarting": 2,
     "bad": [{"broker": 3, "log_dir": "/disk2", "state": "offline"}]}

``restarting``: the broker that was being restarted; ``bad``: log directories that were not online when the run began.
Owns the file: one run at a time has it, by a lock; it is written in place, synced, and removed at the end.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from holdfast.cli.failing import Failed
from holdfast.client.restart_rules import BadDirectory
from holdfast.model.types import BrokerId

VERSION: Final = 1
MOST_BYTES: Final = 1 << 20


@dataclass(slots=True, kw_only=True)
class RollingProgress:
    """How far a run has come."""

    cluster_id: str
    began_ms: int
    brokers: frozenset[BrokerId]
    bad: frozenset[BadDirectory]
    done: set[BrokerId] = field(default_factory=set)
    restarting: BrokerId | None = None

    def document(self) -> str:
        """As the file has it."""
        return json.dumps(
            {
                "version": VERSION,
                "cluster_id": self.cluster_id,
                "began_ms": self.began_ms,
                "brokers": sorted(self.brokers),
                "done": sorted(self.done),
                "restarting": self.restarting,
                "bad": [{"broker": b.broker, "log_dir": b.log_dir, "state": b.state} for b in sorted(self.bad)],
            }
        )


def parsed(text: str) -> RollingProgress:
    """ValueError says what is wrong with it. Pure."""
    try:
        found: Any = json.loads(text)
        if found["version"] != VERSION:
            raise ValueError(f"version {found['version']!r}: expected {VERSION}")
        return RollingProgress(
            cluster_id=str(found["cluster_id"]),
            began_ms=int(found["began_ms"]),
            brokers=frozenset(map(int, found["brokers"])),
            done=set(map(int, found["done"])),
            restarting=None if found["restarting"] is None else int(found["restarting"]),
            bad=frozenset(
                BadDirectory(broker=int(b["broker"]), log_dir=str(b["log_dir"]), state=str(b["state"]))
                for b in found["bad"]
            ),
        )
    except (TypeError, KeyError, json.JSONDecodeError) as e:
        raise ValueError(f"expected what an earlier run has written ({type(e).__name__}: {e})") from e


def begun(cluster_id: str, brokers: Iterable[BrokerId], bad: frozenset[BadDirectory]) -> RollingProgress:
    """A run that begins now."""
    return RollingProgress(
        cluster_id=cluster_id, began_ms=time.time_ns() // 1_000_000, brokers=frozenset(brokers), bad=bad
    )


class StateFile:
    """``with StateFile(path) as state:`` holds the lock. Failed names the file and what is wrong with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._fd)
                raise Failed(f"{self.path} is in use: another rolling restart of this cluster runs") from None
            if os.fstat(self._fd).st_nlink:  # else the run that had it has ended just now
                return self
            os.close(self._fd)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.fstat(self._fd).st_size == 0 and os.fstat(self._fd).st_nlink:  # nothing to remember
            self.remove()
        os.close(self._fd)

    def read(self) -> RollingProgress | None:
        """Of the run that did not come to its end; None: there is none."""
        data = os.pread(self._fd, MOST_BYTES, 0)
        if not data:
            return None
        try:
            return parsed(data.decode())
        except ValueError as e:
            raise Failed(f"{self.path}: {e}: --anew begins without it") from e

    def write(self, progress: RollingProgress) -> None:
        """What is written is on the disk when it returns."""
        data = progress.document().encode() + b"\n"
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, data, 0)
        os.fsync(self._fd)

    def remove(self) -> None:
        """The run has come to its end."""
        self.path.unlink(missing_ok=True)
