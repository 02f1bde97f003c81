"""A data directory of ``holdfast up`` that is not where it was at its last start: moved, or the copy of another.

Its properties files have absolute paths, so that ``holdfast broker FILE`` works from anywhere. What lay below the old
place is taken from the new one; what lay elsewhere stays where it is, unless a directory that is still there uses it.

Owns that rewriting and the look at what brokers have lost between two starts. Changes no file.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

METADATA_KEYS = ("metadata.log.dir", "metadata.log.dirs")
PATH_KEYS = ("log.dir", "log.dirs", *METADATA_KEYS, "metadata.witness.dirs", "cordoned.log.dirs", "log.file")
"""Keys whose values are directories, by commas."""
FORMATTED = "meta.properties"
"""What every log directory has that a broker has used."""
METADATA_LOG = "__cluster_metadata-0"
ZOOKEEPER_LOGS = os.path.join("zookeeper", "data", "version-2")


class RelocationError(Exception):
    """The directory cannot be used where it is; the message names both places."""


def paths_of(properties: Mapping[str, str], keys: Iterable[str]) -> list[str]:
    """All directories that these keys name, in order."""
    return [path.strip() for key in keys for path in properties.get(key, "").split(",") if path.strip()]


def home_of(properties: Mapping[str, str]) -> str | None:
    """The data directory for which the file was written: the metadata directory lies in it."""
    metadata = paths_of(properties, METADATA_KEYS)
    return os.path.dirname(metadata[0]) if metadata and os.path.isabs(metadata[0]) else None


def taken_over(properties: Mapping[str, str], data_dir: str) -> dict[str, str]:
    """The file of a broker as it reads in ``data_dir``: paths below its old home are below the new one."""
    home = home_of(properties)
    if home is None or home == data_dir:
        return dict(properties)
    return {key: _moved(value, home, data_dir) if key in PATH_KEYS else value for key, value in properties.items()}


def _moved(value: str, home: str, data_dir: str) -> str:
    paths = [path.strip() for path in value.split(",")]
    below = home.rstrip("/") + "/"
    return ",".join(os.path.join(data_dir, p.removeprefix(below)) if p.startswith(below) else p for p in paths)


def refuse_shared(
    data_dir: str, found: Mapping[int, Mapping[str, str]], originals: Mapping[str, Mapping[int, Mapping[str, str]]]
) -> None:
    """RelocationError when a log directory of ``data_dir`` belongs to the one that it is a copy of.

    ``found``: properties by broker as they read in ``data_dir``. ``originals``: by old home, what its files say now;
    a home that is gone has none. Links are followed: a copied link leads to the disk of the original.
    """
    for home, files in originals.items():
        theirs = {os.path.realpath(p): p for properties in files.values() for p in paths_of(properties, PATH_KEYS)}
        for broker_id, properties in sorted(found.items()):
            for path in paths_of(properties, PATH_KEYS):
                if os.path.realpath(path) not in theirs or path == "*":
                    continue
                raise RelocationError(
                    f"{data_dir} is a copy of {home}, and {path} of its broker {broker_id} is a directory of the"
                    f" original: two clusters would write to it. Copy that directory as well and name the copy in"
                    f" {data_dir}/broker-{broker_id}.properties, or remove {home} when it is not used any more"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """Brokers that ran before and whose log directories all hold nothing now."""

    brokers: Mapping[int, Sequence[str]]
    """Their directories, by broker."""
    all_of_them: bool
    """No broker of the cluster has anything left, and the cluster had decided something."""

    def lines(self) -> list[str]:
        return [
            f"broker {broker_id}: none of its log directories holds anything ({', '.join(paths)}): what only they held"
            " is lost, the rest comes from the other brokers. If a disk is not mounted: stop, mount it, start again"
            for broker_id, paths in sorted(self.brokers.items())
        ]


def emptied(data_dir: str, found: Mapping[int, Mapping[str, str]]) -> Emptied:
    """``found``: properties by broker as they read in ``data_dir``."""
    metadata = sorted({p for properties in found.values() for p in paths_of(properties, METADATA_KEYS)})
    begun = _has_zookeeper(data_dir) or any(map(_has_log, metadata or [os.path.join(data_dir, "metadata")]))
    if not begun:  # the first start was cut short, or everything was wiped: a new cluster
        return Emptied(brokers={}, all_of_them=False)
    dirs = {broker_id: paths_of(properties, ("log.dirs",)) for broker_id, properties in found.items()}
    new = {broker_id: paths for broker_id, paths in dirs.items() if paths and all(map(_is_new, paths))}
    return Emptied(brokers=new, all_of_them=bool(new) and len(new) == len(found))


def _is_new(path: str) -> bool:
    """No broker has used it. One that cannot be looked into may have been used."""
    try:
        return FORMATTED not in os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def _has_zookeeper(data_dir: str) -> bool:
    """Whether the server beside the brokers has ever been told something."""
    try:
        return any(name.startswith("log.") for name in os.listdir(os.path.join(data_dir, ZOOKEEPER_LOGS)))
    except OSError:
        return False


def _has_log(metadata_dir: str) -> bool:
    try:
        with os.scandir(os.path.join(metadata_dir, METADATA_LOG)) as entries:
            return any(e.name.endswith((".log", ".checkpoint")) and e.stat().st_size > 0 for e in entries)
    except OSError:
        return False
