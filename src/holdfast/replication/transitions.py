"""The state machines of replication, as tables: a replica, a leader's proposal, a follower's partition.

Tables only. A replica's state and a proposal's are read off the fields that make them up (partition.py, isr.py), so
they cannot disagree with these; a followed partition has its state as a field (follower.py). Its enums are strings,
which are cheap as keys: a follower looks there for every append.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final

from holdfast.model.transitions import Transitions
from holdfast.replication.types import Role

# -- a replica on its broker -------------------------------------------------------------------------------------


class Standing(Enum):
    """A role, and whether the replica serves in it."""

    CREATING = (Role.CREATING, False)
    FOLLOWER = (Role.FOLLOWER, False)
    OPENING = (Role.LEADER, False)
    LEADER = (Role.LEADER, True)
    OFFLINE = (Role.OFFLINE, False)

    @property
    def role(self) -> Role:
        """What the broker is for the partition."""
        return self.value[0]


class Turn(Enum):
    """What happens to a replica."""

    LOG_MADE = "log made or found"
    LEAD = "told to lead"
    SETTLED = "old work done"
    FOLLOW = "told to follow"
    RESIGN = "broker stops"
    CLOSE = "told to stop"
    DISK_DIED = "directory failed, or cannot be used"


_SERVING = (Standing.FOLLOWER, Standing.OPENING, Standing.LEADER)

REPLICA: Final = Transitions(
    starts=(Standing.CREATING,),
    moves={
        (Standing.CREATING, Turn.LOG_MADE): Standing.FOLLOWER,
        (Standing.CREATING, Turn.DISK_DIED): Standing.OFFLINE,
        **{(standing, Turn.LEAD): Standing.OPENING for standing in _SERVING},
        (Standing.OPENING, Turn.SETTLED): Standing.LEADER,
        **{(standing, Turn.FOLLOW): Standing.FOLLOWER for standing in _SERVING},
        **{(standing, Turn.RESIGN): Standing.FOLLOWER for standing in _SERVING},
        **{(standing, Turn.DISK_DIED): Standing.OFFLINE for standing in _SERVING},
        **{(standing, Turn.CLOSE): Standing.OFFLINE for standing in (*_SERVING, Standing.OFFLINE)},
    },
)


# -- a leader's proposal of another ISR --------------------------------------------------------------------------


class Proposal(Enum):
    """Whether the leader knows what the controller has stored."""

    SETTLED = "settled"
    ASKED = "asked"
    IN_DOUBT = "in doubt"
    HELD_BACK = "held back"


class Word(Enum):
    """What is said about it."""

    PROPOSED = "proposed"
    STORED = "stored"
    REFUSED = "refused for sure"
    NO_WORD = "no answer, or one that the next order explains"
    NOT_NOW = "wait before the next"
    TIME = "time is up"


PROPOSAL: Final = Transitions(
    starts=(Proposal.SETTLED,),
    moves={
        (Proposal.SETTLED, Word.PROPOSED): Proposal.ASKED,
        (Proposal.HELD_BACK, Word.PROPOSED): Proposal.ASKED,
        **{(proposal, Word.STORED): Proposal.SETTLED for proposal in Proposal},
        (Proposal.ASKED, Word.REFUSED): Proposal.SETTLED,
        (Proposal.IN_DOUBT, Word.REFUSED): Proposal.SETTLED,
        (Proposal.ASKED, Word.NO_WORD): Proposal.IN_DOUBT,
        (Proposal.IN_DOUBT, Word.NO_WORD): Proposal.IN_DOUBT,
        (Proposal.IN_DOUBT, Word.TIME): Proposal.ASKED,
        (Proposal.SETTLED, Word.NOT_NOW): Proposal.HELD_BACK,
        (Proposal.HELD_BACK, Word.NOT_NOW): Proposal.HELD_BACK,
        (Proposal.HELD_BACK, Word.TIME): Proposal.SETTLED,
    },
)


# -- a partition that a follower fetches -------------------------------------------------------------------------


class Fetching(StrEnum):
    """Where a followed partition is between two mentions at its source."""

    TO_MENTION = "to mention"
    ASKED = "asked"
    WORKING = "working"
    BACKING_OFF = "backing off"


class Fetch(StrEnum):
    """What happens to it."""

    SENT = "in a request"
    WORK = "records, or a cut"
    DONE = "disk done"
    FAILED = "error"
    PAUSED = "time is up"
    NEW_SESSION = "session over"


FETCHING: Final = Transitions(
    starts=(Fetching.TO_MENTION,),
    moves={
        (Fetching.TO_MENTION, Fetch.SENT): Fetching.ASKED,
        (Fetching.ASKED, Fetch.WORK): Fetching.WORKING,
        (Fetching.WORKING, Fetch.DONE): Fetching.TO_MENTION,
        **{(fetching, Fetch.FAILED): Fetching.BACKING_OFF for fetching in Fetching},
        (Fetching.BACKING_OFF, Fetch.PAUSED): Fetching.TO_MENTION,
        **{(fetching, Fetch.NEW_SESSION): Fetching.TO_MENTION for fetching in Fetching if fetching != "backing off"},
        (Fetching.BACKING_OFF, Fetch.NEW_SESSION): Fetching.BACKING_OFF,
        # One answer may bring records and a later start, a source without sessions answers what was not asked again,
        # and a session may end while the disk works: what is due then comes when all of it is through.
        (Fetching.TO_MENTION, Fetch.WORK): Fetching.WORKING,
        (Fetching.WORKING, Fetch.WORK): Fetching.WORKING,
        (Fetching.BACKING_OFF, Fetch.WORK): Fetching.WORKING,
        (Fetching.TO_MENTION, Fetch.DONE): Fetching.TO_MENTION,
        (Fetching.BACKING_OFF, Fetch.DONE): Fetching.BACKING_OFF,
    },
)
