"""What the replicas hold on disk, read past the brokers.

Decoded by kafka-python, so that what is believed here has not come through the code that is tested. Never writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from kafka.record.memory_records import MemoryRecords

from tests.chaos.recorder import Place, place_name, record_of

NOTES = "metadata-reigns"
"""What log directories hold besides replicas: which copies of the metadata are good."""
SURPRISE = re.compile(r"(?m)^.*(?:Traceback|unexpected error|never retrieved| ERROR | CRITICAL ).*$(?:\n(?!\[).*)*")


def log_bytes(cluster: Path, broker: int, place: Place) -> bytes:
    """All segments of a replica, one after the other; empty where there is none. Segments may be cut differently."""
    files = cluster.glob(f"broker-{broker}/log-dir-*/{place_name(place)}/*.log")
    return b"".join(file.read_bytes() for file in sorted(files, key=lambda file: file.name))


def unequal(cluster: Path, brokers: Iterable[int], places: Iterable[Place]) -> list[str]:
    """A line for each partition whose replicas are not the same bytes."""
    lines = []
    for place in places:
        copies = {broker: log_bytes(cluster, broker, place) for broker in brokers}
        if len(set(copies.values())) > 1:
            sizes = ", ".join(f"broker {broker} {len(copy)} bytes" for broker, copy in copies.items())
            lines.append(f"{place_name(place)}: {sizes}, the same up to byte {_common(list(copies.values()))}")
    return lines


def _common(copies: list[bytes]) -> int:
    low, high = 0, min(map(len, copies))
    while low < high:
        middle = (low + high + 1) // 2
        if len({copy[:middle] for copy in copies}) == 1:
            low = middle
        else:
            high = middle - 1
    return low


def records_of(log: bytes, place: Place, found: list[str]) -> Iterator[int | None]:
    """The records of a log in offset order. What is wrong with its batches is added to ``found``."""
    batches = MemoryRecords(log)
    wanted = 0
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            found.append(f"{place_name(place)}: the batch at offset {batch.base_offset} has a wrong CRC")
        for record in batch:
            if record.offset != wanted:
                found.append(f"{place_name(place)}: offset {record.offset} comes after {wanted - 1}")
            wanted = record.offset + 1
            yield record_of(record.key, record.value)


def surprises(cluster: Path, broker: int) -> list[str]:
    """Errors in a broker's log that no fault explains."""
    text = (cluster / f"broker-{broker}.log").read_text(errors="replace")
    return [f"broker {broker}: {match[0][:2000]}" for match in SURPRISE.finditer(text)]


def misplaced(cluster: Path, broker: int, wanted: set[str]) -> str:
    """How a broker's directories differ from the replicas that it should have; empty when they do not."""
    there = {path.name for path in cluster.glob(f"broker-{broker}/log-dir-*/*-*") if path.is_dir()}
    there = {name for name in there if not name.endswith(("-delete", "-stray")) and name != NOTES}
    return ", ".join(
        [f"{name} missing" for name in sorted(wanted - there)] + [f"{n} left" for n in sorted(there - wanted)]
    )
