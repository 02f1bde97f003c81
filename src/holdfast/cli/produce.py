r"""``holdfast produce``: lines of standard input become records, or what lengths or files hold.

Ends with 0 when every line is written, 1 when one could not be, 130 after Ctrl-C; what had been read by then is
written first. Retries write nothing twice, unless --no-idempotence allows it.
"""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from holdfast.cli.command_config import command_security, with_way_out
from holdfast.cli.completing import complete_topics
from holdfast.cli.connecting import cluster_options, understood
from holdfast.cli.escapes import unescape
from holdfast.cli.failing import OneLineCommand
from holdfast.cli.input_frames import PARTS, LengthFrames, LineFrames, record_of_file, record_of_lengths
from holdfast.cli.producer_properties import ACKS, ProducerProperties, producer_properties, settled
from holdfast.cli.producing import ProducingOptions, Production
from holdfast.cli.record_json import LATEST_TIMESTAMP
from holdfast.cli.record_lines import HeaderForm, InputError, LineForm, ReadLine, header_of, json_record, text_of
from holdfast.model.errors import HoldfastError
from holdfast.records.compression import Codec

AS_IT_IS = "\b"
"""Before lines that click must not put together."""
EPILOG = rf"""
{AS_IT_IS}
Examples:
  seq 100 | holdfast produce numbers
  echo 'order-7:NULL' | holdfast produce orders --key-separator : --null-marker NULL
  printf 'trace:1f,by:me\tkey\tvalue\n' | holdfast produce orders --parse-headers --key-separator '\t'
  holdfast consume old --from-beginning -e --json | holdfast produce new --json
  printf '\0\0\0\003one\0\0\0\003two' | holdfast produce numbers --length-prefixed value
  holdfast produce photos --file a.jpg --file b.jpg --producer-property compression.type=zstd

A line of --json is an object with value (or valueBase64), and any of key (or keyBase64), headers, timestamp,
timestampType, topic, partition, offset: what consume --json writes. Where it was is not where it goes: topic and offset
are passed over, and so is partition without --keep-partitions.

A length is four bytes, big-endian, before the bytes of the key or the value; -1 is null.
"""


@click.command(cls=OneLineCommand, epilog=EPILOG)
@cluster_options("--producer.config")
@click.argument("name", required=False, shell_complete=complete_topics)
@click.option("--topic", shell_complete=complete_topics, help="Where the records go; or give it as NAME.")
@click.option("--key-separator", help=r"A line is KEY, this, VALUE (\t is a tab). Without it there are no keys.")
@click.option("--partition", type=click.IntRange(0), help="All to this one; by key, or in turn, without it.")
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True)
@click.option(
    "--compression",
    type=click.Choice([codec.name.lower() for codec in Codec]),
    default="none",
    show_default=True,
)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="On every record; may be repeated.")
@click.option("--parse-headers", is_flag=True, help="A line begins with NAME:VALUE,NAME:VALUE and a tab.")
@click.option("--headers-delimiter", help=r"What ends the headers of a line.  [default: \t]")
@click.option("--headers-separator", help="What is between two headers.  [default: ,]")
@click.option("--headers-key-separator", help="What is between a header's name and value.  [default: :]")
@click.option("--null-marker", metavar="TEXT", help="A value, key or header value that is this is null: a tombstone.")
@click.option("--timestamp", type=click.IntRange(0, LATEST_TIMESTAMP), metavar="MS",
              help="Of every record, in ms since 1970; when it was read, without it.")  # fmt: skip
@click.option("--json", "json_lines", is_flag=True, help="A line is a JSON object, as consume --json writes it.")
@click.option("--keep-partitions", is_flag=True, help="Each record goes to the partition that its JSON line names.")
@click.option("--length-prefixed", type=click.Choice(list(PARTS)),
              help="Instead of lines: values, or keys and values, behind their lengths.")  # fmt: skip
@click.option("--file", "files", multiple=True, type=click.Path(dir_okay=False), metavar="PATH",
              help="A record whose value is this file, instead of standard input; may be repeated.")  # fmt: skip
