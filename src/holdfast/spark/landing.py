"""The directory that a lake job fills: one folder per batch, moved into place whole and once.

    TO/batch=12/part-*.parquet           the records of Spark's batch 12, all of them or no folder
    TO/_bad/batch=12/part-*.parquet      its bad records, if it had any
    TO/_batches/12.json                  what the batch was: counts, where it ended. Written last.
    TO/_lake.json                        which checkpoint fills the directory

Spark replays a batch after a crash with the same number and the same offsets. A folder that is in place already is
kept, one that is not is written anew under ``_staging``: so each record lands once. Names with a leading underscore
are not seen by readers of Parquet directories. Owns these names and moves; knows no Spark.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.spark.ranges import OffsetJson


class LandingError(RuntimeError):
    """The directory is not one that this job may fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedBatch:
    """One batch that is in place."""

    batch: int
    records: int
    bad: int


class Landing:
    """One job's directory."""

    def __init__(self, to: Path) -> None:
        self._to = to

    # -- whose it is -----------------------------------------------------------------------------------------

    def claim(self, checkpoint_id: str, topic: str) -> None:
        """Notes whose the directory is. LandingError if another checkpoint has filled it: batch numbers would mix."""
        owner = self._to / "_lake.json"
        if owner.is_file():
            known = json.loads(owner.read_text())
            if known != {"checkpoint": checkpoint_id, "topic": topic}:
                raise LandingError(
                    f"{self._to} was filled from topic {known.get('topic')!r} with another checkpoint: "
                    "use that one, or a new directory"
                )
            return
        if self._to.exists() and any(self._to.iterdir()):
            raise LandingError(f"{self._to} is not empty and was not made by a lake job: use a new directory")
        self._to.mkdir(parents=True, exist_ok=True)
        write_json(owner, {"checkpoint": checkpoint_id, "topic": topic})

    # -- batches ---------------------------------------------------------------------------------------------

    def has_landed(self, batch: int) -> bool:
        """True when all of the batch is in place."""
        return self._manifest(batch).is_file()

    def staging(self, batch: int, kind: str) -> Path:
        """An empty place to write one kind (``good`` or ``bad``) of a batch to; what a crash left there is gone."""
        place = self._to / "_staging" / f"{batch}-{kind}"
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def put(self, batch: int, kind: str, staged: Path) -> None:
        """Moves what was written to its place. What a crash left there is of the same offsets, and goes."""
        place = self.folder(batch, kind)
        place.parent.mkdir(parents=True, exist_ok=True)
        for file in staged.glob(".*.crc"):
            file.unlink()
        for file in staged.iterdir():
            _sync(file)
        _sync(staged)
        if place.exists():
            shutil.rmtree(place)
        staged.rename(place)
        _sync(place.parent)

    def finish(self, done: LandedBatch, ends: OffsetJson) -> None:
        """Marks the batch as landed, and where it ended."""
        manifest = self._manifest(done.batch)
        manifest.parent.mkdir(parents=True, exist_ok=True)
        write_json(manifest, {**asdict(done), "ends": ends})

    def landed(self) -> Iterator[LandedBatch]:
        """All batches that are in place, in order."""
        for manifest in sorted((self._to / "_batches").glob("*.json"), key=lambda each: int(each.stem)):
            known: dict[str, Any] = json.loads(manifest.read_text())
            yield LandedBatch(batch=known["batch"], records=known["records"], bad=known["bad"])

    def folder(self, batch: int, kind: str) -> Path:
        return (self._to if kind == "good" else self._to / "_bad") / f"batch={batch}"

    def _manifest(self, batch: int) -> Path:
        return self._to / "_batches" / f"{batch}.json"


def write_json(path: Path, content: Any) -> None:
    """All of the file or none of it, also after a crash."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(content, indent=1, sort_keys=True))
    _sync(partial)
    partial.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
