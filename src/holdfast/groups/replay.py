"""What the log of one partition says: batches in, groups out.

Owns no group that is served: it is filled (on any thread, piece by piece), unfolded, and its groups are then handed to
the coordinator. ``newest.py`` has what is done for every record; here is what is done once a key.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from holdfast.coordinators.newest import OpenPairs, Rest, value_of
from holdfast.groups.group import Group
from holdfast.groups.newest import NewestOfGroups
from holdfast.groups.offset_records import (
    GroupKey,
    GroupRecord,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
)
from holdfast.groups.types import GroupId, OffsetAndMetadata
from holdfast.model.types import TopicPartition
from holdfast.records.batch import Buffer

_ALL: Final = 2**63 - 1


class Replay:
    """See the module's docstring."""

    __slots__ = ("_groups", "_newest", "_offsets", "_pending")

    def __init__(self) -> None:
        self._newest = NewestOfGroups()
        self._groups: dict[GroupId, GroupRecord] = {}
        self._offsets: dict[GroupId, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._pending: dict[GroupId, dict[TopicPartition, dict[int, OffsetAndMetadata | None]]] = {}

    @property
    def skipped(self) -> int:
        """Records of other kinds."""
        return self._newest.skipped

    def feed(self, batches: Buffer) -> int:
        """The next batches of the log; a partial one at the end is left. How many bytes were whole batches.

        CorruptRecordError, InvalidRecordError.
        """
        return self._newest.feed(batches if isinstance(batches, bytes) else bytes(batches))

    def take(self, pairs: dict[bytes, Rest], open_pairs: OpenPairs) -> None:
        """Newest records, and those of open transactions, that another process has found."""
        self._newest.pairs.update(pairs)
        self._newest.open.update(open_pairs)

    def unfold(self, limit: int = _ALL) -> bool:
        """Decode so many of the newest records; whether there are more. CorruptRecordError."""
        pairs = self._newest.pairs
        for key in list(islice(pairs, limit)):
            value = value_of(pairs.pop(key))
            match decode_key(key):
                case OffsetKey(group_id, tp):
                    self._apply_offset(group_id, tp, value)
                case GroupKey(group_id):
                    self._apply_group(group_id, value)
        waiting = self._newest.open
        for key in list(islice(waiting, limit)):
            self._apply_open(key, waiting.pop(key))
        return bool(pairs or waiting)

    def groups(self) -> dict[GroupId, Group]:
        """The groups as they stood; those with offsets alone belong to simple consumers."""
        self.unfold()
        return {group_id: self._group(group_id) for group_id in self._all()}

    def pieces(self, limit: int) -> dict[GroupId, Group] | None:
        """So many of the groups, which are then no longer here; None when all were taken. After ``unfold``."""
        found: dict[GroupId, Group] = {}
        for part in (self._groups, self._offsets, self._pending):
            for group_id in islice(part, limit - len(found)):
                if group_id not in found:
                    found[group_id] = self._group(group_id)
        for group_id in found:
            for part in (self._groups, self._offsets, self._pending):
                part.pop(group_id, None)
        return found or None

    def _all(self) -> set[GroupId]:
        return self._groups.keys() | self._offsets.keys() | self._pending.keys()

    def _group(self, group_id: GroupId) -> Group:
        group = Group(group_id)
        record = self._groups.get(group_id)
        if record is not None:
            group.restore(record)
        group.offsets = dict(self._offsets.get(group_id, {}))
        group.in_transactions = self._pending.get(group_id, {})
        return group

    def _apply_offset(self, group_id: GroupId, tp: TopicPartition, value: bytes | None) -> None:
        committed = None if value is None else decode_offset(value)
        if committed is not None:
            self._offsets.setdefault(group_id, {})[tp] = committed
            return
        offsets = self._offsets.get(group_id, {})
        offsets.pop(tp, None)
        if not offsets:
            self._offsets.pop(group_id, None)

    def _apply_open(self, key: bytes, waiting: dict[int, Rest | None]) -> None:
        found = decode_key(key)
        if not isinstance(found, OffsetKey):  # nobody writes groups in transactions
            return
        pending = self._pending.setdefault(found.group_id, {})
        pending[found.tp] = {p: None if r is None else _offset(r) for p, r in waiting.items()}

    def _apply_group(self, group_id: GroupId, value: bytes | None) -> None:
        record = None if value is None else decode_group(value)
        if record is None:
            self._groups.pop(group_id, None)
        else:
            self._groups[group_id] = record


def _offset(rest: Rest) -> OffsetAndMetadata | None:
    value = value_of(rest)
    return None if value is None else decode_offset(value)
