"""One group and its members: what is known, and the questions that have an answer in it. Decides nothing.

Kafka calls this ClassicGroup. Invariants:
* ``leader`` is a member whenever there are members;
* every strategy of every member is counted in ``_speakers``, so whether a newcomer fits is one look-up each;
* a member waits in at most one of JoinGroup and SyncGroup;
* the offsets are those whose records are in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.groups.consumer_protocol import CONSUMER, subscribed_topics
from holdfast.groups.offset_records import GroupRecord, MemberRecord
from holdfast.groups.states import MAY_BECOME, GroupState
from holdfast.groups.types import (
    Generation,
    GroupId,
    InstanceId,
    JoinedMember,
    JoinReply,
    JoinResult,
    MemberId,
    OffsetAndMetadata,
    Strategy,
    SyncReply,
    SyncResult,
)
from holdfast.model.errors import HoldfastError
from holdfast.model.group_errors import FencedInstanceIdError, UnknownMemberIdError
from holdfast.model.types import TimestampMs, TopicPartition


class Member:
    """One consumer of a group."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocol_type",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "strategies",
        "sync_reply",
    )

    def __init__(
        self,
        *,
        member_id: MemberId,
        instance_id: InstanceId | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol_type: str,
        strategies: tuple[Strategy, ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocol_type = protocol_type
        self.strategies = strategies
        self.assignment = assignment
        self.is_new = False
        """Has never been through a finished JoinGroup."""
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None

    @property
    def is_static(self) -> bool:
        """It has an instance id and survives its own restarts."""
        return self.instance_id is not None

    @property
    def keeps_itself_alive(self) -> bool:
        """It waits in a request, so no heartbeat can be asked of it; a new one has its own, longer limit."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, strategy: str | None) -> bytes:
        """What it brought for that strategy."""
        return next((s.metadata for s in self.strategies if s.name == strategy), b"")

    def answer_join(self, result: JoinResult) -> bool:
        """Answer its JoinGroup; whether one was waiting."""
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            reply(result)
        return reply is not None

    def answer_sync(self, result: SyncResult) -> bool:
        """Answer its SyncGroup; whether one was waiting."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is not None:
            reply(result)
        return reply is not None

    def refuse(self, error: HoldfastError, *, member_id: MemberId | None = None) -> None:
        """Answer whatever it waits for with an error."""
        self.answer_join(JoinResult(error=error, member_id=self.member_id if member_id is None else member_id))
        self.answer_sync(SyncResult(error=error))


class Group:
    """See the module's docstring."""

    __slots__ = (
        "_speakers",
        "assigning",
        "generation",
        "group_id",
        "has_newcomers",
        "in_transactions",
        "is_recorded",
        "leader",
        "members",
        "offsets",
        "pending_commits",
        "pending_members",
        "pending_records",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_ms",
        "static_members",
        "subscriptions",
        "transactional_writes",
    )

    def __init__(self, group_id: GroupId, now_ms: TimestampMs | None = None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_ms = now_ms
        self.generation: Generation = 0
        self.protocol_type: str | None = None
        """None as long as the group has never had a member: a simple consumer only commits to it."""
        self.protocol_name: str | None = None
        self.leader: MemberId | None = None
        self.members: dict[MemberId, Member] = {}
        self.static_members: dict[InstanceId, MemberId] = {}
        self.pending_members: set[MemberId] = set()
        """Ids that were given out and have not joined with it yet."""
        self.pending_syncs: set[MemberId] = set()
        """Members of this generation whose SyncGroup has not come."""
        self.assigning: Generation | None = None
        """The generation whose assignment is being written."""
        self.has_newcomers = False
        """Somebody joined since the initial delay was last extended."""
        self.subscriptions: frozenset[str] | None = frozenset()
        """Topics of all members, None when one of them cannot be read."""
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.in_transactions: dict[TopicPartition, dict[int, OffsetAndMetadata | None]] = {}
        """Offsets in the log whose transaction has no marker yet, by producer id, in the order of the log. None: it
        will count for nothing, since a newer offset is committed."""
        self.transactional_writes: Counter[TopicPartition] = Counter()
        """Those that are being written; they are among ``pending_commits``, too."""
        self.pending_commits: Counter[TopicPartition] = Counter()
        """Commits that are being written, by partition."""
        self.pending_records = 0
        """Records of the group itself that are being written."""
        self.is_recorded = False
        """The log has a record of the group beside its offsets."""
        self._speakers: Counter[str] = Counter()

    # -- state ---------------------------------------------------------------------------------------------

    def become(self, state: GroupState, now_ms: TimestampMs) -> None:
        """Change the state; a move that the table does not have is a bug."""
        assert state in MAY_BECOME[self.state], f"group {self.group_id}: {self.state} cannot become {state}"
        self.previous_state, self.state = self.state, state
        self.state_ms = now_ms

    def is_in(self, *states: GroupState) -> bool:
        """Whether it is in one of these."""
        return self.state in states

    def is_unstable(self, tp: TopicPartition) -> bool:
        """Whether a transaction that has not ended may change the offset."""
        return tp in self.in_transactions or tp in self.transactional_writes

    @property
    def is_unused(self) -> bool:
        """Nothing would be lost by forgetting it."""
        return (
            self.state is GroupState.EMPTY
            and not self.offsets
            and not self.in_transactions
            and not self.pending_commits
            and not self.pending_members
            and not self.pending_records
            and not self.generation
        )

    # -- members -------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Take a member in; the first one leads and says the group's protocol type."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending_members.discard(member.member_id)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._count(member.strategies, +1)

    def update(self, member: Member, strategies: tuple[Strategy, ...]) -> None:
        """The member now speaks these strategies."""
        self._count(member.strategies, -1)
        member.strategies = strategies
        self._count(strategies, +1)

    def remove(self, member_id: MemberId) -> Member | None:
        """Let a member (or an id that was only given out) go; another one leads if it did."""
        self.pending_members.discard(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count(member.strategies, -1)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static(self, instance_id: InstanceId, new_id: MemberId) -> Member:
        """The instance came back under a new member id; whoever waits under the old one is fenced."""
        old_id = self.static_members[instance_id]
        member = self.members[old_id]
        member.refuse(FencedInstanceIdError(f"{instance_id} joined again as {new_id}"))
        # The order of members is kept: it decides ties and who leads next.
        self.members = {new_id if i == old_id else i: m for i, m in self.members.items()}
        member.member_id = new_id
        self.static_members[instance_id] = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(new_id)
        if self.leader == old_id:
            self.leader = new_id
        return member

    def refusal(self, member_id: MemberId, instance_id: InstanceId | None) -> HoldfastError | None:
        """Why this is not a member, or None."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return UnknownMemberIdError(f"group {self.group_id} has no instance {instance_id}")
            if known != member_id:
                return FencedInstanceIdError(f"instance {instance_id} is {known} now, not {member_id}")
            return None
        if member_id not in self.members:
            return UnknownMemberIdError(f"group {self.group_id} has no member {member_id!r}")
        return None

    @property
    def waiting_to_join(self) -> int:
        """How many members wait in JoinGroup."""
        return sum(m.join_reply is not None for m in self.members.values())

    @property
    def all_joined(self) -> bool:
        """Nobody is missing in the rebalance."""
        return not self.pending_members and all(m.join_reply is not None for m in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member asked for."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Whether the leader is one that has joined; a static one that has not gives way to one that has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_reply is None:
            joined = next((m.member_id for m in self.members.values() if m.join_reply is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """What the leader needs to assign."""
        return tuple(
            JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol_name)) for m in self.members.values()
        )

    # -- protocols -----------------------------------------------------------------------------------------

    def accepts(self, protocol_type: str, strategies: Iterable[Strategy]) -> bool:
        """Whether somebody who speaks these can be a member."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in strategies)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self._speakers[s.name] == everybody for s in strategies)

    def vote(self) -> str:
        """The strategy that most members like best of those that all speak; the first named wins a tie."""
        everybody = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(s.name for s in member.strategies if self._speakers[s.name] == everybody)] += 1
        return votes.most_common(1)[0][0]

    def next_generation(self, now_ms: TimestampMs) -> None:
        """The rebalance is over: a new generation, to be assigned, or none if nobody is left."""
        self.generation += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.vote()
            self.become(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.become(GroupState.EMPTY, now_ms)
        self.read_subscriptions()

    def read_subscriptions(self) -> None:
        """Which topics the members of this generation subscribe to."""
        topics: frozenset[str] = frozenset()
        for member in self.members.values():
            own = subscribed_topics(member.metadata(self.protocol_name))
            if own is None:
                self.subscriptions = None
                return
            topics |= own
        self.subscriptions = topics

    @property
    def is_consumer(self) -> bool:
        """Its members are consumers, whose metadata can be read."""
        return self.protocol_type == CONSUMER

    def subscribes_to(self, topic: str) -> bool:
        """Whether a live member reads the topic; when that cannot be known, no."""
        return self.is_consumer and self.subscriptions is not None and topic in self.subscriptions

    def _count(self, strategies: tuple[Strategy, ...], by: int) -> None:
        for name in {s.name for s in strategies}:
            self._speakers[name] += by

    # -- records -------------------------------------------------------------------------------------------

    def record(self, assignments: dict[MemberId, bytes] | None = None) -> GroupRecord:
        """Itself as a record, with the assignments that are about to be made."""
        return GroupRecord(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader=self.leader,
            state_ms=self.state_ms,
            members=tuple(
                MemberRecord(
                    member_id=m.member_id,
                    instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    rebalance_timeout_ms=m.rebalance_timeout_ms,
                    session_timeout_ms=m.session_timeout_ms,
                    subscription=m.metadata(self.protocol_name),
                    assignment=m.assignment if assignments is None else assignments.get(m.member_id, b""),
                )
                for m in self.members.values()
            ),
        )

    def restore(self, record: GroupRecord) -> None:
        """Become what the record says: stable, or empty without members."""
        assert not self.members
        self.is_recorded = True
        self.generation = record.generation
        self.protocol_type = record.protocol_type or None
        self.protocol_name = record.protocol_name
        self.state_ms = record.state_ms
        self.state = GroupState.STABLE if record.members else GroupState.EMPTY
        for m in record.members:
            self.add(
                Member(
                    member_id=m.member_id,
                    instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    session_timeout_ms=m.session_timeout_ms,
                    rebalance_timeout_ms=m.rebalance_timeout_ms,
                    protocol_type=record.protocol_type,
                    strategies=(Strategy(record.protocol_name or "", m.subscription),),
                    assignment=m.assignment,
                )
            )
        if record.leader in self.members:
            self.leader = record.leader
        self.read_subscriptions()
