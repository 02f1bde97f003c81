r"""``holdfast consume``: records become lines on standard output.

Ends with 0 after --exit-eof, --max-messages, --timeout-ms, or when whoever reads the pipe has gone; 130 after Ctrl-C;
1 after an error. With --group, positions are committed after the records have been written: a record may come twice,
never zero times.
"""

import asyncio
import logging
import re
import sys

import click

from holdfast.cli.command_config import command_security, with_way_out
from holdfast.cli.completing import complete_groups, complete_topics
from holdfast.cli.connecting import cluster_options, understood
from holdfast.cli.consuming import Consumer, Wanted
from holdfast.cli.escapes import unescape
from holdfast.cli.failing import OneLineCommand
from holdfast.cli.record_format import Properties, RecordForm, as_console_consumer, as_json, by_format, plain
from holdfast.cli.standard_output import say, silence
from holdfast.cli.start_at import EXPECTED, Exactly, FromTime, Start, parse_start, parse_time
from holdfast.client.views import IsolationLevel, OffsetSpec
from holdfast.model.errors import HoldfastError

AS_IT_IS = "\b"
"""Before lines that click must not put together."""
EPILOG = rf"""
{AS_IT_IS}
Examples:
  holdfast consume orders --from-beginning --exit-eof
  holdfast consume orders --offset -5 --exit-eof --format '%p@%o %T %k=%s\n'
  holdfast consume orders --from-time 2026-01-01T00:00:00 --json
  holdfast consume --include 'orders\..*' --offset @1767225600000 --format '%t %K %S %h\n'
  holdfast consume old --from-beginning -e --json | holdfast produce new --json

{AS_IT_IS}
FORMAT is kcat's; it adds no newline by itself:
  %t topic   %p partition  %o offset  %T timestamp in ms (-1: none)
  %k key     %s %v value   %K %S %V length of key, value (-1: null)
  %h headers as NAME=VALUE,...   %% a percent sign
  \n \t \r \e \0 \a \\ \xNN      these bytes
"""


@click.command(cls=OneLineCommand, epilog=EPILOG)
@cluster_options("--consumer.config")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_topics)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="What to read; or give it as NAME. May be repeated.",
)
@click.option("--include", metavar="REGEX", help="Read all topics whose whole name matches, those of the start.")
@click.option(
    "--group", shell_complete=complete_groups, help="Read as a member of this consumer group and commit positions."
)
@click.option("--partition", type=click.IntRange(0), help="Only this one.")
@click.option("--offset", metavar="WHERE", help="Where to begin: earliest, latest, -N: the last N of each partition, "
              "@TIME (2026-01-01T00:00:00, UTC, or ms since 1970), or with --partition an offset.")  # fmt: skip
@click.option("--from-beginning", is_flag=True, help="Begin at the earliest record instead of the next one.")
@click.option("--from-time", metavar="TIME", help="Begin at the first record of this time or later: --offset @TIME.")
@click.option("--exit-eof", "-e", is_flag=True, help="End at the end of each partition as it is at the start.")
@click.option("--max-messages", type=click.IntRange(0), help="End after so many.")
@click.option("--timeout-ms", type=click.IntRange(0), help="End when no record comes for so long.")
@click.option("--isolation-level", type=click.Choice(("read_committed", "read_uncommitted")), show_default=True,
              default="read_uncommitted", help="Whether transactions count before their commit.")  # fmt: skip
