"""Who can log in by SCRAM, and the quotas of clients, as parts of an image. Values; image.py has them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from immutables import Map

from holdfast.metadata.records import (
    ClientQuotaRecord,
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    ScramSecretRecord,
    UserScramCredentialRecord,
)
from holdfast.model.errors import MetadataError
from holdfast.security.quota_entities import USER, QuotaEntity, entity_order
from holdfast.security.scram_credential import ScramCredential, ScramMechanism

ScramUser: TypeAlias = tuple[str, ScramMechanism]
"""A user's name, and one of the mechanisms by which it can log in."""


@dataclass(frozen=True, slots=True)
class UsersImage:
    """``secret``: what the salts of users that there are not are made of; empty: nobody was ever a user here."""

    credentials: Map[ScramUser, ScramCredential] = field(default_factory=Map)
    secret: bytes = field(default=b"", repr=False)

    def of(self, user: str) -> dict[ScramMechanism, ScramCredential]:
        """The credentials of one user."""
        found = ((mechanism, self.credentials.get((user, mechanism))) for mechanism in ScramMechanism)
        return {mechanism: credential for mechanism, credential in found if credential is not None}

    def names(self) -> list[str]:
        """All users, sorted."""
        return sorted({name for name, _ in self.credentials})

    def with_credential(self, record: UserScramCredentialRecord) -> "UsersImage":
        """One more, or another one."""
        return UsersImage(self.credentials.set((record.name, record.mechanism), record.credential), self.secret)

    def without(self, record: RemoveUserScramCredentialRecord) -> "UsersImage":
        """One less."""
        user = record.name, record.mechanism
        if user not in self.credentials:
            raise MetadataError(
                f"Metadata record removes {record.mechanism.sasl_name} of user {record.name!r}, who has none"
            )
        return UsersImage(self.credentials.delete(user), self.secret)

    def with_secret(self, record: ScramSecretRecord) -> "UsersImage":
        """Of another secret."""
        return UsersImage(self.credentials, record.secret)

    def to_records(self) -> Iterator[MetadataRecord]:
        """Records that make them."""
        if self.secret:
            yield ScramSecretRecord(secret=self.secret)
        for name, mechanism in sorted(self.credentials):
            yield UserScramCredentialRecord(
                name=name, mechanism=mechanism, credential=self.credentials[name, mechanism]
            )


@dataclass(frozen=True, slots=True)
class QuotasImage:
    """Of each entity that has any."""

    by_entity: Map[QuotaEntity, Map[str, float]] = field(default_factory=Map)

    def __len__(self) -> int:
        return len(self.by_entity)

    def __iter__(self) -> Iterator[QuotaEntity]:
        """In an order that is the same in every run."""
        return iter(sorted(self.by_entity, key=entity_order))

    def of(self, entity: QuotaEntity) -> Map[str, float]:
        """Of one entity, by key."""
        return self.by_entity.get(entity, NO_QUOTAS)

    def users_with_clients(self) -> frozenset[str | None]:
        """Users of whom an entity with a client has quotas."""
        return frozenset(entity[0][1] for entity in self.by_entity if len(entity) > 1 and entity[0][0] == USER)

    def after(self, record: ClientQuotaRecord) -> "QuotasImage":
        """One more, or less."""
        values = self.of(record.entity)
        if record.value is not None:
            values = values.set(record.key, record.value)
        elif record.key in values:
            values = values.delete(record.key)
        if values:
            return QuotasImage(self.by_entity.set(record.entity, values))
        return QuotasImage(self.by_entity.delete(record.entity)) if record.entity in self.by_entity else self

    def to_records(self) -> Iterator[MetadataRecord]:
        """Records that make them."""
        for entity in self:
            for key, value in sorted(self.by_entity[entity].items()):
                yield ClientQuotaRecord(entity=entity, key=key, value=value)


NO_QUOTAS: Final[Map[str, float]] = Map()
