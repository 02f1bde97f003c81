"""Brokers of a few pages for tests of the source: frames over real sockets, logs in memory, faults as the test says.

What a real cluster does too rarely (a stale broker, a passing error, a quota, a log that is cut) is done here by order;
what it does every day is tested against a real one in tests/spark.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import kio.schema.api_versions.v0.response as v0
from kio.schema.api_versions.v3.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.schema.metadata.v12.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kio.static.primitive import i32Timedelta

from holdfast.protocol.fetch_codec import FetchAnswer, encode_fetch_response
from holdfast.records.record import BatchBuilder
from tests.unit.client.fakes import FakeBroker

NO_TIME = i32Timedelta.parse(timedelta(0))
SPOKEN = {1: (4, 13), 2: (1, 7), 3: (0, 12), 18: (0, 3), 23: (2, 4)}


@dataclass
class Log:
    """One partition: batches of records whose value is ``NAME-OFFSET``, and the epochs that wrote them."""

    name: str
    leader: int = 1
    epoch: int = 0
    start: int = 0
    batches: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    """(first offset, end offset, epoch, bytes)"""

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    def append(self, records: int, *, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        base = self.end
        builder = BatchBuilder(base_offset=base, leader_epoch=self.epoch)
        for offset in range(base, base + records):
            builder.append(None, f"{self.name}-{offset}".encode(), 1_700_000_000_000 + offset, list(headers))
        self.batches.append((base, base + records, self.epoch, bytes(builder.build())))

    def cut(self, end: int) -> None:
        """As a replica that lacks what comes after: whole batches go."""
        self.batches = [each for each in self.batches if each[1] <= end]

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``epoch`` and where it ends; (-1, -1) if there is none."""
        known = [each for each in self.batches if each[2] <= epoch]
        if epoch >= self.epoch:
            return self.epoch, self.end
        return (known[-1][2], known[-1][1]) if known else (-1, -1)

    def read(self, offset: int, max_bytes: int) -> bytes:
        found = b""
        for _, end, _, data in self.batches:
            if end > offset and (not found or len(found) + len(data) <= max_bytes):
                found += data
            elif found:
                break
        return found


@dataclass
class FakeTopic:
    logs: list[Log]
    topic_id: uuid.UUID
    internal: bool = False


FetchScript = Callable[[int, Any], FetchAnswer[bytes] | int | None]
"""(broker, offset asked for) -> an answer, milliseconds of throttling, or None to answer as usual."""


