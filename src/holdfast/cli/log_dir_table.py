"""Log directories as a table that fits where it is read, as one line that counts them, and as JSON. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from holdfast.cli.columns import GAP, table_lines
from holdfast.cli.log_dir_lines import UNKNOWN, moment, size
from holdfast.client.views import DisksView, DiskView, MoveView, ReplicaOnDisk
from holdfast.model.types import BrokerId

Views = Mapping[BrokerId, DisksView]
STATES: Final = ("online", "full", "degraded", "loading", "silent", "offline")
"""In the order in which they are counted."""
GOOD: Final = "online"
SHORTEST_PATH: Final = 24
"""A column of a terminal is left out rather than that paths have less."""


class Column(NamedTuple):
    """``needed``: 0 stays in any width, of the others the highest goes first."""

    name: str
    cell: Callable[[BrokerId, DisksView, DiskView], str]
    needed: int = 0
    is_number: bool = False


COLUMNS: Final = (
    Column("BROKER", lambda broker, view, disk: str(broker), 0, True),
    Column("DIRECTORY", lambda broker, view, disk: disk.path),
    Column("STATE", lambda broker, view, disk: disk.state + (", cordoned" if disk.cordoned else "")),
    Column("SINCE (UTC)", lambda broker, view, disk: moment(disk.since_ms), 4),
    Column("REPLICAS", lambda broker, view, disk: str(sum(not r.future for r in disk.replicas)), 1, True),
    Column("HOLD", lambda broker, view, disk: size(sum(r.size_bytes for r in disk.replicas)), 2, True),
    Column("USABLE", lambda broker, view, disk: size(disk.usable_bytes), 0, True),
    Column("OF", lambda broker, view, disk: size(disk.total_bytes), 3, True),
    Column("PROBE", lambda broker, view, disk: milliseconds(disk.probe_ms), 5, True),
    Column("COMING, LAG", lambda broker, view, disk: coming(view, disk), 6, True),
)  # fmt: skip
PATH: Final = "DIRECTORY"


def milliseconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f} ms"


def coming(view: DisksView, disk: DiskView) -> str:
    """How many replicas are on their way there, and how many records these lack."""
    moves = [m for m in view.moves if m.target == disk.path]
    return f"{len(moves)}, {sum(m.lag for m in moves)}" if moves else UNKNOWN


def disk_lines(views: Views, width: int | None) -> Iterator[str]:
    """A line each, of everything known in a pipe (``width`` None), of as many columns as there is room for on a
    terminal, where a long path goes on below itself."""
    disks = [(broker, view, disk) for broker, view in views.items() for disk in view.disks]
    cells = {column: [column.cell(*each) for each in disks] for column in COLUMNS}
    shown = [column for column in COLUMNS if column.needed < 6 or any(text != UNKNOWN for text in cells[column])]
    while width is not None and width_of(cells, shown) > width and any(column.needed for column in shown):
        shown.remove(max(shown, key=lambda column: column.needed))
    return table_lines(
        [column.name for column in shown],
        [[cells[column][at] for column in shown] for at in range(len(disks))],
        width=width,
        folded=next(at for at, column in enumerate(shown) if column.name == PATH),
        right=[at for at, column in enumerate(shown) if column.is_number],
    )


def width_of(cells: Mapping[Column, list[str]], shown: Iterable[Column]) -> int:
    """Of a line of these columns, whose path is folded as far as it may be."""
    widths = [
        min(max(map(len, (column.name, *cells[column]))), SHORTEST_PATH if column.name == PATH else 1 << 20)
        for column in shown
    ]
    return sum(widths) + len(GAP) * (len(widths) - 1)


def reason_lines(views: Views) -> list[str]:
    """Why directories are not simply online."""
    return [
        f"broker {broker}: {disk.path} is {disk.state}: {disk.reason}"
        for broker, view in views.items()
        for disk in view.disks
        if disk.reason
    ]


def count_line(views: Views) -> str:
    """``100 directories: 98 online, 1 full, 1 offline``."""
    states = Counter(disk.state for view in views.values() for disk in view.disks)
    cordoned = sum(disk.cordoned for view in views.values() for disk in view.disks)
    total = sum(states.values())
    counts = [f"{states[state]} {state}" for state in (*STATES, *sorted(set(states) - set(STATES))) if states[state]]
    counts += [f"{cordoned} of them cordoned"] if cordoned else []
    return f"{total} director{'y' if total == 1 else 'ies'}: {', '.join(counts) or 'none'}"


def chosen_disks(views: Views, states: Iterable[str] | None) -> dict[BrokerId, DisksView]:
    """Only directories of these states; None: all of them. A broker without one is left out."""
    if states is None:
        return dict(views)
    wanted = frozenset(states)
    found = {
        broker: replace(view, disks=tuple(disk for disk in view.disks if disk.state in wanted))
        for broker, view in views.items()
    }
    return {broker: view for broker, view in found.items() if view.disks}


def of_topics(view: DisksView, topics: Iterable[str]) -> DisksView:
    """Only replicas and moves of these."""
    wanted = frozenset(topics)
    return DisksView(
        disks=tuple(replace(d, replicas=tuple(r for r in d.replicas if r.tp.topic in wanted)) for d in view.disks),
        moves=tuple(m for m in view.moves if m.tp.topic in wanted),
    )


def disks_document(views: Views, silent: Mapping[BrokerId, str]) -> str:
    """``silent``: brokers that could not be asked, and why."""
    states = Counter(disk.state for view in views.values() for disk in view.disks)
    brokers: list[dict[str, Any]] = [
        {
            "broker": broker,
            "error": None,
            "log_dirs": [_disk(disk) for disk in view.disks],
            "moves": [_move(move) for move in view.moves],
        }
        for broker, view in views.items()
    ]
    brokers += [{"broker": broker, "error": why, "log_dirs": [], "moves": []} for broker, why in silent.items()]
    document = {"version": 1, "directories": {"total": sum(states.values()), **states}, "brokers": brokers}
    return json.dumps(document, ensure_ascii=False)


def _disk(disk: DiskView) -> dict[str, Any]:
    return {
        "path": disk.path,
        "directory_id": None if disk.directory_id is None else str(disk.directory_id),
        "state": disk.state,
        "healthy": disk.state == GOOD,
        "reason": disk.reason,
        "since_ms": disk.since_ms,
        "cordoned": disk.cordoned,
        "room": {"usable_bytes": disk.usable_bytes, "total_bytes": disk.total_bytes, "device": disk.device},
        "probe_ms": disk.probe_ms,
        "replica_bytes": sum(r.size_bytes for r in disk.replicas),
        "replicas": [_replica(r) for r in disk.replicas],
    }


def _replica(replica: ReplicaOnDisk) -> dict[str, Any]:
    return {
        "topic": replica.tp.topic,
        "partition": replica.tp.partition,
        "size_bytes": replica.size_bytes,
        "offset_lag": replica.offset_lag,
        "future": replica.future,
    }


def _move(move: MoveView) -> dict[str, Any]:
    return {
        "topic": move.tp.topic,
        "partition": move.tp.partition,
        "source": move.source,
        "target": move.target,
        "lag": move.lag,
        "bytes_per_s": move.bytes_per_s,
    }
