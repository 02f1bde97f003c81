"""What one principal may do, for requests that are worth no more than a look-up."""

from __future__ import annotations

from typing import Final, Protocol

from holdfast.security.principal import Principal
from holdfast.security.resources import CLUSTER_NAME, Operation, ResourceKind

MOST_KEPT: Final = 64
"""Answers of a judge; with one more all are asked for anew. Names come from clients."""


class Deciding(Protocol):
    """An authorizer: whether one principal, at one address, may do one thing."""

    def may(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool: ...

    def may_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool: ...


class Entries(Protocol):
    """By what the authorizer decides."""

    version: int
    """Grows with every change."""


class JudgeHost(Protocol):
    """What all judges of a broker share (access.py)."""

    @property
    def acls(self) -> Entries | None: ...

    def tell(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str, api_key: int
    ) -> None: ...


class Judge:
    """A connection keeps it, and it keeps answers for as long as the entries are the same."""

    __slots__ = ("_access", "_authorizer", "_kept", "_version", "api_key", "host", "principal", "tells_all")

    def __init__(self, access: JudgeHost, authorizer: Deciding, principal: Principal, host: str, api_key: int) -> None:
        self._access = access
        self._authorizer = authorizer
        self._kept: dict[tuple[str, Operation, ResourceKind], bool] = {}
        self._version = -1
        self.api_key = api_key
        self.principal = principal
        self.host = host
        self.tells_all = False

    def may(self, operation: Operation, kind: ResourceKind, name: str = CLUSTER_NAME) -> bool:
        """As RequestContext's; the answer is told (audit.py)."""
        acls = self._access.acls
        may = self._kept.get((name, operation, kind)) if acls is not None and acls.version == self._version else None
        if may is None:
            may = self._asked(operation, kind, name)
        if not may or self.tells_all:
            self._access.tell(self.principal, self.host, operation, kind, name, self.api_key)
        return may

    def _asked(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        acls = self._access.acls
        if acls is None or acls.version != self._version or len(self._kept) >= MOST_KEPT:
            self._kept.clear()
            self._version = -1 if acls is None else acls.version
        may = self._authorizer.may(self.principal, self.host, operation, kind, name)
        self._kept[name, operation, kind] = may
        return may
