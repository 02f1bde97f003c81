"""Access control lists: entries come and go, each with a record. What they mean is security/authorizer.py's."""

from typing import Final
from uuid import UUID

from holdfast.controller.acl_events import CreateAcls, CreateAclsReply, DeleteAcls, DeleteAclsReply, DeletedAcls
from holdfast.controller.events import Decision
from holdfast.controller.state import ControllerState
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from holdfast.model.errors import HoldfastError, InvalidRequestError, PolicyViolationError
from holdfast.model.types import TimestampMs
from holdfast.security.acls import (
    MOST_IN_A_REQUEST,
    AclBinding,
    AclEntry,
    AclFilter,
    ResourcePattern,
    filter_refusal,
    refusal,
)

MOST_BYTES: Final = 384 << 10
"""Of the entries about one pattern: ZooKeeper has them in one node, and takes a megabyte with all that is beside it."""
_ENTRY_BYTES: Final = 100
"""Of an entry in JSON, beside its principal and its host."""
_TOO_MANY: Final = "Unable to perform excessively large batch operation."


def create_acls(state: ControllerState, event: CreateAcls, now_ms: TimestampMs) -> Decision:
    """What is there already is made. More than Kafka's limit of one request: none is."""
    errors: list[HoldfastError | None] = []
    new: dict[AclBinding, None] = {}
    sizes: dict[ResourcePattern, int] = {}
    for acl in event.acls:
        error = _refusal(state.image, acl, sizes) if acl not in new else None
        errors.append(error)
        if error is None and acl not in state.image.acls:
            new[acl] = None
    if len(new) > MOST_IN_A_REQUEST:
        return Decision(reply=CreateAclsReply(errors=(PolicyViolationError(_TOO_MANY),) * len(event.acls)))
    records = tuple(AccessControlEntryRecord(id=acl.id(), acl=acl) for acl in new)
    return Decision(records=records, reply=CreateAclsReply(errors=tuple(errors)))


def _refusal(image: ClusterImage, acl: AclBinding, sizes: dict[ResourcePattern, int]) -> HoldfastError | None:
    """``sizes``: of the entries of each pattern, with those of this request."""
    reason = refusal(acl)
    if reason is not None:
        return InvalidRequestError(reason)
    entries = image.acls.entries(acl.resource)
    if acl.entry in entries:
        return None
    if acl.resource not in sizes:
        sizes[acl.resource] = sum(map(_bytes, entries))
    size = sizes[acl.resource] + _bytes(acl.entry)
    if size > MOST_BYTES:
        return PolicyViolationError(f"{acl.resource} has too many access control entries: {MOST_BYTES} bytes at most")
    sizes[acl.resource] = size
    return None


def _bytes(entry: AclEntry) -> int:
    return _ENTRY_BYTES + len(entry.principal.encode()) + len(entry.host.encode())


def delete_acls(state: ControllerState, event: DeleteAcls, now_ms: TimestampMs) -> Decision:
    """What each filter finds goes, once."""
    gone: dict[UUID, None] = {}
    results = []
    for wanted in event.filters:
        result = _deleted(state.image, wanted, gone)
        results.append(result)
        gone |= {acl_id: None for acl in result.acls if (acl_id := state.image.acls.id_of(acl)) is not None}
    return Decision(
        records=tuple(RemoveAccessControlEntryRecord(id=acl_id) for acl_id in gone),
        reply=DeleteAclsReply(results=tuple(results)),
    )


def _deleted(image: ClusterImage, wanted: AclFilter, gone: dict[UUID, None]) -> DeletedAcls:
    reason = filter_refusal(wanted)
    if reason is not None:
        return DeletedAcls(error=InvalidRequestError(reason))
    found = tuple(image.acls.matching(wanted))
    more = sum(image.acls.id_of(acl) not in gone for acl in found)
    if len(gone) + more > MOST_IN_A_REQUEST:
        text = f"Cannot remove more than {MOST_IN_A_REQUEST} acls in a single delete operation."
        return DeletedAcls(error=PolicyViolationError(text))
    return DeletedAcls(acls=found)
