"""The content of segment files as lines: those of kafka-dump-log.sh, word for word, or JSON objects. Pure."""

import json
from typing import Any, Final

from holdfast.cli.record_json import TYPE_NAMES, encoded
from holdfast.cli.segment_rows import (
    AbortRow,
    BatchAt,
    Damage,
    PositionRow,
    ProducerRow,
    RecordRow,
    Row,
    TimeRow,
    Torn,
)
from holdfast.model.errors import UnsupportedCompressionTypeError
from holdfast.records.batch import DELETE_HORIZON_BIT, BatchHeader
from holdfast.records.compression import Codec

_MAX_SEQUENCE: Final = 2**31 - 1


def line_of(row: Row, path: str) -> str | None:
    """As Kafka's tool has it, with --print-data-log --deep-iteration for records. None: it says nothing of that."""
    match row:
        case BatchAt():
            return _batch_line(row)
        case RecordRow():
            return _record_line(row)
        case PositionRow(offset, position):
            return f"offset: {offset} position: {position}"
        case TimeRow(timestamp, offset):
            return f"timestamp: {timestamp} offset: {offset}"
        case AbortRow(version, producer, first, last, stable):
            return (
                f"version: {version} producerId: {producer} firstOffset: {first} lastOffset: {last} "
                f"lastStableOffset: {stable}"
            )
        case ProducerRow():
            return _producer_line(row)
        case Torn(size):
            return f"Found {size} invalid bytes at the end of {path}"
        case Damage():
            return None


def _batch_line(row: BatchAt) -> str:
    h = row.header
    return (
        f"baseOffset: {h.base_offset} lastOffset: {h.last_offset} count: {h.record_count} "
        f"baseSequence: {h.base_sequence} lastSequence: {h.last_sequence} producerId: {h.producer_id} "
        f"producerEpoch: {h.producer_epoch} partitionLeaderEpoch: {h.partition_leader_epoch} "
        f"isTransactional: {_bool(h.is_transactional)} isControl: {_bool(h.is_control)} "
        f"deleteHorizonMs: {_optional(_delete_horizon(h))} position: {row.position} "
        f"{TYPE_NAMES[h.timestamp_type]}: {h.max_timestamp} size: {h.size} magic: {h.magic} "
        f"compresscodec: {codec_name(h.compression)} crc: {h.crc} isvalid: {_bool(row.is_valid)}"
    )


def _record_line(row: RecordRow) -> str:
    h, r = row.header, row.record
    line = (
        f"| offset: {r.offset} {TYPE_NAMES[h.timestamp_type]}: {r.timestamp} keySize: {_size(r.key)} "
        f"valueSize: {_size(r.value)} sequence: {sequence_of(h, r.offset)} "
        f"headerKeys: [{','.join(name for name, _ in r.headers)}]"
    )
    if row.marker is not None:
        kind = "COMMIT" if row.marker.is_commit else "ABORT"
        return f"{line} endTxnMarker: {kind} coordinatorEpoch: {row.marker.coordinator_epoch}"
    if h.is_control:
        return line
    key = "" if r.key is None else f" key: {r.key.decode(errors='replace')}"
    return line + key + ("" if r.value is None else f" payload: {r.value.decode(errors='replace')}")


def _producer_line(p: ProducerRow) -> str:
    txn = _optional(None if p.txn_first_offset < 0 else p.txn_first_offset)
    line = (
        f"producerId: {p.producer_id} producerEpoch: {p.epoch} coordinatorEpoch: {p.coordinator_epoch} "
        f"currentTxnFirstOffset: {txn} lastTimestamp: {p.timestamp} "
    )
    if p.last_offset < 0:
        return line
    return line + (
        f"firstSequence: {_first_sequence(p)} lastSequence: {p.last_sequence} lastOffset: {p.last_offset} "
        f"offsetDelta: {p.offset_delta} timestamp: {p.timestamp}"
    )


def codec_name(number: int) -> str:
    """As Kafka calls it; a number that no codec has is told as such."""
    try:
        return Codec.numbered(number).name.lower()
    except UnsupportedCompressionTypeError:
        return f"unknown ({number})"


def sequence_of(header: BatchHeader, offset: int) -> int:
    """Of one record; -1: its batch has none."""
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + offset - header.base_offset) & _MAX_SEQUENCE


def _first_sequence(p: ProducerRow) -> int:
    return (p.last_sequence - p.offset_delta) & _MAX_SEQUENCE


def _delete_horizon(header: BatchHeader) -> int | None:
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def object_of(row: Row, path: str) -> str:
    """One JSON object; absence is null."""
    return json.dumps({"file": path, **_fields(row)}, ensure_ascii=False, separators=(",", ":"))


def _fields(row: Row) -> dict[str, Any]:
    match row:
        case BatchAt():
            return _batch_fields(row)
        case RecordRow(header, record, marker):
            found: dict[str, Any] = {
                "type": "record",
                "offset": record.offset,
                "timestamp": _known(record.timestamp),
                "sequence": _known(sequence_of(header, record.offset)),
                **encoded("key", record.key),
                **encoded("value", record.value),
                "headers": [{"key": name, **encoded("value", value)} for name, value in record.headers],
            }
            if marker is not None:
                kind = "commit" if marker.is_commit else "abort"
                found["marker"] = {"kind": kind, "coordinator_epoch": marker.coordinator_epoch}
            return found
        case PositionRow():
            return {"type": "index", **row._asdict()}
        case TimeRow():
            return {"type": "timeindex", **row._asdict()}
        case AbortRow():
            return {"type": "aborted", **row._asdict()}
        case ProducerRow():
            fields: dict[str, int] = row._asdict()
            return {"type": "producer", **{name: _known(value) for name, value in fields.items()}}
        case Torn(size):
            return {"type": "torn", "bytes": size}
        case Damage(text, _):
            return {"type": "damage", "text": text}


def _batch_fields(row: BatchAt) -> dict[str, Any]:
    h = row.header
    return {
        "type": "batch",
        "position": row.position,
        "size": h.size,
        "base_offset": h.base_offset,
        "last_offset": h.last_offset,
        "records": h.record_count,
        "leader_epoch": _known(h.partition_leader_epoch),
        "timestamp_type": TYPE_NAMES[h.timestamp_type],
        "base_timestamp": _known(h.base_timestamp),
        "max_timestamp": _known(h.max_timestamp),
        "producer_id": _known(h.producer_id),
        "producer_epoch": _known(h.producer_epoch),
        "base_sequence": _known(h.base_sequence),
        "last_sequence": _known(h.last_sequence),
        "transactional": h.is_transactional,
        "control": h.is_control,
        "delete_horizon": _delete_horizon(h),
        "codec": codec_name(h.compression),
        "crc": h.crc,
        "valid": row.is_valid,
    }


def _known(value: int) -> int | None:
    return None if value == -1 else value
