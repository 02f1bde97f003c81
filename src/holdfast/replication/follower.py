"""Fetching from one leader into one log directory: what to ask next, what to do with the answer.

Owns the position of every partition that this broker follows at one source with its log on one directory. Pure:
the shell sends the plans and brings the answers; the disk's queue does the appends and the cuts.

    to mention --(plan sent)--> asked --(records)--> working --(in the log)--> to mention
                                  |  diverging epoch, out of range --> working, on a cut --> to mention
                                  |  error --> backing off --(time)--> to mention

Every change of these states goes by a table, FETCHING (transitions.py). A partition is mentioned again only
when its append is in the log, so an offset that we ask for is one that we have everything before of: the
leader may count on it. Truncation follows leader epochs (KIP-101, KIP-595), never the high watermark (H-01):
the leader names the end of the last epoch that it has in common with us, or an earlier one, and after the cut
we ask again until the two logs agree.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from holdfast.model.errors import HoldfastError, NotLeaderOrFollowerError, OffsetOutOfRangeError
from holdfast.model.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from holdfast.replication.partition import Partition
from holdfast.replication.surroundings import Surroundings
from holdfast.replication.transitions import FETCHING, Fetch, Fetching
from holdfast.replication.types import FetchedPartition, FetchPartitionQuery, FetchPlan, Role
from holdfast.storage.log import AppendInfo, Log

log = logging.getLogger(__name__)

FIRST_BACKOFF_MS = 10
"""A new leader hears of its role a little before or after us: the first try again comes soon."""
MAX_PLANS = 2


class Followed:
    """One partition at its source, in one leader epoch."""

    __slots__ = ("backoff_ms", "first_plan", "leader_epoch", "leader_mark", "log", "partition", "state")

    def __init__(self, partition: Partition, partition_log: Log) -> None:
        self.partition = partition
        self.log = partition_log
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self.first_plan: int | None = None
        """Number of the first plan that had it: answers to earlier ones are about another time."""
        self.backoff_ms = 0
        self.leader_mark: Offset | None = None
        """The leader's high watermark, by its last answer."""
        self.state = Fetching.TO_MENTION

    def is_in_sync(self) -> bool:
        """It has all that is committed, as far as is known here."""
        return self.leader_mark is not None and self.leader_mark <= self.log.view.end_offset

    def is_current(self) -> bool:
        """Still the role and epoch that this was made for. Also asked on the disk's thread."""
        partition = self.partition
        return partition.leader_epoch == self.leader_epoch and partition.role is Role.FOLLOWER


class _Append:
    """Records on their way into the log."""

    __slots__ = ("fetched", "fetcher", "followed", "now_ms")

    def __init__(self, fetcher: FetcherState, followed: Followed, fetched: FetchedPartition, now_ms: int) -> None:
        self.fetcher = fetcher
        self.followed = followed
        self.fetched = fetched
        self.now_ms = now_ms

    def run(self) -> AppendInfo | None:
        followed, records = self.followed, self.fetched.records
        if not followed.is_current() or records is None:
            raise NotLeaderOrFollowerError(f"{followed.partition.topic_partition}: fetched in an epoch that is over")
        return followed.log.append_as_follower(records, self.now_ms, self.fetched.log_start_offset)

    def completed(self, info: AppendInfo | None, error: HoldfastError | None) -> None:
        followed = self.followed
        if followed.is_current():  # it may begin elsewhere now, also when the append failed after that
            followed.partition.clamp_high_watermark()
        if error is None and followed.is_current():
            followed.partition.follow_marks(self.fetched.high_watermark)
            self._count(followed.partition)
        if error is None and info is None:
            # Not one whole batch: the leader always sends one, so these bytes are not records.
            error = OffsetOutOfRangeError("no whole batch in the answer")
        self.fetcher.work_done(followed, error)

    def _count(self, partition: Partition) -> None:
        traffic, records = partition.around.traffic, self.fetched.records
        if traffic is not None and records is not None:
            traffic.replication_bytes_in += len(records)
            if partition.adding and partition.around.broker_id in partition.adding:
                traffic.reassignment_bytes_in += len(records)


class _Cut:
    """A truncation on its way."""

    __slots__ = ("cut", "fetcher", "followed")

    def __init__(self, fetcher: FetcherState, followed: Followed, cut: Callable[[Log], None]) -> None:
        self.fetcher = fetcher
        self.followed = followed
        self.cut = cut

    def run(self) -> None:
        followed = self.followed
        if not followed.is_current():
            raise NotLeaderOrFollowerError(f"{followed.partition.topic_partition}: a cut of an epoch that is over")
        self.cut(followed.log)

    def completed(self, _: None, error: HoldfastError | None) -> None:
        followed = self.followed
        if followed.is_current():
            followed.partition.clamp_high_watermark()
        self.fetcher.work_done(followed, error)


