"""What brokers say to each other, said by a stranger: late, repeated, or to the wrong one."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from holdfast.broker.entity import build
from holdfast.client.connection import BrokerConnection
from holdfast.protocol import interbroker
from holdfast.protocol.apis import ApiKey, request_type
from holdfast.testing import Cluster
from tests.system.test_returning_brokers import create, produce

pytestmark = pytest.mark.system

TIMEOUT_S = 20.0
STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH, NOT_LEADER_OR_FOLLOWER = 77, 11, 6
LATER = 1_000_000
"""A controller epoch that no cluster of these tests comes to."""


def ask(cluster: Cluster, broker: int, *requests: Any) -> list[Any]:
    """The answers of one broker over one connection, by the listener of brokers."""

    async def run() -> list[Any]:
        host, port = cluster.addresses_of_brokers()[broker - 1]
        connection = BrokerConnection(host, port, "stranger")
        await connection.open(TIMEOUT_S)
        try:
            return [await connection.request(request, timeout_s=TIMEOUT_S) for request in requests]
        finally:
            connection.close()

    return asyncio.run(run())


def order(topic: str, *, controller_epoch: int, broker_epoch: int) -> Any:
    """ "You lead it", as a controller of that time would have said it to a broker of that time."""
    state = {
        "partition_index": 0, "controller_epoch": controller_epoch, "leader": 2, "leader_epoch": 99, "isr": (2,),
        "partition_epoch": 99, "replicas": (1, 2), "is_new": False,
    }  # fmt: skip
    values = {
        "controller_id": 1, "controller_epoch": controller_epoch, "broker_epoch": broker_epoch,
        "topic_states": [{"topic_name": topic, "topic_id": UUID(int=5), "partition_states": [state]}],
        "live_leaders": [],
    }  # fmt: skip
    return build(interbroker.LeaderAndIsrRequest, values)


def test_H_09_an_order_for_an_earlier_incarnation_is_refused(cluster: Cluster, topic: str) -> None:
    """It was on its way while the broker restarted. Whatever it says, nothing changes."""
    create(cluster, topic, [[1, 2]])
    before = cluster.describe([topic]).partitions[topic, 0]
    late = order(topic, controller_epoch=LATER, broker_epoch=0)
    stop = build(
        interbroker.StopReplicaRequest,
        {
            "controller_id": 1, "controller_epoch": LATER, "broker_epoch": 0,
            "topic_states": [
                {"topic_name": topic, "partition_states": [{"partition_index": 0, "delete_partition": True}]}
            ],
        },
    )  # fmt: skip
    metadata = build(
        interbroker.UpdateMetadataRequest,
        {"controller_id": 1, "controller_epoch": LATER, "broker_epoch": 0, "topic_states": [], "live_brokers": []},
    )
    answers = ask(cluster, 2, late, stop, metadata)
    assert [int(answer.error_code) for answer in answers] == [STALE_BROKER_EPOCH] * 3
    # Of a controller that was replaced: refused for that.
    [answer] = ask(cluster, 2, order(topic, controller_epoch=0, broker_epoch=2**40))
    assert int(answer.error_code) == STALE_CONTROLLER_EPOCH
    assert cluster.describe([topic], broker=2).partitions[topic, 0] == before
    assert produce(cluster, topic, 1, 3) == [0, 1, 2]


def fetch(topic: str, offset: int, replica: int) -> Any:
    partition = {
        "partition": 0, "current_leader_epoch": 0, "fetch_offset": offset, "log_start_offset": 0,
        "partition_max_bytes": 1 << 20,
    }  # fmt: skip
    values = {
        "replica_id": replica, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_id": 0,
        "session_epoch": -1, "topics": [{"topic": topic, "partitions": [partition]}], "forgotten_topics_data": [],
    }  # fmt: skip
    return build(request_type(ApiKey.FETCH, 12), values)


def test_R_44_a_fetch_in_a_followers_name(cluster: Cluster, topic: str) -> None:
    """From the leader data and the high watermark, from another replica NOT_LEADER_OR_FOLLOWER."""
    create(cluster, topic, [[1, 2]])
    produce(cluster, topic, 1, 5)
    from_start, from_end = (
        answer.responses[0].partitions[0]
        for answer in ask(cluster, 1, fetch(topic, 0, replica=2), fetch(topic, 5, replica=2))
    )
    assert (int(from_start.error_code), from_start.high_watermark) == (0, 5)
    assert len(from_start.records) > 5 * 500
    assert (int(from_end.error_code), from_end.high_watermark, len(from_end.records or b"")) == (0, 5, 0)
    for broker, name in ((2, 1), (3, 2)):
        [answer] = ask(cluster, broker, fetch(topic, 0, replica=name))
        assert int(answer.responses[0].partitions[0].error_code) == NOT_LEADER_OR_FOLLOWER
    assert produce(cluster, topic, 1, 1) == [5]  # the real follower goes on
