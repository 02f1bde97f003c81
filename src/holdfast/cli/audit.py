"""``holdfast audit``: thin over holdfast.spark.audit."""

from typing import TYPE_CHECKING

import click

from holdfast.cli.connecting import bootstrap_option
from holdfast.cli.lake import words_of

if TYPE_CHECKING:
    from holdfast.spark.audit import AuditResult


@click.command(short_help="Compare all replicas on disk, batch by batch.")
@bootstrap_option
@click.option("--topic", "topics", multiple=True, help="Topic to audit; may be repeated. Default: all but internal.")
@click.option("--relocate", multiple=True, metavar="LOG_DIR=PATH", help="Where a broker's log directory is here.")
@click.option("--allow-missing", is_flag=True, help="Replicas that cannot be read are not a failure.")
@click.option("--json", "as_json", is_flag=True, help="The result as one line of JSON.")
@click.option("--driver-memory", default="1g", show_default=True)
def audit(
    bootstrap: str,
    topics: tuple[str, ...],
    relocate: tuple[str, ...],
    allow_missing: bool,
    as_json: bool,
    driver_memory: str,
) -> None:
    """Compare the segment files of all replicas up to the high watermark: contiguous offsets, CRCs, equal bytes.

    Exits with 1 when replicas disagree, or when one cannot be read (unless --allow-missing). Reads files: run it
    where the log directories of the brokers are.
    """
    from holdfast.spark import audit as job
    from holdfast.spark.session import spark_session

    moved = dict(each.split("=", 1) for each in relocate if "=" in each)
    try:
        spark = spark_session("holdfast audit", driver_memory=driver_memory)
        result = job.run(bootstrap, topics or None, spark=spark, relocate=moved)
        spark.stop()
    except Exception as error:
        raise click.ClickException(words_of(error)) from error
    if as_json:
        print(job.as_json(result))
    else:
        _print(result)
    if not result.agree or (result.missing and not allow_missing):
        raise SystemExit(1)


def _print(result: "AuditResult") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("partition", "offsets", "batches", "records", "MB read", "replicas compared", "verdict")
    for column in table.columns[2:5]:
        column.justify = "right"
    for each in result.partitions:
        compared = ", ".join(map(str, each.brokers)) or "none"
        if each.missing:
            compared += f" (not readable: {', '.join(map(str, each.missing))})"
        verdict = f"{len(each.differences)} differences" if each.differences else "equal"
        if each.compacted and not each.differences:
            verdict = "CRC and order right (compacted: content not compared)"
        elif len(each.brokers) < 2 and not each.differences:
            verdict = "nothing to compare with" if each.brokers else "not readable"
        offsets = f"{each.start} to {each.high_watermark}"
        numbers = (f"{each.batches:,}", f"{each.records:,}", f"{each.bytes_read / 1e6:,.1f}")
        table.add_row(str(each.tp), offsets, *numbers, compared, verdict)
    console = Console()
    console.print(table)
    for text in result.differences:
        console.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
    verdict = "replicas agree" if result.agree else f"replicas disagree: {len(result.differences)} differences"
    console.print(
        f"{len(result.partitions)} partitions, {result.replicas} replicas, {result.records:,} records: {verdict} "
        f"({result.seconds:.1f} s)", highlight=False, soft_wrap=True,
    )  # fmt: skip
