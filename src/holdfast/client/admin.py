"""What an operator asks of a cluster: topics, configurations, disks, groups.

Owns the requests of ``AdminClient`` and what their answers mean. Every method either returns values or raises the
broker's error with the broker's message; methods over several things return one outcome per thing.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.client.cluster import KafkaClient, milliseconds
from holdfast.client.group_translate import assignment_of
from holdfast.client.refused import raise_for, refusal
from holdfast.client.translate import none_if_negative
from holdfast.client.views import (
    BrokerNode,
    CommittedOffset,
    ConfigSynonym,
    ConfigValue,
    GroupListing,
    GroupMember,
    GroupView,
    LogDirView,
    NewTopic,
    ReplicaOnDisk,
)
from holdfast.model.errors import HoldfastError, UnknownServerError, UnknownTopicOrPartitionError
from holdfast.model.group_errors import GroupIdNotFoundError
from holdfast.model.types import BrokerId, TopicPartition

CONTROLLER_TIMEOUT_MS = 30_000
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CONFIG_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
}
CONFIG_TYPES = {
    1: "BOOLEAN",
    2: "STRING",
    3: "INT",
    4: "SHORT",
    5: "LONG",
    6: "DOUBLE",
    7: "LIST",
    8: "CLASS",
    9: "PASSWORD",
}


class AdminClient(KafkaClient):
    """A KafkaClient that can also change and describe the cluster."""

    # -- topics --------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, HoldfastError | None]:
        """None, or why not, per topic."""
        from kio.schema.create_topics.v7 import request as m

        entity = m.CreateTopicsRequest(
            topics=tuple(_creatable(m, topic) for topic in topics),
            timeout=milliseconds(CONTROLLER_TIMEOUT_MS),
            validate_only=validate_only,
        )
        return await self._per_name(entity, "topics")

    async def create_topic(self, topic: NewTopic) -> None:
        """Raises the broker's error."""
        _raise_first(await self.create_topics([topic]))

    async def delete_topics(self, names: Sequence[str]) -> dict[str, HoldfastError | None]:
        """None, or why not, per topic."""
        from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
        from kio.schema.types import TopicName

        entity = DeleteTopicsRequest(
            topics=tuple(DeleteTopicState(name=TopicName(name), topic_id=None) for name in names),
            timeout=milliseconds(CONTROLLER_TIMEOUT_MS),
        )
        return await self._per_name(entity, "responses")

    async def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[BrokerId]] | None = None
    ) -> None:
        """Grows a topic to ``count`` partitions; ``assignments``: the brokers of each new one. Raises the broker's
        error."""
        from kio.schema.create_partitions.v3.request import (
            CreatePartitionsAssignment,
            CreatePartitionsRequest,
            CreatePartitionsTopic,
        )
        from kio.schema.types import BrokerId as KioBrokerId
        from kio.schema.types import TopicName
        from kio.static.primitive import i32

        placed = None if assignments is None else tuple(
            CreatePartitionsAssignment(broker_ids=tuple(map(KioBrokerId, brokers))) for brokers in assignments
        )  # fmt: skip
        entity = CreatePartitionsRequest(
            topics=(CreatePartitionsTopic(name=TopicName(name), count=i32(count), assignments=placed),),
            timeout=milliseconds(CONTROLLER_TIMEOUT_MS),
            validate_only=False,
        )
        _raise_first(await self._per_name(entity, "results"))

    async def _per_name(self, entity: Any, field: str) -> dict[str, HoldfastError | None]:
        async def once() -> dict[str, HoldfastError | None]:
            answer = await self.ask_controller(entity)
            found: dict[str, HoldfastError | None] = {}
            for one in getattr(answer, field):
                error = refusal(one.error_code.value, one.error_message, f"topic {str(one.name)!r}")
                if error is not None and error.retriable and len(getattr(answer, field)) == 1:
                    raise error
                found[str(one.name)] = error
            return found

        return await self.retrying(once, lasting=(UnknownTopicOrPartitionError,))

    # -- configurations ------------------------------------------------------------------------------------

    async def describe_topic_configs(self, names: Iterable[str]) -> dict[str, tuple[ConfigValue, ...]]:
        """All keys of each topic; raises the first error."""
        return await self._describe_configs(TOPIC_RESOURCE, names, None)

    async def describe_broker_configs(self, broker_id: BrokerId) -> tuple[ConfigValue, ...]:
        """All keys of one broker, asked of that broker."""
        return (await self._describe_configs(BROKER_RESOURCE, [str(broker_id)], broker_id))[str(broker_id)]

    async def _describe_configs(
        self, kind: int, names: Iterable[str], broker_id: BrokerId | None
    ) -> dict[str, tuple[ConfigValue, ...]]:
        from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
        from kio.static.primitive import i8

        entity = DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(resource_type=i8(kind), resource_name=name, configuration_keys=None)
                for name in names
            )
        )

        async def once() -> dict[str, tuple[ConfigValue, ...]]:
            if broker_id is None:
                answer = await self.ask_any(entity)
            else:
                answer = await self.ask_broker(broker_id, entity)
            found = {}
            for result in answer.results:
                raise_for(result.error_code.value, result.error_message, f"configs of {result.resource_name}")
                found[result.resource_name] = tuple(map(config_value, result.configs))
            return found

        return await self.retrying(once)

    # -- disks ---------------------------------------------------------------------------------------------

    async def describe_log_dirs(
        self, brokers: Iterable[BrokerId] | None = None, tps: Iterable[TopicPartition] | None = None
    ) -> dict[BrokerId, tuple[LogDirView, ...]]:
        """The log directories of all brokers or those named, with all replicas or those of ``tps``."""
        from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest
        from kio.schema.types import TopicName
        from kio.static.primitive import i32

        by_topic: dict[str, list[i32]] = {}
        for tp in tps or ():
            by_topic.setdefault(tp.topic, []).append(i32(tp.partition))
        entity = DescribeLogDirsRequest(
            topics=None
            if tps is None
            else tuple(DescribableLogDirTopic(topic=TopicName(t), partitions=tuple(ps)) for t, ps in by_topic.items())
        )
        asked = list((await self.metadata(())).brokers) if brokers is None else list(brokers)

        async def one(broker_id: BrokerId) -> tuple[LogDirView, ...]:
            answer = await self.retrying(lambda: self.ask_broker(broker_id, entity))
            raise_for(answer.error_code.value, None, f"log directories of broker {broker_id}")
            return tuple(map(_log_dir_view, answer.results))

        return dict(zip(asked, await asyncio.gather(*map(one, asked)), strict=True))

    # -- groups --------------------------------------------------------------------------------------------

    async def find_coordinator(self, group_id: str) -> BrokerNode:
        """The broker that coordinates a consumer group."""
        from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest

        async def once() -> BrokerNode:
            found = (await self.ask_any(FindCoordinatorRequest(coordinator_keys=(group_id,)))).coordinators[0]
            raise_for(found.error_code.value, found.error_message, f"coordinator of group {group_id!r}")
            node = BrokerNode(broker_id=int(found.node_id), host=found.host, port=int(found.port))
            if self._view is None or node.broker_id not in self._view.brokers:
                await self.refresh(())
            return node

        return await self.retrying(once)

    async def list_groups(self) -> list[GroupListing]:
        """All groups of all brokers, by name."""
        from kio.schema.list_groups.v4.request import ListGroupsRequest

        async def one(broker_id: BrokerId) -> list[GroupListing]:
            async def once() -> list[GroupListing]:
                answer = await self.ask_broker(broker_id, ListGroupsRequest())
                raise_for(answer.error_code.value, None, f"groups of broker {broker_id}")
                return [
                    GroupListing(
                        group_id=str(g.group_id),
                        protocol_type=g.protocol_type,
                        state=g.group_state,
                        coordinator=broker_id,
                    )
                    for g in answer.groups
                ]

            return await self.retrying(once)

        brokers = list((await self.metadata(())).brokers)
        found = await asyncio.gather(*map(one, brokers))
        return sorted({g.group_id: g for part in found for g in part}.values(), key=lambda g: g.group_id)

    async def describe_group(self, group_id: str) -> GroupView:
        """GroupIdNotFoundError where Kafka's tools would say so: no such group, dead, and no offsets."""
        from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
        from kio.schema.types import GroupId

        entity = DescribeGroupsRequest(groups=(GroupId(group_id),), include_authorized_operations=False)

        async def once() -> GroupView:
            coordinator = await self.find_coordinator(group_id)
            group = (await self.ask_broker(coordinator.broker_id, entity)).groups[0]
            raise_for(group.error_code.value, None, f"group {group_id!r}")
            return _group_view(group, coordinator)

        view = await self.retrying(once)
        if view.state == "Dead":
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return view

    async def committed(
        self, group_id: str, tps: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The group's committed offsets: all of them, or of ``tps``; partitions without one are left out."""
        from holdfast.client.group_translate import committed_offsets, offset_fetch_request

        entity = offset_fetch_request(group_id, tps)

        async def once() -> dict[TopicPartition, CommittedOffset]:
            coordinator = await self.find_coordinator(group_id)
            return committed_offsets(await self.ask_broker(coordinator.broker_id, entity))

        return await self.retrying(once)

    async def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """As a consumer that is no member commits. UnknownMemberIdError while the group has members: offsets are theirs
        to commit then. What one partition refuses is raised; the others are committed."""
        from holdfast.client.group_translate import offset_commit_request, raise_commit_errors

        at = {tp: each.offset for tp, each in offsets.items()}
        epochs = {tp: each.leader_epoch for tp, each in offsets.items() if each.leader_epoch is not None}
        entity = offset_commit_request(group_id, -1, "", at, epochs)

        async def once() -> None:
            coordinator = await self.find_coordinator(group_id)
            raise_commit_errors(await self.ask_broker(coordinator.broker_id, entity))

        await self.retrying(once, timeout_s=timeout_s)

    async def delete_group(self, group_id: str) -> None:
        """NonEmptyGroupError, GroupIdNotFoundError."""
        from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
        from kio.schema.types import GroupId

        async def once() -> None:
            coordinator = await self.find_coordinator(group_id)
            answer = await self.ask_broker(
                coordinator.broker_id, DeleteGroupsRequest(groups_names=(GroupId(group_id),))
            )
            raise_for(answer.results[0].error_code.value, None, f"group {group_id!r}")

        await self.retrying(once)


def _raise_first(outcomes: Mapping[str, HoldfastError | None]) -> None:
    if not outcomes:
        raise UnknownServerError("the broker's answer has no result for the topic")
    for error in outcomes.values():
        if error is not None:
            raise error


def config_value(config: Any) -> ConfigValue:
    """One key of DescribeConfigs v4."""
    return ConfigValue(
        name=config.name,
        value=config.value,
        source=CONFIG_SOURCES.get(int(config.config_source), "UNKNOWN"),
        read_only=config.read_only,
        sensitive=config.is_sensitive,
        type=CONFIG_TYPES.get(int(config.config_type), "UNKNOWN"),
        synonyms=tuple(
            ConfigSynonym(
                name=s.name,
                value=None if config.is_sensitive else s.value,
                source=CONFIG_SOURCES.get(int(s.source), "UNKNOWN"),
            )
            for s in config.synonyms
        ),
    )


def _creatable(m: Any, topic: NewTopic) -> Any:
    """One topic of CreateTopics v7; -1 stands for the broker's default and goes with an assignment."""
    assigned = topic.assignments is not None
    return m.CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assigned or topic.partitions is None else topic.partitions,
        replication_factor=-1 if assigned or topic.replication_factor is None else topic.replication_factor,
        assignments=tuple(
            m.CreatableReplicaAssignment(partition_index=p, broker_ids=tuple(brokers))
            for p, brokers in (topic.assignments or {}).items()
        ),
        configs=tuple(m.CreatableTopicConfig(name=k, value=v) for k, v in (topic.configs or {}).items()),
    )


def _log_dir_view(result: Any) -> LogDirView:
    return LogDirView(
        path=result.log_dir,
        error=refusal(result.error_code.value, None, f"log directory {result.log_dir}"),
        total_bytes=none_if_negative(result.total_bytes),
        usable_bytes=none_if_negative(result.usable_bytes),
        replicas=tuple(
            ReplicaOnDisk(
                tp=TopicPartition(str(t.name), int(p.partition_index)),
                size_bytes=int(p.partition_size),
                offset_lag=int(p.offset_lag),
                future=p.is_future_key,
            )
            for t in result.topics
            for p in t.partitions
        ),
    )


def _group_view(group: Any, coordinator: BrokerNode) -> GroupView:
    return GroupView(
        group_id=str(group.group_id),
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        members=tuple(
            GroupMember(
                member_id=m.member_id,
                instance_id=m.group_instance_id,
                client_id=m.client_id,
                host=m.client_host,
                assignment=assignment_of(m.member_assignment),
            )
            for m in group.members
        ),
        coordinator=coordinator,
    )
