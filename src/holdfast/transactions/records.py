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
    out = _uvarint(len(topics) + 1)
    for topic, indexes in topics.items():
        raw = topic.encode()
        out += _uvarint(len(raw) + 1) + raw + _uvarint(len(indexes) + 1) + pack(f">{len(indexes)}i", *indexes) + b"\x00"
    return out


def _tags(t: Transaction) -> bytes:
    tags = []
    for tag, number in ((_PREVIOUS, t.previous_producer_id), (_NEXT, t.next_producer_id)):
        if number is not None:
            tags.append(bytes((tag, _I64.size)) + _I64.pack(number))
    if t.version:
        tags.append(bytes((_VERSION, _I16.size)) + _I16.pack(t.version))
    return bytes((len(tags),)) + b"".join(tags)


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# -- reading ---------------------------------------------------------------------------------------------------


def decode_record(key: bytes, value: bytes) -> StoredTransaction | None:
    """One record that is no tombstone; None for a key of a kind that is not ours."""
    reader = _Reader(key)
    if reader.number(_I16) != _KEY:
        return None
    return StoredTransaction(reader.text(reader.number(_I16)), _value(_Reader(value)))


def _value(reader: _Reader) -> Transaction:
    version = reader.number(_I16)
    if version not in (0, _COMPACT):
        raise CorruptRecordError(f"a transaction's record has version {version}, expected 0 or {_COMPACT}")
    compact = version == _COMPACT
    producer_id, epoch = reader.number(_I64), reader.number(_I16)
    timeout_ms = reader.number(_I32)
    number = reader.take(1)[0]
    state = BY_NUMBER.get(number)
    if state is None or state in _NEVER_WRITTEN:
        raise CorruptRecordError(f"a transaction's record has state {number}, expected 0 to {len(BY_NUMBER) - 3}")
    partitions = reader.partitions(compact)
    update_ms, start_ms = reader.number(_I64), reader.number(_I64)
    tags = reader.tags() if compact else {}
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


class _Reader:
    """Walks one key or value."""

    __slots__ = ("_at", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._raw):
            raise CorruptRecordError(f"a transaction's record ends at byte {len(self._raw)}, expected {end}")
        piece, self._at = self._raw[self._at : end], end
        return bytes(piece)

    def number(self, form: Struct) -> int:
        value: int = form.unpack(self.take(form.size))[0]
        return value

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text(self, size: int) -> str:
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as e:
            raise CorruptRecordError(f"a transaction's record holds a text that is not UTF-8: {e}") from e

    def partitions(self, compact: bool) -> frozenset[TopicPartition]:
        found = []
        for _ in range(self._count(compact)):
            topic = self.text(self.uvarint() - 1 if compact else self.number(_I16))
            found += [TopicPartition(topic, self.number(_I32)) for _ in range(self._count(compact))]
            if compact:
                self.tags()
        return frozenset(found)

    def _count(self, compact: bool) -> int:
        return max(0, self.uvarint() - 1 if compact else self.number(_I32))

    def tags(self) -> dict[int, bytes]:
        found = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            found[tag] = self.take(self.uvarint())
        return found
