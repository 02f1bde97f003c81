"""What is written to ZooKeeper's tree, as values: which store does it, under which check, is not known here.

The operations are those of a multi: all of one multi or nothing, in their order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.model.types import Offset

OVERHEAD: Final = 160
"""Bytes that an operation takes in a multi beside its path and data, at most: headers and an ACL of three entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNode:
    """A new node; its parent is there. ``sequence``: ZooKeeper appends ten digits."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNode:
    """Other data for a node that is there. ``version``: the one that it must have, None: any."""

    path: str
    data: bytes
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteNode:
    """A node without children goes."""

    path: str


NodeWrite: TypeAlias = CreateNode | SetNode | DeleteNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Multi:
    """What is written at once. ``end_offset``: where the metadata log ends for whoever loads after it, None: where it
    did before."""

    writes: tuple[NodeWrite, ...]
    end_offset: Offset | None = None


def weight(write: NodeWrite) -> int:
    """The bytes that it takes in a multi, or a few more."""
    size = OVERHEAD + len(write.path.encode())
    return size if isinstance(write, DeleteNode) else size + len(write.data)


def cut(writes: Iterable[NodeWrite], limit: int) -> Iterator[list[NodeWrite]]:
    """The writes, in their order, in pieces of at most ``limit`` bytes each; one that is heavier is a piece itself."""
    piece: list[NodeWrite] = []
    total = 0
    for write in writes:
        more = weight(write)
        if piece and total + more > limit:
            yield piece
            piece, total = [], 0
        piece.append(write)
        total += more
    if piece:
        yield piece
