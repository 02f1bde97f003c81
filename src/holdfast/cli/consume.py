"""``holdfast consume``: records become lines on standard output.

Ends with 0 after --max-messages, --timeout-ms, or when whoever reads the pipe has gone; 130 after Ctrl-C; 1 after an
error. With --group, offsets are committed after the records have been written: a record may come twice, never
zero times.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import click

from holdfast.cli.connecting import bootstrap_option
from holdfast.cli.pipes import Output
from holdfast.cli.produce import INTERRUPTED, unescape
from holdfast.client.cluster import KafkaClient
from holdfast.client.group_member import ConsumerGroupMember
from holdfast.client.reader import PartitionReader
from holdfast.client.views import FetchedRecords, IsolationLevel, OffsetSpec, TopicView
from holdfast.model.errors import HoldfastError, RequestError
from holdfast.model.types import Offset, TopicPartition
from holdfast.records.markers import decode_committed

COMMIT_EVERY_S = 1.0
POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line asks for."""

    topic: str
    group: str | None
    partition: int | None
    start: OffsetSpec | Offset
    max_messages: int | None
    timeout_ms: int | None
    separator: bytes | None
    isolation: IsolationLevel


@click.command()
@bootstrap_option
@click.argument("name", required=False)
@click.option("--topic", help="What to read; or give it as NAME.")
@click.option("--group", help="Read as a member of this consumer group and commit offsets.")
@click.option("--partition", type=click.IntRange(0), help="Only this one.")
@click.option("--offset", help="Where to begin in --partition: a number, earliest or latest.")
@click.option("--from-beginning", is_flag=True, help="Begin at the earliest record instead of the next one.")
@click.option("--max-messages", type=click.IntRange(0), help="End after so many.")
@click.option("--timeout-ms", type=click.IntRange(0), help="End when no record comes for so long.")
@click.option("--isolation-level", type=click.Choice(("read_committed", "read_uncommitted")), show_default=True,
              default="read_uncommitted", help="Whether transactions count before their commit.")  # fmt: skip
@click.option("--key-separator", help=r"Write KEY, this, VALUE (\t is a tab). Without it only values.")
def consume(
    bootstrap: str,
    name: str | None,
    topic: str | None,
    group: str | None,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: str,
    key_separator: str | None,
) -> None:
    """Write the records of topic NAME to standard output, one line each."""
    topic = topic or name
    if topic is None:
        raise click.UsageError("which topic? give its name, or --topic")
    if group is not None and partition is not None:
        raise click.UsageError("--partition and --group: expected one of them, as a group assigns partitions")
    if offset is not None and (partition is None or from_beginning):
        raise click.UsageError("--offset: expected with --partition and without --from-beginning")
    wanted = Wanted(
        topic=topic,
        group=group,
        partition=partition,
        start=parse_start(offset, from_beginning),
        max_messages=max_messages,
        timeout_ms=timeout_ms,
        separator=None if key_separator is None else unescape(key_separator),
        isolation=IsolationLevel[isolation_level.upper()],
    )
    logging.basicConfig(level=logging.WARNING, format="holdfast consume: %(message)s", stream=sys.stderr)
    consumer = Consumer(bootstrap, wanted)
    try:
        code = asyncio.run(consumer.run())
    except HoldfastError as e:
        click.echo(f"holdfast consume: {e}", err=True)
        code = 1
    click.echo(f"Processed a total of {consumer.count} messages", err=True)
    if consumer.pipe_is_gone:
        silence_stdout()
    sys.exit(code)


def parse_start(offset: str | None, from_beginning: bool) -> OffsetSpec | Offset:
    if offset is None:
        return OffsetSpec.EARLIEST if from_beginning else OffsetSpec.LATEST
    if offset in ("earliest", "latest"):
        return OffsetSpec[offset.upper()]
    if not offset.isdecimal():
        raise click.BadParameter(f"{offset!r}: expected a number, earliest or latest", param_hint="--offset")
    return int(offset)


