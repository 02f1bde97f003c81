"""The transactional ids of one partition of ``__transaction_state``, for one leadership of this broker.

Does what was decided, in this order, and one thing at a time for each transactional id (others are told
CONCURRENT_TRANSACTIONS meanwhile):

    append the record --durable--> in force --> answer --(decided)--> markers --all written--> append the end

A record that could not be made durable changes nothing here: what is in memory is what every later coordinator will
read, or older by one record that nobody was told of. So whoever was refused may ask again, and the same is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from holdfast.coordinators.journal import Entry, Journal, Written
from holdfast.model.errors import HoldfastError, UnknownServerError
from holdfast.model.group_errors import NotCoordinatorError
from holdfast.model.types import LeaderEpoch, TimestampMs
from holdfast.transactions import adding, ending, initializing
from holdfast.transactions.decisions import Answered, Decision, NeedsId, RefusedTransaction, Write, in_change
from holdfast.transactions.records import StoredTransaction, encode_key, encode_value
from holdfast.transactions.states import AT_REST, PREPARED, TRANSACTION, TransactionEvent, TransactionState
from holdfast.transactions.surroundings import TransactionSurroundings
from holdfast.transactions.types import (
    AddReply,
    AddRequest,
    Ending,
    EndRequest,
    InitRequest,
    Producer,
    ProducerId,
    ProducerReply,
    Transaction,
    TransactionalId,
    Verified,
)

IDS_PER_TURN: Final = 1000
"""Looked at in one turn when ids expire."""
MAX_WAITING: Final = 16
"""For one transactional id; its producer is one."""

_Reply: TypeAlias = Callable[[Producer | HoldfastError], None]
_Decide: TypeAlias = Callable[[ProducerId | None], Decision]


class TransactionShard:
    """See the module's docstring. One leadership has one; the next leadership has another."""

    __slots__ = (
        "_around", "_changing", "_endings", "_journal", "_leader_epoch", "_overdue", "_partition", "_waiting",
        "transactions",
    )  # fmt: skip

    def __init__(self, partition: int, leader_epoch: LeaderEpoch, around: TransactionSurroundings) -> None:
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._around = around
        self._journal = Journal(
            around.log,
            partition,
            around.settings.max_batch_bytes,
            noun="transactional id",
            too_large=UnknownServerError,
            base_sequence=-1,
        )
        self.transactions: dict[TransactionalId, Transaction] = {}
        self._changing: dict[TransactionalId, TransactionState] = {}
        """The state that is being written, or waits for markers to be."""
        self._endings: dict[TransactionalId, Ending] = {}
        self._overdue: list[TransactionalId] | None = []
        """Whose time was up while others were still read; None: all were read."""
        self._waiting: dict[TransactionalId, list[Callable[[], None]]] = {}
        """Who wants to know when nothing of the id is under way."""

    # -- from election to resignation --------------------------------------------------------------------------

    def add(self, piece: Iterable[StoredTransaction], now_ms: TimestampMs) -> None:
        """Some of what was read."""
        for name, transaction in piece:
            self.transactions[name] = transaction
            if transaction.state in PREPARED:
                self._begin_ending(name, transaction)
            else:
                self._watch(name, transaction)

    def open(self, now_ms: TimestampMs) -> None:
        """All was read. What was decided is carried out, markers that are there already are written once more."""
        for waiting in list(self._endings.values()):
            self._send_markers(waiting)
        overdue, self._overdue = self._overdue or [], None
        for name in overdue:
            self._time_is_up(name, now_ms)
        self._expire_later(now_ms)

    def close(self, now_ms: TimestampMs) -> None:
        """Another broker coordinates now."""
        self._journal.close()
        deadlines = self._around.deadlines
        deadlines.cancel(("expire", self._partition))
        for name, transaction in self.transactions.items():
            if transaction.state is TransactionState.ONGOING:
                deadlines.cancel(("timeout", name))
        for name, waiting in self._endings.items():
            waiting.is_over = True
            deadlines.cancel(("complete", name))
        self._endings.clear()
        for name in list(self._waiting):
            self._settled(name)

    # -- requests ----------------------------------------------------------------------------------------------

    def initialize(self, request: InitRequest, now_ms: TimestampMs, reply: ProducerReply) -> None:
        """InitProducerId: see initializing.py."""
        name = request.transactional_id

        def decide(fresh_id: ProducerId | None) -> Decision:
            if name in self._changing:
                return RefusedTransaction(in_change(name))
            return initializing.initialize(
                self.transactions.get(name), request,
                fresh_id=fresh_id, now_ms=self._around.clock(), version=self._around.version(),
            )  # fmt: skip

        self._do(name, decide, reply)

    def end(self, request: EndRequest, now_ms: TimestampMs, reply: ProducerReply) -> None:
        """EndTxn: see ending.py."""
        name = request.transactional_id

        def decide(fresh_id: ProducerId | None) -> Decision:
            return ending.end(
                self.transactions.get(name), request,
                is_changing=name in self._changing, fresh_id=fresh_id, now_ms=self._around.clock(),
            )  # fmt: skip

        self._do(name, decide, reply)

    def add_partitions(self, request: AddRequest, now_ms: TimestampMs, reply: AddReply) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn: see adding.py."""
        name = request.transactional_id
        decision = adding.add(self.transactions.get(name), request, is_changing=name in self._changing, now_ms=now_ms)
        self._do(name, lambda _: decision, lambda told: reply(told if isinstance(told, HoldfastError) else None))

    def verify(self, request: AddRequest) -> Verified:
        """Which partitions the transaction has."""
        name = request.transactional_id
        return adding.verify(self.transactions.get(name), request, is_changing=name in self._changing)

    def when_settled(self, name: TransactionalId, wake: Callable[[], None]) -> None:
        """``wake`` is called once, as soon as nothing of the id is under way; at once where too many wait for that."""
        if name in self._changing and len(self._waiting.get(name, ())) < MAX_WAITING:
            self._waiting.setdefault(name, []).append(wake)
        else:
            wake()

    def _settled(self, name: TransactionalId) -> None:
        """Something of the id was under way and is not any more."""
        self._changing.pop(name, None)
        for wake in self._waiting.pop(name, ()):
            wake()

    # -- doing what was decided --------------------------------------------------------------------------------

    def _do(self, name: TransactionalId, decide: _Decide, reply: _Reply) -> None:
        decision = decide(None)
        if isinstance(decision, NeedsId):
            self._around.fresh_id(lambda fresh_id: self._with_id(name, decide, fresh_id, reply))
        else:
            self._carry_out(name, decision, reply)

    def _with_id(
        self, name: TransactionalId, decide: _Decide, fresh_id: ProducerId | HoldfastError, reply: _Reply
    ) -> None:
        """The world may have changed while the id was waited for. One that is not needed after all is lost."""
        if isinstance(fresh_id, HoldfastError):
            reply(fresh_id)
        else:
            self._carry_out(name, decide(fresh_id), reply)

    def _carry_out(self, name: TransactionalId, decision: Decision, reply: _Reply) -> None:
        match decision:
            case RefusedTransaction(error):
                reply(error)
            case Answered(producer):
                reply(producer)
            case Write():
                self._write(name, decision, reply)
            case NeedsId():
                raise AssertionError(f"{name}: an id was given")

    def _write(self, name: TransactionalId, write: Write, reply: _Reply) -> None:
        if not self._journal.is_open:  # a producer id was waited for meanwhile
            reply(NotCoordinatorError("this broker no longer coordinates the transactional id"))
            return
        after = write.after

        def done(written: Written) -> None:
            if written.error is not None:
                if self._journal.is_open and name in self.transactions:
                    self._watch(name, self.transactions[name], self._around.settings.abort_retry_ms)
                reply(written.error)
                self._settled(name)
                return
            self._come_into_force(name, after)
            reply(write.refuse or _told(after))
            if after.state in PREPARED:
                self._send_markers(self._begin_ending(name, after))
            else:
                self._settled(name)

        self._changing[name] = after.state
        self._append(name, after, done)

    def _append(self, name: TransactionalId, after: Transaction, done: Callable[[Written], None]) -> None:
        value = encode_value(after, compact=self._around.version() >= 1)
        self._journal.write([Entry(encode_key(name), value)], self._around.clock(), done)

    def _come_into_force(self, name: TransactionalId, after: Transaction) -> None:
        self.transactions[name] = after
        self._watch(name, after)

    # -- markers -----------------------------------------------------------------------------------------------

    def _begin_ending(self, name: TransactionalId, prepared: Transaction) -> Ending:
        self._changing[name] = TRANSACTION.after(prepared.state, TransactionEvent.MARKED)
        made = self._endings[name] = Ending(
            transactional_id=name,
            producer=Producer(prepared.producer_id, prepared.epoch),
            commit=prepared.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self._leader_epoch,
            version=prepared.version,
            left=set(prepared.partitions),
        )
        return made

    def _send_markers(self, waiting: Ending) -> None:
        if waiting.left:
            self._around.markers.send(waiting, lambda: self._complete(waiting))
        else:
            self._complete(waiting)

    def _complete(self, waiting: Ending) -> None:
        """Every partition has its marker."""
        name = waiting.transactional_id
        if waiting.is_over:
            return
        after = ending.completed(self.transactions[name], self._around.clock())

        def done(written: Written) -> None:
            if waiting.is_over:
                return
            if written.error is None:
                del self._endings[name]
                self._come_into_force(name, after)
                self._settled(name)
                return
            again_ms = self._around.clock() + self._around.settings.completion_retry_ms
            self._around.deadlines.set(("complete", name), again_ms, lambda _: self._complete(waiting))

        self._append(name, after, done)

    # -- time ----------------------------------------------------------------------------------------------------

    def _watch(self, name: TransactionalId, transaction: Transaction, retry_ms: int = 0) -> None:
        """An open transaction is aborted when its time is up; in ``retry_ms``, if that was tried already."""
        deadlines = self._around.deadlines
        if transaction.state is not TransactionState.ONGOING:
            deadlines.cancel(("timeout", name))
            return
        due_ms = (transaction.start_ms or 0) + transaction.timeout_ms
        now_ms = self._around.clock()
        due_ms = due_ms if due_ms > now_ms else now_ms + retry_ms
        deadlines.set(("timeout", name), due_ms, lambda now_ms: self._time_is_up(name, now_ms))

    def _time_is_up(self, name: TransactionalId, now_ms: TimestampMs) -> None:
        if self._overdue is not None:  # what is begun before all was read would be begun once more then
            self._overdue.append(name)
            return
        before = self.transactions[name]
        if name in self._changing or before.state is not TransactionState.ONGOING:
            return  # whatever is being written sets its own time
        after = ending.abort_with_fence(before, now_ms, self._around.version())
        self._write(name, Write(after), lambda _: None)

    def _expire_later(self, now_ms: TimestampMs) -> None:
        at_ms = now_ms + self._around.settings.expiration_check_ms
        self._around.deadlines.set(
            ("expire", self._partition), at_ms, lambda now_ms: self._expire(list(self.transactions), now_ms)
        )

    def _expire(self, names: list[TransactionalId], now_ms: TimestampMs) -> None:
        """Some of ``names`` in this turn, the others in the next ones."""
        old_ms = now_ms - self._around.settings.expiration_ms
        some, rest = names[:IDS_PER_TURN], names[IDS_PER_TURN:]
        dead = [name for name in some if self._is_unused_since(name, old_ms)]
        if dead:
            self._bury(dead, now_ms)
        if rest:
            self._around.deadlines.set(
                ("expire", self._partition), now_ms + 1, lambda now_ms: self._expire(rest, now_ms)
            )
        else:
            self._expire_later(now_ms)

    def _is_unused_since(self, name: TransactionalId, old_ms: TimestampMs) -> bool:
        found = self.transactions.get(name)
        if found is None or name in self._changing:
            return False
        return found.state in AT_REST and found.update_ms <= old_ms

    def _bury(self, names: list[TransactionalId], now_ms: TimestampMs) -> None:
        for name in names:
            self._changing[name] = TRANSACTION.after(self.transactions[name].state, TransactionEvent.EXPIRED)

        def done(written: Written) -> None:
            for name in names:
                if written.error is None:
                    del self.transactions[name]
                self._settled(name)

        self._journal.write([Entry(encode_key(name), None) for name in names], now_ms, done)

    def is_dead(self, name: TransactionalId) -> bool:
        """Its tombstone is being written."""
        return self._changing.get(name) is TransactionState.DEAD


def _told(after: Transaction) -> Producer:
    """Who the client is from now on: with a new producer id at once, although it is in force only after the markers."""
    if after.next_producer_id is not None:
        return Producer(after.next_producer_id, 0)
    return Producer(after.producer_id, after.epoch)
