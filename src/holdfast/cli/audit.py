"""``holdfast audit``: thin over holdfast.spark.audit.

Says per partition what was compared, as a table or as JSON lines; ends with 1 when replicas disagree or something is
corrupt or missing, with 3 when nothing was compared with anything, with 0 otherwise. Progress and complaints go to
standard error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command_config import command_security, with_way_out
from holdfast.cli.completing import complete_topics
from holdfast.cli.connecting import cluster_option, memory_option
from holdfast.cli.failing import OneLineCommand
from holdfast.model.errors import HoldfastError

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.spark.audit import AuditResult, PartitionAudit, Progress


COMPARED_NOTHING = 3
"""Exit code."""
NOTHING = "compared with nothing: of no partition two replicas could be read here"


@click.command(cls=OneLineCommand, short_help="Compare all replicas on disk, batch by batch.")
@cluster_option
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="Topic to audit; repeatable. All without it, internal ones too.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: each partition, then the verdict.")
@click.option(
    "--quick", is_flag=True, help="Headers of batches alone, without Spark: not whether records have decayed."
)
@memory_option
def audit(bootstrap: str, topics: tuple[str, ...], as_json: bool, quick: bool, driver_memory: str) -> None:
    """Compare all replicas on disk, batch by batch.

    Reads the segment files of every replica up to the high watermark: contiguous offsets, right CRCs, equal bytes on
    all replicas. Runs on the machine that has the brokers' log directories; a directory that is offline or cannot be
    read here is named and not compared. --quick reads headers alone, with their CRCs. Exit code 1 if replicas disagree
    or anything is corrupt or missing, 3 if of no partition two replicas could be read here: then nothing was compared.
    """
    from rich.console import Console

    from holdfast.java.runtime import JavaNotFoundError
    from holdfast.spark.audit import AuditError, run
    from holdfast.spark.audit_quick import run as run_quick

    # Where the output goes to no terminal, its lines are not cut to the width of one.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    security = command_security()
    try:
        with bar(Console(stderr=True)) as progress:
            if quick:
                result = run_quick(bootstrap, topics or None, progress=progress, security=security)
            else:
                result = run(
                    bootstrap, topics or None, progress=progress, driver_memory=driver_memory, security=security
                )
    except (AuditError, HoldfastError, JavaNotFoundError) as error:
        raise click.ClickException(with_way_out(str(error))) from error
    if as_json:
        for line in json_lines(result):
            click.echo(line)
    else:
        show(result, console)
    sys.exit(exit_code(result))


def exit_code(result: AuditResult) -> int:
    """0: replicas agree; 1: something is wrong; 3: nothing was compared."""
    if not result.is_sound:
        return 1
    return COMPARED_NOTHING if result.compared_nothing else 0


@contextmanager
def bar(console: Console) -> Iterator[Progress]:
    """A progress bar on standard error while segments are read."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading segments", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def show(result: AuditResult, console: Console) -> None:
    """The table, what is worth knowing, what is wrong, and the verdict."""
    from rich.table import Table

    table = Table("partition", "offsets compared", "batches", "records", "MB", "replicas compared", "verdict")
    for column in table.columns[2:5]:
        column.justify = "right"
    for p in result.partitions:
        table.add_row(*_cells(p))
    console.print(table)
    for p in result.partitions:
        for note in p.notes:
            console.print(f"{p.tp}: {note}", style="yellow", markup=False, soft_wrap=True)
    for place in result.not_compared:
        console.print(f"not compared: {place}", style="yellow", markup=False, soft_wrap=True)
    for line in result.differences:
        console.print(line, style="red", markup=False, soft_wrap=True)
    count = result.problem_count
    skipped = f", {result.replicas_not_compared} not compared" if result.replicas_not_compared else ""
    verdict = f"{count:,} problem{'s' * (count != 1)}"
    if result.is_sound:
        verdict = NOTHING if result.compared_nothing else "replicas agree"
    console.print(
        f"{len(result.partitions):,} partitions, {result.replicas:,} replicas{skipped}, {result.records:,} records, "
        f"{result.bytes_read / 1e6:,.1f} MB read in {result.seconds:.1f} s: {verdict}",
        style="green" if result.ok else "red",
        soft_wrap=True,
    )


def _cells(p: PartitionAudit) -> tuple[str, ...]:
    offsets = "none" if p.compared_from is None else f"{p.compared_from} to {p.compared_to}"
    brokers = ", ".join(map(str, p.compared)) or "none"
    if p.missing:
        brokers += f" (not {', '.join(map(str, p.missing))})"
    count = len(p.problems) + p.more_problems
    verdict = f"[red]{count} problem{'s' * (count != 1)}[/red]" if count else _verdict(p)
    return str(p.tp), offsets, f"{p.batches:,}", f"{p.records:,}", f"{p.bytes / 1e6:,.1f}", brokers, verdict


def _verdict(p: PartitionAudit) -> str:
    gaps = sum(r.gaps for r in p.replicas)
    if not p.high_watermark or p.compared_from is None:
        return "empty"
    if len(p.compared) < 2:
        return "sound, nothing to compare with"
    if p.compacted:
        return f"equal where not compacted ({gaps} gap{'s' * (gaps != 1)})" if gaps else "equal (compacted topic)"
    return "equal"


def json_lines(result: AuditResult) -> Iterator[str]:
    """Each partition as an object, then the verdict."""
    for p in result.partitions:
        plain: dict[str, Any] = _plain(p)
        name = {"topic": p.tp.topic, "partition": p.tp.partition}
        problems = [{k: v for k, v in problem.items() if k != "tp"} for problem in plain["problems"]]
        rest = {k: v for k, v in plain.items() if k != "tp"}
        yield json.dumps(name | rest | {"problems": problems, "ok": p.ok})
    yield json.dumps(
        {
            "ok": result.ok,
            "partitions": len(result.partitions),
            "replicas": result.replicas,
            "replicas_not_compared": result.replicas_not_compared,
            "compared_nothing": result.compared_nothing,
            "batches": result.batches,
            "records": result.records,
            "bytes": result.bytes,
            "bytes_read": result.bytes_read,
            "problems": result.problem_count,
            "not_compared": _plain(result.not_compared),
            "seconds": result.seconds,
        }
    )


def _plain(value: Any) -> Any:
    """Values of the audit as JSON has them."""
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value
