"""Cordoning log directories of a broker, and forgetting a broker that was stopped (KIP-1066).

Owns what a set of cordoned directories is as a configuration: nothing at all where the properties file says the same,
so that the file counts again. Functions over an AdminClient; none of them tries a change again by itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.client.admin import BROKER_RESOURCE, CONTROLLER_TIMEOUT_MS, AdminClient
from holdfast.client.refused import raise_for
from holdfast.model.config import ALL_DIRS, CORDONED_LOG_DIRS, absolute_path, cordoned_entries
from holdfast.model.types import BrokerId

_SET, _DELETE = 0, 1
_STATIC, _DEFAULT = 4, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonConfig:
    """``value``: what counts. ``by_file``: what would count if nothing were set at run time."""

    value: str
    by_file: str


async def cordon_config(client: AdminClient, broker_id: BrokerId) -> CordonConfig:
    """What the broker says of cordoned.log.dirs."""
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
    from kio.static.primitive import i8

    resource = DescribeConfigsResource(
        resource_type=i8(BROKER_RESOURCE), resource_name=str(broker_id), configuration_keys=(CORDONED_LOG_DIRS,)
    )
    entity = DescribeConfigsRequest(resources=(resource,), include_synonyms=True)
    answer = await client.retrying(lambda: client.ask_broker(broker_id, entity))
    (result,) = answer.results
    raise_for(result.error_code.value, result.error_message, f"configs of broker {broker_id}")
    (config,) = result.configs
    layers = {int(s.source): s.value or "" for s in config.synonyms}
    return CordonConfig(value=config.value or "", by_file=layers.get(_STATIC, layers.get(_DEFAULT, "")))


async def cordon(client: AdminClient, broker_id: BrokerId, paths: Iterable[str]) -> None:
    """Have exactly these directories cordoned; ``*`` alone is all, those to come included. Asked of the broker itself.

    InvalidRequestError: it has no such directory.
    """
    from kio.schema.incremental_alter_configs.v1 import request as m
    from kio.static.primitive import i8

    wanted = tuple(paths)
    by_file = (await cordon_config(client, broker_id)).by_file
    is_file = _as_set(wanted) == _as_set(cordoned_entries(by_file))
    change = m.AlterableConfig(
        name=CORDONED_LOG_DIRS,
        config_operation=i8(_DELETE if is_file else _SET),
        value=None if is_file else ",".join(wanted),
    )
    resource = m.AlterConfigsResource(
        resource_type=i8(BROKER_RESOURCE), resource_name=str(broker_id), configs=(change,)
    )
    entity = m.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    answer = await client.ask_broker(broker_id, entity, timeout_s=CONTROLLER_TIMEOUT_MS / 1000)
    for result in answer.responses:
        raise_for(result.error_code.value, result.error_message, f"cordon of broker {broker_id}")


def _as_set(entries: Iterable[str]) -> frozenset[str]:
    return frozenset(entry if entry == ALL_DIRS else absolute_path(entry) for entry in entries)


async def unregister_broker(client: AdminClient, broker_id: BrokerId) -> None:
    """BrokerIdNotRegisteredError; InvalidRequestError: it is alive."""
    from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

    answer = await client.ask_any(UnregisterBrokerRequest(broker_id=broker_id))  # type: ignore[arg-type]
    raise_for(answer.error_code.value, answer.error_message, f"broker {broker_id}")
