"""What an operator asks of replicas that move between brokers: begin, cancel, list (KIP-455), and a throttle.

Functions over an AdminClient, with one outcome per partition. None of them tries a change again by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.client.admin import BROKER_RESOURCE, CONTROLLER_TIMEOUT_MS, TOPIC_RESOURCE, AdminClient
from holdfast.client.cluster import milliseconds
from holdfast.client.refused import raise_for, refusal
from holdfast.client.views import ReassignmentView
from holdfast.model.errors import HoldfastError
from holdfast.model.types import BrokerId, TopicPartition

MOVE_THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
REPLICATION_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICATION_LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_SET, _DELETE = 0, 1


class ThrottledReplicas(NamedTuple):
    """The replicas of a topic that are limited, on either side, as the configuration keys have them."""

    leaders: str
    followers: str


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
        TopicPartition(str(t.name), int(p.partition_index)): refusal(p.error_code.value, p.error_message)
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


async def set_configs(client: AdminClient, kind: int, values: Mapping[str, Mapping[str, str | None]]) -> None:
    """Set keys of brokers or topics (``kind``) by the name of the resource; None: take the setting away. Raises the
    error of the first that was refused."""
    from kio.schema.incremental_alter_configs.v1 import request as m

    entity: Any = m.IncrementalAlterConfigsRequest(
        resources=tuple(
            m.AlterConfigsResource(
                resource_type=kind,  # type: ignore[arg-type]
                resource_name=name,
                configs=tuple(
                    m.AlterableConfig(
                        name=key,
                        config_operation=_DELETE if value is None else _SET,  # type: ignore[arg-type]
                        value=value,
                    )
                    for key, value in configs.items()
                ),
            )
            for name, configs in values.items()
        ),
        validate_only=False,
    )
    for resource in (await client.ask_controller(entity)).responses:
        raise_for(resource.error_code.value, resource.error_message, f"configuration of {resource.resource_name}")


async def throttle_moves(client: AdminClient, brokers: Iterable[BrokerId], bytes_per_s: int) -> None:
    """Limit what brokers copy between their log directories. Raises the broker's error."""
    await set_configs(client, BROKER_RESOURCE, {str(broker): {MOVE_THROTTLE: str(bytes_per_s)} for broker in brokers})


async def throttle_replication(
    client: AdminClient, topics: Mapping[str, ThrottledReplicas], brokers: Iterable[BrokerId], bytes_per_s: int
) -> None:
    """Limit what these replicas' leaders send and what they fetch while they are out of sync (KIP-73): first which
    ones, then how much."""
    lists = {
        name: dict(zip(REPLICATION_LISTS, (each.leaders, each.followers), strict=True)) for name, each in topics.items()
    }
    await set_configs(client, TOPIC_RESOURCE, lists)
    rates: dict[str, str | None] = dict.fromkeys(REPLICATION_RATES, str(bytes_per_s))
    await set_configs(client, BROKER_RESOURCE, {str(broker): rates for broker in brokers})


async def clear_broker_throttles(client: AdminClient, brokers: Iterable[BrokerId]) -> None:
    """No limit of moves and of replication of these brokers' own."""
    keys = dict.fromkeys((*REPLICATION_RATES, MOVE_THROTTLE))
    await set_configs(client, BROKER_RESOURCE, {str(broker): keys for broker in brokers})


async def clear_topic_throttles(client: AdminClient, topics: Iterable[str]) -> None:
    """No replica of these topics is limited."""
    await set_configs(client, TOPIC_RESOURCE, {topic: dict.fromkeys(REPLICATION_LISTS) for topic in topics})
