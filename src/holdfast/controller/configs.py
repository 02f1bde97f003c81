"""Dynamic configurations and blocks of producer ids."""

from collections.abc import Iterator, Mapping

from holdfast.controller.brokers import check_epoch
from holdfast.controller.election import adapt, eligible
from holdfast.controller.events import (
    AllocatedProducerIds,
    AllocateProducerIds,
    AlterConfigs,
    AlterConfigsReply,
    ConfigChange,
    ConfigResult,
    Decision,
)
from holdfast.controller.state import MIN_ISR, UNCLEAN, Configs, ControllerState
from holdfast.metadata.image import TopicImage
from holdfast.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    ResourceType,
)
from holdfast.model.config import (
    BrokerConfig,
    UpdateMode,
    check_topic_configs,
    key_of,
    parse_value,
    validate_topic_config,
)
from holdfast.model.config_sasl_keys import AT_A_START
from holdfast.model.errors import (
    ConfigError,
    HoldfastError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.types import TimestampMs

_OF_ALL_BROKERS = (UNCLEAN, MIN_ISR)
_STORES = (".keystore.location", ".truststore.location")
"""Ends of keys that a broker is told again, whatever they said before, so that it looks at the file."""
"""The controller goes by them, whoever leads: no broker has one of its own."""


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
        records += _consequences(state, change)
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
        check_topic_configs(_after(state, change))
    elif change.resource_type == ResourceType.BROKER:
        if change.resource_name and not _is_broker_id(change.resource_name):
            raise InvalidRequestError(f"Broker {change.resource_name!r}: expected a broker id, or '' for all")
        present: Configs = state.image.configs.get((change.resource_type, change.resource_name), {})
        for key, value in change.values:
            if value is not None or key not in present:  # what a version before has taken can be removed
                _check_broker_key(key, value)
            if change.resource_name and key in _OF_ALL_BROKERS and value is not None:
                raise InvalidRequestError(
                    f"{key} of broker {change.resource_name}: expected none of its own, but for all or for a topic"
                )
        _check_broker(state, change)
    else:
        raise InvalidRequestError(f"Unknown resource type {change.resource_type}")


def _check_broker(state: ControllerState, change: ConfigChange) -> None:
    """Rules between the keys of a broker, as far as they are kept here: what is in its file, it knows alone."""
    after = _after(state, change)
    default = state.image.broker_configs(None) if change.resource_name else {}
    try:
        BrokerConfig().with_dynamic(default=default, broker=after)
    except ConfigError as e:
        raise InvalidRequestError(e.message) from e


def _is_broker_id(name: str) -> bool:
    """As a number is written, and no larger than one on the wire. Every broker is told of it, from the log, for good:
    a name that is no number would end every reign."""
    return name.isascii() and name.isdigit() and len(name) <= 10 and str(int(name)) == name and int(name) < 2**31


def _check_broker_key(key: str, value: str | None) -> None:
    known = key_of(key)
    if known is None and value is None:
        return
    if known is None:
        raise ConfigError(f"Unknown broker config name: {key}")
    if known.update is UpdateMode.READ_ONLY:
        is_of_logins = any(key == each or key.endswith(f".{each}") for each in AT_A_START)
        instead = "; expected in the file of the broker, which is started again then" if is_of_logins else ""
        raise InvalidRequestError(f"Cannot update these configs dynamically: [{key}]{instead}")
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
        if present.get(key) != value or _is_read_again(key, value)
    ]


def _is_read_again(key: str, value: str | None) -> bool:
    """Whether a broker looks at a file when it is told the key, though it says what it said before."""
    return value is not None and key.endswith(_STORES)


def _after(state: ControllerState, change: ConfigChange) -> Configs:
    """The resource's configurations when it has changed."""
    present: Configs = (
        {} if change.replace_all else state.image.configs.get((change.resource_type, change.resource_name), {})
    )
    values = {**present, **dict(change.values)}
    return {key: value for key, value in values.items() if value is not None}


def _consequences(state: ControllerState, change: ConfigChange) -> Iterator[MetadataRecord]:
    """What follows for the partitions of a topic, or of all for a change of the cluster's default."""
    image = state.image
    if change.resource_type == ResourceType.TOPIC:
        topic = image.topics[change.resource_name]
        yield from _of_topic(state, topic, _after(state, change), image.broker_configs(None))
    elif not change.resource_name and (change.replace_all or any(key in _OF_ALL_BROKERS for key, _ in change.values)):
        for topic in image.sorted_topics():
            yield from _of_topic(state, topic, image.topic_configs(topic.name), _after(state, change))


def _of_topic(
    state: ControllerState, topic: TopicImage, configs: Configs, default: Configs
) -> Iterator[MetadataRecord]:
    """What these configurations mean for a topic's partitions: those that waited for an unclean election get a leader;
    where the ISR is large enough now, nobody outside it is eligible, since its leader goes on alone."""
    min_isr, unclean = state.min_isr_by(configs, default), state.unclean_by(configs, default)
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
    return Decision(records=(record,), reply=AllocatedProducerIds(first=first, size=size))
