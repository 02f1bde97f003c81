"""KafkaClient against two fake brokers: routing, retrying, and what it says when that does not help."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
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
from kio.schema.produce.v9.response import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kio.static.primitive import i32Timedelta

from holdfast.client.cluster import KafkaClient
from holdfast.client.errors import NoBrokersAvailable
from holdfast.client.pool import parse_bootstrap
from holdfast.client.versions import PINNED, PRODUCE
from holdfast.client.views import OffsetAt, OffsetSpec
from holdfast.model.errors import (
    ConfigError,
    MessageTooLargeError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from holdfast.model.types import TopicPartition
from holdfast.records.record import BatchBuilder

NO_TIME = i32Timedelta.parse(timedelta(0))
TP = TopicPartition("t", 0)


class Cluster:
    """Brokers 1 and 2 with topic ``t``; ``leader`` may change. Every answer is scripted by the test."""

    def __init__(self, fakes: Any) -> None:
        self.leader = 1
        self.versions = dict(PINNED)
        self.produced: list[tuple[int, int]] = []
        self.produce_codes: dict[int, list[ErrorCode]] = {1: [], 2: []}
        self.offset_codes: list[ErrorCode] = []
        self.brokers = {n: fakes.FakeBroker(self._handlers(n)) for n in (1, 2)}

    def _handlers(self, broker: int) -> dict[int, Callable[[int, Any], Any]]:
        return {
            18: self._api_versions,
            3: self._metadata,
            0: lambda version, request: self._produce(broker, request),
            2: lambda version, request: self._list_offsets(request),
        }

    def _api_versions(self, version: int, request: Any) -> Any:
        keys = tuple(ApiVersion(api_key=k, min_version=v, max_version=v) for k, v in self.versions.items())
        return ApiVersionsResponse(error_code=ErrorCode.none, api_keys=keys, throttle_time=NO_TIME)

    def _metadata(self, version: int, request: Any) -> Any:
        names = ["t"] if request.topics is None else [t.name for t in request.topics]
        return MetadataResponse(
            throttle_time=NO_TIME,
            brokers=tuple(
                MetadataResponseBroker(node_id=n, host="127.0.0.1", port=b.port) for n, b in self.brokers.items()
            ),
            cluster_id="c",
            controller_id=2,
            topics=tuple(map(self._topic, names)),
        )

    def _topic(self, name: str) -> Any:
        known = name == "t"
        partition = MetadataResponsePartition(
            error_code=ErrorCode.none,
            partition_index=0,
            leader_id=self.leader,
            leader_epoch=3,
            replica_nodes=(1, 2),
            isr_nodes=(1, 2),
        )
        return MetadataResponseTopic(
            error_code=ErrorCode.none if known else ErrorCode.unknown_topic_or_partition,
            name=name,
            topic_id=None,
            partitions=(partition,) if known else (),
        )

    def _produce(self, broker: int, request: Any) -> Any:
        codes = self.produce_codes[broker]
        code = codes.pop(0) if codes else ErrorCode.none
        self.produced.append((broker, code.value))
        part = PartitionProduceResponse(index=0, error_code=code, base_offset=7, record_errors=())
        return ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=(part,)),))

    def _list_offsets(self, request: Any) -> Any:
        code = self.offset_codes.pop(0) if self.offset_codes else ErrorCode.none
        part = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=42, leader_epoch=3)
        return ListOffsetsResponse(
            throttle_time=NO_TIME, topics=(ListOffsetsTopicResponse(name="t", partitions=(part,)),)
        )

    def run(self, test: Callable[[KafkaClient], Coroutine[Any, Any, None]], **options: Any) -> None:
        async def main() -> None:
            async with self.brokers[1], self.brokers[2]:
                bootstrap = f"127.0.0.1:{self.brokers[1].port}"
                async with KafkaClient(bootstrap, **options) as client:
                    await test(client)

        asyncio.run(asyncio.wait_for(main(), 20))


@pytest.fixture
def cluster(fakes: Any) -> Cluster:
    return Cluster(fakes)


def batch() -> bytearray:
    builder = BatchBuilder()
    builder.append(None, b"v", 1)
    return builder.build()


def test_a_batch_goes_to_the_leader_as_it_is(cluster: Cluster) -> None:
    cluster.leader = 2
    sent = batch()

    async def test(client: KafkaClient) -> None:
        ack = await client.produce("t", 0, sent)
        assert ack.base_offset == 7

    cluster.run(test)
    (request,) = [r for key, _, r in cluster.brokers[2].seen if key == PRODUCE]
    part = request.topic_data[0].partition_data[0]
    assert (request.acks, request.topic_data[0].name, part.index) == (-1, "t", 0)
    assert bytes(part.records) == bytes(sent)


def test_a_leader_that_has_moved_is_found_again(cluster: Cluster) -> None:
    cluster.produce_codes[1] = [ErrorCode.not_leader_or_follower]

    async def test(client: KafkaClient) -> None:
        await client.topic("t")
        cluster.leader = 2
        await client.produce("t", 0, batch())

    cluster.run(test)
    assert cluster.produced == [(1, 6), (2, 0)]


def test_a_lost_connection_is_tried_again_on_a_new_one(cluster: Cluster) -> None:
    async def test(client: KafkaClient) -> None:
        await client.produce("t", 0, batch())
        cluster.brokers[1].drop_all()
        await client.produce("t", 0, batch())

    cluster.run(test)
    assert cluster.produced == [(1, 0), (1, 0)]


def test_errors_that_last_are_raised_at_once(cluster: Cluster) -> None:
    cluster.produce_codes[1] = [ErrorCode.message_too_large]

    async def test(client: KafkaClient) -> None:
        with pytest.raises(MessageTooLargeError):
            await client.produce("t", 0, batch())

    cluster.run(test)
    assert len(cluster.produced) == 1


def test_retrying_ends_with_the_callers_time(cluster: Cluster) -> None:
    cluster.produce_codes[1] = [ErrorCode.not_leader_or_follower] * 1000

    async def test(client: KafkaClient) -> None:
        with pytest.raises(NotLeaderOrFollowerError):
            await client.produce("t", 0, batch(), timeout_s=0.1)

    cluster.run(test)
    assert 1 < len(cluster.produced) < 20


def test_without_retry_the_caller_decides(cluster: Cluster) -> None:
    cluster.produce_codes[1] = [ErrorCode.not_leader_or_follower]

    async def test(client: KafkaClient) -> None:
        with pytest.raises(NotLeaderOrFollowerError):
            await client.produce("t", 0, batch(), retry=False)

    cluster.run(test)
    assert cluster.produced == [(1, 6)]


def test_a_batch_that_the_leader_has_already_is_acknowledged(cluster: Cluster) -> None:
    cluster.produce_codes[1] = [ErrorCode.duplicate_sequence_number]

    async def test(client: KafkaClient) -> None:
        ack = await client.produce("t", 0, batch())
        assert ack.duplicate and ack.base_offset is None

    cluster.run(test)


def test_offsets_are_asked_for_again_until_all_are_there(cluster: Cluster) -> None:
    cluster.offset_codes = [ErrorCode.offset_not_available, ErrorCode.leader_not_available]

    async def test(client: KafkaClient) -> None:
        found = await client.list_offsets({TP: OffsetSpec.LATEST})
        assert found == {TP: OffsetAt(offset=42, leader_epoch=3)}

    cluster.run(test)


def test_a_missing_topic_or_partition_is_named(cluster: Cluster) -> None:
    async def test(client: KafkaClient) -> None:
        with pytest.raises(UnknownTopicOrPartitionError, match="nosuch"):
            await client.topic("nosuch")
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 9"):
            await client.leader(TopicPartition("t", 9))

    cluster.run(test)


def test_a_broker_that_does_not_speak_the_version_is_named(cluster: Cluster) -> None:
    cluster.versions[PRODUCE] = 3
    del cluster.versions[2]

    async def test(client: KafkaClient) -> None:
        with pytest.raises(UnsupportedVersionError, match="versions 3 to 3 of API 0"):
            await client.produce("t", 0, batch())
        with pytest.raises(UnsupportedVersionError, match="does not know API 2"):
            await client.list_offsets({TP: OffsetSpec.EARLIEST})

    cluster.run(test)


def test_the_view_has_no_sentinels(cluster: Cluster) -> None:
    cluster.leader = -1

    async def test(client: KafkaClient) -> None:
        view = await client.metadata()
        assert view.controller_id == 2
        assert view.topics["t"].partitions[0].leader is None
        assert view.leader_of(TP) is None

    cluster.run(test)


def test_no_broker_at_all_fails_at_once_and_names_all() -> None:
    async def main() -> None:
        async with KafkaClient("127.0.0.1:1,127.0.0.1:2"):
            raise AssertionError("connected")

    with pytest.raises(NoBrokersAvailable, match=r"127.0.0.1:1: connection refused.*127.0.0.1:2"):
        asyncio.run(main())


def test_bootstrap_servers_are_read_as_kafkas_clients_do() -> None:
    assert parse_bootstrap(" a:1, b ,[::1]:3,[::1]") == [("a", 1), ("b", 9092), ("::1", 3), ("::1", 9092)]
    assert parse_bootstrap(["a:1", "b:2"]) == [("a", 1), ("b", 2)]
    for wrong in ("", "a:0", "a:b", "a:65536", ":1"):
        with pytest.raises(ConfigError):
            parse_bootstrap(wrong)
