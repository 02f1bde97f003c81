"""``holdfast lake``: thin over holdfast.spark.lake."""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.command_config import command_config, command_security, with_way_out
from holdfast.cli.completing import complete_topics
from holdfast.cli.connecting import cluster_option, config_option, memory_option
from holdfast.cli.failing import Failed, OneLineGroup
from holdfast.model.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.lake.table import Table
    from holdfast.model.types import TopicPartition
    from holdfast.spark.lake import LakeProgress, LakeResult


FORMATS = ("parquet", "delta", "iceberg")
format_option = click.option(
    "--format", "table_format", type=click.Choice(FORMATS), default="parquet", show_default=True,
    help="Of the table.",
)  # fmt: skip
catalog_option = click.option(
    "--catalog", metavar="NAME",
    help="Iceberg: a catalog of pyiceberg's configuration; default: a sqlite file beside the table.",
)  # fmt: skip
found_format_option = click.option(
    "--format", "table_format", type=click.Choice(FORMATS), help="Of the table; default: the one that it has.",
)  # fmt: skip
needed_to_option = click.option("--to", required=True, metavar="LOCATION", help="The table: a directory or s3://.")


@click.group(
    cls=OneLineGroup, invoke_without_command=True, short_help="Land topics in tables with Spark, each record once."
)
@cluster_option
@click.option(
    "--topic", "topics", multiple=True, shell_complete=complete_topics, help="Topic to land; may be repeated."
)
@click.option("--to", metavar="LOCATION", help="The table: a directory or s3://BUCKET/FOLDER.")
@format_option
@catalog_option
@click.option("--checkpoint", type=click.Path(path_type=Path, file_okay=False),
              help="Directory of Spark's query. The position is in the table: a lost one does no harm.")  # fmt: skip
@click.option("--available-now", is_flag=True, help="Land what is there and end; without it, go on until Ctrl-C.")
@click.option("--schema", help="Or a file with it. JSON: DDL or Spark's JSON; default: the table's, or inferred. "
              "Struct: the layout, as 'id:>i8'. Avro: the schema; Protobuf: a descriptor set; default: the registry's "
              "TOPIC-value.")  # fmt: skip
@click.option("--message", default="", metavar="NAME", help="Protobuf: full name of the values' message.")
@click.option("--sample", default=20_000, show_default=True, help="Records to infer the schema from.")
@click.option("--time-zone", default="UTC", show_default=True, help="Of times in values that name none.")
@click.option("--new-fields", type=click.Choice(("rest", "add", "drop", "fail")), default="rest", show_default=True,
              help="Fields without a column: kept in _rest as JSON, given one, counted, or the end.")  # fmt: skip
@click.option("--value-format", type=click.Choice(("json", "struct", "avro", "protobuf", "raw")), default="json",
              show_default=True, help="Of the values.")  # fmt: skip
@click.option("--schema-registry", "registry", default="", metavar="URL,...",
              help="Values of Avro and Protobuf begin with its ids.")  # fmt: skip
@click.option("--partition-by", metavar="COL|day(COL)", help="Of a new table.")
@click.option("--raw", is_flag=True, help="The same as --value-format raw: land the bytes as they are.")
@click.option("--keep-value", is_flag=True, help="Keep the value's bytes beside its fields.")
@click.option("--headers", is_flag=True, help="Keep the headers, in a column _headers.")
@click.option("--starting-offsets", default="earliest", show_default=True,
              help="Of partitions that the table has nothing of.")  # fmt: skip
@click.option("--isolation-level", type=click.Choice(("read_committed", "read_uncommitted")),
              default="read_committed", show_default=True)  # fmt: skip
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="One more of the source, as kafka.*.")
@click.option("--max-records-per-batch", default=500_000, show_default=True)
@click.option("--max-bytes-per-batch", type=click.IntRange(min=1),
              help="As records lie in the log, compressed; an estimate.")  # fmt: skip
@click.option("--trigger", "trigger_s", default=1.0, show_default=True, metavar="SECONDS", help="Time between batches.")
@click.option("--no-fail-on-data-loss", is_flag=True, help="Go on where the log lost records; the table notes it.")
@click.option("--maintain-every", default=50, show_default=True, metavar="COMMITS",
              help="Compaction and clean-up while landing; 0: never.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Progress and result as JSON lines.")
@memory_option
@click.pass_context
def lake(context: click.Context, /, **given: Any) -> None:
    """Land topics in tables, each committed record once, whatever is killed, lost or run twice.

    The table knows up to which offset of which partition it has everything. Bad records go to a table beside it,
    LOCATION_bad. With several topics each has its own table and checkpoint in --to and --checkpoint. Ctrl-C ends after
    the batch under way.
    """
    if context.invoked_subcommand is not None:
        return
    for name in ("topics", "to", "checkpoint"):
        if not given[name]:
            raise click.UsageError(f"Missing option '--{name.rstrip('s')}'.")
    with clear_words():
        _run(**given)


