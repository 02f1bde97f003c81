"""What every rule of one partition's groups shares: the groups, their journal, deadlines, settings, new ids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.coordinators.deadlines import Deadlines
from holdfast.groups.group import Group
from holdfast.groups.group_journal import GroupJournal
from holdfast.groups.settings import GroupSettings
from holdfast.groups.types import GroupId
from holdfast.model.types import TimestampMs


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSurroundings:
    """One per partition of ``__consumer_offsets`` that this broker leads."""

    partition: int
    settings: GroupSettings
    journal: GroupJournal
    deadlines: Deadlines
    new_member_suffix: Callable[[], str]
    clock: Callable[[], TimestampMs]
    """The time of the latest call: for completions, which bring none of their own."""
    groups: dict[GroupId, Group]

    def forget_if_unused(self, group: Group) -> None:
        """Drop a group that nothing was ever written of."""
        if group.is_unused and not group.is_recorded and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
