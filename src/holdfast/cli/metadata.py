"""``holdfast metadata``: the copies of the cluster's metadata, looked at and mended from outside.

Owns the options and the lines. What is found and done is coordination/inspect.py and coordination/rebuild.py.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import click

from holdfast.cli import layout
from holdfast.coordination import inspect, rebuild
from holdfast.coordination.inspect import Report
from holdfast.coordination.lanes import ThreadLanes
from holdfast.coordination.metadata_copy import MetadataCopy
from holdfast.coordination.rebuild import FoundDir, Plan
from holdfast.model.config import BrokerConfig, read_properties
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast.storage import topic_configs
from holdfast.storage.file_locks import LockFile
from holdfast.storage.files import OsFiles
from holdfast.storage.stored_ids import known_id

MAX_SHOWN = 50
"""Partitions that a plan lists; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a cluster keeps things, by the properties of its brokers."""

    metadata_dirs: tuple[str, ...]
    log_dirs: dict[int, tuple[str, ...]]
    witnesses: tuple[str, ...]
    """What keeps notes of which copies are good: the log directories, or ``metadata.witness.dirs``."""

    @property
    def all_log_dirs(self) -> list[str]:
        return [path for paths in self.log_dirs.values() for path in paths]

    def copies(self) -> list[MetadataCopy]:
        return [MetadataCopy(path, OsFiles(), _now_ms, uuid4) for path in self.metadata_dirs]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _place(data_dir: str | None, configs: Sequence[str]) -> Place:
    files: dict[str, Mapping[str, str]] = {}
    try:
        for path in configs:
            with open(path, encoding="utf-8") as file:
                files[path] = read_properties(file.read())
        if data_dir is not None:
            os.listdir(data_dir)
            home = os.path.abspath(data_dir)
            files |= {layout.properties_path(home, number): p for number, p in sorted(layout.kept(home).items())}
    except OSError as e:
        raise click.ClickException(f"{e.filename}: {e.strerror}") from e
    except (ConfigError, layout.LayoutError) as e:
        raise click.ClickException(str(e)) from e
    if not files:
        raise click.UsageError("give --data-dir DIR of `holdfast up`, or --config FILE for each broker")
    metadata: list[str] = []
    log_dirs: dict[int, tuple[str, ...]] = {}
    witnesses: list[str] = []
    for path, properties in files.items():
        try:
            config = BrokerConfig.parse(properties)
        except ConfigError as e:
            raise click.ClickException(f"{path}: {e}") from e
        metadata += [each for each in map(os.path.abspath, config.metadata_log_dirs) if each not in metadata]
        try:
            broker_id = known_id(config.given_id, config.log_dirs, OsFiles())
        except HoldfastError as e:
            raise click.ClickException(f"{path}: {e}") from e
        if broker_id is None:  # its directories are empty or cannot be read: whose they are makes no difference
            broker_id = -1 - len(log_dirs)
        log_dirs[broker_id] = tuple(map(os.path.abspath, config.log_dirs))
        witnesses += map(os.path.abspath, config.metadata_witness_dirs)
    return Place(metadata_dirs=tuple(metadata), log_dirs=log_dirs, witnesses=tuple(dict.fromkeys(witnesses)))


_DATA_DIR = click.option("--data-dir", type=click.Path(file_okay=False), help="The directory of `holdfast up`.")
_CONFIG = click.option(
    "--config", "configs", type=click.Path(dir_okay=False), multiple=True, help="A broker's properties; repeatable."
)


@click.group()
def metadata() -> None:
    """The copies of the cluster's metadata: check, force, recover, confirm."""


def _look(place: Place) -> Report:
    return inspect.look(place.copies(), place.witnesses, OsFiles(), ThreadLanes("check"))


@metadata.command()
@_DATA_DIR
@_CONFIG
def check(data_dir: str | None, configs: tuple[str, ...]) -> None:
    """Say what each copy holds, and which are good. Works beside a running cluster.

    Exit code 0: all copies are good. 1: one is not, and the cluster goes on. 2: none is.
    """
    report = _look(_place(data_dir, configs))
    for line in _report_lines(report):
        click.echo(line)
    sys.stdout.flush()
    os._exit(0 if len(report.good) == len(report.copies) else 1 if report.good else 2)  # a thread may hang on a disk


def _report_lines(report: Report) -> list[str]:
    newest, lines = report.newest, []
    for copy in report.copies:
        lines.append(f"{copy.path}: {'good' if copy.problem is None else copy.problem}")
        seen, contents = copy.seen, copy.contents
        if seen is not None and contents is not None:
            snapshot = f"snapshot to offset {contents.base}" if contents.snapshot else "no snapshot"
            lines.append(
                f"    copy {seen.copy_id}, cluster {seen.cluster_id}, end offset {contents.end_offset}, epoch "
                f"{contents.last_epoch}, {snapshot}, {copy.size} bytes"
            )
    if newest is None:
        lines.append("nothing says which copies are good: no broker with several metadata directories has run yet")
    else:
        lines.append(
            f"good since epoch {newest.epoch}, change {newest.number}: {', '.join(sorted(newest.copies.values()))} "
            f"(by {report.witnesses} directories that keep notes)"
        )
    return lines


