"""``holdfast spark``: thin over holdfast.spark.doctor."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import click

from holdfast.cli.command_config import command_config, command_security
from holdfast.cli.connecting import config_option
from holdfast.cli.failing import OneLineGroup, one_line


@click.group(cls=OneLineGroup)
def spark() -> None:
    """What has to do with Spark itself."""


@spark.command()
@click.option("--master", metavar="URL", help="Spark's master, such as spark://HOST:7077: its executors are examined.")
@click.option(
    "-b", "--bootstrap-server", "bootstrap", metavar="HOST:PORT,...",
    help="Brokers: all of the cluster are tried. Those of --command-config, if it names some.",
)  # fmt: skip
@config_option()
@click.option(
    "--path",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="A folder that all machines should share.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each thing that was looked at.")
def doctor(master: str | None, bootstrap: str | None, path: Path | None, as_json: bool) -> None:
    """Say what Spark needs to read and write with Holdfast, and where it is missing.

    Looks at this process, at the Python that Spark would start for its tasks here, and, with --master, at every
    executor. Exit code 1 if something is missing; what only slows is a warning.
    """
    from rich.console import Console
    from rich.table import Table

    from holdfast.spark import doctor as work

    bootstrap = bootstrap or command_config().bootstrap
    if bootstrap is None and command_security() is not None:
        told = "no broker is tried: expected bootstrap.servers in the file of --command-config, or -b HOST:PORT"
        click.echo(one_line("spark", told), err=True)
    brokers = [] if bootstrap is None else _addresses(bootstrap)
    findings = list(work.examine(master=master, brokers=brokers, path=path))
    wrong = [finding for finding in findings if finding.wrong is not None and not finding.is_warning]
    if as_json:
        for finding in findings:
            click.echo(json.dumps(dataclasses.asdict(finding)))
        sys.exit(1 if wrong else 0)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    table = Table("where", "what", "found", "wrong")
    for finding in findings:
        style = None if finding.wrong is None else "yellow" if finding.is_warning else "red"
        table.add_row(finding.where, finding.what, finding.found, finding.wrong or "", style=style)
    console.print(table)
    for cure in dict.fromkeys(f"{f.where}: {f.cure}" for f in findings if f.wrong is not None):
        console.print(cure, markup=False, soft_wrap=True)
    console.print(f"{len(wrong)} things are missing" if wrong else "nothing is missing")
    sys.exit(1 if wrong else 0)


def _addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Of all brokers of the cluster."""
    from holdfast.client.blocking import BlockingClient

    with BlockingClient(bootstrap, security=command_security()) as client:
        client.connect()  # what is wrong with the settings is no matter of trying again
        return [(broker.host, broker.port) for _, broker in sorted(client.metadata([]).brokers.items())]
