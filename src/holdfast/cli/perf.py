"""``holdfast perf``: how fast a cluster takes records, and gives them."""

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final, TypeVar

import click

from holdfast.cli.command_config import command_security
from holdfast.cli.connecting import bootstrap_option, request_timeout_s
from holdfast.cli.failing import Failed, OneLineGroup
from holdfast.cli.perf_lines import CONSUMER_HEADER, consumed_document, consumed_line
from holdfast.cli.producer_properties import ACKS, ProducerProperties, producer_properties, settled
from holdfast.client.pool import parse_bootstrap
from holdfast.model.errors import ConfigError
from holdfast.records.compression import Codec

T = TypeVar("T")
IN_ORDER: Final = 5
"""Batches of a partition whose order brokers can tell at a time."""
MOST_BYTES: Final = 32 << 20


@click.group(cls=OneLineGroup)
def perf() -> None:
    """Measure a cluster with a load."""


@perf.command()
@bootstrap_option
@click.option("--topic", required=True, help="Which has to be there.")
@click.option("--records", "--num-records", "records", type=click.IntRange(min=1), required=True, help="How many.")
@click.option(
    "--size", "--record-size", "size", type=click.IntRange(0, MOST_BYTES), default=100, show_default=True,
    help="Bytes of a value; random letters.",
)  # fmt: skip
@click.option(
    "--throughput", type=click.FloatRange(min=-1), default=-1, show_default=True,
    help="Records a second at most; -1: as many as it takes.",
)  # fmt: skip
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True)
@click.option(
    "--compression", type=click.Choice([codec.name.lower() for codec in Codec]), default="none", show_default=True
)
@click.option(
    "--batch-size",
    type=click.IntRange(100, MOST_BYTES),
    default=16384,
    show_default=True,
    help="Bytes, before compression.",
)
@click.option("--linger-ms", type=click.FloatRange(min=0), default=0, show_default=True, help="As producers wait.")
@click.option(
    "--in-flight", type=click.IntRange(1, 100), default=5, show_default=True, help="Batches of a partition at a time."
)
@click.option(
    "--idempotence", is_flag=True, help="With a producer id, as Kafka's producer by itself: no batch is there twice."
)
@producer_properties(
    "acks", "batch.size", "buffer.memory", "client.id", "compression.type", "delivery.timeout.ms",
    "enable.idempotence", "linger.ms",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON document at the end, and nothing before.")
@click.pass_context
def produce(
    ctx: click.Context,
    bootstrap: str,
    topic: str,
    records: int,
    size: int,
    throughput: float,
    acks: str,
    compression: str,
    batch_size: int,
    linger_ms: float,
    in_flight: int,
    idempotence: bool,
    properties: ProducerProperties,
    as_json: bool,
) -> None:
    """Write records and say how fast that was, as kafka-producer-perf-test does.

    A line every five seconds, and one at the end with percentiles. The latency of a batch counts for all its records:
    from when its first one was due until it was acknowledged; with --throughput a record is due at its time, also while
    brokers are slow. Without --idempotence a batch that is sent again may be there twice.
    """
    from holdfast.cli.perf_load import PerfLoad
    from holdfast.cli.perf_load import produce as run

    properties = settled(ctx, properties)
    if throughput == 0:
        raise click.UsageError("--throughput 0: expected records a second, or -1")
    said: dict[str, Any] = {
        "acks": properties.acks, "codec": properties.codec, "batch_bytes": properties.batch_bytes,
        "linger_s": properties.linger_s, "idempotent": properties.idempotent, "client_id": properties.client_id,
        "delivery_timeout_s": properties.delivery_timeout_s, "buffer_bytes": properties.buffer_bytes,
    }  # fmt: skip
    load = replace(
        PerfLoad(
            topic=topic,
            records=records,
            size=size,
            rate=None if throughput < 0 else throughput,
            acks=ACKS[acks],
            codec=Codec[compression.upper()],
            batch_bytes=batch_size,
            linger_s=linger_ms / 1000,
            in_flight=in_flight,
            idempotent=idempotence,
            delivery_timeout_s=request_timeout_s(),
        ),
        **{name: value for name, value in said.items() if value is not None},
    )
    if load.idempotent and (load.acks != -1 or load.in_flight > IN_ORDER):
        raise click.UsageError(
            f"--idempotence, --acks {acks}, --in-flight {in_flight}: expected acks all and {IN_ORDER} at most with it"
        )
    sent, seconds = _run(bootstrap, run(bootstrap, load, _nothing if as_json else click.echo, command_security()))
    click.echo(json.dumps(sent.document(seconds)) if as_json else sent.line(seconds, final=True))


@perf.command()
@bootstrap_option
@click.option("--topic", required=True)
@click.option(
    "--records", "--messages", "records", type=click.IntRange(min=1),
    help="How many at least.  [default: what is there when it begins]",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_ms", type=click.IntRange(min=1), default=10_000, show_default=True,
    help="Milliseconds without a record after which it ends.",
)  # fmt: skip
@click.option(
    "--fetch-size", type=click.IntRange(1, 1 << 30), default=1 << 20, show_default=True,
    help="Bytes of one partition in an answer.",
)  # fmt: skip
@click.option("--show-detailed-stats", "detailed", is_flag=True, help="A line every five seconds, too.")
@click.option("--hide-header", is_flag=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document at the end, and nothing before.")
def consume(
    bootstrap: str,
    topic: str,
    records: int | None,
    timeout_ms: int,
    fetch_size: int,
    detailed: bool,
    hide_header: bool,
    as_json: bool,
) -> None:
    """Read all partitions from their beginning and say how fast that was, as kafka-consumer-perf-test does.

    Records are counted by the headers of their batches, bytes as they come over the wire (compressed, if they are). No
    group is joined.
    """
    from holdfast.cli.perf_load import PerfReading
    from holdfast.cli.perf_load import consume as run

    reading = PerfReading(
        topic=topic,
        records=records,
        timeout_s=timeout_ms / 1000,
        fetch_bytes=fetch_size,
        request_timeout_s=request_timeout_s(),
    )
    if not as_json and not hide_header:
        click.echo(CONSUMER_HEADER)

    def window(*numbers: int) -> None:
        if detailed and not as_json:
            click.echo(consumed_line(*numbers))

    found = _run(bootstrap, run(bootstrap, reading, window, command_security()))
    numbers = (found.began_ms, found.ended_ms, found.records, found.size)
    click.echo(json.dumps(consumed_document(*numbers)) if as_json else consumed_line(*numbers))
    if records is not None and found.records < records:
        raise Failed(f"topic {topic}: {found.records} records within {timeout_ms} ms of silence: expected {records}")


def _run(bootstrap: str, work: Coroutine[Any, Any, T]) -> T:
    try:
        parse_bootstrap(bootstrap)
    except ConfigError as e:
        work.close()
        raise click.UsageError(str(e)) from e
    return asyncio.run(work)


def _nothing(line: str) -> None:
    """The document at the end is all."""
