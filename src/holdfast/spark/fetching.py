"""An executor's fetches: one request has as many partitions of a leader as fit, the next is on its way meanwhile.

Owns what a fetch asks for, and what to do when a leader has moved or records are gone. Never decodes records.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from holdfast.model.errors import HoldfastError, NetworkError, OffsetOutOfRangeError, UnknownTopicIdError
from holdfast.model.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from holdfast.protocol.fetch_codec import FetchData, FetchPartitionData, FetchResponsePartition
from holdfast.records.columns import AbortedTransaction, Chunk
from holdfast.spark.fetch_connection import Connections, FetchConnection, error_in
from holdfast.spark.options import ReadOptions
from holdfast.spark.ranges import Leader, Range

LEAST_FETCH_BYTES: Final = 64 << 10
MOST_PARTITIONS: Final = 500
"""Of one request: a broker answers it in one go, and has others to serve."""
LEAST_BESIDE_BYTES: Final = 16 << 10
GUESSED_RECORD_BYTES: Final = 1_000
"""Before the first answer. A guess that is too small makes an answer that does not have all of what was asked for."""
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Batches of one partition with the wanted ``start <= offset < end``. Valid until the next is asked for."""

    tp: TopicPartition
    chunk: Chunk
    start: Offset
    end: Offset
    aborted: tuple[AbortedTransaction, ...]


class Guide(Protocol):
    """Who is asked when things are not as they were planned."""

    def leader(self, tp: TopicPartition) -> Leader:
        """The partition's leader now."""

    def broker(self, broker_id: BrokerId, epoch: LeaderEpoch | None) -> Leader | None:
        """A replica that is nearer than the leader; None if its broker is not known."""

    def bounds(self, tp: TopicPartition) -> tuple[Offset, Offset]:
        """Where the partition's log starts and ends now."""

    def is_gone(self, tp: TopicPartition, topic_id: UUID) -> bool:
        """Whether the partition's topic has another id by now."""

    def data_loss(self, text: str) -> None:
        """Raises if lost records end the read."""


