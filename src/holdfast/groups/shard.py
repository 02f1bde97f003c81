"""The groups of one partition of ``__consumer_offsets``, from the election of this broker to its resignation."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.coordinators.deadlines import Deadlines
from holdfast.groups.group import Group
from holdfast.groups.group_journal import GroupJournal, GroupLog
from holdfast.groups.membership import GroupMembership
from holdfast.groups.offsets import Offsets
from holdfast.groups.settings import GroupSettings
from holdfast.groups.states import GroupState
from holdfast.groups.surroundings import GroupSurroundings
from holdfast.groups.types import GroupId
from holdfast.model.group_errors import NotCoordinatorError
from holdfast.model.types import TimestampMs


class Shard:
    """See the module's docstring. One leadership has one shard; the next leadership has another."""

    __slots__ = ("_ended", "around", "members", "offsets")

    def __init__(
        self,
        partition: int,
        *,
        settings: GroupSettings,
        log: GroupLog,
        deadlines: Deadlines,
        new_member_suffix: Callable[[], str],
        clock: Callable[[], TimestampMs],
    ) -> None:
        self.around = GroupSurroundings(
            partition=partition,
            settings=settings,
            journal=GroupJournal(log, partition, settings.max_batch_bytes),
            deadlines=deadlines,
            new_member_suffix=new_member_suffix,
            clock=clock,
            groups={},
        )
        self.members = GroupMembership(self.around)
        self.offsets = Offsets(self.around, self.members.rebalance)

        self._ended: dict[int, bool] | None = {}
        """Transactions whose markers came while it was read, which may not have seen them; None: all was read."""

    @property
    def groups(self) -> dict[GroupId, Group]:
        """Its groups by name."""
        return self.around.groups

    def add(self, groups: dict[GroupId, Group], now_ms: TimestampMs) -> None:
        """Some of the groups that were read. Their members get a whole session: they could not reach us until now."""
        self.around.groups.update(groups)
        self.offsets.pending.adopt(groups.values())
        for group in groups.values():
            for member in group.members.values():
                self.members.rebalance.heard_of(group, member, now_ms)

    def open(self, now_ms: TimestampMs) -> None:
        """All groups are there: serve them."""
        ended, self._ended = self._ended or {}, None
        for producer_id, committed in ended.items():
            self.complete_transaction(producer_id, committed)
        for group in self.groups.values():
            if len(group.members) > self.around.settings.max_size:
                self.members.rebalance.start(group, now_ms)
        self._check_offsets_later(now_ms)

    def complete_transaction(self, producer_id: int, committed: bool) -> None:
        """The marker of the producer's transaction is in the log."""
        if self._ended is not None:
            self._ended[producer_id] = committed
            return
        for group in self.offsets.pending.complete(producer_id, committed):
            self.around.forget_if_unused(group)

    def close(self, now_ms: TimestampMs) -> None:
        """Another broker coordinates now: everybody who waits is told so."""
        self.around.journal.close()
        self.around.deadlines.cancel(("expire", self.around.partition))
        for group in list(self.groups.values()):
            for key in ("join", "sync"):
                self.around.deadlines.cancel((key, group.group_id))
            for member_id in group.members.keys() | group.pending_members:
                self.around.deadlines.cancel(("session", group.group_id, member_id))
            if group.state is not GroupState.DEAD:
                group.become(GroupState.DEAD, now_ms)
            for member in list(group.members.values()):
                member.refuse(NotCoordinatorError("this broker no longer coordinates the group"))
        self.groups.clear()

    def _check_offsets_later(self, now_ms: TimestampMs) -> None:
        self.around.deadlines.set(
            ("expire", self.around.partition),
            now_ms + self.around.settings.offsets_check_interval_ms,
            self._check_offsets,
        )

    def _check_offsets(self, now_ms: TimestampMs) -> None:
        self.offsets.expire(now_ms)
        self._check_offsets_later(now_ms)
