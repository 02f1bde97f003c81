"""What DescribeConfigs tells of a configuration: each key with its value, and the layers that give it or would."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from holdfast.model.config import BrokerConfig, topic_value
from holdfast.model.config_key import ConfigKey, UpdateMode
from holdfast.model.config_keys import KEYS, LISTENER_PREFIX, key_of
from holdfast.model.config_topic_keys import TOPIC_KEYS, TopicKey
from holdfast.model.config_value import Value
from holdfast.model.errors import ConfigError


class ConfigSource(Enum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """One layer that gives, or would give, a value."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One key as DescribeConfigs tells it."""

    key: ConfigKey
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: tuple[Synonym, ...]


def describe_broker(config: BrokerConfig) -> list[ConfigEntry]:
    """Every broker key with its value and the layers that give it, as DescribeConfigs tells a broker's; those of single
    listeners where they are set."""
    given = {name for layer in (config.static, config.dynamic_default, config.dynamic) for name in layer}
    own = [key for name in sorted(given) if name.startswith(LISTENER_PREFIX) and (key := key_of(name)) is not None]
    return [_broker_entry(config, key) for key in (*KEYS.values(), *own)]


def _broker_layers(config: BrokerConfig, name: str) -> list[Synonym]:
    layers = [
        (config.dynamic, ConfigSource.DYNAMIC_BROKER),
        (config.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (config.static, ConfigSource.STATIC_BROKER),
    ]
    found = [Synonym(name, layer[name], source) for layer, source in layers if name in layer]
    if name.startswith(LISTENER_PREFIX):
        base = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
        return found + _broker_layers(config, base if base in KEYS else base.partition(".")[2])  # of a mechanism
    default = KEYS[name].default
    if default is not None:
        found.append(Synonym(name, default, ConfigSource.DEFAULT))
    return found


def _broker_entry(config: BrokerConfig, key: ConfigKey) -> ConfigEntry:
    synonyms = _broker_layers(config, key.name)
    # Kafka tells broker.id as set when only node.id is.
    value = str(config.node_id) if key.name == "broker.id" and config.get("node.id") is not None else None
    if value is not None and synonyms[0].source is ConfigSource.DEFAULT:
        synonyms.insert(0, Synonym(key.name, value, ConfigSource.STATIC_BROKER))
    return ConfigEntry(
        key=key,
        value=synonyms[0].value if synonyms else None,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        read_only=key.update is UpdateMode.READ_ONLY,
        synonyms=tuple(synonyms),
    )


def describe_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every topic key with its value and the layers that give it.

    As in Kafka the broker keys of a topic key are told as synonyms only where the first of them has a value: a
    retention.ms that comes from log.retention.hours alone has none. Internal keys are told only where they are set.
    """
    entries = []
    for name, item in TOPIC_KEYS.items():
        if item.key.internal and name not in overrides:
            continue
        synonyms = [Synonym(name, overrides[name], ConfigSource.TOPIC)] if name in overrides else []
        given = [_broker_layers(config, name) for name, _ in item.synonyms]
        if given and given[0]:
            synonyms += [synonym for layers in given for synonym in layers]
        entries.append(
            ConfigEntry(
                key=item.key,
                value=_topic_text(item, config, overrides),
                source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                read_only=False,
                synonyms=tuple(synonyms),
            )
        )
    return entries


def _topic_text(item: TopicKey, config: BrokerConfig, overrides: Mapping[str, str]) -> str:
    """The value in force. An override that an older version took and that is refused now is told as it was given."""
    try:
        return _text(topic_value(item, config, overrides))
    except ConfigError:
        return overrides[item.key.name]


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)
