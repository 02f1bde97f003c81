"""What each request is answered with. Pure: a description and the seconds since its beginning go in.

The versions are those that the client asks for. Entities are kio's, and ours of ManageLogDirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from struct import Struct
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from kio.schema.api_versions.v3 import response as versions
from kio.schema.describe_cluster.v0 import response as cluster
from kio.schema.describe_configs.v4 import response as configs
from kio.schema.describe_groups.v5 import response as described
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4 import response as coordinators
from kio.schema.list_groups.v4 import response as listed
from kio.schema.list_partition_reassignments.v0 import response as reassignments
from kio.schema.metadata.v12 import response as metadata
from kio.schema.offset_fetch.v8 import response as fetched
from kio.static.primitive import i32Timedelta

from holdfast.client.versions import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
    OFFSET_FETCH,
    PINNED,
)
from holdfast.protocol.operating import MANAGE_LOG_DIRS, ManagedLogDir, ManagedReplica, ManageLogDirsResponse
from holdfast.protocol.wire import compact_string, uvarint
from tests.answering.description import DescribedCluster, DescribedGroup

NONE = ErrorCode.none
NO_TIME = i32Timedelta.parse(timedelta(0))
EARLIEST = -2
_LISTED = Struct(">ihqqiB")
TOPIC = 2
RECORD_BYTES = 100
DISK_BYTES = 100 << 30
DIRECTORIES = "/answering/{broker}/{number}"

Answer = Callable[[Any], Any]


class AnsweringBroker:
    """One broker of a description. ``ports``: where each broker of it listens."""

    def __init__(self, of: DescribedCluster, broker_id: int, ports: dict[int, int]) -> None:
        self._of = of
        self._id = broker_id
        self._ports = ports
        self._groups = {group.name: group for group in of.groups if group.coordinator == broker_id}
        self._coordinators = {group.name: group.coordinator for group in of.groups}

    def answer(self, api_key: int, request: Any) -> Any:
        """An entity; KeyError of a request that is not known here. ListOffsets has answers of its own."""
        answers: dict[int, Answer] = {
            API_VERSIONS: self._versions,
            METADATA: self._metadata,
            DESCRIBE_CLUSTER: self._cluster,
            MANAGE_LOG_DIRS: self._log_dirs,
            LIST_PARTITION_REASSIGNMENTS: self._reassignments,
            LIST_GROUPS: self._list_groups,
            FIND_COORDINATOR: self._find_coordinator,
            OFFSET_FETCH: self._committed,
            DESCRIBE_GROUPS: self._describe_groups,
            DESCRIBE_CONFIGS: self._configs,
        }
        return answers[api_key](request)

    # -- the cluster -------------------------------------------------------------------------------------------

    def _versions(self, request: Any) -> Any:
        return versions.ApiVersionsResponse(
            error_code=NONE,
            api_keys=tuple(versions.ApiVersion(api_key=key, min_version=v, max_version=v) for key, v in PINNED.items()),
            throttle_time=NO_TIME,
        )

    def _cluster(self, request: Any) -> Any:
        return cluster.DescribeClusterResponse(
            throttle_time=NO_TIME,
            error_code=NONE,
            cluster_id=self._of.cluster_id,
            controller_id=self._of.controller,
            brokers=tuple(
                cluster.DescribeClusterBroker(broker_id=b, host="127.0.0.1", port=port)
                for b, port in self._ports.items()
            ),
        )

    def _metadata(self, request: Any) -> Any:
        asked = list(self._of.by_name) if request.topics is None else [str(topic.name) for topic in request.topics]
        return metadata.MetadataResponse(
            throttle_time=NO_TIME,
            brokers=tuple(
                metadata.MetadataResponseBroker(node_id=b, host="127.0.0.1", port=port)
                for b, port in self._ports.items()
            ),
            cluster_id=self._of.cluster_id,
            controller_id=self._of.controller,
            topics=tuple(map(self._topic, asked)),
        )

    def _topic(self, name: str) -> Any:
        found = self._of.by_name.get(name)
        if found is None:
            return metadata.MetadataResponseTopic(
                error_code=ErrorCode.unknown_topic_or_partition, name=name, topic_id=None, partitions=()
            )
        return metadata.MetadataResponseTopic(
            error_code=NONE,
            name=name,
            topic_id=uuid5(NAMESPACE_OID, name),
            partitions=tuple(
                metadata.MetadataResponsePartition(
                    error_code=NONE,
                    partition_index=index,
                    leader_id=replicas[0],
                    leader_epoch=0,
                    replica_nodes=replicas,
                    isr_nodes=replicas,
                )
                for index, replicas in enumerate(found.partitions)
            ),
        )

    def _reassignments(self, request: Any) -> Any:
        return reassignments.ListPartitionReassignmentsResponse(
            throttle_time=NO_TIME, error_code=NONE, error_message=None, topics=()
        )

    def _configs(self, request: Any) -> Any:
        return configs.DescribeConfigsResponse(
            throttle_time=NO_TIME,
            results=tuple(
                configs.DescribeConfigsResult(
                    error_code=NONE,
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=tuple(self._values(resource)),
                )
                for resource in request.resources
            ),
        )

    def _values(self, resource: Any) -> Iterator[Any]:
        """``min.insync.replicas`` is all that is configured here."""
        if resource.resource_type == TOPIC and resource.resource_name in self._of.by_name:
            yield configs.DescribeConfigsResourceResult(
                name="min.insync.replicas",
                value=str(self._of.by_name[resource.resource_name].min_isr),
                read_only=False,
                config_source=1,
                is_sensitive=False,
                synonyms=(),
                config_type=3,
                documentation=None,
            )

    # -- disks and logs ----------------------------------------------------------------------------------------

    def _log_dirs(self, request: Any) -> Any:
        here = [
            (topic, index)
            for topic in self._of.topics
            for index, replicas in enumerate(topic.partitions)
            if self._id in replicas
        ]
        return ManageLogDirsResponse(
            error_code=NONE,
            log_dirs=tuple(
                ManagedLogDir(
                    path=DIRECTORIES.format(broker=self._id, number=number + 1),
                    directory_id=UUID(int=self._id << 64 | number + 1),
                    state="online",
                    reason=None,
                    since_ms=1_700_000_000_000,
                    total_bytes=DISK_BYTES,
                    usable_bytes=DISK_BYTES // 2,
                    probe_us=400,
                    cordoned=False,
                    device=number,
                    replicas=tuple(
                        ManagedReplica(
                            topic_name=topic.name,
                            partition_index=index,
                            size=(topic.records - topic.trimmed) * RECORD_BYTES,
                            lag=0,
                            is_future=False,
                        )
                        for topic, index in here[number :: self._of.log_dirs]
                    ),
                )
                for number in range(self._of.log_dirs)
            ),
        )

    def offsets(self, request: Any) -> Callable[[float], bytes]:
        """Answers this request at so many seconds since the beginning: by hand, as it is asked again and again, and a
        test's brokers are not to be what is slow."""
        parts: list[bytes | tuple[int, int]] = [b"\0\0\0\0", uvarint(len(request.topics) + 1)]
        for topic in request.topics:
            parts += [compact_string(str(topic.name)), uvarint(len(topic.partitions) + 1)]
            found = self._of.by_name.get(topic.name)
            for asked in topic.partitions:
                index = int(asked.partition_index)
                if found is None or not 0 <= index < len(found.partitions):
                    parts.append(_LISTED.pack(index, ErrorCode.unknown_topic_or_partition.value, -1, -1, -1, 0))
                elif found.partitions[index][0] != self._id:
                    parts.append(_LISTED.pack(index, ErrorCode.not_leader_or_follower.value, -1, -1, -1, 0))
                elif asked.timestamp == EARLIEST:
                    parts.append(_LISTED.pack(index, 0, -1, found.trimmed, 0, 0))
                else:
                    parts.append((index, found.records))
            parts.append(b"\0")
        parts.append(b"\0")
        return lambda elapsed_s: b"".join(_at(part, int(self._of.grows * elapsed_s)) for part in parts)

    # -- groups ------------------------------------------------------------------------------------------------

    def _list_groups(self, request: Any) -> Any:
        return listed.ListGroupsResponse(
            throttle_time=NO_TIME,
            error_code=NONE,
            groups=tuple(
                listed.ListedGroup(group_id=group.name, protocol_type=_type(group), group_state=group.state)
                for group in self._groups.values()
            ),
        )

    def _find_coordinator(self, request: Any) -> Any:
        return coordinators.FindCoordinatorResponse(
            throttle_time=NO_TIME,
            coordinators=tuple(
                coordinators.Coordinator(
                    key=key,
                    node_id=broker,
                    host="127.0.0.1",
                    port=self._ports[broker],
                    error_code=NONE,
                    error_message=None,
                )
                for key in request.coordinator_keys
                for broker in [self._coordinators.get(key, self._of.controller)]
            ),
        )

    def _committed(self, request: Any) -> Any:
        return fetched.OffsetFetchResponse(
            throttle_time=NO_TIME,
            groups=tuple(
                self._committed_by(group.group_id, self._groups.get(group.group_id)) for group in request.groups
            ),
        )

    def _committed_by(self, name: str, group: DescribedGroup | None) -> Any:
        if group is None:
            error = ErrorCode.not_coordinator if name in self._coordinators else NONE
            return fetched.OffsetFetchResponseGroup(group_id=name, topics=(), error_code=error)
        by_topic: dict[str, list[Any]] = {}
        for (topic, index), offset in group.committed.items():
            by_topic.setdefault(topic, []).append(
                fetched.OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=offset, metadata="", error_code=NONE
                )
            )
        return fetched.OffsetFetchResponseGroup(
            group_id=name,
            topics=tuple(
                fetched.OffsetFetchResponseTopics(name=topic, partitions=tuple(parts))
                for topic, parts in by_topic.items()
            ),
        )

    def _describe_groups(self, request: Any) -> Any:
        return described.DescribeGroupsResponse(
            throttle_time=NO_TIME,
            groups=tuple(self._described(name, self._groups.get(name)) for name in request.groups),
        )

    def _described(self, name: str, group: DescribedGroup | None) -> Any:
        if group is None:
            error = ErrorCode.not_coordinator if name in self._coordinators else NONE
            return described.DescribedGroup(
                error_code=error, group_id=name, group_state="Dead", protocol_type="", protocol_data="", members=()
            )
        return described.DescribedGroup(
            error_code=NONE,
            group_id=name,
            group_state=group.state,
            protocol_type=_type(group),
            protocol_data="range" if group.members else "",
            members=tuple(
                described.DescribedGroupMember(
                    member_id=f"{name}-{n}",
                    client_id=f"{name}-{n}",
                    client_host="/127.0.0.1",
                    member_metadata=b"",
                    member_assignment=b"",
                )
                for n in range(group.members)
            ),
        )


def _at(part: bytes | tuple[int, int], grown: int) -> bytes:
    """Bytes as they are; of (partition, records) the end of a log that has grown."""
    return part if isinstance(part, bytes) else _LISTED.pack(part[0], 0, -1, part[1] + grown, 0, 0)


def _type(group: DescribedGroup) -> str:
    """Offsets that were committed without a membership are of no protocol."""
    return "consumer" if group.members else ""
