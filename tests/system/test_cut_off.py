"""A leader that the others have given up and that does not know it: what it may still say."""

from __future__ import annotations

import datetime
import io
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.fetch.v4.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v4.response import FetchResponse
from kio.schema.find_coordinator.v2.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v2.response import FindCoordinatorResponse
from kio.schema.list_offsets.v5.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v5.response import ListOffsetsResponse
from kio.schema.offset_fetch.v5.request import OffsetFetchRequest, OffsetFetchRequestTopic
from kio.schema.offset_fetch.v5.response import OffsetFetchResponse
from kio.schema.offset_for_leader_epoch.v3.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.offset_for_leader_epoch.v3.response import OffsetForLeaderEpochResponse
from kio.schema.types import BrokerId, GroupId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i8, i32, i32Timedelta, i64

from holdfast.coordinators.partitioning import partition_for
from holdfast.model.internal_topics import OFFSETS_TOPIC
from holdfast.testing import ClusterView, wait_for
from tests.chaos.brokers import Brokers
from tests.chaos.producers import EAGER, QUIET
from tests.chaos.proxies import Proxies

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("brokers of its own, by proxies")]

TIMEOUT_S = 60
SETTINGS = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}
NOT_LEADER, OUT_OF_RANGE, NOT_COORDINATOR = 6, 1, 16


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    """Three, behind proxies that can be cut."""
    with closing(Proxies([1, 2, 3])) as network:
        started = Brokers(tmp_path, network, count=3, settings=SETTINGS)
        try:
            for broker in started.ids:
                started.start(broker)
            wait_for(lambda: is_complete(started), "three brokers that know each other", timeout_s=TIMEOUT_S)
            yield started
        finally:
            started.kill_all()


def is_complete(brokers: Brokers) -> bool:
    views = [brokers.view(broker, []) for broker in brokers.ids]
    return all(view is not None and len(view.brokers) == len(views) for view in views)


def answer_of(address: tuple[str, int], api: int, request: Any, response: type[Any]) -> Any:
    """What this broker answers of the only partition."""
    body = io.BytesIO()
    body.write(struct.pack(">hhih", api, request.__version__, 1, 4) + b"test")
    entity_writer(type(request))(body, request)
    with socket.create_connection(address, TIMEOUT_S) as connection, connection.makefile("rb") as file:
        connection.sendall(struct.pack(">i", len(body.getvalue())) + body.getvalue())
        (size,) = struct.unpack(">i", file.read(4))
        answer, _ = entity_reader(response)(file.read(size), 4)
    [topic] = answer.responses if isinstance(answer, FetchResponse) else answer.topics
    return topic.partitions[0]


def end_of(address: tuple[str, int], topic: str, partition: int) -> tuple[int, int]:
    """What this broker says: error code and end of the partition."""
    asked = ListOffsetsPartition(partition_index=i32(partition), current_leader_epoch=i32(-1), timestamp=i64(-1))
    topics = (ListOffsetsTopic(name=TopicName(topic), partitions=(asked,)),)
    request = ListOffsetsRequest(replica_id=BrokerId(-1), isolation_level=i8(0), topics=topics)
    answer = answer_of(address, 2, request, ListOffsetsResponse)
    return int(answer.error_code), int(answer.offset)


def end_of_epoch(address: tuple[str, int], topic: str, partition: int, epoch: int) -> tuple[int, int]:
    """What this broker says: error code, and where the epoch ends; -1 if it never was."""
    asked = OffsetForLeaderPartition(partition=i32(partition), current_leader_epoch=i32(-1), leader_epoch=i32(epoch))
    topics = (OffsetForLeaderTopic(topic=TopicName(topic), partitions=(asked,)),)
    request = OffsetForLeaderEpochRequest(replica_id=BrokerId(-1), topics=topics)
    answer = answer_of(address, 23, request, OffsetForLeaderEpochResponse)
    return int(answer.error_code), int(answer.end_offset)


def fetched(address: tuple[str, int], topic: str, partition: int, offset: int) -> int:
    """What this broker says to a consumer that goes on at an offset: the error code."""
    asked = FetchPartition(partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(1000))
    request = FetchRequest(
        max_wait=i32Timedelta.parse(datetime.timedelta()),
        min_bytes=i32(0),
        topics=(FetchTopic(topic=TopicName(topic), partitions=(asked,)),),
    )
    answer = answer_of(address, 1, request, FetchResponse)
    return int(answer.error_code)


