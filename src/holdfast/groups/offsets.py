"""Committed offsets: commit, fetch, delete, expire. And the end of groups that have nothing left.

An offset is in memory when its record is in the log, in the order of the log; so a fetch never sees a commit that
a failover would lose, except one whose replication was not confirmed in time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from holdfast.coordinators.journal import Entry, Written
from holdfast.groups.group import Group
from holdfast.groups.offset_records import encode_group_key, encode_offset, encode_offset_key
from holdfast.groups.pending_offsets import PendingOffsets, overtake
from holdfast.groups.rebalance import Rebalance
from holdfast.groups.states import GroupState
from holdfast.groups.surroundings import GroupSurroundings
from holdfast.groups.types import (
    CommitReply,
    CommitRequest,
    CommitResult,
    FetchedOffsets,
    GroupId,
    OffsetAndMetadata,
    OffsetDeleteResult,
    OffsetsTransaction,
    OffsetToCommit,
)
from holdfast.model.errors import HoldfastError
from holdfast.model.group_errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from holdfast.model.types import TimestampMs, TopicPartition


class Offsets:
    """See the module's docstring."""

    __slots__ = ("_around", "_rebalance", "pending")

    def __init__(self, around: GroupSurroundings, rebalance: Rebalance) -> None:
        self._around = around
        self._rebalance = rebalance
        self.pending = PendingOffsets(around.groups)

    # -- commit ----------------------------------------------------------------------------------------------

    def commit(self, request: CommitRequest, now_ms: TimestampMs, reply: CommitReply) -> None:
        """Answered when the offsets are written, each partition on its own."""
        group = self._around.groups.get(request.group_id)
        error = self._refusal(group, request)
        if error is not None:
            reply(dict.fromkeys((o.tp for o in request.offsets), error))
            return
        result: CommitResult = {}
        accepted: list[tuple[TopicPartition, OffsetAndMetadata]] = []
        for one in request.offsets:
            result[one.tp] = self._too_large(one)
            if result[one.tp] is None:
                accepted.append((one.tp, _committed(one, request.retention_ms, now_ms)))
        is_member = group is not None and request.member_id in group.members and request.transaction is None
        if group is not None and request.member_id is not None and is_member:
            self._rebalance.heard_of(group, group.members[request.member_id], now_ms)
        if not accepted:
            reply(result)
            return
        if group is None:
            group = self._around.groups[request.group_id] = Group(request.group_id, now_ms)
        if request.transaction is None:
            self._write(group, accepted, result, now_ms, reply)
        else:
            self._write_within(request.transaction, group, accepted, result, now_ms, reply)

    def _write(
        self,
        group: Group,
        accepted: list[tuple[TopicPartition, OffsetAndMetadata]],
        result: CommitResult,
        now_ms: TimestampMs,
        reply: CommitReply,
    ) -> None:
        group.pending_commits.update(tp for tp, _ in accepted)

        def written(outcome: Written) -> None:
            group.pending_commits -= Counter(tp for tp, _ in accepted)
            for tp, committed in accepted:
                result[tp] = outcome.error
                if outcome.is_in_log:
                    group.offsets[tp] = committed
                    overtake(group, tp)
            reply(result)
            self._around.forget_if_unused(group)

        self._around.journal.write(_entries(group, accepted), now_ms, written)

    def _write_within(
        self,
        transaction: OffsetsTransaction,
        group: Group,
        accepted: list[tuple[TopicPartition, OffsetAndMetadata]],
        result: CommitResult,
        now_ms: TimestampMs,
        reply: CommitReply,
    ) -> None:
        writes = Counter(tp for tp, _ in accepted)
        group.pending_commits += writes
        group.transactional_writes += writes

        def written(outcome: Written) -> None:
            group.pending_commits -= writes
            group.transactional_writes -= writes
            for tp, committed in accepted:
                result[tp] = outcome.error
                if outcome.is_in_log:
                    self.pending.written(group, tp, transaction.producer_id, committed)
            reply(result)
            self._around.forget_if_unused(group)

        self._around.journal.write_within(transaction, _entries(group, accepted), now_ms, written)

    def _refusal(self, group: Group | None, request: CommitRequest) -> HoldfastError | None:
        generation, is_plain = request.generation, request.transaction is None
        if group is None:
            if generation is None:
                return None  # a consumer outside any group: one is made for its offsets
            text = f"there is no group {request.group_id}"
            return GroupIdNotFoundError(text) if request.knows_group_not_found else IllegalGenerationError(text)
        if group.is_in(GroupState.DEAD):
            return CoordinatorNotAvailableError(f"group {group.group_id} is being deleted")
        if generation is None and group.is_in(GroupState.EMPTY):
            return None
        if generation is None and request.member_id is None and request.instance_id is None:
            if not is_plain:  # clients before version 3 do not say who they are: their producer is fenced
                return None
            return UnknownMemberIdError(f"group {group.group_id} has members: only they may commit")
        error = group.refusal(request.member_id or "", request.instance_id)
        if error is not None:
            return error
        if generation != group.generation:
            return IllegalGenerationError(
                f"group {group.group_id} is at generation {group.generation}, not {generation}"
            )
        if is_plain and group.is_in(GroupState.COMPLETING_REBALANCE):
            return RebalanceInProgressError(f"group {group.group_id}: the new assignment is not known yet")
        return None

    def _too_large(self, one: OffsetToCommit) -> HoldfastError | None:
        limit = self._around.settings.offset_metadata_max_bytes
        if len(one.metadata) <= limit:
            return None
        return OffsetMetadataTooLargeError(
            f"metadata of {len(one.metadata)} characters for {one.tp}: expected at most {limit}"
        )

    # -- fetch -----------------------------------------------------------------------------------------------

    def fetch(
        self, group_id: GroupId, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> FetchedOffsets:
        """What is committed for these partitions, or for all."""
        group = self._around.groups.get(group_id)
        if group is None:
            return FetchedOffsets(offsets=dict.fromkeys(partitions or ()))
        known = group.offsets
        asked = sorted(known) if partitions is None else partitions
        found = {tp: known.get(tp) for tp in asked}
        if not require_stable or not (group.in_transactions or group.transactional_writes):
            return FetchedOffsets(offsets=found)
        return FetchedOffsets(offsets=found, unstable=frozenset(tp for tp in found if group.is_unstable(tp)))

    # -- delete ----------------------------------------------------------------------------------------------

    def delete(
        self,
        group_id: GroupId,
        partitions: tuple[TopicPartition, ...],
        now_ms: TimestampMs,
        reply: Callable[[OffsetDeleteResult], None],
    ) -> None:
        """Forget offsets of topics that no live member subscribes to."""
        group = self._around.groups.get(group_id)
        error: HoldfastError | None = None
        if group is None or group.is_in(GroupState.DEAD):
            error = GroupIdNotFoundError(f"there is no group {group_id}")
        elif not group.is_in(GroupState.EMPTY) and not group.is_consumer:
            error = NonEmptyGroupError(f"group {group_id} has members of type {group.protocol_type}")
        if error is not None or group is None:
            reply(OffsetDeleteResult(error=error, partitions={}))
            return
        results: dict[TopicPartition, HoldfastError | None] = {
            tp: GroupSubscribedToTopicError(f"group {group_id} subscribes to {tp.topic}")
            if group.subscribes_to(tp.topic)
            else None
            for tp in partitions
        }
        gone = [tp for tp, refused in results.items() if refused is None and tp in _known(group)]

        def written(outcome: Written) -> None:
            results.update(dict.fromkeys(gone, outcome.error))
            reply(OffsetDeleteResult(partitions=results))

        if gone:
            self._drop(group, gone, now_ms, written)
        else:
            reply(OffsetDeleteResult(partitions=results))

    def _drop(
        self,
        group: Group,
        partitions: list[TopicPartition],
        now_ms: TimestampMs,
        then: Callable[[Written], None],
    ) -> None:
        def written(outcome: Written) -> None:
            if outcome.is_in_log:
                for tp in partitions:
                    group.offsets.pop(tp, None)
                    group.in_transactions.pop(tp, None)
            then(outcome)

        entries = [Entry(encode_offset_key(group.group_id, tp), None) for tp in partitions]
        self._around.journal.write(entries, now_ms, written)

    # -- the end of groups -----------------------------------------------------------------------------------

    def delete_group(
        self, group_id: GroupId, now_ms: TimestampMs, reply: Callable[[HoldfastError | None], None]
    ) -> None:
        """Forget a group that has no members, with all its offsets."""
        group = self._around.groups.get(group_id)
        if group is None or group.is_in(GroupState.DEAD):
            reply(GroupIdNotFoundError(f"there is no group {group_id}"))
        elif not group.is_in(GroupState.EMPTY):
            reply(NonEmptyGroupError(f"group {group_id} is {group.state.value}: only empty groups can be deleted"))
        else:
            self._bury(group, now_ms, reply)

    def _bury(self, group: Group, now_ms: TimestampMs, then: Callable[[HoldfastError | None], None]) -> None:
        since_ms = group.state_ms
        for member_id in list(group.pending_members):
            self._rebalance.remove_member(group, member_id)
        group.become(GroupState.DEAD, now_ms)

        def written(outcome: Written) -> None:
            if outcome.is_in_log:
                if self._around.groups.get(group.group_id) is group:
                    del self._around.groups[group.group_id]
            elif self._around.journal.is_open:
                group.become(GroupState.EMPTY, now_ms)
                group.state_ms = since_ms
            then(outcome.error)

        entries = [Entry(encode_offset_key(group.group_id, tp), None) for tp in sorted(_known(group))]
        entries.append(Entry(encode_group_key(group.group_id), None))
        self._around.journal.write(entries, now_ms, written)

    def expire(self, now_ms: TimestampMs) -> None:
        """Drop offsets past their retention, and empty groups that have none left."""
        for group in list(self._around.groups.values()):
            expired = [
                tp
                for tp, c in group.offsets.items()
                if not group.is_unstable(tp) and self._has_expired(group, tp, c, now_ms)
            ]
            last = len(expired) == len(group.offsets) and not group.in_transactions
            if last and group.is_in(GroupState.EMPTY) and not group.pending_commits and not group.pending_members:
                self._bury(group, now_ms, lambda _error: None)
            elif expired and not group.pending_commits:
                self._drop(group, expired, now_ms, lambda _outcome: None)

    def _has_expired(self, group: Group, tp: TopicPartition, committed: OffsetAndMetadata, now_ms: TimestampMs) -> bool:
        since_ms = committed.commit_ms
        if group.protocol_type is not None:
            if group.is_in(GroupState.EMPTY):
                since_ms = since_ms if group.state_ms is None else group.state_ms
            elif (
                not (group.is_in(GroupState.STABLE) and group.is_consumer)
                or group.subscriptions is None
                or tp.topic in group.subscriptions
            ):
                return False
        if committed.expire_ms is not None:
            return now_ms >= committed.expire_ms
        return now_ms - since_ms >= self._around.settings.offsets_retention_ms

    def forget_topics(self, topics: frozenset[str], now_ms: TimestampMs) -> None:
        """The topics were deleted: offsets in them mean nothing."""
        for group in self._around.groups.values():
            gone = [tp for tp in _known(group) if tp.topic in topics]
            if gone and not group.is_in(GroupState.DEAD):
                self._drop(group, gone, now_ms, lambda _outcome: None)


def _known(group: Group) -> set[TopicPartition]:
    """Partitions that the log has or will have an offset for: what is being written precedes any tombstone."""
    return group.offsets.keys() | group.pending_commits.keys() | group.in_transactions.keys()


def _entries(group: Group, accepted: list[tuple[TopicPartition, OffsetAndMetadata]]) -> list[Entry]:
    return [Entry(encode_offset_key(group.group_id, tp), encode_offset(c)) for tp, c in accepted]


def _committed(one: OffsetToCommit, retention_ms: int | None, now_ms: TimestampMs) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        offset=one.offset,
        leader_epoch=one.leader_epoch,
        metadata=one.metadata,
        commit_ms=now_ms,
        expire_ms=None if retention_ms is None else now_ms + retention_ms,
        topic_id=one.topic_id,
    )
