"""The newest record of each key, from bytes: the quick way finds what decoding everything finds."""

import random

import pytest

from holdfast.coordinators.newest import value_of
from holdfast.groups.newest import NewestOfGroups
from holdfast.groups.offset_records import GroupRecord, encode_group, encode_group_key, encode_offset, encode_offset_key
from holdfast.groups.replay import Replay
from holdfast.groups.types import OffsetAndMetadata
from holdfast.model.errors import CorruptRecordError, InvalidRecordError
from holdfast.model.types import TopicPartition
from holdfast.records.batch import CRC_START, stamp_crc
from holdfast.records.compression import Codec
from holdfast.records.record import Record, decode_batches, encode_batch

LONG = "m" * 300


def offset_record(number: int, group: str, partition: int, offset: int, metadata: str = "", version: int = 1) -> Record:
    key = bytes((0, version)) + encode_offset_key(group, TopicPartition("topic", partition))[2:]
    return Record(number, 1_700_000_000_000 + number, key, encode_offset(OffsetAndMetadata(offset, 3, metadata, 7)))


def some_batch(rng: random.Random) -> bytearray:
    count = rng.choice((1, 1, 1, 2, 200))
    records = []
    for i in range(count):
        record = offset_record(
            i, rng.choice(("g", "group-" + "x" * 70)), rng.randrange(4), rng.randrange(99), rng.choice(("", "m", LONG))
        )
        match rng.randrange(8):
            case 0:
                record = record._replace(value=None)
            case 1:
                record = record._replace(headers=(("h", b"v"),))
            case 2:
                group = GroupRecord(protocol_type="consumer", generation=rng.randrange(9))
                record = Record(i, 1, encode_group_key("g"), encode_group(group))
            case 3:
                record = record._replace(key=None)
        records.append(record)
    codec = rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP))
    return encode_batch(records, base_sequence=0, compression=codec)


@pytest.mark.parametrize("seed", range(20))
def test_D1_the_newest_of_each_key_is_what_decoding_every_record_finds(seed: int) -> None:
    rng = random.Random(seed)
    data = b"".join(some_batch(rng) for _ in range(40))
    expected = {record.key: record.value for record in decode_batches(data) if record.key is not None}
    newest = NewestOfGroups()
    assert newest.feed(data) == len(data)
    assert {key: value_of(rest) for key, rest in newest.pairs.items()} == expected


def test_D1_pieces_may_end_anywhere() -> None:
    rng = random.Random(1)
    data = b"".join(some_batch(rng) for _ in range(20))
    whole, pieces = NewestOfGroups(), NewestOfGroups()
    whole.feed(data)
    at = 0
    for end in range(0, len(data) + 97, 97):
        at += pieces.feed(data[at:end])
    assert at == len(data)
    assert pieces.pairs == whole.pairs


def test_a_plain_commit_with_a_bad_crc_ends_it() -> None:
    batch = encode_batch([offset_record(0, "group-of-a-usual-length-of-name", 1, 5, "metadata")], base_sequence=0)
    assert NewestOfGroups().feed(bytes(batch)) == len(batch)
    batch[CRC_START + 50] ^= 1
    with pytest.raises(CorruptRecordError, match="offset 0 fails its CRC"):
        NewestOfGroups().feed(bytes(batch))


def test_an_unknown_version_of_a_value_leaves_the_older_one() -> None:
    old = offset_record(0, "group-of-a-usual-length-of-name", 1, 5)
    newer = old._replace(value=b"\0\x09" + bytes(40))
    newest = NewestOfGroups()
    newest.feed(bytes(encode_batch([old], base_sequence=0) + encode_batch([newer], base_sequence=0)))
    assert newest.skipped == 1
    assert [value_of(rest) for rest in newest.pairs.values()] == [old.value]


def test_the_two_versions_of_a_key_are_one() -> None:
    replay = Replay()
    for version, offset in ((1, 5), (0, 6), (1, 7), (0, 8)):
        replay.feed(encode_batch([offset_record(0, "g", 1, offset, version=version)]))
    assert [c.offset for c in replay.groups()["g"].offsets.values()] == [8]


def test_records_that_are_not_what_the_batch_says_are_refused() -> None:
    batch = encode_batch([offset_record(0, "g", 1, 5), offset_record(1, "g", 2, 5)])
    for at, change in ((61, 0x40), (57 + 3, 1), (61 + 4, 0x40)):
        broken = bytearray(batch)
        broken[at] ^= change
        stamp_crc(broken, 0)
        with pytest.raises(InvalidRecordError, match="the batch at offset 0"):
            NewestOfGroups().feed(bytes(broken))
    with pytest.raises(InvalidRecordError):
        value_of(b"\x10abc")
    with pytest.raises(CorruptRecordError, match="kind"):
        NewestOfGroups().feed(bytes(encode_batch([Record(0, 1, b"\0", b"x")])))


def test_D1_groups_are_unfolded_and_taken_a_few_at_a_time() -> None:
    replay = Replay()
    for i in range(30):
        group = encode_group(GroupRecord(protocol_type="consumer", generation=i))
        replay.feed(
            encode_batch([Record(0, 1, encode_group_key(f"g{i}"), group), offset_record(1, f"g{i + 10}", 0, i)])
        )
    steps = 1
    while replay.unfold(7):
        steps += 1
    assert steps == 9  # 60 keys
    taken: dict[str, object] = {}
    while some := replay.pieces(4):
        assert len(some) <= 4
        assert not taken.keys() & some.keys()
        taken |= {name: (group.generation, len(group.offsets)) for name, group in some.items()}
    assert len(taken) == 40
    assert (taken["g0"], taken["g15"], taken["g35"]) == ((0, 0), (15, 1), (0, 1))
