"""What a log takes: the checks on batches from a producer before they get offsets, and on batches from a leader.

Owns the rules and their errors; changes bytes only where the topic's configuration says so (time of append,
compression). Looks at headers; decodes records only for a compacted topic, whose records need keys, and
decompresses only to compress anew. Kafka decodes every record of every batch here; that a batch's records are as
its header counts them is the producer's business with us, and found by whoever decodes them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.model.config import LogConfig
from holdfast.model.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    OffsetsOutOfOrderError,
    UnsupportedCompressionTypeError,
)
from holdfast.model.types import LeaderEpoch, Offset, TimestampMs, TopicPartition
from holdfast.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    crc_ok,
    iter_headers,
    parse_header,
    stamp,
    stamp_crc,
    stamp_log_append_time,
)
from holdfast.records.compression import DEFAULT_LIMIT, Codec, decompress
from holdfast.records.latest_keys import keyless
from holdfast.records.markers import EndMarker, decode_marker
from holdfast.records.record import recompress
from holdfast.storage.files import Buffer
from holdfast.storage.segment import NO_TIMESTAMP, Placed

Writable = bytearray | memoryview
_ATTRIBUTES_LOW_BYTE: Final = 22
_MAX_TOLD: Final = 10_000
"""Records of a batch whose errors are told one by one."""


class RejectedRecordsError(InvalidRecordError):
    """Some records of a batch are not acceptable. ``record_errors``: (number of the record in the batch, why)."""

    def __init__(self, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class RejectedTimestampsError(InvalidTimestampError):
    """A batch has records of a time that the topic does not allow. ``record_errors`` as above."""

    def __init__(self, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


def check_batches(
    buf: Writable, config: LogConfig, now_ms: TimestampMs, tp: TopicPartition, *, trusted: bool
) -> tuple[Writable, Sequence[tuple[int, BatchHeader]]]:
    """The bytes that a leader may append, with position and header of each batch.

    Usually ``buf`` itself; another buffer if the topic has a compression of its own. Bytes after the last whole
    batch are ignored. ``trusted``: the broker itself made them (offsets, markers), so control batches pass and
    times and keys are not looked at.
    """
    batches = list(iter_headers(buf))
    if not batches:
        raise InvalidRecordError(f"{len(buf)} bytes without a whole record batch: expected one")
    rewritten = False
    for position, header in batches:
        _check_header(header, config, len(batches), trusted=trusted)
        if not crc_ok(buf, position, header):
            raise CorruptRecordError(
                f"batch at position {position} of {header.size} bytes: the CRC is not {header.crc:#010x}"
            )
        if config.compact and not trusted:
            _check_keys(buf, position, header, tp)
        if config.message_timestamp_type == "LogAppendTime":
            stamp_log_append_time(buf, position, now_ms)
            rewritten = True
        elif not trusted:
            _check_times(header, config, now_ms)
            if header.attributes & TIMESTAMP_TYPE_BIT:  # a client cannot say that it was the broker's clock
                buf[position + _ATTRIBUTES_LOW_BYTE] &= ~TIMESTAMP_TYPE_BIT & 0xFF
                stamp_crc(buf, position)
                rewritten = True
    if rewritten:
        batches = [(position, parse_header(buf, position)) for position, _ in batches]
    if config.compression_type != "producer":
        return _recompressed(buf, batches, config)
    return buf, batches


def _recompressed(
    buf: Writable, batches: list[tuple[int, BatchHeader]], config: LogConfig
) -> tuple[Writable, list[tuple[int, BatchHeader]]]:
    """The batches with the topic's own compression, where they have another."""
    codec = Codec.named(config.compression_type)
    limit = config.max_message_bytes if codec is Codec.NONE else DEFAULT_LIMIT
    if all(header.compression == codec or header.is_control for _, header in batches):
        return buf, batches
    out = bytearray()
    placed = []
    for position, header in batches:
        batch: Buffer = memoryview(buf)[position : position + header.size]
        if header.compression != codec and not header.is_control:
            batch = recompress(batch, codec, limit, config.compression_level)
        if len(batch) > config.max_message_bytes:
            raise MessageTooLargeError(
                f"batch of {len(batch)} bytes with {config.compression_type}: expected at most "
                f"max.message.bytes={config.max_message_bytes}"
            )
        placed.append((len(out), parse_header(batch)))
        out += batch
    return out, placed


def _check_keys(buf: Writable, position: int, header: BatchHeader, tp: TopicPartition) -> None:
    packed = memoryview(buf)[position + HEADER_SIZE : position + header.size]
    records = bytes(decompress(Codec.numbered(header.compression), packed))
    count, numbers = keyless(records, header.record_count, _MAX_TOLD)
    if count:
        why = f"record without a key in compacted topic partition {tp}"
        told = [(number, why) for number in numbers]
        raise RejectedRecordsError(f"{count} of {header.record_count} records are without a key: {tp}", told)


