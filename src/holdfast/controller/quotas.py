"""Quotas of users, clients and addresses, each with a record. Texts and order of checks are Kafka's."""

from typing import Final

from holdfast.controller.events import Decision
from holdfast.controller.state import ControllerState
from holdfast.controller.user_events import AlterQuotas, AlterQuotasReply, QuotaChange
from holdfast.metadata.records import ClientQuotaRecord
from holdfast.model.errors import HoldfastError, InvalidRequestError, PolicyViolationError
from holdfast.model.types import TimestampMs
from holdfast.security.quota_entities import (
    IP,
    OF_ADDRESSES,
    OF_CLIENTS,
    QuotaEntity,
    check_value,
    entity_of,
)

MOST_IN_A_REQUEST: Final = 10_000
"""Records, as in Kafka."""
MOST_NAME_BYTES: Final = 1024
"""Of a name: it is the name of a node in ZooKeeper, three times as long there at most."""
_WHOLE: Final = {key for known in (OF_CLIENTS, OF_ADDRESSES) for key, most in known.items() if most is not None}


def alter_quotas(state: ControllerState, event: AlterQuotas, now_ms: TimestampMs) -> Decision:
    """One result for each change. What is wrong with one does not keep the others from being made."""
    records: list[ClientQuotaRecord] = []
    errors: list[HoldfastError | None] = []
    seen: set[QuotaEntity] = set()
    for change in event.changes:
        try:
            records += _records(state, change, event.unknown_hosts, seen)
            errors.append(None)
        except HoldfastError as error:
            errors.append(error)
    if len(records) > MOST_IN_A_REQUEST:
        refusal = PolicyViolationError(f"{len(records)} quotas change in one request: {MOST_IN_A_REQUEST} at most")
        return Decision(reply=AlterQuotasReply(errors=(refusal,) * len(errors)))
    made = () if event.validate_only else tuple(records)
    return Decision(records=made, reply=AlterQuotasReply(errors=tuple(errors)))


def _records(
    state: ControllerState, change: QuotaChange, unknown_hosts: frozenset[str], seen: set[QuotaEntity]
) -> list[ClientQuotaRecord]:
    keys = [key for key, _ in change.values]
    entity = entity_of(change.entity)
    if len(set(keys)) != len(keys) or entity in seen:
        raise InvalidRequestError(f"Ignoring duplicate entity {_javas(entity)}")
    seen.add(entity)
    for kind, name in entity:
        if kind == IP and name in unknown_hosts:
            raise InvalidRequestError(f"{name} is not a valid IP or resolvable host.")
        if name is not None and len(name.encode()) > MOST_NAME_BYTES:
            raise InvalidRequestError(f"The name of a {kind} must have at most {MOST_NAME_BYTES} bytes")
    had = state.image.quotas.of(entity)
    made = []
    for key, value in change.values:
        if value is None:
            if key in had:
                made.append(ClientQuotaRecord(entity=entity, key=key, value=None))
            continue
        check_value(entity, key, value)
        wanted = float(round(value)) if key in _WHOLE else value
        if had.get(key) != wanted:
            made.append(ClientQuotaRecord(entity=entity, key=key, value=wanted))
    return made


def _javas(entity: QuotaEntity) -> str:
    """As Java prints it."""
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{entries}}})"
