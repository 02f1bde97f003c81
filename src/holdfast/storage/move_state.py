"""The states of a move (move.py) and what leads from one to the next: asked before every change."""

from enum import Enum
from typing import Final

from holdfast.model.transitions import Transitions


class MoveState(Enum):
    """Where it stands: see move.py."""

    MAKING = "making"
    WAITING = "waiting"
    COPYING = "copying"
    SYNCING = "syncing"
    SWITCHING = "switching"
    DONE = "done"
    CANCELLED = "cancelled"


class MoveNews(Enum):
    """What happens to a move."""

    MADE = "the copy is there"
    GO = "a place is free"
    CAUGHT_UP = "nothing is left to copy"
    SYNCED = "the copy is synced"
    FAILED = "an error; tried again"
    HELD = "writes to the log wait"
    PUT_OFF = "takes too long"
    EXCHANGED = "the copy is the log"
    ENDED = "cancelled, or in vain"


_AT_WORK = (MoveState.COPYING, MoveState.SYNCING, MoveState.SWITCHING)
MOVE: Final = Transitions(
    starts=(MoveState.MAKING,),
    moves={
        (MoveState.MAKING, MoveNews.MADE): MoveState.WAITING,
        (MoveState.WAITING, MoveNews.GO): MoveState.COPYING,
        (MoveState.COPYING, MoveNews.CAUGHT_UP): MoveState.SYNCING,
        (MoveState.SYNCING, MoveNews.SYNCED): MoveState.COPYING,
        **{(state, MoveNews.FAILED): MoveState.COPYING for state in (MoveState.MAKING, *_AT_WORK)},
        (MoveState.COPYING, MoveNews.HELD): MoveState.SWITCHING,
        (MoveState.SWITCHING, MoveNews.PUT_OFF): MoveState.COPYING,
        (MoveState.COPYING, MoveNews.PUT_OFF): MoveState.COPYING,  # its last piece came back after that
        (MoveState.SWITCHING, MoveNews.EXCHANGED): MoveState.DONE,
        **{(state, MoveNews.ENDED): MoveState.CANCELLED for state in (MoveState.MAKING, MoveState.WAITING, *_AT_WORK)},
    },
)