def _run(topics: tuple[str, ...], to: str, checkpoint: Path, as_json: bool, driver_memory: str, **given: Any) -> None:
    from holdfast.spark.lake import LakeJob, run_all
    from holdfast.spark.session import spark_session

    stop = threading.Event()
    report = _JsonReport() if as_json else _BarReport()
    several = len(topics) > 1
    jobs = [
        LakeJob(
            bootstrap=given["bootstrap"],
            topic=topic,
            to=f"{to.rstrip('/')}/{topic}" if several else to,
            checkpoint=checkpoint / topic if several else checkpoint,
            format=given["table_format"],
            catalog=given["catalog"],
            available_now=given["available_now"],
            schema=given["schema"],
            sample_records=given["sample"],
            time_zone=given["time_zone"],
            new_fields=given["new_fields"],
            values="raw" if given["raw"] else given["value_format"],
            message=given["message"],
            registry=given["registry"],
            partition_by=given["partition_by"],
            keep_value=given["keep_value"],
            headers=given["headers"],
            starting_offsets=given["starting_offsets"],
            options={
                "kafka.isolation.level": given["isolation_level"],
                **command_config().spark_options(),
                **_pairs(given["options"]),
            },
            max_offsets_per_batch=given["max_records_per_batch"],
            max_bytes_per_batch=given["max_bytes_per_batch"],
            trigger_s=given["trigger_s"],
            fail_on_data_loss=not given["no_fail_on_data_loss"],
            maintain_commits=given["maintain_every"],
            on_progress=report.progress,
            stop=stop,
        )
        for topic in topics
    ]
    spark = spark_session("holdfast lake", driver_memory=driver_memory, log=checkpoint / "spark.log")
    _stop_on_signals(stop)
    with report:
        results = run_all(jobs, spark)
    for result in results:
        report.result(result)
    spark.stop()


