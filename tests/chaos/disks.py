"""Log directories on disks that fail, one at a time, on top of whatever else happens to their brokers.

    wait for the broker to run -> fail -> some seconds -> repair -> ``holdfast log-dirs online`` -> it is used again

Owns the disks and the scratch directory of a run, which two directories of each broker are how, and the account of when
each was bad. A directory that is told offline outside that time was healthy: ``found``.
"""

from __future__ import annotations

import datetime
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.testing import FAULTS, Disk, DiskFaultUnavailable, mounts
from holdfast.testing.disks import FrozenDisk
from holdfast.testing.users import NOBODY, Reachable, can_enter
from holdfast.testing.view import ask_log_dirs
from tests.chaos.brokers import LOG_DIRS, Brokers
from tests.chaos.metadata_disks import MetadataDisks

Steps = Iterator[float]

KINDS = (("eio", "mode-000"), ("full", "read-only"), ("immutable", "unmounted"), ("frozen", "replaced"))
"""What the disks of a broker can do. A run draws for each broker two of these pairs, a kind for each directory."""
LOSES = frozenset(("eio", "read-only"))
"""What had not been flushed is gone when these are mounted again: not while all other replicas may be killed."""
LASTS_S = (3.0, 9.0)
HANGS_S = (3.0, 120.0)
"""A disk that does not answer: longer than any timeout of a broker, a client or a session."""
LOOK_S = 0.2
START_S = 60
REPAIR_S = 60
SLACK_S = 3.0
UNEXPECTED = re.compile("Traceback|unexpected error|never retrieved")
OFFLINE = re.compile(r"(?m)^\[(\S+Z)\].* log dir (\S+) is offline: (.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFault:
    """Part of a round. ``choice``: which disk."""

    choice: int
    after_s: float
    lasts_s: float
    hangs_s: float
    """Instead, if it is one that hangs."""

    def __str__(self) -> str:
        return f"disk #{self.choice}, after {self.after_s:.1f} s for {self.lasts_s:.1f} s ({self.hangs_s:.1f} s)"


def disk_faults(seed: int, rounds: int, every: float) -> tuple[DiskFault | None, ...]:
    """One for each round, or none; ``every``: in which part of the rounds. Pure."""
    rng = random.Random(f"disks {seed}")
    return tuple(
        DiskFault(
            choice=rng.randrange(1000),
            after_s=round(rng.uniform(0, 3), 2),
            lasts_s=round(rng.uniform(*LASTS_S), 2),
            hangs_s=round(rng.uniform(*HANGS_S), 2),
        )
        if rng.random() < every
        else None
        for _ in range(rounds)
    )


def disk_kinds(seed: int, brokers: Sequence[int]) -> list[str]:
    """What each disk can do, for all directories of the first broker, of the second, and so on. Pure."""
    rng = random.Random(f"kinds {seed}")
    kinds = [kind for pair in rng.sample(KINDS, len(KINDS)) for kind in pair]
    return [kinds[number % len(kinds)] for number in range(len(brokers) * LOG_DIRS)]


def host_disk_kinds(seed: int, hosts: Sequence[int]) -> dict[tuple[int, int], str]:
    """By host and number. Brokers on hosts are root, whom permissions do not stop. Pure."""
    rng = random.Random(f"kinds {seed}")
    kinds = [kind for pair in KINDS for kind in pair if not FAULTS[kind].needs_user]
    places = [(host, number) for host in hosts for number in range(1, LOG_DIRS + 1)]
    return dict(zip(places, rng.sample(kinds, len(places)), strict=True))


def able(kind: str, *, others_may_go: bool) -> bool:
    """Whether a disk of this kind may fail now."""
    return not (others_may_go and kind in LOSES)


def wrongly_offline(log: str, bad: Mapping[str, Sequence[tuple[float, float]]]) -> list[str]:
    """Lines of a broker's log that say of a directory that it is offline at a time when nothing was wrong with it."""
    wrong = []
    for match in OFFLINE.finditer(log):
        moment = datetime.datetime.fromisoformat(match[1]).timestamp()
        windows = bad.get(match[2], [])
        if not any(began - SLACK_S <= moment <= ended + SLACK_S for began, ended in windows):
            wrong.append(match[0])
    return wrong


class Disks:
    """The disks of a run: whose, of which kind by its name in FAULTS, and the disk."""

    metadata: MetadataDisks | None = None

    def __init__(self, disks: Sequence[tuple[int, str, Disk]]) -> None:
        self.all = list(disks)
        self.counts: Counter[str] = Counter()
        self.bad: dict[str, list[tuple[float, float]]] = {}
        """Path -> from when to when (wall clock) it may be told offline."""

    def names(self) -> list[str]:
        return [f"broker {broker}, {disk.path.name}: {disk.name}" for broker, _, disk in self.all]

    # -- a fault -----------------------------------------------------------------------------------------------

    def steps(
        self,
        fault: DiskFault,
        brokers: Brokers,
        found: Callable[[str, str], None],
        *,
        others_may_go: bool,
        more_s: float = 0,
    ) -> Steps:
        """Begins when it is first advanced; over when the directory is used again. ``others_may_go``: two or more
        brokers are killed in this round. ``more_s``: how long there may be no controller."""
        fit = [(b, n, d) for b, n, d in self.all if able(n, others_may_go=others_may_go)]
        broker, _, disk = fit[fault.choice % len(fit)]
        limit = time.monotonic() + START_S
        while not _serves(brokers, broker) and time.monotonic() < limit:
            yield LOOK_S
        self.counts[f"disk: {disk.name}"] += 1
        began = time.time()
        windows = self.bad.setdefault(str(disk.path), [])
        windows.append((began, float("inf")))
        disk.fail()
        yield fault.hangs_s if isinstance(disk, FrozenDisk) else fault.lasts_s
        yield from self._repair(disk, broker, brokers, found)
        if disk.is_dead:
            yield from self._use_again(disk, broker, brokers, found, START_S + more_s)
        windows[-1] = (began, time.time())

    def _repair(self, disk: Disk, broker: int, brokers: Brokers, found: Callable[[str, str], None]) -> Steps:
        limit = time.monotonic() + REPAIR_S
        while disk.failed:
            try:
                disk.heal()
                return
            except OSError as error:
                if time.monotonic() > limit:
                    held = ", ".join(brokers.open_files(broker, disk.path)[:10])
                    found("held", f"broker {broker} keeps {held or 'something'} of {disk.path} open: {error}")
                    brokers.kill(broker)
                    limit += REPAIR_S
            yield LOOK_S

    def _use_again(
        self, disk: Disk, broker: int, brokers: Brokers, found: Callable[[str, str], None], limit_s: float
    ) -> Steps:
        """By the operator's command, unless the broker has been started meanwhile and has found it well."""
        limit, said = time.monotonic() + limit_s, "it was never asked"
        while time.monotonic() < limit:
            if _serves(brokers, broker):
                if _error_of(brokers, broker, disk.path) == 0:
                    return
                command = ("log-dirs", "online", *brokers.options(broker), "--broker", str(broker))
                asking = subprocess.Popen(
                    (sys.executable, "-m", "holdfast.cli.main", *command, str(disk.path)),
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )  # fmt: skip
                while asking.poll() is None:
                    yield LOOK_S
                said = asking.communicate()[0]
            yield LOOK_S
        found("stuck", f"{disk.path} is not used again after it was repaired: {said}")

    # -- the account -------------------------------------------------------------------------------------------

    def wrongly_offline(self, log: str) -> list[str]:
        """See the function of that name."""
        return wrongly_offline(log, self.bad)

    def explains(self, line: str) -> bool:
        """Whether an error in a broker's log is about a disk that was bad then or is of such a disk. One that nobody
        expected is not explained by a disk: whatever a disk says has a type by then."""
        if UNEXPECTED.search(line):
            return False
        bad = [*self.bad, *map(str, self.metadata.bad if self.metadata is not None else ())]
        return any(path in line for path in bad)


class LocalDisks(Disks):
    """On this machine; ``close`` unmounts them. Brokers run as nobody, so that permissions count. ``metadata``: those
    of the embedded store can fail too."""

    def __init__(self, directory: Path, brokers: tuple[int, ...], seed: int, *, metadata: bool) -> None:
        super().__init__([])
        self.scratch = mounts.scratch()
        self.user = NOBODY
        if not can_enter(self.user, directory):
            raise DiskFaultUnavailable(f"user {self.user} cannot enter {directory}: choose another --dir")
        (self.scratch / mounts.ALSO).write_text(f"{directory}\n")  # unmounted by the next run if this one is killed
        self._images = directory / "disks"
        self._images.mkdir(parents=True)
        kinds = iter(disk_kinds(seed, brokers))
        for broker in brokers:
            for number in range(1, LOG_DIRS + 1):
                name = next(kinds)
                path = directory / "cluster" / f"broker-{broker}" / f"log-dir-{number}"
                disk = FAULTS[name](path, self._images, user=self.user, size=512 << 20)
                self.all.append((broker, name, disk))
        if metadata:
            self.metadata = MetadataDisks(directory / "cluster", self._images, self.user)
        for path in (directory, directory / "cluster"):
            os.chown(path, self.user, self.user)
        self._reachable = Reachable(self.user, self.scratch)

    def python(self) -> tuple[str, dict[str, str]]:
        """An interpreter that brokers can run."""
        return self._reachable.python()

    def close(self) -> None:
        """The images of ext4 stay, below the directory of the run."""
        for _, _, disk in self.all:
            mounts.unmount_below(disk.path)
        if self.metadata is not None:
            self.metadata.close()
        mounts.remove(self.scratch)


def _serves(brokers: Brokers, broker: int) -> bool:
    return brokers.runs(broker) and not brokers.is_frozen(broker) and brokers.view(broker, []) is not None


def _error_of(brokers: Brokers, broker: int, path: Path) -> int | None:
    try:
        seen = ask_log_dirs(*brokers.asked(broker), timeout_s=2, tls=brokers.tls)
    except OSError:
        return None
    return seen[str(path)].error if str(path) in seen else None
