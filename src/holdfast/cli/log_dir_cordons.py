"""``holdfast log-dirs cordon`` and ``uncordon``: which directories take no new replicas.

Owns what the two commands ask for and say; what a cordon is as a configuration is client/cordons.py's.
"""

from collections.abc import Sequence

from holdfast.client.admin import AdminClient
from holdfast.client.cordons import cordon, cordon_config
from holdfast.client.disks import describe_disks, same_path
from holdfast.client.views import DiskView
from holdfast.model.config import ALL_DIRS, cordoned_entries
from holdfast.model.errors import LogDirNotFoundError
from holdfast.model.types import BrokerId


async def change_cordon(client: AdminClient, broker: BrokerId, paths: Sequence[str], *, on: bool) -> list[str]:
    """Have these directories cordoned, or not any more; no paths: all. Lines that say how it is then."""
    disks = (await describe_disks(client, broker)).disks
    named = [_find(broker, disks, path) for path in paths] or list(disks)
    names_all = ALL_DIRS in cordoned_entries((await cordon_config(client, broker)).value)
    if not paths:
        wanted = [ALL_DIRS] if on else []
    elif on and names_all:
        wanted = [ALL_DIRS]
    else:
        wanted = [d.path for d in disks if (on if d in named else d.cordoned)]
    await cordon(client, broker, wanted)
    return [_line(broker, d, on) for d in named] + _in_all(broker, disks, named, on)


def _find(broker: BrokerId, disks: Sequence[DiskView], path: str) -> DiskView:
    found = next((d for d in disks if same_path(d.path, path)), None)
    if found is None:
        there = ", ".join(d.path for d in disks)
        raise LogDirNotFoundError(f"{path} is no log directory of broker {broker}: expected one of {there}")
    return found


def _line(broker: BrokerId, disk: DiskView, on: bool) -> str:
    held = sum(not r.future for r in disk.replicas)
    if on:
        already = " already" if disk.cordoned else ""
        return f"broker {broker}: {disk.path} is cordoned{already}: it takes no new replicas, and holds {held}"
    already = "was not cordoned" if not disk.cordoned else "is not cordoned any more"
    return f"broker {broker}: {disk.path} {already}: it takes new replicas"


def _in_all(broker: BrokerId, disks: Sequence[DiskView], named: Sequence[DiskView], on: bool) -> list[str]:
    if on and all(d.cordoned or d in named for d in disks):
        return [f"broker {broker}: all its log directories are cordoned: new topics are placed on other brokers"]
    return []
