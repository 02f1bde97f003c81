"""``holdfast log-dirs inspect``: whose a directory is and what is in it, read from the directory itself.

For a disk on the bench: no broker is asked, and nothing is changed.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import click

from holdfast.cli.connecting import json_option
from holdfast.cli.failing import Failed, OneLineCommand
from holdfast.storage.files import OsFiles
from holdfast.storage.log_dir import META_PROPERTIES, read_meta_properties

KINDS = {"future": "on their way here", "delete": "being deleted", "stray": "set aside"}
"""What a partition's folder ends with, and what it is then."""
FOLDER = re.compile(r".+-\d+(?:\.[0-9a-zA-Z_-]+-(future|delete|stray))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """One directory. ``broker``, ``cluster_id`` and ``directory_id``: as it says itself; None: it does not."""

    path: str
    broker: int | str | None
    cluster_id: str | None
    directory_id: str | None
    partitions: int
    future: int
    delete: int
    stray: int


@click.command(cls=OneLineCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@json_option()
def inspect(paths: tuple[str, ...], as_json: bool) -> None:
    """Say whose the directories PATH of this machine are: broker, cluster, how many partitions they hold.

    Also beside a running broker, as nothing is locked or changed. A directory that belongs to nobody says so; one that
    cannot be read is named, with exit code 1.
    """
    found, failed = [], []
    for path in map(os.path.abspath, paths):
        try:
            found.append(inspected(path))
        except OSError as e:
            failed.append(f"{e.filename or path}: {e.strerror or e}")
    if as_json:
        click.echo(json.dumps({"version": 1, "log_dirs": [asdict(each) for each in found]}))
    else:
        for each in found:
            click.echo(line_of(each))
    if failed:
        raise Failed(*failed)


def inspected(path: str) -> Inspected:
    """OSError."""
    names = os.listdir(path)
    said = read_meta_properties(OsFiles(), os.path.join(path, META_PROPERTIES)) or {}
    broker = said.get("node.id", said.get("broker.id"))
    counts = folder_counts(names)
    return Inspected(
        path=path,
        broker=int(broker) if broker is not None and broker.isascii() and broker.isdigit() else broker,
        cluster_id=said.get("cluster.id"),
        directory_id=said.get("directory.id"),
        partitions=counts["partition"],
        future=counts["future"],
        delete=counts["delete"],
        stray=counts["stray"],
    )


def folder_counts(names: Iterable[str]) -> Counter[str]:
    """Of partitions, and of those that are something else. Pure."""
    matches = map(FOLDER.fullmatch, names)
    return Counter(match[1] or "partition" for match in matches if match is not None)


def line_of(each: Inspected) -> str:
    """``/disk1: of broker 1, cluster x, directory y: 12 partitions, 1 set aside``. Pure."""
    ids = [
        f"{what} {value}"
        for what, value in (
            ("broker", each.broker),
            ("cluster", each.cluster_id),
            ("directory", each.directory_id),
        )
        if value is not None
    ]
    of = f"of {', '.join(ids)}" if ids else f"of nobody: it has no {META_PROPERTIES}"
    held = [f"{each.partitions} partition{'s' * (each.partitions != 1)}"]
    held += [f"{getattr(each, kind)} {what}" for kind, what in KINDS.items() if getattr(each, kind)]
    return f"{each.path}: {of}; {', '.join(held)}"