def _pairs(options: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in options:
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{each!r}: expected NAME=VALUE", param_hint="--option")
        found[name] = value
    return found


@lake.command(short_help="What a table has, and how far it is behind the log.")
@needed_to_option
@found_format_option
@catalog_option
@click.option(
    "-b", "--bootstrap-server", "bootstrap", metavar="HOST:PORT,...",
    help="Brokers to ask for the lag. Those of --command-config, if it names some; else none.",
)  # fmt: skip
@config_option()
@click.option("--json", "as_json", is_flag=True, help="All of it, as JSON.")
def status(to: str, table_format: str | None, catalog: str | None, bootstrap: str | None, as_json: bool) -> None:
    """Rows, offsets by topic and partition, lag, snapshot and the current metadata file. Needs no Spark."""
    from holdfast.lake.status import status as status_of

    with clear_words():
        table = _opened(to, table_format, catalog)
        table.refresh()
        topics = sorted(table.position().topics)
        bootstrap = bootstrap or command_config().bootstrap
        found = status_of(table, _ends(bootstrap, topics) if bootstrap is not None else None)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        _print_status(found)


@lake.command(short_help="Compact a table, forget old states, remove orphans.")
@needed_to_option
@found_format_option
@catalog_option
@click.option("--target-mib", default=128, show_default=True, type=click.IntRange(1), help="Size of compacted files.")
@click.option("--keep-hours", default=24.0, show_default=True, type=click.FloatRange(0),
              help="Older states are forgotten; whoever reads one of them fails.")  # fmt: skip
def maintain(to: str, table_format: str | None, catalog: str | None, target_mib: int, keep_hours: float) -> None:
    """One round of upkeep of a table and of its bad records. May run beside ``holdfast lake``. Needs no Spark."""
    from holdfast.lake.opening import open_table
    from holdfast.lake.side import side_location
    from holdfast.lake.upkeep import maintain as round_of

    with clear_words():
        main = _opened(to, table_format, catalog)
        tables = [main, open_table(side_location(to), main.format, catalog=catalog)]
        for table in tables:
            if table is None:
                continue
            done = round_of(table, target_bytes=target_mib << 20, keep_ms=int(keep_hours * 3_600_000))
            files = done.compaction
            print(
                f"{table.store.location}: {files.files_before} files became {files.files_after}, "
                f"{done.expired} states forgotten, {len(done.swept)} orphans removed"
            )


def _opened(to: str, table_format: str | None, catalog: str | None) -> "Table":
    from holdfast.lake.errors import TableError
    from holdfast.lake.opening import open_table

    for each in FORMATS if table_format is None else (table_format,):
        if catalog is not None and table_format is None and each != "iceberg":
            continue
        try:
            table = open_table(to, each, catalog=catalog)
        except TableError:
            if table_format is None and each != FORMATS[-1]:
                continue
            raise
        if table is not None:
            return table
    raise click.ClickException(f"{to}: there is no table" + (f" of format {table_format}" if table_format else ""))


def _ends(bootstrap: str, topics: list[str]) -> dict["TopicPartition", int]:
    from holdfast.client.blocking import BlockingClient
    from holdfast.spark.options import parse_read
    from holdfast.spark.topics import Topics

    if not topics:
        return {}
    with BlockingClient(bootstrap, security=command_security()) as client:
        client.connect()  # what is wrong with the settings is no matter of trying again
    security = command_config().spark_options()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": ",".join(topics), **security}
    asked = Topics(parse_read({**options, "kafka.isolation.level": "read_committed"}, streaming=False))
    return dict(asked.latest(asked.partitions()))


def _print_status(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table as Lines

    lines = Lines("topic", "partition", "offset", "leader epoch", "lag", box=None)
    for topic, each in found["topics"].items():
        for number, end in each["partitions"].items():
            lines.add_row(
                topic, number, *("-" if end[name] is None else f"{end[name]:,}" for name in ("offset", "epoch", "lag"))
            )
    console = Console()
    console.print(f"{found['location']} ({found['format']})", soft_wrap=True)
    console.print(f"{found['rows']:,} rows in {found['files']} files, {found['landed']:,} landed, {found['bad']:,} bad")
    console.print(f"snapshot {found['snapshot']}: {found['metadata']}", soft_wrap=True)
    console.print(lines)
    for gap in found["gaps"]:
        console.print(f"lost: {gap}", soft_wrap=True)


@contextmanager
def clear_words() -> Iterator[None]:
    """What a command ends with, in words."""
    try:
        yield
    except (click.ClickException, Failed):
        raise
    except HoldfastError as error:
        raise click.ClickException(with_way_out(str(error))) from error
    except ImportError as error:
        raise click.ClickException(f"{error}: install it with pip install 'holdfast[spark,lake]'") from error
    except Exception as error:
        raise click.ClickException(words_of(error)) from error


def words_of(error: Exception) -> str:
    """What a person needs of an error that may have come through Spark."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("holdfast.") and ": " in line]
    if ours:  # the last line of a Python trace that Spark passed on
        return ours[-1].split(": ", 1)[1]
    return lines[0] if lines else type(error).__name__


def _stop_on_signals(stop: threading.Event) -> None:
    """The first signal ends after the batch under way, the second at once."""

    def asked(number: int, _frame: object) -> None:
        if stop.is_set():
            sys.exit(130)
        stop.set()
        print("holdfast lake: ending after this batch (again to end at once)", file=sys.stderr)

    signal.signal(signal.SIGINT, asked)
    signal.signal(signal.SIGTERM, asked)


class _JsonReport:
    """One line of JSON per batch and result, on standard output."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def progress(self, progress: "LakeProgress") -> None:
        print(json.dumps({"event": "batch", **asdict(progress)}), flush=True)

    def result(self, result: "LakeResult") -> None:
        print(json.dumps({"event": "result", **asdict(result)}, default=str), flush=True)


class _BarReport:
    """A bar per topic on standard error, a line per result on standard output."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=(console := Console(stderr=True)),
            disable=not console.is_terminal,  # elsewhere one line of it would be left
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> None:
        self._bars.start()

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def progress(self, progress: "LakeProgress") -> None:
        if progress.topic not in self._tasks:
            self._tasks[progress.topic] = self._bars.add_task(f"lake {progress.topic}", note="")
        done = progress.total + progress.total_bad
        note = f"batch {progress.batch}" + (f", {progress.total_bad} bad" if progress.total_bad else "")
        self._bars.update(self._tasks[progress.topic], completed=done, total=done + progress.behind, note=note)

    def result(self, result: "LakeResult") -> None:
        bad = f", {result.bad:,} bad ones in {result.bad_to}" if result.bad else ""
        print(
            f"{result.topic}: landed {result.records:,} records in {result.batches} batches to {result.to}{bad}; "
            f"{result.total_records:,} there now ({result.seconds:.1f} s)"
        )
        for name, rows in result.dropped.items():
            print(f"{result.topic}: field {name} of {rows:,} records has no column in the table")
        if result.gap_offsets:
            print(f"{result.topic}: {result.gap_offsets:,} offsets are lost: holdfast lake status names them")