class FetcherState:
    """All partitions of one local log directory that follow one broker. One connection serves one fetcher.

    One fetcher per pair of source and directory, so that a disk that hangs holds up nobody else's replication.
    The shell's loop: when told ``outbox.fetcher_ready(fetcher)``, or after an answer, call ``build``; send the plan
    if there is one; hand the answer to ``on_response``. A second plan may be made while the first is parked at
    the source (new partitions are urgent): send it behind the first on the same connection.
    """

    __slots__ = (
        "_around",
        "_backing_off",
        "_failures",
        "_forgotten",
        "_held_until_ms",
        "_next_plan",
        "_partitions",
        "_sent",
        "_session_epoch",
        "_session_id",
        "_to_mention",
        "_void_before",
        "_wait_until_ms",
        "_working",
        "directory",
        "source",
    )

    def __init__(self, around: Surroundings, source: BrokerId, directory: str) -> None:
        self.source = source
        self.directory = directory
        self._around = around
        self._partitions: dict[TopicPartition, Followed] = {}
        self._to_mention: dict[TopicPartition, None] = {}
        self._forgotten: dict[TopicPartition, None] = {}
        self._backing_off: dict[TopicPartition, int] = {}
        self._session_id: int | None = None
        self._session_epoch = 0
        self._next_plan = 0
        self._sent: deque[int] = deque()
        """Numbers of the plans that are not answered."""
        self._void_before = 0
        """Answers to plans before this one belong to a session that is gone."""
        self._working = 0
        """Appends and cuts of the last answer that the disk has not finished: no new plan before, but for what
        is urgent they would only queue up behind each other."""
        self._failures = 0
        self._wait_until_ms: int | None = None
        self._held_until_ms: int | None = None
        """The throttle lets those be mentioned again that it holds back."""

    def __repr__(self) -> str:
        return f"FetcherState({self.source} -> {self.directory}, {len(self._partitions)} partitions)"

    @property
    def is_empty(self) -> bool:
        """No partition is fetched: the connection may be closed."""
        return not self._partitions

    @property
    def partitions(self) -> Iterable[TopicPartition]:
        """Whom this fetcher fetches for."""
        return self._partitions.keys()

    def lags(self) -> Iterable[tuple[TopicPartition, int]]:
        """How many records each partition is behind what its leader had committed when it answered last."""
        for tp, followed in self._partitions.items():
            if followed.leader_mark is not None:
                yield tp, max(0, followed.leader_mark - followed.log.view.end_offset)

    # -- which partitions ----------------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Begin to fetch; the partition's log stands still. Replaces what was fetched for it before."""
        partition_log, tp = partition.log, partition.topic_partition
        assert partition_log is not None, "a follower has a log"
        self._partitions[tp] = Followed(partition, partition_log)
        self._backing_off.pop(tp, None)
        self._forgotten.pop(tp, None)
        self._to_mention[tp] = None
        self._around.outbox.fetcher_ready(self)

    def remove(self, tp: TopicPartition) -> None:
        """Fetch it no more. What its source still sends is ignored."""
        if self._partitions.pop(tp, None) is None:
            return
        self._to_mention.pop(tp, None)
        self._backing_off.pop(tp, None)
        self._forgotten[tp] = None
        if not self._partitions:
            # The shell closes the connection of an empty fetcher, and the session goes with it.
            self._new_session()
            self._around.outbox.fetcher_ready(self)

    def _new_session(self) -> None:
        self._session_id = None
        self._session_epoch = 0
        self._void_before = self._next_plan
        self._forgotten.clear()
        for tp, followed in self._partitions.items():
            self._move(tp, followed, Fetch.NEW_SESSION)

    def _move(self, tp: TopicPartition, followed: Followed, event: Fetch) -> None:
        """Its next state by the table, and the queue that goes with it."""
        followed.state = state = FETCHING.after(followed.state, event)
        if state is Fetching.TO_MENTION:
            self._to_mention[tp] = None
        else:
            self._to_mention.pop(tp, None)
        if state is not Fetching.BACKING_OFF:
            self._backing_off.pop(tp, None)

    # -- asking --------------------------------------------------------------------------------------------------

    def build(self, now_ms: int) -> FetchPlan | None:
        """The next request, or None when there is nothing to ask for now."""
        if self._wait_until_ms is not None:
            if now_ms < self._wait_until_ms:
                return None
            self._wait_until_ms = None
        if self._backing_off:
            self._end_backoffs(now_ms)
        if not self._partitions or self._working or len(self._sent) >= MAX_PLANS:
            return None
        opening = self._session_epoch == 0
        held = self._held_back(now_ms)
        if len(self._to_mention) == len(held) and (opening or self._sent):
            return None  # all are backing off or held back, or one is parked at the source already
        if not opening and self._session_id is None:
            return None  # the answer that names the session has not come
        queries = [q for tp in self._to_mention if tp not in held and (q := self._query(tp)) is not None]
        self._to_mention = held
        forgotten = [] if opening else list(self._forgotten)
        self._forgotten.clear()
        settings = self._around.settings
        plan = FetchPlan(
            self._session_id,
            self._session_epoch,
            queries,
            forgotten,
            settings.replica_fetch_wait_max_ms,
            settings.replica_fetch_min_bytes,
            settings.replica_fetch_response_max_bytes,
        )
        self._session_epoch += 1
        self._sent.append(self._next_plan)
        self._next_plan += 1
        return plan

    def _held_back(self, now_ms: int) -> dict[TopicPartition, None]:
        """Those that the throttle does not let be mentioned now: their position stays unknown to the source."""
        self._held_until_ms = None
        throttle = self._around.fetching
        if not throttle.active or not self._to_mention:
            return {}
        wait_ms = throttle.rate.wait_ms(now_ms)
        if wait_ms <= 0:
            return {}
        held: dict[TopicPartition, None] = {tp: None for tp in self._to_mention if self._is_limited(tp)}
        if held:
            self._held_until_ms = now_ms + wait_ms
        return held

    def _is_limited(self, tp: TopicPartition) -> bool:
        """Only what is out of sync is held back (KIP-73)."""
        throttle, followed = self._around.fetching, self._partitions.get(tp)
        return throttle.active and followed is not None and throttle.names(tp) and not followed.is_in_sync()

    def _query(self, tp: TopicPartition) -> FetchPartitionQuery | None:
        followed = self._partitions.get(tp)
        if followed is None:
            return None
        if followed.first_plan is None:
            followed.first_plan = self._next_plan
        followed.state = FETCHING.after(followed.state, Fetch.SENT)  # build empties the queue
        view = followed.log.view
        max_bytes = self._around.settings.replica_fetch_max_bytes
        if self._around.fetching.active and self._is_limited(tp):
            max_bytes = min(max_bytes, self._around.fetching.rate.piece_bytes)
        return FetchPartitionQuery(
            tp,
            view.end_offset,
            max_bytes,
            followed.leader_epoch,
            view.last_epoch,
            view.start_offset,
        )

    def _end_backoffs(self, now_ms: int) -> None:
        for tp, until in list(self._backing_off.items()):
            if until <= now_ms:
                self._move(tp, self._partitions[tp], Fetch.PAUSED)

    # -- answers -------------------------------------------------------------------------------------------------

    def on_response(
        self,
        error: HoldfastError | None,
        session_id: int | None,
        partitions: Iterable[FetchedPartition],
        now_ms: int,
    ) -> None:
        """The answer to the oldest plan that is not answered yet. Only partitions that the answer mentions."""
        number = self._sent.popleft() if self._sent else -1
        if number < self._void_before:
            return
        if error is not None:
            log.info("fetch session of %r is over: %s", self, error)
            self._new_session()
            self._back_off_all(now_ms)
            return
        self._failures = 0
        self._session_id = session_id
        if session_id is None:
            self._new_session()  # the source keeps no session: every fetch is a full one
        for fetched in partitions:
            followed = self._partitions.get(fetched.topic_partition)
            if followed is None or followed.first_plan is None or number < followed.first_plan:
                continue  # it is not followed any more, or again since
            if followed.is_current():
                self._handle(followed, fetched, now_ms)

    def _handle(self, followed: Followed, fetched: FetchedPartition, now_ms: int) -> None:
        if fetched.error is not None:
            if isinstance(fetched.error, OffsetOutOfRangeError) and fetched.log_start_offset is not None:
                self._start_over(followed, fetched.log_start_offset, now_ms)
            else:
                self._back_off(followed, fetched.error, now_ms)
        elif fetched.diverging is not None:
            self._truncate(followed, *fetched.diverging, now_ms)
        elif fetched.records is not None and len(fetched.records):
            followed.backoff_ms = 0
            if self._around.fetching.active and self._is_limited(fetched.topic_partition):
                self._around.fetching.rate.spent(len(fetched.records), now_ms)
            append = _Append(self, followed, fetched, now_ms)
            self._begin(followed)
            followed.log.dir.queue.submit(append.run, append.completed)
        else:
            followed.backoff_ms = 0
            followed.partition.follow_marks(fetched.high_watermark)
            self._follow_start(followed, fetched.log_start_offset)
        if fetched.high_watermark is not None:
            followed.leader_mark = fetched.high_watermark

    def _begin(self, followed: Followed) -> None:
        self._working += 1
        followed.partition.disk_works += 1
        self._move(followed.partition.topic_partition, followed, Fetch.WORK)

    def _truncate(self, followed: Followed, epoch: LeaderEpoch, end_offset: Offset, now_ms: int) -> None:
        """The leader's log has another history since (at most) ``end_offset`` of ``epoch``."""

        def cut(follower_log: Log) -> None:
            view = follower_log.view
            to = min(end_offset, view.end_offset)
            own = follower_log.epoch_end_offset(epoch)
            if own is not None:
                # Our end of that epoch, or of the largest one below it that we have: the leader judges again.
                to = min(to, own[1])
            log.info(
                "%s: cut from %d to %d (leader's epoch %d)",
                follower_log.topic_partition,
                view.end_offset,
                to,
                epoch,
            )
            follower_log.truncate_to(to, now_ms)

        work = _Cut(self, followed, cut)
        self._begin(followed)
        followed.log.dir.queue.submit(work.run, work.completed)

    def _start_over(self, followed: Followed, start: Offset, now_ms: int) -> None:
        """The leader has nothing of what we could go on from: begin where its log begins."""

        def cut(follower_log: Log) -> None:
            log.warning("%s: %s, starting over at %d", follower_log.topic_partition, follower_log, start)
            follower_log.truncate_fully_and_start_at(start, now_ms)

        work = _Cut(self, followed, cut)
        self._begin(followed)
        followed.log.dir.queue.submit(work.run, work.completed)

    def _follow_start(self, followed: Followed, start: Offset | None) -> None:
        """Where the leader's log begins, told without records; perhaps later than ours (DeleteRecords, retention)."""
        if start is None or start <= followed.log.view.start_offset:
            return

        def cut(follower_log: Log) -> None:
            follower_log.delete_records_before(min(start, follower_log.view.end_offset))

        work = _Cut(self, followed, cut)
        self._begin(followed)
        followed.log.dir.queue.submit(work.run, work.completed)

    def work_done(self, followed: Followed, error: HoldfastError | None) -> None:
        """The disk is through with a piece of work of this fetcher."""
        self._working -= 1
        assert self._working >= 0, f"{self!r}: more work came back than was given"
        tp = followed.partition.topic_partition
        if self._partitions.get(tp) is followed and followed.is_current():
            if error is None:
                self._move(tp, followed, Fetch.DONE)
            else:
                self._back_off(followed, error, self._around.clock())
        followed.partition.disk_work_done()
        if not self._working:
            self._around.outbox.fetcher_ready(self)

    # -- back-off ------------------------------------------------------------------------------------------------

    def _back_off(self, followed: Followed, error: HoldfastError, now_ms: int) -> None:
        limit = self._around.settings.replica_fetch_backoff_ms
        followed.backoff_ms = min(followed.backoff_ms * 2 or FIRST_BACKOFF_MS, limit)
        tp = followed.partition.topic_partition
        self._move(tp, followed, Fetch.FAILED)
        self._backing_off[tp] = now_ms + followed.backoff_ms
        log.debug("%s: fetch from broker %d failed, again in %d ms: %s", tp, self.source, followed.backoff_ms, error)

    def _back_off_all(self, now_ms: int) -> None:
        limit = self._around.settings.replica_fetch_backoff_ms
        self._wait_until_ms = now_ms + min(FIRST_BACKOFF_MS << min(self._failures, 10), limit)
        self._failures += 1

    def on_failure(self, error: HoldfastError, now_ms: int) -> None:
        """The connection went away (or could not be made): all unanswered plans are void, the session is gone."""
        log.debug("%r: %s", self, error)
        self._sent.clear()
        self._new_session()
        self._back_off_all(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When a back-off ends; LocalReplicas.tick says fetcher_ready then."""
        if self._wait_until_ms is not None:
            return self._wait_until_ms
        times = list(self._backing_off.values())
        if self._held_until_ms is not None:
            times.append(self._held_until_ms)
        return min(times, default=None)

    def tick(self, now_ms: int) -> None:
        """Tell the shell when a back-off has ended."""
        due = self.next_deadline_ms()
        if due is not None and due <= now_ms:
            self._wait_until_ms = self._held_until_ms = None
            self._end_backoffs(now_ms)
            self._around.outbox.fetcher_ready(self)
