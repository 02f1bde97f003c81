"""Records of ``__consumer_offsets`` against what Apache Kafka 4.3.0 wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast.coordinators.journal import Entry, Journal
from holdfast.groups.offset_records import (
    GroupKey,
    GroupRecord,
    MemberRecord,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from holdfast.groups.replay import Replay
from holdfast.groups.states import GroupState
from holdfast.groups.types import OffsetAndMetadata
from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import TopicPartition
from holdfast.records.batch import CRC_START, parse_header, split
from holdfast.records.record import Record, decode_batch, encode_batch

GOLDEN = Path(__file__).parents[2] / "golden/disk/4.3.0/__consumer_offsets-0.json"
SEGMENT = bytes.fromhex(
    json.loads(GOLDEN.read_text())["files_after_clean_shutdown"]["d1/__consumer_offsets-0/00000000000000000000.log"][
        "hex"
    ]
)
BATCHES = [bytes(b) for b in split(SEGMENT)]
PLAIN = TopicPartition("plain", 0)
TOPIC_ID = UUID("89fac5d2-a786-4d0a-af71-fe59ef19489d")
MEMBER = "golden-1821384d-0547-4727-8734-db0063890f21"
SUBSCRIPTION = bytes.fromhex("00010000000100 05706c61696e000000000000".replace(" ", ""))
ASSIGNMENT = bytes.fromhex("0001000000010005706c61696e0000000100000000ffffffff")


def commit(commit_ms: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(7, 0, "note", commit_ms, None, TOPIC_ID)


GENERATION_1 = GroupRecord(
    protocol_type="consumer",
    generation=1,
    protocol_name="range",
    leader=MEMBER,
    state_ms=1795229102556,
    members=(
        MemberRecord(
            member_id=MEMBER,
            client_id="golden",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=5000,
            session_timeout_ms=30000,
            subscription=SUBSCRIPTION,
            assignment=ASSIGNMENT,
        ),
    ),
)
WRITTEN: list[tuple[int, int, list[Entry]]] = [
    (0, 1795229102529, [Entry(encode_offset_key("simple", PLAIN), encode_offset(commit(1795229102524)))]),
    (
        1,
        1795229102548,
        [
            Entry(
                encode_group_key("classic"),
                encode_group(GroupRecord(protocol_type="", generation=0, state_ms=1795229102543)),
            )
        ],
    ),
    (2, 1795229102564, [Entry(encode_group_key("classic"), encode_group(GENERATION_1))]),
    (3, 1795229102567, [Entry(encode_offset_key("classic", PLAIN), encode_offset(commit(1795229102567)))]),
    (
        5,
        1795229102620,
        [
            Entry(
                encode_group_key("classic"),
                encode_group(GroupRecord(protocol_type="consumer", generation=2, state_ms=1795229102619)),
            )
        ],
    ),
    (
        6,
        1795229102630,
        [Entry(encode_offset_key("classic", PLAIN), None), Entry(encode_group_key("classic"), None)],
    ),
]


class OneBatch:
    def __init__(self) -> None:
        self.batches: list[bytes] = []

    def append(self, partition: int, batch: bytearray, done: Any) -> None:
        self.batches.append(bytes(batch))
        done(None)


@pytest.mark.parametrize(("number", "now_ms", "entries"), WRITTEN, ids=[str(n) for n, _, _ in WRITTEN])
def test_batches_are_kafkas_byte_for_byte(number: int, now_ms: int, entries: list[Entry]) -> None:
    log = OneBatch()
    Journal(log, 0, 1 << 20).write(entries, now_ms, lambda _outcome: None)
    # Base offset and leader epoch are the log's; the length and all from the attributes on are ours.
    assert log.batches[0][8:12] == BATCHES[number][8:12]
    assert log.batches[0][CRC_START:] == BATCHES[number][CRC_START:]
    assert parse_header(log.batches[0]).crc == parse_header(BATCHES[number]).crc


def test_every_record_reads_back_as_it_was_written() -> None:
    for number, _, entries in WRITTEN:
        for entry, record in zip(entries, decode_batch(BATCHES[number]), strict=True):
            assert record.key is not None
            key = decode_key(record.key)
            if record.value is None:
                assert entry.value is None
            elif isinstance(key, OffsetKey):
                committed = decode_offset(record.value)
                assert committed is not None and encode_offset(committed) == entry.value
            else:
                group = decode_group(record.value)
                assert isinstance(key, GroupKey) and group is not None and encode_group(group) == entry.value


def test_replay_of_a_recorded_segment_step_by_step() -> None:
    replay = Replay()
    for batch in BATCHES[:4]:
        replay.feed(batch)
    classic = replay.groups()["classic"]
    assert (classic.state, classic.generation, classic.leader) == (GroupState.STABLE, 1, MEMBER)
    assert classic.members[MEMBER].assignment == ASSIGNMENT
    assert classic.subscribes_to("plain")
    replay.feed(BATCHES[4])  # the group of KIP-848
    assert replay.skipped == 5
    replay.feed(BATCHES[5])
    assert replay.groups()["classic"].state is GroupState.EMPTY
    replay.feed(BATCHES[6])
    groups = replay.groups()
    assert list(groups) == ["simple"]
    assert groups["simple"].offsets == {PLAIN: commit(1795229102524)}
    assert groups["simple"].protocol_type is None


def test_replay_ends_at_a_batch_with_a_bad_crc() -> None:
    broken = bytearray(SEGMENT)
    broken[CRC_START + 3] ^= 1
    with pytest.raises(CorruptRecordError, match="offset 0"):
        Replay().feed(broken)


def test_replay_of_a_transaction_waits_for_its_marker() -> None:
    def offsets(offset: int, producer_id: int) -> bytes:
        value = encode_offset(OffsetAndMetadata(offset, None, "", 1))
        record = Record(0, 1, encode_offset_key("g", TopicPartition("t", offset)), value)
        return bytes(
            encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        )

    def marker(kind: int, producer_id: int) -> bytes:
        record = Record(0, 1, bytes((0, 0, 0, kind)), bytes(6))
        return bytes(
            encode_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)
        )

    written = offsets(1, 100) + offsets(2, 200) + offsets(3, 300)
    replay = Replay()
    replay.feed(written)
    group = replay.groups()["g"]
    assert group.offsets == {}
    assert list(group.in_transactions) == [TopicPartition("t", i) for i in (1, 2, 3)]
    replay = Replay()
    replay.feed(written + marker(1, 100) + marker(0, 200))
    group = replay.groups()["g"]
    assert list(group.offsets) == [TopicPartition("t", 1)]
    assert list(group.in_transactions) == [TopicPartition("t", 3)]


def test_offsets_of_every_version_are_read() -> None:
    number, text = (5).to_bytes(8, "big"), b"\x00\x02hi"
    time, end = (9).to_bytes(8, "big"), (99).to_bytes(8, "big")
    assert decode_offset(b"\0\0" + number + text + time) == OffsetAndMetadata(5, None, "hi", 9)
    assert decode_offset(b"\0\1" + number + text + time + end) == OffsetAndMetadata(5, None, "hi", 9, 99)
    assert decode_offset(b"\0\2" + number + text + time) == OffsetAndMetadata(5, None, "hi", 9)
    assert decode_offset(b"\0\3" + number + b"\0\0\0\4" + text + time) == OffsetAndMetadata(5, 4, "hi", 9)
    assert decode_offset(b"\0\5" + number) is None
    assert decode_offset(encode_offset(OffsetAndMetadata(5, 4, "hi", 9))) == OffsetAndMetadata(5, 4, "hi", 9)
    with_end = OffsetAndMetadata(5, None, "hi", 9, 99)
    assert decode_offset(encode_offset(with_end)) == with_end


def test_groups_of_every_version_are_read() -> None:
    def text(value: str) -> bytes:
        return len(value).to_bytes(2, "big") + value.encode()

    head = text("consumer") + b"\0\0\0\7" + text("range") + text("m")
    member = text("m") + text("c") + text("/h")
    timeouts, rest = b"\0\0\0\2\0\0\0\1", b"\0\0\0\1S\0\0\0\1A"
    v0 = decode_group(b"\0\0" + head + b"\0\0\0\1" + member + timeouts[4:] + rest)
    v1 = decode_group(b"\0\1" + head + b"\0\0\0\1" + member + timeouts + rest)
    v2 = decode_group(b"\0\2" + head + bytes(7) + b"\5" + b"\0\0\0\1" + member + timeouts + rest)
    assert v0 is not None and v1 is not None and v2 is not None
    assert v0.state_ms is v1.state_ms is None and v2.state_ms == 5
    assert v0.members[0].rebalance_timeout_ms == v0.members[0].session_timeout_ms == 1
    assert v1.members == v2.members and v1.members[0].rebalance_timeout_ms == 2
    compact = b"\0\4\x09consumer\0\0\0\7\x06range\x02m" + bytes(7) + b"\5\2\x02m\0\x02c\x03/h" + timeouts
    v4 = decode_group(compact + b"\x02S\x02A\0\1\0\1x")
    assert v4 == v2
    assert decode_group(b"\0\5") is None


def test_record_types_of_others_are_passed_over_and_nonsense_is_corrupt() -> None:
    assert decode_key(b"\0\3\0\1g") is None
    for raw in (b"", b"\0", b"\0\1\0\5abc", b"\0\2\0\1\xff"):
        with pytest.raises(CorruptRecordError):
            decode_key(raw)
    bad_topic_id = bytes.fromhex("0004") + bytes(12) + b"\1" + bytes(8) + b"\1\0\2ab"
    with pytest.raises(CorruptRecordError, match="2 bytes"):
        decode_offset(bad_topic_id)


def test_long_metadata_has_a_long_length() -> None:
    committed = OffsetAndMetadata(1, 2, "x" * 4096, 3)
    assert decode_offset(encode_offset(committed)) == committed


def test_unknown_value_versions_and_keyless_records_are_skipped() -> None:
    records = [
        Record(0, 1, None, b"x"),
        Record(1, 1, encode_group_key("g"), b"\0\x09"),
        Record(2, 1, encode_offset_key("g", PLAIN), b"\0\x09"),
        Record(3, 1, encode_offset_key("g", PLAIN), None),
    ]
    replay = Replay()
    replay.feed(encode_batch(records))
    assert replay.skipped == 3
    assert replay.groups() == {}
