"""``holdfast top``: a cluster as it is now, and again every few seconds."""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

from holdfast.cli.columns import terminal_width
from holdfast.cli.command_config import command_security
from holdfast.cli.connecting import bootstrap_option, request_timeout_s
from holdfast.cli.failing import Failed, Misused, OneLineCommand, text_of
from holdfast.cli.top_lines import TopLook, document, frame
from holdfast.client.admin import AdminClient
from holdfast.client.pool import parse_bootstrap
from holdfast.client.survey import members, survey
from holdfast.client.views import OffsetSpec
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast.model.types import Offset, TopicPartition

ASK_TIMEOUT_S = 5.0
"""A broker that does not answer for so long is shown as silent, unless the user has said how long."""


class TopFrames(Protocol):
    """Where frames go."""

    def show(self, look: TopLook, before: TopLook | None, trouble: str | None) -> None: ...


@click.command(cls=OneLineCommand)
@bootstrap_option
@click.option(
    "--interval", "interval_s", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="Seconds."
)
@click.option("--once", is_flag=True, help="One frame, and the end: for pipes. Its rates are those of one interval.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a frame, on a line.")
def top(bootstrap: str, interval_s: float, once: bool, as_json: bool) -> None:
    """Show brokers, log directories with their state, and the busiest topics; Ctrl-C ends it.

    RECORDS/S is how far the ends of the logs went between two looks: of a broker, of what it leads. REPLICAS' are the
    bytes of a directory's replicas.
    """
    try:
        parse_bootstrap(bootstrap)
    except ConfigError as e:
        raise click.UsageError(str(e)) from e
    if not (once or as_json or sys.stdout.isatty()):
        raise Misused("standard output is no terminal: expected --once, or --json")
    try:
        if as_json:
            asyncio.run(_watch(bootstrap, interval_s, _Lines(), once=once))
        elif once:
            asyncio.run(_watch(bootstrap, interval_s, _Once(), once=True))
        else:
            with _screen() as screen:
                asyncio.run(_watch(bootstrap, interval_s, screen, once=False))
    except KeyboardInterrupt:  # the way it is ended
        if once:
            raise


async def _watch(bootstrap: str, interval_s: float, shown: TopFrames, *, once: bool) -> None:
    """The first look has to succeed, with ``once`` both; later nobody may be there for a while."""
    timeout_s = request_timeout_s(ASK_TIMEOUT_S)
    security = command_security()
    async with AdminClient(bootstrap, client_id="holdfast-top", timeout_s=timeout_s, security=security) as client:
        last = await take_look(client)
        if not once:
            shown.show(last, None, None)
        while True:
            await asyncio.sleep(interval_s)
            try:
                look = await take_look(client)
            except HoldfastError as e:
                if once:
                    raise
                shown.show(last, None, text_of(e))
                continue
            shown.show(look, last, None)
            last = look
            if once:
                return


async def take_look(client: AdminClient) -> TopLook:
    """All that a frame shows. A broker that tells nothing of its disks, or of the ends of its logs, is part of it."""
    told = await survey(client)
    found = await members(client)
    led: dict[int, dict[TopicPartition, OffsetSpec]] = {}
    for topic in told.view.topics.values():
        for partition in topic.partitions:
            if partition.leader in told.alive and partition.leader is not None:
                tp = TopicPartition(topic.name, partition.partition)
                led.setdefault(partition.leader, {})[tp] = OffsetSpec.LATEST

    async def ends_of(wanted: dict[TopicPartition, OffsetSpec]) -> dict[TopicPartition, Offset]:
        try:
            listed = await client.list_offsets(dict(wanted))
        except HoldfastError:
            return {}
        return {tp: each.offset for tp, each in listed.items() if each.offset is not None}

    ends: dict[TopicPartition, Offset] = {}
    for part in await asyncio.gather(*map(ends_of, led.values())):
        ends |= part
    return TopLook(
        survey=told, nodes=found.brokers, ends=ends, at_s=time.monotonic(), at_ms=time.time_ns() // 1_000_000
    )


class _Lines:
    """A JSON object a frame."""

    def show(self, look: TopLook, before: TopLook | None, trouble: str | None) -> None:
        if trouble is not None:
            raise Failed(trouble)
        click.echo(document(look, before))


class _Once:
    """The frame as it is."""

    def show(self, look: TopLook, before: TopLook | None, trouble: str | None) -> None:
        click.echo("\n".join(frame(look, before, width=terminal_width())))


@contextmanager
def _screen() -> Iterator[TopFrames]:
    """The whole terminal, until the end of the block."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:

        class Screen:
            def show(self, look: TopLook, before: TopLook | None, trouble: str | None) -> None:
                width, height = console.size
                lines = frame(look, before, width=width, height=height - (trouble is not None))
                if trouble is not None:
                    lines.insert(0, f"nobody answers: {trouble}"[:width])
                live.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)

        yield Screen()
