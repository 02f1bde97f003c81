"""Who may do what, said in a test; and an authorizer of these few lines."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.security.principal import Principal
from holdfast.security.resources import CLUSTER_NAME, Operation, ResourceKind

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
TRANSACTIONAL_ID = ResourceKind.TRANSACTIONAL_ID


@dataclass
class Granted:
    """What everybody may, or what each principal may; nothing is implied by anything."""

    to_all: set[tuple[Operation, ResourceKind, str]] = field(default_factory=set)
    to: dict[Principal, set[tuple[Operation, ResourceKind, str]]] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    """Those that were asked for."""

    def may(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        self.hosts.add(host)
        return (operation, kind, name) in self.to_all | self.to.get(principal, set())

    def may_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        self.hosts.add(host)
        granted = self.to_all | self.to.get(principal, set())
        return any((o, k) == (operation, kind) for o, k, _ in granted)


def granted(*rights: tuple[Operation, ResourceKind] | tuple[Operation, ResourceKind, str]) -> Granted:
    """To everybody; without a name: of the cluster."""
    return Granted({(r[0], r[1], r[2] if len(r) > 2 else CLUSTER_NAME) for r in rights})
