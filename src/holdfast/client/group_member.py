"""One member of a consumer group of the classic protocol, with Kafka's ``range`` assignment.

    out --join--> joined --heartbeat says so, or is refused--> out --join--> ...
                       \\--leave--> gone

Owns the membership: member id, generation, heartbeats. Never fetches records. It has connections of its own, since a
JoinGroup may wait for minutes and requests of one connection are answered in order.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId
from kio.static.primitive import i32

from holdfast.client.admin import AdminClient
from holdfast.client.cluster import milliseconds
from holdfast.client.group_translate import (
    assign_ranges,
    assignment_of,
    encode_assignment,
    encode_subscription,
    offset_commit_request,
    raise_commit_errors,
)
from holdfast.client.refused import raise_for
from holdfast.client.security import SecuritySettings
from holdfast.groups.consumer_protocol import subscribed_topics
from holdfast.model.errors import HoldfastError
from holdfast.model.group_errors import (
    FencedInstanceIdError,
    GroupError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from holdfast.model.types import BrokerId, Offset, TopicPartition

CONSUMER = "consumer"
RANGE = "range"
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 300_000
HEARTBEAT_S = 3.0
NOT_IN_GROUP = (UnknownMemberIdError, IllegalGenerationError, FencedInstanceIdError)


class ConsumerGroupMember:
    """``await join()`` until ``needs_join``; ``commit`` in between; ``leave`` at the end."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        group_id: str,
        topics: Sequence[str],
        *,
        client_id: str = "holdfast",
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        rebalance_timeout_ms: int = REBALANCE_TIMEOUT_MS,
        security: SecuritySettings | None = None,
    ) -> None:
        self.group_id = group_id
        self.assignment: tuple[TopicPartition, ...] = ()
        self.needs_join = True
        self._topics = tuple(topics)
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._client = AdminClient(bootstrap, client_id=client_id, timeout_s=60.0, security=security)
        self._member_id = ""
        self._generation = -1
        self._coordinator: BrokerId | None = None
        self._heart: asyncio.Task[None] | None = None

    async def join(self) -> tuple[TopicPartition, ...]:
        """Waits until the group has settled; returns what this member reads from now on."""
        await self._stop_heart()
        while True:
            try:
                self.assignment = await self._client.retrying(self._join_once, lasting=(GroupError,))
                break
            except (MemberIdRequiredError, RebalanceInProgressError):
                continue
            except NOT_IN_GROUP:
                self._member_id, self._generation = "", -1
            except GroupError as e:
                if not e.retriable:
                    raise
                await asyncio.sleep(0.1)
        self.needs_join = False
        self._heart = asyncio.ensure_future(self._beat())
        return self.assignment

    async def _join_once(self) -> tuple[TopicPartition, ...]:
        from kio.schema.join_group.v7.request import JoinGroupRequest, JoinGroupRequestProtocol

        answer = await self._ask(
            JoinGroupRequest(
                group_id=GroupId(self.group_id),
                session_timeout=milliseconds(self._session_timeout_ms),
                rebalance_timeout=milliseconds(self._rebalance_timeout_ms),
                member_id=self._member_id,
                protocol_type=CONSUMER,
                protocols=(JoinGroupRequestProtocol(name=RANGE, metadata=encode_subscription(self._topics)),),
            ),
            timeout_s=self._rebalance_timeout_ms / 1000 + 5,
        )
        self._member_id = answer.member_id or self._member_id
        raise_for(answer.error_code.value, None, f"joining group {self.group_id!r}")
        if answer.protocol_name != RANGE:
            raise InconsistentGroupProtocolError(
                f"group {self.group_id!r} assigns by {answer.protocol_name!r}: this client knows {RANGE!r}"
            )
        self._generation = int(answer.generation_id)
        plan = await self._plan(answer.members) if answer.leader == self._member_id else {}
        return await self._sync(plan)

    async def _plan(self, members: Iterable[Any]) -> Mapping[str, tuple[TopicPartition, ...]]:
        wanted = {m.member_id: subscribed_topics(bytes(m.metadata)) or frozenset() for m in members}
        view = await self._client.metadata(sorted(frozenset().union(*wanted.values())))
        counts = {name: len(topic.partitions) for name, topic in view.topics.items() if topic.error is None}
        return assign_ranges(wanted, counts)

    async def _sync(self, plan: Mapping[str, tuple[TopicPartition, ...]]) -> tuple[TopicPartition, ...]:
        from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment

        answer = await self._ask(
            SyncGroupRequest(
                group_id=GroupId(self.group_id),
                generation_id=i32(self._generation),
                member_id=self._member_id,
                protocol_type=CONSUMER,
                protocol_name=RANGE,
                assignments=tuple(
                    SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(tps))
                    for member, tps in plan.items()
                ),
            ),
            timeout_s=self._rebalance_timeout_ms / 1000 + 5,
        )
        raise_for(answer.error_code.value, None, f"assignment of group {self.group_id!r}")
        return assignment_of(bytes(answer.assignment))

    async def _beat(self) -> None:
        from kio.schema.heartbeat.v4.request import HeartbeatRequest

        while True:
            await asyncio.sleep(HEARTBEAT_S)
            request = HeartbeatRequest(
                group_id=GroupId(self.group_id),
                generation_id=i32(self._generation),
                member_id=self._member_id,
            )
            try:
                answer = await self._ask(request, timeout_s=HEARTBEAT_S * 3)
                raise_for(answer.error_code.value, None, f"heartbeat to group {self.group_id!r}")
            except (RebalanceInProgressError, *NOT_IN_GROUP) as e:
                if not isinstance(e, RebalanceInProgressError):
                    self._member_id, self._generation = "", -1
                self.needs_join = True
                return
            except HoldfastError as e:
                if not e.retriable:
                    self.needs_join = True
                    return

    async def committed(self) -> dict[TopicPartition, Offset]:
        """Offsets to begin at, of the assigned partitions that have one."""
        found = await self._client.committed(self.group_id, self.assignment)
        return {tp: at.offset for tp, at in found.items()}

    async def commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Raises what the coordinator says; after UnknownMemberId and the like the member must join again."""
        if not offsets:
            return

        async def once() -> None:
            request = offset_commit_request(self.group_id, self._generation, self._member_id, offsets)
            try:
                raise_commit_errors(await self._ask(request, timeout_s=30))
            except NotCoordinatorError:
                self._coordinator = None
                raise

        try:
            await self._client.retrying(once, lasting=(RebalanceInProgressError,))
        except (RebalanceInProgressError, *NOT_IN_GROUP):
            self.needs_join = True
            raise

    async def leave(self) -> None:
        """Tells the group; errors do not matter any more."""
        from kio.schema.leave_group.v4.request import LeaveGroupRequest, MemberIdentity

        await self._stop_heart()
        if self._member_id:
            request = LeaveGroupRequest(
                group_id=GroupId(self.group_id), members=(MemberIdentity(member_id=self._member_id),)
            )
            with contextlib.suppress(HoldfastError):
                await self._ask(request, timeout_s=5)
        self._client.close()

    async def _ask(self, request: Any, *, timeout_s: float) -> Any:
        if self._coordinator is None:
            self._coordinator = (await self._client.find_coordinator(self.group_id)).broker_id
        try:
            answer = await self._client.ask_broker(self._coordinator, request, timeout_s=timeout_s)
        except HoldfastError:
            self._coordinator = None
            raise
        if getattr(answer, "error_code", ErrorCode.none) in (
            ErrorCode.not_coordinator,
            ErrorCode.coordinator_not_available,
        ):
            self._coordinator = None
        return answer

    async def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            with contextlib.suppress(asyncio.CancelledError, HoldfastError):
                await self._heart
            self._heart = None
