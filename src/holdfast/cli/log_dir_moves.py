"""A bar for replicas on their way between log directories, until all are there.

Asks with DescribeLogDirs what Kafka's tools ask: the copy is a future replica in the target until it takes the
original's place.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from holdfast.cli.kafka_errors import Declined
from holdfast.cli.log_dir_lines import size
from holdfast.client.admin import AdminClient
from holdfast.client.disks import same_path
from holdfast.client.views import LogDirView
from holdfast.model.types import BrokerId, TopicPartition

LOOK_EVERY_S = 0.2
LOOKS = 15
"""In a row without a copy, until it is gone: a broker says yes before it has made one, and directories are looked at
one after the other while a copy takes its place."""


class Progress(NamedTuple):
    """How far one move is: bytes of the copy and of the original; ``ended``: there, or "why not"."""

    copied: int
    total: int
    ended: str | None


THERE, GONE = "there", "the copy is gone"


def progress_of(tp: TopicPartition, dirs: Sequence[LogDirView], target: str) -> Progress:
    """One move as the broker's directories show it. Pure."""
    original = copied = None
    where = target
    for each in dirs:
        for replica in each.replicas:
            if replica.tp == tp and replica.future and same_path(each.path, target):
                copied = replica.size_bytes
            elif replica.tp == tp and not replica.future:
                original, where = replica.size_bytes, each.path
        if same_path(each.path, target) and each.error is not None:
            return Progress(0, 0, f"{each.path} is offline")
    if original is None:
        return Progress(0, 0, "the replica is gone")
    if same_path(where, target):
        return Progress(original, original, THERE)
    if copied is None:
        return Progress(0, original, f"{GONE}, the replica is in {where}")
    return Progress(min(copied, original), original, None)


async def watch_moves(
    client: AdminClient, broker: BrokerId, moving: Sequence[TopicPartition], target: str
) -> list[Declined]:
    """Shows a bar until every move has ended. What is to be said of those that did not get there."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    failed: list[Declined] = []
    with Bar(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(f"{len(moving)} to {target}", total=None)
        left, done_bytes = list(moving), 0
        without = dict.fromkeys(moving, 0)
        while True:
            dirs = (await client.describe_log_dirs([broker], moving))[broker]
            seen = {tp: progress_of(tp, dirs, target) for tp in left}
            for tp, each in seen.items():
                without[tp] = without[tp] + 1 if each.ended is not None and each.ended.startswith(GONE) else 0
                if 0 < without[tp] < LOOKS:
                    seen[tp] = each._replace(ended=None)
            for tp, each in seen.items():
                if each.ended == THERE:
                    done_bytes += each.total
                    click.echo(f"{tp} is in {target} ({size(each.total)})")
                elif each.ended is not None:
                    line = f"{tp} on broker {broker} was not moved: {each.ended}"
                    failed.append(Declined(line, f"ERROR {line}"))
            left = [tp for tp in left if seen[tp].ended is None]
            under_way = [seen[tp] for tp in left]
            bar.update(
                task,
                completed=done_bytes + sum(each.copied for each in under_way),
                total=done_bytes + sum(each.total for each in under_way),
            )
            if not left:
                return failed
            await asyncio.sleep(LOOK_EVERY_S)
