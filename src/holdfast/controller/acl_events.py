"""What the controller is asked about access control lists; events like those of events.py."""

from dataclasses import dataclass

from holdfast.model.errors import HoldfastError
from holdfast.security.acls import AclBinding, AclFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAcls:
    """Reply: CreateAclsReply."""

    acls: tuple[AclBinding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsReply:
    """Why each entry was not made, in their order; None: it is there."""

    errors: tuple[HoldfastError | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAcls:
    """Reply: DeleteAclsReply. An entry that several filters find is named by each of them."""

    filters: tuple[AclFilter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedAcls:
    """What one filter has found, and what is gone with that."""

    acls: tuple[AclBinding, ...] = ()
    error: HoldfastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsReply:
    """One for each filter, in their order."""

    results: tuple[DeletedAcls, ...]
