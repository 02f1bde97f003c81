"""What is asked of many groups at once: their offsets by OffsetFetch (9), their members by DescribeGroups (15).

Functions over an AdminClient; one request to a coordinator each, not retried. A group that cannot be told of is left
out: who looks again and again asks it the next time.
"""

from collections.abc import Sequence

from holdfast.client.admin import AdminClient
from holdfast.client.translate import none_if_negative
from holdfast.client.views import CommittedOffset
from holdfast.model.types import BrokerId, TopicPartition


async def committed_of_groups(
    client: AdminClient, coordinator: BrokerId, groups: Sequence[str]
) -> dict[str, dict[TopicPartition, CommittedOffset]]:
    """All that each group has committed, as it is now: offsets of a transaction that is open are not waited for."""
    from kio.schema.offset_fetch.v8 import request as m
    from kio.schema.types import GroupId

    entity = m.OffsetFetchRequest(
        groups=tuple(m.OffsetFetchRequestGroup(group_id=GroupId(group), topics=None) for group in groups),
        require_stable=False,
    )
    answer = await client.ask_broker(coordinator, entity)
    return {
        str(group.group_id): {
            TopicPartition(str(topic.name), int(p.partition_index)): CommittedOffset(
                offset=int(p.committed_offset),
                leader_epoch=none_if_negative(p.committed_leader_epoch),
                metadata=p.metadata or "",
            )
            for topic in group.topics
            for p in topic.partitions
            if p.error_code.value == 0 and p.committed_offset >= 0
        }
        for group in answer.groups
        if group.error_code.value == 0
    }


async def members_of_groups(client: AdminClient, coordinator: BrokerId, groups: Sequence[str]) -> dict[str, int]:
    """How many members each group has."""
    from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
    from kio.schema.types import GroupId

    entity = DescribeGroupsRequest(groups=tuple(map(GroupId, groups)), include_authorized_operations=False)
    answer = await client.ask_broker(coordinator, entity)
    return {str(group.group_id): len(group.members) for group in answer.groups if group.error_code.value == 0}
