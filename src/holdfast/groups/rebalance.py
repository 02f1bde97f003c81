"""How a group gets from one generation to the next: join phase, sync phase, members that fail to show up.

Owns every change of a group's state and the deadlines that drive it:

    ("join", group)            the join phase ends, however many are missing
    ("sync", group)            who has not synced by now is out
    ("session", group, member) the member has not been heard of (or never came back with the id it was given)

The rules are those of Kafka's classic protocol. Answers go out only after what they promise is in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from holdfast.coordinators.journal import Entry, Written
from holdfast.groups.group import Group, Member
from holdfast.groups.offset_records import encode_group, encode_group_key
from holdfast.groups.states import MAY_REBALANCE, GroupState
from holdfast.groups.surroundings import GroupSurroundings
from holdfast.groups.types import JoinReply, JoinResult, MemberId, SyncResult
from holdfast.model.errors import HoldfastError
from holdfast.model.group_errors import RebalanceInProgressError, UnknownMemberIdError
from holdfast.model.types import TimestampMs

Settle: TypeAlias = Callable[[Group, Written], None]
"""What to do with a group once its record is written, or not."""


class Rebalance:
    """See the module's docstring."""

    __slots__ = ("_around",)

    def __init__(self, around: GroupSurroundings) -> None:
        self._around = around

    # -- members come and go ---------------------------------------------------------------------------------

    def add_member(self, group: Group, member: Member, reply: JoinReply, now_ms: TimestampMs) -> None:
        """A new member waits to join."""
        member.is_new = True
        member.join_reply = reply
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.previous_state is GroupState.EMPTY:
            group.has_newcomers = True
        group.add(member)
        self._expect(group, member.member_id, self._around.settings.new_member_join_timeout_ms, now_ms)
        self.start_or_finish(group, now_ms)

    def add_pending(self, group: Group, member_id: MemberId, session_timeout_ms: int, now_ms: TimestampMs) -> None:
        """An id was given out; its owner has one session to come back with it."""
        group.pending_members.add(member_id)
        self._expect(group, member_id, session_timeout_ms, now_ms)

    def remove_member(self, group: Group, member_id: MemberId) -> None:
        """Take out a member or an id given out; the caller goes on with ``after_removal``."""
        self._around.deadlines.cancel(("session", group.group_id, member_id))
        member = group.remove(member_id)
        if member is not None:
            member.refuse(UnknownMemberIdError(f"{member_id} left group {group.group_id}"), member_id="")

    def after_removal(self, group: Group, now_ms: TimestampMs) -> None:
        """Those who stay share out anew, or the join phase may be complete now."""
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.start(group, now_ms)
        elif group.is_in(GroupState.PREPARING_REBALANCE):
            self._finish_join_if_complete(group, now_ms)

    def heard_of(self, group: Group, member: Member, now_ms: TimestampMs) -> None:
        """The member's session starts again."""
        self._expect(group, member.member_id, member.session_timeout_ms, now_ms)

    def _expect(self, group: Group, member_id: MemberId, within_ms: int, now_ms: TimestampMs) -> None:
        self._around.deadlines.set(
            ("session", group.group_id, member_id),
            now_ms + within_ms,
            lambda at_ms: self._session_over(group, member_id, at_ms),
        )

    def _session_over(self, group: Group, member_id: MemberId, now_ms: TimestampMs) -> None:
        if group.is_in(GroupState.DEAD):
            return
        member = group.members.get(member_id)
        if member is not None and member.keeps_itself_alive:
            return  # set again when it gets its answer
        if member is None and member_id not in group.pending_members:
            return
        self.remove_member(group, member_id)
        self.after_removal(group, now_ms)
        self._around.forget_if_unused(group)

    # -- the join phase --------------------------------------------------------------------------------------

    def start_or_finish(self, group: Group, now_ms: TimestampMs) -> None:
        """Somebody joined: a rebalance begins, or the one under way may have everybody now."""
        if group.state in MAY_REBALANCE:
            self.start(group, now_ms)
        else:
            self._finish_join_if_complete(group, now_ms)

    def start(self, group: Group, now_ms: TimestampMs) -> None:
        """Every member has to join again; a group that was empty waits a while for more of them."""
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self.refuse_syncs(group, RebalanceInProgressError("another rebalance began"), now_ms)
        self._around.deadlines.cancel(("sync", group.group_id))
        was_empty = group.is_in(GroupState.EMPTY)
        group.become(GroupState.PREPARING_REBALANCE, now_ms)
        if was_empty:
            delay_ms = self._around.settings.initial_rebalance_delay_ms
            rest_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.has_newcomers = False
            self._wait_for_more(group, delay_ms, rest_ms, now_ms)
        else:
            self._finish_join_or_wait(group, now_ms)

    def _wait_for_more(self, group: Group, delay_ms: int, rest_ms: int, now_ms: TimestampMs) -> None:
        if delay_ms <= 0:
            self.finish_join(group, now_ms)
            return
        self._around.deadlines.set(
            ("join", group.group_id),
            now_ms + delay_ms,
            lambda at_ms: self._waited(group, delay_ms, rest_ms, at_ms),
        )

    def _waited(self, group: Group, delay_ms: int, rest_ms: int, now_ms: TimestampMs) -> None:
        if group.has_newcomers and rest_ms:
            group.has_newcomers = False
            again_ms = min(self._around.settings.initial_rebalance_delay_ms, rest_ms)
            self._wait_for_more(group, again_ms, max(rest_ms - delay_ms, 0), now_ms)
        else:
            self.finish_join(group, now_ms)

    def _finish_join_if_complete(self, group: Group, now_ms: TimestampMs) -> None:
        # The initial delay is sat out even when everybody known has joined: it is for those not known yet.
        if (
            group.is_in(GroupState.PREPARING_REBALANCE)
            and group.previous_state is not GroupState.EMPTY
            and group.all_joined
        ):
            self.finish_join(group, now_ms)

    def _finish_join_or_wait(self, group: Group, now_ms: TimestampMs) -> None:
        if group.all_joined:
            self.finish_join(group, now_ms)
        else:
            self._set_join_deadline(group, now_ms)

    def _set_join_deadline(self, group: Group, now_ms: TimestampMs) -> None:
        self._around.deadlines.set(
            ("join", group.group_id),
            now_ms + group.rebalance_timeout_ms,
            lambda at_ms: self.finish_join(group, at_ms),
        )

    def finish_join(self, group: Group, now_ms: TimestampMs) -> None:
        """Go on without those who have not joined, static members excepted: they keep their place."""
        if not group.is_in(GroupState.PREPARING_REBALANCE):
            return
        self._around.deadlines.cancel(("join", group.group_id))
        for member in [m for m in group.members.values() if m.join_reply is None and not m.is_static]:
            self.remove_member(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members, none of them here: their sessions will run out or they will come.
            self._set_join_deadline(group, now_ms)
            return
        group.next_generation(now_ms)
        if not group.members:
            # Nobody waits for it; if it is not written, a restart finds an older generation, without harm.
            self.record(group, now_ms, lambda _group, _outcome: None)
            return
        self._around.deadlines.set(
            ("sync", group.group_id),
            now_ms + group.rebalance_timeout_ms,
            lambda at_ms: self._sync_over(group, at_ms),
        )
        group.pending_syncs.update(group.members)
        for member in list(group.members.values()):
            member.is_new = False
            self.heard_of(group, member, now_ms)
            member.answer_join(self.joined(group, member))

    def joined(self, group: Group, member: Member, *, skip_assignment: bool = False) -> JoinResult:
        """The answer to a member of the current generation; only its leader learns of the others."""
        leads = group.leader == member.member_id
        return JoinResult(
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader or "",
            skip_assignment=skip_assignment,
            members=group.joined_members() if leads else (),
        )

    # -- the sync phase --------------------------------------------------------------------------------------

    def _sync_over(self, group: Group, now_ms: TimestampMs) -> None:
        if not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_syncs:
            return
        for member_id in sorted(group.pending_syncs):
            self.remove_member(group, member_id)
        self.start(group, now_ms)

    def synced(self, group: Group, member_id: MemberId) -> None:
        """The member's SyncGroup came; after the last one nobody is waited for."""
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._around.deadlines.cancel(("sync", group.group_id))

    def assign(self, group: Group, assignments: dict[MemberId, bytes], now_ms: TimestampMs) -> None:
        """The leader's decision: written down, then told to everybody."""
        generation = group.generation
        if group.assigning == generation:
            return  # the leader asks again while its first word is being written
        group.assigning = generation

        def written(group: Group, outcome: Written) -> None:
            # Others may have come or gone meanwhile; then another generation is on its way.
            if not group.is_in(GroupState.COMPLETING_REBALANCE) or group.generation != generation:
                return
            group.assigning = None
            later_ms = max(now_ms, self._around.clock())
            if outcome.error is not None:
                self.refuse_syncs(group, outcome.error, later_ms)
                self.start(group, later_ms)
                return
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            group.become(GroupState.STABLE, later_ms)
            for member in list(group.members.values()):
                if member.answer_sync(self.assignment(group, member)):
                    self.heard_of(group, member, later_ms)

        self.record(group, now_ms, written, assignments)

    def assignment(self, group: Group, member: Member) -> SyncResult:
        """The answer to a member that knows its assignment."""
        return SyncResult(
            protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
        )

    def refuse_syncs(self, group: Group, error: HoldfastError, now_ms: TimestampMs) -> None:
        """Nobody gets an assignment in this generation."""
        for member in list(group.members.values()):
            member.assignment = b""
            if member.answer_sync(SyncResult(error=error)):
                self.heard_of(group, member, now_ms)

    # -- the record ------------------------------------------------------------------------------------------

    def record(
        self,
        group: Group,
        now_ms: TimestampMs,
        then: Settle,
        assignments: dict[MemberId, bytes] | None = None,
    ) -> None:
        """Write the group's record, then go on; a group that this broker lost meanwhile is DEAD by then."""

        group.pending_records += 1

        def done(outcome: Written) -> None:
            group.pending_records -= 1
            group.is_recorded |= outcome.is_in_log
            then(group, outcome)

        entry = Entry(encode_group_key(group.group_id), encode_group(group.record(assignments)))
        self._around.journal.write([entry], now_ms, done)