class Consumer:
    """One run of the command: ``count`` records written so far."""

    def __init__(self, bootstrap: str, wanted: Wanted) -> None:
        self.count = 0
        self.pipe_is_gone = False
        self._bootstrap = bootstrap
        self._wanted = wanted
        self._written: dict[TopicPartition, Offset] = {}

    async def run(self) -> int:
        """The exit code."""
        me = asyncio.current_task()
        assert me is not None
        stopped: list[int] = []

        def stop(number: int) -> None:
            stopped.append(number)
            assert me is not None
            me.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        try:
            async with KafkaClient(self._bootstrap, client_id="holdfast-consume") as client:
                await (self._read_alone(client) if self._wanted.group is None else self._read_in_group(client))
        except BrokenPipeError:
            self.pipe_is_gone = True
        except asyncio.CancelledError:
            if not stopped:
                raise
            me.uncancel()
            return INTERRUPTED if stopped[0] == signal.SIGINT else 0
        return 0

    async def _read_alone(self, client: KafkaClient) -> None:
        view = await client.topic(self._wanted.topic)
        tps = chosen_partitions(view, self._wanted.partition)
        reader = await self._reader(client, tps, {})
        try:
            await self._drain(reader, Output(), lambda: False)
        finally:
            reader.close()

    async def _read_in_group(self, client: KafkaClient) -> None:
        assert self._wanted.group is not None
        await client.topic(self._wanted.topic)
        member = ConsumerGroupMember(self._bootstrap, self._wanted.group, [self._wanted.topic])
        output = Output()
        try:
            while True:
                tps = await member.join()
                reader = await self._reader(client, tps, await member.committed())
                committer = asyncio.ensure_future(self._commit_often(member))
                try:
                    await self._drain(reader, output, lambda: member.needs_join)
                finally:
                    committer.cancel()
                    reader.close()
                    await self._commit(member)
                if not member.needs_join:
                    return
        finally:
            await member.leave()

    async def _reader(
        self, client: KafkaClient, tps: Iterable[TopicPartition], committed: dict[TopicPartition, Offset]
    ) -> PartitionReader:
        start = self._wanted.start
        positions = dict(committed)
        unknown = [tp for tp in tps if tp not in committed]
        if isinstance(start, OffsetSpec):
            isolation = self._wanted.isolation
            listed = await client.list_offsets(dict.fromkeys(unknown, start), isolation=isolation) if unknown else {}
            positions |= {tp: at.offset or 0 for tp, at in listed.items()}
        else:
            positions |= dict.fromkeys(unknown, start)
        # A group keeps where it begins, too: what is written while nobody reads is not to be passed over.
        self._written = {tp: positions[tp] for tp in unknown if tp in positions}
        reset = start if isinstance(start, OffsetSpec) else OffsetSpec.LATEST
        return PartitionReader(client, positions, reset=reset, isolation=self._wanted.isolation)

    async def _drain(self, reader: PartitionReader, output: Output, over: Callable[[], bool]) -> None:
        """Until there is enough, nothing more comes, or ``over``."""
        loop = asyncio.get_running_loop()
        timeout_ms = self._wanted.timeout_ms
        quiet_since_s = loop.time()
        while not over() and not self._enough():
            left_s = POLL_S
            if timeout_ms is not None:
                left_s = quiet_since_s + timeout_ms / 1000 - loop.time()
                if left_s <= 0:
                    return
            found = await reader.poll(min(left_s, POLL_S))
            for tp, asked, answer in found:
                data, following = self._lines(asked, answer)
                if data:
                    await output.write(data)
                    quiet_since_s = loop.time()
                self._written[tp] = following
                if self._enough():
                    return

    def _enough(self) -> bool:
        return self._wanted.max_messages is not None and self.count >= self._wanted.max_messages

    def _lines(self, asked: Offset, answer: FetchedRecords) -> tuple[bytes, Offset]:
        """Records from ``asked`` on as lines, and the offset after the last of them."""
        out = bytearray()
        following = asked
        separator = self._wanted.separator
        for record in decode_committed(answer.records, answer.aborted):
            if record.offset < asked:
                continue
            if self._enough():
                break
            if separator is not None:
                out += b"null" if record.key is None else record.key
                out += separator
            out += b"null" if record.value is None else record.value
            out += b"\n"
            self.count += 1
            following = record.offset + 1
        return bytes(out), following

    async def _commit_often(self, member: ConsumerGroupMember) -> None:
        while True:
            await asyncio.sleep(COMMIT_EVERY_S)
            await self._commit(member)

    async def _commit(self, member: ConsumerGroupMember) -> None:
        """What has been written, and where to begin. A member that was thrown out joins again and reads from the last
        commit."""
        offsets, self._written = self._written, {}
        try:
            await member.commit(offsets)
        except HoldfastError as e:
            self._written = {**offsets, **self._written}
            if not member.needs_join:
                logging.getLogger(__name__).warning("offsets not committed: %s", e)


def chosen_partitions(view: TopicView, partition: int | None) -> list[TopicPartition]:
    if partition is not None and view.partition(partition) is None:
        raise RequestError(
            f"--partition {partition}: topic {view.name!r} has partitions 0 to {len(view.partitions) - 1}"
        )
    return [
        TopicPartition(view.name, p.partition) for p in view.partitions if partition is None or p.partition == partition
    ]


def silence_stdout() -> None:
    """So that the interpreter does not try to flush into a pipe that nobody reads."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