@click.option("--format", "form", metavar="FORMAT", help="Write each record as this says; see below.")
@click.option("--json", "json_lines", is_flag=True, help="Write each record as a JSON object on a line.")
@click.option("--key-separator", help=r"Write KEY, this, VALUE (\t is a tab). Without it only values.")
@click.option("--print-key", is_flag=True, help="Write the key before the value, and a tab if not told otherwise.")
@click.option("--print-timestamp", is_flag=True, help="Write CreateTime:MS or LogAppendTime:MS before it.")
@click.option("--print-partition", is_flag=True, help="Write Partition:N before it.")
@click.option("--print-offset", is_flag=True, help="Write Offset:N before it.")
@click.option("--print-headers", is_flag=True, help="Write NAME:VALUE,NAME:VALUE or NO_HEADERS before it.")
@click.option("--null-marker", metavar="TEXT", help="What null is written as.  [default: null; in FORMAT nothing]")
def consume(
    bootstrap: str,
    names: tuple[str, ...],
    topics: tuple[str, ...],
    include: str | None,
    group: str | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
    from_time: str | None,
    exit_eof: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: str,
    form: str | None,
    json_lines: bool,
    key_separator: str | None,
    print_key: bool,
    print_timestamp: bool,
    print_partition: bool,
    print_offset: bool,
    print_headers: bool,
    null_marker: str | None,
) -> None:
    """Write the records of topics to standard output, one line each."""
    shown = Properties(print_timestamp, print_partition, print_offset, print_headers, print_key)
    wanted = Wanted(
        topics=tuple(dict.fromkeys((*topics, *names))),
        include=expression(include),
        group=group,
        partition=partition,
        start=start_of(offset, from_beginning, from_time, partition),
        to_end=exit_eof,
        max_messages=max_messages,
        timeout_ms=timeout_ms,
        form=form_of(form, json_lines, key_separator, shown, null_marker),
        isolation=IsolationLevel[isolation_level.upper()],
    )
    if bool(wanted.topics) == (include is not None):
        given = f"{', '.join(wanted.topics)} and --include {include}" if include is not None else "none"
        raise click.UsageError(f"which topics? {given}: expected names, --topic or --include, and one of them")
    if group is not None and partition is not None:
        raise click.UsageError("--partition and --group: expected one of them, as a group assigns partitions")
    sys.exit(run(Consumer(bootstrap, wanted, command_security())))


def run(consumer: Consumer) -> int:
    """The exit code; how many there were is told however it ends."""
    logging.basicConfig(level=logging.WARNING, format="holdfast consume: %(message)s", stream=sys.stderr)
    try:
        code = asyncio.run(consumer.run())
    except HoldfastError as e:
        click.echo(f"holdfast consume: {with_way_out(str(e))}", err=True)
        code = 1
    except BrokenPipeError:  # who has read enough goes
        silence()
        code = 0
    except OSError as e:
        say("holdfast consume", e)
        silence()
        code = 1
    click.echo(f"Processed a total of {consumer.count} messages", err=True)
    return code


# -- what options say --------------------------------------------------------------------------------------


def expression(include: str | None) -> re.Pattern[str] | None:
    try:
        return None if include is None else re.compile(include)
    except re.error as e:
        raise click.BadParameter(f"{include!r}: {e}, expected a regular expression", param_hint="--include") from None


def start_of(offset: str | None, from_beginning: bool, from_time: str | None, partition: int | None) -> Start:
    """One of them at most says where to begin."""
    given = [name for name, there in (("--offset", offset is not None), ("--from-beginning", from_beginning),
                                      ("--from-time", from_time is not None)) if there]  # fmt: skip
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)}: expected one of them")
    if from_time is not None:
        return FromTime(understood(parse_time, from_time, "--from-time"))
    if offset is None:
        return OffsetSpec.EARLIEST if from_beginning else OffsetSpec.LATEST
    start = understood(parse_start, offset, "--offset")
    if isinstance(start, Exactly) and partition is None:
        raise click.UsageError(
            f"--offset {offset}: expected with --partition; without it {EXPECTED.partition(', ')[2]}"
        )
    return start


def form_of(
    form: str | None, json_lines: bool, key_separator: str | None, shown: Properties, null_marker: str | None
) -> RecordForm:
    """One of --format, --json, and what kafka-console-consumer has properties for."""
    properties = key_separator is not None or any(shown)
    if (form is not None) + json_lines + properties > 1:
        raise click.UsageError("--format, --json, --key-separator with --print-...: expected one of these three")
    marker = None if null_marker is None else understood(unescape, null_marker, "--null-marker")
    if json_lines:
        if marker is not None:
            raise click.UsageError("--null-marker and --json: expected one of them, as JSON has its own null")
        return as_json()
    if form is not None:
        return understood(lambda text: by_format(text, marker or b""), form, "--format")
    separator = None if key_separator is None else understood(unescape, key_separator, "--key-separator")
    if separator == b"":
        raise click.UsageError("--key-separator '': expected at least one character")
    null = b"null" if marker is None else marker
    if shown.plain:
        return plain(separator or (b"\t" if shown.key else None), null)
    return as_console_consumer(shown._replace(key=shown.key or separator is not None), separator or b"\t", null)
