"""The rows of tables, made of a snapshot. Pure: a page shows a window of them (windows.py)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from holdfast.client.views import DiskView, PartitionMetadata, ReplicaOnDisk, TopicView
from holdfast.console.snapshot import Snapshot, ToldDisks, lag_of
from holdfast.console.windows import Row
from holdfast.model.types import BrokerId, TopicPartition

Sorts = Mapping[str, Callable[[Row], Any]]

PARTITION_FILTERS: Final = {
    "offline": "without a leader",
    "under": "under-replicated",
    "moving": "moving",
}
"""What the page of partitions can show alone -> its words."""


def by(*columns: str) -> Callable[[Row], tuple[Any, ...]]:
    """Sorts by columns; what is unknown comes first."""

    def key(row: Row) -> tuple[Any, ...]:
        values = (row[column] for column in columns)
        return tuple((value is not None, 0 if value is None else value) for value in values)

    return key


# -- topics and partitions -----------------------------------------------------------------------------------------

TOPIC_SORTS: Sorts = {
    "name": by("name"),
    "partitions": by("partitions", "name"),
    "bytes": by("bytes", "name"),
    "records": by("records", "name"),
    "trouble": by("leaderless", "under", "name"),
}


def topic_rows(snapshot: Snapshot) -> list[Row]:
    """A row a topic; ``bytes`` of all replicas, ``records`` between nothing and the ends of its logs."""
    sizes = bytes_by_topic(snapshot)
    ends: dict[str, int] = {}
    for tp, end in snapshot.ends.items():
        ends[tp.topic] = ends.get(tp.topic, 0) + end
    return [
        {
            "name": name,
            "internal": topic.internal,
            "partitions": len(topic.partitions),
            "replicas": max((len(p.replicas) for p in topic.partitions), default=0),
            "bytes": sizes.get(name),
            "records": ends.get(name),
            "leaderless": sum(p.leader is None for p in topic.partitions),
            "under": sum(is_under_replicated(snapshot, name, p) for p in topic.partitions),
            "error": None if topic.error is None else str(topic.error),
        }
        for name, topic in snapshot.view.topics.items()
    ]


def bytes_by_topic(snapshot: Snapshot) -> dict[str, int]:
    """Of all replicas that are told of, copies on their way left out."""
    found: dict[str, int] = {}
    for told in snapshot.disks.values():
        for disk in told.disks.disks:
            for replica in disk.replicas:
                if not replica.future:
                    found[replica.tp.topic] = found.get(replica.tp.topic, 0) + replica.size_bytes
    return found


def is_under_replicated(snapshot: Snapshot, topic: str, partition: PartitionMetadata) -> bool:
    """Whether a replica is missing that is not only on its way."""
    if len(partition.isr) == len(partition.replicas):
        return False
    moving = snapshot.reassignments.get(TopicPartition(topic, partition.partition))
    wanted = set(partition.replicas) - set(() if moving is None else moving.adding)
    return bool(wanted - set(partition.isr))


class ListedPartition(NamedTuple):
    """One partition of a table that may have very many; by topic and number they are in order."""

    topic: str
    partition: int
    leader: BrokerId | None
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    bytes: int | None
    end: int | None
    offline: bool
    under: bool
    moving: bool

    @property
    def tp(self) -> str:
        return f"{self.topic}-{self.partition}"


PARTITION_SORTS: Mapping[str, Callable[[ListedPartition], Any]] = {
    "name": lambda row: row[:2],
    "leader": lambda row: (-1 if row.leader is None else row.leader, *row[:2]),
    "bytes": lambda row: (-1 if row.bytes is None else row.bytes, *row[:2]),
    "end": lambda row: (-1 if row.end is None else row.end, *row[:2]),
}


def partition_text(row: ListedPartition) -> str:
    """What a search of partitions looks at."""
    return row.tp


def partition_rows(snapshot: Snapshot, only: str = "", topic: str | None = None) -> list[ListedPartition]:
    """A row a partition, of one topic or of all, in order; ``only`` is one of ``PARTITION_FILTERS``."""
    sizes = bytes_of_leaders(snapshot)
    moving = moving_partitions(snapshot)
    names = sorted(snapshot.view.topics) if topic is None else [topic] if topic in snapshot.view.topics else []
    rows = [row for name in names for row in _partition_rows(snapshot, snapshot.view.topics[name], sizes, moving)]
    return only_rows(rows, only)


def only_rows(rows: list[ListedPartition], only: str) -> list[ListedPartition]:
    """Those that a filter leaves."""
    return [row for row in rows if getattr(row, only)] if only in PARTITION_FILTERS else rows


def _partition_rows(
    snapshot: Snapshot,
    topic: TopicView,
    sizes: Mapping[tuple[TopicPartition, BrokerId], int],
    moving: set[TopicPartition],
) -> Iterator[ListedPartition]:
    name, ends = topic.name, snapshot.ends
    for p in topic.partitions:
        tp = TopicPartition(name, p.partition)
        yield ListedPartition(  # by place: there may be very many
            name,
            p.partition,
            p.leader,
            p.replicas,
            p.isr,
            None if p.leader is None else sizes.get((tp, p.leader)),
            ends.get(tp),
            p.leader is None,
            is_under_replicated(snapshot, name, p),
            tp in moving,
        )


def bytes_of_leaders(snapshot: Snapshot) -> dict[tuple[TopicPartition, BrokerId], int]:
    """Size of each replica by partition and broker."""
    return {
        (replica.tp, broker): replica.size_bytes
        for broker, told in snapshot.disks.items()
        for disk in told.disks.disks
        for replica in disk.replicas
        if not replica.future
    }


def moving_partitions(snapshot: Snapshot) -> set[TopicPartition]:
    """Between brokers, or between directories of one."""
    return set(snapshot.reassignments) | {m.tp for told in snapshot.disks.values() for m in told.disks.moves}


# -- brokers and directories ---------------------------------------------------------------------------------------


def broker_rows(snapshot: Snapshot) -> list[Row]:
    """A row a broker, those that are away included."""
    leads: dict[BrokerId, int] = {}
    replicas: dict[BrokerId, int] = {}
    behind: dict[BrokerId, int] = {}
    for topic in snapshot.view.topics.values():
        for p in topic.partitions:
            if p.leader is not None:
                leads[p.leader] = leads.get(p.leader, 0) + 1
            for broker in p.replicas:
                replicas[broker] = replicas.get(broker, 0) + 1
                if broker not in p.isr:
                    behind[broker] = behind.get(broker, 0) + 1
    return [
        _broker_row(snapshot, broker, leads.get(broker, 0), replicas.get(broker, 0), behind.get(broker, 0))
        for broker in sorted({*snapshot.brokers, *replicas})
    ]


def _broker_row(snapshot: Snapshot, broker: BrokerId, leads: int, replicas: int, behind: int) -> Row:
    node, told = snapshot.view.brokers.get(broker), snapshot.disks.get(broker)
    disks = () if told is None else told.disks.disks
    return {
        "broker": broker,
        "address": None if node is None else node.address,
        "rack": None if node is None else node.rack,
        "alive": broker in snapshot.alive,
        "controller": broker == snapshot.view.controller_id,
        "leads": leads,
        "replicas": replicas,
        "behind": behind,
        "directories": len(disks),
        "offline": sum(d.state == "offline" for d in disks),
        "bytes": sum(r.size_bytes for d in disks for r in d.replicas),
        "usable": room_of(disks),
        "error": None if told is None else told.error,
    }


def room_of(disks: tuple[DiskView, ...]) -> int | None:
    """Usable bytes; directories on one file system share its room. None where nobody tells."""
    rooms: dict[object, int] = {}
    for at, disk in enumerate(disks):
        if disk.usable_bytes is not None and disk.state not in ("offline", "silent"):
            rooms[("alone", at) if disk.device is None else disk.device] = disk.usable_bytes
    return sum(rooms.values()) if rooms else None


def disk_row(told: ToldDisks, disk: DiskView) -> Row:
    """What a tile of the home page shows."""
    return {
        "disk": disk,
        "state": disk.state,
        "why": why(disk),
        "replicas": sum(not r.future for r in disk.replicas),
        "bytes": sum(r.size_bytes for r in disk.replicas),
        "coming": sum(m.target == disk.path for m in told.disks.moves),
        "going": sum(m.source == disk.path for m in told.disks.moves),
        "used_share": used_share(disk),
    }


def why(disk: DiskView) -> str:
    """The reason without the path, which is named beside it."""
    return (disk.reason or "").removeprefix(f"log dir {disk.path}").lstrip(" :")


def used_share(disk: DiskView) -> float | None:
    """0 to 1: how full the file system is."""
    if not disk.total_bytes or disk.usable_bytes is None:
        return None
    return min(1.0, max(0.0, 1 - disk.usable_bytes / disk.total_bytes))


REPLICA_SORTS: Mapping[str, Callable[[ReplicaOnDisk], Any]] = {
    "name": lambda replica: replica.tp,
    "bytes": lambda replica: (replica.size_bytes, replica.tp),
    "lag": lambda replica: (replica.offset_lag, replica.tp),
}


def replica_text(replica: ReplicaOnDisk) -> str:
    """What a search of replicas looks at."""
    return str(replica.tp)


def replica_rows(snapshot: Snapshot, broker: BrokerId, replicas: Iterable[ReplicaOnDisk]) -> list[Row]:
    """Of a directory of a broker; of an offline one what was there, and how its partitions do without it."""
    told = snapshot.disks.get(broker)
    moves = {} if told is None else {m.tp: m for m in told.disks.moves}
    rows: list[Row] = []
    for replica in replicas:
        p = snapshot.partition(replica.tp)
        move = moves.get(replica.tp)
        others = () if p is None else tuple(b for b in p.isr if b != broker)
        rows.append(
            {
                "tp": str(replica.tp),
                "topic": replica.tp.topic,
                "partition": replica.tp.partition,
                "bytes": replica.size_bytes,
                "lag": replica.offset_lag,
                "future": replica.future,
                "leader": None if p is None else p.leader,
                "isr": () if p is None else p.isr,
                "last_copy": p is not None and not replica.future and broker in p.replicas and not others,
                "target": None if move is None else move.target,
            }
        )
    return rows


# -- groups --------------------------------------------------------------------------------------------------------

GROUP_SORTS: Sorts = {"name": by("name"), "state": by("state", "name"), "lag": by("lag", "name")}


def group_rows(snapshot: Snapshot) -> list[Row]:
    """A row a group; its lag as far as it was asked for."""
    rows: list[Row] = []
    for group in snapshot.groups:
        at = snapshot.positions.get(group.group_id)
        rows.append(
            {
                "name": group.group_id,
                "state": group.state or "Unknown",
                "type": group.protocol_type or "–",
                "lag": None if at is None else lag_of(snapshot, at),
                "topics": 0 if at is None else len({tp.topic for tp in at.offsets}),
                "told_ms": None if at is None else at.told_ms,
            }
        )
    return rows


# -- what is under way ---------------------------------------------------------------------------------------------

MOVE_SORTS: Sorts = {"name": by("topic", "partition", "broker"), "share": by("share", "topic", "partition")}


def move_rows(snapshot: Snapshot) -> list[Row]:
    """Replicas on their way between directories: how much of each is copied, and how long it takes yet."""
    rows: list[Row] = []
    for broker, told in snapshot.disks.items():
        if not told.disks.moves:
            continue
        sizes = {(r.tp, r.future): r.size_bytes for d in told.disks.disks for r in d.replicas}
        for move in told.disks.moves:
            whole, copied = sizes.get((move.tp, False), 0), sizes.get((move.tp, True), 0)
            left = max(0, whole - copied)
            rows.append(
                {
                    "tp": str(move.tp),
                    "topic": move.tp.topic,
                    "partition": move.tp.partition,
                    "broker": broker,
                    "source": move.source,
                    "target": move.target,
                    "lag": move.lag,
                    "rate": move.bytes_per_s,
                    "bytes": whole,
                    "copied": min(copied, whole),
                    "share": min(1.0, copied / whole) if whole else 0.0,
                    "left_s": left / move.bytes_per_s if move.bytes_per_s else None,
                }
            )
    return rows


def reassignment_rows(snapshot: Snapshot) -> list[Row]:
    """Partitions that change brokers: bytes that the new replicas have, of what the leader has."""
    sizes = bytes_of_leaders(snapshot) if snapshot.reassignments else {}
    rows: list[Row] = []
    for tp, each in snapshot.reassignments.items():
        p = snapshot.partition(tp)
        whole = 0 if p is None or p.leader is None else sizes.get((tp, p.leader), 0)
        wanted = whole * len(each.adding)
        copied = sum(min(whole, sizes.get((tp, broker), 0)) for broker in each.adding)
        rows.append(
            {
                "tp": str(tp),
                "topic": tp.topic,
                "partition": tp.partition,
                "broker": 0,
                "replicas": each.replicas,
                "adding": each.adding,
                "removing": each.removing,
                "bytes": wanted,
                "copied": copied,
                "share": copied / wanted if wanted else 0.0,
            }
        )
    return rows
