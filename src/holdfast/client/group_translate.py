"""kio entities of the consumer group APIs, and the consumer protocol inside them <-> the client's values. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct, error
from typing import Any

from holdfast.client.refused import raise_for, refusal
from holdfast.client.translate import none_if_negative
from holdfast.client.views import CommittedOffset
from holdfast.model.types import LeaderEpoch, TopicPartition

_SHORT = Struct(">h")
_INT = Struct(">i")


def assignment_of(data: bytes) -> tuple[TopicPartition, ...]:
    """Partitions in a member's assignment of type ``consumer``; empty for bytes that are something else."""
    if not data:
        return ()
    try:
        at, found = 6, []
        (topics,) = _INT.unpack_from(data, 2)
        for _ in range(topics):
            (size,) = _SHORT.unpack_from(data, at)
            if size < 0:
                return ()
            name = data[at + 2 : at + 2 + size].decode()
            at += 2 + size
            (count,) = _INT.unpack_from(data, at)
            at += 4
            if not 0 <= count * 4 <= len(data) - at:  # a negative one would lead back, again and again
                return ()
            found += [TopicPartition(name, *_INT.unpack_from(data, at + 4 * i)) for i in range(count)]
            at += 4 * count
    except (error, UnicodeDecodeError):
        return ()
    return tuple(sorted(found))


def encode_assignment(tps: Iterable[TopicPartition]) -> bytes:
    """ConsumerProtocolAssignment version 0."""
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(tps):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    out = [b"\0\0", _INT.pack(len(by_topic))]
    for topic, partitions in by_topic.items():
        name = topic.encode()
        out += [_SHORT.pack(len(name)), name, _INT.pack(len(partitions)), *map(_INT.pack, partitions)]
    return b"".join((*out, _INT.pack(-1)))


def encode_subscription(topics: Sequence[str]) -> bytes:
    """ConsumerProtocolSubscription version 0."""
    names = [topic.encode() for topic in topics]
    return b"".join((b"\0\0", _INT.pack(len(names)), *(_SHORT.pack(len(n)) + n for n in names), _INT.pack(-1)))


def assign_ranges(
    members: Mapping[str, frozenset[str]], partitions: Mapping[str, int]
) -> dict[str, tuple[TopicPartition, ...]]:
    """Kafka's ``range``: per topic, members in order of id get neighbouring partitions, the first ones one more."""
    found: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for topic, count in sorted(partitions.items()):
        takers = sorted(member for member, topics in members.items() if topic in topics)
        if not takers:
            continue
        each, more = divmod(count, len(takers))
        start = 0
        for i, member in enumerate(takers):
            size = each + (i < more)
            found[member] += [TopicPartition(topic, p) for p in range(start, start + size)]
            start += size
    return {member: tuple(tps) for member, tps in found.items()}


def offset_fetch_request(group_id: str, tps: Iterable[TopicPartition] | None) -> Any:
    """OffsetFetch v8 for one group."""
    from kio.schema.offset_fetch.v8 import request as m
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32

    topics = None
    if tps is not None:
        by_topic: dict[str, list[i32]] = {}
        for tp in tps:
            by_topic.setdefault(tp.topic, []).append(i32(tp.partition))
        topics = tuple(
            m.OffsetFetchRequestTopics(name=TopicName(t), partition_indexes=tuple(ps)) for t, ps in by_topic.items()
        )
    group = m.OffsetFetchRequestGroup(group_id=GroupId(group_id), topics=topics)
    return m.OffsetFetchRequest(groups=(group,), require_stable=True)


def committed_offsets(answer: Any) -> dict[TopicPartition, CommittedOffset]:
    """Of an OffsetFetch v8 answer; raises the group's error or a partition's."""
    found = {}
    for group in answer.groups:
        raise_for(group.error_code.value, None, f"offsets of group {group.group_id!r}")
        for topic in group.topics:
            for p in topic.partitions:
                tp = TopicPartition(str(topic.name), int(p.partition_index))
                raise_for(p.error_code.value, None, f"offset of group {group.group_id!r} in {tp}")
                if p.committed_offset >= 0:
                    found[tp] = CommittedOffset(
                        offset=int(p.committed_offset),
                        leader_epoch=none_if_negative(p.committed_leader_epoch),
                        metadata=p.metadata or "",
                    )
    return found


def offset_commit_request(
    group_id: str,
    generation: int,
    member_id: str,
    offsets: Mapping[TopicPartition, int],
    epochs: Mapping[TopicPartition, LeaderEpoch] | None = None,
) -> Any:
    """OffsetCommit v8. ``epochs``: leader epochs in which the offsets were seen, where they are known."""
    epochs = epochs or {}
    from kio.schema.offset_commit.v8 import request as m
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32, i64

    by_topic: dict[str, list[m.OffsetCommitRequestPartition]] = {}
    for tp, offset in offsets.items():
        by_topic.setdefault(tp.topic, []).append(
            m.OffsetCommitRequestPartition(
                partition_index=i32(tp.partition),
                committed_offset=i64(offset),
                committed_leader_epoch=i32(epochs.get(tp, -1)),
                committed_metadata="",
            )
        )
    return m.OffsetCommitRequest(
        group_id=GroupId(group_id),
        generation_id_or_member_epoch=i32(generation),
        member_id=member_id,
        topics=tuple(m.OffsetCommitRequestTopic(name=TopicName(t), partitions=tuple(ps)) for t, ps in by_topic.items()),
    )


def raise_commit_errors(answer: Any) -> None:
    """The first error of an OffsetCommit answer."""
    for topic in answer.topics:
        for p in topic.partitions:
            failed = refusal(p.error_code.value, None, f"commit of {topic.name}-{p.partition_index}")
            if failed is not None:
                raise failed