class RangeFetcher:
    """Fetches ranges one after the other; iterate once.

    A request asks for the range whose turn it is and, as far as they will fit in its answer, for others of the same
    leader whose turn comes later. What the answer does not have of those is asked for again in their turn.
    """

    def __init__(self, ranges: tuple[Range, ...], options: ReadOptions, guide: Guide) -> None:
        self._ranges = ranges
        self._options = options
        self._guide = guide
        self._connections = Connections(options)
        self._leaders: dict[TopicPartition, Leader] = {
            each.tp: each.leader for each in ranges if each.leader is not None
        }
        self._topic_ids = {each.tp.topic: each.topic_id for each in ranges if each.topic_id is not None}
        self._bytes_per_record: float | None = None
        self._beside: dict[int, tuple[FetchConnection, FetchResponsePartition]] = {}
        """Answers to ranges whose turn comes later, by index. They lie in the connections' buffers."""
        self._asked: dict[FetchConnection, list[int]] = {}
        """Which ranges are asked for beside the one whose answer is next."""
        self._nearer: dict[BrokerId, Leader | None] = {}
        """Where the replicas listen that leaders have named, as long as no fetch fails."""

    def __iter__(self) -> Iterator[Fetched]:
        try:
            sent = None  # the range and offset that a fetch is on its way for
            for index, wanted in enumerate(self._ranges):
                following = index + 1 if index + 1 < len(self._ranges) else None
                offset = wanted.start
                while offset < wanted.end:
                    part = self._answered(index) or self._fetch(index, offset, sent_already=sent == (index, offset))
                    sent = None
                    if isinstance(part, int):  # the log starts there now
                        offset = min(part, wanted.end)
                        continue
                    chunk = Chunk.scan(part.records)
                    start, offset = offset, self._next_offset(wanted, offset, chunk)
                    if offset < wanted.end:
                        sent = (index, offset) if self._send_ahead(index, offset) else None
                    elif following is not None and following not in self._beside:
                        ahead = self._ranges[following].start
                        sent = (following, ahead) if self._send_ahead(following, ahead) else None
                    aborted = tuple(AbortedTransaction(producer_id=p, first_offset=o) for p, o in part.aborted or ())
                    yield Fetched(tp=wanted.tp, chunk=chunk, start=start, end=wanted.end, aborted=aborted)
        finally:
            self._connections.give_back()

    def _next_offset(self, wanted: Range, offset: Offset, chunk: Chunk) -> Offset:
        after = chunk.next_offset
        if after is None or after <= offset:
            raise HoldfastError(
                f"partition {wanted.tp}: the leader answered a fetch at offset {offset} with records up to {after}"
            )
        self._bytes_per_record = chunk.size / (after - offset)
        return after

    # -- requests and answers --------------------------------------------------------------------------------

    def _request(self, index: int, offset: Offset, connection: FetchConnection) -> tuple[FetchData, list[int]]:
        """A request for the range from ``offset`` on, and which other ranges it asks for."""
        wanted, size = self._ranges[index], self._options.fetch_bytes
        first, expected = size, self._expected_bytes(wanted.end - offset)
        if self._bytes_per_record is not None:  # towards the end of a range, little of what is beyond it
            first = min(size, max(LEAST_FETCH_BYTES, int(expected * 1.05)))
        topics: list[tuple[str | UUID, list[FetchPartitionData]]] = [
            (wanted.tp.topic, [self._part(wanted, offset, first)])
        ]
        beside = self._beside_of(index, size - expected, connection)
        for number in beside:
            each = self._ranges[number]
            if topics[-1][0] != each.tp.topic:
                topics.append((each.tp.topic, []))
            most = max(LEAST_BESIDE_BYTES, int(2 * self._expected_bytes(each.size)))
            topics[-1][1].append(self._part(each, each.start, most))
        wait_ms, isolation = self._options.fetch_wait_ms, 1 if self._options.read_committed else 0
        size = size if beside else first
        return FetchData(-1, -1, wait_ms, 1, size, isolation, 0, -1, topics, rack_id=self._options.rack), beside

    def _beside_of(self, index: int, room: float, connection: FetchConnection) -> list[int]:
        """Which ranges after ``index`` have the same leader, and records that go into ``room`` bytes. None while
        answers of this connection wait for their turn, which bounds what is held."""
        first = self._ranges[index]
        leader, asked, found = self._leaders.get(first.tp), {first.tp}, list[int]()
        if self._holds(connection):
            return found
        for number in range(index + 1, len(self._ranges)):
            each = self._ranges[number]
            room -= self._expected_bytes(each.size)
            if room < 0 or len(asked) == MOST_PARTITIONS:
                break
            theirs = self._leaders.get(each.tp)
            if theirs is None or leader is None or theirs[:2] != leader[:2]:
                continue
            if each.tp in asked or number in self._beside or (each.topic_id is None) != (first.topic_id is None):
                continue
            asked.add(each.tp)
            found.append(number)
        return found

    def _part(self, wanted: Range, offset: Offset, size: int) -> FetchPartitionData:
        leader = self._leaders.get(wanted.tp)
        epoch = -1 if leader is None or leader.epoch is None else leader.epoch
        return FetchPartitionData(wanted.tp.partition, epoch, offset, -1, -1, size)

    def _expected_bytes(self, records: int) -> float:
        each = GUESSED_RECORD_BYTES if self._bytes_per_record is None else self._bytes_per_record
        return records * each

    def _answered(self, index: int) -> FetchResponsePartition | None:
        """The answer to a range that has come with that to another."""
        found = self._beside.pop(index, None)
        return None if found is None else found[1]

    def _send(self, index: int, offset: Offset, connection: FetchConnection) -> None:
        data, self._asked[connection] = self._request(index, offset, connection)
        connection.send(data, self._topic_ids)

    def _receive(self, index: int, connection: FetchConnection) -> FetchResponsePartition | None:
        """The range's part of the next answer; None if there is no answer now. The others are kept for their turn,
        as far as they have records."""
        asked = self._asked.pop(connection)
        if self._holds(connection):
            connection.leave_buffer()
        answer = connection.receive()
        if not answer:
            return None
        for number in asked:
            part = self._part_of(number, answer)
            if part is not None and len(part.records) and not part.error_code:
                self._beside[number] = connection, part
            elif part is not None:
                self._go_nearer(self._ranges[number].tp, part)
        mine = self._part_of(index, answer)
        if mine is None:
            raise NetworkError(f"broker {connection.address} answered a fetch without {self._ranges[index].tp}")
        return mine

    def _holds(self, connection: FetchConnection) -> bool:
        """Whether answers of the connection wait for their turn."""
        return any(of is connection for of, _ in self._beside.values())

    def _part_of(
        self, index: int, answer: Mapping[tuple[str | UUID, int], FetchResponsePartition]
    ) -> FetchResponsePartition | None:
        tp = self._ranges[index].tp
        topic_id = self._topic_ids.get(tp.topic)
        found = answer.get((tp.topic, tp.partition))
        return found if found is not None or topic_id is None else answer.get((topic_id, tp.partition))

    def _send_ahead(self, index: int, offset: Offset) -> bool:
        leader = self._leaders.get(self._ranges[index].tp)
        if leader is None:
            return False
        try:
            connection = self._connections.to(leader)
            if not connection.idle or connection.quiet_s:
                return False
            self._send(index, offset, connection)
        except NetworkError:
            self._connections.drop(leader)
            return False
        return True

    def _fetch(self, index: int, offset: Offset, *, sent_already: bool) -> FetchResponsePartition | Offset:
        """An answer with records; or the offset to go on at where ``offset`` is gone. Tries until the time is up.

        Time for which a broker throttles does not count: that is no silence.
        """
        wanted = self._ranges[index]
        limit = time.monotonic() + self._options.poll_timeout_s
        pause_s = FIRST_PAUSE_S
        error: HoldfastError = HoldfastError("no records came")
        while True:
            try:
                connection = self._connections.to(self._leader(wanted.tp))
                if not sent_already:
                    quiet_s = connection.quiet_s
                    time.sleep(quiet_s)
                    limit += quiet_s
                    self._send(index, offset, connection)
                sent_already = False
                part = self._receive(index, connection)
                if part is None:
                    continue
                problem = error_in(
                    part.error_code, f"fetch of {wanted.tp} at offset {offset} from {connection.address}"
                )
                if problem is None and len(part.records):
                    return part
                if isinstance(problem, UnknownTopicIdError) and self._made_again(wanted, offset):
                    return wanted.end
                if problem is not None and not isinstance(problem, OffsetOutOfRangeError):
                    raise problem
                elsewhere = None if self._go_nearer(wanted.tp, part) else self._elsewhere(wanted, offset)
                if elsewhere is not None:
                    return elsewhere
                if problem is not None:  # what was out of range is there: by now, or at another broker
                    error = problem
                    self._leaders.pop(wanted.tp, None)
            except HoldfastError as raised:
                if not raised.retriable:
                    raise
                error = raised
                sent_already = False
                stale = self._leaders.pop(wanted.tp, None)
                self._nearer.clear()
                if stale is not None:
                    self._connections.drop(stale)
            if time.monotonic() > limit:
                raise HoldfastError(
                    f"partition {wanted.tp}: no records at offset {offset} (of {wanted.start} to {wanted.end}) within "
                    f"{self._options.poll_timeout_s:g} s (option kafkaConsumer.pollTimeoutMs): {error}"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _go_nearer(self, tp: TopicPartition, part: FetchResponsePartition) -> bool:
        """True if the leader has named a replica that is nearer to the reader's rack (KIP-392): fetches go there, until
        one of them fails. Then the leader is asked again."""
        leader = self._leaders.get(tp)
        if part.error_code or part.preferred_read_replica < 0 or len(part.records) or leader is None:
            return False
        wanted = part.preferred_read_replica
        if wanted not in self._nearer:
            self._nearer[wanted] = self._guide.broker(wanted, None)
        nearer = self._nearer[wanted]
        if nearer is None or nearer[:2] == leader[:2]:
            return False
        self._leaders[tp] = nearer._replace(epoch=leader.epoch)
        return True

    def _made_again(self, wanted: Range, offset: Offset) -> bool:
        """True if what is left of the range went with its topic, and that may be; a broker that only does not know of
        the topic yet is asked again."""
        if wanted.topic_id is None or not self._guide.is_gone(wanted.tp, wanted.topic_id):
            return False
        self._guide.data_loss(
            f"partition {wanted.tp}: the topic with id {wanted.topic_id} was deleted and another one made; it was to be"
            f" read from {offset} to {wanted.end}"
        )
        return True

    def _leader(self, tp: TopicPartition) -> Leader:
        leader = self._leaders.get(tp)
        if leader is None:
            leader = self._leaders[tp] = self._guide.leader(tp)
        return leader

    def _elsewhere(self, wanted: Range, offset: Offset) -> Offset | None:
        """Where to go on if the log does not hold ``offset`` (loss of data); None if it does: asking again may help.

        Asked when a fetch is out of range, and also when it is answered with nothing: a log that ends before the
        planned end was cut, or belongs to a topic that was made again, and nothing may ever come.
        """
        start, end = self._guide.bounds(wanted.tp)
        if offset < start:
            self._guide.data_loss(f"partition {wanted.tp}: offset {offset} is gone, the log starts at {start}")
            return start
        if offset < end:
            return None
        self._guide.data_loss(
            f"partition {wanted.tp}: the log ends at {end}, offset {offset} is not there; it was to be read up to "
            f"{wanted.end} (was the topic deleted and made again, or the log cut?)"
        )
        return wanted.end
