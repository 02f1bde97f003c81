"""``holdfast topics offsets`` and ``trim``: what kafka-get-offsets.sh and kafka-delete-records.sh do.

Where a log begins and ends is the leader's to say. A trim says first what goes, and asks; it deletes what was said then
and no more, also where the log has grown since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from holdfast.cli.completing import complete_topics
from holdfast.cli.connecting import bootstrap_option, confirmed, with_cluster
from holdfast.cli.failing import Failed, Misused, OneLineCommand, reason_of
from holdfast.cli.offset_lines import (
    cut_lines,
    low_watermark_lines,
    offset_lines,
    parse_cuts,
    span_json,
    span_lines,
    total,
)
from holdfast.cli.partition_words import (
    Pattern,
    existing,
    expression,
    find_partitions,
    matching,
    parse_partitions,
    parse_patterns,
)
from holdfast.cli.time_words import DATETIME_FORM, SPEC_FORM, parse_spec, parse_time
from holdfast.client.admin import AdminClient
from holdfast.client.log_cuts import Cut, CutForm, cuts
from holdfast.client.log_offsets import delete_records, list_offsets_each, log_spans
from holdfast.client.offset_resets import LogSpan, ToLatest, ToOffset, ToPlan, ToTime, time_of
from holdfast.client.views import ClusterMetadata, OffsetAt, OffsetSpec
from holdfast.model.errors import HoldfastError
from holdfast.model.types import Offset, TimestampMs, TopicPartition

FORMS = "--before-offset, --before-time, --to-latest, --offset-json-file"


@click.command(cls=OneLineCommand)
@bootstrap_option
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_topics)
@click.option(
    "--topic",
    "pattern",
    metavar="EXPRESSION",
    shell_complete=complete_topics,
    help="Topics whose names match, in place of names.",
)
@click.option("--topic-partitions", metavar="PATTERN,...", help="orders:0-3,logs.*:7, in place of names.")
@click.option("--partitions", metavar="N,...", help="Only partitions of these numbers.")
@click.option("--time", "time_text", metavar="TIME", help=f"Which offset: {SPEC_FORM}.  [default: latest]")
@click.option(
    "--exclude-internal", "--exclude-internal-topics", is_flag=True, help="Without __consumer_offsets and such."
)
@click.option("--table", is_flag=True, help="Earliest, latest and the number between them, in columns.")
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document.")
def offsets(
    bootstrap: str,
    names: tuple[str, ...],
    pattern: str | None,
    topic_partitions: str | None,
    partitions: str | None,
    time_text: str | None,
    exclude_internal: bool,
    table: bool,
    as_json: bool,
) -> None:
    """Show offsets of the topics NAME, or of all: one a line, topic:partition:offset.

    latest is the high watermark, which is where a consumer ends. A partition without such an offset has no line.
    """
    if [bool(names), pattern is not None, topic_partitions is not None].count(True) > 1:
        raise Misused("names, --topic and --topic-partitions: expected one of them")
    if partitions is not None and topic_partitions is not None:
        raise Misused("--topic-partitions cannot be used with --partitions")
    if [table, as_json, time_text is not None].count(True) > 1:
        raise Misused("--table, --json and --time: expected one of them, as the first two show earliest and latest")
    numbers = None if partitions is None else parse_partitions(partitions, "--partitions")
    patterns = parse_patterns(topic_partitions or "") if topic_partitions is not None else _pattern(pattern)
    try:
        spec = parse_spec(time_text or "latest")
    except ValueError as e:
        raise Misused(f"--time {e}") from None

    async def work(client: AdminClient) -> Outcomes:
        view = await client.metadata()
        chosen = [p for name in names for p in _exactly(view, name)] if names else patterns
        tps = matching(view, chosen, numbers=numbers, exclude_internal=exclude_internal)
        specs = [OffsetSpec.EARLIEST, OffsetSpec.LATEST] if table or as_json else [spec]
        return [await list_offsets_each(client, dict.fromkeys(tps, each)) for each in specs]

    outcomes = with_cluster(bootstrap, work)
    failed = {tp: at for found in outcomes for tp, at in found.items() if isinstance(at, HoldfastError)}
    known = [{tp: at for tp, at in found.items() if isinstance(at, OffsetAt)} for found in outcomes]
    if as_json:
        click.echo(span_json(_spans(known), failed))
    else:
        for line in span_lines(_spans(known)) if table else offset_lines(known[0]):
            click.echo(line)
    if failed:
        raise Failed(*(f"offsets of {tp} cannot be told: {reason_of(error)}" for tp, error in sorted(failed.items())))


Outcomes = list[dict[TopicPartition, OffsetAt | HoldfastError]]


def _spans(known: Sequence[Mapping[TopicPartition, OffsetAt]]) -> dict[TopicPartition, LogSpan]:
    starts, ends = known
    return {tp: LogSpan(start=at.offset or 0, end=ends[tp].offset or 0) for tp, at in starts.items() if tp in ends}


def _pattern(text: str | None) -> list[Pattern]:
    return [Pattern(expression(".*" if text is None else text.replace(",", "|"), "--topic"))]


def _exactly(view: ClusterMetadata, name: str) -> list[Pattern]:
    existing(view, name)
    return [Pattern(expression(re.escape(name), "NAME"))]


@click.command(cls=OneLineCommand)
@bootstrap_option
@click.argument("name", required=False, shell_complete=complete_topics)
@click.option("--partition", "numbers", type=click.IntRange(0), multiple=True, help="Only this one; repeatable.")
@click.option("--before-offset", type=click.IntRange(0), metavar="OFFSET", help="Delete records before this offset.")
@click.option(
    "--before-time", metavar="TIME",
    help=f"Delete records before the first one not older than that: milliseconds since 1970, or {DATETIME_FORM}.",
)  # fmt: skip
@click.option("--to-latest", is_flag=True, help="Delete all records there are.")
@click.option(
    "--offset-json-file", "path", metavar="FILE", help="kafka-delete-records.sh's JSON, in place of all of these."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def trim(
    bootstrap: str,
    name: str | None,
    numbers: tuple[int, ...],
    before_offset: int | None,
    before_time: str | None,
    to_latest: bool,
    path: str | None,
    yes: bool,
) -> None:
    """Delete the oldest records of the topic NAME.

    Says what goes and asks. Then it prints where each partition begins.
    """
    form, wanted = _cut_form(name, numbers, before_offset, before_time, to_latest, path)

    async def plan(client: AdminClient) -> dict[TopicPartition, Cut]:
        tps = await find_partitions(client, wanted)
        return cuts(form, tps, await log_spans(client, tps, time_of(form)))

    planned = with_cluster(bootstrap, plan)
    for line in cut_lines(planned):
        click.echo(line, err=True)
    if any(cut.offsets for cut in planned.values()):
        confirmed("delete for good", [total(planned)], yes=yes)

    async def work(client: AdminClient) -> dict[TopicPartition, Offset | HoldfastError]:
        return await delete_records(client, {tp: cut.before for tp, cut in planned.items()})

    click.echo("Executing records delete operation")
    outcomes = with_cluster(bootstrap, work)
    for line in low_watermark_lines({tp: at for tp, at in outcomes.items() if isinstance(at, int)}):
        click.echo(line)
    failed = {tp: error for tp, error in outcomes.items() if isinstance(error, HoldfastError)}
    if failed:
        raise Failed(*(f"{tp}: {reason_of(error)}" for tp, error in sorted(failed.items())))


Wanted = list[tuple[str, Sequence[int] | None]]


def _cut_form(
    name: str | None,
    numbers: Sequence[int],
    before_offset: int | None,
    before_time: str | None,
    to_latest: bool,
    path: str | None,
) -> tuple[CutForm, Wanted]:
    if [before_offset is not None, before_time is not None, to_latest, path is not None].count(True) != 1:
        raise Misused(f"expected one of {FORMS}")
    if path is not None:
        if name is not None or numbers:
            raise Misused("--offset-json-file names topics and partitions: expected it without NAME and --partition")
        offsets = _read_cuts(path)
        return ToPlan(offsets), [(tp.topic, [tp.partition]) for tp in offsets]
    if name is None:
        raise Misused("Missing argument NAME: expected a topic, or --offset-json-file")
    wanted: Wanted = [(name, numbers or None)]
    if before_offset is not None:
        return ToOffset(before_offset), wanted
    return (ToLatest() if before_time is None else ToTime(_before_time(before_time))), wanted


def _before_time(text: str) -> TimestampMs:
    try:
        return parse_time(text)
    except ValueError as e:
        raise Misused(f"--before-time {e}") from None


def _read_cuts(path: str) -> dict[TopicPartition, Offset]:
    try:
        return parse_cuts(Path(path).read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise Failed(f"--offset-json-file {path} is no text: expected JSON") from None
    except OSError as e:
        raise Failed(f"--offset-json-file {path}: {e.strerror}") from None
    except ValueError as e:
        raise Failed(f"--offset-json-file {path}: {e}") from None
