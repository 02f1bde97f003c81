"""What the one who speaks on a connection may do: the authorizer's answers, for handlers.

``authorizer`` None: the configuration names none (``authorizer.class.name``), and everybody may do everything, as in
Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.broker.acl_view import AclView
from holdfast.broker.audit import AuditLog, Later
from holdfast.broker.judge import Deciding, Judge
from holdfast.security.acls import ResourcePattern
from holdfast.security.operations import SUPPORTED, bits
from holdfast.security.principal import Principal
from holdfast.security.resources import Operation, ResourceKind

if TYPE_CHECKING:
    from holdfast.broker.exchange import Answering
    from holdfast.model.config import BrokerConfig


class Access:
    """Of one broker."""

    def __init__(
        self, authorizer: Deciding | None = None, acls: AclView | None = None, audit: AuditLog | None = None
    ) -> None:
        """``acls``: by what the authorizer decides, if it is ours; ``audit``: who hears of it."""
        self.authorizer = authorizer
        self.acls = acls
        self._audit = audit

    @classmethod
    def of(cls, config: BrokerConfig, loop: Later) -> Access:
        """What the configuration asks for."""
        acls = AclView.of(config)
        return cls(acls, acls, AuditLog(loop))

    @property
    def tells_allowed(self) -> bool:
        """Whether what is allowed is told, too."""
        return self._audit is not None and self._audit.tells_allowed

    def tell(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str, api_key: int
    ) -> None:
        """That this was asked for, and what was decided."""
        if self.acls is not None and self._audit is not None and not self._audit.leaves_out():
            decision = self.acls.decide(principal, host, operation, kind, name)
            self._audit.tell(principal, host, operation, ResourcePattern(kind, name), api_key, decision)

    def learn(self, request: Any) -> None:
        """What UpdateMetadata says of access control lists."""
        if self.acls is not None:
            self.acls.update(request)

    def may(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """``host``: the peer's address, without the slash that Kafka prints before it."""
        return self.authorizer is None or self.authorizer.may(principal, host, operation, kind, name)

    def judge(self, connection: Answering, api_key: int) -> Judge | None:
        """Of a request that came by this connection; None: there is no authorizer, and nothing to ask it."""
        authorizer = self.authorizer
        if authorizer is None:
            return None
        session = connection.session
        judge = session.judge
        if judge is None or judge.api_key != api_key or judge.principal is not session.principal:
            judge = session.judge = Judge(self, authorizer, session.principal, str(connection.peer[0]), api_key)
        judge.tells_all = self._audit is not None and self._audit.tells_allowed
        return judge

    def allowed(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, names: Iterable[str]
    ) -> frozenset[str]:
        """Those of ``names`` on which it is allowed."""
        if self.authorizer is None:
            return frozenset(names)
        may = self.authorizer.may
        return frozenset(name for name in names if may(principal, host, operation, kind, name))

    def may_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """Whether there is anything of this kind on which it is allowed."""
        return self.authorizer is None or self.authorizer.may_any(principal, host, operation, kind)

    def operations(self, principal: Principal, host: str, kind: ResourceKind, name: str) -> int:
        """What is allowed on one thing, a bit for each operation, as Kafka's answers have it."""
        may = self.may
        return bits(each for each in SUPPORTED[kind] if may(principal, host, each, kind, name))
