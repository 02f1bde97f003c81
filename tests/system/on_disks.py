"""What the tests of failing disks share: a load that keeps account, single requests, and what a broker says."""

from __future__ import annotations

import asyncio
import datetime
import os
import re
import socket
import threading
from collections.abc import Iterable, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from holdfast.client.admin import AdminClient as OurAdmin
from holdfast.client.transactions import describe_transaction
from holdfast.records.record import Record, encode_batch
from holdfast.testing import Cluster, wait_for
from holdfast.testing.view import ask_only, exchange

TIMEOUT_S = 30
PROBE_MS = 300
SETTINGS = {"default.replication.factor": "1", "log.dir.probe.interval.ms": str(PROBE_MS)}
QUIET = {
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "log_level": 0,
}
STORAGE_ERROR, NOT_LEADER = 56, 6


def create(cluster: Cluster, topic: str, assignment: list[list[int]], **config: str) -> None:
    """Names of settings with _ for a dot; returns when all replicas are in sync."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    new = NewTopic(topic, len(assignment), replica_assignment=assignment, config=settings)
    admin.create_topics([new])[topic].result(TIMEOUT_S)
    cluster.wait_in_sync([topic])


class Load:
    """Numbered records to each partition of a topic, idempotently and with acks=all; a context manager. At its end
    every record that was acknowledged has to be there, once, and none may have failed."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partitions: Iterable[int] = (0,),
        *,
        idempotent: bool = True,
        pause_s: float = 0.005,
    ) -> None:
        self.topic, self.partitions = topic, tuple(partitions)
        self.acked: dict[int, set[int]] = {partition: set() for partition in self.partitions}
        self.errors: list[str] = []
        self._cluster, self._idempotent, self._pause_s = cluster, idempotent, pause_s
        settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": idempotent, **QUIET}
        self._producer = confluent_kafka.Producer({**settings, "linger.ms": 0, "message.timeout.ms": 60_000})
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        self.progress()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if kind is None:
            self.check()

    def progress(self, more: int = 5) -> None:
        """Waits for some more acknowledgements in every partition."""
        before = {partition: len(acked) for partition, acked in self.acked.items()}

        def further() -> bool:
            assert not self.errors, self.errors
            return all(len(self.acked[partition]) > count + more for partition, count in before.items())

        wait_for(further, f"more acks in every partition of {self.topic}", timeout_s=TIMEOUT_S)

    def check(self) -> None:
        assert not self.errors, self.errors
        assert all(self.acked.values())
        for partition, acked in self.acked.items():
            found = read_all(self._cluster, self.topic, partition)
            numbers = [int(value) for value in found]
            assert acked <= set(numbers), f"{self.topic}-{partition}: acknowledged but lost"
            if self._idempotent:
                assert len(numbers) == len(set(numbers)), f"{self.topic}-{partition}: written twice"

    def _run(self) -> None:
        number = 0
        while not self._over.wait(self._pause_s):
            for partition in self.partitions:
                self._producer.produce(
                    self.topic,
                    b"%d" % number,
                    partition=partition,
                    on_delivery=lambda e, m, p=partition: self._report(e, m, p),
                )
            number += 1
            self._producer.poll(0)
        self._producer.flush(TIMEOUT_S)

    def _report(self, error: Any, message: Any, partition: int) -> None:
        if error is None:
            self.acked[partition].add(int(message.value()))
        else:
            self.errors.append(f"{self.topic}-{partition}: {error}")


