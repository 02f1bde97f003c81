"""Records of access control entries as bytes: AccessControlEntryRecord (18) and RemoveAccessControlEntryRecord (19)."""

from holdfast.metadata.codec_fields import I8, Reader, put_head, put_string
from holdfast.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from holdfast.security.acls import AclBinding, AclEntry, ResourcePattern
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind


def put_acl(out: bytearray, r: AccessControlEntryRecord) -> None:
    """Key 18."""
    resource, entry = r.acl.resource, r.acl.entry
    put_head(out, 18, 0)
    out += r.id.bytes
    out += I8.pack(resource.kind)
    put_string(out, resource.name)
    out += I8.pack(resource.pattern)
    put_string(out, entry.principal)
    put_string(out, entry.host)
    out += I8.pack(entry.operation) + I8.pack(entry.permission)
    out.append(0)


def put_remove_acl(out: bytearray, r: RemoveAccessControlEntryRecord) -> None:
    """Key 19."""
    put_head(out, 19, 0)
    out += r.id.bytes
    out.append(0)


def get_acl(r: Reader) -> AccessControlEntryRecord:
    """An entry of a kind, operation or permission that nobody knows cannot be read: it might be one that denies."""
    acl_id = r.uuid()
    resource = ResourcePattern(kind=ResourceKind(r.number(I8)), name=r.string(), pattern=PatternKind(r.number(I8)))
    entry = AclEntry(
        principal=r.string(),
        host=r.string(),
        operation=Operation(r.number(I8)),
        permission=Permission(r.number(I8)),
    )
    r.tags()
    return AccessControlEntryRecord(id=acl_id, acl=AclBinding(resource, entry))


def get_remove_acl(r: Reader) -> RemoveAccessControlEntryRecord:
    """Likewise."""
    record = RemoveAccessControlEntryRecord(id=r.uuid())
    r.tags()
    return record
