"""``holdfast demo --lose-a-disk``: the log directory with the leader of one partition dies, and comes back healed.

    half acked: its file system is shut down --> leaders elsewhere take over --> repaired, mounted, `log-dirs online`
                                                                                 --> every replica in sync again

Owns the disk, its death and what is measured of it. The broker's process goes on all the while.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.cli.demo_report import LostDisk
from holdfast.client.admin import AdminClient
from holdfast.client.disks import change_disk, describe_disks
from holdfast.client.views import DiskView
from holdfast.protocol.operating import DirAction
from holdfast.testing import Cluster, Disk, DiskFaultUnavailable, wait_for
from holdfast.testing.disks import EioDisk, ReplacedDisk

if TYPE_CHECKING:
    from holdfast.cli.demo_ledger import Ledger

DISK_BYTES = 512 << 20
PROBE_MS = 500
"""Where files that are open go on working only the probe finds out: more often than by default."""
LIMIT_S = 60.0
ACKS_BEFORE_HEALING = 50_000


class DyingDisk(EioDisk):
    """A file system of its own in an image file, shut down by its own ioctl: EIO from every call on every file."""

    def __init__(self, path: Path, images: Path, *, user: int | None = None, size: int = DISK_BYTES) -> None:
        super().__init__(path, images, user=user, size=size)


class DiskDeath(NamedTuple):
    """How disks are made to die, in words, and the settings that it needs."""

    kind: type[Disk]
    how: str
    settings: Mapping[str, str]


WAYS: Final = (
    DiskDeath(DyingDisk, "its ext4 is shut down: EIO from every call", {}),
    DiskDeath(
        ReplacedDisk,
        f"moved away, a file in its place; found by the probe, every {PROBE_MS} ms",
        {"log.dir.probe.interval.ms": str(PROBE_MS)},
    ),
)
"""The most real one first; the last one needs nothing."""


def start_cluster(
    brokers: int, log_dirs: int, say: Callable[[str], None], ways: Sequence[DiskDeath] = WAYS
) -> tuple[Cluster, str]:
    """A running cluster all of whose log directories can die, and how they will: the first way that works here."""
    places = [(broker, number) for broker in range(1, brokers + 1) for number in range(1, log_dirs + 1)]
    for way in ways:
        disks = dict.fromkeys(places, way.kind)
        cluster = Cluster(brokers=brokers, log_dirs=log_dirs, settings=way.settings, disks=disks)
        try:
            return cluster.__enter__(), way.how
        except DiskFaultUnavailable as e:
            say(f"[yellow]no disks that really die here[/yellow] ({e}): taking the directory away instead")
    raise AssertionError("moving a directory needs nothing")


def ask(cluster: Cluster, broker: int, action: DirAction, path: str) -> DiskView:
    """One request about a directory, and how it is then."""

    async def run() -> DiskView:
        async with AdminClient(cluster.bootstrap, client_id="holdfast-demo") as client:
            if action is DirAction.DESCRIBE:
                view = await describe_disks(client, broker)
            else:
                view = await change_disk(client, broker, action, path)
            return next(d for d in view.disks if d.path == path)

    return asyncio.run(run())


class DiskLoss:
    """One directory's death and return."""

    def __init__(self, cluster: Cluster, topic: str, how: str, say: Callable[[str], None]) -> None:
        self.cluster, self.topic, self.how, self.say = cluster, topic, how, say

    def happen(
        self, ledger: Ledger, rows: int, wait_until: Callable[[Callable[[], Any]], None], is_in_sync: Callable[[], bool]
    ) -> LostDisk:
        """The disk of the leader of partition 0 dies now. ``wait_until`` waits while the load goes on."""
        cluster, topic = self.cluster, self.topic
        view = cluster.describe([topic])
        victim = view.partitions[topic, 0].leader
        assert victim is not None, "the topic is in sync when the load begins"
        disk = cluster.disk_of(victim, topic, 0)
        path = str(disk.path)
        here = {name.rpartition("-")[2] for name in os.listdir(path) if name.rpartition("-")[0] == topic}
        led = sorted(p for (_, p), seen in view.partitions.items() if seen.leader == victim and str(p) in here)
        pid = cluster.pids()[victim]
        failed_s, failed_wall_s = time.monotonic(), time.time()
        disk.fail()
        self.say(
            f"[red]a disk dies[/red]: {disk.path.name} of broker {victim}, with {len(here)} replicas, leader of"
            f" partitions {led} ({self.how})"
        )
        moved_s = self._wait_for_leaders(victim, led)
        seen_disk = ask(cluster, victim, DirAction.DESCRIBE, path)
        detected_s = (seen_disk.since_ms or 0) / 1000 - failed_wall_s
        acked = ledger.acked
        wait_until(lambda: ledger.acked >= min(acked + ACKS_BEFORE_HEALING, rows))
        self.say(f"broker {victim} goes on with its other directory: {seen_disk.reason}")
        resumed = ledger.first_acks_s(moved_s)
        healed_s = self._heal(disk, victim, path)
        wait_until(is_in_sync)
        back_s = time.monotonic() - healed_s
        self.say(f"every replica is in sync again, {back_s:.1f} s after that; no process was restarted")
        return LostDisk(
            broker=victim,
            path=path,
            how=self.how,
            replicas=len(here),
            led=tuple(led),
            detected_s=detected_s,
            resumed_s=max(resumed.values(), default=failed_s) - failed_s,
            back_in_sync_s=back_s,
            same_process=cluster.live().get(victim) == pid,
        )

    def _wait_for_leaders(self, victim: int, led: list[int]) -> dict[int, float]:
        """When another broker first said that somebody else leads, by partition; looked at as often as possible."""
        other = next(broker for broker in self.cluster.live() if broker != victim)
        moved_s: dict[int, float] = {}

        def have_moved() -> bool:
            view, now_s = self.cluster.describe([self.topic], broker=other), time.monotonic()
            for partition in led:
                if view.partitions[self.topic, partition].leader not in (None, victim):
                    moved_s.setdefault(partition, now_s)
            return len(moved_s) == len(led)

        wait_for(have_moved, "other brokers to lead what was on the disk", timeout_s=LIMIT_S, interval_s=0.002)
        return moved_s

    def _heal(self, disk: Disk, victim: int, path: str) -> float:
        """Repair it as a person would and have it used again; when that was asked for."""

        def repaired() -> bool:
            try:
                disk.heal()
            except OSError:  # the last of its files is not closed yet
                return False
            return True

        wait_for(repaired, f"{path} to be repaired", timeout_s=LIMIT_S, interval_s=0.05)
        self.say(f"the disk is repaired: holdfast log-dirs online --broker {victim} {path}")
        asked_s = time.monotonic()
        ask(self.cluster, victim, DirAction.ONLINE, path)
        return asked_s
