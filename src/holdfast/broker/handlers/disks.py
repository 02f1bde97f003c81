"""ManageLogDirs (ours, protocol/operating.py): describe the log directories of this broker, and have them changed.

Version 0. Every answer describes all directories as they are afterwards, also one with an error. What is done and
what is refused is broker/disks.py's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.model.errors import HoldfastError, InvalidRequestError
from holdfast.protocol.operating import DirAction
from holdfast.security.resources import Operation, ResourceKind

if TYPE_CHECKING:
    from holdfast.broker.disk_status import DiskStatus
    from holdfast.broker.disks import Disks


async def handle_manage_log_dirs(ctx: RequestContext, request: Any) -> Any:
    """Do what is asked for, then tell how the directories are."""
    operation = Operation.DESCRIBE if request.action == DirAction.DESCRIBE else Operation.ALTER
    denied = ctx.missing(operation, ResourceKind.CLUSTER)
    if denied is not None:
        raise denied
    error: HoldfastError | None = None
    try:
        await _act(ctx.broker.disks, int(request.action), request.path, request.force)
    except HoldfastError as e:
        error = e
    log_dirs = []
    for status in ctx.broker.disks.describe():
        log_dirs.append(_log_dir(status))
        await asyncio.sleep(0)  # thousands of partitions must not hold the loop
    return respond(
        ctx,
        error_code=error,
        error_message=None if error is None else str(error),
        log_dirs=log_dirs,
        moves=_moves(ctx),
    )


async def _act(disks: Disks, action: int, path: str | None, force: bool) -> None:
    if action == DirAction.DESCRIBE:
        return
    if not path:
        raise InvalidRequestError("no path: expected that of a log directory")
    if action == DirAction.OFFLINE:
        await disks.offline(path, force=force)
    elif action == DirAction.ONLINE:
        await disks.online(path)
    elif action == DirAction.ADD:
        await disks.add(path, create=force)
    elif action == DirAction.REMOVE:
        await disks.remove(path, force=force)
    else:
        raise InvalidRequestError(f"action {action}: expected one of {', '.join(map(str, map(int, DirAction)))}")


def _log_dir(status: DiskStatus) -> dict[str, Any]:
    return {
        "path": status.path,
        "directory_id": status.directory_id,
        "state": status.state,
        "reason": status.reason,
        "since_ms": status.since_ms,
        "total_bytes": status.total_bytes,
        "usable_bytes": status.usable_bytes,
        "probe_us": -1 if status.probe_ms is None else round(status.probe_ms * 1000),
        "cordoned": status.cordoned,
        "device": status.device,
        "replicas": [
            {
                "topic_name": each.topic_partition.topic,
                "partition_index": each.topic_partition.partition,
                "size": each.size,
                "lag": each.lag,
                "is_future": each.is_future,
            }
            for each in status.replicas
        ],
    }


def _moves(ctx: RequestContext) -> list[dict[str, Any]]:
    return [
        {
            "topic_name": each.topic_partition.topic,
            "partition_index": each.topic_partition.partition,
            "source": each.from_path,
            "target": each.to_path,
            "lag": each.lag,
            "bytes_per_s": round(each.bytes_per_s),
        }
        for each in ctx.broker.moves.describe()
    ]
