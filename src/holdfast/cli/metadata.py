"""``holdfast metadata``: the copies of the cluster's metadata, looked at and mended from outside.

Owns the options and the lines. What is found and done is coordination/inspect.py and coordination/rebuild.py; dump,
diff and migrate are metadata_moves.py, who may change znodes metadata_acls.py.
"""

import json
import os
import sys
from collections.abc import Sequence

import click

from holdfast.cli.connecting import json_option
from holdfast.cli.failing import Failed, OneLineGroup, one_line
from holdfast.cli.metadata_acls import secure_znodes
from holdfast.cli.metadata_files import export_command, import_command
from holdfast.cli.metadata_format import format_command
from holdfast.cli.metadata_moves import diff, dump, migrate, tree
from holdfast.cli.metadata_place import MetadataPlace, now_ms, place_of, place_options
from holdfast.coordination import inspect, rebuild
from holdfast.coordination.inspect import Report
from holdfast.coordination.lanes import ThreadLanes
from holdfast.coordination.rebuild import FoundDir, RebuildPlan
from holdfast.model.errors import HoldfastError
from holdfast.storage import topic_configs
from holdfast.storage.file_locks import LockFile
from holdfast.storage.files import OsFiles

MAX_SHOWN = 50
"""Partitions that a plan lists; the rest is counted."""


@click.group(cls=OneLineGroup)
def metadata() -> None:
    """The cluster's metadata: its copies, what is in it, its export, and its move to another store."""


for _command in (migrate, dump, tree, diff, export_command, import_command, format_command, secure_znodes):
    metadata.add_command(_command)


def _look(place: MetadataPlace) -> Report:
    return inspect.look(place.copies(), place.witnesses, OsFiles(), ThreadLanes("check"))


def _refuse_moved(report: Report, option: str) -> None:
    """The directories are not what the cluster goes by any more."""
    moved = report.newest.moved if report.newest is not None else None
    if moved is not None:
        raise click.ClickException(
            f"This cluster's metadata is in {moved.to}, and what is here was left: move it back with `holdfast "
            f"metadata migrate --to embedded`. Only when that store is gone for good: {option}"
        )


@metadata.command()
@place_options
@json_option()
def check(data_dir: str | None, configs: tuple[str, ...], as_json: bool) -> None:
    """Say what each copy holds, and which are good. Works beside a running cluster.

    Exit code 0: all copies are good. 1: one is not, and the cluster goes on. 2: none is.
    """
    report = _look(place_of(data_dir, configs))
    for line in [_report_document(report)] if as_json else _report_lines(report):
        click.echo(line)
    sys.stdout.flush()
    os._exit(0 if len(report.good) == len(report.copies) else 1 if report.good else 2)  # a thread may hang on a disk


def _report_document(report: Report) -> str:
    newest = report.newest
    copies = [
        {
            "path": copy.path,
            "good": copy.problem is None,
            "problem": copy.problem,
            "copy_id": None if copy.seen is None else copy.seen.copy_id,
            "cluster_id": None if copy.seen is None else copy.seen.cluster_id,
            "end_offset": None if copy.contents is None else copy.contents.end_offset,
            "epoch": None if copy.contents is None else copy.contents.last_epoch,
            "size_bytes": None if copy.contents is None else copy.size,
        }
        for copy in report.copies
    ]
    said = None if newest is None else {
        "epoch": newest.epoch,
        "change": newest.number,
        "good": sorted(newest.copies.values()),
        "moved_to": None if newest.moved is None else newest.moved.to,
    }  # fmt: skip
    return json.dumps({"version": 1, "copies": copies, "notes": said, "witnesses": report.witnesses}, default=str)


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
    elif newest.moved is not None:
        lines.append(f"left since epoch {newest.epoch}, change {newest.number}: the metadata is in {newest.moved.to}")
    else:
        lines.append(
            f"good since epoch {newest.epoch}, change {newest.number}: {', '.join(sorted(newest.copies.values()))} "
            f"(by {report.witnesses} directories that keep notes)"
        )
    return lines


@metadata.command()
@click.argument("path", type=click.Path(file_okay=False))
@place_options
@click.option(
    "--moved", is_flag=True, help="Also when the metadata was moved to another store, which is gone for good."
)
def force(path: str, data_dir: str | None, configs: tuple[str, ...], moved: bool) -> None:
    """Make PATH the good copy though it may lack decisions. The cluster must be stopped."""
    place, files = place_of(data_dir, configs), OsFiles()
    wanted = os.path.abspath(path)
    copies = {copy.path: copy for copy in place.copies()}
    if wanted not in copies:
        raise click.ClickException(f"{wanted}: expected one of {', '.join(copies)}")
    locks: list[LockFile] = []
    try:
        locks += inspect.take_locks(place.metadata_dirs, place.all_log_dirs, files)
        report = _look(place)
        if not moved:
            _refuse_moved(report, "`--moved` goes on with this copy, without what was decided since")
        note = inspect.force(copies[wanted], report, place.witnesses, files)
    except (OSError, HoldfastError) as e:
        raise click.ClickException(str(e)) from e
    finally:
        for lock in locks:
            lock.close()
    click.echo(f"{wanted} is the good copy from epoch {note.epoch} on. What only other copies had is not in it.")


@metadata.command()
@place_options
@click.option("--execute", is_flag=True, help="Do it; without this it is only shown.")
@click.option(
    "--force", "forced", is_flag=True, help="Do it although a good copy is left, or a directory cannot be read."
)
def recover(data_dir: str | None, configs: tuple[str, ...], execute: bool, forced: bool) -> None:
    """Rebuild the metadata from the log directories, when every copy of it is gone. The cluster must be stopped."""
    place, files = place_of(data_dir, configs), OsFiles()
    locks: list[LockFile] = []
    try:
        locks += inspect.take_locks(place.metadata_dirs, place.all_log_dirs, files)
        report = _look(place)
        if not forced:
            _refuse_moved(report, "`--force` rebuilds it here")
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
        made = rebuild.execute(files, wanted, place.copies(), readable, place.witnesses, now_ms())
    except (OSError, HoldfastError) as e:
        raise click.ClickException(str(e)) from e
    finally:
        for lock in locks:
            lock.close()
    for path, why in made.failed.items():
        click.echo(one_line("metadata", f"{path}: not written: {why}"), err=True)
    click.echo(
        f"Written to {', '.join(made.copies)}. Start the cluster, look at the configurations of its topics, then"
    )
    click.echo("`holdfast metadata confirm`: until then retention deletes nothing.")


def _survey(place: MetadataPlace) -> tuple[list[FoundDir], dict[str, str]]:
    found, unreadable = [], {}
    for broker_id, paths in place.log_dirs.items():
        for path in paths:
            try:
                found.append(rebuild.survey(OsFiles(), broker_id, path))
            except (OSError, HoldfastError, ValueError) as e:
                unreadable[path] = str(e)
    return found, unreadable


def _plan_lines(wanted: RebuildPlan) -> list[str]:
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
@place_options
def confirm(data_dir: str | None, configs: tuple[str, ...]) -> None:
    """Say that the configurations are right after `recover`: retention deletes again. Works on a running cluster."""
    confirmed, failed = 0, []
    for path in place_of(data_dir, configs).all_log_dirs:
        try:
            os.unlink(os.path.join(path, topic_configs.RECOVERED))
            confirmed += 1
        except FileNotFoundError:
            continue
        except OSError as e:
            failed.append(f"{path}: {e.strerror}")
    click.echo(f"Confirmed in {confirmed} log directories.")
    if failed:
        raise Failed(*failed)
