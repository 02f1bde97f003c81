"""Who is in sync: how far each follower of a led partition is, and which set of replicas the high watermark obeys.

Pure bookkeeping of a leader; the partition asks it and sends the proposals.

The ISR has two readings. ``committed`` is what the controller has stored: it decides whether a write has enough
replicas. ``maximal`` adds who we have proposed to add and keeps who we have proposed to remove: the high watermark
waits for all of them, since the controller may have stored the proposal before we hear of it (KIP-497, H-04).

``eligible`` are the replicas outside the ISR that may be elected all the same, since they have all that is committed
(KIP-966). So that it stays true, nothing is committed while there are any. ``recovering``: nobody joins before the
controller has recorded that the leader of an unclean election is ready (KIP-704).

A refusal is final for copies that were sent before, since the controller reads what we send in order.

          propose                      outcome
  settled --------> asked --------------------------------> settled with the new ISR
                      |  the controller refused for sure --> settled with the old ISR
                      |  not known ------------------------> in doubt, asked again later

Every change of these states goes by a table, PROPOSAL (transitions.py).
"""

from __future__ import annotations

from holdfast.model.types import BrokerEpoch, BrokerId, Offset, PartitionEpoch
from holdfast.replication.transitions import PROPOSAL, Proposal, Word
from holdfast.replication.types import IsrProposal

MAX_RETRY_MS = 8000
"""Between two proposals of a follower that the controller refuses: its disk may be full for days."""


class FollowerProgress:
    """What the leader knows of one follower in this leader epoch.

    ``end_offset`` None: it has not fetched yet. ``behind_since_ms`` None: it has all that we had when it last
    asked and nothing was appended since; 0: it was never seen to catch up.
    """

    __slots__ = (
        "behind_since_ms",
        "broker_epoch",
        "broker_id",
        "end_offset",
        "last_fetch_end",
        "last_fetch_ms",
        "log_start_offset",
        "reading_since_ms",
        "refusals",
        "refused_until_ms",
    )

    def __init__(self, broker_id: BrokerId, behind_since_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch: BrokerEpoch | None = None
        self.end_offset: Offset | None = None
        self.log_start_offset: Offset | None = None
        self.last_fetch_end: Offset | None = None
        self.last_fetch_ms = 0
        self.behind_since_ms: int | None = behind_since_ms
        self.reading_since_ms: int | None = None
        """We are reading from our own disk for it since then: that is not its delay (H-15)."""
        self.refused_until_ms = 0
        """The controller does not want it in the ISR now; not proposed again before."""
        self.refusals = 0
        """In a row, since it was last in the ISR."""

    def fetched(
        self,
        offset: Offset,
        leader_end: Offset,
        log_start_offset: Offset | None,
        broker_epoch: BrokerEpoch | None,
        now_ms: int,
    ) -> None:
        """It asked for ``offset``: it has everything before."""
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        if broker_epoch != self.broker_epoch:  # what was refused was the incarnation before
            self.broker_epoch = broker_epoch
            self.refused_until_ms = self.refusals = 0
        if offset >= leader_end:
            self.behind_since_ms = None
        elif self.behind_since_ms is None:
            self.behind_since_ms = now_ms
        elif self.last_fetch_end is not None and offset >= self.last_fetch_end:
            # It has all that there was at its last fetch, so it was not behind before that.
            self.behind_since_ms = max(self.behind_since_ms, self.last_fetch_ms)
        self.last_fetch_end = leader_end
        self.last_fetch_ms = now_ms

    def refused(self, now_ms: int, retry_ms: int) -> None:
        """The controller does not want it: ask again, but each time later."""
        self.refused_until_ms = now_ms + min(retry_ms << self.refusals, MAX_RETRY_MS)
        self.refusals = min(self.refusals + 1, 16)

    def reading(self, now_ms: int) -> None:
        """Its fetch waits for our disk from now on."""
        if self.reading_since_ms is None:
            self.reading_since_ms = now_ms

    def read(self, now_ms: int) -> None:
        """Our disk has answered: the time that took is given back to the follower."""
        if self.reading_since_ms is not None:
            if self.behind_since_ms:
                self.behind_since_ms = min(now_ms, self.behind_since_ms + now_ms - self.reading_since_ms)
            self.reading_since_ms = None

    def lags(self, now_ms: int, limit_ms: int) -> bool:
        """It has been behind for longer than ``limit_ms``, by its own doing."""
        since = self.behind_since_ms
        return since is not None and self.reading_since_ms is None and now_ms - since > limit_ms


class IsrState:
    """The ISR of one partition as its leader sees it. See the module for its two readings."""

    __slots__ = ("committed", "eligible", "maximal", "partition_epoch", "pending", "recovering", "retry_at_ms")

    def __init__(
        self,
        committed: tuple[BrokerId, ...],
        partition_epoch: PartitionEpoch,
        eligible: tuple[BrokerId, ...] = (),
        recovering: bool = False,
    ) -> None:
        self.committed = committed
        self.eligible = eligible
        self.recovering = recovering
        self.maximal = frozenset(committed)
        """Invariant: a superset of ``committed`` and of the pending proposal."""
        self.partition_epoch = partition_epoch
        self.pending: IsrProposal | None = None
        self.retry_at_ms: int | None = None
        """When the pending proposal is sent again, or, when there is none, the next may be made."""

    @property
    def state(self) -> Proposal:
        """Where we are with the controller."""
        if self.pending is None:
            return Proposal.SETTLED if self.retry_at_ms is None else Proposal.HELD_BACK
        return Proposal.ASKED if self.retry_at_ms is None else Proposal.IN_DOUBT

    def propose(self, proposal: IsrProposal) -> None:
        """A proposal goes out. One at a time, also of equal ones: were two copies under way, the refusal of one
        would say nothing about the other."""
        PROPOSAL.after(self.state, Word.PROPOSED)
        self.pending = proposal
        self.retry_at_ms = None
        self.maximal = frozenset(self.committed).union(member for member, _ in proposal.isr)

    def commit(
        self,
        committed: tuple[BrokerId, ...],
        partition_epoch: PartitionEpoch,
        eligible: tuple[BrokerId, ...] = (),
        recovering: bool = False,
    ) -> None:
        """The controller stored this; a proposal for an earlier partition epoch can no longer succeed."""
        assert partition_epoch >= self.partition_epoch, f"{partition_epoch} after {self.partition_epoch}"
        self.committed = committed
        self.eligible = eligible
        self.recovering = recovering
        self.partition_epoch = partition_epoch
        self._settle(Word.STORED)

    def revert(self) -> None:
        """The controller has not stored the proposal and never will."""
        self._settle(Word.REFUSED)

    def try_again_at(self, due_ms: int) -> None:
        """Nobody knows what became of the proposal, or the next one shall wait."""
        PROPOSAL.after(self.state, Word.NOT_NOW if self.pending is None else Word.NO_WORD)
        self.retry_at_ms = due_ms

    def time_is_up(self) -> None:
        """``retry_at_ms`` has come."""
        PROPOSAL.after(self.state, Word.TIME)
        self.retry_at_ms = None

    def _settle(self, word: Word) -> None:
        PROPOSAL.after(self.state, word)
        self.pending = None
        self.retry_at_ms = None
        self.maximal = frozenset(self.committed)
