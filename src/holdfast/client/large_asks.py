"""A whole cluster asked over and over: all topics, the ends of all logs, all directories of a broker.

Functions over an AdminClient and what the cluster has told before (large_answers.py).
"""

import asyncio

from holdfast.client.admin import AdminClient
from holdfast.client.disks import not_asked_so
from holdfast.client.errors import ConnectionLost
from holdfast.client.large_answers import LargeAnswers
from holdfast.client.versions import LIST_OFFSETS, METADATA
from holdfast.client.views import ClusterMetadata, DisksView, OffsetSpec
from holdfast.client.wire import encode_body
from holdfast.model.errors import HoldfastError
from holdfast.model.types import BrokerId, Offset, TopicPartition
from holdfast.protocol.operating import MANAGE_LOG_DIRS, ManageLogDirsRequest


async def whole_metadata(client: AdminClient, answers: LargeAnswers) -> ClusterMetadata:
    """All topics; the client goes by them from now on."""
    from kio.schema.metadata.v12.request import MetadataRequest

    request = MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)

    async def once() -> ClusterMetadata:
        return client.adopt(answers.metadata(await client.ask_raw(None, METADATA, encode_body(request))), True)

    return await client.retrying(once, refresh=False)


async def whole_offsets(
    client: AdminClient, answers: LargeAnswers, view: ClusterMetadata, spec: OffsetSpec
) -> dict[TopicPartition, Offset]:
    """Of all partitions of the last metadata that have a leader which answers; nothing is tried again."""

    async def of(leader: BrokerId, body: bytes) -> dict[TopicPartition, Offset]:
        try:
            return answers.offsets(await client.ask_raw(leader, LIST_OFFSETS, body))
        except HoldfastError:  # whoever looks again asks again
            return {}

    found: dict[TopicPartition, Offset] = {}
    for part in await asyncio.gather(*(of(*each) for each in answers.offset_requests(view, spec).items())):
        found |= part
    return found


async def whole_disks(client: AdminClient, answers: LargeAnswers, broker_id: BrokerId, timeout_s: float) -> DisksView:
    """As ``ask_disks`` of what there is."""
    asked = encode_body(ManageLogDirsRequest())
    try:
        body = await client.ask_unlisted_raw(broker_id, MANAGE_LOG_DIRS, asked, timeout_s=timeout_s)
    except ConnectionLost as e:
        raise not_asked_so(broker_id, e) from e
    return answers.disks(broker_id, body)
