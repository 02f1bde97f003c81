"""Quotas of a cluster (APIs 48 and 49): how much users, clients and addresses may.

Functions over an AdminClient, with plain values: an entity is a name by kind (user, client-id, ip), None for
all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from holdfast.client.admin import AdminClient
from holdfast.client.refused import raise_for

Entity: TypeAlias = Mapping[str, str | None]
_EXACT: Final = 0
_DEFAULT: Final = 1


async def describe_quotas(
    client: AdminClient, entity: Entity | None = None
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """All entities with their quotas, or the one that is named, if it has any. Raises the broker's error:
    ClusterAuthorizationFailedError to who may not DescribeConfigs of the cluster."""
    from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest
    from kio.static.primitive import i8

    components = tuple(
        ComponentData(entity_type=kind, match_type=i8(_DEFAULT if name is None else _EXACT), match=name)
        for kind, name in (entity or {}).items()
    )
    request = DescribeClientQuotasRequest(components=components, strict=entity is not None)

    async def once() -> list[tuple[dict[str, str | None], dict[str, float]]]:
        answer = await client.ask_any(request)
        raise_for(answer.error_code.value, answer.error_message, "quotas")
        return [
            ({e.entity_type: e.entity_name for e in entry.entity}, {v.key: float(v.value) for v in entry.values})
            for entry in answer.entries or ()
        ]

    return await client.retrying(once)


async def alter_quotas(
    client: AdminClient, entity: Entity, values: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """New quotas of an entity; None takes one away. Raises the broker's error: InvalidRequestError for what is none."""
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
    from kio.static.primitive import f64

    entry = EntryData(
        entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()),
        ops=tuple(
            OpData(key=key, value=f64(0.0 if value is None else float(value)), remove=value is None)
            for key, value in values.items()
        ),
    )
    answer = await client.ask_controller(AlterClientQuotasRequest(entries=(entry,), validate_only=validate_only))
    for result in answer.entries:
        raise_for(result.error_code.value, result.error_message, "quotas")
