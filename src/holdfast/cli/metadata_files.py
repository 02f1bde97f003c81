"""``holdfast metadata export`` and ``import``: a cluster's metadata into one file, and into an empty store.

Owns the options and the lines. The form of the file is metadata/export_file.py, the steps coordination/importing.py.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import click

from holdfast.cli import layout
from holdfast.cli.failing import Failed, Misused, OneLineCommand
from holdfast.cli.metadata_moves import STORES, ZOOKEEPER, Progress, embedded_side, ensemble_side, image_of, settings_of
from holdfast.cli.metadata_place import MetadataPlace, now_ms, place_of, place_options
from holdfast.coordination import importing, rebuild
from holdfast.coordination.migration import Side
from holdfast.coordination.migration_embedded import Directories, EmbeddedSide
from holdfast.metadata import export_file
from holdfast.metadata.image import ClusterImage
from holdfast.model.errors import HoldfastError
from holdfast.storage.dir_scan import NameKind, classify
from holdfast.storage.files import OsFiles
from holdfast.storage.partition_metadata import encode_uuid

STORE_OPTION = click.option(
    "--store", type=click.Choice(STORES), help="Which store it is.  [default: that of the properties]"
)
CONNECT_OPTION = click.option(
    "--connect", metavar="HOST:PORT[,..][/CHROOT]", help="The ZooKeeper ensemble.  [default: that of the properties]"
)


@contextmanager
def in_one_line() -> Iterator[None]:
    """What the older commands of this group raise, in the form of the newer ones."""
    try:
        yield
    except click.UsageError:
        raise
    except click.ClickException as e:
        raise Failed(e.format_message()) from e


@click.command(name="export", cls=OneLineCommand)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@place_options
@STORE_OPTION
@CONNECT_OPTION
@click.option("--json", "as_json", is_flag=True, help="Say what was exported as one JSON document.")
def export_command(
    file: Path, data_dir: str | None, configs: tuple[str, ...], store: str | None, connect: str | None, as_json: bool
) -> None:
    """Write all of the metadata into FILE ("-": standard output). Works beside a running cluster.

    It is the state of one moment: topics with ids, partitions, assignments, epochs, configurations, brokers, features.
    `holdfast metadata diff FILE DIR` says what has changed since.
    """
    with in_one_line():
        image = image_of(place_of(data_dir, configs), store, connect)
    text = export_file.to_text(image, now_ms())
    if str(file) == "-":
        click.echo(text, nl=False)
        return
    partial = file.with_name(file.name + ".tmp")
    # For its owner alone: keys of users may be in it.
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as output:
        os.fchmod(descriptor, 0o600)
        output.write(text)
        output.flush()
        os.fsync(output.fileno())
    partial.replace(file)
    _say(image, f"Exported cluster {image.cluster_id} to {file}", as_json)


@click.command(name="import", cls=OneLineCommand)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path), metavar="FILE")
@place_options
@STORE_OPTION
@CONNECT_OPTION
@click.option(
    "--with-logs", is_flag=True,
    help="The log directories are those of the exported cluster: its metadata was lost, and its records are there.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Say what was imported as one JSON document.")
def import_command(
    file: Path,
    data_dir: str | None,
    configs: tuple[str, ...],
    store: str | None,
    connect: str | None,
    with_logs: bool,
    as_json: bool,
) -> None:
    """Fill an empty store with what `holdfast metadata export` wrote into FILE. All brokers must be stopped.

    Without --with-logs the topics begin anew and empty, in a cluster with an id of its own, and no log directory may
    have a replica. With it cluster and topics are the exported ones, and which replicas are in sync follows from their
    logs, as in `metadata recover`. DIR of --data-dir may be one that `holdfast up` has not used yet.
    """
    image = export_file.of_text(str(file), _text_of(file))
    with ExitStack() as open_now, in_one_line():
        target = open_now.enter_context(import_target(data_dir, configs, store, connect))
        found = [surveyed(broker, path) for broker, paths in target.log_dirs.items() for path in paths]
        standing = target.side.standing()
        if target.has_no_log:  # notes in log directories tell of copies that are gone
            standing = replace(standing, is_empty=True)
        if with_logs:
            wanted, doubts = importing.with_logs(image, found)
        else:
            refuse_replicas(target)
            there = [*(each.cluster_id for each in found), standing.cluster_id, encode_uuid(uuid4())]
            wanted, doubts = importing.anew(image, next(filter(None, there))), ()
        importing.refuse_used(standing, wanted.cluster_id, target.side.name)
        epoch = image.controller_epoch + 1
        importing.bring(target.side, wanted, str(file), epoch, encode_uuid(uuid4()), Progress())
    for doubt in doubts:
        click.echo(f"NOTE {doubt}", err=True)
    _say(wanted, f"Imported {file} as cluster {wanted.cluster_id} into {target.side.name}", as_json)


def _text_of(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except UnicodeDecodeError as e:
        raise Failed(f"{file}: {e.reason} at byte {e.start}: expected a file of `holdfast metadata export`") from e


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTarget:
    """The store that is filled. ``log_dirs`` by broker; those of one that never ran have numbers below 0."""

    side: Side
    log_dirs: dict[int, tuple[str, ...]]
    has_no_log: bool
    """No copy of an embedded store has anything; of an ensemble nothing is said."""


@contextmanager
def import_target(
    data_dir: str | None, configs: tuple[str, ...], store: str | None, connect: str | None
) -> Iterator[ImportTarget]:
    """Locked until the end of the block: no broker may start."""
    if data_dir is not None and not configs and not layout.properties_paths(os.path.abspath(data_dir)):
        if connect is not None or store == ZOOKEEPER:
            raise Misused(f"{data_dir} has no properties of a broker: expected --config for each broker")
        side = EmbeddedSide(Directories(copies=layout.first_metadata_dirs(os.path.abspath(data_dir))))
        yield from _locked(side, {})
        return
    place = place_of(data_dir, configs)
    kind = store or (ZOOKEEPER if connect is not None else _store_of(place))
    if kind != ZOOKEEPER:
        yield from _locked(embedded_side(place), place.log_dirs)
        return
    with ensemble_side(settings_of(place, connect)) as ensemble:
        ensemble.refuse_running()
        yield ImportTarget(side=ensemble, log_dirs=place.log_dirs, has_no_log=False)


def _locked(side: EmbeddedSide, log_dirs: dict[int, tuple[str, ...]]) -> Iterator[ImportTarget]:
    try:
        side.lock()
        yield ImportTarget(side=side, log_dirs=log_dirs, has_no_log=not side.has_log())
    finally:
        side.close()


def _store_of(place: MetadataPlace) -> str:
    named = {properties.get("metadata.store") or STORES[1] for properties in place.properties.values()}
    if len(named) > 1:
        raise Misused(f"the files name {' and '.join(sorted(named))} as metadata.store: give --store")
    return named.pop()


def surveyed(broker: int, path: str) -> rebuild.FoundDir:
    """What a log directory holds and whose it is; one that is not there holds nothing."""
    try:
        return rebuild.survey(OsFiles(), broker, path)
    except FileNotFoundError:
        return rebuild.FoundDir(path=path, broker_id=broker, cluster_id=None)
    except (OSError, HoldfastError, ValueError) as e:
        raise Failed(f"{path} cannot be read: {e}: bring its disk back first") from e


def refuse_replicas(target: ImportTarget) -> None:
    """Where topics begin anew no log directory may have anything of older ones."""
    for path in (path for paths in target.log_dirs.values() for path in paths):
        try:
            names = sorted(os.listdir(path))
        except FileNotFoundError:
            continue
        held = next((name for name in names if classify(name)[1] is NameKind.REPLICA), None)
        if held is not None:
            raise Failed(
                f"{path} has replicas ({held}): expected log directories without any, or --with-logs if they are those "
                "of the exported cluster"
            )


def _say(image: ClusterImage, line: str, as_json: bool) -> None:
    partitions = sum(len(topic.partitions) for topic in image.topics.values())
    counts = {
        "brokers": len(image.brokers),
        "topics": len(image.topics),
        "partitions": partitions,
        "configs": sum(len(values) for values in image.configs.values()),
    }
    if as_json:
        click.echo(json.dumps({"cluster_id": image.cluster_id, **counts}))
    else:
        click.echo(f"{line}: {', '.join(f'{count} {name}' for name, count in counts.items())}.")
