"""Whether a group's committed offset went back.

Pure: what members were told of their commits goes in, and where the group says that it is. One object a partition.

A client may have two commits under way at once, and sends the older one again when its coordinator dies: the older one
is then kept last, and the group is where that one says. So an offset below one that was told before is right exactly
if a commit of that offset was told after it. That may be told to one member while another asks already; hence
``GRACE_NS``.
"""

from __future__ import annotations

from dataclasses import dataclass

GRACE_NS = 60 * 10**9
"""A member that asks for its offsets hears nothing of its commits meanwhile, and asks for 30 s at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The group said that it is at ``offset``, asked after ``told`` commits were told."""

    offset: int
    told: int
    at_ns: int


class Commits:
    """One partition."""

    def __init__(self) -> None:
        self._told: list[tuple[int, bool]] = []
        """Offsets, and whether they are kept: after an error one may be."""
        self._doubtful: list[_Answer] = []

    def told(self, offset: int, *, kept: bool = True) -> None:
        """A member was told that this is kept, or of an error after which it may be."""
        self._told.append((offset, kept))

    @property
    def count(self) -> int:
        """Commits told so far: to be asked for before the group is."""
        return len(self._told)

    def answered(self, offset: int, told: int, now_ns: int) -> None:
        """Where the group says it is; 0 where it knows no offset. ``told``: ``count`` as the question was put."""
        if self._above(offset, told):
            self._doubtful.append(_Answer(offset=offset, told=told, at_ns=now_ns))

    def wrong(self, now_ns: int | None) -> list[tuple[int, int]]:
        """(where it was, what was kept before) for each answer that nothing explains in time; all with None."""
        return [
            (answer.offset, max(self._told[i][0] for i in self._above(answer.offset, answer.told)))
            for answer in self._doubtful
            if (now_ns is None or now_ns - answer.at_ns > GRACE_NS) and not self._is_explained(answer)
        ]

    def _above(self, offset: int, told: int) -> list[int]:
        """Which of the first commits are kept and above an offset."""
        return [i for i, (at, kept) in enumerate(self._told[:told]) if kept and at > offset]

    def _is_explained(self, answer: _Answer) -> bool:
        later = self._told[self._above(answer.offset, answer.told)[-1] + 1 :]
        return any(offset == answer.offset for offset, _ in later)
