"""What is answered to who lacks the right to a whole request: its API's own form of an error.

Rights are security/operations.py's. An API with an error code for all of its answer says it there; the others say it
for each thing that was named, as Kafka's do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.broker.handlers.base import RequestContext, error_response, respond
from holdfast.model.errors import HoldfastError
from holdfast.protocol.apis import ApiKey
from holdfast.security.operations import RIGHTS, Asked, Row

ROWS: Final[dict[int, Row]] = {int(key): RIGHTS[key.name] for key in ApiKey if key.name in RIGHTS}


def lacks(ctx: RequestContext) -> bool:
    """Whether who asks has no right to any such request. It is told to nobody: ``refused`` is."""
    row = ROWS[ctx.api_key]
    return row.asked is Asked.BEFORE and not any(ctx.may(right.operation, right.kind) for right in row.rights)


def refused(ctx: RequestContext, request: Any) -> Any | None:
    """The answer to a request that who asks has no right to, judged before its handler; None: it goes on."""
    if not lacks(ctx):
        return None
    right = ROWS[ctx.api_key].rights[0]
    return refusal_of(ctx, request, ctx.denied(right.operation, right.kind))


def refusal_of(ctx: RequestContext, request: Any, error: HoldfastError) -> Any:
    """The whole answer of this API with one error. None: it has no place for one."""
    form = _FORMS.get(ctx.api_key)
    if form is None:
        return error_response(ctx.api_key, ctx.version, error)
    told = {"error_code": error, "error_message": error.message}
    return respond(ctx, **told, **form(request, told))


def _entries(answer: str, asked: str) -> Callable[[Any, dict[str, Any]], dict[str, Any]]:
    return lambda request, told: {answer: [told for _ in getattr(request, asked)]}


def _users(request: Any, told: dict[str, Any]) -> dict[str, Any]:
    names = {str(each.name) for each in (*request.deletions, *request.upsertions)}
    return {"results": [told | {"user": name} for name in sorted(names)]}


def _quotas(request: Any, told: dict[str, Any]) -> dict[str, Any]:
    entries = []
    for entry in request.entries:
        entity = [{"entity_type": e.entity_type, "entity_name": e.entity_name} for e in entry.entity]
        entries.append(told | {"entity": entity})
    return {"entries": entries}


def _log_dirs(request: Any, told: dict[str, Any]) -> dict[str, Any]:
    results = []
    for directory in request.dirs:
        for topic in directory.topics:
            partitions = [told | {"partition_index": p} for p in topic.partitions]
            results.append({"topic_name": topic.name, "partitions": partitions})
    return {"results": results}


def _elections(request: Any, told: dict[str, Any]) -> dict[str, Any]:
    results = [
        {"topic": topic.topic, "partition_result": [told | {"partition_id": p} for p in topic.partitions]}
        for topic in request.topic_partitions or ()
    ]
    return {"replica_election_results": results}


def _reassigned(request: Any, told: dict[str, Any]) -> dict[str, Any]:
    responses = []
    for topic in request.topics:
        partitions = [told | {"partition_index": p.partition_index} for p in topic.partitions]
        responses.append({"name": topic.name, "partitions": partitions})
    return {"responses": responses}


def _reassignments(request: Any, told: dict[str, Any]) -> dict[str, Any]:
    topics = []
    for topic in request.topics or ():
        nobody: dict[str, Any] = {"replicas": (), "adding_replicas": (), "removing_replicas": ()}
        partitions = [nobody | {"partition_index": p} for p in topic.partition_indexes]
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def _markers(request: Any, told: dict[str, Any]) -> dict[str, Any]:
    markers = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            partitions = [told | {"partition_index": p} for p in topic.partition_indexes]
            topics.append({"name": topic.name, "partitions": partitions})
        markers.append({"producer_id": marker.producer_id, "topics": topics})
    return {"markers": markers}


def _nothing(request: Any, told: dict[str, Any]) -> dict[str, Any]:
    return {}


_ALTER_CLIENT_QUOTAS, _ALTER_USERS = 49, 51
_FORMS: Final[dict[int, Callable[[Any, dict[str, Any]], dict[str, Any]]]] = {
    ApiKey.CREATE_ACLS: _entries("results", "creations"),
    ApiKey.DELETE_ACLS: _entries("filter_results", "filters"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda request, told: {"entries": None},
    _ALTER_CLIENT_QUOTAS: _quotas,
    _ALTER_USERS: _users,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: _nothing,
    ApiKey.ELECT_LEADERS: _elections,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassigned,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _reassignments,
    ApiKey.WRITE_TXN_MARKERS: _markers,
}
"""Those whose answer says more than an error code of its own, or has none."""
