"""One of the two directories of the metadata fails, on top of whatever else happens, and is repaired.

    both copies good -> one fails -> some seconds -> repair -> both copies good again, or it is stuck

Owns the two disks and what becomes of them. Every fault is of one copy at a time: the other one keeps what the cluster
has decided. What the brokers say of the copies is read from their notes in the log directories.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast.testing import mounts
from holdfast.testing.disks import fill
from tests.chaos.replicas import NOTES

Steps = Iterator[float]

DIRECTORIES = ("metadata-1", "metadata-2")
KINDS = ("dead", "frozen", "full", "read-only", "wiped", "unmounted")
"""What befalls a copy. One that was dead, read-only or unmounted is replaced by an empty disk."""
LASTS_S = (3.0, 20.0)
WHOLE_S = 60
LOOK_S = 0.25
SIZE = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFault:
    """Part of a round. ``choice``: which copy, and what befalls it."""

    choice: int
    after_s: float
    lasts_s: float

    @property
    def directory(self) -> str:
        return DIRECTORIES[self.choice % 2]

    @property
    def kind(self) -> str:
        return KINDS[self.choice // 2 % len(KINDS)]

    def __str__(self) -> str:
        return f"metadata #{self.choice}, after {self.after_s:.1f} s for {self.lasts_s:.1f} s"


def metadata_faults(seed: int, rounds: int, every: float) -> tuple[MetadataFault | None, ...]:
    """One for each round, or none; ``every``: in which part of the rounds. Pure."""
    rng = random.Random(f"metadata {seed}")
    return tuple(
        MetadataFault(
            choice=rng.randrange(1000), after_s=round(rng.uniform(0, 3), 2), lasts_s=round(rng.uniform(*LASTS_S), 2)
        )
        if rng.random() < every
        else None
        for _ in range(rounds)
    )


class MetadataDisks:
    """The disks of a run, an ext4 each, below ``cluster``."""

    def __init__(self, cluster: Path, images: Path, user: int) -> None:
        self._images, self._cluster, self._user = images, cluster, user
        self.paths = [cluster / name for name in DIRECTORIES]
        self.counts: Counter[str] = Counter()
        self.bad: set[Path] = set()
        """Something was wrong with these at some time."""
        self._made = 0
        images.mkdir(parents=True, exist_ok=True)
        for path in self.paths:
            path.mkdir(parents=True, exist_ok=True)
            self._mount_new(path)

    def _mount_new(self, path: Path) -> None:
        """A new, empty disk."""
        self._made += 1
        image = self._images / f"{path.name}-{self._made}.img"
        mounts.make_ext4("metadata", image, SIZE)
        mounts.mount_ext4("metadata", image, path)
        os.chown(path, self._user, self._user)

    def close(self) -> None:
        """They are unmounted; their images stay, below the directory of the run."""
        for path in self.paths:
            mounts.unmount_below(path)

    def steps(self, fault: MetadataFault, found: Callable[[str, str], None]) -> Steps:
        """Begins when it is first advanced; over when both copies are good again."""
        path, kind = self._cluster / fault.directory, fault.kind
        yield from self._until_whole(found, "before a fault")
        if not self._are_good():
            return
        self.counts[f"metadata directory: {kind}"] += 1
        self.bad.add(path)
        undo = self._fail(path, kind)
        yield fault.lasts_s
        undo()
        yield from self._until_whole(found, f"after {kind} of {path.name}")

    def _fail(self, path: Path, kind: str) -> Callable[[], None]:
        """It fails; returned is what repairs it."""
        match kind:
            case "dead":
                mounts.ioctl(path, mounts.EXT4_SHUTDOWN, mounts.NO_LOG_FLUSH)
                return partial(self._replace, path)
            case "read-only":
                trigger = Path(f"/sys/fs/ext4/loop{mounts.device_of(path)[1]}/trigger_fs_error")
                trigger.write_text("x")
                return partial(self._replace, path)
            case "frozen":
                mounts.ioctl(path, mounts.FIFREEZE)
                return partial(mounts.ioctl, path, mounts.FITHAW)
            case "full":
                filler = path / "somebody-elses-data"
                fd = os.open(filler, os.O_CREAT | os.O_RDWR)
                fill(fd)
                os.close(fd)
                return filler.unlink
            case "wiped":
                for each in path.iterdir():
                    if each.is_dir():
                        shutil.rmtree(each, ignore_errors=True)
                    else:
                        each.unlink(missing_ok=True)
                return lambda: None
            case _:
                mounts.run("metadata", "umount", "-l", path)
                return partial(self._mount_new, path)

    def _replace(self, path: Path) -> None:
        mounts.run("metadata", "umount", "-l", path)
        self._mount_new(path)

    # -- what the notes say ------------------------------------------------------------------------------------

    def _until_whole(self, found: Callable[[str, str], None], when: str) -> Steps:
        limit = time.monotonic() + WHOLE_S
        while not self._are_good():
            if time.monotonic() > limit:
                found("stuck", f"the copies of the metadata are not both good {WHOLE_S} s {when}: {self._good()}")
                return
            yield LOOK_S

    def _are_good(self) -> bool:
        return self._good() == {str(path) for path in self.paths}

    def _good(self) -> set[str]:
        """Paths of the copies that the newest note names."""
        newest: tuple[tuple[int, int], set[str]] = ((-1, -1), set())
        for file in self._cluster.glob(f"broker-*/log-dir-*/{NOTES}/*.json"):
            try:
                note = json.loads(file.read_bytes())
            except (OSError, ValueError):
                continue
            newest = max(newest, ((note["epoch"], note["number"]), set(note["copies"].values())), key=lambda n: n[0])
        return newest[1]
