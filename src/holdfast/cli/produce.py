"""``holdfast produce``: lines of standard input become records.

Ends with 0 when every line is written, 1 when one could not be, 130 after Ctrl-C; what had been read by then is
written first. Retries write nothing twice.
"""

import asyncio
import signal
import sys
import time

import click

from holdfast.cli.connecting import bootstrap_option
from holdfast.cli.kafka_words import qualified, said
from holdfast.cli.pipes import read_chunks
from holdfast.client.cluster import KafkaClient
from holdfast.client.producer import PipeProducer
from holdfast.model.errors import HoldfastError
from holdfast.records.compression import Codec

ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
INTERRUPTED = 130


class InputError(Exception):
    """A line of the input cannot be a record."""


@click.command()
@bootstrap_option
@click.argument("name", required=False)
@click.option("--topic", help="Where the records go; or give it as NAME.")
@click.option("--key-separator", help=r"A line is KEY, this, VALUE (\t is a tab). Without it there are no keys.")
@click.option("--partition", type=click.IntRange(0), help="All to this one; by key, or in turn, without it.")
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True)
@click.option(
    "--compression",
    type=click.Choice([codec.name.lower() for codec in Codec]),
    default="none",
    show_default=True,
)
def produce(
    bootstrap: str,
    name: str | None,
    topic: str | None,
    key_separator: str | None,
    partition: int | None,
    acks: str,
    compression: str,
) -> None:
    """Write lines of standard input to topic NAME, one record a line."""
    topic = topic or name
    if topic is None:
        raise click.UsageError("which topic? give its name, or --topic")
    separator = None if key_separator is None else unescape(key_separator)
    codec = Codec[compression.upper()]
    try:
        code = asyncio.run(_produce(bootstrap, topic, separator, partition, ACKS[acks], codec))
    except (HoldfastError, InputError) as e:
        click.echo(f"holdfast produce: {e}", err=True)
        code = 1
    sys.exit(code)


async def _produce(
    bootstrap: str, topic: str, separator: bytes | None, partition: int | None, acks: int, codec: Codec
) -> int:
    me = asyncio.current_task()
    assert me is not None
    interrupted = asyncio.Event()

    def interrupt() -> None:
        interrupted.set()
        assert me is not None
        me.cancel()

    loop = asyncio.get_running_loop()
    async with KafkaClient(bootstrap, client_id="holdfast-produce") as client:
        view = await client.topic(topic, auto_create=True)
        count = len(view.partitions)
        if partition is not None and partition >= count:
            raise InputError(f"--partition {partition}: topic {topic!r} has partitions 0 to {count - 1}")
        producer = PipeProducer(client, topic, count, acks=acks, codec=codec, partition=partition)
        await producer.start()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt)
        try:
            await pump(producer, separator)
        except asyncio.CancelledError:
            if not interrupted.is_set():
                raise
            me.uncancel()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        try:
            await producer.flush()
        except HoldfastError as e:
            lost = producer.appended - producer.written
            click.echo(f"holdfast produce: {lost} records not written: {qualified(e, said(e))}", err=True)
            return 1
    return INTERRUPTED if interrupted.is_set() else 0


async def pump(producer: PipeProducer, separator: bytes | None) -> None:
    """All of standard input into the producer; sends at once what nothing follows yet."""
    rest = b""
    line_number = 0
    async for chunk, more in read_chunks(sys.stdin.buffer):
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        now_ms = time.time_ns() // 1_000_000
        for line in lines:
            line_number += 1
            await producer.append(*split_line(line, separator, line_number), now_ms)
        if not more:
            producer.push()
    if rest:
        key, value = split_line(rest, separator, line_number + 1)
        await producer.append(key, value, time.time_ns() // 1_000_000)


def split_line(line: bytes, separator: bytes | None, number: int) -> tuple[bytes | None, bytes]:
    """(key, value)."""
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        shown = line[:60].decode(errors="replace")
        raise InputError(f"no key separator on line {number}: {shown!r}, expected KEY{separator.decode()}VALUE")
    return key, value


def unescape(text: str) -> bytes:
    r"""``\t`` and its like, as a shell passes them on; never empty."""
    try:
        found = text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode()
    except UnicodeDecodeError as e:
        raise click.UsageError(f"--key-separator {text!r}: {e.reason}; a backslash itself is two") from None
    if not found:
        raise click.UsageError("--key-separator: expected at least one character")
    return found
