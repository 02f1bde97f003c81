"""What tasks of the sink leave in the log: whose batches they are, how they are numbered, how large they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from holdfast.client.blocking import BlockingClient
from holdfast.client.views import NewTopic
from holdfast.model.errors import MessageTooLargeError
from holdfast.model.types import TopicPartition
from holdfast.records.batch import BatchHeader, iter_headers
from holdfast.records.compression import Codec
from holdfast.spark import producer_ids
from holdfast.spark.options import parse_write
from holdfast.spark.writer import TaskWriter

if TYPE_CHECKING:
    from holdfast.testing import Cluster


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """This process is a worker's here, and has run other tasks."""
    producer_ids._kept.clear()
    yield
    producer_ids._kept.clear()


def written(cluster: Cluster, topic: str, *batches: list[bytes], **options: Any) -> int:
    task = TaskWriter(parse_write({"kafka.bootstrap.servers": cluster.bootstrap, "topic": topic} | options))
    for values in batches:
        task.add(pa.record_batch({"key": pa.array(values), "value": pa.array(values)}))
    return task.finish()


def log_of(cluster: Cluster, topic: str, partition: int = 0) -> list[BatchHeader]:
    found: list[BatchHeader] = []
    with BlockingClient(cluster.bootstrap) as client:
        tp, offset = TopicPartition(topic, partition), 0
        while True:
            records = client.fetch_raw(tp, offset, max_bytes=64 << 20, max_wait_ms=0).records
            headers = [header for _, header in iter_headers(records)]
            if not headers:
                return found
            found += headers
            offset = headers[-1].base_offset + headers[-1].last_offset_delta + 1


def create(cluster: Cluster, topic: str, partitions: int) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name=topic, partitions=partitions, replication_factor=1))


def test_tasks_of_a_process_go_on_with_one_producer_id(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, 1)
    for _ in range(3):
        assert written(cluster, topic, [b"a", b"b"]) == 2
    headers = log_of(cluster, topic)
    assert len({header.producer_id for header in headers}) == 1 and headers[0].producer_id >= 0
    assert [header.base_sequence for header in headers] == [0, 2, 4]
    assert {Codec(header.attributes & 7) for header in headers} == {Codec.LZ4}, "the sink's default"


def test_a_task_that_failed_takes_its_producer_id_with_it(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, 1)
    written(cluster, topic, [b"a"])
    with pytest.raises(MessageTooLargeError):
        written(cluster, topic, [b"x" * (2 << 20)], **{"kafka.compression.type": "none"})
    written(cluster, topic, [b"b"])
    first, second = log_of(cluster, topic)
    assert first.producer_id != second.producer_id and second.base_sequence == 0


def test_a_log_that_was_cut_refuses_the_old_numbers_and_gets_a_new_producer(cluster: Cluster, topic: str) -> None:
    """What a broker says to a producer whose last batches an unclean election took, said to one that counts too far."""
    create(cluster, topic, 2)
    written(cluster, topic, [b"%d" % number for number in range(20)])
    ((_, numbered),) = producer_ids._kept.values()
    numbered.following[topic, 0] += 7
    assert written(cluster, topic, [b"%d" % number for number in range(20, 40)]) == 20
    assert written(cluster, topic, [b"%d" % number for number in range(40, 60)]) == 20
    cut, whole = log_of(cluster, topic, 0), log_of(cluster, topic, 1)
    assert sum(header.record_count for header in cut + whole) == 60
    assert cut[0].producer_id != cut[1].producer_id and cut[1].base_sequence == 0
    assert cut[1].producer_id == cut[2].producer_id and cut[2].base_sequence == cut[1].record_count
    assert whole[0].producer_id == whole[1].producer_id, "nothing was wrong there"


def test_rows_for_many_partitions_do_not_become_small_batches(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, 200)
    values = [b"%05d" % number for number in range(20_000)]
    pieces = [values[first : first + 500] for first in range(0, len(values), 500)]
    assert written(cluster, topic, *pieces) == len(values)
    batches = [log_of(cluster, topic, partition) for partition in range(0, 200, 20)]
    assert max(len(each) for each in batches) <= 2, "40 Arrow batches are no 40 record batches"
