"""Configurations with all layers, and the change of single keys: DescribeConfigs (32), IncrementalAlterConfigs (44).

Functions over an AdminClient. A broker's keys are asked of that broker and changed by it, as Kafka wants it; what is
so for all brokers, and topics, by any. A change is not tried again by itself: it may have happened.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from holdfast.client.admin import BROKER_RESOURCE, CONTROLLER_TIMEOUT_MS, TOPIC_RESOURCE, AdminClient, config_value
from holdfast.client.refused import raise_for, refusal
from holdfast.client.views import ConfigValue
from holdfast.model.errors import UnknownTopicOrPartitionError
from holdfast.model.types import BrokerId

MIN_ISR = "min.insync.replicas"
TOPICS_AT_A_TIME = 100
"""A broker works an answer out without a pause."""


class AlterConfigOp(IntEnum):
    """What is done to a key (KIP-339); APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigTarget:
    """What has the configuration: a topic, a broker, or (both None) all brokers that have nothing of their own."""

    topic: str | None = None
    broker: BrokerId | None = None

    def __str__(self) -> str:
        if self.topic is not None:
            return f"topic {self.topic}"
        return "default of brokers" if self.broker is None else f"broker {self.broker}"

    @property
    def resource(self) -> tuple[int, str]:
        """(type, name) on the wire."""
        if self.topic is not None:
            return TOPIC_RESOURCE, self.topic
        return BROKER_RESOURCE, "" if self.broker is None else str(self.broker)

    @property
    def layer(self) -> str:
        """The source of what is set for it."""
        if self.topic is not None:
            return "DYNAMIC_TOPIC_CONFIG"
        return "DYNAMIC_DEFAULT_BROKER_CONFIG" if self.broker is None else "DYNAMIC_BROKER_CONFIG"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChange:
    """One key, and what shall become of it; ``value`` is None to DELETE."""

    key: str
    operation: AlterConfigOp
    value: str | None = None


async def describe_config(client: AdminClient, target: ConfigTarget) -> tuple[ConfigValue, ...]:
    """All keys, with their layers. Of the default of brokers: what is set."""
    request = _describe_request([target.resource], None)

    async def once() -> tuple[ConfigValue, ...]:
        if target.broker is None:
            answer = await client.ask_any(request)
        else:
            answer = await client.ask_broker(target.broker, request)
        (result,) = answer.results
        raise_for(result.error_code.value, result.error_message, str(target))
        return tuple(map(config_value, result.configs))

    return await client.retrying(once, lasting=(UnknownTopicOrPartitionError,))


async def alter_config(
    client: AdminClient, target: ConfigTarget, changes: Iterable[KeyChange], *, validate_only: bool = False
) -> None:
    """All of them or none. Raises the broker's error."""
    from kio.schema.incremental_alter_configs.v1 import request as m
    from kio.static.primitive import i8

    kind, name = target.resource
    configs = tuple(m.AlterableConfig(name=c.key, config_operation=i8(c.operation), value=c.value) for c in changes)
    resource = m.AlterConfigsResource(resource_type=i8(kind), resource_name=name, configs=configs)
    request = m.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    if target.broker is None:
        answer = await client.ask_any(request, timeout_s=CONTROLLER_TIMEOUT_MS / 1000)
    else:
        answer = await client.ask_broker(target.broker, request, timeout_s=CONTROLLER_TIMEOUT_MS / 1000)
    for result in answer.responses:
        raise_for(result.error_code.value, result.error_message, str(target))


async def min_insync_replicas(client: AdminClient, topics: Sequence[str]) -> dict[str, int]:
    """What counts for each topic. A topic that has gone meanwhile is left out."""
    found: dict[str, int] = {}
    for at in range(0, len(topics), TOPICS_AT_A_TIME):
        named = topics[at : at + TOPICS_AT_A_TIME]
        request = _describe_request([(TOPIC_RESOURCE, name) for name in named], (MIN_ISR,))
        answer = await client.retrying(lambda request=request: client.ask_any(request))  # type: ignore[misc]
        for result in answer.results:
            error = refusal(result.error_code.value, result.error_message, f"topic {result.resource_name}")
            if error is not None and not isinstance(error, UnknownTopicOrPartitionError):
                raise error
            value = next((c.value for c in result.configs if c.name == MIN_ISR), None)
            if value:
                found[result.resource_name] = int(value)
    return found


async def broker_values(client: AdminClient, broker: BrokerId, keys: Sequence[str]) -> Mapping[str, str | None]:
    """These keys of a broker, as far as it has them; not retried."""
    request = _describe_request([(BROKER_RESOURCE, str(broker))], keys)
    (result,) = (await client.ask_broker(broker, request)).results
    raise_for(result.error_code.value, result.error_message, f"configs of broker {broker}")
    return {c.name: c.value for c in result.configs}


def _describe_request(resources: Iterable[tuple[int, str]], keys: Sequence[str] | None) -> Any:
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
    from kio.static.primitive import i8

    return DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=i8(kind),
                resource_name=name,
                configuration_keys=None if keys is None else tuple(keys),
            )
            for kind, name in resources
        ),
        include_synonyms=keys is None,
    )
