"""Access control entries as bytes: AccessControlEntryRecord (18), RemoveAccessControlEntryRecord (19), and what brokers
are told of them.

    version (1) | entries that came | entries that went

Each an array, its length an unsigned varint; an entry is the fields of its record without the id and tagged fields. It
is one field of UpdateMetadata: the same bytes for all brokers, and read by each once.
"""

from collections.abc import Collection
from dataclasses import dataclass
from struct import error as struct_error
from typing import Final

from holdfast.metadata.codec_fields import I8, Reader, put_head, put_string, put_uvarint
from holdfast.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from holdfast.security.acls import AclBinding, AclEntry, ResourcePattern, is_entry
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind


def put_acl(out: bytearray, r: AccessControlEntryRecord) -> None:
    """Key 18."""
    put_head(out, 18, 0)
    out += r.id.bytes
    _put_binding(out, r.acl)
    out.append(0)


def _put_binding(out: bytearray, acl: AclBinding) -> None:
    resource, entry = acl.resource, acl.entry
    out += I8.pack(resource.kind)
    put_string(out, resource.name)
    out += I8.pack(resource.pattern)
    put_string(out, entry.principal)
    put_string(out, entry.host)
    out += I8.pack(entry.operation) + I8.pack(entry.permission)


def put_remove_acl(out: bytearray, r: RemoveAccessControlEntryRecord) -> None:
    """Key 19."""
    put_head(out, 19, 0)
    out += r.id.bytes
    out.append(0)


def get_acl(r: Reader) -> AccessControlEntryRecord:
    """An entry of a kind, operation or permission that nobody knows, or that filters have, cannot be read: it might be
    one that denies."""
    record = AccessControlEntryRecord(id=r.uuid(), acl=_get_binding(r))
    r.tags()
    return record


def _get_binding(r: Reader) -> AclBinding:
    resource = ResourcePattern(kind=ResourceKind(r.number(I8)), name=r.string(), pattern=PatternKind(r.number(I8)))
    entry = AclEntry(
        principal=r.string(),
        host=r.string(),
        operation=Operation(r.number(I8)),
        permission=Permission(r.number(I8)),
    )
    binding = AclBinding(resource, entry)
    if not is_entry(binding):
        raise ValueError(f"{binding} is no access control entry: it has what filters have")
    return binding


def get_remove_acl(r: Reader) -> RemoveAccessControlEntryRecord:
    """Likewise."""
    record = RemoveAccessControlEntryRecord(id=r.uuid())
    r.tags()
    return record


_NEWS_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class AclNews:
    """Entries that came and went."""

    added: tuple[AclBinding, ...] = ()
    removed: tuple[AclBinding, ...] = ()


def encode_acl_news(added: Collection[AclBinding], removed: Collection[AclBinding] = ()) -> bytes:
    """What brokers are told."""
    out = bytearray((_NEWS_VERSION,))
    for acls in (added, removed):
        put_uvarint(out, len(acls))
        for acl in acls:
            _put_binding(out, acl)
    return bytes(out)


def decode_acl_news(data: bytes) -> AclNews:
    """Likewise; ValueError when it cannot be understood as a whole."""
    reader = Reader(data)
    try:
        version = reader.uvarint()
        if version != _NEWS_VERSION:
            raise ValueError(f"version {version} of access control entries: expected {_NEWS_VERSION}")
        added, removed = (tuple(_get_binding(reader) for _ in range(reader.uvarint())) for _ in range(2))
    except (IndexError, struct_error) as e:
        raise ValueError(f"access control entries cannot be read: {e}") from e
    if reader.pos != len(data):
        raise ValueError(f"access control entries end at byte {reader.pos} of {len(data)}")
    return AclNews(added, removed)
