"""What an operator asks of replicas that move between brokers: begin, cancel, list (KIP-455), and a throttle.

Functions over an AdminClient, with one outcome per partition. None of them tries a change again by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.client.admin import BROKER_RESOURCE, CONTROLLER_TIMEOUT_MS, AdminClient
from holdfast.client.cluster import milliseconds
from holdfast.client.pool import raise_for
from holdfast.client.views import ReassignmentView
from holdfast.model.errors import HoldfastError
from holdfast.model.types import BrokerId, TopicPartition
from holdfast.protocol.error_codes import error_of

MOVE_THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
_SET, _DELETE = 0, 1


async def alter_reassignments(
    client: AdminClient, wanted: Mapping[TopicPartition, Sequence[BrokerId] | None]
) -> dict[TopicPartition, HoldfastError | None]:
    """Have partitions on these replicas from now on; None as wish: cancel. None: it has begun, else why not."""
    from kio.schema.alter_partition_reassignments.v0 import request as m

    by_topic: dict[str, list[Any]] = {}
    for tp, replicas in wanted.items():
        one: Any = m.ReassignablePartition(
            partition_index=tp.partition,  # type: ignore[arg-type]
            replicas=None if replicas is None else tuple(replicas),  # type: ignore[arg-type]
        )
        by_topic.setdefault(tp.topic, []).append(one)
    entity = m.AlterPartitionReassignmentsRequest(
        timeout=milliseconds(CONTROLLER_TIMEOUT_MS),
        topics=tuple(
            m.ReassignableTopic(name=name, partitions=tuple(partitions))  # type: ignore[arg-type]
            for name, partitions in by_topic.items()
        ),
    )
    answer = await client.ask_controller(entity)
    raise_for(answer.error_code.value, answer.error_message, "reassignment")
    return {
        TopicPartition(str(t.name), int(p.partition_index)): error_of(p.error_code.value, p.error_message)
        for t in answer.responses
        for p in t.partitions
    }


async def list_reassignments(
    client: AdminClient, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, ReassignmentView]:
    """What is under way, of these partitions or of all."""
    from kio.schema.list_partition_reassignments.v0 import request as m

    topics = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for tp in partitions:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        topics = tuple(
            m.ListPartitionReassignmentsTopics(name=name, partition_indexes=tuple(indexes))  # type: ignore[arg-type]
            for name, indexes in by_topic.items()
        )
    entity = m.ListPartitionReassignmentsRequest(timeout=milliseconds(CONTROLLER_TIMEOUT_MS), topics=topics)

    async def once() -> dict[TopicPartition, ReassignmentView]:
        answer = await client.ask_controller(entity)
        raise_for(answer.error_code.value, answer.error_message, "reassignments")
        return {
            TopicPartition(str(t.name), int(p.partition_index)): ReassignmentView(
                replicas=tuple(map(int, p.replicas)),
                adding=tuple(map(int, p.adding_replicas)),
                removing=tuple(map(int, p.removing_replicas)),
            )
            for t in answer.topics
            for p in t.partitions
        }

    return await client.retrying(once)


async def throttle_moves(client: AdminClient, brokers: Iterable[BrokerId], bytes_per_s: int | None) -> None:
    """Limit what brokers copy between their log directories; None: no limit of its own. Raises the broker's error."""
    from kio.schema.incremental_alter_configs.v1 import request as m

    entity: Any = m.IncrementalAlterConfigsRequest(
        resources=tuple(
            m.AlterConfigsResource(
                resource_type=BROKER_RESOURCE,  # type: ignore[arg-type]
                resource_name=str(broker),
                configs=(
                    m.AlterableConfig(
                        name=MOVE_THROTTLE,
                        config_operation=_DELETE if bytes_per_s is None else _SET,  # type: ignore[arg-type]
                        value=None if bytes_per_s is None else str(bytes_per_s),
                    ),
                ),
            )
            for broker in brokers
        ),
        validate_only=False,
    )
    for resource in (await client.ask_controller(entity)).responses:
        raise_for(resource.error_code.value, resource.error_message, f"throttle of broker {resource.resource_name}")
