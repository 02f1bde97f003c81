"""What a log directory is fit for: one value, and the table of how it changes.

Tables and values only. LogDir has the value (log_dir.py); placement, moves, heartbeats, metrics and descriptions read
it there and nowhere else. Whether a directory is cordoned is no part of it: that is an operator's word, and healing
does not end it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from holdfast.model.transitions import Transitions
from holdfast.model.types import TimestampMs


class DirState(Enum):
    """What a log directory is fit for."""

    ONLINE = "online"
    FULL = "full"
    """No writes; reads and deletions go on."""
    DEGRADED = "degraded"
    """It answers, too slowly."""
    SILENT = "silent"
    """It does not answer."""
    OFFLINE = "offline"


class DirNews(Enum):
    """What happens to it."""

    FILLED = "no space left"
    ROOM = "room again"
    SLOW = "probes too slow"
    HUNG = "no answer"
    ANSWERED = "an answer after all"
    WELL = "probes quick for a while"
    FAILED = "an error of its own, or an operator's word"


_IN_USE = (DirState.ONLINE, DirState.FULL, DirState.DEGRADED, DirState.SILENT)
MOVES: Final[Mapping[tuple[DirState, DirNews], DirState]] = {
    (DirState.ONLINE, DirNews.FILLED): DirState.FULL,
    (DirState.DEGRADED, DirNews.FILLED): DirState.FULL,
    (DirState.FULL, DirNews.ROOM): DirState.ONLINE,
    (DirState.ONLINE, DirNews.SLOW): DirState.DEGRADED,
    **{(state, DirNews.HUNG): DirState.SILENT for state in _IN_USE},
    (DirState.SILENT, DirNews.ANSWERED): DirState.DEGRADED,
    (DirState.DEGRADED, DirNews.WELL): DirState.ONLINE,
    **{(state, DirNews.FAILED): DirState.OFFLINE for state in _IN_USE},
    # What is full is called so, whether it is slow as well or not; the next probe after there is room says that.
    (DirState.FULL, DirNews.SLOW): DirState.FULL,
    (DirState.FULL, DirNews.WELL): DirState.FULL,
    (DirState.DEGRADED, DirNews.SLOW): DirState.DEGRADED,
    # The thread for syncs may answer while the other one hangs.
    (DirState.SILENT, DirNews.FILLED): DirState.SILENT,
}
DIRECTORY: Final = Transitions(starts=(DirState.ONLINE,), moves=MOVES)
"""OFFLINE is for good: a directory that is back is another LogDir (storage/dir_changes.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirHealth:
    """``since_ms``: wall clock, 0 where nobody told the time. ``reason``: for people; None while it is online."""

    state: DirState = DirState.ONLINE
    reason: str | None = None
    since_ms: TimestampMs = 0

    @property
    def is_strained(self) -> bool:
        """In use, and others had better lead what is on it."""
        return self.state in (DirState.FULL, DirState.DEGRADED, DirState.SILENT)
