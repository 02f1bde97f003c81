"""The offsets of groups by an operator's hand: what a reset would make of them, and their end: OffsetDelete (47).

Functions over an AdminClient. Rules of resets are in offset_resets.py; here is what they have to know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from holdfast.client.admin import AdminClient
from holdfast.client.log_offsets import log_spans
from holdfast.client.offset_resets import Form, Reset, resets, time_of
from holdfast.client.refused import raise_for, refusal
from holdfast.client.views import CommittedOffset
from holdfast.model.errors import HoldfastError, InvalidRequestError
from holdfast.model.group_errors import GroupIdNotFoundError, NonEmptyGroupError
from holdfast.model.types import TopicPartition

RESETTABLE = ("Empty", "Dead")
"""States of groups that nobody is in."""


async def require_inactive(client: AdminClient, group_id: str) -> None:
    """NonEmptyGroupError while it has members. One that does not exist has none."""
    try:
        state = (await client.describe_group(group_id)).state
    except GroupIdNotFoundError:
        return
    if state not in RESETTABLE:
        raise NonEmptyGroupError(
            f"Assignments can only be reset if the group '{group_id}' is inactive, but the current state is {state}."
        )


async def plan_reset(
    client: AdminClient, group_id: str, form: Form, partitions: Collection[TopicPartition] | None
) -> dict[TopicPartition, Reset]:
    """The new offset of each partition, of all that it has committed for with None; nothing is changed.

    NonEmptyGroupError, InvalidRequestError, LeaderNotAvailableError: then no offset of the group is to be changed.
    """
    await require_inactive(client, group_id)
    committed = {tp: at.offset for tp, at in (await client.committed(group_id)).items()}
    if partitions is None:
        partitions = committed.keys()
        if not committed:
            raise InvalidRequestError(f"group '{group_id}' has committed no offsets: expected topics that are named")
    return resets(form, partitions, await log_spans(client, partitions, time_of(form)), committed)


async def commit_resets(client: AdminClient, group_id: str, found: Mapping[TopicPartition, Reset]) -> None:
    """Makes them the group's offsets. UnknownMemberIdError where it has got members since."""
    if found:
        await client.commit_offsets(group_id, {tp: CommittedOffset(offset=each.offset) for tp, each in found.items()})


async def delete_offsets(
    client: AdminClient, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, HoldfastError | None]:
    """None where the group has no offset any more, GroupSubscribedToTopicError where a member reads the topic.

    GroupIdNotFoundError; NonEmptyGroupError where the members are no consumers: nobody knows what those read.
    """
    from kio.schema.offset_delete.v0 import request as m
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32

    by_topic: dict[str, list[m.OffsetDeleteRequestPartition]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(m.OffsetDeleteRequestPartition(partition_index=i32(tp.partition)))
    entity = m.OffsetDeleteRequest(
        group_id=GroupId(group_id),
        topics=tuple(m.OffsetDeleteRequestTopic(name=TopicName(t), partitions=tuple(ps)) for t, ps in by_topic.items()),
    )

    async def once() -> dict[TopicPartition, HoldfastError | None]:
        coordinator = await client.find_coordinator(group_id)
        answer = await client.ask_broker(coordinator.broker_id, entity)
        raise_for(answer.error_code.value, None, f"group {group_id!r}")
        return {
            TopicPartition(str(topic.name), int(p.partition_index)): refusal(p.error_code.value, None)
            for topic in answer.topics
            for p in topic.partitions
        }

    return await client.retrying(once)