class LogCluster:
    """``with LogCluster() as cluster: cluster.topic("t")[0].append(10)``"""

    def __init__(self, brokers: int = 1) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.spoken = dict(SPOKEN)
        self.unknown_at: dict[int, set[str]] = {}
        """Topics that a broker does not know of (yet)."""
        self.stale_ids: dict[int, set[str]] = {}
        """Topics of which a broker tells an id that they had before, in the next ``stale_answers``."""
        self.stale_answers = 0
        self.topic_errors: dict[str, list[ErrorCode]] = {}
        """Errors of the next Metadata answers about a topic."""
        self.offset_errors: list[ErrorCode] = []
        self.ends: list[int] = []
        """Ends of logs that the next answers tell."""
        self.fetch_script: list[FetchScript | FetchAnswer[bytes] | int] = []
        """What the next fetches are answered with."""
        self.fetch_lacks: Callable[[], bool] = lambda: False
        """Whether the answer to a partition of a fetch is empty, although it has records; not of the first."""
        self.fetched: list[tuple[int, int, int]] = []
        """(broker, offset, current leader epoch) of each fetch of a partition."""
        self.racks: list[str] = []
        self.nearer: dict[str, int] = {}
        """Rack -> the broker whose replicas the leader sends its readers to."""
        self.brokers = {n: FakeBroker(self._handlers(n)) for n in range(1, brokers + 1)}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> LogCluster:
        self._thread.start()
        for broker in self.brokers.values():
            asyncio.run_coroutine_threadsafe(broker.__aenter__(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            asyncio.run_coroutine_threadsafe(broker.__aexit__(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.brokers[1].port}"

    def topic(self, name: str, partitions: int = 1, *, internal: bool = False) -> list[Log]:
        """Made, or made again: with an id of its own and empty logs."""
        logs = [Log(f"{name}{n}") for n in range(partitions)]
        self.topics[name] = FakeTopic(logs, uuid.uuid4(), internal)
        return logs

    def asked(self, api_key: int, broker: int | None = None) -> int:
        """How many requests of an API came."""
        chosen = [self.brokers[broker]] if broker else self.brokers.values()
        return sum(key == api_key for each in chosen for key, _, _ in each.seen)

    # -- answers ---------------------------------------------------------------------------------------------

    def _handlers(self, broker: int) -> dict[int, Callable[[int, Any], Any]]:
        return {
            1: lambda version, request: self._fetch(broker, version, request),
            2: lambda version, request: self._list_offsets(broker, request),
            3: lambda version, request: self._metadata(broker, request),
            18: lambda version, request: self._api_versions(version),
            23: lambda version, request: self._epoch_ends(request),
        }

    def _api_versions(self, version: int) -> Any:
        if version == 0:
            old = tuple(v0.ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.spoken.items())
            return v0.ApiVersionsResponse(error_code=ErrorCode.none, api_keys=old)
        keys = tuple(ApiVersion(api_key=k, min_version=low, max_version=high) for k, (low, high) in self.spoken.items())
        return ApiVersionsResponse(error_code=ErrorCode.none, api_keys=keys, throttle_time=NO_TIME)

    def _metadata(self, broker: int, request: Any) -> Any:
        hidden, stale = self.unknown_at.get(broker, set()), self.stale_ids.get(broker, set())
        if request.topics is None:
            names = [name for name in self.topics if name not in hidden]
        else:
            names = [str(each.name) for each in request.topics]
        return MetadataResponse(
            throttle_time=NO_TIME,
            brokers=tuple(
                MetadataResponseBroker(node_id=n, host="127.0.0.1", port=b.port) for n, b in self.brokers.items()
            ),
            cluster_id="c",
            controller_id=1,
            topics=tuple(self._topic(name, name in hidden, name in stale) for name in names),
        )

    def _topic(self, name: str, hidden: bool, stale: bool) -> Any:
        topic = self.topics.get(name)
        errors = self.topic_errors.get(name, [])
        code = errors.pop(0) if errors else ErrorCode.none
        if topic is None or hidden:
            code = ErrorCode.unknown_topic_or_partition
        if topic is None or code is not ErrorCode.none:
            return MetadataResponseTopic(error_code=code, name=name, topic_id=None, partitions=())
        partitions = tuple(
            MetadataResponsePartition(
                error_code=ErrorCode.none,
                partition_index=n,
                leader_id=log.leader,
                leader_epoch=log.epoch,
                replica_nodes=tuple(self.brokers),
                isr_nodes=tuple(self.brokers),
            )
            for n, log in enumerate(topic.logs)
        )
        return MetadataResponseTopic(
            error_code=ErrorCode.none,
            name=name,
            topic_id=self._id(topic, stale),
            is_internal=topic.internal,
            partitions=partitions,
        )

    def _id(self, topic: FakeTopic, stale: bool) -> uuid.UUID:
        if not stale or not self.stale_answers:
            return topic.topic_id
        self.stale_answers -= 1
        return uuid.UUID(int=1)

    def _wanted(self, request: Any) -> Iterator[tuple[str, list[tuple[Any, Log | None]]]]:
        for topic in request.topics:
            topic_id = getattr(topic, "topic_id", None)
            name = str(topic_id or getattr(topic, "name", None) or topic.topic)
            there = [each for n, each in self.topics.items() if name in (n, str(each.topic_id))]
            logs = there[0].logs if there else []
            parts = [
                (part, log)
                for part in topic.partitions
                for number in [int(getattr(part, "partition_index", getattr(part, "partition", 0)))]
                for log in [logs[number] if number < len(logs) else None]
            ]
            yield name, parts

    def _list_offsets(self, broker: int, request: Any) -> Any:
        topics = []
        for name, parts in self._wanted(request):
            answers = []
            for part, log in parts:
                code = self.offset_errors.pop(0) if self.offset_errors else ErrorCode.none
                if log is None:
                    code = ErrorCode.unknown_topic_or_partition
                found = {} if log is None else {"offset": self._offset_at(log, part), "leader_epoch": log.epoch}
                answers.append(
                    ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=code, **found)
                )
            topics.append(ListOffsetsTopicResponse(name=name, partitions=tuple(answers)))
        return ListOffsetsResponse(throttle_time=NO_TIME, topics=tuple(topics))

    def _offset_at(self, log: Log, part: Any) -> int:
        if part.timestamp == -2:
            return log.start
        return self.ends.pop(0) if self.ends else log.end

    def _epoch_ends(self, request: Any) -> Any:
        topics = []
        for name, parts in self._wanted(request):
            answers = []
            for part, log in parts:
                assert log is not None
                epoch, end = log.epoch_end(part.leader_epoch)
                answers.append(
                    EpochEndOffset(
                        error_code=ErrorCode.none, partition=part.partition, leader_epoch=epoch, end_offset=end
                    )
                )
            topics.append(OffsetForLeaderTopicResult(topic=name, partitions=tuple(answers)))
        return OffsetForLeaderEpochResponse(throttle_time=NO_TIME, topics=tuple(topics))

    def _fetch(self, broker: int, version: int, request: Any) -> bytes:
        throttle_ms, topics = 0, []
        self.racks.append(request.rack_id)
        for name, parts in self._wanted(request):
            answers: list[FetchAnswer[bytes]] = []
            for part, log in parts:
                offset, epoch = int(part.fetch_offset), int(part.current_leader_epoch)
                self.fetched.append((broker, offset, epoch))
                answer: Any = self.fetch_script.pop(0) if self.fetch_script else None
                if callable(answer):
                    answer = answer(broker, offset)
                if isinstance(answer, int):
                    throttle_ms = answer
                    continue
                answer = answer or self._fetched(broker, part, log, offset, epoch, version)
                if answers and self.fetch_lacks():
                    answer = answer._replace(records=b"")
                answers.append(answer)
            topics.append((name if version < 13 else uuid.UUID(name), answers))
        if throttle_ms:
            topics = []
        chunks = encode_fetch_response(version, 0, 0, 0, topics, throttle_ms)
        return b"".join(chunks)[9 if version >= 12 else 8 :]

    def _fetched(
        self, broker: int, part: Any, log: Log | None, offset: int, epoch: int, version: int
    ) -> FetchAnswer[bytes]:
        code, data = 0, b""
        if log is None:
            return FetchAnswer(int(part.partition), 3 if version < 13 else 100, -1, -1, -1, b"")
        nearer = self.nearer.get(self.racks[-1], log.leader)
        if broker not in (log.leader, nearer):
            code = 6
        elif epoch not in (-1, log.epoch):
            code = 74 if epoch < log.epoch else 75
        elif not log.start <= offset <= log.end:
            code = 1
        elif broker != nearer:
            return FetchAnswer(int(part.partition), 0, log.end, log.end, log.start, b"", preferred_read_replica=nearer)
        else:
            data = log.read(offset, int(part.partition_max_bytes))
        return FetchAnswer(int(part.partition), code, log.end, log.end, log.start, data)


def failed(code: int, partition: int = 0) -> FetchAnswer[bytes]:
    """An answer with an error, as a script has it."""
    return FetchAnswer(partition, code, -1, -1, -1, b"")