def read_all(cluster: Cluster, topic: str, partition: int) -> list[bytes]:
    """All values up to the high watermark."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "reads-all", "enable.auto.commit": False, **QUIET}
    consumer = confluent_kafka.Consumer(settings)
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[bytes] = []
        reached = 0

        def all_read() -> bool:
            nonlocal reached
            for message in consumer.consume(10_000, 0.05):
                assert message.error() is None, message.error()
                found.append(message.value() or b"")
                reached = (message.offset() or 0) + 1
            return reached >= end

        wait_for(all_read, f"the end of {topic}-{partition}", timeout_s=TIMEOUT_S)
        return found
    finally:
        consumer.close()


# -- single requests, each over a connection of its own ------------------------------------------------------------


def milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=count))


def ask(cluster: Cluster, broker: int, api: str, version: int, name: str, **fields: Any) -> Any:
    """The answer to one request of kio's; ``name`` is that of its class without Request."""
    requests = import_module(f"kio.schema.{api}.v{version}.request")
    answers = import_module(f"kio.schema.{api}.v{version}.response")
    request = getattr(requests, f"{name}Request")(**fields)
    return exchange(*cluster.addresses()[broker - 1], request, getattr(answers, f"{name}Response"), timeout_s=TIMEOUT_S)


def _parts(api: str, version: int) -> Any:
    return import_module(f"kio.schema.{api}.v{version}.request")


def produce_error(cluster: Cluster, broker: int, topic: str, partition: int, *, acks: int = 1, version: int = 8) -> int:
    parts = _parts("produce", version)
    data = parts.PartitionProduceData(index=i32(partition), records=bytes(encode_batch([Record(0, 1, None, b"x")])))
    topics = (parts.TopicProduceData(name=TopicName(topic), partition_data=(data,)),)
    answer = ask(cluster, broker, "produce", version, "Produce", transactional_id=None, acks=i16(acks),
                 timeout=milliseconds(5000), topic_data=topics)  # fmt: skip
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch_error(cluster: Cluster, broker: int, topic: str, partition: int, *, version: int = 10) -> int:
    wanted = fetch_of(topic, partition, 0, version=version)
    answer = ask(cluster, broker, "fetch", version, "Fetch", **wanted)
    return int(answer.responses[0].partitions[0].error_code)


def fetch_of(
    topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, wait_ms: int = 0, version: int = 10
) -> dict[str, Any]:
    """Fields of a FetchRequest."""
    parts = _parts("fetch", version)
    wanted = parts.FetchPartition(
        partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(max_bytes)
    )
    topics = (parts.FetchTopic(topic=TopicName(topic), partitions=(wanted,)),)
    more = {} if version < 7 else {"forgotten_topics_data": ()}
    return dict(max_wait=milliseconds(wait_ms), min_bytes=i32(int(wait_ms > 0)), max_bytes=i32(max_bytes),
                isolation_level=i8(0), topics=topics, **more)  # fmt: skip


def fetch_and_stay(
    cluster: Cluster, broker: int, topic: str, partition: int, offset: int, **more: int
) -> socket.socket:
    """Ask for records and leave the answer, or the connection after it, to the caller."""
    request = _parts("fetch", 10).FetchRequest(**fetch_of(topic, partition, offset, **more))
    return ask_only(*cluster.addresses()[broker - 1], request, timeout_s=TIMEOUT_S)


def list_offsets_error(cluster: Cluster, broker: int, topic: str, partition: int) -> int:
    parts = _parts("list_offsets", 2)
    wanted = parts.ListOffsetsPartition(partition_index=i32(partition), timestamp=i64(-1))
    topics = (parts.ListOffsetsTopic(name=TopicName(topic), partitions=(wanted,)),)
    answer = ask(cluster, broker, "list_offsets", 2, "ListOffsets", replica_id=-1, isolation_level=i8(0), topics=topics)
    return int(answer.topics[0].partitions[0].error_code)


def epoch_error(cluster: Cluster, broker: int, topic: str, partition: int) -> int:
    parts = _parts("offset_for_leader_epoch", 3)
    wanted = parts.OffsetForLeaderPartition(partition=i32(partition), current_leader_epoch=i32(-1), leader_epoch=i32(0))
    topics = (parts.OffsetForLeaderTopic(topic=TopicName(topic), partitions=(wanted,)),)
    answer = ask(cluster, broker, "offset_for_leader_epoch", 3, "OffsetForLeaderEpoch", replica_id=-1, topics=topics)
    return int(answer.topics[0].partitions[0].error_code)