@metadata.command()
@click.argument("path", type=click.Path(file_okay=False))
@_DATA_DIR
@_CONFIG
def force(path: str, data_dir: str | None, configs: tuple[str, ...]) -> None:
    """Make PATH the good copy though it may lack decisions. The cluster must be stopped."""
    place, files = _place(data_dir, configs), OsFiles()
    wanted = os.path.abspath(path)
    copies = {copy.path: copy for copy in place.copies()}
    if wanted not in copies:
        raise click.ClickException(f"{wanted}: expected one of {', '.join(copies)}")
    locks: list[LockFile] = []
    try:
        locks += inspect.take_locks(place.metadata_dirs, place.all_log_dirs, files)
        note = inspect.force(copies[wanted], _look(place), place.witnesses, files)
    except (OSError, HoldfastError) as e:
        raise click.ClickException(str(e)) from e
    finally:
        for lock in locks:
            lock.close()
    click.echo(f"{wanted} is the good copy from epoch {note.epoch} on. What only other copies had is not in it.")


@metadata.command()
@_DATA_DIR
@_CONFIG
@click.option("--execute", is_flag=True, help="Do it; without this it is only shown.")
@click.option(
    "--force", "forced", is_flag=True, help="Do it although a good copy is left, or a directory cannot be read."
)
def recover(data_dir: str | None, configs: tuple[str, ...], execute: bool, forced: bool) -> None:
    """Rebuild the metadata from the log directories, when every copy of it is gone. The cluster must be stopped."""
    place, files = _place(data_dir, configs), OsFiles()
    locks: list[LockFile] = []
    try:
        locks += inspect.take_locks(place.metadata_dirs, place.all_log_dirs, files)
        report = _look(place)
        good = [copy for copy in report.good if copy.contents is not None and not copy.contents.is_empty]
        if good and not forced:
            raise click.ClickException(
                f"{good[0].path} is a good copy of the metadata: start the cluster, it fills the others from it "
                f"(--force rebuilds all the same)"
            )
        found, unreadable = _survey(place)
        least = report.newest.epoch if report.newest is not None else 0
        wanted = rebuild.plan(found, unreadable, least)
        for line in _plan_lines(wanted):
            click.echo(line)
        if not execute:
            click.echo("Nothing was changed: --execute does it.")
            return
        if wanted.unreadable and not forced:
            raise click.ClickException(
                f"{', '.join(wanted.unreadable)} cannot be read: bring it back, or lose what only it holds with --force"
            )
        readable = [each.path for each in found]
        made = rebuild.execute(files, wanted, place.copies(), readable, place.witnesses, _now_ms())
    except (OSError, HoldfastError) as e:
        raise click.ClickException(str(e)) from e
    finally:
        for lock in locks:
            lock.close()
    for path, why in made.failed.items():
        click.echo(f"{path}: not written: {why}")
    click.echo(
        f"Written to {', '.join(made.copies)}. Start the cluster, look at the configurations of its topics, then"
    )
    click.echo("`holdfast metadata confirm`: until then retention deletes nothing.")


def _survey(place: Place) -> tuple[list[FoundDir], dict[str, str]]:
    found, unreadable = [], {}
    for broker_id, paths in place.log_dirs.items():
        for path in paths:
            try:
                found.append(rebuild.survey(OsFiles(), broker_id, path))
            except (OSError, HoldfastError, ValueError) as e:
                unreadable[path] = str(e)
    return found, unreadable


def _plan_lines(wanted: Plan) -> list[str]:
    topics = sorted({tp.topic for tp in wanted.partitions})
    lines = [
        f"Cluster {wanted.cluster_id}: {len(topics)} topics, {len(wanted.partitions)} partitions; offsets from "
        f"{wanted.offset}, epoch {wanted.epoch}"
    ]
    for tp in sorted(wanted.partitions)[:MAX_SHOWN]:
        record, end = wanted.partitions[tp]
        lines.append(
            f"    {tp}: replicas {_numbers(record.replicas)}, in sync {_numbers(record.isr)}, leader epoch "
            f"{record.leader_epoch}, end {end.end_offset}"
        )
    if len(wanted.partitions) > MAX_SHOWN:
        lines.append(f"    and {len(wanted.partitions) - MAX_SHOWN} more")
    return [*lines, *(f"NOTE {doubt}" for doubt in wanted.doubts)]


def _numbers(of: Sequence[int]) -> str:
    return ",".join(map(str, of))


@metadata.command()
@_DATA_DIR
@_CONFIG
def confirm(data_dir: str | None, configs: tuple[str, ...]) -> None:
    """Say that the configurations are right after `recover`: retention deletes again. Works on a running cluster."""
    confirmed, failed = 0, 0
    for path in _place(data_dir, configs).all_log_dirs:
        try:
            os.unlink(os.path.join(path, topic_configs.RECOVERED))
            confirmed += 1
        except FileNotFoundError:
            continue
        except OSError as e:
            failed += 1
            click.echo(f"{path}: {e.strerror}", err=True)
    click.echo(f"Confirmed in {confirmed} log directories.")
    if failed:
        sys.exit(1)
