"""What is asked of a broker that is Kafka's: it closes the connection at a request of ours, and tells what it can."""

from __future__ import annotations

import asyncio
import struct
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.api_versions.v3.response import ApiVersion, ApiVersionsResponse
from kio.schema.describe_cluster.v0.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse, DescribeLogDirsResult
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kio.schema.metadata.v12.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.static.primitive import i32Timedelta

from holdfast.client.admin import AdminClient
from holdfast.client.configs import TOPICS_AT_A_TIME, min_insync_replicas
from holdfast.client.health import Finding, judge
from holdfast.client.survey import about_brokers, members, survey
from holdfast.client.versions import PINNED
from holdfast.model.types import TopicPartition
from holdfast.protocol.operating import MANAGE_LOG_DIRS

NO_TIME = i32Timedelta.parse(timedelta(0))


class Kafkas:
    """Broker 1 of Kafka's; broker 2 is down, and nobody has noticed."""

    def __init__(self, fakes: Any) -> None:
        class Broker(fakes.FakeBroker):  # type: ignore[name-defined]
            def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
                if struct.unpack_from(">h", frame)[0] == MANAGE_LOG_DIRS:
                    raise ConnectionResetError
                super()._answer(frame, writer)

        self.configs_asked: list[int] = []
        self.broker = Broker(
            {
                18: self._api_versions,
                3: self._metadata,
                32: self._configs,
                35: lambda version, request: self._log_dirs(),
                46: lambda version, request: self._reassignments(),
                60: lambda version, request: self._cluster(),
            }
        )

    def _api_versions(self, version: int, request: Any) -> Any:
        assert version == 3, "features are not told"
        keys = tuple(ApiVersion(api_key=k, min_version=v, max_version=v) for k, v in PINNED.items())
        return ApiVersionsResponse(error_code=ErrorCode.none, api_keys=keys, throttle_time=NO_TIME)

    def _metadata(self, version: int, request: Any) -> Any:
        partition = MetadataResponsePartition(
            error_code=ErrorCode.none, partition_index=0, leader_id=1, leader_epoch=3,
            replica_nodes=(1, 2), isr_nodes=(1,), offline_replicas=(),
        )  # fmt: skip
        topic = MetadataResponseTopic(error_code=ErrorCode.none, name="t", topic_id=None, partitions=(partition,))
        return MetadataResponse(
            throttle_time=NO_TIME,
            brokers=tuple(MetadataResponseBroker(node_id=n, host="127.0.0.1", port=p) for n, p in self._ports()),
            cluster_id="c",
            controller_id=1,
            topics=(topic,),
        )

    def _ports(self) -> list[tuple[int, int]]:
        return [(1, self.broker.port), (2, 1)]

    def _cluster(self) -> Any:
        return DescribeClusterResponse(
            throttle_time=NO_TIME, error_code=ErrorCode.none, error_message=None, cluster_id="c", controller_id=1,
            brokers=tuple(
                DescribeClusterBroker(broker_id=n, host="127.0.0.1", port=p, rack=None) for n, p in self._ports()
            ),
            cluster_authorized_operations=0,
        )  # fmt: skip

    def _configs(self, version: int, request: Any) -> Any:
        self.configs_asked.append(len(request.resources))
        value = DescribeConfigsResourceResult(
            name="min.insync.replicas", value="1", read_only=False, config_source=5, is_sensitive=False, synonyms=(),
            config_type=3, documentation=None,
        )  # fmt: skip
        results = (
            DescribeConfigsResult(
                error_code=ErrorCode.unknown_topic_or_partition if r.resource_name == "gone" else ErrorCode.none,
                error_message=None,
                resource_type=r.resource_type,
                resource_name=r.resource_name,
                configs=() if r.resource_name == "gone" else (value,),
            )
            for r in request.resources
        )
        return DescribeConfigsResponse(throttle_time=NO_TIME, results=tuple(results))

    def _log_dirs(self) -> Any:
        results = (
            DescribeLogDirsResult(error_code=code, log_dir=path, topics=(), total_bytes=-1, usable_bytes=-1)
            for path, code in (("/d1", ErrorCode.none), ("/d2", ErrorCode.kafka_storage_error))
        )
        return DescribeLogDirsResponse(throttle_time=NO_TIME, error_code=ErrorCode.none, results=tuple(results))

    def _reassignments(self) -> Any:
        one = OngoingPartitionReassignment(
            partition_index=0, replicas=(1, 2), adding_replicas=(2,), removing_replicas=()
        )
        return ListPartitionReassignmentsResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            error_message=None,
            topics=(OngoingTopicReassignment(name="t", partitions=(one,)),),
        )


@pytest.fixture
def kafkas(fakes: Any) -> Kafkas:
    return Kafkas(fakes)


def test_a_cluster_of_kafkas_is_judged_by_what_it_tells(kafkas: Kafkas) -> None:
    async def ask() -> None:
        async with kafkas.broker, AdminClient(f"127.0.0.1:{kafkas.broker.port}", timeout_s=10.0) as client:
            told = await survey(client)
        assert told.adding == {TopicPartition("t", 0): {2}}
        health = judge(told)
        assert [(f.kind, f.broker, f.text) for f in health.problems] == [
            (
                Finding.BROKER_UNREACHABLE,
                2,
                "broker 2 does not answer: cannot connect to 127.0.0.1:1: connection refused",
            ),
            (Finding.LOG_DIR, 1, "broker 1: /d2 is offline: KAFKA_STORAGE_ERROR"),
        ]

    asyncio.run(ask())


def test_a_broker_without_features_and_one_that_is_down_are_described(kafkas: Kafkas) -> None:
    async def ask() -> None:
        async with kafkas.broker, AdminClient(f"127.0.0.1:{kafkas.broker.port}", timeout_s=10.0) as client:
            found = await members(client)
            one, two = await about_brokers(client, found)
        assert (found.cluster_id, found.controller_id, list(found.brokers)) == ("c", 1, [1, 2])
        assert (one.features, one.features_epoch, one.protocol, one.error) == ((), None, None, None)
        assert two.error == "cannot connect to 127.0.0.1:1: connection refused"

    asyncio.run(ask())


def test_many_topics_are_asked_for_in_parts_and_one_may_go_meanwhile(kafkas: Kafkas) -> None:
    names = [f"t{n}" for n in range(TOPICS_AT_A_TIME)] + ["gone"]

    async def ask() -> None:
        async with kafkas.broker, AdminClient(f"127.0.0.1:{kafkas.broker.port}", timeout_s=10.0) as client:
            found = await min_insync_replicas(client, names)
        assert found == dict.fromkeys(names[:-1], 1)
        assert kafkas.configs_asked == [TOPICS_AT_A_TIME, 1]

    asyncio.run(ask())
