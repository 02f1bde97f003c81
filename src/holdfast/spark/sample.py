"""Some records of topics, on the driver: what JSON's columns are inferred from."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from holdfast.model.types import TopicPartition
from holdfast.spark.options import ReadOptions
from holdfast.spark.ranges import Range
from holdfast.spark.topics import Topics

SAMPLE_BYTES: Final = 16 << 20
"""A sample has no more, however large records are."""
SAMPLE_RECORDS: Final = 20_000


def newest(topics: Topics) -> tuple[Range, ...]:
    """The last ``SAMPLE_RECORDS`` offsets, a share of them of each partition."""
    tps: Sequence[TopicPartition] = topics.partitions()
    earliest, latest = topics.earliest(tps), topics.latest(tps)
    each = max(1, SAMPLE_RECORDS // max(1, len(tps)))
    leaders, ids = topics.leaders(tps), topics.topic_ids({})
    return tuple(
        Range(
            tp=tp,
            start=max(earliest[tp], latest[tp] - each),
            end=latest[tp],
            leader=leaders.get(tp),
            topic_id=ids.get(tp.topic),
        )
        for tp in tps
        if latest[tp] > earliest[tp]
    )


def sample(ranges: Sequence[Range], options: ReadOptions, column: str) -> pa.Array:
    """Keys or values of the ranges, up to ``SAMPLE_BYTES``, a share of them of each range."""
    from holdfast.records.columns import ColumnDecoder
    from holdfast.spark.cluster_guide import ClusterGuide
    from holdfast.spark.fetching import RangeFetcher

    decoder = ColumnDecoder((column,), check_crc=options.check_crc)
    share = SAMPLE_BYTES // max(1, len(ranges))
    values: list[pa.Array] = []
    for each in ranges:
        size = 0
        for part in RangeFetcher((each,), options, ClusterGuide(options)):
            topic, number = TopicPartition(*part.tp)
            found = decoder.decode(
                part.chunk, start=part.start, end=part.end, topic=topic, partition=number, aborted=part.aborted
            )
            taken = [columns.arrays[column] for columns in found]
            values += taken
            size += sum(array.nbytes for array in taken)
            if size >= share:
                break
    return pa.concat_arrays(values) if values else pa.array([], pa.binary())
