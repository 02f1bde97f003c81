"""What an operator asks of one broker's log directories: state, heal, take out, move.

Owns the requests ManageLogDirs (ours) and AlterReplicaLogDirs and what their answers mean. Functions over an
AdminClient; none of them tries a change again by itself: it may have happened.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.client.admin import AdminClient
from holdfast.client.errors import ConnectionLost
from holdfast.client.refused import raise_for, refusal
from holdfast.client.translate import none_if_negative
from holdfast.client.views import ClusterMetadata, DisksView, DiskView, LogDirView, MoveView, ReplicaOnDisk
from holdfast.client.wire import error_name
from holdfast.model.errors import HoldfastError, UnsupportedVersionError
from holdfast.model.types import BrokerId, TopicPartition
from holdfast.protocol.operating import DirAction, ManageLogDirsRequest

UNUSABLE: Final = ("offline", "silent")
"""States in which a directory has no room for anything."""
ACTION_TIMEOUT_S = 120.0
"""A directory that comes back is recovered before the answer."""


async def describe_disks(client: AdminClient, broker_id: BrokerId) -> DisksView:
    """All directories of a broker. UnsupportedVersionError when it is not one of Holdfast's."""
    return await client.retrying(lambda: ask_disks(client, broker_id, ManageLogDirsRequest(), client.timeout_s))


async def change_disk(
    client: AdminClient, broker_id: BrokerId, action: DirAction, path: str, *, force: bool = False
) -> DisksView:
    """Have a directory taken offline, used again, added or removed; how all of them are then.

    LogDirNotFoundError: the broker has no such directory; KafkaStorageError: it is bad; InvalidRequestError: the
    broker refuses, and says why.
    """
    request = ManageLogDirsRequest(action=action, path=path, force=force)  # type: ignore[arg-type]
    return await ask_disks(client, broker_id, request, ACTION_TIMEOUT_S)


async def ask_disks(
    client: AdminClient, broker_id: BrokerId, request: ManageLogDirsRequest, timeout_s: float
) -> DisksView:
    """One request, not retried."""
    try:
        answer = await client.ask_unlisted(broker_id, request, timeout_s=timeout_s)
    except ConnectionLost as e:
        raise not_asked_so(broker_id, e) from e
    raise_for(answer.error_code.value, answer.error_message, f"log directories of broker {broker_id}")
    return _view(answer)


def not_asked_so(broker_id: BrokerId, e: ConnectionLost) -> UnsupportedVersionError:
    """What a connection that ends at this question says."""
    return UnsupportedVersionError(
        f"broker {broker_id} closed the connection ({e}): it died, or is no Holdfast broker that can be asked "
        f"this, or not by this listener (operator.listener.names)"
    )


def disk_of_kafka(found: LogDirView) -> DiskView:
    """A directory of a broker that is not Holdfast's: state and reason are what can be told of its error."""
    return DiskView(
        path=found.path,
        directory_id=None,
        state="online" if found.error is None else "offline",
        reason=None if found.error is None else error_name(found.error),
        since_ms=None,
        total_bytes=found.total_bytes,
        usable_bytes=found.usable_bytes,
        probe_ms=None,
        cordoned=False,
        replicas=found.replicas,
    )


def disks_of_kafka(found: Iterable[LogDirView]) -> DisksView:
    """The directories of a broker that is not Holdfast's: copies on their way tell where to, not how quick they are."""
    disks = tuple(map(disk_of_kafka, found))
    places = {r.tp: d.path for d in disks for r in d.replicas if not r.future}
    moves = tuple(
        MoveView(tp=r.tp, source=places[r.tp], target=d.path, lag=r.offset_lag, bytes_per_s=0)
        for d in disks
        for r in d.replicas
        if r.future and r.tp in places
    )
    return DisksView(disks=disks, moves=moves)


def room_without(view: DisksView, path: str) -> tuple[int, int]:
    """Bytes that the replicas of a directory need elsewhere, and that the broker's other directories have. Pure.

    A directory that does not tell its room has none; those on one file system share theirs.
    """
    need, rooms = 0, dict[object, int]()
    for at, disk in enumerate(view.disks):
        if same_path(disk.path, path):
            need += sum(r.size_bytes for r in disk.replicas if not r.future)
        elif disk.state not in UNUSABLE:
            rooms[("alone", at) if disk.device is None else disk.device] = disk.usable_bytes or 0
    return need, sum(rooms.values())


def same_path(a: str, b: str) -> bool:
    """Whether two names of a directory differ in a slash at the end only."""
    return a.rstrip("/") == b.rstrip("/")


def last_copies(broker: BrokerId, disk: DiskView, view: ClusterMetadata) -> list[TopicPartition]:
    """What is in a directory of which no other broker has everything. Pure."""
    found = []
    for tp in sorted({r.tp for r in disk.replicas if not r.future}):
        topic = view.topics.get(tp.topic)
        partition = None if topic is None else topic.partition(tp.partition)
        if partition is not None and broker in partition.replicas and not set(partition.isr) - {broker}:
            found.append(tp)
    return found


def _view(answer: Any) -> DisksView:
    return DisksView(
        disks=tuple(
            DiskView(
                path=d.path,
                directory_id=d.directory_id,
                state=d.state,
                reason=d.reason,
                since_ms=int(d.since_ms) or None,
                total_bytes=none_if_negative(d.total_bytes),
                usable_bytes=none_if_negative(d.usable_bytes),
                probe_ms=None if d.probe_us < 0 else d.probe_us / 1000,
                cordoned=d.cordoned,
                device=none_if_negative(d.device),
                replicas=tuple(
                    ReplicaOnDisk(
                        tp=TopicPartition(r.topic_name, int(r.partition_index)),
                        size_bytes=int(r.size),
                        offset_lag=int(r.lag),
                        future=r.is_future,
                    )
                    for r in d.replicas
                ),
            )
            for d in answer.log_dirs
        ),
        moves=tuple(
            MoveView(
                tp=TopicPartition(m.topic_name, int(m.partition_index)),
                source=m.source,
                target=m.target,
                lag=int(m.lag),
                bytes_per_s=int(m.bytes_per_s),
            )
            for m in answer.moves
        ),
    )


async def alter_replica_log_dirs(
    client: AdminClient, broker_id: BrokerId, wishes: Mapping[TopicPartition, str]
) -> dict[TopicPartition, HoldfastError | None]:
    """Have replicas of a broker on these directories: None when it begins (or is so already), else why not."""
    from kio.schema.alter_replica_log_dirs.v2 import request as m

    by_path: dict[str, dict[str, list[int]]] = {}
    for tp, path in wishes.items():
        by_path.setdefault(path, {}).setdefault(tp.topic, []).append(tp.partition)
    entity = m.AlterReplicaLogDirsRequest(
        dirs=tuple(
            m.AlterReplicaLogDir(
                path=path,
                topics=tuple(
                    m.AlterReplicaLogDirTopic(name=topic, partitions=tuple(partitions))  # type: ignore[arg-type]
                    for topic, partitions in topics.items()
                ),
            )
            for path, topics in by_path.items()
        )
    )
    answer = await client.ask_broker(broker_id, entity)
    return {
        TopicPartition(str(t.topic_name), int(p.partition_index)): refusal(p.error_code.value, None)
        for t in answer.results
        for p in t.partitions
    }