@click.option("--no-idempotence", is_flag=True, help="Without a producer id: a retry may write a record twice.")
@producer_properties(
    "acks", "batch.size", "buffer.memory", "client.id", "compression.type", "delivery.timeout.ms", "enable.idempotence"
)
@click.pass_context
def produce(
    ctx: click.Context,
    bootstrap: str,
    name: str | None,
    topic: str | None,
    key_separator: str | None,
    partition: int | None,
    acks: str,
    compression: str,
    headers: tuple[str, ...],
    parse_headers: bool,
    headers_delimiter: str | None,
    headers_separator: str | None,
    headers_key_separator: str | None,
    null_marker: str | None,
    timestamp: int | None,
    json_lines: bool,
    keep_partitions: bool,
    length_prefixed: str | None,
    files: tuple[str, ...],
    no_idempotence: bool,
    properties: ProducerProperties,
) -> None:
    """Write lines of standard input to topic NAME, one record a line."""
    properties = settled(ctx, properties)
    if name is not None and topic is not None and name != topic:
        raise click.UsageError(f"--topic {topic} and {name}: expected one of them")
    target = topic or name
    if target is None:
        raise click.UsageError("which topic? give its name, or --topic")
    if keep_partitions and (not json_lines or partition is not None):
        raise click.UsageError("--keep-partitions: expected with --json and without --partition")
    null = None if null_marker is None else understood(unescape, null_marker, "--null-marker")
    signs = (headers_delimiter, headers_separator, headers_key_separator)
    refuse_forms({
        "--file": files, "--length-prefixed": length_prefixed, "--json": json_lines,
        "--key-separator": key_separator, "--parse-headers": parse_headers, "--null-marker": null,
    })  # fmt: skip
    parts = None if length_prefixed is None else PARTS[length_prefixed]
    read_line = line_form(json_lines, key_separator, null, parse_headers, signs)
    asked = with_properties(properties, ProducingOptions(
        topic=target,
        partition=partition,
        keep_partitions=keep_partitions,
        acks=ACKS[acks],
        codec=Codec[compression.upper()],
        idempotent=not no_idempotence,
        headers=tuple(understood(lambda text: header_of(text, null), given, "--header") for given in headers),
        timestamp_ms=timestamp,
        frames=LineFrames if parts is None else lambda: LengthFrames(parts),
        read_line=record_of_file if files else read_line if parts is None else record_of_lengths,
        files=files,
    ))  # fmt: skip
    try:
        code = asyncio.run(Production(bootstrap, asked, command_security()).run())
    except (HoldfastError, InputError) as e:
        click.echo(f"holdfast produce: {with_way_out(str(e))}", err=True)
        code = 1
    sys.exit(code)


def with_properties(properties: ProducerProperties, asked: ProducingOptions) -> ProducingOptions:
    """What the properties say counts. UsageError where they contradict each other."""
    said: dict[str, Any] = {
        "acks": properties.acks, "codec": properties.codec, "idempotent": properties.idempotent,
        "client_id": properties.client_id, "batch_bytes": properties.batch_bytes,
        "buffer_bytes": properties.buffer_bytes, "delivery_timeout_s": properties.delivery_timeout_s,
    }  # fmt: skip
    changed = replace(asked, **{name: value for name, value in said.items() if value is not None})
    if properties.idempotent and changed.acks != -1:
        raise click.UsageError(f"enable.idempotence=true and acks {changed.acks}: expected acks all")
    return changed


def refuse_forms(given: Mapping[str, object]) -> None:
    """UsageError where the first of these forms of input that is given does not go with another one. A line may have a
    key, headers and a marker for null; the others say all of a record by themselves."""
    found = [option for option, value in given.items() if value not in (None, False, ())]
    if len(found) > 1 and found[0] in ("--file", "--length-prefixed", "--json"):
        raise click.UsageError(f"{found[0]} and {found[1]}: expected one of them")


def line_form(
    json_lines: bool,
    key_separator: str | None,
    null: bytes | None,
    parse_headers: bool,
    signs: tuple[str | None, str | None, str | None],
) -> ReadLine:
    """How a line is read: JSON says all of it by itself."""
    if any(sign is not None for sign in signs) and not parse_headers:
        raise click.UsageError("--headers-delimiter and its like: expected with --parse-headers")
    if json_lines:
        return json_record
    separator = None if key_separator is None else sign_of("--key-separator", key_separator)
    return LineForm(
        key_separator=separator,
        null_marker=null,
        headers=header_form(*signs) if parse_headers else None,
    )


def header_form(delimiter: str | None, separator: str | None, key_separator: str | None) -> HeaderForm:
    form = HeaderForm(
        delimiter=sign_of("--headers-delimiter", delimiter or r"\t"),
        separator=sign_of("--headers-separator", separator or ","),
        key_separator=sign_of("--headers-key-separator", key_separator or ":"),
    )
    if len({form.delimiter, form.separator, form.key_separator}) < 3:
        used = " ".join(map(repr, map(text_of, (form.delimiter, form.separator, form.key_separator))))
        raise click.UsageError(f"--headers-delimiter, --headers-separator, --headers-key-separator {used}: "
                               "expected three that differ")  # fmt: skip
    return form


def sign_of(option: str, text: str) -> bytes:
    """The bytes of a separator."""
    sign = understood(unescape, text, option)
    if not sign:
        raise click.UsageError(f"{option} '': expected at least one character")
    return sign
