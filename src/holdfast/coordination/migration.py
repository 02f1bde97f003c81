"""A stopped cluster's metadata moves from one store to another.

    mark the target -> empty it -> fill it -> read it again, compare -> mark it whole -> mark the source -> take the
    mark off the target

Owns the order of the steps and what a run that finds marks does (``decide``); what a mark is to a store is the side's
(migration_embedded.py, migration_zookeeper.py).

Invariant: at no moment may brokers use both, or one that is not whole. A store with a mark is refused by every broker
(metadata/moved.py). So the target has one before anything of it is written, and loses it after the source has got one.
A process that is killed at any step leaves either the source without a mark, and then another run begins anew, or both
with a mark of the same migration: then both are whole, equal and still, and another run, in whichever direction, only
takes one off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from holdfast.metadata.image import ClusterImage
from holdfast.metadata.listing import Difference, differences, listing
from holdfast.metadata.moved import Moved
from holdfast.model.errors import HoldfastError
from holdfast.model.types import ControllerEpoch


class MigrationError(HoldfastError):
    """The metadata was not moved; the message says what to do."""


class DifferentError(MigrationError):
    """What was read back is not what was written; the target keeps its mark."""

    def __init__(self, message: str, found: list[Difference]) -> None:
        super().__init__(message)
        self.differences = found


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStanding:
    """A store as it was found. ``cluster_id`` None: of no cluster yet."""

    cluster_id: str | None = None
    is_empty: bool = False
    """Nothing was ever committed here."""
    moved: Moved | None = None


class MigrationStep(Enum):
    """What is done next, in words for a person."""

    MARK = "marking the target as unfinished"
    EMPTY = "removing what the target held"
    FILL = "writing"
    COMPARE = "reading it back"
    WHOLE = "marking the target as whole"
    LEAVE = "marking the source as left"
    OPEN = "opening the target"
    DONE = "done"


Told: TypeAlias = Callable[[MigrationStep, int, int], None]
"""Called before each step and during FILL: the step, how much of it is done, and of how much."""


class Side(Protocol):
    """One of the two stores. Calls block; HoldfastError or OSError when it does not answer or a broker uses it."""

    @property
    def name(self) -> str:
        """For a person."""
        ...

    def standing(self) -> StoreStanding: ...

    def epoch(self) -> ControllerEpoch:
        """Of the last claim that anybody made here; 0: none."""
        ...

    def load(self) -> ClusterImage:
        """All of it; changes nothing."""
        ...

    def begin(self, mark: Moved, cluster_id: str, least_epoch: ControllerEpoch) -> None:
        """No broker may use this from now on, and the next claim's epoch will be above ``least_epoch``."""
        ...

    def empty(self) -> None:
        """Nothing is here but the mark, the epoch and the cluster's id. After ``begin``."""
        ...

    def fill(self, image: ClusterImage, told: Callable[[int, int], None]) -> None:
        """After ``empty``."""
        ...

    def mark(self, mark: Moved) -> None:
        """Another mark, or a first one. MigrationError, and no mark, when a broker came since ``load``."""
        ...

    def open(self) -> None:
        """Take the mark off: brokers may use it."""
        ...


class Way(Enum):
    """What is left to do."""

    WHOLE = "everything"
    LAST_STEP = "both are equal and marked: the target's mark goes"
    NOTHING = "it was done before"


def decide(source: StoreStanding, target: StoreStanding, source_name: str, target_name: str) -> Way:
    """What a run does with what it found. MigrationError."""
    if source.is_empty and source.moved is None:
        raise MigrationError(f"{source_name} holds no metadata of a cluster: nothing can be moved from there")
    if None not in (source.cluster_id, target.cluster_id) and source.cluster_id != target.cluster_id:
        raise MigrationError(
            f"{target_name} is of cluster {target.cluster_id}: expected an empty one, or one of cluster "
            f"{source.cluster_id}, which is in {source_name}"
        )
    if source.moved is not None:
        return _decide_left(source.moved, target, source_name, target_name)
    if target.moved is None and not target.is_empty:
        raise MigrationError(
            f"{source_name} and {target_name} both hold metadata of cluster {source.cluster_id}, and neither says that "
            f"it was left: expected an empty one to move to. Compare them with `holdfast metadata diff`"
        )
    return Way.WHOLE


def _decide_left(left: Moved, target: StoreStanding, source_name: str, target_name: str) -> Way:
    if not left.is_whole:
        raise MigrationError(
            f"{source_name} holds a part of the metadata only: all of it is in {left.to}, from where a migration did "
            f"not finish. Run that one again, or start the brokers on {left.to}"
        )
    if target.moved is not None and target.moved.is_whole and target.moved.by == left.by:
        return Way.LAST_STEP
    if target.moved is None and not target.is_empty:
        return Way.NOTHING
    raise MigrationError(
        f"{source_name} was left: this cluster's metadata is in {left.to}, and not in {target_name}. Move it from there"
    )


def migrate(source: Side, target: Side, migration_id: str, told: Told) -> tuple[Way, ClusterImage]:
    """Move everything; what was done, and the image. The source's brokers are stopped, which the sides have checked.

    Can be killed and run again at any point. DifferentError, MigrationError."""
    found = source.standing()
    way = decide(found, target.standing(), source.name, target.name)
    image = source.load() if way is not Way.NOTHING else target.load()
    if way is Way.NOTHING:
        return way, image
    if way is Way.WHOLE:
        to_source = Moved(to=source.name, by=migration_id, is_whole=False)
        told(MigrationStep.MARK, 0, 1)
        target.begin(to_source, image.cluster_id, source.epoch() + 1)
        told(MigrationStep.EMPTY, 0, 1)
        target.empty()
        target.fill(image, lambda done, of: told(MigrationStep.FILL, done, of))
    told(MigrationStep.COMPARE, 0, 1)
    _compare(image, target.load(), target.name)
    if way is Way.WHOLE:
        told(MigrationStep.WHOLE, 0, 1)
        target.mark(Moved(to=source.name, by=migration_id, is_whole=True))
        told(MigrationStep.LEAVE, 0, 1)
        source.mark(Moved(to=target.name, by=migration_id, is_whole=True))
    elif found.moved is not None:
        source.mark(found.moved)  # it may not be everywhere yet
    told(MigrationStep.OPEN, 0, 1)
    target.open()
    told(MigrationStep.DONE, 1, 1)
    return way, image


def _compare(wanted: ClusterImage, found: ClusterImage, where: str) -> None:
    several = differences(listing(wanted), listing(found))
    if several:
        raise DifferentError(
            f"{where} reads back other than it was written, in {len(several)} things: nothing was moved, and no broker "
            f"can use it",
            several,
        )
