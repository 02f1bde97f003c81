"""What most tests do with a cluster: make a topic, write to it, read all of it.

By our own client, a connection for each call: for tests of something else than clients. Who tests a client brings it
and uses ``cluster.bootstrap``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from holdfast.client.blocking import BlockingClient
from holdfast.client.partitioner import partition_of
from holdfast.client.security import SecuritySettings
from holdfast.client.views import IsolationLevel, NewTopic, OffsetSpec
from holdfast.model.types import TopicPartition
from holdfast.records.batch import iter_headers
from holdfast.records.markers import decode_committed
from holdfast.records.record import BatchBuilder, Record

Written = bytes | tuple[bytes | None, bytes | None]
"""A value, or a key and a value."""


def create_topic(
    bootstrap: str,
    name: str,
    partitions: int,
    replication_factor: int | None,
    assignment: Mapping[int, tuple[int, ...]] | None,
    config: Mapping[str, str] | None,
    security: SecuritySettings | None = None,
) -> None:
    """HoldfastError as the broker has it."""
    new = NewTopic(
        name=name,
        partitions=None if assignment else partitions,
        replication_factor=replication_factor,
        assignments=assignment,
        configs=config,
    )
    with BlockingClient(bootstrap, security=security) as client:
        client.create_topic(new)


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[Written],
    partition: int | None,
    security: SecuritySettings | None = None,
) -> int:
    """Written and acknowledged by all of the ISR when it returns; how many. Where no partition is given: by the key's
    hash as every client has it, or to partition 0."""
    now_ms = int(time.time() * 1000)
    with BlockingClient(bootstrap, security=security) as client:
        count = len(client.topic(topic).partitions)
        open_batches: dict[int, BatchBuilder] = {}
        for each in records:
            key, value = (None, each) if isinstance(each, bytes) else each
            where = partition
            if where is None:
                where = 0 if key is None else partition_of(key, count)
            open_batches.setdefault(where, BatchBuilder()).append(key, value, now_ms)
        for where, batch in open_batches.items():
            client.produce(topic, where, batch.build())
    return sum(map(len, open_batches.values()))


def consume(
    bootstrap: str, topic: str, *, read_committed: bool, security: SecuritySettings | None = None
) -> dict[int, list[Record]]:
    """All that is in the topic at this moment, by partition, in order; without what was aborted, or is open, if
    ``read_committed``."""
    isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
    found: dict[int, list[Record]] = {}
    with BlockingClient(bootstrap, security=security) as client:
        tps = [TopicPartition(topic, each.partition) for each in client.topic(topic).partitions]
        begins = client.list_offsets(dict.fromkeys(tps, OffsetSpec.EARLIEST))
        ends = client.list_offsets(dict.fromkeys(tps, OffsetSpec.LATEST), isolation=isolation)
        for tp in tps:
            begin, end, records = begins[tp].offset or 0, ends[tp].offset or 0, found.setdefault(tp.partition, [])
            while begin < end:
                fetched = client.fetch_raw(tp, begin, isolation=isolation)
                after = begin
                for _, header in iter_headers(fetched.records):
                    after = header.next_offset
                records += [
                    each
                    for each in decode_committed(fetched.records, fetched.aborted)
                    if begin <= each.offset < end
                ]  # fmt: skip
                begin = after
    return found
