"""The records of ``__transaction_state``: keys and values, byte for byte as Kafka 4.3 writes them.

    key 0      transactional id
    value 0    the transaction, without what came with KIP-890 (transaction.version 0)
    value 1    the same in the compact encoding; the previous and the next producer id and the client's transaction
               version are tagged fields 0, 1 and 2, left out where they say nothing

A key without value is a tombstone. Bytes that make no sense, and versions that are not known, are a
CorruptRecordError: a coordinator that forgot a transaction would let a producer in that is fenced.
"""

from __future__ import annotations

from dataclasses import replace
from struct import Struct, pack
from typing import Final, NamedTuple

from holdfast.coordinators.fields import FieldReader, uvarint
from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import TopicPartition
from holdfast.transactions.states import BY_NUMBER, NUMBERS, PREPARED, TransactionState
from holdfast.transactions.types import BUMPING, LAST_CLIENT_EPOCH, ProducerEpoch, Transaction, TransactionalId

MAX_TEXT: Final = 2**15 - 1
"""Bytes of the longest transactional id that a key can hold."""
_KEY: Final = 0
_COMPACT: Final = 1
_PREVIOUS, _NEXT, _VERSION = 0, 1, 2
_ENDS: Final = frozenset((*PREPARED, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))
_NEVER_WRITTEN: Final = (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)

_NOUN: Final = "a transaction's record"
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_HEAD: Final = Struct(">hqhib")
"""Version, producer id, epoch, timeout, state."""
_TIMES: Final = Struct(">qq")


class StoredTransaction(NamedTuple):
    """One record that is no tombstone."""

    transactional_id: TransactionalId
    transaction: Transaction


# -- writing ---------------------------------------------------------------------------------------------------


def encode_key(transactional_id: TransactionalId) -> bytes:
    """Key of a transactional id."""
    raw = transactional_id.encode()
    return pack(">hh", _KEY, len(raw)) + raw


def encode_value(transaction: Transaction, *, compact: bool) -> bytes:
    """Value of a transaction; ``compact``: version 1, else 0. What version 0 cannot hold makes it version 1."""
    t = transaction
    compact = compact or t.bumps or t.next_producer_id is not None
    head = _HEAD.pack(_COMPACT if compact else 0, t.producer_id, t.epoch, t.timeout_ms, NUMBERS[t.state])
    times = _TIMES.pack(t.update_ms, -1 if t.start_ms is None else t.start_ms)
    topics = None if t.state is TransactionState.EMPTY else _by_topic(t.partitions)
    if not compact:
        return head + _plain(topics) + times
    return head + _compact(topics) + times + _tags(t)


def _by_topic(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


def _plain(topics: dict[str, list[int]] | None) -> bytes:
    if topics is None:
        return _I32.pack(-1)
    out = _I32.pack(len(topics))
    for topic, indexes in topics.items():
        raw = topic.encode()
        out += _I16.pack(len(raw)) + raw + pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return out


def _compact(topics: dict[str, list[int]] | None) -> bytes:
    if topics is None:
        return b"\x00"
    out = uvarint(len(topics) + 1)
    for topic, indexes in topics.items():
        raw = topic.encode()
        out += uvarint(len(raw) + 1) + raw + uvarint(len(indexes) + 1) + pack(f">{len(indexes)}i", *indexes) + b"\x00"
    return out


def _tags(t: Transaction) -> bytes:
    tags = []
    for tag, number in ((_PREVIOUS, t.previous_producer_id), (_NEXT, t.next_producer_id)):
        if number is not None:
            tags.append(bytes((tag, _I64.size)) + _I64.pack(number))
    if t.version:
        tags.append(bytes((_VERSION, _I16.size)) + _I16.pack(t.version))
    return bytes((len(tags),)) + b"".join(tags)


# -- reading ---------------------------------------------------------------------------------------------------


def decode_record(key: bytes, value: bytes) -> StoredTransaction | None:
    """One record that is no tombstone; None for a key of a kind that is not ours."""
    reader = FieldReader(key, _NOUN)
    if reader.i16() != _KEY:
        return None
    return StoredTransaction(reader.string(), _value(FieldReader(value, _NOUN)))


def _value(reader: FieldReader) -> Transaction:
    version = reader.i16()
    if version not in (0, _COMPACT):
        raise CorruptRecordError(f"a transaction's record has version {version}, expected 0 or {_COMPACT}")
    reader.compact = version == _COMPACT
    producer_id, epoch = reader.i64(), reader.i16()
    timeout_ms = reader.i32()
    number = reader.take(1)[0]
    state = BY_NUMBER.get(number)
    if state is None or state in _NEVER_WRITTEN:
        raise CorruptRecordError(f"a transaction's record has state {number}, expected 0 to {len(BY_NUMBER) - 3}")
    partitions = _partitions(reader)
    update_ms, start_ms = reader.i64(), reader.i64()
    tags = reader.tags()
    found = Transaction(
        producer_id=producer_id,
        previous_producer_id=_tagged(tags, _PREVIOUS),
        next_producer_id=_tagged(tags, _NEXT),
        epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=partitions if state is not TransactionState.EMPTY else frozenset(),
        start_ms=None if start_ms < 0 else start_ms,
        update_ms=update_ms,
        version=min(_tagged(tags, _VERSION) or 0, BUMPING),
    )
    return replace(found, last_epoch=_last_epoch(found))


def _partitions(reader: FieldReader) -> frozenset[TopicPartition]:
    found = []
    for _ in range(reader.count()):
        topic = reader.string()
        found += [TopicPartition(topic, reader.i32()) for _ in range(reader.count())]
        reader.tags()
    return frozenset(found)


def _last_epoch(found: Transaction) -> ProducerEpoch | None:
    """It is in no record, but an end of transaction version 2 raises the epoch by one, or begins anew after the last:
    whose end that was may still ask what became of it, of the next coordinator (KIP-360)."""
    if not found.bumps or found.state not in _ENDS:
        return None
    if found.epoch > 0:
        return found.epoch - 1
    return None if found.previous_producer_id in (None, found.producer_id) else LAST_CLIENT_EPOCH


def _tagged(tags: dict[int, bytes], tag: int) -> int | None:
    raw = tags.get(tag)
    number = -1 if raw is None else int.from_bytes(raw, signed=True)
    return None if number < 0 else number
