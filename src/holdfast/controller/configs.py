"""Dynamic configurations and blocks of producer ids."""

from collections.abc import Iterator, Mapping

from holdfast.controller.brokers import check_epoch
from holdfast.controller.election import adapt, eligible
from holdfast.controller.events import (
    AllocateProducerIds,
    AlterConfigs,
    AlterConfigsReply,
    ConfigChange,
    ConfigResult,
    Decision,
    ProducerIdBlock,
)
from holdfast.controller.state import ControllerState
from holdfast.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    ResourceType,
)
from holdfast.model.config import KEYS, UpdateMode, parse_value, validate_topic_config
from holdfast.model.errors import (
    ConfigError,
    HoldfastError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.types import TimestampMs

_UNCLEAN = "unclean.leader.election.enable"
_MIN_ISR = "min.insync.replicas"


def alter_configs(state: ControllerState, event: AlterConfigs, now_ms: TimestampMs) -> Decision:
    """One result per resource; a resource with one bad value keeps all it had."""
    records: list[MetadataRecord] = []
    results = []
    for change in event.changes:
        try:
            _check(state, change)
        except HoldfastError as error:
            results.append(_result(change, error))
            continue
        results.append(_result(change, None))
        records += _records(state, change)
        if change.resource_type == ResourceType.TOPIC:
            records += _consequences(state, change.resource_name, dict(change.values), change.replace_all)
    return Decision(
        records=() if event.validate_only else tuple(records), reply=AlterConfigsReply(resources=tuple(results))
    )


def _result(change: ConfigChange, error: HoldfastError | None) -> ConfigResult:
    return ConfigResult(resource_type=change.resource_type, resource_name=change.resource_name, error=error)


def _check(state: ControllerState, change: ConfigChange) -> None:
    keys = [key for key, _ in change.values]
    if len(set(keys)) != len(keys):
        raise InvalidRequestError("Error due to duplicate config keys")
    if change.resource_type == ResourceType.TOPIC:
        if change.resource_name not in state.image.topics:
            raise UnknownTopicOrPartitionError(f"The topic '{change.resource_name}' does not exist.")
        for key, value in change.values:
            if value is not None:  # what nobody knows can be removed: tools do so without asking
                validate_topic_config(key, value)
    elif change.resource_type == ResourceType.BROKER:
        if change.resource_name and not _is_broker_id(change.resource_name):
            raise InvalidRequestError(f"Broker {change.resource_name!r}: expected a broker id, or '' for all")
        for key, value in change.values:
            _check_broker_key(key, value)
    else:
        raise InvalidRequestError(f"Unknown resource type {change.resource_type}")


def _is_broker_id(name: str) -> bool:
    """As a number is written, and no larger than one on the wire. Every broker is told of it, from the log, for good:
    a name that is no number would end every reign."""
    return name.isascii() and name.isdigit() and len(name) <= 10 and str(int(name)) == name and int(name) < 2**31


def _check_broker_key(key: str, value: str | None) -> None:
    known = KEYS.get(key)
    if known is None and value is None:
        return
    if known is None:
        raise ConfigError(f"Unknown broker config name: {key}")
    if known.update is UpdateMode.READ_ONLY:
        raise InvalidRequestError(f"Cannot update these configs dynamically: [{key}]")
    if value is not None:
        try:
            parse_value(known, value)
        except ConfigError as e:  # 42 in Kafka, as all of a broker's that cannot be taken
            raise InvalidRequestError(e.message) from e


def _records(state: ControllerState, change: ConfigChange) -> list[MetadataRecord]:
    present: Mapping[str, str] = state.image.configs.get((change.resource_type, change.resource_name), {})
    wanted: dict[str, str | None] = dict(change.values)
    if change.replace_all:
        wanted = {**dict.fromkeys(present), **wanted}
    return [
        ConfigRecord(resource_type=change.resource_type, resource_name=change.resource_name, name=key, value=value)
        for key, value in wanted.items()
        if present.get(key) != value
    ]


def _consequences(
    state: ControllerState, name: str, values: Mapping[str, str | None], replace_all: bool
) -> Iterator[MetadataRecord]:
    """What a topic's new configuration means for its partitions: those that waited for an unclean election get a
    leader; where the ISR is large enough now, nobody outside it is eligible, since its leader goes on alone."""
    topic = state.image.topics[name]
    unclean = values.get(_UNCLEAN) == "true"
    min_isr = state.min_isr(name)
    if _MIN_ISR in values or replace_all:
        value = values.get(_MIN_ISR)
        min_isr = state.settings.min_insync_replicas if value is None else int(value)
    for number, partition in topic.numbered():
        is_alive = state.alive(topic.topic_id, number)
        if partition.leader is None and unclean:
            ends = state.log_ends(topic.topic_id, number)
            change = adapt(
                topic.topic_id, number, partition, is_alive,
                min_isr=min_isr, unclean=True, ends=ends, heard_of=state.heard_of,
            )  # fmt: skip
            if change is not None:
                yield change
        elif partition.elr and not eligible(partition, partition.isr, min_isr):
            yield PartitionChangeRecord(partition=number, topic_id=topic.topic_id, elr=())


def allocate_producer_ids(state: ControllerState, event: AllocateProducerIds, now_ms: TimestampMs) -> Decision:
    """The next block of ids; a block is never given twice, if it is used or not."""
    stale = check_epoch(state, event.broker_id, event.broker_epoch)
    if stale is not None:
        return Decision(reply=stale)
    first, size = state.image.next_producer_id, state.settings.producer_id_block
    record = ProducerIdsRecord(
        broker_id=event.broker_id, broker_epoch=event.broker_epoch, next_producer_id=first + size
    )
    return Decision(records=(record,), reply=ProducerIdBlock(first=first, size=size))