def _check_header(header: BatchHeader, config: LogConfig, count: int, *, trusted: bool) -> None:
    base_offset, length, _, _, _, attributes, delta, _, _, producer_id, _, sequence, records = header
    if length + 12 > config.max_message_bytes:
        raise MessageTooLargeError(
            f"batch of {length + 12} bytes: expected at most max.message.bytes={config.max_message_bytes}"
        )
    if attributes & COMPRESSION_MASK > Codec.ZSTD:
        raise UnsupportedCompressionTypeError(f"compression codec {attributes & COMPRESSION_MASK}: expected 0 to 4")
    if records <= 0 or delta != records - 1:
        raise InvalidRecordError(
            f"batch of {records} records with last offset delta {delta}: expected one or more, and {records - 1}"
        )
    if base_offset and not trusted:
        raise InvalidRecordError(f"base offset {base_offset} in a produced batch: expected 0")
    if attributes & CONTROL_BIT and not trusted:
        raise InvalidRecordError("control batch from a producer: only the broker writes these")
    if producer_id < 0:
        if attributes & TRANSACTIONAL_BIT:
            raise InvalidRecordError("a batch of a transaction without a producer id")
    else:
        if sequence < 0 and not trusted:
            raise InvalidRecordError(f"sequence {sequence} with producer id {producer_id}: expected 0 or more")
        if count > 1:
            raise InvalidRecordError(f"{count} batches of producer {producer_id} at once: expected one")


def _check_times(header: BatchHeader, config: LogConfig, now_ms: TimestampMs) -> None:
    """By the header: its first and its largest timestamp. -1 is "no time" and always fine."""
    earliest, latest = now_ms - config.timestamp_before_max_ms, now_ms + config.timestamp_after_max_ms
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp >= 0 and not earliest <= timestamp <= latest:
            why = f"timestamp {timestamp}: expected between {earliest} and {latest}"
            raise RejectedTimestampsError(
                f"{why} (message.timestamp.before.max.ms and message.timestamp.after.max.ms)", [(0, why)]
            )


def place_produced(
    batches: Writable,
    checked: Sequence[tuple[int, BatchHeader]],
    offset: Offset,
    leader_epoch: LeaderEpoch,
) -> tuple[list[Placed], TimestampMs]:
    """Stamp checked batches with the offsets from ``offset`` on; where each goes, and the largest timestamp."""
    placed = []
    max_timestamp = NO_TIMESTAMP
    for position, header in checked:
        stamp(batches, position, offset, leader_epoch)
        last_offset = offset + header.last_offset_delta
        placed.append(Placed(position, header.batch_length + 12, offset, last_offset, header.max_timestamp))
        if header.max_timestamp > max_timestamp:
            max_timestamp = header.max_timestamp
        offset = last_offset + 1
    return placed, max_timestamp


class OfProducer(NamedTuple):
    """A batch that says something of its producer, and where it goes. ``marker``: what a control batch says."""

    header: BatchHeader
    base_offset: Offset
    marker: EndMarker | None


@dataclass(slots=True)
class CheckedBatches:
    """Batches from a leader, checked. ``epochs``: the leader epochs that begin in them, with the offsets up to which
    those before them go (leader_epochs.py)."""

    placed: list[Placed] = field(default_factory=list)
    epochs: list[tuple[LeaderEpoch, Offset]] = field(default_factory=list)
    producers: list[OfProducer] = field(default_factory=list)
    max_timestamp: TimestampMs = NO_TIMESTAMP


def base_of_first(batches: Buffer, end_offset: Offset) -> Offset:
    """Where a log without a byte that ends at ``end_offset`` must begin to take what a follower fetched: at the base of
    the first batch if ``end_offset`` is within it, else where it is."""
    for _, header in iter_headers(batches):
        if header.base_offset < end_offset < header.next_offset:
            return header.base_offset
        break
    return end_offset


def _sound(batches: Buffer, fetched: CheckedBatches) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch, up to where something else lies."""
    try:
        yield from iter_headers(batches)
    except CorruptRecordError:
        if not fetched.placed:
            raise


def place_fetched(
    batches: Buffer, end_offset: Offset, last_epoch: LeaderEpoch | None, tp: TopicPartition
) -> CheckedBatches:
    """The whole batches in what a follower fetched; they must follow the end of its log. CorruptRecordError: the first
    is damaged. Those before one that is are as good as any, and the next fetch begins with it."""
    fetched = CheckedBatches()
    offset, epoch = end_offset, last_epoch
    for position, header in _sound(batches, fetched):
        base_offset, length, batch_epoch, _, _, _, delta, _, newest, producer_id, _, _, _ = header
        if base_offset < offset or delta < 0:
            raise OffsetsOutOfOrderError(
                f"{tp}: batch of offsets {base_offset} to {header.last_offset}: expected {offset} or later"
            )
        if not crc_ok(batches, position, header):
            if fetched.placed:
                break
            raise CorruptRecordError(f"{tp}: fetched batch at offset {base_offset}: the CRC is not {header.crc:#010x}")
        if epoch is None or batch_epoch > epoch:
            epoch = batch_epoch
            fetched.epochs.append((batch_epoch, offset))
        if producer_id >= 0:
            marker = decode_marker(memoryview(batches)[position:], header) if header.is_control else None
            fetched.producers.append(OfProducer(header, base_offset, marker))
        last_offset = base_offset + delta
        fetched.placed.append(Placed(position, length + 12, base_offset, last_offset, newest))
        if newest > fetched.max_timestamp:
            fetched.max_timestamp = newest
        offset = last_offset + 1
    return fetched
