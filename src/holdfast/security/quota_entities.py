"""Whom a quota is for, which quotas there are, and what may be asked of them (KIP-546, KIP-599, KIP-612).

An entity names users, clients and addresses: one of each kind at most, an address never beside another. A name that is
None stands for all that have no quota of their own. The texts of what is refused are Kafka's.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from holdfast.model.errors import InvalidRequestError, UnsupportedVersionError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
KINDS: Final = (USER, CLIENT_ID, IP)

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Kinds with their names, in the order of KINDS."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
OF_CLIENTS: Final[Mapping[str, int | None]] = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""Quotas of users and clients: the largest whole number that each takes; None: any number."""
OF_ADDRESSES: Final[Mapping[str, int | None]] = {CONNECTION_CREATION_RATE: 2**31 - 1}
"""Likewise, of addresses."""
_FRACTION: Final = 1e-6


def entity_of(named: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these kinds and names, in any order. InvalidRequestError for what is none."""
    found: dict[str, str | None] = {}
    for kind, name in named:
        if kind in found:
            raise InvalidRequestError(f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in KINDS:
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
        found[kind] = name
    if not found:
        raise InvalidRequestError("Invalid empty client quota entity")
    if IP in found and len(found) > 1:
        raise InvalidRequestError(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    return tuple((kind, found[kind]) for kind in KINDS if kind in found)


def entity_text(entity: QuotaEntity) -> str:
    """For people and for a stable order: ``user=alice,client-id=<default>``."""
    return ",".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)


def entity_order(entity: QuotaEntity) -> tuple[tuple[int, bool, str], ...]:
    """What entities are sorted by: a name before the default."""
    return tuple((KINDS.index(kind), name is None, name or "") for kind, name in entity)


def check_value(entity: QuotaEntity, key: str, value: float) -> None:
    """InvalidRequestError for a quota that this entity cannot have."""
    known = OF_ADDRESSES if entity[0][0] == IP else OF_CLIENTS
    if key not in known:
        raise InvalidRequestError(f"Invalid configuration key {key}")
    if not value > 0.0:
        raise InvalidRequestError(f"Quota {key} must be greater than 0")
    most = known[key]
    if most is None:
        if value == float("inf"):
            raise InvalidRequestError(f"Quota {key} must be a finite number")
        return
    if value > most:
        raise InvalidRequestError(f"Proposed value for {key} is too large for {_TYPES[most]}.")
    if abs(value % 1.0) > _FRACTION:
        raise InvalidRequestError(f"{key} cannot be a fractional value.")


_TYPES: Final = {2**63 - 1: "a LONG", 2**31 - 1: "an INT"}


class EntityFilter:
    """What DescribeClientQuotas finds: of each kind a name (None: the default), or any; ``strict``: no other kinds."""

    EXACT, DEFAULT, SPECIFIED = 0, 1, 2

    def __init__(self, components: Iterable[tuple[str, int, str | None]], *, strict: bool) -> None:
        self._names: dict[str, str | None] = {}
        self._any: set[str] = set()
        self._strict = strict
        for kind, how, name in components:
            self._add(kind, how, name)
        kinds = {*self._names, *self._any}
        if IP in kinds and len(kinds) > 1:
            raise InvalidRequestError(
                "Invalid entity filter component combination. IP filter component should not be used with "
                "user or clientId filter component."
            )

    def _add(self, kind: str, how: int, name: str | None) -> None:
        if not kind:
            raise InvalidRequestError("Invalid empty entity type.")
        if kind in self._names or kind in self._any:
            raise InvalidRequestError(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in KINDS:
            raise UnsupportedVersionError(f"Unsupported entity type {kind}")
        if how == self.EXACT:
            if name is None:
                raise InvalidRequestError("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            self._names[kind] = name
        elif how == self.DEFAULT:
            if name is not None:
                raise InvalidRequestError("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
            self._names[kind] = None
        elif how == self.SPECIFIED:
            if name is not None:
                raise InvalidRequestError("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
            self._any.add(kind)
        else:
            raise InvalidRequestError(f"Unknown match type {how}")

    def matches(self, entity: QuotaEntity) -> bool:
        """Whether it finds this one."""
        has = dict(entity)
        if self._strict and len(has) != len(self._names) + len(self._any):
            return False
        if not self._any <= has.keys():
            return False
        return all(kind in has and has[kind] == name for kind, name in self._names.items())
