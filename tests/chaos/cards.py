"""Everything that a seed draws, in words: rounds, and what happens besides on runs with disks.

Pure, and shown by ``--plan`` with how often each card comes: a card that is never drawn proves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.brokers import LOG_DIRS
from tests.chaos.cordons import COUNTED, Cordon, cordons
from tests.chaos.disks import DiskFault, able, disk_faults, disk_kinds, host_disk_kinds
from tests.chaos.metadata_disks import MetadataFault, metadata_faults
from tests.chaos.schedule import Round

DISKS_IN = 0.7
"""In which part of the rounds a disk fails too: every 30 s, where a round takes 20."""
METADATA_IN = 0.35
"""In which part of the rounds a directory of the metadata fails too."""
CORDONS_IN = 0.6
"""In which part of the rounds without a disk fault a directory is cordoned: a replica that lost its disk must find
another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What happens in a round besides its faults, on runs with disks."""

    disk: DiskFault | None
    metadata: MetadataFault | None
    cordon: Cordon | None

    @property
    def name(self) -> str:
        parts = ("a disk", self.disk), ("the metadata", self.metadata), ("a cordon", self.cordon)
        return "".join(f" + {name}" for name, part in parts if part is not None)


def extras(seed: int, rounds: Sequence[Round], *, with_disks: bool, with_metadata: bool = True) -> list[Extras]:
    """For each round; nothing without disks. No disk fails on a host without power: a power cut is enough for what was
    not flushed. ``with_metadata``: there are directories of the embedded store. Pure."""
    drawn = zip(
        rounds,
        disk_faults(seed, len(rounds), DISKS_IN if with_disks else 0),
        metadata_faults(seed, len(rounds), METADATA_IN if with_disks and with_metadata else 0),
        cordons(seed, len(rounds), CORDONS_IN if with_disks else 0),
        strict=True,
    )
    found = []
    for planned, drawn_disk, metadata, cordon in drawn:
        disk = None if any(fault.kind.cuts_power for fault in planned.faults) else drawn_disk
        found.append(Extras(disk=disk, metadata=metadata, cordon=cordon if disk is None else None))
    return found


def others_may_go(planned: Round) -> bool:
    """Whether other brokers may be killed in a round while a disk is bad."""
    return any(fault.kind.kills > 1 for fault in planned.faults) or len(planned.faults) > 1


def shown(
    seed: int,
    rounds: Sequence[Round],
    brokers: Sequence[int],
    *,
    with_disks: bool,
    with_metadata: bool = True,
    on_hosts: bool = False,
) -> list[str]:
    """A line a round, then one a card with how often it is drawn."""
    numbered = ((b, k) for b in brokers for k in range(1, LOG_DIRS + 1))
    places = list(zip(numbered, disk_kinds(seed, brokers), strict=True))
    if on_hosts:
        places = list(host_disk_kinds(seed, brokers).items())
    lines: list[str] = []
    counts: Counter[str] = Counter()
    more = extras(seed, rounds, with_disks=with_disks, with_metadata=with_metadata)
    for planned, besides in zip(rounds, more, strict=True):
        parts = [str(planned)]
        counts.update(fault.kind.value for fault in planned.faults)
        if (disk := besides.disk) is not None:
            fit = [place for place in places if able(place[1], others_may_go=others_may_go(planned))]
            (broker, number), kind = fit[disk.choice % len(fit)]
            lasts_s = disk.hangs_s if kind == "frozen" else disk.lasts_s
            parts.append(f"broker {broker}, log-dir-{number} {kind}, after {disk.after_s:.1f} s for {lasts_s:.1f} s")
            counts[f"disk: {kind}"] += 1
        if (metadata := besides.metadata) is not None:
            when = f"after {metadata.after_s:.1f} s for {metadata.lasts_s:.1f} s"
            parts.append(f"{metadata.directory} {metadata.kind}, {when}")
            counts[f"metadata directory: {metadata.kind}"] += 1
        if (cordon := besides.cordon) is not None:
            parts.append(str(cordon))
            counts[COUNTED] += 1
        lines.append("; ".join(parts))
    return [*lines, "", *(f"{count:5}  {name}" for name, count in sorted(counts.items()))]
