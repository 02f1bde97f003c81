"""Topics are made, grow and go: CreateTopics, CreatePartitions, DeleteTopics.

Each topic of a request is judged by itself. A topic's partitions are placed by placement.py over the brokers that are
alive and have a directory that is not cordoned; an explicit assignment may name any registered broker that has one, as
long as one of each partition is alive (K1066-05 to -07).
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from holdfast.controller import cordon
from holdfast.controller.events import (
    CreatedTopic,
    CreatePartitions,
    CreatePartitionsReply,
    CreateTopics,
    CreateTopicsReply,
    Decision,
    DeletedTopic,
    DeleteTopics,
    DeleteTopicsReply,
    MorePartitions,
    TopicResult,
    TopicToCreate,
)
from holdfast.controller.placement import Place, place
from holdfast.controller.state import ControllerState
from holdfast.metadata.image import TopicImage
from holdfast.metadata.records import (
    UNASSIGNED_DIRECTORY,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
)
from holdfast.model.config import check_topic_configs, validate_topic_config
from holdfast.model.errors import (
    HoldfastError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.internal_topics import INTERNAL_TOPICS
from holdfast.model.types import BrokerId, TimestampMs, TopicId

MAX_NAME_LENGTH: Final = 249
_INVALID_NAME: Final = "Topic name is invalid"
_LEGAL_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")

Assignments = Sequence[tuple[BrokerId, ...]]


def check_name(name: str) -> None:
    """InvalidTopicError when no topic may be called so."""
    if not name:
        raise InvalidTopicError(f"{_INVALID_NAME}: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopicError(f"{_INVALID_NAME}: '{name}' is not allowed")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicError(
            f"{_INVALID_NAME}: the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopicError(
            f"{_INVALID_NAME}: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and "
            "'-'"
        )


def _collision_key(name: str) -> str:
    """Names that are equal by this one share the name of a metric."""
    return name.replace(".", "_")


# -- create ----------------------------------------------------------------------------------------------------


def create_topics(state: ControllerState, event: CreateTopics, now_ms: TimestampMs) -> Decision:
    """One result per name, in the order of first mention."""
    asked = Counter(topic.name for topic in event.topics)
    collisions: dict[str, str] | None = None
    records: list[MetadataRecord] = []
    results = []
    budget = state.settings.max_partitions_per_request
    for topic in {topic.name: topic for topic in event.topics}.values():
        try:
            if asked[topic.name] > 1:
                raise InvalidRequestError("Duplicate topic name.")
            check_name(topic.name)
            if topic.name in state.image.topics:
                raise TopicAlreadyExistsError(f"Topic '{topic.name}' already exists.")
            if "." in topic.name or "_" in topic.name:
                if collisions is None:
                    collisions = {
                        _collision_key(name): name for name in state.image.topics if "." in name or "_" in name
                    }
                other = collisions.setdefault(_collision_key(topic.name), topic.name)
                if other != topic.name:
                    raise InvalidTopicError(f"Topic '{topic.name}' collides with existing topic: {other}")
            configs = _check_configs(topic)
            assignments = _assign(state, topic, budget)
        except HoldfastError as error:
            results.append(CreatedTopic(name=topic.name, error=error))
            continue
        budget -= len(assignments)
        topic_id = state.new_id()
        records += _new_topic(state, topic.name, topic_id, configs, assignments)
        results.append(
            CreatedTopic(
                name=topic.name,
                topic_id=topic_id,
                partitions=len(assignments),
                replication_factor=len(assignments[0]),
                configs=tuple(configs.items()),
            )
        )
    return Decision(
        records=() if event.validate_only else tuple(records), reply=CreateTopicsReply(topics=tuple(results))
    )


def _check_configs(topic: TopicToCreate) -> dict[str, str]:
    configs: dict[str, str] = {}
    for key, value in topic.configs:
        validate_topic_config(key, value)
        assert value is not None  # or it would have been refused
        configs[key] = value
    check_topic_configs(configs)
    return configs


def _new_topic(
    state: ControllerState, name: str, topic_id: TopicId, configs: dict[str, str], assignments: Assignments
) -> list[MetadataRecord]:
    """As Kafka writes it: the topic, its configuration, its partitions."""
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, name=key, value=value)
            for key, value in configs.items()
        ),
        *_new_partitions(state, topic_id, assignments, 0),
    ]


def _new_partitions(
    state: ControllerState, topic_id: TopicId, assignments: Assignments, first: int
) -> list[PartitionRecord]:
    """The partitions with the live ones of their replicas as ISR, led by the first of these."""
    active = {broker.id for broker in state.image.brokers.values() if broker.may_lead}
    directories: dict[int, tuple[TopicId, ...]] = {}
    records = []
    for number, replicas in enumerate(assignments, first):
        isr = replicas if active.issuperset(replicas) else tuple(r for r in replicas if r in active)
        unassigned = directories.setdefault(len(replicas), (UNASSIGNED_DIRECTORY,) * len(replicas))
        records.append(
            PartitionRecord(
                partition=number,
                topic_id=topic_id,
                replicas=replicas,
                isr=isr,
                leader=isr[0],
                directories=unassigned,
                created=state.image.next_offset,
            )
        )
    return records


def _assign(state: ControllerState, topic: TopicToCreate, budget: int) -> Assignments:
    if topic.assignments:
        return _explicit(state, topic)
    partitions = state.settings.num_partitions if topic.partitions is None else topic.partitions
    factor = state.settings.replication_factor if topic.replication_factor is None else topic.replication_factor
    if partitions < 1:
        raise InvalidPartitionsError("Number of partitions was set to an invalid non-positive value.")
    if not 1 <= factor <= 32767:
        raise InvalidReplicationFactorError(
            "Replication factor must be larger than 0, or -1 to use the default value."
            if factor < 1
            else f"Replication factor {factor} of topic {topic.name}: expected 32767 at most"
        )
    _check_budget(topic.name, partitions, budget)
    alive, down = _placeable(state)
    count = max(1, len(alive))
    start, shift = state.rng.randrange(count), state.rng.randrange(count)
    try:
        down = down if topic.name in INTERNAL_TOPICS else []
        return place(alive, partitions, factor, down=down, start=start, shift=shift)
    except InvalidReplicationFactorError as e:  # Kafka's words for a new topic
        raise InvalidReplicationFactorError(f"Unable to replicate the partition {factor} time(s): {e.message}") from e


def _check_budget(name: str, partitions: int, budget: int) -> None:
    if partitions > budget:
        raise PolicyViolationError("Excessively large number of partitions per request.")


def _placeable(state: ControllerState) -> tuple[list[Place], list[Place]]:
    """Brokers that take replicas: those that are alive, and those that are down and will be back."""
    alive: list[Place] = []
    down: list[Place] = []
    for broker in state.image.brokers.values():
        if cordon.takes_replicas(state, broker):
            (alive if broker.may_lead else down).append(Place(id=broker.id, rack=broker.rack))
    return alive, down


def _explicit(state: ControllerState, topic: TopicToCreate) -> Assignments:
    for given, what in ((topic.replication_factor, "replication factor"), (topic.partitions, "numPartitions")):
        if given is not None:
            raise InvalidRequestError(f"A manual partition assignment was specified, but {what} was not set to -1.")
    by_number: dict[int, tuple[BrokerId, ...]] = {}
    for number, replicas in topic.assignments:
        if number in by_number:
            raise InvalidReplicaAssignmentError(f"Found multiple manual partition assignments for partition {number}")
        by_number[number] = replicas
    if sorted(by_number) != list(range(len(by_number))):
        raise InvalidReplicaAssignmentError("partitions should be a consecutive 0-based integer sequence")
    assignments = [by_number[number] for number in range(len(by_number))]
    _check_assignments(state, assignments, len(assignments[0]))
    return assignments


def _check_assignments(state: ControllerState, assignments: Assignments, factor: int) -> None:
    for replicas in assignments:
        if not replicas:
            raise InvalidReplicaAssignmentError("The manual partition assignment includes an empty replica list.")
        for broker_id in replicas:
            broker = state.image.brokers.get(broker_id)
            if broker is None:
                raise InvalidReplicaAssignmentError(
                    f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
                )
            refusal = cordon.refusal(state, broker)
            if refusal is not None:
                raise InvalidReplicaAssignmentError(
                    f"Broker {broker_id} of the assignment takes no replicas: {refusal}"
                )
        if len(set(replicas)) != len(replicas):
            twice = next(b for b in replicas if replicas.count(b) > 1)
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes the broker {twice} more than once."
            )
        if len(replicas) != factor:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
                f"not consistent with previous partitions, which have {factor} replica(s)."
            )
        if not any(state.image.brokers[broker_id].may_lead for broker_id in replicas):
            raise InvalidReplicaAssignmentError(f"No broker of the assignment {list(replicas)} is alive")


# -- grow ------------------------------------------------------------------------------------------------------


def create_partitions(state: ControllerState, event: CreatePartitions, now_ms: TimestampMs) -> Decision:
    """One result per name."""
    asked = Counter(topic.name for topic in event.topics)
    records: list[MetadataRecord] = []
    results = []
    for more in {topic.name: topic for topic in event.topics}.values():
        try:
            if asked[more.name] > 1:
                raise InvalidRequestError("Duplicate topic name.")
            records += _grow(state, more)
        except HoldfastError as error:
            results.append(TopicResult(name=more.name, error=error))
        else:
            results.append(TopicResult(name=more.name))
    return Decision(
        records=() if event.validate_only else tuple(records),
        reply=CreatePartitionsReply(topics=tuple(results)),
    )


def _grow(state: ControllerState, more: MorePartitions) -> Sequence[MetadataRecord]:
    topic = state.image.topics.get(more.name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"There is no topic {more.name}")
    present = len(topic.partitions)
    if more.count == present:
        raise InvalidPartitionsError(f"Topic already has {present} partition(s).")
    if more.count < present:
        raise InvalidPartitionsError(
            f"The topic {more.name} currently has {present} partition(s); {more.count} would not be an increase."
        )
    missing = more.count - present
    factor = len(topic.partitions[0].target)
    if more.assignments is not None:
        if len(more.assignments) != missing:
            raise InvalidReplicaAssignmentError(
                f"Attempted to add {missing} additional partition(s), but only {len(more.assignments)} assignment(s) "
                "were specified."
            )
        _check_assignments(state, more.assignments, factor)
        return _new_partitions(state, topic.topic_id, more.assignments, present)
    _check_budget(more.name, missing, state.settings.max_partitions_per_request)
    brokers, _ = _placeable(state)
    start = _continued(topic, brokers)
    placed = place(brokers, missing, factor, start=start, shift=start, first_partition=present)
    return _new_partitions(state, topic.topic_id, placed, present)


def _continued(topic: TopicImage, brokers: list[Place]) -> int:
    """Where partition 0 started, so that new partitions go on from there."""
    first = topic.partitions[0].replicas[0]
    ids = sorted(broker.id for broker in brokers)
    return next((i for i, broker_id in enumerate(ids) if broker_id >= first), 0)


# -- delete ----------------------------------------------------------------------------------------------------


def delete_topics(state: ControllerState, event: DeleteTopics, now_ms: TimestampMs) -> Decision:
    """One result per topic meant; the name of a deleted topic is free at once (C19)."""
    meant = [_resolve(state, name, topic_id) for name, topic_id in event.topics]
    names = Counter(r.name for r in meant if r.error is None)
    records: list[MetadataRecord] = []
    results: dict[str | int, DeletedTopic] = {}
    for i, result in enumerate(meant):
        if result.error is None and result.name is not None:
            if names[result.name] > 1:
                result = DeletedTopic(
                    name=result.name, topic_id=None, error=InvalidRequestError("Duplicate topic name.")
                )
            else:
                assert result.topic_id is not None
                records.append(RemoveTopicRecord(topic_id=result.topic_id))
        results.setdefault(i if result.name is None else result.name, result)
    return Decision(records=tuple(records), reply=DeleteTopicsReply(topics=tuple(results.values())))


def _resolve(state: ControllerState, name: str | None, topic_id: TopicId | None) -> DeletedTopic:
    error: HoldfastError
    if topic_id is not None and topic_id.int == 0:
        topic_id = None
    if name is not None and topic_id is not None:
        error = InvalidRequestError("You may not specify both topic name and topic id.")
    elif name is None and topic_id is None:
        error = InvalidRequestError("Neither topic name nor id were specified.")
    elif topic_id is not None:
        found = state.image.topic_names.get(topic_id)
        if found is not None:
            return DeletedTopic(name=found, topic_id=topic_id)
        error = UnknownTopicIdError("This server does not host this topic ID.")
    else:
        assert name is not None
        topic = state.image.topics.get(name)
        if topic is not None:
            return DeletedTopic(name=name, topic_id=topic.topic_id)
        error = UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    return DeletedTopic(name=name, topic_id=topic_id, error=error)
