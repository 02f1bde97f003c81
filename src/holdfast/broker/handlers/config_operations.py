"""What SET, DELETE, APPEND and SUBTRACT of IncrementalAlterConfigs (KIP-339) come to: the override that a key has then.

A list is worked out here, on the broker that is the controller, from what the key has now: the override of the
resource, else what a describe of it would tell, as far as this broker knows the layers beneath. Of another broker it
does not know the properties file, and takes the default as Kafka's controller does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from holdfast.model.config import TOPIC_KEYS, BrokerConfig, ConfigKey, ConfigType, key_of
from holdfast.model.config_entries import describe_broker, describe_topic
from holdfast.model.errors import ConfigError, InvalidRequestError
from holdfast.model.types import BrokerId

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
_TOPIC: Final = 2
_BROKER: Final = 4


class ConfiguredMetadata(Protocol):
    """The overrides that the cluster keeps."""

    @property
    def topic_configs(self) -> Mapping[str, Mapping[str, str]]: ...

    @property
    def broker_configs(self) -> Mapping[BrokerId | None, Mapping[str, str]]: ...


class ConfiguredBroker(Protocol):
    """The broker that works it out."""

    broker_id: BrokerId
    config: BrokerConfig

    @property
    def metadata(self) -> ConfiguredMetadata: ...


def override(broker: ConfiguredBroker, kind: int, name: str, config: Any) -> tuple[str, str | None]:
    """(key, value) that one operation amounts to; None removes the override. ConfigError (40): a list operation on
    what is none. InvalidRequestError (42): no such operation, or no value."""
    operation = config.config_operation
    if operation == DELETE:
        return config.name, None
    if operation == SET:
        return config.name, given(config)
    if operation not in (APPEND, SUBTRACT):
        raise InvalidRequestError(f"operation {operation} on {config.name}: expected 0 to 3")
    key = _key(kind, config.name)
    if key is None or key.type is not ConfigType.LIST:
        word = "APPEND" if operation == APPEND else "SUBTRACT"
        raise ConfigError(f"Can't {word} to key {config.name} because its type is not LIST.")
    items = [v for v in (_present(broker, kind, name, key) or "").split(",") if v]
    wanted = [v.strip() for v in given(config).split(",") if v.strip()]
    if operation == APPEND:
        items += [v for v in wanted if v not in items]
    else:
        items = [v for v in items if v not in wanted]
    return config.name, ",".join(items)


def given(config: Any) -> str:
    """The value of one key of a request. InvalidRequestError: null."""
    if config.value is None:
        raise InvalidRequestError(f"Null value not supported for : {config.name}")
    return str(config.value)


def _key(kind: int, name: str) -> ConfigKey | None:
    if kind == _TOPIC:
        return TOPIC_KEYS[name].key if name in TOPIC_KEYS else None
    return key_of(name) if kind == _BROKER else None


def _present(broker: ConfiguredBroker, kind: int, name: str, key: ConfigKey) -> str | None:
    """What the key has now."""
    metadata = broker.metadata
    if kind == _TOPIC:
        entries = describe_topic(broker.config, metadata.topic_configs.get(name, {}))
    elif name == str(broker.broker_id):
        entries = describe_broker(broker.config)
    else:
        layers = (
            [metadata.broker_configs.get(int(name), {})]
            if name.isascii() and name.isdecimal() and len(name) <= 10
            else []
        )
        layers.append(metadata.broker_configs.get(None, {}))
        return next((layer[key.name] for layer in layers if key.name in layer), key.default)
    return next((e.value for e in entries if e.key.name == key.name), None)
