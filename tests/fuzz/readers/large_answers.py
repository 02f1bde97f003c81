"""The client's readers by hand of what a console asks again and again: what kio reads they read as kio does, whatever
they were told before; anything else is refused.
"""

from typing import Any

from tests.fuzz import samples
from tests.fuzz.reader import Reader, Run

_APIS = ((3, 12), (2, 7), (18_502, 0))
"""Metadata, ListOffsets, ManageLogDirs; the first byte of an input is an index."""
_TOPICS = ("a", "ab", "orders")


def _make() -> Run:
    from kio.schema.errors import ErrorCode

    from holdfast.client.disks import _view
    from holdfast.client.large_answers import LargeAnswers
    from holdfast.client.translate import cluster_view, listed_offsets
    from holdfast.client.views import OffsetAt
    from holdfast.client.wire import decode_response
    from holdfast.model.errors import HoldfastError, InvalidRequestError
    from holdfast.protocol.error_codes import error_of

    told = _told()

    def by_kio(kind: int, body: bytes) -> Any:
        try:
            return decode_response(*_APIS[kind], memoryview(body))
        except HoldfastError:
            return None

    def run(data: bytes) -> Any:
        if not data:
            raise InvalidRequestError("no kind")
        kind, body = data[0] % len(_APIS), data[1:]
        answers, other = LargeAnswers(), by_kio(kind, body)
        answers.metadata(told)
        if kind == 0:
            found = answers.metadata(body)
            again = answers.metadata(body)
            assert all(again.topics[name] is topic for name, topic in found.topics.items())
            if other is not None:
                assert repr(found) == repr(cluster_view(other))
            return len(found.topics), len(found.brokers)
        if kind == 1:
            offsets = answers.offsets(body)
            if other is not None:
                known = {tp: at.offset for tp, at in listed_offsets(other).items() if isinstance(at, OffsetAt)}
                for tp, offset in offsets.items():
                    assert known.get(tp, offset) == offset or _twice(other, tp)
            return (len(offsets),)
        if other is not None and other.error_code is not ErrorCode.none:
            assert error_of(other.error_code.value) is not None
        disks = answers.disks(1, body)
        assert answers.disks(1, body) == disks
        if other is not None:
            assert disks == _view(other)
        return len(disks.disks), len(disks.moves)

    return run


def _twice(answer: Any, tp: Any) -> bool:
    """An answer that tells of a partition more than once: which counts is nobody's matter."""
    told = [p for t in answer.topics if t.name == tp.topic for p in t.partitions if p.partition_index == tp.partition]
    return len(told) > 1


def _told() -> bytes:
    """What the metadata was before."""
    from kio.schema.errors import ErrorCode
    from kio.schema.metadata.v12 import response as m

    from holdfast.client.wire import encode_body

    answer = samples.message(m.MetadataResponse)
    topics = tuple(
        m.MetadataResponseTopic(
            error_code=ErrorCode.none,
            name=name,
            topic_id=None,
            partitions=tuple(
                m.MetadataResponsePartition(
                    error_code=ErrorCode.none, partition_index=n, leader_id=1, replica_nodes=(1, 2), isr_nodes=(1,)
                )
                for n in range(3)
            ),
        )
        for name in _TOPICS
    )
    return encode_body(type(answer)(throttle_time=answer.throttle_time, brokers=answer.brokers, topics=topics))


def _corpus() -> list[bytes]:
    from holdfast.client.wire import encode_body
    from holdfast.protocol.apis import response_type

    found = [b"\0" + _told(), b"\1" + _listed()]
    for kind, (key, version) in enumerate(_APIS):
        found += [bytes((kind,)) + encode_body(samples.message(response_type(key, version), v)) for v in range(3)]
    return found


def _listed() -> bytes:
    from kio.schema.errors import ErrorCode
    from kio.schema.list_offsets.v7 import response as m

    from holdfast.client.wire import encode_body

    answer = samples.message(m.ListOffsetsResponse)
    topics = tuple(
        m.ListOffsetsTopicResponse(
            name=name,
            partitions=tuple(
                m.ListOffsetsPartitionResponse(partition_index=n, error_code=ErrorCode.none, offset=100 + n)
                for n in range(3)
            ),
        )
        for name in _TOPICS
    )
    return encode_body(m.ListOffsetsResponse(throttle_time=answer.throttle_time, topics=topics))


READERS = (
    Reader(
        name="large-answers",
        reads="Metadata, ListOffsets and ManageLogDirs as a console reads them",
        make=_make,
        corpus=_corpus,
        kinds=len(_APIS),
        prefix=1,
        tokens=tuple(bytes((len(name) + 1,)) + name.encode() for name in _TOPICS),
        max_size=600,
        memory_base=1 << 20,
    ),
)
