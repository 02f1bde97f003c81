"""The controller's long requests: written by hand, byte for byte what kio writes."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.protocol import interbroker as ib
from holdfast.protocol.framing import encode_body
from holdfast.protocol.orders_codec import encode_order

wire: Any = ib
int32 = st.integers(-(2**31), 2**31 - 1)
brokers = st.lists(st.integers(-1, 2**31 - 1), max_size=4).map(tuple)
many_brokers = st.integers(130, 140).map(lambda count: tuple(range(count)))
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=200)
ids = st.none() | st.uuids().filter(lambda u: u.int != 0)

orders = st.builds(
    wire.LeaderAndIsrPartitionState, partition_index=int32, controller_epoch=int32, leader=int32, leader_epoch=int32,
    isr=brokers | many_brokers, partition_epoch=int32, replicas=brokers, adding_replicas=brokers,
    removing_replicas=brokers, is_new=st.booleans(), leader_recovery_state=st.integers(-128, 127), eligible=brokers,
)  # fmt: skip
metadata = st.builds(
    wire.UpdateMetadataPartitionState, partition_index=int32, controller_epoch=int32, leader=int32, leader_epoch=int32,
    isr=brokers, zk_version=int32, replicas=brokers | many_brokers, offline_replicas=brokers,
)  # fmt: skip


def topics(kind: Any, states: Any) -> Any:
    some = st.lists(states, max_size=5) | st.lists(states, min_size=2, max_size=2).map(lambda two: two * 70)
    one = st.builds(kind, topic_name=names, topic_id=ids, partition_states=some.map(tuple))
    return st.lists(one, max_size=4).map(tuple)


@settings(max_examples=40, deadline=None)
@given(topics=topics(wire.LeaderAndIsrTopicState, orders), kind=st.sampled_from([ib.TYPE_INCREMENTAL, ib.TYPE_FULL]))
def test_leader_and_isr_is_what_kio_writes(topics: Any, kind: int) -> None:
    leader = wire.LeaderAndIsrLiveLeader(broker_id=3, host_name="h", port=9)
    request = wire.LeaderAndIsrRequest(
        controller_id=1, controller_epoch=2**31 - 1, broker_epoch=2**40, type=kind, topic_states=topics,
        live_leaders=(leader,),
    )  # fmt: skip
    assert encode_order(request) == encode_body(request)


@settings(max_examples=40, deadline=None)
@given(topics=topics(wire.UpdateMetadataTopicState, metadata), kind=st.sampled_from([0, ib.TYPE_FULL]))
def test_update_metadata_is_what_kio_writes(topics: Any, kind: int) -> None:
    broker = wire.UpdateMetadataBroker(id=3, endpoints=(wire.UpdateMetadataEndpoint(port=9, host="h"),), rack="r")
    request = wire.UpdateMetadataRequest(
        controller_id=1, controller_epoch=7, broker_epoch=-1, type=kind, topic_states=topics, live_brokers=(broker,),
        cluster_id="c", metadata_offset=5,
        topic_configs=(wire.TopicOverrides(topic="t", configs=(wire.ConfigPair(key="k", value="v"),)),),
    )  # fmt: skip
    assert encode_order(request) == encode_body(request)


def test_other_requests_are_kios() -> None:
    state = wire.StopReplicaPartitionState(partition_index=1, leader_epoch=-2, delete_partition=True)
    topic = wire.StopReplicaTopicState(topic_name="t", partition_states=(state,), topic_id=UUID(int=7))
    request = wire.StopReplicaRequest(controller_id=1, controller_epoch=2, broker_epoch=3, topic_states=(topic,))
    assert encode_order(request) == encode_body(request)


@pytest.mark.parametrize("leader", [2**31, -(2**31) - 1])
def test_a_number_that_does_not_fit_is_not_written(leader: int) -> None:
    state = wire.UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=0, leader=leader, leader_epoch=0, isr=(), zk_version=0, replicas=()
    )
    topic = wire.UpdateMetadataTopicState(topic_name="t", topic_id=None, partition_states=(state,))
    request = wire.UpdateMetadataRequest(controller_id=1, controller_epoch=7, topic_states=(), live_brokers=())
    with pytest.raises(Exception, match="format"):
        encode_order(replace(request, topic_states=(topic,)))
