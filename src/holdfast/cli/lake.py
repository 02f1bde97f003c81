"""``holdfast lake``: thin over holdfast.spark.lake."""

import json
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.connecting import bootstrap_option

if TYPE_CHECKING:
    from holdfast.spark.lake import LakeProgress, LakeResult


@click.command(short_help="Land topics as Parquet with Spark, exactly once.")
@bootstrap_option
@click.option("--topic", "topics", multiple=True, required=True, help="Topic to land; may be repeated.")
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), required=True, help="Directory to fill.")
@click.option("--checkpoint", type=click.Path(path_type=Path, file_okay=False), required=True,
              help="Directory that keeps the position; belongs to --to.")  # fmt: skip
@click.option("--available-now", is_flag=True, help="Land what is there and end; without it, go on until Ctrl-C.")
@click.option("--schema", help="DDL, Spark's JSON, or a file with one; default: inferred from the first records.")
@click.option("--sample", default=20_000, show_default=True, help="Records to infer the schema from.")
@click.option("--raw", is_flag=True, help="Land the bytes as they are, no JSON.")
@click.option("--keep-value", is_flag=True, help="Keep the value's bytes beside its fields.")
@click.option("--starting-offsets", default="earliest", show_default=True, help="For a new checkpoint.")
@click.option("--max-records-per-batch", default=500_000, show_default=True)
@click.option("--trigger", "trigger_s", default=2.0, show_default=True, metavar="SECONDS", help="Time between batches.")
@click.option("--no-fail-on-data-loss", is_flag=True, help="Go on where retention took records.")
@click.option("--json", "as_json", is_flag=True, help="Progress and result as JSON lines.")
@click.option("--driver-memory", default="1g", show_default=True)
def lake(topics: tuple[str, ...], to: Path, checkpoint: Path, as_json: bool, driver_memory: str, **given: Any) -> None:
    """Land topics as Parquet, each record once, also across restarts and crashes.

    With several topics each has its own folder in --to and --checkpoint. Ctrl-C ends after the batch under way.
    """
    from holdfast.spark.lake import LakeJob, run_all
    from holdfast.spark.session import spark_session

    stop = threading.Event()
    report = _JsonReport() if as_json else _BarReport()
    several = len(topics) > 1
    jobs = [
        LakeJob(
            bootstrap=given["bootstrap"],
            topic=topic,
            to=to / topic if several else to,
            checkpoint=checkpoint / topic if several else checkpoint,
            available_now=given["available_now"],
            schema=given["schema"],
            sample_records=given["sample"],
            parse_json=not given["raw"],
            keep_value=given["keep_value"],
            starting_offsets=given["starting_offsets"],
            max_offsets_per_batch=given["max_records_per_batch"],
            trigger_s=given["trigger_s"],
            fail_on_data_loss=not given["no_fail_on_data_loss"],
            on_progress=report.progress,
            stop=stop,
        )
        for topic in topics
    ]
    try:
        spark = spark_session("holdfast lake", driver_memory=driver_memory, log=checkpoint / "spark.log")
        _stop_on_signals(stop)
        with report:
            results = run_all(jobs, spark)
        for result in results:
            report.result(result)
        spark.stop()
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
            console=Console(stderr=True),
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
        bad = f", {result.bad:,} bad ones in {result.bad_path}" if result.bad else ""
        print(
            f"{result.topic}: landed {result.records:,} records in {result.batches} batches to {result.to}{bad}; "
            f"{result.total_records:,} there now ({result.seconds:.1f} s)"
        )
