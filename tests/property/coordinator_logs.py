"""What coordinators write, drawn by hypothesis: batches of group and transaction records, with markers between."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from holdfast.groups.offset_records import (
    GroupRecord,
    MemberRecord,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from holdfast.groups.replay import Replay
from holdfast.groups.types import OffsetAndMetadata
from holdfast.model.types import TopicPartition
from holdfast.records.compression import Codec
from holdfast.records.markers import EndMarker, encode_marker
from holdfast.records.record import Record, encode_batch
from holdfast.transactions.records import encode_key, encode_value
from holdfast.transactions.states import TransactionState
from holdfast.transactions.types import Transaction

NOW_MS = 1_700_000_000_000
GROUPS = ("g", "group-" + "x" * 40)
PARTITIONS = tuple(TopicPartition("t", number) for number in range(3))
IDS = ("a", "b", "transactional-id-" + "x" * 40)
STATES = [s for s in TransactionState if s not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)]


class Batch(NamedTuple):
    """Records of one batch, of a producer's transaction if it has one."""

    records: tuple[tuple[bytes, bytes | None], ...]
    producer: int | None = None
    codec: Codec = Codec.NONE

    def encode(self, base_offset: int = 0, now_ms: int = NOW_MS) -> bytearray:
        """As a coordinator writes it: Kafka's has a first sequence of 0 in every batch of groups."""
        producer = (-1, -1) if self.producer is None else (self.producer, 0)
        return encode_batch(
            [Record(base_offset + i, now_ms, key, value) for i, (key, value) in enumerate(self.records)],
            base_offset=base_offset, compression=self.codec, producer_id=producer[0], producer_epoch=producer[1],
            base_sequence=0, transactional=self.producer is not None,
        )  # fmt: skip


class End(NamedTuple):
    """The marker of a producer's transaction."""

    producer: int
    commit: bool

    def encode(self, base_offset: int = 0, now_ms: int = NOW_MS) -> bytearray:
        batch = encode_marker(self.producer, 0, EndMarker(self.commit, 0), now_ms)
        batch[:8] = base_offset.to_bytes(8)
        return batch


PRODUCERS = st.integers(7, 9)
CODECS = st.sampled_from((Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4))
OFFSET = st.builds(
    OffsetAndMetadata,
    st.integers(0, 5), leader_epoch=st.none() | st.integers(0, 3), metadata=st.sampled_from(("", "m" * 70)),
    commit_ms=st.integers(1, 9), expire_ms=st.none() | st.just(5), topic_id=st.none(),
)  # fmt: skip
OFFSET_KEY = st.builds(encode_offset_key, st.sampled_from(GROUPS), st.sampled_from(PARTITIONS))
MEMBER = st.builds(
    MemberRecord,
    member_id=st.sampled_from(("m1", "m2")), instance_id=st.none(), client_id=st.just("c"), client_host=st.just("/h"),
    rebalance_timeout_ms=st.just(5), session_timeout_ms=st.just(6), subscription=st.just(b""),
    assignment=st.sampled_from((b"", b"a")),
)  # fmt: skip
GROUP = st.builds(
    GroupRecord,
    protocol_type=st.just("consumer"), generation=st.integers(0, 9), protocol_name=st.just("range"),
    leader=st.just("m1"), state_ms=st.integers(1, 9),
    members=st.lists(MEMBER, max_size=2, unique_by=lambda m: m.member_id).map(tuple),
)  # fmt: skip
COMMITS = st.lists(st.tuples(OFFSET_KEY, OFFSET.map(encode_offset)), min_size=1, max_size=3).map(tuple)
DROPS = st.lists(st.tuples(OFFSET_KEY, st.none()), min_size=1, max_size=3).map(tuple)
GROUP_KEY = st.sampled_from(GROUPS).map(encode_group_key)
GROUP_CHANGES = st.tuples(GROUP_KEY, st.none() | GROUP.map(encode_group)).map(lambda pair: (pair,))
DELETED = st.sampled_from(GROUPS).map(
    lambda g: (*((encode_offset_key(g, tp), None) for tp in PARTITIONS), (encode_group_key(g), None))
)
PLAIN = st.builds(Batch, COMMITS | DROPS | GROUP_CHANGES | DELETED, producer=st.none(), codec=CODECS)
WITHIN = st.builds(Batch, COMMITS, producer=PRODUCERS, codec=CODECS)
ENDS = st.builds(End, PRODUCERS, st.booleans())
GROUP_LOG = WITHIN | ENDS | PLAIN

TRANSACTION = st.builds(
    Transaction,
    producer_id=st.integers(1, 3), epoch=st.integers(0, 3), timeout_ms=st.just(60_000), state=st.sampled_from(STATES),
    partitions=st.frozensets(st.sampled_from(PARTITIONS)), start_ms=st.none() | st.integers(1, 9),
    update_ms=st.integers(1, 9), version=st.integers(0, 2), previous_producer_id=st.none() | st.just(4),
    next_producer_id=st.none() | st.just(5), last_epoch=st.none(),
)  # fmt: skip
STATE = TRANSACTION.map(lambda t: encode_value(t, compact=bool(t.version)))
CHANGES = st.lists(
    st.tuples(st.sampled_from(IDS).map(encode_key), st.none() | STATE), min_size=1, max_size=2
).map(tuple)  # fmt: skip
TRANSACTION_LOG = st.builds(Batch, CHANGES, producer=st.none(), codec=CODECS)


def said(thing: Any) -> Any:
    """Something to compare by: groups and members have no equality of their own. The order within open transactions
    counts, that of keys does not."""
    if isinstance(thing, dict):
        return {key: list(each.items()) if key_is_open(each) else said(each) for key, each in thing.items()}
    slots = getattr(type(thing), "__slots__", None)
    if slots is None or isinstance(thing, tuple) or type(thing).__eq__ is not object.__eq__:
        return thing
    return {name: said(getattr(thing, name)) for name in slots}


def key_is_open(each: Any) -> bool:
    return isinstance(each, dict) and bool(each) and all(isinstance(key, int) for key in each)


def groups_of(data: bytes, piece: int = 1 << 20) -> Any:
    """Groups as a coordinator loads them, from bytes read so many at a time."""
    replay = Replay()
    at, size = 0, piece
    while at < len(data):
        took = replay.feed(data[at : at + size])
        at, size = at + took, piece if took else size + piece
    return said(replay.groups())
