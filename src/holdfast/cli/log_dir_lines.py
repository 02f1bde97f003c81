"""Log directories as lines: kafka-log-dirs.sh's JSON, replicas, and room before a removal. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.cli.kafka_errors import Declined, DeclinedUse
from holdfast.cli.kafka_words import PACKAGE, exception_name
from holdfast.client.disks import UNUSABLE, room_without, same_path
from holdfast.client.views import DisksView, LogDirView
from holdfast.client.words import words_of_bytes, words_of_moment
from holdfast.model.types import BrokerId, TopicPartition

UNKNOWN = "-"


class NoSuchBrokers(Declined):
    """Brokers that are not there; Kafka has a sentence of its own for them."""


def chosen_brokers(asked: str | None, there: Iterable[BrokerId]) -> list[BrokerId]:
    """The brokers of ``--broker-list``, or all. NoSuchBrokers, DeclinedUse."""
    existing = sorted(there)
    if not asked:
        return existing
    brokers = []
    for part in asked.split(","):
        try:
            brokers.append(int(part.strip()))
        except ValueError:
            raise DeclinedUse(
                f"--broker-list {asked}: {part!r}: expected ids of brokers with commas between them, like 1,2",
                f'For input string: "{part}"',
            ) from None
    missing = [str(b) for b in dict.fromkeys(brokers) if b not in existing]
    if missing:
        raise NoSuchBrokers(
            f"--broker-list {asked}: there is no broker {', '.join(missing)}: expected some of "
            + ", ".join(map(str, existing)),
            f"ERROR: The given brokers do not exist from --broker-list: {','.join(missing)}."
            f" Current existent brokers: {','.join(map(str, existing))}",
        )
    return list(dict.fromkeys(brokers))


def kafka_json(dirs: Mapping[BrokerId, Iterable[LogDirView]]) -> str:
    """The one line of JSON that kafka-log-dirs.sh prints, keys in its order."""
    brokers: list[dict[str, Any]] = [
        {
            "broker": broker,
            "logDirs": [
                {
                    "partitions": [
                        {
                            "partition": str(r.tp),
                            "size": r.size_bytes,
                            "offsetLag": r.offset_lag,
                            "isFuture": r.future,
                        }
                        for r in each.replicas
                    ],
                    "error": None if each.error is None else f"{PACKAGE}.{exception_name(each.error)}",
                    "logDir": each.path,
                }
                for each in found
            ],
        }
        for broker, found in dirs.items()
    ]
    return json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":"), ensure_ascii=False)


def size(count: int | None) -> str:
    """Bytes as a person reads them: 1.5 GiB."""
    return UNKNOWN if count is None else words_of_bytes(count)


def moment(ms: int | None) -> str:
    """A time as a person reads it, UTC."""
    return UNKNOWN if ms is None else words_of_moment(ms)


def replica_lines(views: Mapping[BrokerId, DisksView], wanted: Sequence[str] | None) -> list[str]:
    """What lies where, one replica a line, with moves under way; of an offline directory what was there."""
    lines = []
    for broker, view in views.items():
        moves = {m.tp: m for m in view.moves}
        for disk in view.disks:
            for replica in sorted(disk.replicas, key=lambda r: r.tp):
                if wanted is not None and replica.tp.topic not in wanted:
                    continue
                notes = [f"lag {replica.offset_lag}"] if replica.offset_lag > 0 else []
                move = moves.get(replica.tp)
                if move is not None and replica.future:
                    notes.append(f"comes from {move.source}: {move.lag} records behind, {size(move.bytes_per_s)}/s")
                elif replica.future:
                    notes.append("a copy that is on its way here")
                if disk.state == "offline":
                    notes.append("was there")
                tail = f"\t{'; '.join(notes)}" if notes else ""
                lines.append(f"{broker}\t{disk.path}\t{replica.tp}\t{replica.size_bytes}{tail}")
    return lines


def room_lines(broker: BrokerId, view: DisksView, path: str) -> tuple[list[str], bool]:
    """What the replicas of ``path`` need and what the broker's others have (K112-43); whether it is enough."""
    others = [d for d in view.disks if not same_path(d.path, path)]
    need, room = room_without(view, path)
    lines = [f"the replicas of {path} on broker {broker} need {size(need)} ({need} bytes)"]
    lines += [f"  {d.path}: {d.state if d.state in UNUSABLE else f'{size(d.usable_bytes)} usable'}" for d in others]
    lines.append(f"  in all: {size(room)} ({room} bytes)")
    return lines, need <= room


def parse_replica(text: str) -> TopicPartition:
    """``flights-0`` -> its topic and partition. ValueError."""
    topic, dash, partition = text.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        raise ValueError(f"{text!r}: expected TOPIC-PARTITION, like flights-0")
    return TopicPartition(topic, int(partition))
