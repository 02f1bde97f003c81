"""Partitions change brokers: what one broker, ours or Kafka's, left of a partition takes the place of what another one
has. Both are stopped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.model.types import TopicPartition
from holdfast.storage import checkpoints, partition_metadata

GOLDEN = Path(__file__).parents[1] / "golden/disk"
CHECKPOINTS = (checkpoints.RECOVERY_POINT, checkpoints.HIGH_WATERMARK)


def recorded(version: str, name: str) -> dict[str, bytes]:
    """The files of a partition that Kafka left."""
    found: dict[str, Any] = json.loads((GOLDEN / version / f"{name}.json").read_text())["files_after_clean_shutdown"]
    return {
        path.rpartition("/")[2]: bytes.fromhex(each["hex"]) if "hex" in each else each["text"].encode()
        for path, each in found.items()
        if not path.endswith(".deleted")
    }


def files_in(folder: Path) -> dict[str, bytes]:
    """The files of a partition."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def put_in_place(folder: Path, files: Mapping[str, bytes], end_offset: int) -> None:
    """``files`` are those of the partition whose folder this is, and it was clean and committed up to ``end_offset``.
    The topic keeps its id: that is the cluster's."""
    for path in folder.iterdir():
        if path.name != partition_metadata.FILE_NAME:
            path.unlink()
    for name, data in files.items():
        if name != partition_metadata.FILE_NAME:
            (folder / name).write_bytes(data)
    topic, _, partition = folder.name.rpartition("-")
    for name in CHECKPOINTS:
        path = folder.parent / name
        offsets = checkpoints.decode_offsets(path.read_bytes())
        offsets[TopicPartition(topic, int(partition))] = end_offset
        path.write_bytes(checkpoints.encode_offsets(offsets.items()))


def folder_in(dirs: Iterable[Path], name: str) -> Path:
    """The folder of a partition, which is in one of the directories."""
    [found] = [folder / name for folder in dirs if (folder / name).is_dir()]
    return found