def errors_of(cluster: Cluster, broker: int, topic: str, partition: int) -> list[int]:
    """Of Produce, Fetch, ListOffsets and OffsetForLeaderEpoch."""
    return [
        one(cluster, broker, topic, partition) for one in (produce_error, fetch_error, list_offsets_error, epoch_error)
    ]


# -- what brokers say ----------------------------------------------------------------------------------------------


def offline(cluster: Cluster, topics: Sequence[str] | None, *, at: int) -> dict[tuple[str, int], tuple[int, ...]]:
    """Partitions with offline replicas as broker ``at`` tells clients."""
    view = cluster.describe(topics, broker=at)
    return {place: tuple(sorted(seen.offline)) for place, seen in view.partitions.items() if seen.offline}


def wait_offline(cluster: Cluster, broker: int, places: Iterable[tuple[str, int]], *, at: Iterable[int]) -> None:
    """Until exactly these replicas of the broker are offline, for every broker of ``at``."""
    wanted = set(places)

    def known() -> bool:
        views = [offline(cluster, None, at=asked) for asked in at]
        return all({place for place, brokers in seen.items() if broker in brokers} == wanted for seen in views)

    wait_for(known, f"offline replicas of broker {broker}: {sorted(wanted)}", timeout_s=TIMEOUT_S)


def on_disk(cluster: Cluster, broker: int, number: int) -> set[tuple[str, int]]:
    """Replicas in that log directory, as the broker says."""
    return set(cluster.describe_log_dirs(broker)[str(cluster.log_dir(broker, number))].replicas)


def errors_of_dirs(cluster: Cluster, broker: int) -> dict[int, int]:
    """Error code by number of the log directory."""
    dirs = cluster.describe_log_dirs(broker)
    return {int(path.rpartition("-")[2]): seen.error for path, seen in dirs.items()}


def log_of(cluster: Cluster, broker: int) -> str:
    return (cluster.data_dir / f"broker-{broker}.log").read_text(errors="replace")


def wait_told(cluster: Cluster, broker: int, number: int, why: str) -> None:
    """Until the log of a broker has the expected error message, for that directory; no other one of the cluster has any
    (KIP-112's test plan)."""
    line = re.compile(rf"ERROR .*log dir {re.escape(str(cluster.log_dir(broker, number)))} is offline: .*{why}")
    wait_for(lambda: line.search(log_of(cluster, broker)), f"the line of directory {number}", timeout_s=TIMEOUT_S)
    told = {found for one in cluster.pids() for found in re.findall(r"log dir (\S+) is offline", log_of(cluster, one))}
    assert told == {str(cluster.log_dir(broker, number))}


def wait_probed(cluster: Cluster, broker: int, number: int, times: int = 3) -> None:
    """Until that (good) directory was probed so often from now on: a probe makes a file in it."""
    path = cluster.log_dir(broker, number)
    for _ in range(times):
        before = os.stat(path).st_mtime_ns
        wait_for(lambda b=before: os.stat(path).st_mtime_ns != b, f"a probe of {path}", timeout_s=TIMEOUT_S)  # type: ignore[misc]


def bytes_of(cluster: Cluster, broker: int, topic: str, partition: int) -> bytes:
    """All segments of a replica."""
    folder = cluster.folder_of(broker, topic, partition)
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def wait_equal(cluster: Cluster, topic: str, partition: int) -> None:
    """Until every replica is in sync and has the same bytes; nobody may be writing."""
    view = cluster.wait_in_sync([topic])
    brokers = view.partitions[topic, partition].replicas
    wait_for(
        lambda: len({bytes_of(cluster, broker, topic, partition) for broker in brokers}) == 1,
        f"equal replicas of {topic}-{partition}",
        timeout_s=TIMEOUT_S,
    )


def wait_ended(bootstrap: str, transactional_id: str) -> None:
    """A commit is answered when its coordinator has decided; readers see it when each partition has its marker."""

    async def state() -> str:
        async with OurAdmin(bootstrap) as client:
            return (await describe_transaction(client, transactional_id)).state

    wait_for(
        lambda: asyncio.run(state()).startswith("Complete"), f"markers of {transactional_id!r}", timeout_s=TIMEOUT_S
    )
