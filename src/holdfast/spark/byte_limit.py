"""How far a micro-batch goes that is to have no more than so many bytes of the log (maxBytesPerTrigger).

No request of Kafka tells which offset is so many bytes away from another. So the bytes of an offset are measured where
the batch begins and where it would end, by a fetch that is bounded, and the larger of the two counts for all between.
Needs no right but that to read; DescribeLogDirs, which tells the size of a whole log, needs one of the cluster.

What is remembered between batches are sizes, never positions: a query that starts anew measures anew.
"""

import logging
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple, Protocol

from holdfast.client.views import FetchedRecords
from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import Offset, TopicPartition
from holdfast.records.batch import iter_headers
from holdfast.spark.ranges import Positions, limited

log = logging.getLogger(__name__)

SAMPLE_BYTES: Final = 2 << 20
"""A broker is asked for no more than this at once, and for no more than a sixteenth of the limit."""
LEAST_SAMPLE_BYTES: Final = 64 << 10
SAMPLE_BATCHES: Final = 500
"""So many record batches of a partition are looked at."""
UNKNOWN_BYTES: Final = 1 << 20
"""What an offset counts for as long as none was measured: a record is no larger unless brokers allow more than by
default."""


class SampleSource(Protocol):
    """Where samples come from: Topics."""

    def sample(
        self, positions: Positions, *, max_bytes: int, partition_max_bytes: int
    ) -> dict[TopicPartition, FetchedRecords]:
        """What leaders have at the positions, as far as they answer."""


class Sample(NamedTuple):
    """Whole record batches of one partition."""

    bytes_per_offset: float
    first_end: Offset
    """Where the first of them ends."""


class ByteLimit:
    """The sizes of one stream's partitions, and what follows from them; one for each run of a query."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._sizes: dict[TopicPartition, float] = {}
        self._round = 0
        self._measured: dict[TopicPartition, int] = {}

    def cut(self, source: SampleSource, start: Positions, latest: Positions, max_rows: int | None = None) -> Positions:
        """As far as the limit goes, and ``max_rows`` records, shared out as ``limited`` does.

        One record batch at least, so that a stream goes on whatever the limit is. ``start`` has every partition of
        ``latest``.
        """
        waiting = {tp: start[tp] for tp, end in latest.items() if end > start[tp]}
        self._forget(latest)
        if not waiting:
            return dict(latest)
        self._round += 1
        heads = self._measure(source, waiting)
        self._sizes |= {tp: each.bytes_per_offset for tp, each in heads.items()}
        ends = self._shared_out(start, latest, max_rows)
        tails = self._measure(source, {tp: ends[tp] - 1 for tp in waiting if ends[tp] > start[tp]})
        larger = {tp: max(each.bytes_per_offset, self._sizes.get(tp, 0.0)) for tp, each in tails.items()}
        if larger:
            self._sizes |= larger
            ends = self._shared_out(start, latest, max_rows)
        return self._whole_batch(heads, start, latest, ends, max_rows)

    def _forget(self, there: Iterable[TopicPartition]) -> None:
        """What is not read any more is not remembered."""
        kept = set(there)
        self._sizes = {tp: size for tp, size in self._sizes.items() if tp in kept}
        self._measured = {tp: number for tp, number in self._measured.items() if tp in kept}

    def _measure(self, source: SampleSource, positions: Positions) -> dict[TopicPartition, Sample]:
        """Those that were measured longest ago first: where there are many, a fetch has not room for all."""
        total = min(SAMPLE_BYTES, max(LEAST_SAMPLE_BYTES, self._max_bytes // 16))
        each_bytes = min(total, max(LEAST_SAMPLE_BYTES, total // max(1, len(positions))))
        order = sorted(positions, key=lambda tp: (self._measured.get(tp, 0), tp))
        answers = source.sample({tp: positions[tp] for tp in order}, max_bytes=total, partition_max_bytes=each_bytes)
        found = {}
        for tp, answer in answers.items():
            sample = sample_of(answer)
            if sample is not None:
                found[tp] = sample
                self._measured[tp] = self._round
        return found

    def size_of(self, tp: TopicPartition) -> float:
        """Bytes that an offset counts for: as measured, else as in the other partitions on average."""
        if tp in self._sizes:
            return self._sizes[tp]
        alike = [size for other, size in self._sizes.items() if other.topic == tp.topic] or list(self._sizes.values())
        return sum(alike) / len(alike) if alike else UNKNOWN_BYTES

    def _shared_out(self, start: Positions, latest: Positions, max_rows: int | None) -> Positions:
        """The same part of what waits in each partition: so a limit of bytes is one of records for ``limited``."""
        waiting = {tp: end - start[tp] for tp, end in latest.items() if end > start[tp]}
        rows = sum(waiting.values())
        size = sum(count * self.size_of(tp) for tp, count in waiting.items())
        if size > self._max_bytes:
            rows = max(1, int(rows * self._max_bytes / size))
        return limited(start, latest, rows if max_rows is None else min(rows, max_rows))

    def _whole_batch(
        self,
        heads: dict[TopicPartition, Sample],
        start: Positions,
        latest: Positions,
        ends: Positions,
        max_rows: int | None,
    ) -> Positions:
        """``ends``; or, where they would have no partition read to the end of a record batch, one record batch where
        most waits: a task fetches no less than that, and would fetch the same again for the next batch."""
        moved = [tp for tp, end in ends.items() if end > start[tp]]
        if any(tp not in heads or ends[tp] >= min(heads[tp].first_end, latest[tp]) for tp in moved):
            return ends
        most = max(moved, key=lambda tp: ((latest[tp] - start[tp]) * self.size_of(tp), tp))
        end = min(heads[most].first_end, latest[most])
        if max_rows is not None:
            end = min(end, start[most] + max_rows)
        return {tp: end if tp == most else start[tp] for tp in ends}


def sample_of(answer: FetchedRecords) -> Sample | None:
    """None where the answer has no whole record batch."""
    try:
        headers = list(islice(iter_headers(answer.records), SAMPLE_BATCHES))
    except CorruptRecordError as error:
        log.warning("record batches cannot be measured: %s", error)  # a task that reads them says where they are
        return None
    if not headers:
        return None
    (begin, first), (at, last) = headers[0], headers[-1]
    measured = at + last.size - begin
    return Sample(measured / (last.next_offset - first.base_offset), first.next_offset)
