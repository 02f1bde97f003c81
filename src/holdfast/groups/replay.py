"""What the log of one partition says: batches in, groups out.

Owns no group that is served: it is filled (on any thread, piece by piece) and then handed to the coordinator.
Batches with a bad CRC end it; record types and versions that are not ours are skipped. Offsets committed in a
transaction count once its commit marker comes, as Kafka's logs may have them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from holdfast.groups.group import Group
from holdfast.groups.offset_records import (
    GroupKey,
    GroupRecord,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
)
from holdfast.groups.types import CommittedOffset, GroupId
from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import TopicPartition
from holdfast.records.batch import Buffer, crc_ok, iter_headers
from holdfast.records.record import Record, decode_batch

_MARKER: Final = Struct(">hh")
_COMMIT: Final = 1


class Replay:
    """See the module's docstring."""

    __slots__ = ("_groups", "_offsets", "_open", "skipped")

    def __init__(self) -> None:
        self._groups: dict[GroupId, GroupRecord] = {}
        self._offsets: dict[GroupId, dict[TopicPartition, CommittedOffset]] = {}
        self._open: dict[int, list[Record]] = {}
        """Records of transactions that have no marker yet, by producer id."""
        self.skipped = 0
        """Records of other kinds."""

    def feed(self, batches: Buffer) -> None:
        """The next whole batches of the log."""
        view = memoryview(batches)
        for position, header in iter_headers(view):
            if not crc_ok(view, position, header):
                raise CorruptRecordError(f"the batch at offset {header.base_offset} fails its CRC")
            records = decode_batch(view[position : position + header.size])
            if header.is_control:
                self._end_transaction(header.producer_id, records)
            elif header.is_transactional:
                self._open.setdefault(header.producer_id, []).extend(records)
            else:
                self._apply(records)

    def groups(self) -> dict[GroupId, Group]:
        """The groups as they stood; those with offsets alone belong to simple consumers."""
        found: dict[GroupId, Group] = {}
        for group_id in self._groups.keys() | self._offsets.keys():
            group = Group(group_id)
            record = self._groups.get(group_id)
            if record is not None:
                group.restore(record)
            group.offsets = dict(self._offsets.get(group_id, {}))
            found[group_id] = group
        return found

    def _end_transaction(self, producer_id: int, markers: list[Record]) -> None:
        for marker in markers:
            records = self._open.pop(producer_id, [])
            if marker.key is None or len(marker.key) < _MARKER.size:
                raise CorruptRecordError(f"a marker of producer {producer_id} has the key {marker.key!r}")
            if _MARKER.unpack_from(marker.key)[1] == _COMMIT:
                self._apply(records)

    def _apply(self, records: list[Record]) -> None:
        for record in records:
            key = None if record.key is None else decode_key(record.key)
            match key:
                case OffsetKey(group_id, tp):
                    self._apply_offset(group_id, tp, record.value)
                case GroupKey(group_id):
                    self._apply_group(group_id, record.value)
                case None:
                    self.skipped += 1

    def _apply_offset(self, group_id: GroupId, tp: TopicPartition, value: bytes | None) -> None:
        if value is None:
            offsets = self._offsets.get(group_id, {})
            offsets.pop(tp, None)
            if not offsets:
                self._offsets.pop(group_id, None)
            return
        committed = decode_offset(value)
        if committed is None:
            self.skipped += 1
        else:
            self._offsets.setdefault(group_id, {})[tp] = committed

    def _apply_group(self, group_id: GroupId, value: bytes | None) -> None:
        if value is None:
            self._groups.pop(group_id, None)
            return
        record = decode_group(value)
        if record is None:
            self.skipped += 1
        else:
            self._groups[group_id] = record
