"""The access control entries of an image. A value; two ids never name one entry."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from immutables import Map

from holdfast.metadata.records import AccessControlEntryRecord
from holdfast.model.errors import MetadataError
from holdfast.security.acls import AclBinding, AclEntry, AclFilter, ResourcePattern

EntryIds: TypeAlias = Map[AclEntry, UUID]
_NONE: Final[EntryIds] = Map()


@dataclass(frozen=True, slots=True)
class AclsImage:
    """``by_id``: by the ids of their records; ``by_resource``: the same by what they are about."""

    by_id: Map[UUID, AclBinding] = field(default_factory=Map)
    by_resource: Map[ResourcePattern, EntryIds] = field(default_factory=Map)

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, acl: AclBinding) -> bool:
        return self.id_of(acl) is not None

    def __iter__(self) -> Iterator[AclBinding]:
        """In the order of their ids, which is the same in every run."""
        return (acl for _, acl in sorted(self.by_id.items(), key=lambda item: item[0].int))

    def id_of(self, acl: AclBinding) -> UUID | None:
        """The id of its record; None: it is not there."""
        return self.entries(acl.resource).get(acl.entry)

    def entries(self, resource: ResourcePattern) -> EntryIds:
        """Those about one pattern."""
        return self.by_resource.get(resource, _NONE)

    def matching(self, wanted: AclFilter) -> Iterator[AclBinding]:
        """Those that a filter finds, in the order of what they say. One that names a pattern looks at that alone."""
        pattern = wanted.resource
        if pattern is not None:
            bindings = (AclBinding(pattern, entry) for entry in self.entries(pattern))
        else:
            bindings = (acl for acl in self.by_id.values())
        return iter(sorted(filter(wanted.matches, bindings)))

    def with_acl(self, acl_id: UUID, acl: AclBinding) -> "AclsImage":
        """One more. What had the id before, or is the same under another one, goes."""
        image = self
        for known in {acl_id, self.id_of(acl)}:
            if known is not None and known in image.by_id:
                image, _ = image.without(known)
        entries = image.entries(acl.resource).set(acl.entry, acl_id)
        return AclsImage(image.by_id.set(acl_id, acl), image.by_resource.set(acl.resource, entries))

    def without(self, acl_id: UUID) -> "tuple[AclsImage, AclBinding]":
        """One less, and which it was."""
        acl = self.by_id.get(acl_id)
        if acl is None:
            raise MetadataError(f"Metadata record removes access control entry {acl_id}, which does not exist")
        entries = self.entries(acl.resource).delete(acl.entry)
        by_resource = self.by_resource
        by_resource = by_resource.set(acl.resource, entries) if entries else by_resource.delete(acl.resource)
        return AclsImage(self.by_id.delete(acl_id), by_resource), acl

    def to_records(self) -> Iterator[AccessControlEntryRecord]:
        """Records that make them."""
        for acl_id, acl in sorted(self.by_id.items(), key=lambda item: item[0].int):
            yield AccessControlEntryRecord(id=acl_id, acl=acl)
