"""What the controller is asked about SCRAM users and quotas; events like those of events.py."""

from dataclasses import dataclass, field

from holdfast.model.errors import HoldfastError


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUpsertion:
    """A user shall log in with this. ``mechanism``: as the request has it, which may be none of ours."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterScramUsers:
    """``deletions``: names and mechanisms. Reply: AlterScramUsersReply."""

    deletions: tuple[tuple[str, int], ...] = ()
    upsertions: tuple[ScramUpsertion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterScramUsersReply:
    """Each user that was named, once, and why nothing was changed of it; None: it was."""

    users: tuple[tuple[str, HoldfastError | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """Of an entity, as the request has it. A value that is None takes a quota away."""

    entity: tuple[tuple[str, str | None], ...]
    values: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterQuotas:
    """``unknown_hosts``: names of ``ip`` entities that are no address and of no host. Reply: AlterQuotasReply."""

    changes: tuple[QuotaChange, ...]
    validate_only: bool = False
    unknown_hosts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterQuotasReply:
    """Why each change was not made, in their order; None: it was."""

    errors: tuple[HoldfastError | None, ...]
