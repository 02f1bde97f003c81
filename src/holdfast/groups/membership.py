"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: who may, and what each state of the group answers.

Owns the checks and the answers; rebalance.py owns what follows from them. Kafka's names for the rules are in
GroupMetadataManager.classicGroup*.
"""

from __future__ import annotations

from typing import assert_never

from holdfast.coordinators.journal import Written
from holdfast.groups.group import Group, Member
from holdfast.groups.rebalance import Rebalance
from holdfast.groups.states import GroupState
from holdfast.groups.surroundings import GroupSurroundings
from holdfast.groups.types import (
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    JoinResult,
    LeaveResult,
    Leaving,
    Left,
    MemberId,
    SyncReply,
    SyncRequest,
    SyncResult,
)
from holdfast.model.errors import HoldfastError, InvalidSessionTimeoutError
from holdfast.model.group_errors import (
    CoordinatorNotAvailableError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from holdfast.model.types import TimestampMs


class GroupMembership:
    """See the module's docstring."""

    __slots__ = ("_around", "rebalance")

    def __init__(self, around: GroupSurroundings) -> None:
        self._around = around
        self.rebalance = Rebalance(around)

    # -- JoinGroup -------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, now_ms: TimestampMs, reply: JoinReply) -> None:
        """Answered when the join phase ends, or at once with what is wrong."""
        settings = self._around.settings
        low, high = settings.min_session_timeout_ms, settings.max_session_timeout_ms
        asked = request.session_timeout_ms
        if not low <= asked <= high:
            out_of_range = InvalidSessionTimeoutError(f"session timeout {asked} ms: expected {low} to {high}")
            reply(JoinResult(error=out_of_range, member_id=request.member_id or ""))
            return
        group = self._around.groups.get(request.group_id)
        if group is not None:
            self._join(group, request, now_ms, reply)
        elif request.member_id is not None:
            error = UnknownMemberIdError(f"there is no group {request.group_id}")
            reply(JoinResult(error=error, member_id=request.member_id))
        elif not Group(request.group_id).accepts(request.protocol_type, request.protocols):
            reply(JoinResult(error=_no_common_protocol(request)))
        else:
            self._found(request, now_ms, reply)

    def _found(self, request: JoinRequest, now_ms: TimestampMs, reply: JoinReply) -> None:
        """A new group is in the log before its first member hears of it."""
        group = Group(request.group_id, now_ms)
        self._around.groups[request.group_id] = group

        def founded(group: Group, outcome: Written) -> None:
            later_ms = max(now_ms, self._around.clock())
            if outcome.error is None:
                self._join(group, request, later_ms, reply)
            else:
                reply(JoinResult(error=outcome.error))
                self._around.forget_if_unused(group)

        self.rebalance.record(group, now_ms, founded)

    def _join(self, group: Group, request: JoinRequest, now_ms: TimestampMs, reply: JoinReply) -> None:
        member_id = request.member_id
        error: HoldfastError | None = None
        if group.is_in(GroupState.DEAD):
            error = CoordinatorNotAvailableError(f"group {group.group_id} is being deleted")
        elif not self._has_room(group, member_id):
            if member_id is not None:
                self.rebalance.remove_member(group, member_id)
                self.rebalance.after_removal(group, now_ms)
            error = GroupMaxSizeReachedError(f"group {group.group_id}: {self._around.settings.max_size} members")
            member_id = None
        elif not group.accepts(request.protocol_type, request.protocols):
            error = _no_common_protocol(request)
        if error is not None:
            reply(JoinResult(error=error, member_id=member_id or ""))
        elif member_id is None:
            self._join_without_id(group, request, now_ms, reply)
        else:
            self._join_with_id(group, member_id, request, now_ms, reply)

    def _has_room(self, group: Group, member_id: MemberId | None) -> bool:
        limit = self._around.settings.max_size
        member = None if member_id is None else group.members.get(member_id)
        match group.state:
            case GroupState.EMPTY | GroupState.DEAD:
                return True
            case GroupState.PREPARING_REBALANCE:
                waits = member is not None and member.join_reply is not None
                return waits or group.waiting_to_join < limit
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member is not None or len(group.members) < limit
            case _:  # pragma: no cover
                assert_never(group.state)

    def _join_without_id(self, group: Group, request: JoinRequest, now_ms: TimestampMs, reply: JoinReply) -> None:
        name = request.client_id if request.instance_id is None else request.instance_id
        new_id = f"{name}-{self._around.new_member_suffix()}"
        if request.instance_id is not None:
            if request.instance_id in group.static_members:
                self._join_static_again(group, new_id, request, now_ms, reply)
            else:
                self.rebalance.add_member(group, _member(new_id, request), reply, now_ms)
        elif request.must_know_id:
            self.rebalance.add_pending(group, new_id, request.session_timeout_ms, now_ms)
            reply(JoinResult(error=MemberIdRequiredError(f"join again as {new_id}"), member_id=new_id))
        else:
            self.rebalance.add_member(group, _member(new_id, request), reply, now_ms)

    def _join_with_id(
        self, group: Group, member_id: MemberId, request: JoinRequest, now_ms: TimestampMs, reply: JoinReply
    ) -> None:
        if member_id in group.pending_members and request.instance_id is None:
            self.rebalance.add_member(group, _member(member_id, request), reply, now_ms)
            return
        error = group.refusal(member_id, request.instance_id)
        if error is not None:
            reply(JoinResult(error=error, member_id=member_id))
            return
        member = group.members[member_id]
        same = member.strategies == request.protocols
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                unchanged = False
            case GroupState.COMPLETING_REBALANCE:
                unchanged = same  # its first answer was lost
            case GroupState.STABLE:
                # A leader that joins again wants to assign anew: something it alone can see has changed.
                unchanged = same and group.leader != member_id
            case GroupState.EMPTY | GroupState.DEAD:  # pragma: no cover - neither has members
                raise AssertionError(group.state)
            case _:  # pragma: no cover
                assert_never(group.state)
        if unchanged:
            self.rebalance.heard_of(group, member, now_ms)
            reply(self.rebalance.joined(group, member))
            return
        self._update(group, member, request, reply)
        self.rebalance.start_or_finish(group, now_ms)

    def _update(self, group: Group, member: Member, request: JoinRequest, reply: JoinReply) -> None:
        # An earlier request of the same member, from a connection it gave up, must not stay without answer.
        member.refuse(RebalanceInProgressError(f"{member.member_id} joined again"))
        group.update(member, request.protocols)
        member.client_id, member.client_host = request.client_id, request.client_host
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.join_reply = reply

    def _join_static_again(
        self, group: Group, new_id: MemberId, request: JoinRequest, now_ms: TimestampMs, reply: JoinReply
    ) -> None:
        """A static member restarted: it takes its old place, without a rebalance if that changes nothing."""
        instance_id = request.instance_id
        assert instance_id is not None
        old_id, old_leader = group.static_members[instance_id], group.leader
        member = group.replace_static(instance_id, new_id)
        self._around.deadlines.cancel(("session", group.group_id, old_id))
        before = (member.strategies, member.session_timeout_ms, member.rebalance_timeout_ms)
        self._update(group, member, request, reply)
        self.rebalance.heard_of(group, member, now_ms)
        if not group.is_in(GroupState.STABLE) or group.vote() != group.protocol_name:
            self.rebalance.start_or_finish(group, now_ms)
            return

        def written(group: Group, outcome: Written) -> None:
            if member.join_reply is not reply:
                return  # a rebalance began meanwhile and answers it
            later_ms = max(now_ms, self._around.clock())
            if outcome.error is not None:
                member.answer_join(JoinResult(error=outcome.error))
                if group.static_members.get(instance_id) == new_id and not outcome.is_in_log:
                    group.replace_static(instance_id, old_id)
                    group.update(member, before[0])
                    _, member.session_timeout_ms, member.rebalance_timeout_ms = before
                    self._around.deadlines.cancel(("session", group.group_id, new_id))
                self.rebalance.heard_of(group, member, later_ms)
                return
            self.rebalance.heard_of(group, member, later_ms)
            if request.may_skip_assignment:
                skip = group.leader == new_id
                member.answer_join(self.rebalance.joined(group, member, skip_assignment=skip))
            else:
                # An old client that sees itself as leader would assign; under its old name it does not.
                member.answer_join(
                    JoinResult(
                        member_id=new_id,
                        generation=group.generation,
                        protocol_type=group.protocol_type,
                        protocol_name=group.protocol_name,
                        leader=old_leader or "",
                    )
                )

        self.rebalance.record(group, now_ms, written)

    # -- SyncGroup -------------------------------------------------------------------------------------------

    def sync(self, request: SyncRequest, now_ms: TimestampMs, reply: SyncReply) -> None:
        """Answered once the leader has assigned, or at once with what is wrong."""
        group = self._around.groups.get(request.group_id)
        error = self._sync_refusal(group, request)
        if error is not None or group is None:
            reply(SyncResult(error=error))
            return
        member = group.members[request.member_id]
        self.rebalance.synced(group, request.member_id)
        if group.is_in(GroupState.STABLE):
            self.rebalance.heard_of(group, member, now_ms)
            reply(self.rebalance.assignment(group, member))
            return
        member.answer_sync(SyncResult(error=RebalanceInProgressError(f"{member.member_id} synced again")))
        member.sync_reply = reply
        if group.leader == request.member_id:
            given = dict(request.assignments)
            self.rebalance.assign(group, {m: given.get(m, b"") for m in group.members}, now_ms)

    def _sync_refusal(self, group: Group | None, request: SyncRequest) -> HoldfastError | None:
        if group is None:
            return UnknownMemberIdError(f"there is no group {request.group_id}")
        if group.is_in(GroupState.DEAD):
            return CoordinatorNotAvailableError(f"group {group.group_id} is being deleted")
        error = group.refusal(request.member_id, request.instance_id)
        if error is not None:
            return error
        if request.generation != group.generation:
            return _wrong_generation(group, request.generation)
        for kind, asked, real in (
            ("type", request.protocol_type, group.protocol_type),
            ("name", request.protocol_name, group.protocol_name),
        ):
            if asked is not None and real is not None and asked != real:
                return InconsistentGroupProtocolError(f"protocol {kind} {asked}: expected {real}")
        if group.is_in(GroupState.PREPARING_REBALANCE):
            return RebalanceInProgressError(f"group {group.group_id} is rebalancing")
        return None

    # -- Heartbeat -------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, now_ms: TimestampMs) -> HoldfastError | None:
        """None, or what the member has to do now."""
        group = self._around.groups.get(request.group_id)
        if group is None:
            return UnknownMemberIdError(f"there is no group {request.group_id}")
        if group.is_in(GroupState.DEAD):
            return CoordinatorNotAvailableError(f"group {group.group_id} is being deleted")
        error = group.refusal(request.member_id, request.instance_id)
        if error is not None:
            return error
        if request.generation != group.generation:
            return _wrong_generation(group, request.generation)
        self.rebalance.heard_of(group, group.members[request.member_id], now_ms)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            return RebalanceInProgressError(f"group {group.group_id} is rebalancing")
        return None

    # -- LeaveGroup ------------------------------------------------------------------------------------------

    def leave(self, group_id: str, leaving: tuple[Leaving, ...], now_ms: TimestampMs) -> LeaveResult:
        """Members go, or are sent away by an operator; the rest rebalances once."""
        group = self._around.groups.get(group_id)
        if group is None:
            return LeaveResult(error=UnknownMemberIdError(f"there is no group {group_id}"))
        if group.is_in(GroupState.DEAD):
            return LeaveResult(error=CoordinatorNotAvailableError(f"group {group_id} is being deleted"))
        results = tuple(Left(one, self._leave(group, one)) for one in leaving)
        if any(result.error is None for result in results):
            self.rebalance.after_removal(group, now_ms)
            self._around.forget_if_unused(group)
        return LeaveResult(members=results)

    def _leave(self, group: Group, leaving: Leaving) -> HoldfastError | None:
        member_id = leaving.member_id
        if member_id is None:
            if leaving.instance_id is not None:
                member_id = group.static_members.get(leaving.instance_id)
            if member_id is None:
                return UnknownMemberIdError(f"group {group.group_id} has no instance {leaving.instance_id}")
        elif member_id not in group.pending_members:
            error = group.refusal(member_id, leaving.instance_id)
            if error is not None:
                return error
        self.rebalance.remove_member(group, member_id)
        return None


def _member(member_id: MemberId, request: JoinRequest) -> Member:
    return Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        strategies=request.protocols,
    )


def _no_common_protocol(request: JoinRequest) -> HoldfastError:
    names = ", ".join(s.name for s in request.protocols) or "none"
    return InconsistentGroupProtocolError(
        f"group {request.group_id}: no member can join with type {request.protocol_type!r} and protocols {names}"
    )


def _wrong_generation(group: Group, generation: int) -> HoldfastError:
    return IllegalGenerationError(f"group {group.group_id} is at generation {group.generation}, not {generation}")
