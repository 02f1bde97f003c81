"""What a broker asks of the machine that it runs on: files, threads, clocks, a listening socket, chance.

Owns the list of these things and nothing else. ``Platform.real`` is the process as it is; the simulation gives a
broker another one, under which the same shell runs in virtual time on disks and networks that fail by a seed
(DESIGN 3.8). Connections to other brokers are made by the event loop, which is the simulation's own there.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol
from uuid import UUID, uuid4

from holdfast.broker.closer import Closer
from holdfast.broker.disk_io import DiskThread
from holdfast.broker.listening import listen
from holdfast.broker.turn_order import TurnOrder
from holdfast.coordination.lanes import Lanes, ThreadLanes
from holdfast.coordination.stores import EnsembleClients, ensemble_clients
from holdfast.storage.files import FileSystem, OsFiles
from holdfast.storage.upkeep import UNCHECKED_BATCHES

TICK_S = 0.02


def _boot_id() -> str | None:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip() or None
    except OSError:
        return None


def _start_process(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Python with these arguments. It has none of our descriptors but standard error."""
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


class WorkThread(Protocol):
    """A thread of its own for what blocks: some per log directory, one for the metadata store, one for its claim."""

    completed: int
    """Pieces of work whose ``done`` has run."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any, Any], None]) -> None:
        """Run ``work`` in turn, then ``done(result, error)`` on the loop."""

    def close(self) -> None:
        """End after what is queued."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """See the module's docstring. Times are seconds."""

    files: FileSystem
    wall_s: Callable[[], float]
    """Seconds since 1970; may jump."""
    monotonic_s: Callable[[], float]
    thread: Callable[[str, asyncio.AbstractEventLoop], WorkThread]
    listen: Callable[[str, int], socket.socket]
    rng: random.Random
    new_id: Callable[[], UUID]
    random_bytes: Callable[[int], bytes] = secrets.token_bytes
    """What nobody can guess: nonces and salts of logins."""
    lanes: Callable[[str], Lanes] = ThreadLanes
    """Threads for directories of which no one may hold up the others: those of the metadata."""
    ensemble: EnsembleClients = ensemble_clients
    """Clients of a ZooKeeper ensemble, where the metadata is in one."""
    boot_id: str | None = None
    """Differs from one boot of the machine to the next; None: not known, then every crash counts as the machine's."""
    start_process: Callable[[Sequence[str]], subprocess.Popen[bytes]] | None = None
    """Another process of this program, with pipes to its standard input and output; None where there is none."""
    tick_s: float = TICK_S
    """How late a deadline of replication or of a group may be noticed."""
    unchecked_batches: int = UNCHECKED_BATCHES
    """A log's recovery point moves within its active segment after so many."""
    works_on: Callable[[str, Iterable[object]], None] = lambda path, threads: None
    """Told which threads touch a log directory."""
    turn_order: TurnOrder = dataclasses.field(default_factory=TurnOrder)
    """Who is served first by the loop that the broker runs on."""

    @classmethod
    def real(cls, closer: Closer | None = None) -> Platform:
        """This process on this machine; ``closer`` closes what it holds when it is killed."""
        if closer is None:
            return cls._plain(OsFiles(), DiskThread)

        def thread(name: str, loop: asyncio.AbstractEventLoop) -> DiskThread:
            made = DiskThread(name, loop)
            closer.thread_made(made)
            return made

        def lanes(name: str) -> Lanes:
            return ThreadLanes(name, closer.thread_made)

        return dataclasses.replace(cls._plain(OsFiles(closer), thread), works_on=closer.works_on, lanes=lanes)

    @classmethod
    def _plain(cls, files: FileSystem, thread: Callable[[str, asyncio.AbstractEventLoop], WorkThread]) -> Platform:
        return cls(
            files=files,
            wall_s=time.time,
            monotonic_s=time.monotonic,
            thread=thread,
            listen=listen,
            rng=random.Random(),
            new_id=uuid4,
            boot_id=_boot_id(),
            start_process=_start_process,
        )
