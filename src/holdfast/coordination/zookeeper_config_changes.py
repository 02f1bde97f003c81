"""The news of changed configurations and access control lists (znode_notices.CHANGES): the newest stay, for who looks
there; the rest is removed.

Kafka's brokers read them, and remove those that are old. Ours hear of both from the controller, which alone writes the
news (with the change, in its multi), and so removes what is too much of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from holdfast.coordination.zookeeper_client import NoNodeError
from holdfast.coordination.zookeeper_election import Won
from holdfast.coordination.zookeeper_link import Errands, Link, settled
from holdfast.coordination.zookeeper_tree import operation
from holdfast.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from holdfast.metadata.znode_notices import CHANGES, surplus_changes

log = logging.getLogger(__name__)

EVERY: Final = 200
"""Changed keys and entries between two looks: so many nodes more than are kept may be there for a while."""
_AT_ONCE: Final = 100
_CHANGING: Final = (
    ConfigRecord,
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
    RemoveUserScramCredentialRecord,
    ClientQuotaRecord,
)


class ConfigChanges:
    """See the module's docstring."""

    def __init__(self, link: Link, errands: Errands) -> None:
        self._link = link
        self._errands = errands
        self._won: Won | None = None
        self._since = 0

    def begin(self, won: Won) -> None:
        """A reign begins."""
        self._won = won
        self._clear_soon()

    def end(self) -> None:
        """It is over."""
        self._won = None

    def follow(self, records: Sequence[MetadataRecord]) -> None:
        """These were written."""
        self._since += sum(isinstance(record, _CHANGING) for record in records)
        if self._since >= EVERY:
            self._clear_soon()

    def _clear_soon(self) -> None:
        self._since = 0
        self._errands.post("old news of configurations", self._clear)

    def _clear(self) -> None:
        won = self._won
        if won is None or won.client is not self._link.client():
            return
        won.client.sync()  # a write before that had no answer is settled by it; until then no other is sent
        surplus = surplus_changes({parent: won.client.children(parent) or [] for parent in CHANGES})
        for first in range(0, len(surplus), _AT_ONCE):
            part = [operation(write) for write in surplus[first : first + _AT_ONCE]]
            try:
                settled(won.client.write([won.check, *part]), self._errands)
            except NoNodeError as e:
                log.info("%s: somebody else removes old news, too", e)
                return
