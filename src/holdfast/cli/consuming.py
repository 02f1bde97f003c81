"""One run of ``holdfast consume``: partitions are read, what the form makes of their records is written, and the
positions of a group are committed afterwards.

Owns which records count: from the position on, below the end where reading ends there, and no more than were asked for.
Never looks into a record.
"""

import asyncio
import logging
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import dropwhile, islice, takewhile

from holdfast.cli.pipes import PipeOutput
from holdfast.cli.record_format import BatchPlace, RecordForm
from holdfast.cli.start_at import Start, starting_offsets
from holdfast.client.cluster import KafkaClient
from holdfast.client.group_member import ConsumerGroupMember
from holdfast.client.reader import PartitionReader
from holdfast.client.security import SecuritySettings
from holdfast.client.views import FetchedRecords, IsolationLevel, OffsetSpec, TopicView
from holdfast.model.errors import HoldfastError, RequestError, UnknownTopicOrPartitionError
from holdfast.model.types import Offset, TopicPartition
from holdfast.records.batch import BatchHeader
from holdfast.records.markers import committed_batches
from holdfast.records.record import Record, iter_batch

COMMIT_EVERY_S = 1.0
POLL_S = 0.5
INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line asks for. ``topics`` or ``include``."""

    topics: tuple[str, ...]
    include: re.Pattern[str] | None
    group: str | None
    partition: int | None
    start: Start
    to_end: bool
    max_messages: int | None
    timeout_ms: int | None
    isolation: IsolationLevel
    form: RecordForm


class Consumer:
    """One run of the command: ``count`` records written so far."""

    def __init__(self, bootstrap: str, wanted: Wanted, security: SecuritySettings | None = None) -> None:
        self.count = 0
        self._bootstrap = bootstrap
        self._security = security
        self._wanted = wanted
        self._written: dict[TopicPartition, Offset] = {}
        self._ends: dict[TopicPartition, Offset] = {}

    async def run(self) -> int:
        """The exit code. OSError where nothing can be written."""
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
            async with KafkaClient(self._bootstrap, client_id="holdfast-consume", security=self._security) as client:
                views = await chosen_topics(client, self._wanted)
                if self._wanted.group is None:
                    await self._read_alone(client, views)
                else:
                    await self._read_in_group(client, self._wanted.group, views)
        except asyncio.CancelledError:
            if not stopped:
                raise
            me.uncancel()
            return INTERRUPTED if stopped[0] == signal.SIGINT else 0
        return 0

    async def _read_alone(self, client: KafkaClient, views: Iterable[TopicView]) -> None:
        tps = [tp for view in views for tp in chosen_partitions(view, self._wanted.partition)]
        reader = await self._reader(client, tps, {})
        try:
            await self._drain(reader, PipeOutput(), lambda: False)
        finally:
            reader.close()

    async def _read_in_group(self, client: KafkaClient, group: str, views: Iterable[TopicView]) -> None:
        names = [view.name for view in views]
        member = ConsumerGroupMember(self._bootstrap, group, names, security=self._security)
        output = PipeOutput()
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
        self, client: KafkaClient, tps: Iterable[TopicPartition], committed: Mapping[TopicPartition, Offset]
    ) -> PartitionReader:
        tps, start, isolation = list(tps), self._wanted.start, self._wanted.isolation
        begun = await starting_offsets(client, [tp for tp in tps if tp not in committed], start, isolation)
        # A group keeps where it begins, too: what is written while nobody reads is not to be passed over.
        self._written = dict(begun)
        if self._wanted.to_end:
            self._ends = self._ends | await starting_offsets(
                client, [tp for tp in tps if tp not in self._ends], OffsetSpec.LATEST, isolation
            )
        reset = start if isinstance(start, OffsetSpec) else OffsetSpec.EARLIEST
        return PartitionReader(client, {**committed, **begun}, reset=reset, isolation=isolation)

    async def _drain(self, reader: PartitionReader, output: PipeOutput, over: Callable[[], bool]) -> None:
        """Until there is enough, nothing more comes, the end is reached, or ``over``."""
        loop = asyncio.get_running_loop()
        timeout_ms = self._wanted.timeout_ms
        quiet_since_s = loop.time()
        while not over() and self._left() != 0 and not self._at_end(reader):
            left_s = POLL_S
            if timeout_ms is not None:
                left_s = quiet_since_s + timeout_ms / 1000 - loop.time()
                if left_s <= 0:
                    return
            for tp, asked, answer in await reader.poll(min(left_s, POLL_S)):
                data, following = self._lines(tp, asked, answer, reader.positions[tp])
                if data:
                    await output.write(data)
                    quiet_since_s = loop.time()
                self._written[tp] = following
                if self._left() == 0:
                    return

    def _left(self) -> int | None:
        """How many records are still wanted; None is all."""
        most = self._wanted.max_messages
        return None if most is None else most - self.count

    def _at_end(self, reader: PartitionReader) -> bool:
        """Whether everything is read; what is read to its end is read no further."""
        if not self._wanted.to_end:
            return False
        for tp in [tp for tp, position in reader.positions.items() if position >= self._ends[tp]]:
            reader.drop(tp)
        return not reader.positions

    def _lines(
        self, tp: TopicPartition, asked: Offset, answer: FetchedRecords, following: Offset
    ) -> tuple[bytes, Offset]:
        """Records from ``asked`` on as the form has them, and the offset up to which all that is wanted is there.
        ``following`` is the one after the answer: also where nothing in it counts, the position moves on."""
        out = bytearray()
        end = self._ends.get(tp)
        try:
            for header, batch in committed_batches(answer.records, answer.aborted):
                if end is not None and header.base_offset >= end:
                    break
                records = wanted_of(iter_batch(batch), header, asked, end, self._left())
                place = BatchPlace(tp.topic, tp.partition, header.timestamp_type)
                written, last = self._wanted.form(out, place, records)
                self.count += written
                if last is not None and self._left() == 0:
                    return bytes(out), last + 1
        except HoldfastError as e:
            raise RequestError(f"{tp} cannot be read from offset {asked} on: {e}") from e
        return bytes(out), following if end is None else min(following, end)

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


def wanted_of(
    records: Iterator[Record], header: BatchHeader, asked: Offset, end: Offset | None, most: int | None
) -> Iterator[Record]:
    """Those of a batch that are wanted. In the middle of a partition that is the batch itself, and costs nothing."""
    if header.base_offset < asked:
        records = dropwhile(lambda record: record.offset < asked, records)
    if end is not None and header.last_offset >= end:
        records = takewhile(lambda record: record.offset < end, records)
    return records if most is None else islice(records, most)


# -- what to read ------------------------------------------------------------------------------------------


async def chosen_topics(client: KafkaClient, wanted: Wanted) -> list[TopicView]:
    """The topics that are named, or all whose names match; those that brokers keep for themselves have to be named."""
    if wanted.include is None:
        return [await topic_of(client, name) for name in wanted.topics]
    there = (await client.metadata()).topics
    names = sorted(name for name, view in there.items() if not view.internal and wanted.include.fullmatch(name))
    if not names:
        raise RequestError(f"--include {wanted.include.pattern!r}: none of the {len(there)} topics has such a name")
    return [
        view if view.error is None and all(p.leader is not None for p in view.partitions) else await client.topic(name)
        for name, view in ((name, there[name]) for name in names)
    ]


async def topic_of(client: KafkaClient, name: str) -> TopicView:
    try:
        return await client.topic(name)
    except UnknownTopicOrPartitionError:
        raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist: holdfast topics list") from None


def chosen_partitions(view: TopicView, partition: int | None) -> list[TopicPartition]:
    if partition is not None and view.partition(partition) is None:
        raise RequestError(
            f"--partition {partition}: topic {view.name!r} has partitions 0 to {len(view.partitions) - 1}"
        )
    return [
        TopicPartition(view.name, p.partition) for p in view.partitions if partition is None or p.partition == partition
    ]
