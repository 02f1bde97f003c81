"""How each replica stands on its broker: here, away with its directory, back, failed alone, or wanted and not made.

Owns the one state machine of that, the wishes for replicas that are not here yet, and what an order of the controller
may do with one that is back. The logs themselves are the log manager's; what the controller is told, and that it was,
is the broker's (broker/disks.py).

A replica that is in no table here has no trouble: it is served, or it is nowhere. One whose log is in the log manager's
table on a directory that is offline is away: that is read off the directory and not stored, so that the two cannot
disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from holdfast.model.fates import ReplicaFate
from holdfast.model.transitions import Transitions
from holdfast.model.types import TopicPartition

if TYPE_CHECKING:
    from holdfast.storage.dir_load import FailedReplica


class ReplicaState(Enum):
    """How a replica stands."""

    WELL = "here, or nowhere"
    REFUSED = "wanted, no place"
    """It is new, and nothing of it is anywhere."""
    AWAY = "away"
    """Its log directory is offline."""
    FAILED = "failed alone"
    """It cannot be used though its directory can (K18-03)."""
    LEFT_ASIDE = "being left aside"
    BACK = "back"
    """It may be used, or made, again; the controller has not recorded that."""
    RECORDED = "back, recorded"


class StandingEvent(Enum):
    """What happens to it."""

    DIR_DIED = "its directory goes offline"
    NO_PLACE = "no directory takes it"
    USED = "made or taken up"
    BROKEN = "its log fails alone"
    GIVEN_UP = "somebody else leads"
    NOT_LEFT = "cannot be left aside"
    RETURNED = "may be used or made again"
    CONFIRMED = "controller has recorded it"
    GONE = "deleted, or not asked for"


_HERE = (ReplicaState.WELL, ReplicaState.REFUSED, ReplicaState.AWAY)
_BACK = (ReplicaState.BACK, ReplicaState.RECORDED)
_BAD = (ReplicaState.FAILED, ReplicaState.LEFT_ASIDE)
STANDING: Final = Transitions(
    starts=(ReplicaState.WELL,),
    moves={
        (ReplicaState.WELL, StandingEvent.DIR_DIED): ReplicaState.AWAY,  # by itself: see above
        (ReplicaState.WELL, StandingEvent.NO_PLACE): ReplicaState.REFUSED,
        (ReplicaState.REFUSED, StandingEvent.NO_PLACE): ReplicaState.REFUSED,
        **{(state, StandingEvent.NO_PLACE): state for state in _BACK},  # it is told as long as it is not used
        **{(state, StandingEvent.USED): ReplicaState.WELL for state in (*_HERE, *_BACK)},
        **{(state, StandingEvent.BROKEN): ReplicaState.FAILED for state in (*_HERE, *_BACK, ReplicaState.FAILED)},
        (ReplicaState.FAILED, StandingEvent.GIVEN_UP): ReplicaState.LEFT_ASIDE,
        (ReplicaState.LEFT_ASIDE, StandingEvent.NOT_LEFT): ReplicaState.FAILED,
        **{(state, StandingEvent.RETURNED): ReplicaState.BACK for state in ReplicaState},
        **{(state, StandingEvent.CONFIRMED): ReplicaState.RECORDED for state in _BACK},
        **{(state, StandingEvent.GONE): ReplicaState.WELL for state in ReplicaState},
    },
)


class Standings:
    """Of all replicas of a broker. ``is_away``: whether the log of one is on a directory that is offline. On the loop,
    but that others may look."""

    def __init__(self, is_away: Callable[[TopicPartition], bool]) -> None:
        self._is_away = is_away
        self._states: dict[TopicPartition, ReplicaState] = {}
        self._fates: dict[TopicPartition, ReplicaFate] = {}
        self._failed: dict[TopicPartition, FailedReplica] = {}
        self._wishes: dict[TopicPartition, str] = {}
        self._avoided: dict[TopicPartition, str] = {}

    def of(self, tp: TopicPartition) -> ReplicaState:
        """How it stands."""
        state = self._states.get(tp)
        if state is None:
            state = ReplicaState.AWAY if self._is_away(tp) else ReplicaState.WELL
        return state

    def _turn(self, tp: TopicPartition, news: StandingEvent) -> ReplicaState:
        state = STANDING.after(self.of(tp), news)
        if state in (ReplicaState.WELL, ReplicaState.AWAY):
            self._states.pop(tp, None)
        else:
            self._states[tp] = state
        if state not in _BACK:
            self._fates.pop(tp, None)
        if state not in _BAD:
            self._failed.pop(tp, None)
        return state

    # -- what happens ------------------------------------------------------------------------------------------

    def refused(self, tp: TopicPartition) -> None:
        """It is new, and no directory takes it now: it is made when one does."""
        self._turn(tp, StandingEvent.NO_PLACE)

    def used(self, tp: TopicPartition) -> None:
        """Its log was made, or is used as it was found."""
        if tp in self._states:
            self._turn(tp, StandingEvent.USED)

    def made(self, tp: TopicPartition) -> None:
        """Its log is a new one."""
        self.used(tp)
        self._avoided.pop(tp, None)

    def broken(self, tp: TopicPartition, failed: FailedReplica) -> None:
        """It cannot be used though its directory can."""
        self._turn(tp, StandingEvent.BROKEN)
        self._failed[tp] = failed

    def given_up(self, tp: TopicPartition) -> None:
        """What is left of it gets another name now."""
        self._turn(tp, StandingEvent.GIVEN_UP)

    def not_left(self, tp: TopicPartition) -> None:
        """That could not be done."""
        self._turn(tp, StandingEvent.NOT_LEFT)

    def back(self, tp: TopicPartition, fate: ReplicaFate, *, avoid: str | None = None) -> None:
        """It may be used, or made, again, with this fate. ``avoid``: the directory on which it has failed."""
        self._turn(tp, StandingEvent.RETURNED)
        self._fates[tp] = fate
        if avoid is not None:
            self._avoided[tp] = avoid

    def confirmed(self, tp: TopicPartition, fate: ReplicaFate) -> None:
        """The controller has recorded that it is back with this fate; nothing if that is not the newest."""
        if self._fates.get(tp) is fate:
            self._turn(tp, StandingEvent.CONFIRMED)

    def gone(self, tp: TopicPartition) -> None:
        """It is deleted, or the cluster does not want it here."""
        if tp in self._states:
            self._turn(tp, StandingEvent.GONE)

    # -- what is so --------------------------------------------------------------------------------------------

    @property
    def failed(self) -> Mapping[TopicPartition, FailedReplica]:
        """Those that have failed alone, also while they are left aside."""
        return MappingProxyType(self._failed)

    def fate(self, tp: TopicPartition) -> ReplicaFate | None:
        """Of one that is back; None for all others."""
        return self._fates.get(tp)

    @property
    def returned(self) -> Mapping[TopicPartition, ReplicaFate]:
        """All that are back and not used yet, with their fates."""
        return MappingProxyType(self._fates)

    def wanted(self) -> Iterator[TopicPartition]:
        """Those that were refused."""
        return (tp for tp, state in list(self._states.items()) if state is ReplicaState.REFUSED)

    def is_refused(self, tp: TopicPartition) -> bool:
        """It is new, and nothing of it is anywhere."""
        return self._states.get(tp) is ReplicaState.REFUSED

    # -- wishes ------------------------------------------------------------------------------------------------

    def wish(self, tp: TopicPartition, path: str) -> None:
        """When it is made, that is to be on this directory."""
        self._wishes[tp] = path

    def wish_of(self, tp: TopicPartition) -> str | None:
        """The directory that was wished for it."""
        return self._wishes.get(tp)

    def forget_wish(self, tp: TopicPartition) -> None:
        """It is fulfilled, or of no use any more."""
        self._wishes.pop(tp, None)

    def avoids(self, tp: TopicPartition, path: str) -> bool:
        """It has failed there, and had better be made on another one."""
        return self._avoided.get(tp) == path

    # -- what an order may do ----------------------------------------------------------------------------------

    def may_return(self, tp: TopicPartition, *, leads: bool, recovers: bool, counts: bool) -> bool:
        """Its disk is back, and nobody counts on what it may lack now (``counts``: it is in the ISR or eligible). Or
        the controller has recorded that, and has nobody better: it made it leader, to recover (KIP-704). An order from
        before it knew is refused."""
        state = self.of(tp)
        if state not in _BACK:
            return False
        if leads and recovers and state is ReplicaState.RECORDED:
            return True
        return not leads and not counts

    def may_be_made_anew(self, tp: TopicPartition, *, is_coming: bool, counts: bool) -> bool:
        """It is coming to this broker and new, so nobody counts on what is on the bad disk; that is out of date when
        the disk is back. One that is just called new may have been made, and count (K112-32). One that has failed alone
        is given up when that is safe."""
        return is_coming and not counts and self.of(tp) not in (*_BACK, *_BAD)
