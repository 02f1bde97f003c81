"""What this broker knows of SCRAM users: the credentials that logins are checked by.

Owns what the controller told of them (UpdateMetadata's ``scram_users``). Changed on the event loop only. No key is ever
logged.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from holdfast.metadata.codec_news import decode_news
from holdfast.metadata.records import (
    RemoveUserScramCredentialRecord,
    ScramSecretRecord,
    UserScramCredentialRecord,
)
from holdfast.model.errors import CorruptRecordError
from holdfast.protocol.interbroker import TYPE_FULL
from holdfast.security.scram_credential import ScramCredential, ScramMechanism
from holdfast.security.scram_forms import CredentialForms

log = logging.getLogger(__name__)


class UserView:
    """See the module's docstring."""

    def __init__(self, cluster_id: str) -> None:
        self._credentials: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        self.forms: Final = {mechanism: CredentialForms() for mechanism in ScramMechanism}
        """What can be seen of them all."""
        self.secret = b"no user yet of " + cluster_id.encode()
        """What the salts of unknown users are made of: equal on all brokers. Before there was a first user, no user is
        known and there is nobody to be hidden: then it is no secret."""

    def scram(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """What a login of this user is checked by; None: it cannot log in so."""
        found = self._credentials.get(user)
        return None if found is None else found.get(mechanism)

    def iterations(self, user: str) -> dict[ScramMechanism, int]:
        """What may be told of a user: its mechanisms, with their iterations. Empty: there is no such user."""
        return {mechanism: each.iterations for mechanism, each in sorted(self._credentials.get(user, {}).items())}

    @property
    def names(self) -> list[str]:
        """All users."""
        return sorted(self._credentials)

    def update(self, request: Any) -> None:
        """What UpdateMetadata says of users, if it does. After news that cannot be read nobody can log in, until all is
        told again: one of them may be of a user that is no more."""
        if not request.scram_users:
            if request.type == TYPE_FULL:  # there are none
                self._clear()
            return
        try:
            records = decode_news(request.scram_users)
        except CorruptRecordError as e:
            log.error("The controller's SCRAM users are not understood, so none of them can log in: %s", e)
            self._clear()
            return
        if request.type == TYPE_FULL:
            self._clear()
        for record in records:
            if isinstance(record, UserScramCredentialRecord):
                self._remove(record.name, record.mechanism)
                self._credentials.setdefault(record.name, {})[record.mechanism] = record.credential
                self.forms[record.mechanism].add(record.credential)
            elif isinstance(record, RemoveUserScramCredentialRecord):
                self._remove(record.name, record.mechanism)
            elif isinstance(record, ScramSecretRecord):
                self.secret = record.secret

    def _remove(self, user: str, mechanism: ScramMechanism) -> None:
        found = self._credentials.get(user, {})
        credential = found.pop(mechanism, None)
        if credential is not None:
            self.forms[mechanism].remove(credential)
        if not found:
            self._credentials.pop(user, None)

    def _clear(self) -> None:
        self._credentials.clear()
        for forms in self.forms.values():
            forms.clear()
