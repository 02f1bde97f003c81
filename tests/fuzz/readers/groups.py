"""Readers of consumer groups: records of __consumer_offsets, what members put into their metadata, the whole log."""

from typing import Any

from holdfast.model.errors import CorruptRecordError, HoldfastError
from tests.fuzz import samples
from tests.fuzz.fixups import Fixup
from tests.fuzz.reader import Reader, Run


def _make_records() -> Run:
    """The first byte chooses: key, value of an offset, value of a group, a member's subscription, its assignment. The
    last two are somebody else's bytes: what is senseless is ignored."""
    from holdfast.client.group_translate import assignment_of
    from holdfast.groups.consumer_protocol import subscribed_topics
    from holdfast.groups.offset_records import decode_group, decode_key, decode_offset, encode_group, encode_offset

    def offset(data: bytes) -> Any:
        committed = decode_offset(data)
        if committed is None:
            return None
        assert decode_offset(encode_offset(committed)) is not None
        return committed.topic_id is None

    def group(data: bytes) -> Any:
        found = decode_group(data)
        if found is None:
            return None
        assert decode_group(encode_group(found)) is not None
        return len(found.members) & 7

    def topics(data: bytes) -> Any:
        found = subscribed_topics(data)
        return None if found is None else len(found) & 7

    def assigned(data: bytes) -> Any:
        return len(assignment_of(data)) & 7

    kinds: tuple[Any, ...] = (lambda data: type(decode_key(data)).__name__, offset, group, topics, assigned)

    def run(data: bytes) -> Any:
        if data:
            kind = data[0] % 5
            return kind, kinds[kind](data[1:])
        return None

    return run


def _records_corpus() -> list[bytes]:
    from holdfast.client.group_translate import encode_assignment, encode_subscription
    from holdfast.groups.offset_records import GroupRecord, MemberRecord, encode_group, encode_offset
    from holdfast.groups.types import OffsetAndMetadata
    from holdfast.model.types import TopicPartition
    from holdfast.records.record import decode_batches

    found = set()
    for file, data in samples.recorded_files("__consumer_offsets-0").items():
        if file.endswith(".log"):
            for record in decode_batches(data):
                assert record.key is not None
                found.add(b"\0" + record.key)
                if record.value is not None:
                    found.add((b"\2" if record.key[1] == 2 else b"\1") + record.value)
    member = MemberRecord(
        member_id="m-1",
        instance_id="i",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=1000,
        session_timeout_ms=500,
        subscription=encode_subscription(["t1", "t2"]),
        assignment=encode_assignment([TopicPartition("t1", 0)]),
    )
    found.add(b"\2" + encode_group(GroupRecord(protocol_type="consumer", generation=3, members=(member, member))))
    old = OffsetAndMetadata(offset=3, leader_epoch=None, commit_ms=5, metadata="x", expire_ms=9)
    found.add(b"\1" + encode_offset(old))
    found.add(b"\3" + encode_subscription(["t1", "t2", ""]))
    found.add(b"\4" + encode_assignment([TopicPartition("t1", 0), TopicPartition("t1", 2), TopicPartition("t2", 5)]))
    for first in (b"\0\0", b"\0\1", b"\0\2", b"\0\4"):  # other versions of the same values
        found |= {item[:1] + first + item[3:] for item in list(found) if item[0] in (1, 2)}
    return sorted(item for item in found if len(item) < 400)


def _make_log() -> Run:
    """Batches of __consumer_offsets are replayed to groups, or refused with a typed error."""
    from holdfast.groups.replay import Replay

    def run(data: bytes) -> Any:
        replay = Replay()
        replay.feed(data)
        return len(replay.groups()) & 7, replay.skipped & 3

    return run


def _log_corpus() -> list[bytes]:
    from holdfast.groups.offset_records import encode_group_key, encode_offset_key
    from holdfast.model.types import TopicPartition
    from holdfast.records.batch import split
    from holdfast.records.record import BatchBuilder

    data = next(d for f, d in samples.recorded_files("__consumer_offsets-0").items() if f.endswith(".log"))
    batches = [bytes(batch) for batch in split(data)]
    found = [*batches, *(b"".join(batches[i : i + 3]) for i in range(len(batches) - 2))]
    values = {item[1:]: item[0] for item in _records_corpus() if item[0] in (1, 2)}
    for producer in (-1, 7):
        builder = BatchBuilder(
            producer_id=producer, producer_epoch=0, base_sequence=0, transactional=producer > 0, base_offset=0
        )
        for value, kind in list(values.items())[:4]:
            key = encode_group_key("g") if kind == 2 else encode_offset_key("g", TopicPartition("t", 1))
            builder.append(key, value, 5)
        builder.append(encode_offset_key("g", TopicPartition("t", 2)), None, 5)
        open_batch = bytes(builder.build())
        found.append(open_batch)
        if producer > 0:
            for kind in (b"\0\0\0\1", b"\0\0\0\0"):
                following = builder._last_delta + 1
                marker = BatchBuilder(
                    producer_id=7, producer_epoch=0, base_offset=following, transactional=True, control=True
                )
                marker.append(kind, b"\0\0\0\0\0\0", 5)
                found.append(open_batch + bytes(marker.build()))
    return [item for item in found if len(item) <= 700]


READERS = (
    Reader(
        name="group-records",
        reads="keys and values of __consumer_offsets, consumers' subscriptions and assignments",
        make=_make_records,
        corpus=_records_corpus,
        refusals=(CorruptRecordError,),
        kinds=5,
        prefix=1,
        tokens=(b"\0\0", b"\0\1", b"\0\2", b"\0\3", b"\0\4", b"\xff\xff", b"\0\2t1"),
        max_size=400,
    ),
    Reader(
        name="group-log",
        reads="the log of __consumer_offsets, replayed to groups",
        make=_make_log,
        corpus=_log_corpus,
        refusals=(HoldfastError,),
        fixup=Fixup.BATCHES,
        max_size=400,
        memory_base=1 << 20,
        headroom=256 << 20,
    ),
)
