"""What this broker knows of access control lists, and what it decides by them.

Owns the authorizer and the entries that the controller told of (UpdateMetadata's ``acls``). Until they are known only
super users may do anything. A decision is kept until an entry changes, so that asking again costs a look-up; at most
``MOST_KEPT`` of them. Changed on the event loop only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from holdfast.metadata.codec_acls import decode_acl_news, encode_acl_news
from holdfast.model.config import BrokerConfig
from holdfast.model.config_authorizer_keys import ALLOW_EVERYONE, CLASS, SUPER_USERS, super_users
from holdfast.protocol.interbroker import TYPE_FULL
from holdfast.security.acls import AclBinding, AclFilter
from holdfast.security.authorizer import AclDecision, Authorizer
from holdfast.security.principal import Principal
from holdfast.security.resources import Operation, ResourceKind

log = logging.getLogger(__name__)

NONE: Final = encode_acl_news(())
"""What is told where there are no entries, and what a full update without the field means."""
MOST_KEPT: Final = 20_000
"""Decisions; with one more all are made anew. Names come from clients."""


class AclView:
    """See the module's docstring. It is an authorizer (access.py)."""

    def __init__(self, authorizer: Authorizer) -> None:
        """``authorizer``: one that knows no entries yet."""
        self._authorizer = authorizer
        self._acls: dict[AclBinding, None] = {}
        self._known: bytes | None = None
        """The last full news, which come again with every controller."""
        self._kept: dict[tuple[Principal, str, str, int], AclDecision] = {}
        self._any_kept: dict[tuple[Principal, str, int], bool] = {}
        self.version = 0
        """Grows with every change."""

    @classmethod
    def of(cls, config: BrokerConfig) -> AclView | None:
        """None: the configuration names no authorizer."""
        if not config.str(CLASS):
            return None
        return cls(Authorizer.closed(super_users(config.str(SUPER_USERS)), config.bool(ALLOW_EVERYONE)))

    @property
    def ready(self) -> bool:
        """Whether any entries were told of."""
        return self._authorizer.ready

    def update(self, request: Any) -> None:
        """What UpdateMetadata says of entries, if it does. News that cannot be read close the broker to all but super
        users: one of them may deny."""
        is_full = request.type == TYPE_FULL
        told = request.acls or (NONE if is_full else b"")
        if not told or (is_full and told == self._known):
            return
        try:
            news = decode_acl_news(told)
        except ValueError as e:
            log.error(
                "The controller's access control lists are not understood, so only super users may anything: %s", e
            )
            self._known = None
            self._authorizer = Authorizer.closed(self._authorizer.super_users, self._authorizer.allow_if_no_acl)
        else:
            if is_full:
                self._acls.clear()
            self._known = told if is_full else None
            if is_full or self.ready:
                self._authorizer = (
                    self._authorizer.with_all(news.added)
                    if is_full
                    else self._authorizer.with_changes(news.added, news.removed)
                )
                for acl in news.removed:
                    self._acls.pop(acl, None)
                self._acls.update(dict.fromkeys(news.added))
        self._kept.clear()
        self._any_kept.clear()
        self.version += 1

    def matching(self, wanted: AclFilter) -> Iterator[AclBinding]:
        """The entries that a filter finds, in the order of what they say."""
        return iter(sorted(filter(wanted.matches, self._acls)))

    # -- deciding ----------------------------------------------------------------------------------------------

    def may(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether ``principal``, at address ``host``, may do it to the resource."""
        return self.decide(principal, host, operation, kind, name).allowed

    def decide(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str
    ) -> AclDecision:
        """``may``, with the reason."""
        key = (principal, host, name, kind << 8 | operation)
        decision = self._kept.get(key)
        if decision is None:
            decision = self._authorizer.decide(principal, host, operation, kind, name)
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[key] = decision
        return decision

    def may_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """Whether there is any resource of the kind to which the principal may do it."""
        key = (principal, host, kind << 8 | operation)
        may = self._any_kept.get(key)
        if may is None:
            may = self._authorizer.may_any(principal, host, operation, kind)
            if len(self._any_kept) >= MOST_KEPT:
                self._any_kept.clear()
            self._any_kept[key] = may
        return may
