"""The readers by hand of what a console asks over and over, held against kio; and that nothing is made twice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v7 import response as offsets
from kio.schema.metadata.v12 import response as metadata
from kio.static.primitive import i32Timedelta

from holdfast.client.disks import _view as disks_view
from holdfast.client.large_answers import LargeAnswers
from holdfast.client.translate import cluster_view, list_offsets_request, listed_offsets
from holdfast.client.versions import LIST_OFFSETS, METADATA, PINNED
from holdfast.client.views import IsolationLevel, OffsetAt, OffsetSpec, TopicView
from holdfast.client.wire import decode_response, encode_body
from holdfast.model.errors import InvalidRequestError, KafkaStorageError
from holdfast.model.types import TopicPartition
from holdfast.protocol.framing import decode_request
from holdfast.protocol.operating import (
    MANAGE_LOG_DIRS,
    ManagedLogDir,
    ManagedMove,
    ManagedReplica,
    ManageLogDirsResponse,
)

NO_TIME = i32Timedelta.parse(timedelta(0))


def topic(name: str, *leaders: int, error: ErrorCode = ErrorCode.none, epoch: int = 0) -> Any:
    return metadata.MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=UUID(int=len(name)) if leaders else None,
        is_internal=name.startswith("__"),
        partitions=tuple(
            metadata.MetadataResponsePartition(
                error_code=ErrorCode.leader_not_available if leader < 0 else ErrorCode.none,
                partition_index=n,
                leader_id=leader,
                leader_epoch=epoch if leader >= 0 else -1,
                replica_nodes=(1, 2, 3),
                isr_nodes=(1, 3) if leader >= 0 else (),
                offline_replicas=(2,),
            )
            for n, leader in reversed(list(enumerate(leaders)))
        ),
    )


def told(*topics: Any, controller: int = 2) -> Any:
    return metadata.MetadataResponse(
        throttle_time=NO_TIME,
        brokers=(
            metadata.MetadataResponseBroker(node_id=1, host="one.example", port=9092, rack="r1"),
            metadata.MetadataResponseBroker(node_id=200_000, host="127.0.0.1", port=65535, rack=None),
        ),
        cluster_id="c",
        controller_id=controller,
        topics=topics,
    )


def by_kio(body: bytes) -> Any:
    return cluster_view(decode_response(METADATA, PINNED[METADATA], memoryview(body)))


def plain(view: TopicView) -> Any:
    """Errors are objects that equal nothing else."""
    of_partition = [
        (p.partition, p.leader, p.leader_epoch, p.replicas, p.isr, p.offline, repr(p.error)) for p in view.partitions
    ]
    return view.name, view.topic_id, view.internal, repr(view.error), of_partition


TOPICS = (
    topic("orders", 1, 3, 1), topic("__consumer_offsets", 3, -1), topic("ünï<&>" * 40, *[1] * 200),
    topic("gone", error=ErrorCode.unknown_topic_or_partition),
)  # fmt: skip


@pytest.mark.parametrize("answer", [told(), told(*TOPICS), told(TOPICS[2], controller=-1)])
def test_metadata_is_read_as_by_kio(answer: Any) -> None:
    body = encode_body(answer)
    expected, found = by_kio(body), LargeAnswers().metadata(body)
    assert (found.cluster_id, found.controller_id, found.brokers) == (
        expected.cluster_id,
        expected.controller_id,
        expected.brokers,
    )
    assert {n: plain(t) for n, t in found.topics.items()} == {n: plain(t) for n, t in expected.topics.items()}


def test_a_topic_that_has_not_changed_is_the_same_object_wherever_it_stands() -> None:
    answers = LargeAnswers()
    before = answers.metadata(encode_body(told(*TOPICS)))
    after = answers.metadata(encode_body(told(topic("new", 1), topic("orders", 1, 3, 3), *reversed(TOPICS[1:]))))
    assert after.topics["orders"].partitions[2].leader == 3
    assert {name for name, view in after.topics.items() if view is before.topics.get(name)} == {
        t.name for t in TOPICS[1:]
    }
    assert plain(after.topics["orders"]) == plain(by_kio(encode_body(told(topic("orders", 1, 3, 3)))).topics["orders"])
    assert "orders" not in answers.metadata(encode_body(told(topic("new", 1)))).topics


def test_offsets_are_asked_of_leaders_and_read_as_by_kio() -> None:
    answers = LargeAnswers()
    view = answers.metadata(encode_body(told(topic("orders", 1, 3, 1, 200_000), topic("pay", 200_000, -1))))
    for spec in (OffsetSpec.LATEST, OffsetSpec.EARLIEST):
        requests = answers.offset_requests(view, spec)
        assert requests.keys() == {1, 200_000}, "broker 3 is not there"
        for leader, tps in {
            1: [("orders", 0), ("orders", 2)],
            200_000: [("orders", 3), ("pay", 0)],
        }.items():
            wanted = dict.fromkeys((TopicPartition(*tp) for tp in tps), spec)
            assert decode_request(LIST_OFFSETS, PINNED[LIST_OFFSETS], memoryview(requests[leader])) == (
                list_offsets_request(wanted, IsolationLevel.READ_UNCOMMITTED)
            )

    def part(index: int, offset: int, error: ErrorCode = ErrorCode.none) -> Any:
        return offsets.ListOffsetsPartitionResponse(
            partition_index=index, error_code=error, timestamp=-1, offset=offset, leader_epoch=7
        )

    answer = offsets.ListOffsetsResponse(
        throttle_time=NO_TIME,
        topics=(
            offsets.ListOffsetsTopicResponse(
                name="orders", partitions=(part(2, 1 << 40), part(0, 5), part(1, -1, ErrorCode.not_leader_or_follower))
            ),
            offsets.ListOffsetsTopicResponse(name="pay", partitions=(part(0, 0), part(1, -1))),
            offsets.ListOffsetsTopicResponse(name="unheard", partitions=(part(0, 3),)),
        ),
    )
    body = encode_body(answer)
    expected = listed_offsets(decode_response(LIST_OFFSETS, PINNED[LIST_OFFSETS], memoryview(body)))
    known = {
        tp: at.offset for tp, at in expected.items() if isinstance(at, OffsetAt) and at.offset is not None
    }  # fmt: skip
    found = answers.offsets(body)
    assert found == {tp: at for tp, at in known.items() if tp.topic != "unheard"}
    again = answers.offsets(body)
    assert all(mine is other for mine, other in zip(found, again, strict=True))


def managed(path: str, *replicas: tuple[str, int, int], state: str = "online", reason: str | None = None) -> Any:
    """Of (topic, partition, size)."""
    return ManagedLogDir(
        path=path,
        directory_id=UUID(int=9),
        state=state,
        reason=reason,
        since_ms=1_700_000_000_000,
        total_bytes=100,
        usable_bytes=-1,
        probe_us=400 if state == "online" else -1,
        cordoned=state != "online",
        replicas=tuple(
            ManagedReplica(topic_name=t, partition_index=p, size=size, lag=-1 if size > 5 else 0, is_future=size == 3)
            for t, p, size in replicas
        ),
        device=-1 if reason else 8,
    )


MOVES = (ManagedMove(topic_name="orders", partition_index=1, source="/a", target="/b", lag=1 << 40, bytes_per_s=1_000),)


def managing(*dirs: Any, moves: Any = MOVES) -> bytes:
    return encode_body(ManageLogDirsResponse(error_code=ErrorCode.none, log_dirs=dirs, moves=moves))


A = managed("/a", ("orders", 0, 1), ("orders", 1, 3), ("x" * 249, 2_000, 9))
B = managed("/b", state="offline", reason="log dir /b: Input/output error")


@pytest.mark.parametrize("body", [managing(), managing(A, B), managing(B, moves=())])
def test_directories_are_read_as_by_kio(body: bytes) -> None:
    expected = disks_view(decode_response(MANAGE_LOG_DIRS, 0, memoryview(body)))
    assert LargeAnswers().disks(1, body) == expected


def test_a_replica_that_has_not_grown_is_the_same_object() -> None:
    answers = LargeAnswers()
    before = answers.disks(1, managing(A, B)).disks[0].replicas
    assert answers.disks(2, managing(A)).disks[0].replicas == before
    assert answers.disks(1, managing(A, B)).disks[0].replicas is before
    grown = managing(managed("/a", ("orders", 0, 2), ("orders", 1, 3), ("x" * 249, 2_000, 9), ("z", 0, 0)))
    after = answers.disks(1, grown).disks[0].replicas
    assert [r.size_bytes for r in after] == [2, 3, 9, 0]
    assert after[0] is not before[0]
    assert after[0].tp is before[0].tp
    assert [after[1] is before[1], after[2] is before[2]] == [True, True]
    fewer = managing(managed("/a", ("orders", 1, 3), ("x" * 249, 2_000, 9)))
    assert answers.disks(1, fewer) == disks_view(decode_response(MANAGE_LOG_DIRS, 0, memoryview(fewer)))


def test_an_error_is_raised() -> None:
    body = encode_body(ManageLogDirsResponse(error_code=ErrorCode.kafka_storage_error, error_message="it is bad"))
    with pytest.raises(KafkaStorageError, match="it is bad"):
        LargeAnswers().disks(1, body)


@pytest.mark.parametrize("what", ["metadata", "offsets", "disks"])
def test_bytes_that_are_no_answer_are_refused(what: str) -> None:
    whole = {"metadata": encode_body(told(*TOPICS)), "disks": managing(A, B), "offsets": b"\0\0\0\0\x05\x07orders"}
    body = whole[what]
    for cut in range(0, len(body), max(1, len(body) // 200)):
        answers = LargeAnswers()
        with pytest.raises(InvalidRequestError):
            _ = answers.disks(1, body[:cut]) if what == "disks" else getattr(answers, what)(body[:cut])