def write(brokers: Brokers, by: tuple[int, ...], topic: str, partition: int) -> list[int]:
    """Offsets of five records that all in-sync replicas have, written by way of these brokers."""
    servers = ",".join("{}:{}".format(*brokers.network.advertised(broker)) for broker in by)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all", **EAGER, **QUIET})
    acked: list[int] = []
    for _ in range(5):
        producer.produce(
            topic, b"x", partition=partition, on_delivery=lambda _, message: acked.append(message.offset())
        )
    assert producer.flush(TIMEOUT_S) == 0
    return acked


def in_sync(brokers: Brokers, topic: str) -> ClusterView:
    def full() -> ClusterView | None:
        views = [view for broker in brokers.ids if (view := brokers.view(broker, [topic])) is not None]
        is_full = len(views) == 3 and all(view.partitions and not view.under_replicated for view in views)
        return views[0] if is_full else None

    found = wait_for(full, "all replicas to be in sync", timeout_s=TIMEOUT_S)
    assert found is not None
    return found


def led(brokers: Brokers, topic: str) -> tuple[int, int, int, tuple[int, ...]]:
    """Make the topic: a partition whose leader is not the controller, its leader, the controller, and the other brokers
    than that leader."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, **QUIET})
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(TIMEOUT_S)
    view, controller = in_sync(brokers, topic), brokers.controller()
    assert controller is not None
    partition, old = next((p, seen.leader) for (_, p), seen in view.partitions.items() if seen.leader != controller)
    assert old is not None
    return partition, old, controller, tuple(broker for broker in brokers.ids if broker != old)


def give_up(brokers: Brokers, topic: str, partition: int, controller: int, old: int) -> None:
    """The leader hears its controller no more, and another one leads."""
    others = [broker for broker in brokers.ids if broker != old]

    def has_next_leader() -> bool:
        views = [brokers.view(broker, [topic]) for broker in others]
        return all(view is not None and view.partitions[topic, partition].leader in others for view in views)

    brokers.network.cut(controller, old)
    wait_for(has_next_leader, "the next leader", timeout_s=TIMEOUT_S)


def test_H_13_a_leader_that_was_given_up_tells_no_old_end(brokers: Brokers, topic: str) -> None:
    """It cannot hear the controller; the next leader has acknowledged more than it knows."""
    partition, old, controller, others = led(brokers, topic)
    assert write(brokers, brokers.ids, topic, partition) == [0, 1, 2, 3, 4]

    def tells(broker: int, end: int) -> None:
        where = brokers.network.advertised(broker)
        wait_for(lambda: end_of(where, topic, partition) == (0, end), f"the end {end}", timeout_s=TIMEOUT_S)

    tells(old, 5)

    give_up(brokers, topic, partition, controller, old)
    assert write(brokers, others, topic, partition) == [5, 6, 7, 8, 9]
    assert end_of(brokers.network.advertised(old), topic, partition) == (NOT_LEADER, -1)
    brokers.network.heal(controller, old)
    answers = set()

    def is_back() -> bool:
        """The controller counts it as alive and has told it of the next leader."""
        answers.add(end_of(brokers.network.advertised(old), topic, partition))
        view = brokers.view(old, [topic])
        seen = None if view is None else view.partitions[topic, partition]
        return seen is not None and old in seen.isr and seen.leader in others

    wait_for(is_back, "the return of the old leader", timeout_s=TIMEOUT_S, interval_s=0.002)
    again = in_sync(brokers, topic).partitions[topic, partition].leader
    assert again is not None
    tells(again, 10)
    assert answers <= {(NOT_LEADER, -1), (0, 10)}, "it was counted as alive before it knew what was decided without it"


def test_H_13_a_leader_that_was_given_up_does_not_say_that_an_offset_is_out_of_range(
    brokers: Brokers, topic: str
) -> None:
    """A consumer whose group committed what the next leader has would begin again, by its auto.offset.reset."""
    partition, old, controller, others = led(brokers, topic)
    where = brokers.network.advertised(old)
    assert fetched(where, topic, partition, 5) == OUT_OF_RANGE, "it leads, and nobody has written so far"

    give_up(brokers, topic, partition, controller, old)
    assert write(brokers, others, topic, partition) == [0, 1, 2, 3, 4]
    assert fetched(where, topic, partition, 5) == NOT_LEADER
    brokers.network.heal(controller, old)


def test_H_13_a_leader_that_was_given_up_does_not_say_that_a_later_epoch_never_was(
    brokers: Brokers, topic: str
) -> None:
    """A consumer that has read what the next leader wrote would take that for a log that was cut, and go back."""
    partition, old, controller, others = led(brokers, topic)
    where = brokers.network.advertised(old)
    assert end_of_epoch(where, topic, partition, 1000) == (0, -1), "it leads, and nobody has written in that epoch"

    give_up(brokers, topic, partition, controller, old)
    assert write(brokers, others, topic, partition) == [0, 1, 2, 3, 4]
    assert end_of_epoch(where, topic, partition, 1000) == (NOT_LEADER, -1)
    brokers.network.heal(controller, old)


def committed(address: tuple[str, int], group: str, topic: str) -> tuple[int, int]:
    """What this broker says of partition 0: error code and offset."""
    asked = OffsetFetchRequestTopic(name=TopicName(topic), partition_indexes=(i32(0),))
    request = OffsetFetchRequest(group_id=GroupId(group), topics=(asked,))
    body = io.BytesIO()
    body.write(struct.pack(">hhih", 9, request.__version__, 1, 4) + b"test")
    entity_writer(OffsetFetchRequest)(body, request)
    with socket.create_connection(address, TIMEOUT_S) as connection, connection.makefile("rb") as file:
        connection.sendall(struct.pack(">i", len(body.getvalue())) + body.getvalue())
        (size,) = struct.unpack(">i", file.read(4))
        answer, _ = entity_reader(OffsetFetchResponse)(file.read(size), 4)
    if answer.error_code:
        return int(answer.error_code), -1
    [topic_answer] = answer.topics
    return 0, int(topic_answer.partitions[0].committed_offset)


def coordinator(address: tuple[str, int], group: str) -> int | None:
    """The broker that this one names; None where it ends the connection instead."""
    request = FindCoordinatorRequest(key=group, key_type=i8(0))
    body = io.BytesIO()
    body.write(struct.pack(">hhih", 10, request.__version__, 1, 4) + b"test")
    entity_writer(FindCoordinatorRequest)(body, request)
    with socket.create_connection(address, TIMEOUT_S) as connection, connection.makefile("rb") as file:
        connection.sendall(struct.pack(">i", len(body.getvalue())) + body.getvalue())
        size = file.read(4)
        if not size:
            return None
        answer, _ = entity_reader(FindCoordinatorResponse)(file.read(struct.unpack(">i", size)[0]), 4)
    return int(answer.node_id)


def commit(brokers: Brokers, by: tuple[int, ...], group: str, topic: str, offset: int) -> None:
    servers = ",".join("{}:{}".format(*brokers.network.advertised(broker)) for broker in by)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group, **EAGER, **QUIET})
    at = confluent_kafka.TopicPartition(topic, 0, offset)
    try:
        wait_for(lambda: _is_committed(consumer, at), f"{group} to commit {offset}", timeout_s=TIMEOUT_S)
    finally:
        consumer.close()


def _is_committed(consumer: confluent_kafka.Consumer, at: confluent_kafka.TopicPartition) -> bool:
    try:
        consumer.commit(offsets=[at], asynchronous=False)
    except confluent_kafka.KafkaException:
        return False
    return True


def test_H_13_a_coordinator_that_was_given_up_tells_no_old_commit(brokers: Brokers, topic: str) -> None:
    """A consumer that joins there would read again what its group has behind it. One that only cannot reach its
    controller, and that the others still follow, goes on."""
    _, _, controller, _ = led(brokers, topic)
    commit(brokers, brokers.ids, "first", topic, 1)
    count = len(in_sync(brokers, OFFSETS_TOPIC).partitions)
    view = in_sync(brokers, OFFSETS_TOPIC).partitions
    group, partition, old = next(
        (name, number, leader)
        for name in (f"group-{n}" for n in range(100))
        if (leader := view[OFFSETS_TOPIC, (number := partition_for(name, count))].leader) not in (controller, None)
    )
    assert old is not None
    where = brokers.network.advertised(old)
    commit(brokers, brokers.ids, group, topic, 17)
    assert (committed(where, group, topic), coordinator(where, group)) == ((0, 17), old)

    give_up(brokers, OFFSETS_TOPIC, partition, controller, old)
    assert coordinator(where, group) is None, "a client that is told of it comes here again and again"
    commit(brokers, tuple(broker for broker in brokers.ids if broker != old), group, topic, 28)
    assert committed(where, group, topic) == (NOT_COORDINATOR, -1)
    brokers.network.heal(controller, old)
